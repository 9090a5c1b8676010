"""Torch's modes of the calling thread: what they are now, the calls that lead from one state of
them to another, and how to put them back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx
from torch.fx.node import has_side_effect

from fusewright import torch_compat
from fusewright.records import record, replace

ModeChange = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function that sets a mode, and its arguments."""


@record
class Mode:
    """One mode: `write(*arguments, value)` sets what `read(*arguments)` gives."""

    read: Callable[..., Any]
    write: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


MODES: Final = (
    Mode(torch.is_grad_enabled, torch_compat.set_grad_enabled),
    Mode(torch.get_default_dtype, torch_compat.states.set_default_dtype),
    Mode(torch.is_autocast_enabled, torch.set_autocast_enabled, ("cpu",)),
    Mode(torch.is_autocast_enabled, torch.set_autocast_enabled, ("cuda",)),
    Mode(torch.get_autocast_dtype, torch.set_autocast_dtype, ("cpu",)),
    Mode(torch.get_autocast_dtype, torch.set_autocast_dtype, ("cuda",)),
    Mode(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
)
"""The modes that a captured program may change by setting a value."""

SETTERS: Final = {mode.write: mode.read for mode in MODES}
"""The function that reads what each setter sets."""

IN_GRAPHS: Final[tuple[Any, ...]] = (
    *SETTERS,
    torch.clear_autocast_cache,
    torch_compat.states.enter_inference_mode,
    torch_compat.states.leave_inference_mode,
)
for _function in IN_GRAPHS:
    has_side_effect(_function)  # so that fx's removal of dead code leaves them in a graph


@record
class Modes:
    """The modes of a thread at one moment."""

    values: tuple[Any, ...]
    """The setting of each of `MODES`."""

    autocast_nesting: int
    """How many autocast regions the thread was in: torch keeps casts until it leaves the last."""

    function_modes: tuple[Any, ...]
    """The stack of torch function modes; each `with torch.device(…)` stands on it."""

    @classmethod
    def now(cls) -> Modes:
        """The modes of the calling thread."""
        values = tuple([mode.read(*mode.arguments) for mode in MODES])
        nesting = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        return cls(values, nesting, tuple(torch_compat.states.function_modes()))


def changed_modes(before: Modes, after: Modes) -> list[ModeChange]:
    """The calls that lead from one state of a thread's modes to another."""
    changes: list[ModeChange] = [
        (mode.write, (*mode.arguments, value))
        for mode, old, value in zip(MODES, before.values, after.values, strict=True)
        if old != value
    ]
    deeper = after.autocast_nesting - before.autocast_nesting
    step = torch.autocast_increment_nesting if deeper > 0 else torch.autocast_decrement_nesting
    changes += [(step, ())] * abs(deeper)
    shared = _common_length(before.function_modes, after.function_modes)
    for mode in reversed(before.function_modes[shared:]):
        changes.append((torch.device.__exit__, (mode.device, None, None, None)))
    for mode in after.function_modes[shared:]:
        changes.append((torch.device.__enter__, (mode.device,)))
    return changes


def _common_length(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
    length = 0
    for mode, other in zip(left, right, strict=False):
        if mode is not other:
            break
        length += 1
    return length


def restore(modes: Modes) -> None:
    """Put the calling thread back into these modes, its very function modes included."""
    now = Modes.now()
    for function, arguments in changed_modes(
        now, replace(modes, function_modes=now.function_modes)
    ):
        function(*arguments)
    if now.function_modes != modes.function_modes:
        torch_compat.states.set_function_modes(modes.function_modes)


def guarding_modes(graph: fx.Graph, compiled: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled`, which runs `graph`, made to leave the thread's modes alone when it raises."""
    if not any(node.target in SETTERS for node in graph.nodes):
        return compiled

    def call(*inputs: Any) -> Any:
        before = Modes.now()
        try:
            return compiled(*inputs)
        except BaseException:
            restore(before)
            raise

    return call
