"""The stages of the compiler, each as a backend that goes as far as that stage, and runs the result
by eager operators. A fault lies where the first of them does something else than the captured
graph.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx

from fusewright.aot import (
    COMPILER_DECOMPOSITIONS,
    AtenGraph,
    default_partition,
    in_recorded_types,
    interpreter,
    min_cut_rematerialization_partition,
    needs_gradients,
    trace_inference,
    trace_training,
    with_gradients,
    with_results,
)
from fusewright.aot.partition import PartitionFunction
from fusewright.bisection.differences import Expected, difference
from fusewright.bisection.kernels import KernelCheck
from fusewright.bisection.observe import Run
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import FusewrightError
from fusewright.formulas import Formula
from fusewright.ir.group import Group, Schedule
from fusewright.ir.origin import Origin
from fusewright.ir.program import ComputedBuffer, Program, RowStatement
from fusewright.ir.reference import Evaluation, evaluate_call
from fusewright.ir.reference_groups import evaluate_schedule
from fusewright.ir.verify import verify_program, verify_schedule
from fusewright.kernels import Languages
from fusewright.lower import calling_order, lower
from fusewright.pipeline import compile_aten, compile_graph
from fusewright.records import record
from fusewright.schedule import PASSES
from fusewright.schedule import schedule as fuse

Build = Callable[[fx.GraphModule, Sequence[Any]], Run]
"""Takes a captured graph as far as a stage, for such inputs, and gives what runs it."""

CompileHalf = Callable[[AtenGraph], Run]
"""Makes what runs a functional ATen graph: a whole one, or half of a training step."""

OPTIONS: Final = Options(strict=True, verify=True, multi_kernel="off", graph_cache=False)


@record(kw_only=True)
class ComparedStage:
    """One stage."""

    name: str
    build: Build


class StepDiffers(FusewrightError):
    """A step of a schedule gives a buffer another value than the program it was made of."""

    def __init__(self, buffer: str, step: str, origins: Sequence[Origin], detail: str) -> None:
        self.buffer = buffer
        self.step = step
        self.origins = tuple(origins)
        super().__init__(f"{step} gives {buffer} another value: {detail}")


def staged(
    compile_half: CompileHalf,
    *,
    decompositions: Mapping[Any, Formula] = COMPILER_DECOMPOSITIONS,
    partition: PartitionFunction = min_cut_rematerialization_partition,
) -> Build:
    """A backend that runs the halves of a graph by what `compile_half` makes of them."""

    def build(module: fx.GraphModule, examples: Sequence[Any]) -> Run:
        context = CompileContext(options=OPTIONS)
        if not needs_gradients(module, examples):
            graph = trace_inference(module, examples, context, decompositions)
            return with_results(graph, in_recorded_types(compile_half(graph)))
        cut = partition(trace_training(module, examples, context, decompositions))
        return with_gradients(cut, compile_half(cut.forward), compile_half)

    return build


def evaluated(graph: AtenGraph) -> Run:
    """The loops that a graph is lowered to, evaluated."""
    program = _lowered(graph)

    def call(arguments: list[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            return evaluate_call(program, arguments, graph.constants, graph.programs)

    return calling_order(graph.placeholders, program).around(call)


def scheduled(graph: AtenGraph, passes: Collection[str] = PASSES) -> Run:
    """The groups that a graph is scheduled to, after these passes, evaluated."""
    program, schedule = _scheduled(graph, passes)

    def call(arguments: list[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            return evaluate_schedule(schedule, arguments, graph.constants, graph.programs)

    return calling_order(graph.placeholders, program).around(call)


def compared_steps(graph: AtenGraph, passes: Collection[str] = PASSES) -> Run:
    """The groups that a graph is scheduled to, compared; calls raise StepDiffers for the first step
    that gives a buffer another value than its statement in the program does.
    """
    program, schedule = _scheduled(graph, passes)

    def call(arguments: list[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            wanted = _buffers_of(program, graph, list(arguments))
            return evaluate_schedule(
                schedule,
                arguments,
                graph.constants,
                graph.programs,
                after_step=functools.partial(_compare_step, wanted),
            )

    return calling_order(graph.placeholders, program).around(call)


def checked_kernels(graph: AtenGraph, counts: list[int]) -> Run:
    """The schedule of a graph, with compiled kernels; calls raise KernelDiffers. `counts` gets how
    many launches were compared.
    """
    program, schedule = _scheduled(graph, PASSES)
    check = KernelCheck(schedule, CompileContext(options=OPTIONS))
    run_group = check.run_group()

    def call(arguments: list[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            before = check.checked
            results = evaluate_schedule(
                schedule, arguments, graph.constants, graph.programs, run_group=run_group
            )
            counts.append(check.checked - before)
            return results

    return calling_order(graph.placeholders, program).around(call)


def in_python(graph: AtenGraph) -> Run:
    """Everything compiled; what surrounds the kernels is run by the Python module."""
    options = dataclasses.replace(OPTIONS, target="python")
    return compile_aten(graph, CompileContext(options=options)).run


def as_compiled(module: fx.GraphModule, examples: Sequence[Any]) -> Run:
    """A graph as users' calls run it."""
    return compile_graph(module, examples, CompileContext(options=OPTIONS)).run


def stages(counts: list[int]) -> tuple[ComparedStage, ...]:
    """All stages behind capture, in the compiler's order. `counts` gets the numbers of kernels that
    were compared.
    """
    kernels = functools.partial(checked_kernels, counts=counts)
    rows: dict[str, Build] = {
        "aot": staged(interpreter, decompositions={}, partition=default_partition),
        "decomposition": staged(interpreter, partition=default_partition),
        "partition": staged(interpreter),
        "lowering": staged(evaluated),
        "scheduling": staged(scheduled),
        "kernels": staged(kernels),
        "wrapper": staged(in_python),
        "native plan": as_compiled,
    }
    return tuple(ComparedStage(name=name, build=build) for name, build in rows.items())


def stages_of_passes() -> tuple[ComparedStage, ...]:
    """The parts of the stage `scheduling`: grouping, and the passes one by one."""
    rows = []
    for count in range(len(PASSES) + 1):
        name = f"scheduling, pass {PASSES[count - 1]}" if count else "scheduling, groups"
        half = functools.partial(scheduled, passes=PASSES[:count])
        rows.append(ComparedStage(name=name, build=staged(half)))
    return tuple(rows)


def _lowered(graph: AtenGraph) -> Program:
    program = lower(graph, CompileContext(options=OPTIONS))
    verify_program(program)
    return program


def _scheduled(graph: AtenGraph, passes: Collection[str]) -> tuple[Program, Schedule]:
    context = CompileContext(options=OPTIONS)
    program = lower(graph, context)
    schedule = fuse(program, context, Languages(context.options).limits_of, passes)
    verify_schedule(schedule)
    return program, schedule


def _buffers_of(
    program: Program, graph: AtenGraph, arguments: list[Any]
) -> dict[str, torch.Tensor]:
    """The value of each buffer of a program, as its statement gives it."""
    names = [fact.symbol.name for fact in program.input_sizes]
    device = next((a.device for a in arguments if isinstance(a, torch.Tensor)), torch.device("cpu"))
    evaluation = Evaluation(dict(zip(names, arguments, strict=False)), False, device)
    for buffer, tensor in zip(program.inputs, arguments[len(names) :], strict=True):
        evaluation.adopt(buffer, tensor.clone())
    for buffer in program.constants:
        evaluation.adopt(buffer, graph.constants[buffer.name])
    values = {}
    for statement in program.statements:
        if isinstance(statement, ComputedBuffer):
            evaluation.compute(statement.outputs, statement.body)
        else:
            evaluation.execute(statement, graph.programs)
        for buffer in statement.outputs:
            values[buffer.name] = evaluation.view(buffer.name, buffer.layout).clone()
    return values


def _compare_step(
    wanted: Mapping[str, torch.Tensor], step: Group | RowStatement, evaluation: Evaluation
) -> None:
    """Raise StepDiffers where a step has given a buffer another value."""
    buffers = step.writes if isinstance(step, Group) else step.outputs
    for buffer in buffers:
        if buffer.name not in wanted:
            continue
        own = evaluation.view(buffer.name, buffer.layout)
        expected = Expected(eager=wanted[buffer.name], exact=None)
        differs = difference(own, expected) if own.shape == wanted[buffer.name].shape else None
        if differs is not None:
            name = step.name if isinstance(step, Group) else type(step).__name__
            origins = step.origins if isinstance(step, Group) else ()
            raise StepDiffers(buffer.name, name, origins, differs.detail)
