"""The compiler as one function: a captured graph in, a callable out, one named stage a line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import fx

from fusewright.aot import (
    AtenGraph,
    ControlFlowCall,
    EagerCall,
    LoopCall,
    by_relatives,
    freeze,
    in_recorded_types,
    interpreter,
    min_cut_rematerialization_partition,
    needs_gradients,
    returns_results,
    split_by_buckets,
    trace_inference,
    trace_training,
    weights_of,
    with_gradients,
    with_results,
)
from fusewright.config import Options
from fusewright.context import COLLECTOR_PAUSE, CompileContext
from fusewright.errors import BackendCompilerFailed, KernelNotCompiled, Location
from fusewright.graph_pieces import GraphPiece, in_order, pieces
from fusewright.interrupts import INTERRUPTS
from fusewright.ir.forms import blocks_of
from fusewright.ir.group import Group, Schedule
from fusewright.ir.kernel import Launch
from fusewright.ir.limits import LimitsOf
from fusewright.ir.lines import (
    CallChoice,
    CallKernel,
    DefineKernel,
    DefineSymbol,
    Line,
    TakeInput,
)
from fusewright.ir.origin import Origin
from fusewright.ir.program import (
    CallOperator,
    CallSubprogram,
    Program,
)
from fusewright.ir.text import print_schedule
from fusewright.ir.text_kernels import print_kernel
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.ir.verify_lines import verify_lines
from fusewright.kernels import (
    TARGETS,
    KernelLanguage,
    KernelSet,
    Languages,
    define_kernels,
    tuned_limits,
)
from fusewright.kernels.batching import Batcher, with_batches
from fusewright.logs import log_text, warn
from fusewright.lower import calling_order, lower, may_lie_anyhow
from fusewright.progress import compiling
from fusewright.records import (
    field,
    record,
    replace,
)
from fusewright.runtime.calling import Call, CallingOrder
from fusewright.runtime.choices import ChoiceSettings, Decision
from fusewright.runtime.compiled import (
    CompiledGraph,
    KernelCall,
    MeasuredChoice,
    Record,
    Training,
)
from fusewright.runtime.cuda_graphs import Replayer, ReplayFacts, current_pool
from fusewright.runtime.eager_kernels import warn_of_eager_kernel, why_eager
from fusewright.runtime.llvm_engine import object_code
from fusewright.runtime.loader import LoadedModule, load_module
from fusewright.runtime.memory_checks import MemoryChecks
from fusewright.runtime.native_plan import NoNativePlan, load_plan
from fusewright.schedule import schedule as fuse
from fusewright.schedule.recording import why_not_recorded, written_inputs
from fusewright.schedule.traffic import group_traffic
from fusewright.torch_compat import is_autocast_on
from fusewright.torch_compat.distributed import active_bucket_limits
from fusewright.user_kernels import UserKernelOnCopies
from fusewright.wrapper import (
    Flow,
    PythonModule,
    alone,
    batch_launches,
    emit_fx,
    emit_module,
    fused_examples,
    generate_lines,
    instrument,
    pack_native,
    peak_bytes,
    plan_memory,
    with_blocks,
)
from fusewright.wrapper.choices import choices_in, fill_choices, known_decisions


def compile_graph(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    context: CompileContext,
    language: KernelLanguage | None = None,
) -> CompiledGraph:
    """Compile a torch-level graph; the result takes the graph's inputs and returns a tuple.

    `language`: what kernels are written in; LLVM IR by default.

    Where an input requires grad, and gradients are on, the results have a history as in eager,
    whose backward is compiled when it is first run.
    """
    devices = {value.device.type for value in example_inputs if isinstance(value, torch.Tensor)}
    for device in devices & set(TARGETS) if language is None else ():
        TARGETS[device].begin()

    if needs_gradients(graph_module, example_inputs):
        limits = active_bucket_limits() if context.options.split_for_ddp == "graph" else None
        parts = pieces(graph_module, example_inputs, limits) if limits is not None else []
        if parts:
            return _compile_pieces(parts, context, language)
        return _compile_training(graph_module, example_inputs, context, language)

    with context.stage("aot"):  # Torch calls become functional ATen operators.
        graph = trace_inference(graph_module, example_inputs, context)

    frozen = None
    if context.options.freeze:
        with context.stage("freeze"):  # What depends on weights alone is computed once.
            weights = weights_of(graph_module, example_inputs)
            frozen = freeze(graph, weights, layouts_are_free=may_lie_anyhow(graph.graph))
            if frozen is not None:
                context.note("frozen", str(frozen))
    whole = graph if frozen is None else frozen.graph
    compiled = compile_aten(whole, context, language, is_whole=True)
    run = _in_recorded_types(compiled) if is_autocast_on() else compiled.run
    if frozen is not None:
        run = frozen.call(run, refuses=context.options.strict)
    return replace(compiled, run=with_results(graph, run))


def _compile_pieces(
    parts: Sequence[GraphPiece], context: CompileContext, language: KernelLanguage | None
) -> CompiledGraph:
    """Compile each piece of a graph by itself."""
    compiled = []
    for part in parts:
        trains = needs_gradients(part.module, part.examples)
        compile_piece = _compile_training if trains else compile_graph
        compiled.append(compile_piece(part.module, part.examples, context.again(), language))
    trained = [piece.training for piece in compiled if piece.training is not None]
    records = [piece.record for piece in compiled]
    others = [*records[1:], *(inner for outer in records for inner in outer.subprograms)]
    return CompiledGraph(
        run=in_order(parts, [piece.run for piece in compiled]),
        path=compiled[0].path,
        record=replace(records[0], subprograms=tuple(others)),
        training=replace(trained[0], saved_bytes=sum(piece.saved_bytes for piece in trained)),
    )


def _compile_training(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    context: CompileContext,
    language: KernelLanguage | None,
) -> CompiledGraph:
    """Compile the forward half of a graph now, the backward half when it is first run: what the
    results that have a gradient need of it.
    """
    if context.options.freeze:
        warn(
            "options={'freeze': True} freezes nothing where gradients are on: call the model under "
            f"torch.no_grad()\n  {_first_place(graph_module.graph) or ''}"
        )
    with context.stage("aot"):
        joint = trace_training(graph_module, example_inputs, context)
        with context.stage("partition"):
            budget = context.options.memory_budget
            partition = min_cut_rematerialization_partition(joint, budget)

    training = Training(saved_bytes=partition.saved_bytes, memory_budget=budget)

    def compile_backward(graph: AtenGraph) -> Callable[[list[Any]], Sequence[Any]]:
        backward_context = context.again()
        try:
            with (
                INTERRUPTS.held(),
                COLLECTOR_PAUSE,
                compiling("a backward half", lambda: _first_place(graph.graph)),
            ):
                backward = compile_aten(graph, backward_context, language)
                run = _in_recorded_types(backward)
        except Exception as error:
            failure = stage_failure(error, backward_context, graph.graph)
            if context.options.strict:
                raise failure from error
            warn_of_eager(failure, "the backward half of a graph")
            return in_recorded_types(interpreter(graph))
        training.backward = backward
        if training.tell is not None:
            training.tell(training)
        return run

    def measured(saved_bytes: int) -> None:
        training.measured_bytes = saved_bytes

    kept_from = joint.output_count
    compiled = compile_aten(partition.forward, context, language, kept_from=kept_from)
    forward = _in_recorded_types(compiled) if is_autocast_on() else compiled.run
    add_histories = None
    if context.options.split_for_ddp == "backward":
        add_histories = split_by_buckets(partition, compile_backward)
    run = with_gradients(partition, forward, compile_backward, measured, add_histories)
    if joint.bases:  # It holds for inputs that share a history as these do.

        def compile_for(inputs: list[Any]) -> Callable[[list[Any]], Any]:
            again = context.again()
            return _compile_training(graph_module, inputs, again, language).run

        run = by_relatives(example_inputs, run, compile_for)
    return replace(compiled, run=run, training=training)


def _in_recorded_types(compiled: CompiledGraph) -> Call:
    """The function that runs a compiled graph, with autocast off where it calls operators."""
    calls_operators = compiled.record.extern_calls or compiled.record.subprograms
    return in_recorded_types(compiled.run) if calls_operators else compiled.run


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

    constants: dict[str, Any]
    """The objects that its module is given: tensors, and functions of formulas of gradients."""

    blocks: tuple[GeneratedCode, ...]
    """The code of the functions of conditions and loops, which its lines hold."""

    subprograms: tuple[Record, ...]
    emitted: PythonModule = field(default=PythonModule(text="", places=(), places_of_blocks={}))
    """Its module; no text where it is a block of others."""


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
    return replace(code, emitted=emitted)


def _generate(
    graph: AtenGraph,
    context: CompileContext,
    language: KernelLanguage | None,
    prefix: str,
    slots: dict[str, str],
    *,
    is_whole: bool = False,
) -> GeneratedCode:
    """The lines of a graph. `prefix` stands before the names of its blocks and constants; `slots`
    holds the devices of the module.
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
    schedule, kernels = _scheduled(program, context, options, language)
    if kernels.lacks_choices:  # What was left to measuring is decided by rule after all.
        options = dataclasses.replace(options, multi_kernel="off")
        schedule, kernels = _scheduled(program, context, options, language)

    inner = _Subprograms(context, language, prefix, slots)
    for node in graph.graph.nodes:  # Conditions and loops go through the same stages.
        if isinstance(node.target, _Subprograms.TARGETS):
            with context.stage("subprograms"):
                inner.add(node)

    with context.stage("wrapper"):  # Allocations, launches and frees around the kernels.
        launches = kernels.launches
        lines = generate_lines(schedule, kernels.definitions, launches, slots, kernels.choices)
        decisions = known_decisions(lines, *_known_choices(options))
        winners = {name: decision.winner for name, decision in decisions.items()}
        lines = fill_choices(lines, winners)
        lines = batch_launches(lines, Batcher(), program.released_inputs)
        kernels = with_batches(kernels, schedule, lines)
        lines = with_blocks(lines, inner.flows)
        least_bytes = peak_bytes(lines, program.hints)
        lines = instrument(plan_memory(lines, program.hints), context.options)
        order = calling_order(graph.placeholders, program)

    own = {prefix + name: value for name, value in graph.constants.items()}
    hints = {name: hint for block in inner.blocks for name, hint in block.hints.items()}
    return GeneratedCode(
        schedule=schedule,
        kernels=kernels,
        decisions=decisions,
        lines=lines,
        order=order,
        hints={**hints, **program.hints},
        least_bytes=least_bytes,
        constants={**own, **inner.constants},
        blocks=tuple(inner.blocks),
        subprograms=tuple(inner.records),
    )


def _scheduled(
    program: Program, context: CompileContext, options: Options, language: KernelLanguage | None
) -> tuple[Schedule, KernelSet]:
    """A program as groups, and their kernels."""
    languages = Languages(options, language)
    with context.stage("schedule"):  # Bodies are fused into groups, and put in order.
        limits_of: LimitsOf = languages.limits_of
        if options.tune:
            schedule_with = partial(fuse, program, context)
            with context.stage("tune"):
                limits_of = tuned_limits(languages, program.hints, schedule_with)
        schedule = fuse(program, context, limits_of)
        if options.verify:
            verify_schedule(schedule)
        log_text("loops", lambda: print_schedule(schedule, origins=True))

    with context.stage("kernels"):  # Equal groups become one kernel's source.
        has_choices = options.multi_kernel != "off"
        kernels = define_kernels(schedule, context, languages, has_choices=has_choices)
        log_text("kernels", lambda: "\n".join(map(print_kernel, kernels.definitions)))
    return schedule, kernels


class _Subprograms:
    """The conditions, loops, formulas of gradients and kernels of the program's in a graph."""

    TARGETS = (ControlFlowCall, EagerCall, LoopCall, UserKernelOnCopies)

    def __init__(
        self,
        context: CompileContext,
        language: KernelLanguage | None,
        prefix: str,
        slots: dict[str, str],
    ) -> None:
        self.flows: dict[str, Flow] = {}
        """By node, a condition or loop whose functions are blocks."""

        self.constants: dict[str, Any] = {}
        """The constants of the blocks, and functions that run other nodes."""

        self.blocks: list[GeneratedCode] = []
        self.records: list[Record] = []
        self._context = context
        self._language = language
        self._prefix = prefix
        self._slots = slots

    def add(self, node: fx.Node) -> None:
        """Compile the functions of a condition or loop to lines; eager calls are Python as it
        stands.
        """
        target: Any = node.target
        if isinstance(target, UserKernelOnCopies):
            self.constants[self._prefix + node.name] = target.call
            return
        if isinstance(target, EagerCall):
            self.constants[self._prefix + node.name] = target
            return
        assert all(returns_results(graph, len(graph.outputs)) for graph in target.graphs)
        names = [f"{self._prefix}{node.name}_{role}" for role in target.roles]
        pairs = zip(names, target.graphs, strict=True)
        codes = [self._block(name, graph) for name, graph in pairs]
        self.flows[node.name] = Flow(
            line=target.line,
            names=tuple(names),
            lines=tuple(code.lines for code in codes),
            orders=tuple(code.order for code in codes),
        )

    def _block(self, name: str, graph: AtenGraph) -> GeneratedCode:
        context = self._context.again()
        code = _generate(graph, context, self._language, f"{name}_", self._slots)
        self.constants |= code.constants
        self.blocks += (code, *code.blocks)
        self.records += (_record(code, context, "", "", {}), *code.subprograms)
        return code


def compile_aten(
    graph: AtenGraph,
    context: CompileContext,
    language: KernelLanguage | None = None,
    *,
    is_whole: bool = False,
    kept_from: int | None = None,
) -> CompiledGraph:
    """Compile a functional ATen graph; the result takes a list of its inputs, and gives its
    outputs. `is_whole`: it is no half of a training step. `kept_from`: from which output on they
    are kept for a backward.
    """
    code = generate_code(graph, context, language, is_whole=is_whole)

    with context.stage("load"):  # Machine code, and the module that calls it.
        module = load_module(code.emitted.text, code.constants)
        choices = _begin_choices(code, module, context.options)
        call, refusal = _runner(code, module, context)
        for part in (code, *code.blocks):
            _tell_of_eager_kernels(part.kernels, context)

    unrecorded = why_not_recorded(code.schedule) if context.options.cuda_graphs else ""
    record = _record(code, context, refusal, unrecorded, choices)
    if unrecorded or not context.options.cuda_graphs:
        return CompiledGraph(run=call, path=module.path, record=record)
    is_backward = not is_whole and kept_from is None
    replayer = _replayer(call, graph, code, kept_from, warm_ups=1 + is_backward)
    return CompiledGraph(run=replayer, path=module.path, record=record, replayer=replayer)


def _replayer(
    call: Call, graph: AtenGraph, code: GeneratedCode, kept_from: int | None, warm_ups: int
) -> Replayer:
    """The function that replays `call` as a CUDA graph."""
    schedule, order = code.schedule, code.order
    written = written_inputs(schedule)
    inputs = zip(schedule.program.inputs, order.tensors, strict=True)
    (device,) = {buffer.layout.device for buffer in schedule.program.buffers().values()}
    facts = ReplayFacts(
        written=frozenset(position for buffer, position in inputs if buffer.name in written),
        kept_from=kept_from,
        passing=len(graph.mutated_inputs) if kept_from is None else 0,
        warm_ups=warm_ups,
        sizes_vary=bool(order.symbols),
    )
    return Replayer(call, facts, partial(current_pool, torch.device(device).index or 0))


def _runner(code: GeneratedCode, module: LoadedModule, context: CompileContext) -> tuple[Call, str]:
    """The function that is called with a list of the captured graph's arguments; and why it is the
    Python module's, where a native plan was asked for.
    """
    order = code.order
    if context.options.target == "fx" or context.fused_backend is not None:
        return order.around(_fused(code.lines, code.hints, module, context)), ""
    if context.options.target == "python":
        return order.around(module.call), ""
    if context.options.target == "cpp":
        return _in_cpp(code, module, context)
    emitted = code.emitted
    plan = pack_native(code.lines, emitted.places, order, emitted.places_of_blocks)
    try:
        return load_plan(plan, module), ""
    except NoNativePlan as error:
        return order.around(module.call), str(error)


def _in_cpp(code: GeneratedCode, module: LoadedModule, context: CompileContext) -> tuple[Call, str]:
    """The function that generated C++ exports; the Python module's, and why, where C++ has no form
    of something.
    """
    if MemoryChecks.chosen() != MemoryChecks():
        return code.order.around(module.call), "checks of memory are on"
    names = ("fusewright.wrapper.cpp", "fusewright.runtime.cpp_library")
    cpp, library = map(import_module, names)  # A compile for another target does without.
    try:
        emitted = cpp.emit_cpp(code.schedule.program.name, code.lines)
    except cpp.NoCpp as reason:
        return code.order.around(module.call), str(reason)
    log_text("wrapper", lambda: emitted.text)
    kernels = [line.kernel for line in code.lines if isinstance(line, DefineKernel)]
    objects = object_code(kernels, context.options.kernel_target)
    constants = [module.constants[name] for name in emitted.constants]
    call = library.load_cpp(emitted.text, objects, constants, emitted.outputs)
    return code.order.around(call), ""


def _fused(
    lines: tuple[Line, ...],
    hints: Mapping[str, int | float],
    module: LoadedModule,
    context: CompileContext,
    prefix: str = "",
) -> Call:
    """The function that calls the graph of fused kernels, or what a backend makes of it; so for
    each block. `prefix` stands before the names of constants.
    """
    blocks = {
        block.name: _fused(alone(block, lines), hints, module, context, f"{block.name}_")
        for line in lines
        for block in blocks_of(line)
    }
    constants = {name.removeprefix(prefix): value for name, value in module.constants.items()}
    run: Callable[..., Any] = emit_fx(lines, {**module.variables, **blocks}, constants)
    if context.fused_backend is not None:
        run = context.fused_backend(run, fused_examples(lines, hints))
    positions = [line.position for line in lines if isinstance(line, DefineSymbol | TakeInput)]

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        arguments = [inputs[position] for position in positions]
        inputs.clear()
        return tuple(run(*arguments))

    return call


def stage_failure(
    error: Exception, context: CompileContext, graph: fx.Graph
) -> BackendCompilerFailed:
    """The error that names the stage in which `error` was raised, and the user's line: the error's
    own, or where the graph begins.
    """
    stage = list(context.timings)[-1] if context.timings else "start"
    location = getattr(error, "location", None) or _first_place(graph)
    detail = f"{type(error).__name__}: {getattr(error, 'what', error)}"
    return BackendCompilerFailed("fusewright", stage, location, detail)


def _first_place(graph: fx.Graph) -> Location | None:
    """The user's line where a graph begins."""
    location = next(filter(None, (node.meta.get("location") for node in graph.nodes)), None)
    return Location(*location) if isinstance(location, tuple) else location


def warn_of_eager(failure: BackendCompilerFailed, what: str) -> None:
    """Warn that `what` runs eagerly because of `failure`."""
    warn(
        f"running {what} eagerly, from {failure.location or 'an unknown line'}\n"
        f"  stage {failure.stage} failed: {failure.detail}\n"
        "  everything else stays compiled. options={'strict': True}, or FUSEWRIGHT_STRICT=1, makes "
        "this an error"
    )


def _known_choices(options: Options) -> tuple[int | None, bool]:
    """The alternative that options force, and whether what earlier processes found is used."""
    forced = int(options.multi_kernel) if options.multi_kernel.isdecimal() else None
    return forced, options.multi_kernel_cache and not options.multi_kernel_table


def _begin_choices(
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


def _tell_of_eager_kernels(kernels: KernelSet, context: CompileContext) -> None:
    """Warn of kernels that cannot be compiled, with the user's lines; under `strict`,
    KernelNotCompiled is raised.
    """
    for kernel in kernels.definitions:
        reason = why_eager(kernel.key)
        if reason is None:
            continue
        launches = [call for call in kernels.launches.values() if isinstance(call, Launch)]
        launch = next((call for call in launches if call.kernel == kernel.name), None)
        if launch is None:
            continue  # An alternative of a choice, which is left out.
        place = ", ".join(map(str, launch.origins[:3]))
        if context.options.strict:
            raise KernelNotCompiled(f"{reason}\n  It computes {place or 'an unknown line'}")
        warn_of_eager_kernel(kernel.name, place, reason)


def _record(
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
        program=schedule.program,
        schedule=schedule,
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
