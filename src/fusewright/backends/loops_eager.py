"""The backend that lowers to loops and evaluates them with eager operators: it tells faults of
lowering from those of scheduling and kernels. Slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from fusewright.aot import trace_inference, with_results
from fusewright.context import CompileContext
from fusewright.ir.reference import evaluate
from fusewright.ir.verify import verify_program
from fusewright.lower import calling_order, lower


def loops_eager(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile `module` for inference; the result takes the inputs as arguments."""
    context = CompileContext()
    graph = trace_inference(module, example_inputs, context)
    program = lower(graph, context)
    verify_program(program)
    names = [fact.symbol.name for fact in program.sizes]

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        sizes = dict(zip(names, inputs, strict=False))
        tensors = inputs[len(names) :]
        return tuple(evaluate(program, tensors, sizes=sizes, constants=graph.constants))

    run = with_results(graph, calling_order(graph.placeholders, program).around(call))
    return lambda *inputs: run(list(inputs))
