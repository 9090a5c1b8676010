"""Functions of the program in a traced graph: each a graph of its own, called by a condition or a
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.graph import AtenGraph
from fusewright.aot.interpret import interpreter
from fusewright.aot.leaves import filled, with_leaves
from fusewright.aot.results import finish_graph
from fusewright.aot.specs import FromGraph
from fusewright.aot.tracer import Recorder, trace
from fusewright.containers import tensors
from fusewright.control_flow import ControlFlow
from fusewright.errors import UnsupportedOperator
from fusewright.fake import FakeMode
from fusewright.fake_rules.geometry import known_equal
from fusewright.ir.index import integer
from fusewright.opaque import Opaque, is_number
from fusewright.records import record
from fusewright.symbolic.nodes import index_of

aten = torch.ops.aten


@record
class SubprogramCall:
    """A condition or loop, and what it is called with."""

    flow: ControlFlow
    outside: Sequence[Sequence[Any]]
    """By function: the tensors and numbers that it reads from outside."""

    arguments: Sequence[Any]
    tensors: Sequence[Any]
    """The tensors in the arguments, and those from outside."""


def places(outside: Sequence[Sequence[Any]], numbers: Sequence[Any]) -> list[list[int]]:
    """For each function, where the values that it reads from outside stand among the tensors of
    all from outside, and the numbers behind them.
    """
    count = sum(1 for _ in tensors(outside))
    symbols = [str(number) for number in numbers]
    position = iter(range(count))
    return [
        [
            next(position) if isinstance(value, torch.Tensor) else count + symbols.index(str(value))
            for value in own
        ]
        for own in outside
    ]


class Tracing:
    """A function that is traced when it is called on fakes."""

    def __init__(
        self,
        recorder: Recorder,
        module: fx.GraphModule,
        outside: Sequence[Any],
        own: Sequence[int],
    ) -> None:
        self.recorder = recorder
        self.module = module
        self.outside = outside
        """Tensors that the functions of the call read, and then symbolic numbers."""

        self.own = own
        """Which of those are this function's."""

        self.graph: Any = None
        self.structure: Any = None

    def __call__(self, *arguments: Any) -> Any:
        values = [*tensors(arguments), *self.outside]
        count = len(values) - len(self.outside)
        taken = [*range(count), *(count + number for number in self.own)]
        module, self.structure = from_all(self.module, len(values), taken)
        fakes = self.recorder.fakes
        inputs = [like(value, fakes) for value in values]
        recorder = self.recorder
        program = trace(module, inputs, fakes, recorder.decompositions, verify=recorder.verify)
        self.graph = graph = finish_graph(program, inputs, fakes)
        if graph.mutated_inputs:
            raise UnsupportedOperator("a function of a condition or loop writes to its arguments")
        assert graph.results == tuple(FromGraph(number) for number in range(len(graph.results)))
        return filled(self.structure, [node.meta["val"] for node in graph.outputs])


def like(tensor: Any, fakes: FakeMode) -> Any:
    """A fake of its own, with sizes and strides of another; a number as it is."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    return like_part(tensor, fakes, tensor.shape, tensor.stride())


def like_part(tensor: Any, fakes: FakeMode, size: Sequence[Any], stride: Sequence[Any]) -> Any:
    """A fake of its own, with the dtype and device of `tensor`, of these strides: row-major where
    they have elements that are one in memory.
    """
    options = {"dtype": tensor.dtype, "device": tensor.device}
    extents = zip(size, stride, strict=True)
    if any(type(step) is int and step == 0 and not known_equal(n, 1) for n, step in extents):
        return fakes.dispatch(aten.empty.memory_format, (size,), options)
    return fakes.dispatch(aten.empty_strided.default, (size, stride), options)


def empty(recorder: Recorder, size: Sequence[Any], dtype: torch.dtype, device: Any = None) -> Any:
    """A fake of its own, row-major, which is no part of the program."""
    options = {"dtype": dtype, "device": device}
    with torch_compat.without_modes():
        return recorder.fakes.dispatch(aten.empty.memory_format, (size,), options)


def from_all(module: fx.GraphModule, count: int, taken: Sequence[int]) -> Any:
    """A function's graph as one from `count` values, of which it takes some, to the tensors in its
    results, none of which shares memory with another; and the results with leaves for them.
    """
    graph = fx.Graph()
    inputs = [graph.placeholder(f"input{number}") for number in range(count)]
    own = module.graph.find_nodes(op="placeholder")
    values = dict(zip(own, (inputs[number] for number in taken), strict=True))
    nodes: list[Any] = []
    structure = with_leaves(graph.graph_copy(module.graph, values), nodes)
    graph.output(tuple([graph.call_function(torch.clone, (node,)) for node in nodes]))
    return fx.GraphModule(module, graph), structure


# -- gradients -------------------------------------------------------------------------------------


def differentiable(
    recorder: Recorder,
    results: Sequence[Any],
    tracked: Collection[int],
    record_backward: Callable[[Sequence[Any]], tuple[Any, ...]],
    inputs: Sequence[Any],
) -> list[Any]:
    """The results of a recorded call on `inputs`, with a history: when the engine comes to it,
    `record_backward` is called with the gradients of the results, and gives those of `inputs`.

    `tracked`: which results have gradients.
    """
    outputs = torch_compat.autograd.apply_function(
        Differentiable, results, frozenset(tracked), record_backward, *inputs
    )
    for fake, result in zip(results, outputs, strict=True):
        recorder.bind(result, recorder.argument(fake))
    return list(outputs)


class Differentiable(torch.autograd.Function):
    """A recorded call with its results, and what records its gradient: the tensors that this works
    on are told apart by identity, and so kept by it, not by autograd.
    """

    @staticmethod
    def forward(ctx: Any, results: Any, tracked: Any, backward: Any, *tensors: Any) -> Any:
        ctx.run_backward = backward
        ctx.mark_non_differentiable(
            *[result for k, result in enumerate(results) if k not in tracked]
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        if torch.is_grad_enabled():
            raise UnsupportedOperator("second derivatives of a condition or loop")
        return None, None, None, *ctx.run_backward(tangents)


# -- when the graph runs --------------------------------------------------------------------------


def by_eager_operators(graph: AtenGraph) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Runs a graph, whose placeholders are tensors and opaque values and then numbers, on tensors
    that may be laid out otherwise.
    """
    values = [node.meta["val"] for node in graph.placeholders]
    strides = [
        None if isinstance(value, Opaque) else tuple(map(index_of, value.stride()))
        for value in values
        if not is_number(value)
    ]
    count = len(strides)
    indices = [
        index_of(value) if isinstance(value, int | torch.SymInt) else integer(0)
        for value in values[count:]
    ]
    run = interpreter(graph)

    def call(arguments: Sequence[Any]) -> tuple[Any, ...]:
        symbols = {
            symbol.name: number
            for index, number in zip(indices, arguments[count:], strict=True)
            for symbol in index.free()
        }
        inputs = list(arguments)
        for place, stride in enumerate(strides):
            if stride is not None:
                wanted = tuple([extent.evaluate(symbols) for extent in stride])
                inputs[place] = with_stride(inputs[place], wanted)
        return run(inputs)

    return call


def with_stride(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """`tensor`, copied where its strides are others."""
    if tensor.stride() == stride:
        return tensor
    result = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)
