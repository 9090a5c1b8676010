"""The table of callables that capture understands: what a call of each means on values.

A handler takes the interpreter and the call's arguments as values, and returns a value (None stands
for Python's None) or DECLINED, to let the call be treated as if there were no handler. Callables in
`PURE` are run for real when everything they are given is known.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NoReturn

from fusewright.capture.reasons import Reason
from fusewright.capture.values.base import Interpreter, Value

HANDLERS: Final[dict[Any, Callable[..., Any]]] = {}
"""By the callable itself: a C function, a method descriptor, a class, or a Python function."""

PURE: Final[set[Any]] = set()
"""Callables without side effects whose result depends on their arguments alone."""

POLYFILLS: Final[dict[Any, Callable[..., Any]]] = {}
"""Python functions that are inlined in place of C functions."""


INNER_FUNCTIONS: Final[dict[int, Callable[..., Any]]] = {}
"""Handlers of what a library's function returns, a closure, by the identity of its code, which the
library keeps. They take the closure before its arguments.
"""


_WAITING: Final[dict[str, Callable[[ModuleType], object]]] = {}
"""By module: what enters the handlers of its functions."""


def when_imported(name: str) -> Callable[[Callable[[ModuleType], None]], None]:
    """Decorates a function that enters handlers: it is called, with the module of this name, once a
    program has imported that, so that capture does not import it for programs without it.
    """
    return functools.partial(_WAITING.__setitem__, name)


def enter_imported() -> None:
    """Enter the handlers of modules that are there by now; done before a capture."""
    for name in [name for name in _WAITING if name in sys.modules]:
        enter = _WAITING.pop(name, None)  # another thread may have been first
        if enter is not None:
            enter(sys.modules[name])


class _Declined:
    __slots__ = ()


DECLINED: Final = _Declined()


def handles(*callables: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a handler for some callables in the table."""

    def enter(handler: Callable[..., Any]) -> Callable[..., Any]:
        for function in callables:
            HANDLERS[function] = handler
        return handler

    return enter


def refusal(reason: Reason, **details: object) -> Callable[..., NoReturn]:
    """A handler for what always breaks the graph, and why."""

    def refuse(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> NoReturn:
        raise interpreter.unsupported(reason, **details)

    return refuse


def polyfill(*callables: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a Python function that does what some callables written in C do."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for original in callables:
            POLYFILLS[original] = function
        return function

    return enter


def find(table: dict[Any, Any], function: Any) -> Any:
    """A table's entry for a callable, or None; a callable that has no hash is in no table."""
    try:
        return table.get(function)
    except TypeError:
        return None
