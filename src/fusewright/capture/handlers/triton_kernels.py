"""Triton kernels that a program launches itself: each launch breaks the graph, and runs as it is
written. Nothing of Triton's own code, which compiles and launches, is captured.
"""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import handles, when_imported
from fusewright.capture.values.base import Machine, Value


def _refuse(machine: Machine, kernel: Value, /, *_: Value, **__: Value) -> NoReturn:
    name = getattr(kernel.real(), "__name__", "of this class")
    raise machine.unsupported(reasons.TRITON_KERNEL, kernel=name)


@when_imported("triton.runtime")
def enter_launches(runtime: ModuleType) -> None:
    """Enter what `kernel[grid](…)` calls, of a kernel and of what tunes it."""
    handles(runtime.JITFunction.run, runtime.Autotuner.run, runtime.Heuristics.run)(_refuse)


@when_imported("triton.runtime.interpreter")
def enter_interpreted(machine: ModuleType) -> None:
    """Enter the same under Triton's interpreter."""
    handles(machine.InterpretedFunction.run)(_refuse)
