"""Triton kernels of generated modules: source to callable, compiled for the GPU that launches it.

A kernel has a variant for each GPU, and for pointers that are all multiples of 16 bytes: loads and
stores are wider there. Those for the current GPU and aligned pointers are compiled when a module is
loaded, several at a time; others when a launch first needs one. Triton (0.3 s) is imported with the
first kernel, and keeps machine code on disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from importlib import import_module
from operator import or_
from types import ModuleType
from typing import Any

import torch

from fusewright.errors import FusewrightError
from fusewright.records import record
from fusewright.runtime.folders import generated_folder
from fusewright.torch_compat import cuda

ALIGNMENT = 16
"""Bytes that pointers are multiples of in the variant for aligned ones."""

WORKERS = 8
"""Most kernels that are compiled at a time."""

MOST_PROGRAMS = (1 << 31) - 1
"""Most programs that one launch may have."""

Launcher = Callable[[int, int, Sequence[Any]], None]
"""Runs machine code as so many programs, on a stream, with arguments."""


class GpuKernelFailed(FusewrightError):
    """A kernel cannot be compiled or launched on a GPU; says which, and why."""


@record(kw_only=True)
class TritonSource:
    """A Triton kernel as a generated module carries it."""

    language: str
    key: str
    """Hash of all that decides the machine code: equal keys share it."""

    tensors: int
    """How many tensor arguments come first."""

    signature: Mapping[str, str]
    """Triton's types of the arguments, tensors first, by name."""

    blocks: Mapping[str, int]
    """The block sizes, by parameter."""

    warps: int
    checks_bounds: bool
    """Whether it asserts that indices are in range."""

    text: str


class CudaKernel:
    """A Triton kernel that is called with its tensors, its sizes, and how many programs to run, on
    the current stream of the GPU that the tensors are on.
    """

    def __init__(self, name: str, source: TritonSource) -> None:
        self.name = name
        self.source = source
        self._tensors = source.tensors
        self._launchers: dict[tuple[int, bool], Launcher] = {}
        self._compiled: dict[tuple[int, bool], Any] = {}
        self._compiling = threading.Lock()

    def __call__(self, *arguments: Any) -> None:
        programs = arguments[-1]
        if programs == 0:
            return
        count = self._tensors
        pointers = [tensor.data_ptr() for tensor in arguments[:count]]
        aligned = not reduce(or_, pointers) % ALIGNMENT
        device = arguments[0].get_device()
        if device == cuda.device():
            self._launch(device, aligned, programs, (*pointers, *arguments[count:-1]))
            return
        with torch.cuda.device(device):
            self._launch(device, aligned, programs, (*pointers, *arguments[count:-1]))

    def _launch(self, device: int, aligned: bool, programs: int, arguments: Sequence[Any]) -> None:
        """Run on `device`, which is the current one."""
        launch = self._launchers.get((device, aligned))
        if launch is None:
            compiled = self.compiled(device, aligned)
            blocks = tuple(self.source.blocks.values())
            launch = self._launchers[device, aligned] = _compiler().launcher(compiled, blocks)
        if programs > MOST_PROGRAMS:
            raise GpuKernelFailed(f"{self.name} would need {programs} programs in one launch")
        launch(programs, cuda.stream(device), arguments)

    def compiled(self, device: int, aligned: bool) -> Any:
        """Machine code for a GPU, which is compiled where it is not there yet. GpuKernelFailed:
        Triton refuses the kernel.
        """
        with self._compiling:
            known = self._compiled.get((device, aligned))
            if known is None:
                known = self._compiled[device, aligned] = self._compile(device, aligned)
            return known

    def _compile(self, device: int, aligned: bool) -> Any:
        source = self.source
        major, minor = torch.cuda.get_device_capability(device)
        try:
            return _compiler().compile_kernel(
                source.text.lstrip("\n"),
                {**source.signature, **dict.fromkeys(source.blocks, "constexpr")},
                source.blocks,
                generated_folder(),
                architecture=10 * major + minor,
                warps=source.warps,
                debug=source.checks_bounds,
                name=self.name,
                aligned=source.tensors if aligned else 0,
            )
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise GpuKernelFailed(f"{self.name} for sm_{major}{minor}: {what}") from error


def _compiler() -> ModuleType:
    """What compiles with Triton; importing it takes as long as importing Triton."""
    return import_module("fusewright.runtime.triton_compiler")


_LOADED: dict[tuple[str, str], CudaKernel] = {}
_LOADING = threading.Lock()


def load_kernels(sources: Mapping[str, TritonSource]) -> tuple[CudaKernel, ...]:
    """The kernels in order, made once a process for equal source, and compiled for the current
    GPU.
    """
    if not torch.cuda.is_available():
        raise GpuKernelFailed("Triton kernels need a CUDA device, and torch finds none")
    with _LOADING:
        missing = [name for name, source in sources.items() if (name, source.key) not in _LOADED]
        made = {name: CudaKernel(name, sources[name]) for name in missing}
        _compile_together(list(made.values()))
        _LOADED.update({(name, sources[name].key): kernel for name, kernel in made.items()})
        return tuple(_LOADED[name, source.key] for name, source in sources.items())


def _compile_together(kernels: list[CudaKernel]) -> None:
    """Compile kernels for the current GPU, several at a time: most of the work holds no lock of
    Python's.
    """
    if not kernels:
        return
    device = cuda.device()
    workers = max(1, min(WORKERS, len(kernels), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers, thread_name_prefix="fusewright-triton") as pool:
        for future in [pool.submit(kernel.compiled, device, True) for kernel in kernels]:
            future.result()
