"""How to build a transport again in another process. Names code and carries plain values; holds no connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from .base import Transport


@dataclass(frozen=True, slots=True)
class Recipe:
    """A function `module:function` that gives a transport, and its arguments as JSON values."""

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)  # an API key may be among them

    def build(self) -> Transport:
        """A new transport. Raises what the function raises."""
        module, _, name = self.function.partition(":")
        transport: Transport = getattr(import_module(module), name)(**self.arguments)
        return transport
