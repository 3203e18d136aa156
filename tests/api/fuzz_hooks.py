"""What schemathesis loads to have real things put into its calls (`fuzzing`), before each of them."""

from __future__ import annotations

import os
from typing import Any

import httpx
import schemathesis

from tests.api.fuzzing import Things, fill

things = Things(httpx.Client(base_url=f"{os.environ['FUZZ_URL']}/v1/api/", headers={"authorization": f"Bearer {os.environ['FUZZ_KEY']}"}, timeout=30))


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case[Any], kwargs: dict[str, Any]) -> None:
    """Before each request."""
    fill(case, things)
