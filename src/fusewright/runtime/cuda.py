"""Triton kernels of generated modules: source to callable, compiled for the GPU that launches it.

A kernel that Triton cannot compile, or that a GPU has no room for, runs eagerly by itself
(`eager_kernels`), and the module is loaded all the same.

A kernel has a variant for each kind of GPU, and for pointers that are all multiples of 16 bytes:
loads and stores are wider there. Those for GPUs like the current one and aligned pointers are
compiled when a module is loaded, several at a time; others when a launch first needs one. Triton
(0.3 s) is imported with the first kernel, and keeps machine code on disk. Launches go through the
driver (`GpuKernel`), not through Triton's launcher, which is Python, and of which C code is
compiled for each signature.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.errors import FusewrightError
from fusewright.native import _extension
from fusewright.records import record
from fusewright.runtime import cuda_driver, eager_kernels
from fusewright.runtime.folders import generated_folder

WORKERS = 8
"""Most kernels that are compiled at a time."""

WARP = 32
"""Threads that run together."""

LETTERS = {"i32": "i", "i64": "l", "fp64": "d"}
"""Types of numbers, as `GpuKernel` is told of them."""

SCRATCH = ("global_scratch_size", "profile_scratch_size")
"""Memory of its own that a kernel may ask for."""


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
    """Triton's, below the loops as comments."""


class CudaKernel:
    """A Triton kernel on every GPU that it is launched on, compiled once for those of one kind."""

    def __init__(self, name: str, source: TritonSource) -> None:
        self.name = name
        self.source = source
        self._compiled: dict[tuple[int, bool], Any] = {}
        """By architecture of the GPU, and by whether pointers are aligned."""

        self._compiling = threading.Lock()

    def launcher(self) -> Callable[..., None]:
        """What is called with tensors, sizes and a number of programs."""
        kinds = list(self.source.signature.values())[self.source.tensors :]
        return _extension.GpuKernel(
            self.name,
            self.source.tensors,
            "".join(LETTERS[kind] for kind in kinds),
            cuda_driver.launch_functions(),
            torch_compat.cuda.stream,
            self.prepare,
            eager_kernels.eager_kernel(
                self.source.text, tuple(self.source.signature), self.source.tensors
            ),
        )

    def prepare(self, device: int, aligned: bool) -> tuple[int, int, int, int, int] | None:
        """Load the machine code for a GPU: its context and function, threads of a program, bytes of
        shared memory, and how many parameters stand behind ours. None, and a warning if it is news:
        the kernel runs eagerly.
        """
        try:
            compiled = self.compiled(device, aligned)
        except GpuKernelFailed as failure:
            if eager_kernels.run_eagerly(self.source.key, str(failure)):
                eager_kernels.warn_of_eager_kernel(self.name, "", str(failure))
            return None
        metadata = compiled.metadata
        hidden = parameter_count(compiled.asm["ptx"]) - len(self.source.signature)
        function = cuda_driver.load(device, compiled.asm["cubin"], metadata.name, metadata.shared)
        threads = WARP * metadata.num_warps
        return cuda_driver.context(device), function, threads, metadata.shared, hidden

    def compiled(self, device: int, aligned: bool) -> Any:
        """What Triton compiles for a GPU, tried once. GpuKernelFailed: it cannot be launched."""
        major, minor = torch.cuda.get_device_capability(device)
        architecture = 10 * major + minor
        with self._compiling:
            known = self._compiled.get((architecture, aligned))
            if known is None:
                try:
                    known = self._compile(architecture, aligned)
                    self._require_room(known, device)
                except GpuKernelFailed as failure:
                    known = failure
                self._compiled[architecture, aligned] = known
        if isinstance(known, GpuKernelFailed):
            raise known
        return known

    def try_compiling(self, device: int) -> None:
        """Compile for a GPU, before the first launch there; whether it can be is kept."""
        try:
            self.compiled(device, True)
        except GpuKernelFailed as failure:
            eager_kernels.run_eagerly(self.source.key, str(failure))

    def _require_room(self, compiled: Any, device: int) -> None:
        """GpuKernelFailed: the kernel wants memory that launches do not give it."""
        metadata = compiled.metadata
        if any(getattr(metadata, name, 0) for name in SCRATCH):
            raise GpuKernelFailed(f"{self.name} needs memory that launches do not give it")
        if parameter_count(compiled.asm["ptx"]) < len(self.source.signature):
            raise GpuKernelFailed(f"{self.name} lacks parameters in its assembly")
        room = cuda_driver.shared_bytes(device)
        if metadata.shared > room:
            wanted = f"{metadata.shared} bytes of shared memory of {room}"
            raise GpuKernelFailed(f"{self.name} needs {wanted} on GPU {device}")

    def _compile(self, architecture: int, aligned: bool) -> Any:
        source = self.source
        try:
            return _compiler().compile_kernel(
                source.text.lstrip("\n"),
                {**source.signature, **dict.fromkeys(source.blocks, "constexpr")},
                source.blocks,
                generated_folder(),
                architecture=architecture,
                warps=source.warps,
                debug=source.checks_bounds,
                name=self.name,
                aligned=source.tensors if aligned else 0,
            )
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise GpuKernelFailed(f"{self.name} for sm_{architecture}: {what}") from error


def parameter_count(assembly: str) -> int:
    """How many parameters a kernel takes, by its PTX: those that Triton adds stand last."""
    _, _, entry = assembly.partition(".entry")
    return entry.partition(")")[0].count(".param")


def _compiler() -> ModuleType:
    """What compiles with Triton; importing it takes as long as importing Triton."""
    return import_module("fusewright.runtime.triton_compiler")


_LOADED: dict[tuple[str, str], Callable[..., None]] = {}
_LOADING = threading.Lock()


def load_kernels(sources: Mapping[str, TritonSource]) -> tuple[Callable[..., None], ...]:
    """The kernels in order, made once a process for equal source, and compiled for the current
    GPU. What does not compile is known to `eager_kernels.why_eager`.
    """
    if not torch.cuda.is_available():
        raise GpuKernelFailed("Triton kernels need a CUDA device, and torch finds none")
    with _LOADING:
        missing = [name for name, source in sources.items() if (name, source.key) not in _LOADED]
        made = {name: CudaKernel(name, sources[name]) for name in missing}
        _compile_together(list(made.values()))
        for name, kernel in made.items():
            _LOADED[name, sources[name].key] = kernel.launcher()
        return tuple(_LOADED[name, source.key] for name, source in sources.items())


def _compile_together(kernels: list[CudaKernel]) -> None:
    """Compile kernels for the current GPU, several at a time: most of the work holds no lock of
    Python's.
    """
    if not kernels:
        return
    device = torch_compat.cuda.device()
    workers = max(1, min(WORKERS, len(kernels), os.cpu_count() or 1))
    with ThreadPoolExecutor(workers, thread_name_prefix="fusewright-triton") as pool:
        list(pool.map(lambda kernel: kernel.try_compiling(device), kernels))
