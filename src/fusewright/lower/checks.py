"""Checks of what the program promised of its sizes."""

from __future__ import annotations

from typing import Any

from fusewright.ir.index import Index
from fusewright.ir.program import CheckFact
from fusewright.lower.builder import Call
from fusewright.lower.rules import rule


@rule("aten._assert_scalar.default")
def assert_scalar(call: Call, condition: Any, message: str) -> Any:
    if not isinstance(condition, Index):
        return NotImplemented
    lower, _ = condition.bounds()
    size = condition if lower is not None and lower >= 0 else condition * condition
    call.builder.statements.append(CheckFact(number=size - 1, message=message))
    return None
