"""Conditions and loops in traced graphs: each function is traced to a graph of its own, and the
whole is one call.

    cond(f, g, predicate, (x,))      (captured)
 ->
    cond0(predicate, x, w)           (traced)    cond0: f and g as graphs from (x, w)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import control_flow, torch_compat
from fusewright.aot.graph import AtenGraph
from fusewright.aot.interpret import interpreter
from fusewright.aot.results import finish_graph
from fusewright.aot.runtime import with_results
from fusewright.aot.specs import FromGraph, Leaf
from fusewright.aot.tracer import RECORDED_WHOLE, Fakes, Recorder, trace
from fusewright.control_flow import ControlFlow, Function
from fusewright.errors import UnsupportedOperator

aten = torch.ops.aten

Run = Callable[[list[Any]], Any]
"""Runs one graph: a list of tensors in, its results out."""


class ControlFlowCall:
    """The target of a call in a traced graph. Its arguments are the tensors in those of the
    function in `control_flow.FUNCTIONS`, and behind them those that its functions read from
    outside.
    """

    def __init__(
        self, name: str, graphs: Sequence[AtenGraph], structures: Sequence[Any], arguments: Any
    ) -> None:
        self.graphs = graphs
        """The functions, each from the tensors in its arguments and all those from outside."""

        self._structures = structures
        """What each function returns, with a `Leaf` for each tensor."""

        self._arguments = arguments
        """The arguments, with a `Leaf` for each tensor."""

        self.function = control_flow.FUNCTIONS[name]
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """By eager operators."""
        return self.running([with_results(g, interpreter(g)) for g in self.graphs])(*tensors)

    def running(self, runs: Sequence[Run]) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The call, given what runs each of the graphs."""
        count = len(list(leaves(self._arguments)))
        strides = [[node.meta["val"].stride() for node in g.placeholders] for g in self.graphs]

        def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            functions = [
                _function(*each, tensors[count:])
                for each in zip(runs, strides, self._structures, strict=True)
            ]
            arguments = filled(self._arguments, tensors)
            return tuple(control_flow.tensors(self.function(*functions, *arguments)))

        return call


def _function(
    run: Run, strides: Sequence[Any], structure: Any, outside: Sequence[torch.Tensor]
) -> Function:
    """A function of the program, run by `run` on tensors with these strides."""

    def function(*arguments: Any) -> Any:
        given = [*control_flow.tensors(arguments), *outside]
        results = run([_with_stride(*each) for each in zip(given, strides, strict=True)])
        return filled(structure, list(control_flow.tensors(results)))

    return function


def _with_stride(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    if tensor.stride() == stride:
        return tensor
    result = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def record_control_flow(recorder: Recorder, flow: ControlFlow, args: Sequence[Any]) -> Any:
    """Record a call of `flow`; gives its results. Raises UnsupportedOperator."""
    outside, *arguments = args
    given: list[Any] = []
    shape = _with_leaves(arguments, given)
    lifted = list(control_flow.tensors(outside))
    if torch.is_grad_enabled() and any(one.requires_grad for one in [*given, *lifted]):
        raise UnsupportedOperator(f"gradients through {flow.name}")
    if any(torch_compat.unwrapped(one) is not one for one in [*given, *lifted]):
        raise UnsupportedOperator(f"{flow.name} inside of a transform of torch.func")

    functions, begin = [], 0
    for module, own in zip(flow.modules, outside, strict=True):
        functions.append(_Tracing(recorder, module, lifted, range(begin, begin + len(own))))
        begin += len(own)
    with torch_compat.without_modes():
        result = control_flow.FUNCTIONS[flow.name](*functions, *arguments)
    graphs = [function.graph for function in functions]
    call = ControlFlowCall(flow.name, graphs, [each.structure for each in functions], shape)
    recorder.record_call(call, (*given, *lifted), {}, tuple(control_flow.tensors(result)))
    return result


RECORDED_WHOLE[ControlFlow] = record_control_flow


class _Tracing:
    """A function that is traced when it is called on fakes."""

    def __init__(
        self, recorder: Recorder, module: fx.GraphModule, outside: Sequence[Any], own: range
    ) -> None:
        self.recorder = recorder
        self.module = module
        self.outside = outside
        self.own = own
        """Which of the tensors from outside are this function's."""

        self.graph: Any = None
        self.structure: Any = None

    def __call__(self, *arguments: Any) -> Any:
        given = [*control_flow.tensors(arguments), *self.outside]
        count = len(given) - len(self.outside)
        taken = [*range(count), *(count + number for number in self.own)]
        module, self.structure = _from_all(self.module, len(given), taken)
        fakes = self.recorder.fakes
        inputs = [_like(one, fakes) for one in given]
        program = trace(module, inputs, fakes, self.recorder.decompositions)
        self.graph = graph = finish_graph(program, inputs, fakes)
        if graph.mutated_inputs:
            raise UnsupportedOperator("a function of a condition or loop writes to its arguments")
        assert graph.results == tuple(FromGraph(number) for number in range(len(graph.results)))
        return filled(self.structure, [node.meta["val"] for node in graph.outputs])


def _like(tensor: torch.Tensor, fakes: Fakes) -> Any:
    """A fake of its own, with sizes and strides of another."""
    options = {"dtype": tensor.dtype, "device": tensor.device}
    return fakes.dispatch(aten.empty_strided.default, (tensor.shape, tensor.stride()), options)


def _from_all(module: fx.GraphModule, count: int, taken: Sequence[int]) -> Any:
    """A function's graph as one from `count` tensors, of which it takes some, to the tensors in its
    results, none of which shares memory with another; and the results with leaves for them.
    """
    graph = fx.Graph()
    inputs = [graph.placeholder(f"input{number}") for number in range(count)]
    own = module.graph.find_nodes(op="placeholder")
    values = dict(zip(own, (inputs[number] for number in taken), strict=True))
    found: list[Any] = []
    structure = _with_leaves(graph.graph_copy(module.graph, values), found)
    graph.output(tuple([graph.call_function(torch.clone, (node,)) for node in found]))
    return fx.GraphModule(module, graph), structure


# -- containers with leaves in place of tensors ---------------------------------------------------


def _with_leaves(value: Any, found: list[Any]) -> Any:
    """`value` with its tensors, or nodes, moved into `found` and replaced by their `Leaf`."""
    match value:
        case torch.Tensor() | fx.Node():
            found.append(value)
            return Leaf(len(found) - 1)
        case tuple() | list():
            return type(value)([_with_leaves(one, found) for one in value])
        case dict():
            return {name: _with_leaves(one, found) for name, one in value.items()}
        case _:
            return value


def leaves(structure: Any) -> Any:
    """The leaves in containers."""
    match structure:
        case Leaf():
            yield structure
        case tuple() | list():
            for one in structure:
                yield from leaves(one)
        case dict():
            for one in structure.values():
                yield from leaves(one)


def filled(structure: Any, values: Sequence[Any]) -> Any:
    """The containers with values in place of their leaves."""
    match structure:
        case Leaf(index):
            return values[index]
        case tuple() | list():
            return type(structure)([filled(one, values) for one in structure])
        case dict():
            return {name: filled(one, values) for name, one in structure.items()}
        case _:
            return structure
