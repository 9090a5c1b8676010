"""Bind the arguments of a call to the parameters of a Python function, as CPython does."""

from __future__ import annotations

import inspect

from fusewright.capture.values.base import Interpreter, Value
from fusewright.capture.values.functions import FunctionValue


def bind_arguments(
    interpreter: Interpreter,
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
        bound[code.co_varnames[next_name]] = interpreter.new_tuple(arguments[len(positional) :])
        next_name += 1
    elif len(arguments) > len(positional):
        interpreter.raise_error(
            TypeError,
            f"{code.co_qualname}() takes {len(positional)} positional arguments "
            f"but {len(arguments)} were given",
        )

    if keywords:
        by_name = {*positional[code.co_posonlyargcount :], *keyword_only}
        extra = _bind_keywords(interpreter, function, bound, keywords, by_name)
    else:
        extra = {}
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[code.co_varnames[next_name]] = interpreter.new_dict(extra)
    elif extra:
        interpreter.raise_error(
            TypeError,
            f"{code.co_qualname}() got an unexpected keyword argument {next(iter(extra))!r}",
        )

    _bind_defaults(interpreter, function, bound, positional, keyword_only)
    return bound


def _bind_keywords(
    interpreter: Interpreter,
    function: FunctionValue,
    bound: dict[str, Value],
    keywords: dict[str, Value],
    by_name: set[str],
) -> dict[str, Value]:
    """Bind what parameters take by name; the rest is returned, for `**keywords`."""
    extra = {}
    for name, value in keywords.items():
        if name not in by_name:
            extra[name] = value
        elif name in bound:
            interpreter.raise_error(
                TypeError,
                f"{function.code.co_qualname}() got multiple values for argument {name!r}",
            )
        else:
            bound[name] = value
    return extra


def _bind_defaults(
    interpreter: Interpreter,
    function: FunctionValue,
    bound: dict[str, Value],
    positional: tuple[str, ...],
    keyword_only: tuple[str, ...],
) -> None:
    """Give the parameters left over their defaults."""
    first_default = len(positional) - len(function.defaults)
    for index, name in enumerate(positional):
        if name in bound:
            continue
        if index < first_default:
            interpreter.raise_error(
                TypeError,
                f"{function.code.co_qualname}() missing 1 required positional argument: {name!r}",
            )
        bound[name] = function.defaults[index - first_default]
    for name in keyword_only:
        if name in bound:
            continue
        if name not in function.keyword_defaults:
            interpreter.raise_error(
                TypeError,
                f"{function.code.co_qualname}() missing 1 required keyword-only argument: {name!r}",
            )
        bound[name] = function.keyword_defaults[name]
