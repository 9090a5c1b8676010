"""A Kernel record: source of one fused group in one language, with what a launch needs to know."""

from __future__ import annotations

from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index
from fusewright.ir.origin import Origin
from fusewright.records import field, record


@record(kw_only=True)
class KernelArgument:
    """One tensor argument, under its canonical name."""

    name: str
    """`in0`, `in1`, … in order of first use; `out0`, …; `inout0`, … where the same memory is read
    and written.
    """

    dtype: DType
    is_written: bool

    @property
    def is_read(self) -> bool:
        return not self.is_written or self.is_in_place

    @property
    def is_in_place(self) -> bool:
        return self.name.startswith("inout")


@record(kw_only=True)
class CpuFacts:
    """Facts that the launch of a CPU kernel needs."""

    grain: int
    """The fewest units of work worth a thread of their own."""

    @property
    def identity(self) -> str:
        """The facts as a kernel's key takes them in."""
        return str(self.grain)


STAGES: Final = 3
"""Triton's own number of stages."""

TABLE_PARAMETERS: Final = {"table": "*i64", "launches": "i32"}
"""Triton's types of the parameters of a kernel that does the work of several launches. Its tensors
are no parameters: their addresses stand in the table, whose memory is its last tensor argument.
"""


@record(kw_only=True)
class TritonFacts:
    """Facts that compiling and launching a Triton kernel needs beside its source."""

    types: tuple[str, ...]
    """Triton's types of the arguments, tensors first: `*fp32`, `i32`."""

    blocks: tuple[tuple[str, int], ...]
    """The block sizes, by parameter of the source: its masks are right for these."""

    warps: int
    """Threads of a program, in 32s."""

    checks_bounds: bool
    """Whether it asserts that indices are in range, for which it is compiled with `debug`."""

    stages: int = STAGES
    """Steps of a loop whose loads are on their way at a time."""

    launches: tuple[int, ...] = ()
    """The elements of each of the launches that it does the work of; none: it is a single one."""

    @property
    def identity(self) -> str:
        """The facts as a kernel's key takes them in."""
        compiled = (self.types, self.blocks, self.warps, self.checks_bounds, self.stages)
        return repr((*compiled, self.launches) if self.launches else compiled)


KernelFacts = CpuFacts | TritonFacts
"""What the launches of one definition have in common, by the kind of its language."""


@record(kw_only=True)
class Kernel:
    """One definition, shared by every group of equal structure."""

    name: str
    """`cpu_add_gelu_3f2a`: language, what it computes, the first digits of a hash of its structure
    and the target that was asked for, which are the same on every machine.
    """

    key: str
    """Hash of all that decides the machine code and its launches: language, target, source and
    facts.
    """

    language: str
    """Names its loader: `cpu` for LLVM IR, `triton` for Triton source."""

    source: str
    """LLVM IR or Triton source, without comments about origins."""

    arguments: tuple[KernelArgument, ...]
    sizes: tuple[str, ...]
    """Canonical names of the size symbols passed after the tensors (on the CPU as i64)."""

    facts: KernelFacts

    def takes_value(self, place: int) -> bool:
        """Whether an argument is the value of a number of the CPU, and no pointer."""
        return isinstance(self.facts, TritonFacts) and not self.facts.types[place].startswith("*")

    @property
    def takes_values(self) -> bool:
        """Whether any of its tensor arguments is the value of a number of the CPU."""
        return any(map(self.takes_value, range(len(self.arguments))))


@record(kw_only=True)
class Launch:
    """One call of a kernel: which buffers and sizes are its arguments, in the kernel's order, and
    how much work.
    """

    kernel: str
    """The kernel's name."""

    buffers: tuple[str, ...]
    sizes: tuple[Index, ...]
    units: Index
    """Units of work that may be divided over threads (CPU) or programs (GPU)."""

    device: str = "cpu"
    """Where the kernel runs."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)
    """The user's operations that this call computes; other calls of the kernel have their own."""


@record
class BatchedKernel:
    """A kernel that does the work of several launches, and what its launch needs."""

    kernel: Kernel
    programs: Index
    sizes: tuple[Index, ...] = ()
    values: int = 0
    """Values of its table of arguments; 0: it has none."""
