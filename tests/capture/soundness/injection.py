"""Errors injected into the compiler: at every call that one of its functions makes of another.

The places are read from the functions' own source, so that a stage that is added is met too.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any
from unittest import mock

from fusewright.records import is_record


@dataclass(frozen=True, slots=True)
class Point:
    """A name that a function calls, and the module in which it is looked up."""

    caller: str
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.caller} → {self.name}"


def points_of(function: Callable[..., Any]) -> list[Point]:
    """The functions and classes of fusewright that a function calls by name."""
    module = sys.modules[function.__module__]
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    names = {
        node.func.id: None
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return [
        Point(function.__qualname__, module.__name__, name)
        for name in names
        if _is_ours(getattr(module, name, None))
    ]


def _is_ours(found: Any) -> bool:
    module = getattr(found, "__module__", None) or ""
    if isinstance(found, type) and not isinstance(vars(found).get("__init__"), FunctionType):
        return False  # Written in C, or without work of its own.
    if isinstance(found, type) and (is_record(found) or issubclass(found, BaseException)):
        return False
    return callable(found) and module.startswith("fusewright")


class Injected(RuntimeError):
    """What an injected error is."""


@contextmanager
def injected(
    point: Point, error: BaseException | None, passed: list[None] | None = None
) -> Iterator[None]:
    """Raise `error` at a point; without one, add to `passed` each time that a call passes there."""
    module = sys.modules[point.module]
    found = getattr(module, point.name)
    is_class = isinstance(found, type)  # A class stays a class, for whoever asks `isinstance`.
    owner, name = (found, "__init__") if is_class else (module, point.name)
    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if error is not None:
            raise error
        if passed is not None:
            passed.append(None)
        return original(*args, **kwargs)

    with mock.patch.object(owner, name, call):
        yield
