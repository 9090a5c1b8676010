"""Passes as values: a stage is a tuple of them, so that each can be named and run by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from fusewright.records import record

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result", covariant=True)


@record
class Pass(Generic[Arguments, Result]):
    """One change that a stage makes to what it is given."""

    name: str
    run: Callable[Arguments, Result]
