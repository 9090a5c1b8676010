"""Recovery from a compiled graph that raises while it runs: the call runs again, as it was
written.

    def f(x, i):
        g0, = compiled(x, i)              # raises: an index is out of range
        …
    except error:                         # in generated code, at no cost where nothing is raised
        return run_as_written(…, error, f as written, (x, i)) or raise

Nothing that the call does to Python objects has been done by then, so it can begin once more: eager
raises from the right line, inside the right `try`, or shows that the graph was wrong. Where the
graph has written to tensors that the caller holds, or may have, it cannot: the exception then goes
on, with a note. Graphs of our own compiler write when nothing but the writing itself may raise.
"""

from __future__ import annotations

import functools
import signal
import traceback
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.errors import FusewrightError, is_partial_write
from fusewright.native import Continuation, Entry

Failed = Callable[[Exception], Callable[[], None] | None]
"""Told what a graph raised; gives what to call if the call, as it was written, returns."""


def run_as_written(
    failed: Failed, error: BaseException, function: FunctionType, arguments: tuple[Any, ...]
) -> Continuation | None:
    """Runs the call as it was written, with the hook off; with the first argument bound, a
    `Recover`.
    """
    if not isinstance(error, Exception) or isinstance(error, FusewrightError):
        return None
    if _is_of_a_signal(error) or _is_of_a_saved_tensor_hook(error):
        return None
    return Continuation(function, arguments, Entry(function, None, on_return=failed(error)))


def run_unless_written(
    failed: Failed, error: BaseException, function: FunctionType, arguments: tuple[Any, ...]
) -> Continuation | None:
    """`run_as_written` of a graph that writes to its inputs last, unless it has begun to."""
    if is_partial_write(error):
        tell_why_not(error, function, arguments)
        return None
    return run_as_written(failed, error, function, arguments)


def _is_of_a_signal(error: Exception) -> bool:
    """Whether a signal's handler raised it: it came while the graph ran, and not because of it."""
    return _passed_through(error, [signal.getsignal(number) for number in signal.valid_signals()])


def _is_of_a_saved_tensor_hook(error: Exception) -> bool:
    """Whether a hook of the user's raised it, which was given what the graph saves for backward: a
    checkpoint ends its second forward so. Hooks have been told of the call, so that it cannot
    begin again.
    """
    hooks = torch_compat.autograd.INNERMOST_HOOKS(True)
    return hooks is not None and _passed_through(error, hooks[:1])


def _passed_through(error: Exception, functions: Iterable[Any]) -> bool:
    """Whether the exception comes from one of these functions, or what that called."""
    codes = {id(_code_of(function)) for function in functions} - {id(None)}  # hashes ask constants
    return any(id(frame.f_code) in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _code_of(function: Any) -> CodeType | None:
    """The code of a function, of a method, of what `functools.partial` calls, or of the `__call__`
    of an object; None of what is not written in Python.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if callable(function) and not hasattr(function, "__code__"):
        function = type(function).__call__
    return getattr(function, "__code__", None)


def tell_why_not(error: BaseException, function: FunctionType, arguments: tuple[Any, ...]) -> None:
    """Lets the exception go on, with a note that its line is not the program's; a `Recover`."""
    if isinstance(error, Exception):
        error.add_note(
            f"raised while a compiled graph of {function.__qualname__} ran. Running the call as "
            "written would show the line, but the graph writes to its inputs, which must not "
            "happen twice; fusewright.disable does"
        )


def writes_last(compiled: Callable[..., Any]) -> bool:
    """Whether a backend promises of what it compiled that it writes to inputs last, and marks with
    `note_partial_write` what it raises when it has begun to.
    """
    return getattr(compiled, "writes_last", False)


def entry_of(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a frame calls with the inputs: `compiled`, or what the backend offers that
    does the same with less around it.
    """
    entry: Callable[..., Any] = getattr(compiled, "entry", compiled)
    return entry


def keeping_random_state(
    compiled: Callable[..., Any], devices: Iterable[torch.device]
) -> Callable[..., Any]:
    """`compiled`, made to leave the random states of the CPU and of these devices as they were when
    it raises.
    """
    cuda = sorted({device.index or 0 for device in devices if device.type == "cuda"})

    def call(*inputs: Any) -> Any:
        if cuda and torch.cuda.is_current_stream_capturing():  # its states cannot be read then
            return compiled(*inputs)
        before = torch.get_rng_state()
        before_on_cuda = [torch.cuda.get_rng_state(index) for index in cuda]
        try:
            return compiled(*inputs)
        except Exception:
            torch.set_rng_state(before)
            for index, state in zip(cuda, before_on_cuda, strict=True):
                torch.cuda.set_rng_state(state, index)
            raise

    return call
