"""The threads on which autograd's engine runs backward, one for each device beside the CPU, at the
end of a process.

Such a thread drops what belongs to a backward after it has woken the thread that waits for it. What
it drops may be a Python object (torch keeps a copy of the caller's context variables there), for
which it asks for the interpreter's lock. Where the interpreter is being torn down by then, CPython
ends the thread, and the process aborts: "terminate called without an active exception". Seen with
torch 2.13, without compiled functions as well, about once in fifty short programs.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Iterable
from typing import Final

import torch

from fusewright import torch_compat

_devices: Final[set[torch.device]] = set()
"""The devices whose threads are waited for."""

_kept: Final[list[torch.Tensor]] = []
"""What a thread that was waited for may still hold: it must not be the last to drop it."""


def settle_at_exit(devices: Iterable[torch.device]) -> None:
    """Wait for the engine's threads of `devices` before the interpreter is torn down."""
    for device in set(devices) - _devices:
        if device.type not in ("cpu", "meta"):
            _devices.add(device)
            atexit.register(settle, device)


def settle(device: torch.device) -> None:
    """Return when the engine's thread of `device` has dropped all that earlier backwards left: it
    takes a task when it is done with the one before, and this one leaves nothing behind.
    """
    with contextlib.suppress(RuntimeError):  # the device may be out of order, or gone
        leaf = torch.empty((), device=device, requires_grad=True)
        tangent = leaf.detach()
        _kept.extend(
            (leaf, tangent, *torch_compat.autograd.gradients((leaf,), (tangent,), (leaf,)))
        )
