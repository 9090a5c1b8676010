"""The modules that a fused graph calls: kernels, and programs that were compiled apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fusewright.ir.kernel import Kernel
from fusewright.runtime.debug_printer import assert_layout, check_nan, debug_print


class KernelModule(torch.nn.Module):
    """A kernel; called with tensors, sizes and units of work, in its own order, it is launched on
    them. It returns nothing: arguments are written to.
    """

    _is_impure = True  # FX removes no call of it

    def __init__(self, kernel: Kernel, launch: Callable[..., None]) -> None:
        super().__init__()
        self.kernel = kernel
        """Its source, arguments and launch facts."""

        self.launch = launch

    def forward(self, *arguments: Any) -> None:
        self.launch(*arguments)

    def extra_repr(self) -> str:
        names = [argument.name for argument in self.kernel.arguments]
        return f"{self.kernel.language}, {', '.join([*names, *self.kernel.sizes])}"

    def __deepcopy__(self, memo: dict[int, Any]) -> KernelModule:
        return KernelModule(self.kernel, self.launch)  # Machine code is not copied.


class ProgramModule(torch.nn.Module):
    """A condition, a loop or a formula of a gradient, compiled as a program of its own."""

    _is_impure = True

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *arguments: Any) -> Any:
        return self.run(*arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgramModule:
        return ProgramModule(self.run)


for function in (debug_print, check_nan, assert_layout):
    fx.has_side_effect(function)
