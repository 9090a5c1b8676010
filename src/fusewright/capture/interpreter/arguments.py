"""Bind the arguments of a call to the parameters of a Python function, as CPython does."""

from __future__ import annotations

import inspect
import types
from typing import NoReturn

from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.functions import FunctionValue


def bind_arguments(
    machine: Machine,
    function: FunctionValue,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> dict[str, Value]:
    """The function's parameters by name. Raises TypeError in the traced program when the call does
    not fit.
    """
    code = function.code
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    bound = dict(zip(positional, arguments, strict=False))
    next_name = code.co_argcount + code.co_kwonlyargcount

    if code.co_flags & inspect.CO_VARARGS:
        bound[code.co_varnames[next_name]] = machine.new_tuple(arguments[len(positional) :])
        next_name += 1
    elif len(arguments) > len(positional):
        _raise_mismatch(machine, function, arguments, keywords)

    if keywords:
        by_name = {*positional[code.co_posonlyargcount :], *keyword_only}
        if any(name in bound for name in keywords if name in by_name):
            _raise_mismatch(machine, function, arguments, keywords)
        bound.update((name, value) for name, value in keywords.items() if name in by_name)
        extra = {name: value for name, value in keywords.items() if name not in by_name}
    else:
        extra = {}
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[code.co_varnames[next_name]] = machine.new_dict(extra)
    elif extra:
        _raise_mismatch(machine, function, arguments, keywords)

    first_default = len(positional) - len(function.defaults)
    for index, name in enumerate(positional):
        if name not in bound and index >= first_default:
            bound[name] = function.defaults[index - first_default]
    for name in keyword_only:
        if name not in bound and name in function.keyword_defaults:
            bound[name] = function.keyword_defaults[name]
    if not all(name in bound for name in (*positional, *keyword_only)):
        _raise_mismatch(machine, function, arguments, keywords)
    return bound


def _do_nothing() -> None:
    pass


_COLLECTS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def _raise_mismatch(
    machine: Machine,
    function: FunctionValue,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> NoReturn:
    """Raise what CPython raises for a call that does not fit: it is made for real, of a function
    with the same parameters that does nothing.
    """
    code = function.code
    nothing = _do_nothing.__code__
    shell = nothing.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_flags=nothing.co_flags & ~_COLLECTS | code.co_flags & _COLLECTS,
        co_varnames=code.co_varnames,
        co_nlocals=len(code.co_varnames),
    )
    stub = types.FunctionType(shell, {}, code.co_name, (None,) * len(function.defaults))
    stub.__kwdefaults__ = dict.fromkeys(function.keyword_defaults)
    existing = function.real()
    stub.__qualname__ = getattr(existing, "__qualname__", code.co_qualname)
    try:
        stub(*arguments, **keywords)
    except TypeError as error:
        machine.raise_error(TypeError, *error.args)
    raise AssertionError(f"the arguments of {code.co_qualname} fit after all")
