"""A compiled graph: the callable that front ends get back, with the record of how it was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fusewright.context import Note
from fusewright.ir.group import Schedule
from fusewright.ir.kernel import Kernel
from fusewright.ir.lines import Line
from fusewright.ir.origin import Origin
from fusewright.ir.program import Program
from fusewright.native import CallPlan, TrainingCall
from fusewright.records import field, record
from fusewright.runtime.choices import Decision
from fusewright.runtime.cuda_graphs import Replayer

if TYPE_CHECKING:  # Few programs are tuned.
    from fusewright.runtime.trials import Tuned


@record(kw_only=True)
class KernelCall:
    """A group of fused operations that is launched once a call, and what it moves."""

    kernel: str
    """Its name; of a choice, that of the kernel which began the one that seemed best."""

    bytes_read: int
    bytes_written: int
    choice: str = ""
    """The choice that it is a call of, if any."""

    shares_launch: bool = False
    """Whether it is part of the launch of a group before it."""


@record(kw_only=True)
class MeasuredChoice:
    """A choice among kernels, and what was found out about it."""

    name: str
    alternatives: tuple[str, ...]
    """The first is what the compiler would do without measuring."""

    decisions: Mapping[int, Decision] = field(compare=False)
    """By class of sizes; it grows as sizes of other classes come."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)


@record(kw_only=True)
class Record:
    """The results of each stage, for `explain`, reports and benchmarks; it holds no tensors."""

    scheduled: Callable[[], Schedule] = field(compare=False, repr=False)
    """Gives what scheduling made, which is read when somebody asks, where the plan was kept."""

    kernels: tuple[Kernel, ...]
    lines: tuple[Line, ...]
    launches: tuple[KernelCall, ...]
    extern_calls: tuple[str, ...]
    """Names of the eager operators called, in order."""

    peak_bytes: int
    """The most bytes that planned intermediate buffers hold at one time."""

    least_bytes: int
    """The most that those of them which are yet to be used take at one time: no plan of the same
    steps in this order needs less.
    """

    timings: dict[str, float]
    """Seconds a stage."""

    began: float
    """When its compile began, by `time.perf_counter`."""

    in_python_because: str
    """Why the Python module runs where a native plan was asked for; empty: it does not."""

    unrecorded_because: str
    """Why no CUDA graph is made of it, where those were asked for; empty: one is, or none was."""

    notes: tuple[Note, ...]
    tuned: tuple[Tuned, ...] = ()
    """The trials that chose among kernels, where they are tuned."""

    choices: tuple[MeasuredChoice, ...] = ()
    subprograms: tuple[Record, ...] = ()
    """Records of the functions of conditions and loops, which are programs of their own, nested
    ones included.
    """

    kept: str = field(default="", compare=False)
    """Whether an earlier process has made the plan, or why not; empty where none is kept."""

    @property
    def schedule(self) -> Schedule:
        """The program as groups in their order."""
        return self.scheduled()

    @property
    def program(self) -> Program:
        """The program as it was scheduled."""
        return self.schedule.program

    @property
    def launch_count(self) -> int:
        """Kernels launched in one call."""
        return sum(not launch.shares_launch for launch in self.launches)

    @property
    def bytes_moved(self) -> int:
        """Bytes that generated kernels read and write in one call."""
        return sum(launch.bytes_read + launch.bytes_written for launch in self.launches)


@record(frozen=False, kw_only=True)
class Training:
    """The parts of a graph with gradients beside its forward half."""

    saved_bytes: int
    """Bytes that the forward call is to keep for backward, beside its inputs."""

    memory_budget: float
    """The option under which those were chosen."""

    measured_bytes: int | None = None
    """The bytes that the first call kept; None before."""

    backward: CompiledGraph | None = None
    """The backward half, as it was last compiled; None until backward is first run."""

    tell: Callable[[Training], None] | None = None
    """Called when the backward half was compiled."""


@record(kw_only=True)
class CompiledGraph:
    """Call it with the graph's inputs, or hand `run` a list, which is cleared."""

    writes_last: ClassVar = True
    """It writes to inputs when all else is done, and an exception from there is marked: see
    `errors.note_partial_write`.
    """

    run: Callable[[list[Any]], tuple[Any, ...]] = field(repr=False)
    path: Path
    """The generated module's file."""

    record: Record = field(repr=False)
    training: Training | None = field(default=None, repr=False)
    """None for inference."""

    replayer: Replayer | None = field(default=None, repr=False)
    """The object that replays the graph, or a training step's forward half, as a CUDA graph."""

    @property
    def entry(self) -> Callable[..., tuple[Any, ...]]:
        """A copy that runs a native plan with nothing around it."""
        return self.run if isinstance(self.run, CallPlan | TrainingCall) else self

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.run(list(inputs))
