"""The backend that traces to ATen and runs the graph with eager operators: it tells tracing faults
from later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from fusewright.aot import interpreter, trace_inference, with_results
from fusewright.context import CompileContext


def aot_eager(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile `module` for inference; the result takes the inputs as arguments."""
    graph = trace_inference(module, example_inputs, CompileContext())
    run = with_results(graph, interpreter(graph))
    return lambda *inputs: run(list(inputs))
