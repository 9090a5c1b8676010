"""Runs a program, eagerly or compiled, and notes what can be seen of each call."""

from __future__ import annotations

import contextlib
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from fusewright.fuzz.inputs import collected_leaves
from fusewright.fuzz.observation import Facts, Observer, error_text
from fusewright.fuzz.program import RandomProgram
from fusewright.records import record

Transform = Callable[[Any, Any], Any]
"""From a function and the program's `DYNAMIC` to what is called in its place."""

MODES: Final[dict[str, Callable[[], contextlib.AbstractContextManager[Any]]]] = {
    "plain": contextlib.nullcontext,
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@record
class Raised:
    """An exception that a call ended with."""

    phase: str
    """Where: "make", "call" or "backward"."""

    kind: str
    message: str
    place: str
    """The innermost function of its traceback, such as `runtime.py:run`."""

    def __str__(self) -> str:
        return f"{self.phase} {self.place}: {self.kind}: {self.message}"


@record(eq=False)
class Outcome:
    """One call of a run."""

    raised: Raised | None
    facts: Facts


def eagerly(function: Any, dynamic: Any) -> Any:
    """The transform that leaves functions as they are."""
    return function


def run(
    program: RandomProgram,
    transform: Transform = eagerly,
    lift: bool = False,
    device: str = "cpu",
) -> Iterator[Outcome]:
    """The calls of a program on a device, one after the other. Whatever the text of the program
    itself raises when it is executed is raised.
    """
    before = torch.get_default_dtype()
    torch.manual_seed(program.seed)
    random.seed(program.seed)
    try:
        if lift:
            torch.set_default_dtype(torch.float64)
        with collected_leaves(lift, device) as leaves:
            namespace = program.load(lift, device)
            target = transform(namespace["f"], namespace["DYNAMIC"])
            for call in namespace["CALLS"]:
                leaves.clear()
                yield _call(namespace, target, call, leaves, device)
    finally:
        torch.set_default_dtype(before)
        torch.set_grad_enabled(True)


def _call(
    namespace: dict[str, Any],
    target: Any,
    call: dict[str, Any],
    leaves: list[torch.Tensor],
    device: str,
) -> Outcome:
    phase, result, raised = "make", None, None
    arguments: list[Any] = []
    drive = namespace.get("drive", lambda function, *arguments: function(*arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            arguments = list(namespace["make"](**call))
            kept = list(arguments)
            phase = "call"
            with MODES[namespace["MODE"]]():
                result = drive(target, *arguments)
            if namespace["MODE"] == "grad":
                phase = "backward"
                _backward(result)
        except Exception as error:
            raised = _raised(phase, error)
        try:  # A failed assertion of a kernel shows at the next wait only.
            wait_for(device)
        except Exception as error:
            return Outcome(_raised(phase, error), {})
    observer = Observer()
    for number, argument in enumerate(kept if phase != "make" else []):
        observer.add(f"argument {number}", argument)
    observer.add("result", result)
    for number, leaf in enumerate(leaves):
        observer.add_gradient(f"gradient {number}", leaf.grad)
    for name in namespace["STATE"]:
        observer.add(name, namespace[name])
    for number, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor):
            observer.add_memory(f"memory of argument {number}", argument)
    return Outcome(raised, observer.facts)


def wait_for(device: str) -> None:
    """Wait until a device has done what was asked of it."""
    if device == "cuda":
        torch.cuda.synchronize()


def _backward(result: Any) -> None:
    """Gradients of a sum of all results, each element with a weight of its own."""
    total: Any = 0
    for tensor in tensors_in(result):
        if tensor.requires_grad:
            values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            slope = torch.linspace(0.5, 1.5, values.numel(), dtype=torch.float64)
            slope = slope.reshape(values.shape).to(values.device)
            total = total + (values.double() * slope).sum()
    if isinstance(total, torch.Tensor):
        total.backward()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a result, each once."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        part = pending.pop(0)
        if isinstance(part, torch.Tensor):
            if id(part) not in seen:
                seen.add(id(part))
                yield part
        elif isinstance(part, list | tuple):
            pending.extend(part)
        elif isinstance(part, dict):
            pending.extend(part.values())


def _raised(phase: str, error: BaseException) -> Raised:
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename.rpartition('/')[2]}:{code.co_name}"
        trace = trace.tb_next
    return Raised(phase, type(error).__name__, error_text(error), place)


class _Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(f"{record.name}: {record.getMessage()}")


@contextlib.contextmanager
def told_fallbacks() -> Iterator[list[str]]:
    """The compiler's messages, in this context, about code that runs eagerly."""
    keeper = _Keeper()
    loggers = [logging.getLogger(f"fusewright.{name}") for name in ("fallbacks", "backend")]
    for logger in loggers:
        logger.addHandler(keeper)
    try:
        yield keeper.messages
    finally:
        for logger in loggers:
            logger.removeHandler(keeper)
