"""Calls of handlers, with arguments that may be more or fewer than the function takes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED
from fusewright.capture.interpreter.stand_ins import raise_as
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import NONE
from fusewright.capture.values.functions import function_name


def call_handler(
    machine: Machine,
    handler: Callable[..., Any],
    function: Any,
    arguments: list[Value],
    keywords: dict[str, Value],
) -> Any:
    """The result of a call by a function's handler: a value, or DECLINED.

    Arguments that the function does not take end in its own TypeError. Those that it takes and the
    handler does not, break the graph.
    """
    in_python = isinstance(function, types.FunctionType)  # and says itself what it takes
    if keywords and not in_python and not takes(function, arguments, keywords):
        raise_as(machine, function, *arguments, **keywords)
    try:
        result = handler(machine, *arguments, **keywords)
    except TypeError:
        if takes(handler, [machine, *arguments], keywords):
            raise
        if in_python:
            return DECLINED
        if not takes(function, arguments, keywords):
            raise_as(machine, function, *arguments, **keywords)
        unknown = machine.unsupported(reasons.UNKNOWN_CALLABLE, function=function_name(function))
        raise unknown from None
    return NONE if result is None else result


def takes(function: Any, arguments: list[Any], keywords: dict[str, Value]) -> bool:
    """Whether a call fits a function's parameters, as far as its signature is known."""
    try:
        inspect.signature(function).bind(*arguments, **keywords)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
