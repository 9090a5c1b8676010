"""Conditions and loops in traced graphs: each function is traced to a graph of its own, and the
whole is one call.

    cond(f, g, predicate, (x,))      (captured)
 ->
    cond0(predicate, x, w, s0)       (traced)    cond0: f and g as graphs from (x, w, s0)

Behind the tensors come the symbols in their sizes, and those that the functions read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import control_flow, torch_compat
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph
from fusewright.aot.interpret import interpreter
from fusewright.aot.joint import trace_joint
from fusewright.aot.leaves import filled, leaves, with_leaves
from fusewright.aot.results import finish_graph
from fusewright.aot.runtime import with_results
from fusewright.aot.specs import FromGraph, FromInput, Leaf
from fusewright.aot.symbols import symbols_as_numbers
from fusewright.aot.tracer import RECORDED_WHOLE, Fakes, Recorder, trace
from fusewright.control_flow import ControlFlow, Function, called
from fusewright.errors import UnsupportedOperator
from fusewright.ir.index import integer
from fusewright.records import record
from fusewright.symbolic.nodes import index_of

aten = torch.ops.aten

Run = Callable[[list[Any]], Any]
"""Runs one graph: a list of tensors in, its results out."""


class ControlFlowCall:
    """The target of a call in a traced graph. Its arguments are the tensors in those of the
    function in `control_flow.FUNCTIONS`, behind them those that its functions read from outside,
    and then symbolic numbers.
    """

    def __init__(
        self, name: str, graphs: Sequence[AtenGraph], structures: Sequence[Any], arguments: Any
    ) -> None:
        self.graphs = graphs
        """The functions, each from the tensors in its arguments, all those from outside, and the
        numbers.
        """

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
        strides = [_Strides(graph) for graph in self.graphs]

        def call(*given: Any) -> tuple[torch.Tensor, ...]:
            functions = [
                _function(*each, given[count:])
                for each in zip(runs, strides, self._structures, strict=True)
            ]
            arguments = filled(self._arguments, given)
            return tuple(control_flow.tensors(self.function(*functions, *arguments)))

        return call


class _Strides:
    """The strides that a graph takes its tensors with, which may depend on its numbers."""

    def __init__(self, graph: AtenGraph) -> None:
        values = [node.meta["val"] for node in graph.placeholders]
        self._strides = [
            tuple(map(index_of, value.stride()))
            for value in values
            if isinstance(value, torch.Tensor)
        ]
        self._numbers = [
            index_of(value) if isinstance(value, int | torch.SymInt) else integer(0)
            for value in values[len(self._strides) :]
        ]

    def applied(self, given: Sequence[Any]) -> list[Any]:
        """`given`, tensors and then numbers, with the tensors so laid out."""
        tensors, numbers = given[: len(self._strides)], given[len(self._strides) :]
        values = {
            symbol.name: number
            for index, number in zip(self._numbers, numbers, strict=True)
            for symbol in index.free()
        }
        strides = [tuple([step.evaluate(values) for step in each]) for each in self._strides]
        return [*map(_with_stride, tensors, strides), *numbers]


def _function(run: Run, strides: _Strides, structure: Any, outside: Sequence[Any]) -> Function:
    """A function of the program, run by `run` on tensors with these strides."""

    def function(*arguments: Any) -> Any:
        given = [*control_flow.tensors(arguments), *outside]
        results = run(strides.applied(given))
        return filled(structure, list(control_flow.tensors(results)))

    return function


def _with_stride(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    if tensor.stride() == stride:
        return tensor
    result = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


@record
class _Call:
    """A condition or loop, and what it is called with."""

    flow: ControlFlow
    outside: Sequence[Sequence[Any]]
    """By function: the tensors and numbers that it reads from outside."""

    arguments: Sequence[Any]
    shape: Any
    """The arguments with leaves for their tensors."""

    given: Sequence[Any]
    """The tensors in the arguments, and those from outside."""


def record_control_flow(recorder: Recorder, flow: ControlFlow, args: Sequence[Any]) -> Any:
    """Record a call of `flow`; gives its results. Raises UnsupportedOperator."""
    outside, *arguments = args
    given: list[Any] = []
    shape = with_leaves(arguments, given)
    given += control_flow.tensors(outside)
    if any(torch_compat.unwrapped(one) is not one for one in given):
        raise UnsupportedOperator(f"{flow.name} inside of a transform of torch.func")
    call = _Call(flow, outside, arguments, shape, given)
    if not torch.is_grad_enabled() or not any(one.requires_grad for one in given):
        return _record(recorder, call)
    match flow.name:
        case "cond":
            return _record_with_gradients(recorder, call)
        case "scan":
            (module,), (own,) = flow.modules, outside
            return control_flow.scan_by_steps(called(module, own), *arguments)
        case _:
            raise UnsupportedOperator(
                f"gradients through {flow.name}: how many rounds there are to keep for backward is "
                "known only when it has run; use scan, or detach what it carries"
            )


def _record(recorder: Recorder, call: _Call) -> Any:
    """Record a call without gradients."""
    name = call.flow.name
    lifted = list(control_flow.tensors(call.outside))
    numbers = symbols_as_numbers([call.given, call.outside])
    functions = [
        _Tracing(recorder, module, [*lifted, *numbers], own)
        for module, own in zip(call.flow.modules, _places(call.outside, numbers), strict=True)
    ]
    with torch_compat.without_modes(), torch.no_grad():
        result = control_flow.FUNCTIONS[name](*functions, *call.arguments)
    graphs = [function.graph for function in functions]
    target = ControlFlowCall(name, graphs, [each.structure for each in functions], call.shape)
    results = tuple(control_flow.tensors(result))
    recorder.record_call(target, (*call.given, *numbers), {}, results)
    return result


def _places(outside: Sequence[Sequence[Any]], numbers: Sequence[Any]) -> list[list[int]]:
    """For each function, where the values that it reads from outside stand among the tensors of
    all from outside, and the numbers behind them.
    """
    count = sum(1 for _ in control_flow.tensors(outside))
    symbols = [str(number) for number in numbers]
    position = iter(range(count))
    return [
        [
            next(position) if isinstance(one, torch.Tensor) else count + symbols.index(str(one))
            for one in own
        ]
        for own in outside
    ]


RECORDED_WHOLE[ControlFlow] = record_control_flow


# -- the same in graphs that torch.compile captured -----------------------------------------------


def _record_cond(recorder: Recorder, op: Any, args: Sequence[Any]) -> Any:
    predicate, true, false, operands = args
    flow = ControlFlow("cond", (true, false))
    return record_control_flow(recorder, flow, [((), ()), predicate, operands])


def _record_while_loop(recorder: Recorder, op: Any, args: Sequence[Any]) -> Any:
    condition, body, carried, outside = args
    flow = ControlFlow("while_loop", (condition, body))
    return record_control_flow(recorder, flow, [(outside, outside), carried])


def _record_scan(recorder: Recorder, op: Any, args: Sequence[Any]) -> Any:
    combine, init, xs, outside = args
    flow = ControlFlow("scan", (_returning_two(combine, len(init)),))
    carry, results = record_control_flow(recorder, flow, [(outside,), init, xs])
    return (*carry, *results)


def _returning_two(module: fx.GraphModule, count: int) -> fx.GraphModule:
    """A graph that returns its first `count` results as one list, and the others as another."""
    graph = fx.Graph()
    results: Any = graph.graph_copy(module.graph, {}) or ()
    graph.output(([*results[:count]], [*results[count:]]))
    return fx.GraphModule(module, graph)


RECORDED_WHOLE |= {
    type(torch.ops.higher_order.cond): _record_cond,
    type(torch.ops.higher_order.while_loop): _record_while_loop,
    type(torch.ops.higher_order.scan): _record_scan,
}


# -- gradients of a condition ---------------------------------------------------------------------


def _record_with_gradients(recorder: Recorder, call: _Call) -> Any:
    """Record a condition; when the engine comes to it, another one, whose sides compute the
    gradients of these sides, from the operands and the gradients of the results.
    """
    mode: Any = recorder.fakes
    was_random, mode.is_random = mode.is_random, False
    with torch.no_grad():
        recorded = _record(recorder, call)
    if mode.is_random:
        raise UnsupportedOperator("gradients through a condition that draws random numbers")
    mode.is_random = was_random
    fakes: list[Any] = []
    structure = with_leaves(recorded, fakes)

    def backward(tangents: Sequence[Any]) -> tuple[Any, ...]:
        return _record_backward(recorder, call, tangents)

    results = torch_compat.apply_function(_Differentiable, fakes, backward, *call.given)
    for fake, result in zip(fakes, results, strict=True):
        recorder.bind(result, recorder.argument(fake))
    return filled(structure, results)


class _Differentiable(torch.autograd.Function):
    """A recorded call with its results, and what records its gradient: the tensors that this works
    on are told apart by identity, and so kept by it, not by autograd.
    """

    @staticmethod
    def forward(ctx: Any, results: Any, backward: Any, *given: Any) -> Any:
        ctx.run_backward = backward
        ctx.mark_non_differentiable(*[one for one in results if not one.is_floating_point()])
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        return None, None, *ctx.run_backward(tangents)


def _record_backward(recorder: Recorder, call: _Call, tangents: Sequence[Any]) -> tuple[Any, ...]:
    """Record the gradients of a condition; one for each tensor that it is given, None where there
    is none.
    """
    predicate, *operands = call.given
    wanted = [number for number, one in enumerate(operands) if one.requires_grad]
    count = len(operands) - sum(1 for _ in control_flow.tensors(call.outside))
    numbers = symbols_as_numbers([call.given, call.outside])
    values = [*operands, *numbers]
    graphs = []
    with torch_compat.without_modes():
        for module, own in zip(call.flow.modules, _places(call.outside, numbers), strict=True):
            taken = [*range(count), *(count + place for place in own)]
            graphs.append(_gradient_graph(recorder, module, taken, values, wanted, tangents))
        likes = [_like(operands[number], recorder.fakes) for number in wanted]
    everything = [Leaf(number) for number in range(1, 1 + len(operands) + len(tangents))]
    results = [Leaf(number) for number in range(len(wanted))]
    target = ControlFlowCall("cond", graphs, [results, results], [Leaf(0), everything])
    recorder.record_call(target, (predicate, *operands, *tangents, *numbers), {}, tuple(likes))
    found = dict(zip(wanted, likes, strict=True))
    return None, *(found.get(number) for number in range(len(operands)))


def _gradient_graph(
    recorder: Recorder,
    module: fx.GraphModule,
    taken: Sequence[int],
    values: Sequence[Any],
    wanted: Sequence[int],
    tangents: Sequence[Any],
) -> AtenGraph:
    """The graph of the gradients of a function that takes some of `values`, tensors and numbers:
    from the tensors, the gradients of its results, and the numbers, to the gradients of the tensors
    `wanted`: zeros where it has none.
    """
    fakes = recorder.fakes
    inputs = [_like(one, fakes) for one in values]
    for number in wanted:
        inputs[number].requires_grad_()
    function, _ = _from_all(module, len(inputs), taken)
    with torch.enable_grad():
        joint = trace_joint(function, inputs, [False] * len(inputs), fakes, recorder.decompositions)
    if joint.bases or joint.mutated_inputs:
        raise UnsupportedOperator("the side of a condition writes to its operands")
    graph = fx.Graph()
    count = sum(isinstance(one, torch.Tensor) for one in inputs)
    everything = [*inputs[:count], *tangents, *inputs[count:]]
    places = [graph.placeholder(f"input{number}") for number in range(len(everything))]
    for place, value in zip(places, everything, strict=True):
        place.meta["val"] = _like(value, fakes)
    of_results = places[count : count + len(tangents)]
    own = joint.graph.find_nodes(op="placeholder")
    of_inputs = [*places[:count], *places[count + len(tangents) :]]
    sources = [*of_inputs, *(of_results[position] for position in joint.tangents)]
    copied: Any = graph.graph_copy(joint.graph, dict(zip(own, sources, strict=True)))
    outputs = []
    for number in wanted:
        like = _like(inputs[number], fakes)
        match joint.gradients[number]:
            case FromGraph(position):
                node = graph.call_function(
                    aten.clone.default, (copied[joint.output_count + position],)
                )
            case FromInput(index):
                source = of_results[joint.tangents[index]]
                node = graph.call_function(aten.clone.default, (source,))
            case None:
                node = graph.call_function(aten.full_like.default, (places[number], 0))
        node.meta["val"] = like
        outputs.append(node)
    graph.output(tuple(outputs))
    remove_dead_code(graph)
    results = tuple([FromGraph(number) for number in range(len(outputs))])
    return AtenGraph(graph=graph, constants=joint.constants, results=results)


# -- tracing of functions -------------------------------------------------------------------------


class _Tracing:
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


def _like(tensor: Any, fakes: Fakes) -> Any:
    """A fake of its own, with sizes and strides of another; a number as it is."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    options = {"dtype": tensor.dtype, "device": tensor.device}
    return fakes.dispatch(aten.empty_strided.default, (tensor.shape, tensor.stride()), options)


def _from_all(module: fx.GraphModule, count: int, taken: Sequence[int]) -> Any:
    """A function's graph as one from `count` values, of which it takes some, to the tensors in its
    results, none of which shares memory with another; and the results with leaves for them.
    """
    graph = fx.Graph()
    inputs = [graph.placeholder(f"input{number}") for number in range(count)]
    own = module.graph.find_nodes(op="placeholder")
    values = dict(zip(own, (inputs[number] for number in taken), strict=True))
    found: list[Any] = []
    structure = with_leaves(graph.graph_copy(module.graph, values), found)
    graph.output(tuple([graph.call_function(torch.clone, (node,)) for node in found]))
    return fx.GraphModule(module, graph), structure
