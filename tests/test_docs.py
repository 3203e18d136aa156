"""The code in the docs runs."""

import re

import pytest

from tests.conftest import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["testing", "durable-functions", "schedules", "limits", "usage"])
def test_the_code_of_a_page_runs(db: None, page: str) -> None:
    code = "\n".join(BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text()))
    assert code
    exec(compile(code, f"docs/{page}.md", "exec"), {"__name__": "docs"})
