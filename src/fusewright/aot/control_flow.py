"""Conditions and loops in traced graphs: each function is traced to a graph of its own, and the
whole is one call.

    cond(f, g, predicate, (x,))      (captured)
 ->
    cond0(predicate, x, w, s0)       (traced)    cond0: f and g as graphs from (x, w, s0)

Behind the tensors come the symbols in their sizes, and those that the functions read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fusewright import control_flow, torch_compat
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph
from fusewright.aot.joint import trace_joint
from fusewright.aot.leaves import filled, with_leaves
from fusewright.aot.loops import record_scan, record_while_loop
from fusewright.aot.specs import FromGraph, FromInput
from fusewright.aot.subprograms import (
    SubprogramCall,
    Tracing,
    by_eager_operators,
    differentiable,
    from_all,
    like,
    places,
)
from fusewright.aot.symbols import symbols_as_numbers
from fusewright.aot.tracer import RECORDED_WHOLE, Recorder
from fusewright.containers import tensors
from fusewright.control_flow import ControlFlow
from fusewright.errors import UnsupportedOperator
from fusewright.ir.lines import Block, CallProgram, Conditional, Line, WhileLoop
from fusewright.runtime.loops import while_loop
from fusewright.torch_compat.graph_modules import GraphModule

aten = torch.ops.aten


class ControlFlowCall:
    """The target of a call in a traced graph. Its arguments are the tensors in those of the
    function in `control_flow.FUNCTIONS`, behind them those that its functions read from outside,
    and then symbolic numbers.
    """

    def __init__(self, name: str, graphs: Sequence[AtenGraph], results: int) -> None:
        self.graphs = graphs
        """The functions, each from the tensors in its arguments, all those from outside, and the
        numbers.
        """

        self.results = results
        """How many there are; of a loop, how many values it carries."""

        self.is_condition = name == "cond"
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        """By eager operators."""
        first, second = map(by_eager_operators, self.graphs)
        if self.is_condition:
            predicate, *operands = arguments
            return (first if predicate else second)(operands)
        return while_loop(first, second, arguments, self.results)

    @property
    def roles(self) -> tuple[str, str]:
        """The name of each graph's part in the condition or loop."""
        return ("true", "false") if self.is_condition else ("condition", "body")

    @property
    def signature(self) -> tuple[str, int]:
        """All that a plan depends on, beside its graphs."""
        return self.__name__, self.results

    def line(self, call: CallProgram, blocks: Sequence[Block]) -> Line:
        """The call as a wrapper line that runs `blocks`."""
        first, second = blocks
        results, origins = call.results, call.origins
        if self.is_condition:
            return Conditional(
                predicate=call.arguments[0],
                arguments=call.arguments[1:],
                then=first,
                other=second,
                results=results,
                origins=origins,
            )
        return WhileLoop(
            arguments=call.arguments,
            carried=self.results,
            condition=first,
            body=second,
            results=results,
            origins=origins,
        )


def record_control_flow(recorder: Recorder, flow: ControlFlow, args: Sequence[Any]) -> Any:
    """Record a call of `flow`; gives its results. Raises UnsupportedOperator."""
    outside, *arguments = args
    values = [*tensors(arguments), *tensors(outside)]
    if any(torch_compat.unwrapped(value) is not value for value in values):
        raise UnsupportedOperator(f"{flow.name} inside of a transform of torch.func")
    call = SubprogramCall(flow, outside, arguments, values)
    if flow.name == "scan":
        return record_scan(recorder, call)
    if not torch.is_grad_enabled() or not any(value.requires_grad for value in values):
        return _record(recorder, call)
    if flow.name == "while_loop":
        return record_while_loop(recorder, call)
    return _record_differentiable_condition(recorder, call)


def _record(recorder: Recorder, call: SubprogramCall) -> Any:
    """Record a call without gradients."""
    name = call.flow.name
    lifted = list(tensors(call.outside))
    numbers = symbols_as_numbers([call.tensors, call.outside])
    functions = [
        Tracing(recorder, module, [*lifted, *numbers], own)
        for module, own in zip(call.flow.modules, places(call.outside, numbers), strict=True)
    ]
    with torch_compat.without_modes(), torch.no_grad():
        result = control_flow.FUNCTIONS[name](*functions, *call.arguments)
    graphs = [function.graph for function in functions]
    results = tuple(tensors(result))
    target = ControlFlowCall(name, graphs, len(results))
    recorder.record_call(target, (*call.tensors, *numbers), {}, results)
    return result


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
    return GraphModule(module, graph)


RECORDED_WHOLE |= {
    type(torch.ops.higher_order.cond): _record_cond,
    type(torch.ops.higher_order.while_loop): _record_while_loop,
    type(torch.ops.higher_order.scan): _record_scan,
}


# -- gradients of a condition ---------------------------------------------------------------------


def _record_differentiable_condition(recorder: Recorder, call: SubprogramCall) -> Any:
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

    tracked = [number for number, fake in enumerate(fakes) if fake.is_floating_point()]
    return filled(structure, differentiable(recorder, fakes, tracked, backward, call.tensors))


def _record_backward(
    recorder: Recorder, call: SubprogramCall, tangents: Sequence[Any]
) -> tuple[Any, ...]:
    """Record the gradients of a condition; one for each tensor that it is given, None where there
    is none.
    """
    predicate, *operands = call.tensors
    wanted = [number for number, operand in enumerate(operands) if operand.requires_grad]
    count = len(operands) - sum(1 for _ in tensors(call.outside))
    numbers = symbols_as_numbers([call.tensors, call.outside])
    values = [*operands, *numbers]
    graphs = []
    with torch_compat.without_modes():
        for module, own in zip(call.flow.modules, places(call.outside, numbers), strict=True):
            taken = [*range(count), *(count + place for place in own)]
            graphs.append(_gradient_of_side(recorder, module, taken, values, wanted, tangents))
        likes = [like(operands[number], recorder.fakes) for number in wanted]
    target = ControlFlowCall("cond", graphs, len(likes))
    recorder.record_call(target, (predicate, *operands, *tangents, *numbers), {}, tuple(likes))
    gradients = dict(zip(wanted, likes, strict=True))
    return None, *(gradients.get(number) for number in range(len(operands)))


def _gradient_of_side(
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
    inputs = [like(value, fakes) for value in values]
    for number in wanted:
        inputs[number].requires_grad_()
    function, _ = from_all(module, len(inputs), taken)
    with torch.enable_grad():
        joint = trace_joint(
            function,
            inputs,
            [False] * len(inputs),
            fakes,
            recorder.decompositions,
            verify=recorder.verify,
        )
    if joint.bases or joint.mutated_inputs:
        raise UnsupportedOperator("the side of a condition writes to its operands")
    graph = fx.Graph()
    count = sum(isinstance(value, torch.Tensor) for value in inputs)
    everything = [*inputs[:count], *tangents, *inputs[count:]]
    entries = [graph.placeholder(f"input{number}") for number in range(len(everything))]
    for entry, value in zip(entries, everything, strict=True):
        entry.meta["val"] = like(value, fakes)
    of_results = entries[count : count + len(tangents)]
    own = joint.graph.find_nodes(op="placeholder")
    of_inputs = [*entries[:count], *entries[count + len(tangents) :]]
    sources = [*of_inputs, *(of_results[position] for position in joint.tangents)]
    copied: Any = graph.graph_copy(joint.graph, dict(zip(own, sources, strict=True)))
    outputs = []
    for number in wanted:
        match joint.gradients[number]:
            case FromGraph(position):
                node = graph.call_function(
                    aten.clone.default, (copied[joint.output_count + position],)
                )
            case FromInput(index):
                source = of_results[joint.tangents[index]]
                node = graph.call_function(aten.clone.default, (source,))
            case None:
                node = graph.call_function(aten.full_like.default, (entries[number], 0))
        node.meta["val"] = like(inputs[number], fakes)
        outputs.append(node)
    graph.output(tuple(outputs))
    remove_dead_code(graph)
    results = tuple([FromGraph(number) for number in range(len(outputs))])
    return AtenGraph(graph=graph, constants=joint.constants, results=results)
