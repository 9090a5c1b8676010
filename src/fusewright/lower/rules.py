"""The registry of lowering rules: one function an ATen operator, found by the operator's qualified
name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Rule = Callable[..., Any]
"""`rule(call, *arguments, **keywords)`: tensors arrive as boxes, symbolic integers as indices, the
rest as torch gave it. Returns a box, a tuple of boxes (None for a result that has no use), or
NotImplemented, which means that these arguments are left to the eager operator.
"""

Function = TypeVar("Function", bound=Rule)

RULES: dict[str, Rule] = {}


def words(text: str) -> tuple[str, ...]:
    """The names in `text`, which may run over several lines."""
    return tuple(text.split())


def rule(*operators: str) -> Callable[[Function], Function]:
    """Register the decorated function for `operators` (`aten.gelu.default`)."""

    def register(function: Function) -> Function:
        for operator in operators:
            assert operator not in RULES, f"two rules for {operator}"
            RULES[operator] = function
        return function

    return register
