"""Directives of a program to capture: run this as it is, put that in the graph as one call, break
here. Without capture each of these does nothing.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import torch

from fusewright import native
from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles
from fusewright.capture.module_proxy import ModuleProxy, ProxyState, proxy_of
from fusewright.capture.sources import AttributeSource, ConstantSource, Source
from fusewright.capture.values.base import MISSING, Machine, NotConstant, Value, evaluate
from fusewright.capture.values.constant import TRUE
from fusewright.capture.values.functions import function_name
from fusewright.errors import Unsupported
from fusewright.torch_compat import keeps_dynamo_out

Function = TypeVar("Function", bound=Callable[..., Any])

DISABLE_REASON: Final = "_fusewright_disable_reason"
"""Attribute of functions that `disable` made: why."""

TORCH_DISABLED: Final = "_torchdynamo_disable"
"""Attribute by which torch's own `disable` marks functions; with `_msg`, why."""

_NOT_COMPILED: Final = "fusewright: this code is not compiled"
"""The last constant of code objects that run as they are, though not what they call."""


def graph_break(message: str = "") -> None:
    """End the graph here: what comes before and what comes after are captured apart.

    `message`: why, for `explain`. Under `fullgraph=True` it is an error.
    """


@handles(graph_break)
def _break(machine: Machine, message: Value | None = None) -> NoReturn:
    text = message.constant() if message is not None else ""
    raise machine.unsupported(reasons.USER_BREAK, message=text or "the program asked for it")


def is_compiling() -> bool:
    """True while the program is captured, here or by torch.compile, so that compiled code may
    differ from eager code.
    """
    return torch.compiler.is_compiling()


handles(is_compiling)(lambda machine: TRUE)


def disable(function: Any = None, *, recursive: bool = True, reason: str = "") -> Any:
    """`function`, run as it is; also a decorator, with or without arguments.

    `recursive`: what it calls is not compiled either. Else only the function itself is left alone:
    the result is a copy of it. Of a module, the result is the module with another call. `reason`:
    why, for `explain`. TypeError: it is a class or is not callable, or with `recursive=False` not
    written in Python.
    """
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"fusewright.disable takes a function or a module, not {function!r}")
    if recursive and isinstance(function, torch.nn.Module):
        disable_again = functools.partial(disable, reason=reason)
        call = native.disable(function.__call__)
        state = ProxyState(function, call, disable_again, lambda: (disable_again, ()), reason)
        return proxy_of(DisabledModule, state)
    if recursive:
        disabled = native.disable(function)
        disabled.__dict__[DISABLE_REASON] = reason
        return disabled
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"disable(recursive=False) takes a Python function, not {function!r}")
    return _unchanged_copy(function, reason)


class DisabledModule(ModuleProxy):
    """A module that runs as it is, with all that it calls."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._proxy_state.call(*args, **kwargs)


def _unchanged_copy(function: types.FunctionType, reason: str) -> types.FunctionType:
    """A function that does the same, whose code says that it is not to be compiled."""
    code = function.__code__
    marked = code.replace(co_consts=(*code.co_consts, _NOT_COMPILED))
    copy = types.FunctionType(
        marked,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    functools.update_wrapper(copy, function)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__[DISABLE_REASON] = reason
    return copy


def runs_as_written(code: types.CodeType) -> bool:
    """Whether frames of this code run as they are: `disable(…, recursive=False)`."""
    return code.co_consts[-1:] == (_NOT_COMPILED,)


def why_disabled(function: Any) -> str | None:
    """The reason given for a function that must not be captured, "" where none was given; None for
    other functions. Torch's own `disable` counts.
    """
    if torch_disabled(function):
        return getattr(function, f"{TORCH_DISABLED}_msg", None) or ""
    if isinstance(function, DisabledModule):
        return function._proxy_state.owner  # type: ignore[no-any-return]
    return getattr(function, DISABLE_REASON, None)


def torch_disabled(function: Any) -> bool:
    """Whether torch's own `disable` made a function."""
    return bool(getattr(function, TORCH_DISABLED, False)) and not _sets_up_state(function)


def _sets_up_state(function: Any) -> bool:
    """Whether a function sets up an optimizer's state. torch's compiler, where it is imported, has
    disabled that for itself, which does not concern other compilers.
    """
    original = getattr(function, TORCH_ORIGINAL, None)
    if getattr(original, "__name__", None) != "_init_group":
        return False
    return str(original.__module__).startswith("torch.optim.")


def disabled_alone(function: Any) -> types.CodeType | None:
    """The code that runs as it is where torch's `disable(recursive=False)` made `function`, though
    what that calls is compiled; None for other functions.
    """
    if getattr(function, f"{TORCH_DISABLED}_recursive", True):
        return None
    return getattr(function, TORCH_ORIGINAL).__code__  # type: ignore[no-any-return]


TORCH_ORIGINAL: Final = "_torchdynamo_orig_callable"
"""Attribute by which torch.compile's wrappers know what they compile."""


def compiled_by_torch(function: Any) -> bool:
    """Whether torch.compile made a function, which then keeps its original. (A wrapper that copied
    the attributes of such a function is none: the identity that it copied is not its own.)
    """
    return getattr(function, "_torchdynamo_wrapper_id", None) == id(function)


def torch_original(
    machine: Machine, function: types.FunctionType, source: Source | None
) -> Value | None:
    """The function behind a wrapper made for torch's own compiler: the one that was to be compiled,
    or that torch keeps it from; None for other functions.
    """
    if keeps_dynamo_out(function):
        name = "__wrapped__"
    elif compiled_by_torch(function) or _sets_up_state(function):
        name = TORCH_ORIGINAL
    else:
        return None
    original = getattr(function, name)
    if source is None:
        return machine.wrap(original, ConstantSource(original))
    return machine.wrap(original, AttributeSource(source, name))


@handles(native.Disabled.__call__, DisabledModule.__call__)
def _call_disabled(machine: Machine, disabled: Value, /, *args: Value, **kw: Value) -> NoReturn:
    raise disabled_error(machine, disabled.real())


def disabled_error(machine: Machine, function: Any) -> Unsupported:
    """The break at a call of a function that must not be captured."""
    why = why_disabled(function) or "the program says so"
    return machine.unsupported(reasons.DISABLED, function=function_name(function), why=why)


def allow_in_graph(function: Function) -> Function:
    """Let calls of `function` stand in the graph as they are: its body is not looked into, so it
    must depend on its arguments alone and change nothing but tensors. Say so before compiling.

    Returns `function`, so that it serves as a decorator. TypeError: it is not callable.
    """

    def handler(machine: Machine, /, *arguments: Value, **keywords: Value) -> Any:
        try:
            return machine.call_graph(function, list(arguments), keywords)
        except NotConstant as error:
            raise machine.unsupported(
                reasons.TENSOR_TO_UNKNOWN,
                function=function_name(function),
                argument=error.args[0].describe(),
            ) from None

    return _enter(function, handler)


def disallow_in_graph(function: Function) -> Function:
    """Break the graph at calls of `function`, a torch function for example. Say so before
    compiling. Returns `function`. TypeError: it is not callable.
    """

    def handler(machine: Machine, /, *arguments: Value, **keywords: Value) -> NoReturn:
        raise machine.unsupported(reasons.DISALLOWED, function=function_name(function))

    return _enter(function, handler)


def assume_constant_result(function: Function) -> Function:
    """Call `function` once, when a call of it is captured, and take its result for the result of
    every later call with the compiled code. Its arguments must be known when compiling: no tensors
    made inside. Returns `function`. TypeError: it is not callable.
    """

    def handler(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
        constants = [_known(machine, function, argument) for argument in arguments]
        named = {name: _known(machine, function, kw) for name, kw in keywords.items()}
        result = evaluate(machine, function, *constants, **named)
        return machine.wrap(result, ConstantSource(result))

    return _enter(function, handler)


def _known(machine: Machine, function: Any, argument: Value) -> Any:
    """The object that an argument is, made for real where the program made it of known parts."""
    real = argument.real()
    if real is not MISSING:
        return real
    try:
        machine.read_all([argument])
        return argument.to_python()
    except NotConstant:
        raise machine.unsupported(
            reasons.TENSOR_TO_UNKNOWN,
            function=function_name(function),
            argument=argument.describe(),
        ) from None


def _enter(function: Function, handler: Callable[..., Any]) -> Function:
    if not callable(function):
        raise TypeError(f"{function!r} is not callable")
    handles(function)(handler)
    return function
