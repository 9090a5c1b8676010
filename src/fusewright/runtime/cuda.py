"""Triton kernels of generated modules: source to callable, compiled for the GPU that launches it.

A kernel that Triton cannot compile, or that a GPU has no room for, runs eagerly by itself
(`eager_kernels`), and the module is loaded all the same.

A kernel has a variant for each kind of GPU, and for pointers that are all multiples of 16 bytes:
loads and stores are wider there. Those for GPUs like the current one and aligned pointers are
compiled when a module is loaded, several at a time; others when a launch first needs one. Triton
compiles in processes of its own (`compile_pool`), and machine code is kept on disk (`cubins`), from
where it is read without Triton. Launches go through the
driver (`GpuKernel`), not through Triton's launcher, which is Python, and of which C code is
compiled for each signature.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from fusewright import torch_compat
from fusewright.errors import FusewrightError
from fusewright.ir.kernel import STAGES, TABLE_PARAMETERS
from fusewright.native import _extension
from fusewright.progress import DOING
from fusewright.records import record
from fusewright.runtime import argument_tables, compile_pool, cubins, cuda_driver, eager_kernels
from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.cuda_driver import DriverRefused
from fusewright.runtime.gpu_code import Cubin

LETTERS = {"i32": "i", "i64": "l", "fp64": "d"}
"""Types of numbers, as `GpuKernel` is told of them."""


NUMBER_BYTES = {"i32": 4, "i64": 8, "fp32": 4, "fp64": 8}
"""Bytes of numbers of the CPU that kernels are given by value."""


def widths_of(kinds: Sequence[str]) -> bytes:
    """The widths in bytes of a kernel's tensor arguments, as `GpuKernel` takes them: 0 for
    pointers, for others the bytes of the number that is passed by value.
    """
    return bytes(0 if kind.startswith("*") else NUMBER_BYTES[kind] for kind in kinds)


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

    stages: int = STAGES
    launches: tuple[int, ...] = ()
    """The elements of each of the launches that it does the work of, if it does that of several:
    then it finds its tensors in a table (`argument_tables`).
    """

    text: str
    """Triton's, below the loops as comments."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Triton's types of the parameters of the machine code, by name."""
        return TABLE_PARAMETERS if self.launches else self.signature

    @property
    def pointers(self) -> int:
        """How many of them, the first ones, are tensors."""
        return 1 if self.launches else self.tensors

    @property
    def first_values(self) -> bytes:
        """The numbers that its table begins with; empty: it has none."""
        if not self.launches:
            return b""
        return argument_tables.first_values(self.launches, *self.blocks.values())


class CudaKernel:
    """A Triton kernel on every GPU that it is launched on, compiled once for those of one kind."""

    def __init__(self, name: str, source: TritonSource) -> None:
        self.name = name
        self.source = source
        self._compiled: dict[tuple[int, bool], Cubin | FusewrightError] = {}
        """By architecture of the GPU, and by whether pointers are aligned."""

        self._compiling = threading.Lock()

    def launcher(self) -> Callable[..., None]:
        """The function that is called with tensors, sizes and a number of programs."""
        every = list(self.source.signature.values())
        tensors, kinds = every[: self.source.tensors], every[self.source.tensors :]
        return _extension.GpuKernel(
            self.name,
            self.source.tensors,
            "".join(LETTERS[kind] for kind in kinds),
            cuda_driver.launch_functions(),
            torch_compat.cuda.stream,
            self.prepare,
            eager_kernels.eager_kernel(
                self.source.text,
                tuple(self.source.signature),
                self.source.tensors,
                self.source.launches,
            ),
            widths_of(tensors),
            self.source.first_values,
        )

    def prepare(self, device: int, aligned: bool) -> tuple[int, ...] | None:
        """Load the machine code for a GPU: its context and function, threads of a program, bytes of
        shared memory, and how many parameters stand behind ours; then what writes its table, if it
        has one, and how many values at a time. None, and a warning if it is news: the kernel runs
        eagerly.
        """
        try:
            cubin = self.compiled(device, aligned)
            code = cuda_driver.prepare(device, cubin, len(self.source.parameters))
            if not self.source.launches:
                return code
            table = argument_tables.writer(device, self.source.first_values, self.source.tensors)
            return *code, *table
        except (GpuKernelFailed, DriverRefused) as failure:
            if eager_kernels.run_eagerly(self.source.key, str(failure)):
                eager_kernels.warn_of_eager_kernel(self.name, "", str(failure))
            return None

    def compiled(self, device: int, aligned: bool) -> Cubin:
        """The machine code for a GPU, tried once. GpuKernelFailed, DriverRefused: it cannot be
        launched.
        """
        architecture = cuda_driver.architecture_of(device)
        with self._compiling:
            cubin = self._compiled.get((architecture, aligned))
            if cubin is None:
                try:
                    cubin = self.machine_code(architecture, aligned)
                    self._require_room(cubin, device)
                except (GpuKernelFailed, DriverRefused) as failure:
                    cubin = failure
                self._compiled[architecture, aligned] = cubin
        if not isinstance(cubin, Cubin):
            raise cubin
        return cubin

    def try_compiling(self, device: int) -> None:
        """Compile for a GPU, before the first launch there; whether it can be is kept."""
        try:
            self.compiled(device, True)
        except (GpuKernelFailed, DriverRefused) as failure:
            eager_kernels.run_eagerly(self.source.key, str(failure))

    def _require_room(self, cubin: Cubin, device: int) -> None:
        """GpuKernelFailed: the kernel wants more shared memory than a GPU has."""
        room = cuda_driver.shared_bytes(device)
        if cubin.shared_bytes > room:
            wanted = f"{cubin.shared_bytes} bytes of shared memory of {room}"
            raise GpuKernelFailed(f"{self.name} needs {wanted} on GPU {device}")

    def machine_code(self, architecture: int, aligned: bool) -> Cubin:
        """The machine code for an architecture, kept on disk. GpuKernelFailed: there is none that
        can be launched.
        """
        source = self.source
        name = self.name
        if source.launches:  # The same code does for others, whose names end in other digits.
            name = name.rpartition("_")[0]
        request = CompileRequest(
            name=name,
            source=source.text.lstrip("\n"),
            signature={**source.parameters, **dict.fromkeys(source.blocks, "constexpr")},
            blocks=source.blocks,
            architecture=architecture,
            warps=source.warps,
            debug=source.checks_bounds,
            stages=source.stages,
            aligned=source.pointers if aligned else 0,
        )
        cubin = cubins.read(request)
        if cubin is None:
            try:
                cubin = compile_pool.compile_one(request)
            except compile_pool.CompilationFailed as failure:
                raise GpuKernelFailed(f"{self.name} for sm_{architecture}: {failure}") from failure
            cubins.write(request, cubin)
        if cubin.scratch_bytes:
            raise GpuKernelFailed(f"{self.name} needs memory that launches do not give it")
        if cubin.parameters < len(source.parameters):
            raise GpuKernelFailed(f"{self.name} lacks parameters in its machine code")
        return cubin


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
        kernels = {name: CudaKernel(name, sources[name]) for name in missing}
        _compile_together(list(kernels.values()))
        for name, kernel in kernels.items():
            _LOADED[name, sources[name].key] = kernel.launcher()
        return tuple(_LOADED[name, source.key] for name, source in sources.items())


def begin() -> None:
    """Graphs on a GPU are about to be compiled."""
    if torch.cuda.is_available():
        compile_pool.begin_if_cold()


def _compile_together(kernels: list[CudaKernel]) -> None:
    """Compile kernels for GPUs like the current one, several at a time in processes."""
    if not kernels:
        return
    device = torch_compat.cuda.device()
    workers = max(1, min(compile_pool.WORKERS, len(kernels)))
    with ThreadPoolExecutor(workers, thread_name_prefix="fusewright-triton") as pool:
        DOING.done, DOING.all = 0, len(kernels)
        for _ in pool.map(lambda kernel: kernel.try_compiling(device), kernels):
            DOING.done += 1
        DOING.all = 0
