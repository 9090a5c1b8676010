"""The contents of a report, gathered from explanations: plain values for template and script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fusewright.compilation import Compilation
from fusewright.events import BackendFailed, RanEagerly
from fusewright.inspect.choices import ChoiceReport
from fusewright.inspect.explanation import Explanation, GuardReport, shorten_paths
from fusewright.inspect.machine import product_rate
from fusewright.inspect.operations import operations_of_group
from fusewright.inspect.report.graphs import pictures, shape_of, short_operator
from fusewright.inspect.report.memory import memory_plan
from fusewright.inspect.report.sources import LineMark, Marks, is_users
from fusewright.inspect.timing import Timed, time_graph
from fusewright.inspect.tuning import why_taken
from fusewright.ir.dtype import DType
from fusewright.ir.group import Group
from fusewright.ir.kernel import Kernel
from fusewright.ir.text import print_group
from fusewright.records import field, record
from fusewright.runtime.compiled import CompiledGraph, Record

GUARDS_SHOWN = 400
"""Guards of one function that a page lists."""


@record(kw_only=True)
class Bar:
    """One stage in the timeline."""

    stage: str
    begin: float
    """Seconds since the first compile of the page began."""

    seconds: float


@record(kw_only=True)
class Row:
    """One compile in the timeline."""

    title: str
    place: str
    bars: tuple[Bar, ...]
    seconds: float


@record(kw_only=True)
class FunctionShown:
    """A function that runs in place of a captured one."""

    title: str
    place: str
    python: str
    bytecode: str


@record(frozen=False, kw_only=True)
class KernelShown:
    """One kernel."""

    kernel: Kernel
    loops: str
    computes: str
    shapes: tuple[str, ...]
    launches: int = 0
    read: int = 0
    written: int = 0
    """Bytes of all launches in one call of each program."""

    lines: dict[tuple[str, int, str], set[str]] = field(default_factory=dict)
    """By file, line and its text: the operators that come from there."""

    modules: dict[str, None] = field(default_factory=dict)
    choice: ChoiceReport | None = None
    """The choice of which it was the first kernel."""

    tuned: str = ""
    """Why it is written so, where kernels are tuned."""

    operations: float = 0.0
    """The floating-point operations of matrix products in all launches."""

    product_dtype: DType | None = None

    seconds: float | None = None
    best_seconds: float | None = None
    """Time of what takes at least as long: large products of as many operations, or, for kernels
    without products, copies of as many bytes.
    """

    @property
    def bytes(self) -> int:
        return self.read + self.written

    @property
    def share(self) -> float | None:
        """Its speed as a share of the best."""
        if not self.seconds or self.best_seconds is None:
            return None
        return self.best_seconds / self.seconds


@record(kw_only=True)
class ProgramShown:
    """One compiled graph, or its backward half."""

    title: str
    launches: int
    library_calls: int
    statements: int
    peak: int
    least: int
    data: dict[str, Any]
    seconds: float | None
    parts: tuple[Timed, ...]
    not_timed: str


@record(frozen=False, kw_only=True)
class Contents:
    """All that the page shows."""

    explanations: Sequence[Explanation]
    rows: list[Row]
    functions: list[FunctionShown]
    programs: list[ProgramShown]
    kernels: dict[str, KernelShown]
    marks: Marks
    timed: bool

    @property
    def guard_groups(self) -> list[tuple[str, int]]:
        """Kinds of guards, with their numbers."""
        counts = Counter(
            guard.group for explanation in self.explanations for guard in explanation.guards
        )
        return counts.most_common()

    @property
    def guard_lines(self) -> list[tuple[str, str, int]]:
        """Lines that made most guards: place, text, how many."""
        counts: Counter[tuple[str, str]] = Counter()
        for explanation in self.explanations:
            for guard in explanation.guards:
                if guard.location is not None and is_users(guard.location.file):
                    place = shorten_paths(f"{guard.location.file}:{guard.location.line}")
                    counts[place, guard.location.text] += 1
        return [(place, text, count) for (place, text), count in counts.most_common(30)]

    @property
    def guards(self) -> list[GuardReport]:
        """The first guards."""
        guards = [guard for explanation in self.explanations for guard in explanation.guards]
        return guards[:GUARDS_SHOWN]

    @property
    def guard_count(self) -> int:
        return sum(len(explanation.guards) for explanation in self.explanations)

    @property
    def guard_seconds(self) -> float | None:
        """Seconds that all guards take in a call, where that was measured."""
        costs = [
            explanation.guard_seconds for explanation in self.explanations if explanation.guards
        ]
        measured = [cost for cost in costs if cost is not None]
        return sum(measured) if measured and len(measured) == len(costs) else None

    @property
    def compile_seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    @property
    def kernels_by_cost(self) -> list[KernelShown]:
        """The costliest first: by time where it was measured, else by bytes."""
        return sorted(
            self.kernels.values(), key=lambda kernel: (-(kernel.seconds or 0), -kernel.bytes)
        )

    @property
    def product_rates(self) -> list[tuple[DType, float]]:
        """Operations a second of a large product, in the types of the products that were timed."""
        rates = {
            kernel.product_dtype: kernel.operations / kernel.best_seconds
            for kernel in self.kernels.values()
            if kernel.product_dtype is not None and kernel.best_seconds
        }
        return list(rates.items())

    @property
    def library_calls(self) -> list[tuple[str, int]]:
        """Operators that run as they are, with their calls."""
        counts: Counter[str] = Counter()
        for _, _, compiled in _graphs(self.explanations):
            counts.update(map(short_operator, compiled.record.extern_calls))
        return counts.most_common()


def contents_of(explanations: Sequence[Explanation], *, time: bool) -> Contents:
    """Gather what was compiled; `time`: measure it on random inputs."""
    contents = Contents(
        explanations=explanations,
        rows=[],
        functions=[],
        programs=[],
        kernels={},
        marks=Marks(),
        timed=time,
    )
    compilations = [
        compilation for explanation in explanations for compilation in explanation.compilations
    ]
    start = min((compilation.began for compilation in compilations), default=0.0)
    for explanation in explanations:
        _mark_events(explanation, contents.marks)
        for number, compilation in _numbered(explanation):
            graph = f"graph {number}" if number else "nothing to compute"
            contents.rows += _rows(compilation, f"{explanation.function}, {graph}", start)
            contents.functions.append(
                FunctionShown(
                    title=f"{compilation.function}, {graph}",
                    place=shorten_paths(f"{compilation.place.file}:{compilation.place.line}"),
                    python=compilation.python,
                    bytecode=compilation.bytecode,
                )
            )
    contents.rows.sort(key=lambda row: row.bars[0].begin if row.bars else 0.0)
    for title, _, compiled in _graphs(explanations):
        contents.programs.append(_program(title, compiled, contents, time=time))
    return contents


def _numbered(explanation: Explanation) -> Iterator[tuple[int, Compilation]]:
    """The compilations, numbered as `explain` does; 0 where there was nothing to compute."""
    number = 0
    for compilation in explanation.compilations:
        number += compilation.compiled is not None
        yield (0 if compilation.compiled is None else number), compilation


def _graphs(
    explanations: Sequence[Explanation],
) -> Iterator[tuple[str, Compilation, CompiledGraph]]:
    """Every compiled graph whose stages are known, backward halves behind theirs."""
    for explanation in explanations:
        many = len(explanations) > 1
        for number, compilation in _numbered(explanation):
            name = f"{explanation.function}, graph {number}" if many else f"graph {number}"
            if compilation.record is None:
                continue
            compiled: Any = compilation.compiled
            trains = compilation.training is not None
            yield f"{name}, forward" if trains else name, compilation, compiled
            training = compilation.training
            if training is not None and training.backward is not None:
                yield f"{name}, backward", compilation, training.backward


# The timeline -------------------------------------------------------------------------------------


def _rows(compilation: Compilation, title: str, start: float) -> Iterator[Row]:
    place = shorten_paths(f"{compilation.place.file}:{compilation.place.line}")
    yield _row(title, place, compilation.began - start, compilation.seconds)
    training = compilation.training
    if training is not None and training.backward is not None:
        graph_record = training.backward.record
        stages = {name: spent for name, spent in graph_record.timings.items() if "." not in name}
        yield _row(f"{title}, backward", place, graph_record.began - start, stages)


def _row(title: str, place: str, begin: float, stages: Mapping[str, float]) -> Row:
    bars = []
    for stage, seconds in stages.items():
        bars.append(Bar(stage=stage, begin=begin, seconds=seconds))
        begin += seconds
    return Row(title=title, place=place, bars=tuple(bars), seconds=sum(stages.values()))


# Marks --------------------------------------------------------------------------------------------


def _mark_events(explanation: Explanation, marks: Marks) -> None:
    for graph_break in explanation.breaks:
        place = graph_break.location or graph_break.place
        marks.add(
            place.file, place.line, LineMark(kind="break", text=f"graph break: {graph_break.what}")
        )
    for again in explanation.recompiles:
        for failure in again.failures:
            place = failure.location or again.place
            change = f"compiled again: {failure.expression} was {failure.expected}, is"
            marks.add(
                place.file, place.line, LineMark(kind="recompile", text=f"{change} {failure.found}")
            )
    eager: list[tuple[RanEagerly | BackendFailed, str]] = [
        *((event, event.what) for event in explanation.fallbacks),
        *((event, event.message) for event in explanation.failures),
    ]
    for event, text in eager:
        place = event.location or event.place
        marks.add(place.file, place.line, LineMark(kind="eager", text=f"eager: {text}"))
    counts = Counter(
        (guard.location.file, guard.location.line) for guard in explanation.guards if guard.location
    )
    for (file, line), count in counts.items():
        marks.add(
            file, line, LineMark(kind="guard", text=f"{count} guard{'s' if count > 1 else ''}")
        )


# Programs and kernels -----------------------------------------------------------------------------


def _program(
    title: str, compiled: CompiledGraph, contents: Contents, *, time: bool
) -> ProgramShown:
    graph_record = compiled.record
    _mark_steps(graph_record, contents.marks)
    seconds: float | None = None
    parts: list[Timed] = []
    why = ""
    if time:
        try:
            seconds, parts = time_graph(compiled)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
    _add_kernels(
        graph_record, contents.kernels, {part.name: part for part in parts if part.is_kernel}
    )
    plan = memory_plan(graph_record.lines, graph_record.program.hints)
    return ProgramShown(
        title=title,
        launches=graph_record.launch_count,
        library_calls=len(graph_record.extern_calls),
        statements=len(graph_record.program.statements),
        peak=graph_record.peak_bytes,
        least=graph_record.least_bytes,
        data={"title": title, "memory": plan.as_data(), **pictures(graph_record)},
        seconds=seconds,
        parts=tuple(parts),
        not_timed=why,
    )


def _mark_steps(graph_record: Record, marks: Marks) -> None:
    launches = iter(graph_record.launches)
    for step in graph_record.schedule.works:
        if isinstance(step, Group):
            kernel = next(launches).kernel
            mark = LineMark(kind="kernel", text=short_kernel(kernel), target=kernel)
            for file, line in dict.fromkeys((origin.file, origin.line) for origin in step.origins):
                marks.add(file, line, mark)
        elif step.outputs:
            for origin in graph_record.program.origins.get(step.outputs[0].name, ()):
                called = LineMark(kind="library", text=short_operator(origin.operator))
                marks.add(origin.file, origin.line, called)


def _add_kernels(
    graph_record: Record, kernels: dict[str, KernelShown], timed: Mapping[str, Timed]
) -> None:
    launches = iter(graph_record.launches)
    definitions = {kernel.name: kernel for kernel in graph_record.kernels}
    choices = {choice.name: choice for choice in graph_record.choices}
    trials = {trial.kernel: trial for trial in graph_record.tuned if not trial.untried_because}
    seen: set[str] = set()
    for step in graph_record.schedule.works:
        if not isinstance(step, Group):
            continue
        launch = next(launches)
        shown = kernels.get(launch.kernel)
        if shown is None:
            shown = kernels[launch.kernel] = KernelShown(
                kernel=definitions[launch.kernel],
                loops=print_group(step),
                computes=step.name.replace("_", " "),
                shapes=tuple(shape_of([buffer]) for buffer in step.writes),
            )
        if launch.kernel in trials:
            shown.tuned = why_taken(trials[launch.kernel])
        if launch.choice:
            shown.choice = ChoiceReport.of(choices[launch.choice])
        shown.launches += not launch.shares_launch
        shown.read += launch.bytes_read
        shown.written += launch.bytes_written
        for origin in step.origins:
            if origin.file:
                key = (shorten_paths(origin.file), origin.line, origin.text)
                shown.lines.setdefault(key, set()).add(short_operator(origin.operator))
            if origin.module_path:
                shown.modules[origin.module_path] = None
        operations = operations_of_group(step, graph_record.program.hints)
        part = timed.get(launch.kernel) or timed.get(launch.choice)
        if part is not None and launch.kernel not in seen:
            seen.add(launch.kernel)
            shown.seconds = (shown.seconds or 0.0) + part.seconds
            if operations is None:
                shown.best_seconds = (shown.best_seconds or 0.0) + (part.copy_seconds or 0.0)
        if operations is not None:
            shown.operations += operations.count
            shown.product_dtype = operations.dtype
            if part is not None:
                device = step.device.partition(":")[0]
                seconds = operations.count / product_rate(device, operations.dtype)
                shown.best_seconds = (shown.best_seconds or 0.0) + seconds


def short_kernel(name: str) -> str:
    """A kernel's name without its language and the digits of its hash."""
    _, *words, _ = name.split("_")
    return " ".join(words) or name
