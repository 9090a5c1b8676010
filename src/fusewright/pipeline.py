"""The compiler as one function: a captured graph in, a callable out, one named stage a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from fusewright.aot import trace_inference, with_results
from fusewright.context import CompileContext
from fusewright.ir.group import Group, Schedule
from fusewright.ir.lines import Line
from fusewright.ir.program import ExternKernel
from fusewright.ir.text import print_schedule
from fusewright.ir.text_lines import print_kernel
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.ir.verify_lines import verify_lines
from fusewright.kernels import KernelSet, define_kernels
from fusewright.logs import log_text
from fusewright.lower import calling_order, lower
from fusewright.runtime.compiled import CompiledGraph, KernelCall, Record
from fusewright.runtime.loader import load_module
from fusewright.schedule import schedule as fuse
from fusewright.schedule.lifetimes import last_uses
from fusewright.schedule.traffic import group_traffic
from fusewright.wrapper import emit_python, generate_lines, peak_bytes, plan_memory


def compile_graph(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], context: CompileContext
) -> CompiledGraph:
    """Compile a torch-level graph for inference; the result takes the graph's inputs and returns a
    tuple.
    """
    check = context.options.verify

    with context.stage("aot"):  # Torch calls become functional ATen operators.
        graph = trace_inference(graph_module, example_inputs, context)
        log_text("aten", lambda: str(graph.graph))

    with context.stage("lower"):  # Operators become loop bodies, or library calls.
        program = lower(graph, context)
        if check:
            verify_program(program)

    with context.stage("schedule"):  # Bodies are fused into groups, and put in order.
        schedule = fuse(program, context)
        if check:
            verify_schedule(schedule)
        log_text("loops", lambda: print_schedule(schedule, origins=True))

    with context.stage("kernels"):  # Equal groups become one kernel's source.
        kernels = define_kernels(schedule, context)
        log_text("kernels", lambda: "\n".join(map(print_kernel, kernels.definitions)))

    with context.stage("wrapper"):  # Allocations, launches and frees around the kernels.
        lines = generate_lines(schedule, last_uses(schedule), kernels.definitions, kernels.launches)
        lines = plan_memory(lines)
        if check:
            verify_lines(lines)
        text = emit_python(program.name, lines)
        log_text("wrapper", lambda: text)

    with context.stage("load"):  # Machine code, and the module that calls it.
        module = load_module(text, graph.constants)

    call = calling_order(graph.placeholders, program).around(module.call)
    record = _record(schedule, kernels, lines, context)
    return CompiledGraph(run=with_results(graph, call), path=module.path, record=record)


def _record(
    schedule: Schedule, kernels: KernelSet, lines: tuple[Line, ...], context: CompileContext
) -> Record:
    """What the stages made, without the tensors."""
    hints = {fact.symbol.name: fact.hint for fact in schedule.program.sizes}
    launches = []
    for position, step in enumerate(schedule.steps):
        if isinstance(step, Group):
            traffic = group_traffic(step, hints)
            name = kernels.launches[position].kernel
            launches.append(
                KernelCall(kernel=name, bytes_read=traffic.read, bytes_written=traffic.written)
            )
    externs = (step.operator for step in schedule.steps if isinstance(step, ExternKernel))
    return Record(
        program=schedule.program,
        schedule=schedule,
        kernels=kernels.definitions,
        lines=lines,
        launches=tuple(launches),
        extern_calls=tuple(externs),
        peak_bytes=peak_bytes(lines, hints),
        timings=dict(context.timings),
        notes=tuple(context.notes),
    )
