"""From a functional ATen graph to generated code, one named stage a line.

It brings all stages along, and `pipeline` imports it when it has something to generate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import fx

from fusewright.aot import (
    AtenGraph,
    ControlFlowCall,
    LoopCall,
    block_graphs,
    returns_results,
)
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule
from fusewright.ir.kernel import Launch
from fusewright.ir.limits import LimitsOf
from fusewright.ir.lines import CallChoice, CallKernel, Line
from fusewright.ir.origin import Origin
from fusewright.ir.program import CallOperator, CallSubprogram, Program
from fusewright.ir.text import print_schedule
from fusewright.ir.text_kernels import print_kernel
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.ir.verify_lines import verify_lines
from fusewright.kernels import (
    KernelLanguage,
    KernelSet,
    Languages,
    define_kernels,
    tuned_limits,
)
from fusewright.kernels.batching import Batcher, with_batches
from fusewright.kernels.chaining import KernelChainer, with_chains
from fusewright.logs import log_text
from fusewright.lower import calling_order, lower
from fusewright.plans import Plan
from fusewright.records import field, record, replace
from fusewright.runtime.calling import CallingOrder
from fusewright.runtime.choices import ChoiceSettings, Decision
from fusewright.runtime.compiled import KernelCall, MeasuredChoice, Record
from fusewright.runtime.loader import LoadedModule
from fusewright.schedule import schedule as fuse
from fusewright.schedule.recording import why_not_recorded, written_inputs
from fusewright.schedule.traffic import group_traffic
from fusewright.wrapper import PythonModule, emit_module
from fusewright.wrapper.batches import batch_launches
from fusewright.wrapper.blocks import Flow, with_blocks
from fusewright.wrapper.chains import buffers_allocated, chain_launches
from fusewright.wrapper.choices import choices_in, fill_choices, known_decisions
from fusewright.wrapper.generate import generate_lines
from fusewright.wrapper.instrument import instrument, why_watched
from fusewright.wrapper.memory import peak_bytes, plan_memory

__all__ = [
    "GeneratedCode",
    "begin_choices",
    "generate_code",
    "record_of",
    "why_not_recorded",
    "why_watched",
]


@record(kw_only=True)
class GeneratedCode:
    """The code that a graph is compiled to, before it is loaded."""

    schedule: Schedule
    kernels: KernelSet
    decisions: Mapping[str, Decision]
    """Choices that were filled in, by name."""

    lines: tuple[Line, ...]
    order: CallingOrder
    hints: Mapping[str, int | float]
    """Hints for its sizes and those of its blocks."""

    least_bytes: int
    """The most that buffers yet to be used take at one time."""

    blocks: tuple[GeneratedCode, ...]
    """The code of the functions of conditions and loops, which its lines hold."""

    subprograms: tuple[Record, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    """The objects that its module is given; none where it is a block of others."""

    emitted: PythonModule = field(default=PythonModule(text="", places=(), places_of_blocks={}))
    """Its module; no text where it is a block of others."""

    @property
    def plan(self) -> Plan:
        """The part that is made to run."""
        program = self.schedule.program
        written = written_inputs(self.schedule)
        inputs = zip(program.inputs, self.order.tensors, strict=True)
        return Plan(
            name=program.name,
            lines=self.lines,
            order=self.order,
            hints=self.hints,
            devices=program.devices,
            written=frozenset(position for buffer, position in inputs if buffer.name in written),
            emitted=self.emitted,
        )


def generate_code(
    graph: AtenGraph,
    context: CompileContext,
    language: KernelLanguage | None = None,
    *,
    is_whole: bool = False,
) -> GeneratedCode:
    """The code of a functional ATen graph. `is_whole`: it is no half of a training step."""
    code = _generate(graph, context, language, "", {}, is_whole=is_whole)
    with context.stage("wrapper"):  # What surrounds the kernels, as a module's text.
        if context.options.verify:
            verify_lines(code.lines)
        emitted = emit_module(code.schedule.program.name, code.lines)
        log_text("wrapper", lambda: emitted.text)
    return replace(code, emitted=emitted, constants=graph.module_constants())


def _generate(
    graph: AtenGraph,
    context: CompileContext,
    language: KernelLanguage | None,
    prefix: str,
    slots: dict[str, str],
    *,
    is_whole: bool = False,
) -> GeneratedCode:
    """The lines of a graph. `prefix` stands before the names of its blocks; `slots` holds the
    devices of the module.
    """
    check = context.options.verify
    log_text("aten", lambda: str(graph.graph))

    with context.stage("lower"):  # Operators become loop bodies, or library calls.
        program = lower(graph, context, layouts_are_free=is_whole)
        if check:
            verify_program(program)

    options = context.options
    if torch.are_deterministic_algorithms_enabled():
        options = dataclasses.replace(options, multi_kernel="off")
    languages = Languages(options, language, has_chains=not options.tune)
    ordered = _ordered(program, context, languages, slots)

    inner = _Subprograms(context, language, prefix, slots)
    for node in graph.graph.nodes:  # Conditions and loops go through the same stages.
        if isinstance(node.target, _Subprograms.TARGETS):
            with context.stage("subprograms"):
                inner.add(node)

    with context.stage("wrapper"):  # Allocations, launches and frees around the kernels.
        lines = with_blocks(ordered.lines, inner.flows)
        least_bytes = peak_bytes(lines, program.hints)
        lines = plan_memory(lines, program.hints, program.released_inputs)
        lines = instrument(lines, context.options)
        order = calling_order(graph.placeholders, program)

    hints = {name: hint for block in inner.blocks for name, hint in block.hints.items()}
    return GeneratedCode(
        schedule=ordered.schedule,
        kernels=ordered.kernels,
        decisions=ordered.decisions,
        lines=lines,
        order=order,
        hints={**hints, **program.hints},
        least_bytes=least_bytes,
        blocks=tuple(inner.blocks),
        subprograms=tuple(inner.records),
    )


@record
class _Ordered:
    """The groups of a program in order, and their lines, where memory is not planned yet."""

    schedule: Schedule
    kernels: KernelSet
    lines: tuple[Line, ...]
    decisions: Mapping[str, Decision]


def _ordered(
    program: Program, context: CompileContext, languages: Languages, slots: dict[str, str]
) -> _Ordered:
    """The groups, kernels and lines of a program. Where a schedule counted on what is not to be
    had, as kernels or lines tell, it is made again without that.
    """
    while True:
        schedule, kernels = _scheduled(program, context, languages)
        if kernels.lacks_choices:  # What was left to measuring is decided by rule after all.
            languages = languages.without_choices()
            continue
        with context.stage("wrapper"):
            ordered = _lines(schedule, kernels, languages.options, slots)
        if schedule.in_pieces.isdisjoint(buffers_allocated(ordered.lines)):
            return ordered
        languages = languages.without_chains()  # The library does it after all.


def _scheduled(
    program: Program, context: CompileContext, languages: Languages
) -> tuple[Schedule, KernelSet]:
    """A program as groups, and their kernels."""
    options = languages.options
    with context.stage("schedule"):  # Bodies are fused into groups, and put in order.
        limits_of: LimitsOf = languages.limits_of
        if options.tune:
            schedule_with = partial(fuse, program, context)
            with context.stage("tune"):
                limits_of = tuned_limits(languages, program, schedule_with)
        schedule = fuse(program, context, limits_of)
        if options.verify:
            verify_schedule(schedule)
        log_text("loops", lambda: print_schedule(schedule, origins=True))

    with context.stage("kernels"):  # Equal groups become one kernel's source.
        has_choices = options.multi_kernel != "off"
        kernels = define_kernels(schedule, context, languages, has_choices=has_choices)
        log_text("kernels", lambda: "\n".join(map(print_kernel, kernels.definitions)))
    return schedule, kernels


def _lines(
    schedule: Schedule, kernels: KernelSet, options: Options, slots: dict[str, str]
) -> _Ordered:
    """Launches and library calls in order, with launches that become one as one."""
    program, launches = schedule.program, kernels.launches
    lines = generate_lines(schedule, kernels.definitions, launches, slots, kernels.choices)
    decisions = known_decisions(lines, *_known_choices(options))
    winners = {name: decision.winner for name, decision in decisions.items()}
    lines = fill_choices(lines, winners)
    lines = batch_launches(lines, Batcher(), program.hints, program.released_inputs)
    kernels = with_batches(kernels, schedule, lines)
    lines, chains = chain_launches(lines, KernelChainer(kernels))
    return _Ordered(schedule, with_chains(kernels, chains), lines, decisions)


class _Subprograms:
    """The conditions and loops in a graph."""

    TARGETS = (ControlFlowCall, LoopCall)

    def __init__(
        self,
        context: CompileContext,
        language: KernelLanguage | None,
        prefix: str,
        slots: dict[str, str],
    ) -> None:
        self.flows: dict[str, Flow] = {}
        """By node, a condition or loop whose functions are blocks."""

        self.blocks: list[GeneratedCode] = []
        self.records: list[Record] = []
        self._context = context
        self._language = language
        self._prefix = prefix
        self._slots = slots

    def add(self, node: fx.Node) -> None:
        """Compile the functions of a condition or loop to lines."""
        target: Any = node.target
        assert all(returns_results(graph, len(graph.outputs)) for graph in target.graphs)
        graphs = {self._prefix + name: graph for name, graph in block_graphs(node).items()}
        codes = [self._block(name, graph) for name, graph in graphs.items()]
        self.flows[node.name] = Flow(
            line=target.line,
            names=tuple(graphs),
            lines=tuple(code.lines for code in codes),
            orders=tuple(code.order for code in codes),
        )

    def _block(self, name: str, graph: AtenGraph) -> GeneratedCode:
        context = self._context.again()
        code = _generate(graph, context, self._language, f"{name}_", self._slots)
        self.blocks += (code, *code.blocks)
        self.records += (record_of(code, context, "", "", {}), *code.subprograms)
        return code


def _known_choices(options: Options) -> tuple[int | None, bool]:
    """The alternative that options force, and whether what earlier processes found is used."""
    forced = int(options.multi_kernel) if options.multi_kernel.isdecimal() else None
    return forced, options.multi_kernel_cache and not options.multi_kernel_table


def record_of(
    code: GeneratedCode,
    context: CompileContext,
    in_python_because: str,
    unrecorded_because: str,
    decisions: Mapping[str, Mapping[int, Decision]],
) -> Record:
    """The record of what the stages made, without the tensors."""
    schedule, kernels, hints = code.schedule, code.kernels, code.hints
    launches = []
    seen: set[int] = set()
    for position, step in enumerate(schedule.steps):
        work = step.work
        if isinstance(work, Group) and not step.does_nothing:
            traffic = group_traffic(work, hints)
            launch = kernels.launches[position]
            launches.append(
                KernelCall(
                    kernel=_first_kernel(launch, code),
                    choice=launch.choice if isinstance(launch, CallChoice) else "",
                    bytes_read=traffic.read,
                    bytes_written=traffic.written,
                    shares_launch=id(launch) in seen,
                )
            )
            seen.add(id(launch))
    calls = (work for work in schedule.works if isinstance(work, CallOperator | CallSubprogram))
    return Record(
        scheduled=lambda: schedule,
        kernels=kernels.definitions,
        lines=code.lines,
        launches=tuple(launches),
        extern_calls=tuple(map(_call_name, calls)),
        peak_bytes=peak_bytes(code.lines, hints),
        least_bytes=code.least_bytes,
        timings=dict(context.timings),
        began=context.began,
        in_python_because=in_python_because,
        unrecorded_because=unrecorded_because,
        notes=tuple(context.notes),
        tuned=kernels.tuned,
        subprograms=code.subprograms,
        choices=tuple(
            MeasuredChoice(
                name=choice.name,
                alternatives=tuple(alternative.name for alternative in choice.alternatives),
                decisions=decisions.get(choice.name, {}),
                origins=_origins_of(choice.name, kernels),
            )
            for choice in kernels.choices
        ),
    )


def _first_kernel(launch: Launch | CallChoice, code: GeneratedCode) -> str:
    """The kernel of a launch; of a choice, the first of the alternative that is known to win, or of
    the one that was first.
    """
    if isinstance(launch, Launch):
        return launch.kernel
    choice = next(choice for choice in code.kernels.choices if choice.name == launch.choice)
    decision = code.decisions.get(choice.name)
    lines = choice.alternatives[decision.winner if decision is not None else 0].lines
    return next(line.launch.kernel for line in lines if isinstance(line, CallKernel))


def _origins_of(choice: str, kernels: KernelSet) -> tuple[Origin, ...]:
    """The user's operations that a choice computes, where it is called first."""
    calls = (call for call in kernels.launches.values() if isinstance(call, CallChoice))
    return next(call.origins for call in calls if call.choice == choice)


def _call_name(call: CallOperator | CallSubprogram) -> str:
    """The name of a library call in reports."""
    return call.operator if isinstance(call, CallOperator) else f"subprogram.{call.name}"


def begin_choices(
    code: GeneratedCode, module: LoadedModule, options: Options
) -> dict[str, Mapping[int, Decision]]:
    """Tell the choices of a module how they are made. By their names, and those of choices that
    were filled in, what is known of them by class of sizes: it grows as they are made.
    """
    _, is_kept = _known_choices(options)
    settings = ChoiceSettings(is_kept=is_kept, table=options.multi_kernel_table)
    parts = (code, *code.blocks)
    known: dict[str, Mapping[int, Decision]] = {
        name: {0: decision} for part in parts for name, decision in part.decisions.items()
    }
    for name in choices_in(code.lines):
        choice = module.variables[name]
        choice.settings = settings
        known[name] = choice.decisions
    return known
