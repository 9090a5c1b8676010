"""The devices that kernels are written for: a `Target` for each type of device, in one table."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from fusewright.config import Options
from fusewright.errors import UnsupportedOperator
from fusewright.kernels import llvm, triton
from fusewright.kernels.language import KernelLanguage
from fusewright.records import record
from fusewright.runtime import cpu, cuda
from fusewright.runtime.llvm_engine import cpu_target


@record(kw_only=True)
class Target:
    """What the compiler knows of one type of device."""

    device_type: str
    """As torch names it: `cpu`, `cuda`."""

    language: Callable[[Options], KernelLanguage]
    """What kernels for it are written in, and what loads them."""


def _llvm(options: Options) -> KernelLanguage:
    """LLVM IR for this machine, or the processor that is asked for."""
    name = options.kernel_target
    write = functools.partial(llvm.write, target=cpu_target(name))
    target = "" if name == "auto" else name
    return KernelLanguage(name="cpu", write=write, load=cpu.load_kernels, target=target)


def _triton(options: Options) -> KernelLanguage:
    """Triton source, which is compiled for the GPU that it is launched on."""
    return KernelLanguage(name="triton", write=triton.write_work, load=cuda.load_kernels)


TARGETS: Final = {
    target.device_type: target
    for target in (
        Target(device_type="cpu", language=_llvm),
        Target(device_type="cuda", language=_triton),
    )
}
"""By type of device."""


def target_of(device: str) -> Target:
    """The target of a device, such as `cuda:1`. UnsupportedOperator: there is none."""
    target = TARGETS.get(device.partition(":")[0])
    if target is None:
        raise UnsupportedOperator(
            f"tensors on {device}: no kernels are written for that device yet"
        )
    return target
