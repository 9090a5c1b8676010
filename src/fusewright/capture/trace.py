"""Capture a call as one graph, without compiling it: `trace(f, *args)`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, Final, cast

from torch import fx

from fusewright.capture.frame_capture import NotCaptured, capture_call
from fusewright.capture.handlers.registry import meaning_of


def call_module(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The frame that stands for a call of any callable that is not itself a Python function:
    `self(*args, **kwargs)`.
    """
    return self(*args, **kwargs)


CALL_MODULE: Final = cast(types.FunctionType, call_module)


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.GraphModule:
    """The torch-level graph of `function(*args, **kwargs)`: a function or an nn.Module, one graph,
    no breaks.

    Its placeholders are the tensors read (arguments, parameters, buffers), its output a tuple of
    the tensors needed to build the result. Raises `Unsupported` naming the line that cannot be
    captured, and the program's own exceptions.
    """
    target, arguments, keywords = root_call(function, args, kwargs)
    bound = inspect.signature(target).bind(*arguments, **keywords)
    bound.apply_defaults()
    try:
        return capture_call(target, bound.arguments).graph_module
    except NotCaptured as failure:
        if failure.error is not None:
            raise failure.error from None
        function(*args, **kwargs)
        raise AssertionError(
            "the program raised while it was traced, but not when it was run"
        ) from None


def root_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[types.FunctionType, tuple[Any, ...], dict[str, Any]]:
    """The Python function whose frame is captured for a call of any callable, and its arguments."""
    if isinstance(function, types.FunctionType) and not meaning_of(function).takes_closure:
        return function, args, kwargs
    if isinstance(function, types.MethodType) and isinstance(function.__func__, types.FunctionType):
        return function.__func__, (function.__self__, *args), kwargs
    return CALL_MODULE, (function, *args), kwargs
