"""The table of callables that capture understands: one row each, which says what a call means.

There are three ways, tried in the order in which `Meaning` has them. A callable without a row is
interpreted if it is written in Python, made by its `__new__` and `__init__` if it is a class, put
in the graph if it is torch's, and otherwise breaks the graph (`interpreter.calls`).
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NoReturn, TypeVar

from fusewright.capture.reasons import Reason
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import CONSTANT_TYPES
from fusewright.records import record, replace

Handler = Callable[..., Any]
"""A function that performs a call on values: given the machine and the arguments, it returns a
value (None stands for Python's None), or DECLINED, to let the next way be tried.
"""

H = TypeVar("H", bound=Handler)


@record
class Meaning:
    """A row: how calls of one callable are captured."""

    handler: Handler | None = None
    """Says it on values."""
    is_pure: bool = False
    """Whether it has no side effects and its result depends on its arguments alone: it is run for
    real when they are known, and, if written in C and without a polyfill, on stand-ins when not.
    """
    polyfill: Callable[..., Any] | None = None
    """A Python function, or class, that does the same and is interpreted in its place."""
    takes_closure: bool = False
    """Whether the row is that of a closure's code, and its handler takes the closure first."""


MEANINGS: Final[dict[Any, Meaning]] = {}
"""The row of each callable, by the callable itself (a C function, a method descriptor, a class or a
Python function) or, for closures that a library's function returns, by their code.
"""

_NONE: Final = Meaning()
_PURE: Final = Meaning(is_pure=True)

_METHODS_IN_C: Final = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_PURE_OWNERS: Final = (*CONSTANT_TYPES, tuple, frozenset, slice)
"""Classes that are pure, as their methods written in C are."""

_PURE_MODULES: Final = frozenset({"math", "cmath", "_operator"})
"""Modules whose functions written in C are pure."""


def meaning_of(function: Any) -> Meaning:
    """The row of a callable, an empty one where it has none."""
    try:
        row = MEANINGS.get(function)
    except TypeError:  # it has no hash, and no row
        return _NONE
    if row is None and isinstance(function, types.FunctionType):
        row = MEANINGS.get(function.__code__)
    if row is None:
        return _PURE if _is_of_pure_kind(function) else _NONE
    return row


def _is_of_pure_kind(function: Any) -> bool:
    if isinstance(function, _METHODS_IN_C):
        return function.__objclass__ in _PURE_OWNERS
    if isinstance(function, types.BuiltinFunctionType):
        return function.__module__ in _PURE_MODULES
    return isinstance(function, type) and function in _PURE_OWNERS


# -- entering rows --------------------------------------------------------------------------------


def _enter(functions: tuple[Any, ...], **columns: Any) -> None:
    for function in functions:
        MEANINGS[function] = replace(meaning_of(function), **columns)


def handles(*functions: Any) -> Callable[[H], H]:
    """Decorates the handler of some callables."""

    def enter(handler: H) -> H:
        _enter(functions, handler=handler)
        return handler

    return enter


def handles_closures(code: types.CodeType) -> Callable[[H], H]:
    """Decorates the handler of closures of this code, which it takes before their arguments."""

    def enter(handler: H) -> H:
        _enter((code,), handler=handler, takes_closure=True)
        return handler

    return enter


def polyfill(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the Python function, or class, that does what some callables written in C do."""

    def enter(replacement: Callable[..., Any]) -> Callable[..., Any]:
        _enter(functions, polyfill=replacement)
        return replacement

    return enter


def pure(*functions: Any) -> None:
    """Enter callables without side effects whose result depends on their arguments alone."""
    _enter(functions, is_pure=True)


def refusal(reason: Reason, **details: object) -> Callable[..., NoReturn]:
    """A handler for what always breaks the graph, and why."""

    def refuse(machine: Machine, /, *arguments: Value, **keywords: Value) -> NoReturn:
        raise machine.unsupported(reason, **details)

    return refuse


class _Declined:
    __slots__ = ()


DECLINED: Final = _Declined()


# -- rows for modules that a program may not import ------------------------------------------------

_WAITING: Final[dict[str, Callable[[ModuleType], object]]] = {}
"""The function that enters a module's rows, by the module's name."""


def when_imported(name: str) -> Callable[[Callable[[ModuleType], None]], None]:
    """Decorates a function that enters rows: it is called, with the module of this name, once a
    program has imported that, so that capture does not import it for programs without it.
    """
    return functools.partial(_WAITING.__setitem__, name)


def enter_imported() -> None:
    """Enter the rows of modules that are there by now; done before a capture."""
    for name in [name for name in _WAITING if name in sys.modules]:
        enter = _WAITING.pop(name, None)  # another thread may have been first
        if enter is not None:
            enter(sys.modules[name])
