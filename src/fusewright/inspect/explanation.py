"""The work of a compiler as an object with fields, whose `str()` is for a person in a hurry."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fusewright.capture.guards import Check, GuardKind, GuardSet
from fusewright.capture.sources import (
    CellSource,
    ConstantSource,
    LocalSource,
    StateSource,
    ThreadSource,
)
from fusewright.capture.trace import CALL_MODULE
from fusewright.compilation import Compilation
from fusewright.compiler import Compiler
from fusewright.errors import Location, counted
from fusewright.events import (
    BackendFailed,
    Event,
    GraphBreak,
    LimitReached,
    RanEagerly,
    Recompiled,
)
from fusewright.inspect.choices import ChoiceReport, choice_reports
from fusewright.inspect.tuning import TuningReport, tuning_report
from fusewright.ir.lines import CallUserTriton, EnsureLayout
from fusewright.records import field, record, replace
from fusewright.runtime.layouts import layout_copies

if TYPE_CHECKING:  # Importing it takes the whole IR along.
    from fusewright.runtime.compiled import Record

_Event = TypeVar("_Event", bound=Event)


@record(kw_only=True)
class GuardReport:
    """One fact that must hold for a graph to be used again."""

    kind: str
    """The property that is compared: `tensor`, `type`, `equals`, …"""

    group: str
    """The subject of the fact: `tensors`, `modes` of torch and the thread, `globals` of modules,
    `classes` and functions, or `objects` that the function was given.
    """

    expression: str
    """The expression that is read, as the user would write it."""

    expected: str
    location: Location | None
    """The user's line that made it matter."""

    def __str__(self) -> str:
        because = f"   because of {self.location}" if self.location else ""
        return f"{self.expression}: {self.expected}{because}"


@record(kw_only=True)
class ProgramReport:
    """The calls that a program makes when it runs once: one side of a condition, or one step of a
    loop.
    """

    launches: int
    """Launches of generated kernels."""

    library_calls: int
    """Calls of eager operators that were left between the kernels."""

    user_kernels: tuple[str, ...] = ()
    """Launches of Triton kernels that the program wrote."""

    def __str__(self) -> str:
        return _calls(self.launches, self.library_calls, self.user_kernels)


@record(kw_only=True)
class BackwardReport:
    """The backward half of a graph, compiled when it is first run."""

    saved_bytes: int
    """Bytes that the forward half is to keep for it, beside its inputs."""

    measured_bytes: int | None
    """Bytes that the first call did keep; None where there was none."""

    memory_budget: float
    """The option under which what is kept was chosen."""

    launches: int | None
    """Launches of generated kernels; None where it was not run yet."""

    library_calls: int | None
    user_kernels: tuple[str, ...]
    subprograms: tuple[ProgramReport, ...]
    """The programs that functions of conditions and loops in it are compiled to."""

    kept: str
    """Whether an earlier process had kept its plan, as of a graph."""

    stage_seconds: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Time to compile it."""
        return sum(self.stage_seconds.values())

    def __str__(self) -> str:
        kept = self.saved_bytes if self.measured_bytes is None else self.measured_bytes
        memory = (
            f"keeps {_mebibytes(kept)} (predicted {_mebibytes(self.saved_bytes)}, "
            f"memory budget {self.memory_budget:g})"
        )
        if self.launches is None or self.library_calls is None:
            return f"backward: not run yet; {memory}"
        calls = _calls(self.launches, self.library_calls, self.user_kernels)
        return f"backward: {calls}; {memory}"


@record(kw_only=True)
class GraphReport:
    """One graph: a function, or the rest of one after a graph break."""

    function: str
    place: Location
    """Where it begins."""

    operators: Mapping[str, int]
    """How often it calls each torch function or method."""

    inputs: int
    """Tensors that it reads."""

    guards: tuple[GuardReport, ...]
    guard_seconds: float | None
    """Seconds that the guards take in a call; None where that was not measured."""

    stage_seconds: Mapping[str, float]
    """Time to make it, by stage."""

    peak_bytes: int | None
    """The most that planned buffers hold at one time; None where the backend does not tell."""

    least_bytes: int | None
    """The most that those yet to be used take at one time, less than which no plan needs."""

    launches: int | None
    """Launches of generated kernels a call; None where the backend does not tell."""

    library_calls: int | None
    """Calls of eager operators that were left between the kernels."""

    user_kernels: tuple[str, ...]
    """Launches of Triton kernels that the program wrote, by the kernels' names, numbered where one
    is launched several times.
    """

    layout_copies: Mapping[str, int]
    """How often results of library calls, backward's among them, were copied so far, since they lay
    otherwise than was compiled for: by operator and the user's line. The process counts them, for
    all graphs that have the call."""

    subprograms: tuple[ProgramReport, ...]
    """The functions of its conditions and loops, which are compiled as programs of their own; their
    calls are not among those of the graph.
    """

    runs_eagerly: bool
    """Whether the backend could not compile it."""

    in_python_because: str
    """Why what surrounds its kernels is run in Python, not natively, though that was asked for;
    empty: it is not. Of its backward half and its subprograms likewise.
    """

    not_replayed_because: str
    """Why parts of it are not replayed as CUDA graphs, where that was asked for."""

    kept: str
    """Whether an earlier process had kept the plan of it, or why not; empty where none are kept."""

    frozen: str
    """The values that are computed of weights alone, and their size; empty where none are."""

    backward: BackwardReport | None
    """None for inference, and where the backend does not tell."""

    compilation: Compilation = field(repr=False, compare=False)
    """The compilation that is told of."""

    @property
    def python(self) -> str:
        """The function that runs in place of the captured one, as Python: it reads the graph's
        inputs, calls it, does what the function did besides, and returns, or goes on behind a graph
        break in a function named after the place.
        """
        return self.compilation.python

    @property
    def bytecode(self) -> str:
        """The instructions of the resume function, one a line."""
        return self.compilation.bytecode

    @property
    def operator_count(self) -> int:
        """Calls in the graph."""
        return sum(self.operators.values())


@record(kw_only=True)
class CallTimes:
    """Times of calls that were made in both ways, compiled and as they are written."""

    compiled: float
    """Seconds of a compiled call, guards included."""

    written: float
    """Seconds of a call as it is written."""

    whole_rounds: bool
    """Whether a call was timed up to the next one, so that its backward counts."""

    runs_as_written: bool
    """Whether calls of this kind run so, since that is faster."""

    def __str__(self) -> str:
        what = "from call to call" if self.whole_rounds else "a call"
        times = f"{what}: {_short_time(self.compiled)} compiled, {_short_time(self.written)} eager"
        return f"{times}: eager is faster, and runs" if self.runs_as_written else times


@record(kw_only=True)
class Explanation:
    """All that happened since compiling began."""

    function: str
    """Qualified name of the function, or the class of the module."""

    place: Location | None
    """Where it is defined; None before the first call."""

    graphs: tuple[GraphReport, ...]
    breaks: tuple[GraphBreak, ...]
    recompiles: tuple[Recompiled, ...]
    limits: tuple[LimitReached, ...]
    fallbacks: tuple[RanEagerly, ...]
    failures: tuple[BackendFailed, ...]
    stage_seconds: Mapping[str, float]
    """Time to compile, by stage, all graphs together."""

    peak_bytes: int | None
    """The most that the buffers of any one graph hold."""

    least_bytes: int | None
    """The least that that graph needs: see `GraphReport.least_bytes`."""

    call_times: tuple[CallTimes, ...]
    """For each kind of call that was timed in both ways: where the option `eager_where_faster` is
    on, once nothing more is compiled.
    """

    tuning: TuningReport | None = None
    """The choices of tuning ahead of time; None where nothing was tuned."""

    choices: tuple[ChoiceReport, ...] = ()
    """The choices among kernels that first calls made, or will make."""

    result: Any = field(default=None, repr=False)
    """The result of the call."""

    compilations: tuple[Compilation, ...] = field(default=(), repr=False, compare=False)
    """All compilations, oldest first, which `to_html` draws."""

    def to_html(self, path: str | os.PathLike[str], *, time: bool = False) -> None:
        """Write all this as one page that needs no other file: a timeline, breaks and recompiles in
        the source, graphs before and after fusion, kernels, guards and memory. `time`: measure each
        kernel and library call, on random inputs. Raises: OSError.
        """
        report = importlib.import_module("fusewright.inspect.report")  # needs a template engine
        report.write_page([self], path, time=time)

    @property
    def guards(self) -> tuple[GuardReport, ...]:
        """The guards of all graphs, in order."""
        return tuple(guard for graph in self.graphs for guard in graph.guards)

    @property
    def guard_seconds(self) -> float | None:
        """Seconds that the guards of all graphs take together; None where that was not measured."""
        measured = [graph.guard_seconds for graph in self.graphs]
        return sum(measured) if measured and None not in measured else None  # type: ignore[arg-type]

    def __str__(self) -> str:
        breaks = merged_breaks(self.breaks)
        events = (*self.limits, *self.fallbacks, *self.failures)
        sections = (
            [self._headline(len(breaks))],
            self._graph_lines(),
            *(
                _break_lines(n, graph_break, times)
                for n, (graph_break, times) in enumerate(breaks, 1)
            ),
            *(_recompile_lines(n, recompile) for n, recompile in enumerate(self.recompiles, 1)),
            *([shorten_paths(str(event))] for event in events),
            self._guard_lines(),
            self._plan_lines(),
            self._time_lines(),
            [str(times) for times in self.call_times],
            [str(self.tuning)] if self.tuning is not None else [],
            ["chosen by measuring:", *(f"  {choice}" for choice in self.choices)]
            if self.choices
            else [],
        )
        return "\n\n".join("\n".join(lines) for lines in sections if lines)

    def _headline(self, breaks: int) -> str:
        where = f"  {_place(self.place)}" if self.place else ""
        if self.place is None:
            return f"{self.function}        nothing is compiled yet"
        counts = (
            counted(len(self.graphs), "graph"),
            counted(breaks, "break"),
            counted(len(self.recompiles), "recompile"),
        )
        return f"{self.function}{where}        {', '.join(counts)}"

    def _graph_lines(self) -> list[str]:
        rows = _columns([_graph_row(number, graph) for number, graph in enumerate(self.graphs, 1)])
        lines = []
        for row, graph in zip(rows, self.graphs, strict=True):
            lines += [row, *_subprogram_lines(graph.subprograms)]
            lines += [
                f"  copied {counted(count, 'time')}, since it lay otherwise: the result of {whose}"
                for whose, count in graph.layout_copies.items()
            ]
            if graph.backward is not None:
                lines += [f"  {graph.backward}", *_subprogram_lines(graph.backward.subprograms)]
        return lines

    def _plan_lines(self) -> list[str]:
        """What is told of plans on disk, each text once, with the graphs that it is told of."""
        told: dict[str, list[str]] = {}
        for number, graph in enumerate(self.graphs, 1):
            told.setdefault(graph.kept, []).append(f"graph {number}")
            if graph.backward is not None:
                told.setdefault(graph.backward.kept, []).append(f"backward {number}")
        is_of_all = len(told) == 1
        told.pop("", None)
        return [
            f"plan on disk: {text}" + ("" if is_of_all else f"   ({', '.join(names)})")
            for text, names in told.items()
        ]

    def _guard_lines(self) -> list[str]:
        guards = self.guards
        if not guards:
            return []
        groups = Counter(guard.group for guard in guards)
        parts = ", ".join(f"{n} {group}" for group, n in groups.most_common())
        cost = f", {1e6 * self.guard_seconds:.1f} µs a call" if self.guard_seconds else ""
        return [f"guards {len(guards)}{cost}: {parts}      (.guards lists them with their lines)"]

    def _time_lines(self) -> list[str]:
        if not self.stage_seconds:
            return []
        total = sum(self.stage_seconds.values())
        parts = (f"{name} {_duration(spent)}" for name, spent in self.stage_seconds.items())
        memory = ""
        if self.peak_bytes and self.least_bytes is not None:
            least = _mebibytes(self.least_bytes)
            memory = f"; buffers {_mebibytes(self.peak_bytes)} (at least {least})"
        return [f"compiled in {_duration(total)}: {', '.join(parts)}{memory}"]


def explain_compiler(compiler: Compiler, function: str, result: Any = None) -> Explanation:
    """An explanation of all that a compiler has done so far, for the function of this name."""
    events = tuple(compiler.events)
    compilations = tuple(compiler.compilations)
    graphs = tuple(
        _graph_report(compilation)
        for compilation in compilations
        if compilation.compiled is not None
    )
    seconds: Counter[str] = Counter()
    for compilation in compilations:
        seconds.update(compilation.seconds)
    backward = sum(graph.backward.seconds for graph in graphs if graph.backward is not None)
    peaks = [(graph.peak_bytes, graph.least_bytes) for graph in graphs if graph.peak_bytes]
    peak, least = max(peaks, default=(None, None))
    return Explanation(
        function=function,
        place=events[0].place if events else None,
        graphs=graphs,
        breaks=_of_kind(events, GraphBreak),
        recompiles=_of_kind(events, Recompiled),
        limits=_of_kind(events, LimitReached),
        fallbacks=_of_kind(events, RanEagerly),
        failures=_of_kind(events, BackendFailed),
        stage_seconds={**seconds, **({"backward": backward} if backward else {})},
        peak_bytes=peak,
        least_bytes=least,
        call_times=_call_times(compiler),
        tuning=tuning_report(compilations),
        choices=choice_reports(compilations),
        result=result,
        compilations=compilations,
    )


def _call_times(compiler: Compiler) -> tuple[CallTimes, ...]:
    """Times of the calls of all entries that are reached from outside, the last used first."""
    outcomes = (entry.outcome for entry in compiler.frames.entries(compiler.root))
    return tuple(
        CallTimes(
            compiled=1e-9 * compiled,
            written=1e-9 * written,
            whole_rounds=whole_rounds,
            runs_as_written=runs_as_written,
        )
        for runs_as_written, compiled, written, whole_rounds in filter(None, outcomes)
    )


def _of_kind(events: Sequence[Event], kind: type[_Event]) -> tuple[_Event, ...]:
    return tuple(event for event in events if isinstance(event, kind))


def _graph_report(compilation: Compilation) -> GraphReport:
    record = compilation.record
    return GraphReport(
        function=compilation.function,
        place=compilation.place,
        operators=compilation.operators,
        inputs=compilation.input_count,
        guards=_guard_reports(compilation.guards),
        guard_seconds=compilation.guard_seconds,
        stage_seconds=compilation.seconds,
        peak_bytes=compilation.peak_bytes,
        least_bytes=None if record is None else record.least_bytes,
        launches=None if record is None else record.launch_count,
        library_calls=None if record is None else len(record.extern_calls),
        user_kernels=_user_kernels(record),
        layout_copies=_layout_copies(compilation),
        subprograms=_subprogram_reports(record),
        runs_eagerly=getattr(compilation.compiled, "failure", None) is not None,
        in_python_because="; ".join(_reasons(compilation, "in_python_because")),
        not_replayed_because="; ".join(_reasons_against_replays(compilation)),
        kept="" if record is None else record.kept,
        frozen=_frozen(record),
        backward=_backward_report(compilation),
        compilation=compilation,
    )


def _frozen(record: Record | None) -> str:
    notes = () if record is None else record.notes
    return next((note.message for note in notes if note.kind == "frozen"), "")


def _layout_copies(compilation: Compilation) -> dict[str, int]:
    """The copies that calls of a graph have made, by whose results they were."""
    records = [half.record for half in compilation.halves]
    lines = (line for record in records for line in record.lines)
    owners = (line.owner for line in lines if isinstance(line, EnsureLayout))
    return {whose: count for whose in dict.fromkeys(owners) if (count := layout_copies[whose])}


def _reasons(compilation: Compilation, field: str) -> list[str]:
    """Why parts of a graph are not run as was asked for, each reason once: what that field says of
    their records.
    """
    said = (getattr(part, field) for part in compilation.records)
    return list(dict.fromkeys(filter(None, said)))


def _reasons_against_replays(compilation: Compilation) -> list[str]:
    """Why parts of a graph are not replayed; that they cannot be may only show when they run."""
    replayers = (half.replayer for half in compilation.halves)
    given_up = [replayer.why_not for replayer in replayers if replayer is not None]
    return [*_reasons(compilation, "unrecorded_because"), *filter(None, given_up)]


def _backward_report(compilation: Compilation) -> BackwardReport | None:
    training = compilation.training
    if training is None:
        return None
    record = None if training.backward is None else training.backward.record
    timings = {} if record is None else record.timings
    return BackwardReport(
        saved_bytes=training.saved_bytes,
        measured_bytes=training.measured_bytes,
        memory_budget=training.memory_budget,
        launches=None if record is None else record.launch_count,
        library_calls=None if record is None else len(record.extern_calls),
        user_kernels=_user_kernels(record),
        subprograms=_subprogram_reports(record),
        kept="" if record is None else record.kept,
        stage_seconds={name: spent for name, spent in timings.items() if "." not in name},
    )


def _subprogram_reports(record: Record | None) -> tuple[ProgramReport, ...]:
    """Reports on the conditions and loops of a compiled graph; none where the backend does not
    tell.
    """
    programs = () if record is None else record.subprograms
    return tuple(
        ProgramReport(
            launches=program.launch_count,
            library_calls=len(program.extern_calls),
            user_kernels=_user_kernels(program),
        )
        for program in programs
    )


def _user_kernels(record: Record | None) -> tuple[str, ...]:
    lines = () if record is None else record.lines
    return tuple(line.name for line in lines if isinstance(line, CallUserTriton))


def _guard_reports(guards: GuardSet) -> tuple[GuardReport, ...]:
    """One for each fact: a tensor's class, which is tested apart, belongs to the tensor's own."""
    tensors = {check.subject for check in guards.checks if check.kind is GuardKind.TENSOR}
    return tuple(
        GuardReport(
            kind=check.kind.title,
            group=_group(check),
            expression=expression,
            expected=expected,
            location=location,
        )
        for check, expression, expected, location in guards.facts()
        if check.kind is not GuardKind.TYPE or check.subject not in tensors
    )


def _group(check: Check) -> str:
    if check.kind in (GuardKind.TENSOR, GuardKind.SHAPES):
        return "tensors"
    if isinstance(check.subject, str):
        return "classes"
    match check.subject.root():
        case StateSource() | ThreadSource():
            return "modes"
        case LocalSource() | CellSource():
            return "objects"
        case ConstantSource():
            return "classes"
    return "globals"


def merged_breaks(breaks: Sequence[GraphBreak]) -> list[tuple[GraphBreak, int]]:
    """The break of each place and reason that ends the largest graph, with how often it was met:
    a break in an inlined call is met again where the called function is compiled by itself. Its
    stack is the longest of them, which begins where the user called.
    """
    groups: dict[tuple[Location | None, str], list[GraphBreak]] = {}
    for graph_break in breaks:
        groups.setdefault((graph_break.location, graph_break.what), []).append(graph_break)
    return [_merged(group) for group in groups.values()]


def _merged(group: Sequence[GraphBreak]) -> tuple[GraphBreak, int]:
    largest = max(group, key=lambda graph_break: graph_break.operators_before)
    stack = max((graph_break.stack for graph_break in group), key=lambda stack: stack.count("\n"))
    return replace(largest, stack=stack), len(group)


def _graph_row(number: int, graph: GraphReport) -> tuple[str, ...]:
    text = f"{counted(graph.operator_count, 'operator')}, {counted(graph.inputs, 'input')}"
    if graph.launches is not None and graph.library_calls is not None:
        text += f"  →  {_calls(graph.launches, graph.library_calls, graph.user_kernels)}"
    if graph.runs_eagerly:
        text += "   (runs eagerly)"
    if graph.in_python_because:
        text += f"   (in Python: {graph.in_python_because})"
    if graph.not_replayed_because:
        text += f"   (no CUDA graph: {graph.not_replayed_because})"
    if graph.frozen:
        text += f"   (frozen: {graph.frozen})"
    return (f"graph {number}", graph.function, _place(graph.place), text)


def _subprogram_lines(programs: Sequence[ProgramReport]) -> list[str]:
    return [
        f"  program {number} of a condition or loop: {program}"
        for number, program in enumerate(programs, 1)
    ]


def _break_lines(number: int, graph_break: GraphBreak, times: int) -> list[str]:
    place = graph_break.location or graph_break.place
    caller = _outermost(graph_break.stack) or place
    inlined = (caller.file, caller.line) != (place.file, place.line)
    repeated = f"   ({times} times)" if times > 1 else ""
    return [
        f"break {number}  {_place(place)}  {place.text}".rstrip(),
        *([f"  called from {_place(caller)}  {caller.text}"] if inlined else []),
        f"  {graph_break.what}   [{graph_break.reason}]{repeated}",
        f"  graph before: {counted(graph_break.operators_before, 'operator')}",
        *([f"  to keep one graph: {graph_break.remedy}"] if graph_break.remedy else []),
    ]


_STACK_LINE: Final = re.compile(r'File "(.+)", line (\d+), in .+\n(?:    (.*)\n)?')


def _outermost(stack: str) -> Location | None:
    """The user's outermost line in a stack as tracebacks print it; above it stands a line of ours
    where a module's call is compiled.
    """
    rows = (
        Location(row[1], int(row[2]), row[3] or "")
        for row in _STACK_LINE.finditer(stack)
        if row[1] != CALL_MODULE.__code__.co_filename
    )
    return next(rows, None)


def _recompile_lines(number: int, recompile: Recompiled) -> list[str]:
    if not recompile.failures:
        return [f"recompile {number}  {recompile.function}: each guard holds now"]
    first, *others = (shorten_paths(str(failure)) for failure in recompile.failures)
    return [f"recompile {number}  {first}", *(f"  and for an older version, {o}" for o in others)]


def _place(location: Location) -> str:
    return shorten_paths(f"{location.file}:{location.line}")


def shorten_paths(text: str) -> str:
    """`text` with files below the working directory, or below a place that Python imports from,
    told from there.
    """
    folders = sorted({os.getcwd(), *filter(os.path.isabs, sys.path)}, key=len, reverse=True)
    for folder in folders:
        text = text.replace(os.path.join(folder, ""), "")
    return text


def _calls(launches: int, library_calls: int, user_kernels: Sequence[str]) -> str:
    calls = [counted(launches, "kernel launch", "es"), counted(library_calls, "library call")]
    calls += [f"the program's own {', '.join(user_kernels)}"] if user_kernels else []
    return ", ".join(calls)


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.1f} MiB"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.1f} ms"


def _short_time(seconds: float) -> str:
    """The time of a call."""
    return f"{1e6 * seconds:.0f} µs" if seconds < 1e-3 else f"{1e3 * seconds:.1f} ms"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with their cells aligned, the last one as it comes."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
