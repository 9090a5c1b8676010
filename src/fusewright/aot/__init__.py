"""One torch-level graph to one functional ATen graph, and the calling convention around what is
compiled from it.

Read in this order: `graph` (what comes out), `tracer`, `mutations`, `decompositions`,
`functionalize`, `results`, the clean-up passes, `runtime`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

from fusewright.aot.common_subexpressions import merge_common_subexpressions
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.decompositions import DECOMPOSITIONS
from fusewright.aot.graph import AtenGraph as AtenGraph
from fusewright.aot.interpret import interpreter as interpreter
from fusewright.aot.results import finish_graph
from fusewright.aot.runtime import with_results as with_results
from fusewright.aot.symbols import SYMBOLIC
from fusewright.aot.tracer import Fakes, trace
from fusewright.context import CompileContext
from fusewright.fake import FakeMode, FakeTensor
from fusewright.torch_compat import TorchFakes, torch_fake_mode

__all__ = ["AtenGraph", "interpreter", "trace_inference", "with_results"]


def trace_inference(
    module: fx.GraphModule, example_inputs: Sequence[Any], context: CompileContext
) -> AtenGraph:
    """The functional ATen graph that `module` amounts to on inputs like `example_inputs`, without
    gradients.

    `example_inputs`: one for each placeholder; real tensors, `FakeTensor`s of one `FakeMode`, or
    torch's own fake tensors with `torch.SymInt`s among the sizes. Raises `Unsupported`, naming the
    user's line, for what cannot be traced.
    """
    fakes, inputs = _fake_inputs(example_inputs)
    composites = fakes.composites() if isinstance(fakes, TorchFakes) else nullcontext()
    with context.stage("trace"), composites:
        program = trace(module, inputs, fakes, DECOMPOSITIONS)
    with context.stage("functionalize"):
        graph = finish_graph(program, fakes)
    with context.stage("clean up"):
        merge_common_subexpressions(graph.graph)
        remove_dead_code(graph.graph)
        used = {str(node.target) for node in graph.graph.find_nodes(op="get_attr")}
        constants = {name: value for name, value in graph.constants.items() if name in used}
    return dataclasses.replace(graph, constants=constants)


def _fake_inputs(example_inputs: Sequence[Any]) -> tuple[Fakes, list[Any]]:
    """The mode to trace in and a fake for each example, no two the same.

    Torch's own mode is used only where a size is symbolic; it takes several times as long.
    """
    for value in example_inputs:
        if isinstance(value, FakeTensor):
            return value.fake_mode, list(example_inputs)
    if any(has_symbols(value) for value in example_inputs):
        torch_mode = torch_fake_mode(example_inputs)
        if torch_mode is not None:
            return TorchFakes(torch_mode), list(example_inputs)
    mode = FakeMode()
    return mode, [
        mode.fake_distinct(value) if isinstance(value, torch.Tensor) else value
        for value in example_inputs
    ]


def has_symbols(value: Any) -> bool:
    """Whether `value` is a symbolic number or a tensor with one among its sizes, strides and
    offset.
    """
    if not isinstance(value, torch.Tensor):
        return isinstance(value, SYMBOLIC)
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    return any(isinstance(number, SYMBOLIC) for number in numbers)
