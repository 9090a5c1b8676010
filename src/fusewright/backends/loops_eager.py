"""The backend that lowers to loops and evaluates them with eager operators: it tells faults of
lowering from those of scheduling and kernels. Slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.aot import (
    AtenGraph,
    in_recorded_types,
    min_cut_rematerialization_partition,
    needs_gradients,
    trace_inference,
    trace_training,
    with_gradients,
    with_results,
)
from fusewright.context import CompileContext
from fusewright.ir.reference import evaluate_call
from fusewright.ir.verify import verify_program
from fusewright.lower import calling_order, lower


def loops_eager(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile `module`; the result takes the inputs as arguments."""
    context = CompileContext()
    if needs_gradients(module, example_inputs):
        joint = trace_training(module, example_inputs, context)
        partition = min_cut_rematerialization_partition(joint)
        forward = in_recorded_types(_evaluated(partition.forward))
        run = with_gradients(partition, forward, lambda graph: in_recorded_types(_evaluated(graph)))
    else:
        graph = trace_inference(module, example_inputs, context)
        run = with_results(graph, _evaluated(graph))
    return lambda *inputs: run(list(inputs))


def _evaluated(graph: AtenGraph) -> Callable[[list[Any]], Any]:
    program = lower(graph, CompileContext())
    verify_program(program)

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            return evaluate_call(program, inputs, graph.constants, graph.programs)

    return calling_order(graph.placeholders, program).around(call)
