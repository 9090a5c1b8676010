"""Guards on the state of torch and of the thread that every captured graph depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.capture.guards.kinds import Guard, GuardKind
from fusewright.capture.sources import StateSource, ThreadSource
from fusewright.native import dispatch_state, torch_states
from fusewright.records import record

_COMPARED_BY_VALUE = (int, str, torch.dtype, torch.device, type(None))


@record
class StateReading:
    """One state of torch as it was when the guards were built."""

    name: str
    """The native floor's name for the state, which it reads and compares."""

    read: Callable[[], Any]
    number: int
    """The state as the native floor read it."""

    value: Any

    @property
    def metadata(self) -> tuple[str, int]:
        """The test's operand."""
        return self.name, self.number


def global_state() -> Iterator[Guard]:
    """Grad mode, inference mode, autocast, default dtype and device, … are as they are now in the
    calling thread. Torch is asked for what the native floor cannot read.
    """
    yield Guard(GuardKind.GRAD_MODE, ThreadSource("grad mode"), torch.is_grad_enabled())
    dispatch = dispatch_state()
    if dispatch is not None:
        words = "inference mode, autocast, dispatch modes and functorch levels"
        yield Guard(GuardKind.DISPATCH_STATE, ThreadSource(words), dispatch)
    numbers = torch_states()
    readers = []
    for name, (words, read) in torch_compat.states.STATES.items():
        if name in numbers:
            reading = StateReading(name, read, numbers[name], read())
            yield Guard(GuardKind.GLOBAL_STATE, ThreadSource(words), reading)
        else:
            readers.append((words, read))
    readers += torch_compat.states.mode_readers()
    if dispatch is None:
        readers += torch_compat.states.thread_state_readers()
    for words, read in readers:
        value = read()
        by_value = isinstance(value, _COMPARED_BY_VALUE)
        kind = GuardKind.EQUALS if by_value else GuardKind.IDENTITY
        yield Guard(kind, StateSource(words, read), value)


def current_gpu() -> Guard:
    """The thread's current GPU is as it is now."""
    read = torch_compat.cuda.device
    return Guard(GuardKind.EQUALS, StateSource("torch.cuda.current_device()", read), read())
