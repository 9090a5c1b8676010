"""Runs Triton kernels of whole programs on the first GPU, compiled and launched by Triton."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fusewright.kernels.triton import TritonKernel
from fusewright.runtime.triton_compiler import compile_kernel
from tests.kernels.triton import launching


def launcher(folder: Path) -> launching.Launcher:
    """Compiles kernels for this GPU and launches them; `folder` is for their sources."""
    major, minor = torch.cuda.get_device_capability()

    def launch(kernel: TritonKernel, count: int, arguments: Sequence[Any]) -> None:
        compiled = compile_kernel(
            kernel.source,
            dict(kernel.signature),
            dict(kernel.blocks),
            folder,
            architecture=10 * major + minor,
            warps=kernel.warps,
            stages=kernel.stages,
            debug=kernel.checks_bounds,
        )
        compiled[(count, 1, 1)](*arguments)

    return launch


def run_program(
    text: str,
    inputs: Sequence[torch.Tensor],
    folder: Path,
    *,
    sizes: dict[str, int] | None = None,
    persistent: bool | None = None,
) -> list[torch.Tensor]:
    """The outputs of a program, on the GPU; `folder` is for the sources of its kernels."""
    made = launching.run_program(
        text, inputs, launcher(folder), device="cuda", sizes=sizes, persistent=persistent
    )
    torch.cuda.synchronize()
    return made
