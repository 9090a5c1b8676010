"""The compiler as one function: a captured graph in, a callable out, one named stage a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fusewright.aot import (
    AtenGraph,
    by_relatives,
    first_location,
    freeze,
    in_recorded_types,
    interpreter,
    min_cut_rematerialization_partition,
    needs_gradients,
    split_by_buckets,
    trace_inference,
    trace_training,
    weights_of,
    with_gradients,
    with_results,
)
from fusewright.context import COLLECTOR_PAUSE, CompileContext
from fusewright.errors import BackendCompilerFailed
from fusewright.graph_pieces import GraphPiece, in_order, pieces
from fusewright.interrupts import INTERRUPTS
from fusewright.kept_plans import KeptPlan, Search, keep, look_up
from fusewright.logs import warn
from fusewright.operators.layouts import may_lie_anyhow
from fusewright.plans import Plan, runner, tell_of_eager_kernels
from fusewright.progress import compiling
from fusewright.records import replace
from fusewright.runtime.calling import Call
from fusewright.runtime.compiled import CompiledGraph, Training
from fusewright.runtime.cuda_graphs import Replayer, ReplayFacts, current_pool
from fusewright.runtime.loader import load_module
from fusewright.runtime.targets import begin
from fusewright.torch_compat import is_autocast_on
from fusewright.torch_compat.distributed import active_bucket_limits

if TYPE_CHECKING:  # Imported where something is generated: a kept plan needs none of it.
    from fusewright.generation import GeneratedCode
    from fusewright.kernels import KernelLanguage


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
    if language is None and devices - {"cpu", "meta"}:
        begin(devices)

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
            f"torch.no_grad()\n  {first_location(graph_module.graph) or ''}"
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
                compiling("a backward half", lambda: first_location(graph.graph)),
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
    half = "" if is_whole else "backward" if kept_from is None else "forward"
    # What an earlier process has made of such a graph, by its key.
    search = look_up(graph, context, half=half, has_language=language is not None)
    if search.kept is not None:
        plan, compiled = search.kept.plan, _compile_kept(search.kept, graph, context)
    else:
        plan, compiled = _compile_new(graph, context, language, search, is_whole)
    if compiled.record.unrecorded_because or not context.options.cuda_graphs:
        return compiled
    replayer = _replayer(compiled.run, plan, graph, half, kept_from)
    return replace(compiled, run=replayer, replayer=replayer)


def _compile_kept(kept: KeptPlan, graph: AtenGraph, context: CompileContext) -> CompiledGraph:
    """Compile a graph whose plan was kept."""
    plan = kept.plan
    with context.stage("load"):
        module = load_module(plan.emitted.text, graph.module_constants())
        call, refusal = runner(plan, module, context)
        tell_of_eager_kernels(plan.lines, context)
    context.notes += kept.record.notes
    return CompiledGraph(run=call, path=module.path, record=kept.record_of(context, refusal))


def _compile_new(
    graph: AtenGraph,
    context: CompileContext,
    language: KernelLanguage | None,
    search: Search,
    is_whole: bool,
) -> tuple[Plan, CompiledGraph]:
    """Compile a graph by all stages, and keep its plan."""
    generation = import_module("fusewright.generation")
    code: GeneratedCode = generation.generate_code(graph, context, language, is_whole=is_whole)
    plan = code.plan

    with context.stage("load"):  # Machine code, and the module that calls it.
        module = load_module(code.emitted.text, code.constants)
        choices = generation.begin_choices(code, module, context.options)
        call, refusal = runner(plan, module, context)
        tell_of_eager_kernels(code.lines, context)

    unrecorded = ""
    if context.options.cuda_graphs:
        watched = generation.why_watched(context.options)
        unrecorded = generation.why_not_recorded(code.schedule) or watched
    record = generation.record_of(code, context, refusal, unrecorded, choices)
    if search.outcome:
        record = replace(record, kept=keep(search, plan, record))
    return plan, CompiledGraph(run=call, path=module.path, record=record)


def _replayer(
    call: Call, plan: Plan, graph: AtenGraph, half: str, kept_from: int | None
) -> Replayer:
    """The function that replays `call` as a CUDA graph."""
    facts = ReplayFacts(
        written=plan.written,
        kept_from=kept_from,
        passing=len(graph.mutated_inputs) if kept_from is None else 0,
        warm_ups=2 if half == "backward" else 1,
        sizes_vary=bool(plan.order.symbols),
    )
    (device,) = plan.devices
    return Replayer(call, facts, partial(current_pool, torch.device(device).index or 0))


def stage_failure(
    error: Exception, context: CompileContext, graph: fx.Graph
) -> BackendCompilerFailed:
    """The error that names the stage in which `error` was raised, and the user's line: the error's
    own, or where the graph begins.
    """
    stage = list(context.timings)[-1] if context.timings else "start"
    location = getattr(error, "location", None) or first_location(graph)
    detail = f"{type(error).__name__}: {getattr(error, 'what', error)}"
    return BackendCompilerFailed("fusewright", stage, location, detail)


def warn_of_eager(failure: BackendCompilerFailed, what: str) -> None:
    """Warn that `what` runs eagerly because of `failure`."""
    warn(
        f"running {what} eagerly, from {failure.location or 'an unknown line'}\n"
        f"  stage {failure.stage} failed: {failure.detail}\n"
        "  everything else stays compiled. options={'strict': True}, or FUSEWRIGHT_STRICT=1, makes "
        "this an error"
    )
