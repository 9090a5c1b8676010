"""Loops over steps in traced graphs: the step is a graph of its own, and with gradients so is the
step of the backward loop.

    carry, stack = scan(step, init, xs)          (captured)
 ->
    carry, stack, kept = scan0(init, xs, w)      (traced)    step:     carry, x, w -> carry, y, kept
    ...                                                      backward: gradient of carry, sum for w,
    dinit, dw, dxs = scan1(dcarry, 0, dstack,                    dy, x, kept -> the same, dx
                           xs, kept, w)

The step and its gradient are traced together and cut in two as a program is; what a step keeps for
backward is stacked, unless all steps share it. The backward loop runs the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import control_flow, torch_compat
from fusewright.aot.clean_up import clean_up
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph
from fusewright.aot.joint import trace_joint
from fusewright.aot.leaves import filled
from fusewright.aot.loop_calls import LoopCall, WhileCall
from fusewright.aot.partition import Partition
from fusewright.aot.rematerialization import min_cut_rematerialization_partition
from fusewright.aot.results import finish_graph
from fusewright.aot.specs import FromGraph, FromInput
from fusewright.aot.subprograms import (
    SubprogramCall,
    differentiable,
    empty,
    from_all,
    like,
    like_part,
    places,
)
from fusewright.aot.sums_over_steps import Sum, dependent, sum_over_steps
from fusewright.aot.symbols import symbols_as_numbers
from fusewright.aot.tracer import Recorder, trace
from fusewright.containers import tensors
from fusewright.errors import UnsupportedOperator
from fusewright.opaque import Opaque, is_number
from fusewright.records import record, replace

aten = torch.ops.aten


@record
class _Step:
    """The step of a loop that is recorded."""

    modules: Sequence[fx.GraphModule]
    """From the inputs to the tensors in the results, those carried first; and the condition, if
    there is one.
    """

    tensors: Sequence[Any]
    """The tensors that the loop is called with: what is carried, what is sliced, and the rest."""

    numbers: Sequence[Any]
    """The numbers that follow the tensors."""

    inputs: Sequence[Any]
    """Fakes and numbers that a step takes."""

    carried: int
    sliced: int


def record_scan(recorder: Recorder, call: SubprogramCall) -> Any:
    """Record a call of a scan; gives its results. Raises UnsupportedOperator."""
    if recorder.differentiates:  # the gradients of a loop cannot be differentiated again
        (module,), (own,) = call.flow.modules, call.outside
        return control_flow.scan_by_steps(control_flow.called(module, own), *call.arguments)
    init, xs, dim, reverse = [*call.arguments, 0, False][:4]
    carried = list(tensors(init))
    sliced = [tensor.movedim(dim, 0) if dim else tensor for tensor in tensors(xs)]
    step, (structure,) = _step(recorder, call, carried, sliced)
    inputs = step.tensors
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        results = _record_differentiable_scan(recorder, step, reverse)
    else:
        graph = _traced(recorder, step, step.modules[0])
        stacked = range(2 * step.carried, step.carried + len(graph.outputs))
        target = LoopCall(graph, step.carried, step.sliced, stacked, reverse)
        results = _record_loop(recorder, target, step.inputs, [*inputs, *step.numbers])
    last = results[: step.carried]
    stacks = [control_flow.moved(tensor, dim) for tensor in results[step.carried :]]
    return filled(structure, [*last, *stacks])


def record_while_loop(recorder: Recorder, call: SubprogramCall) -> Any:
    """Record a call of a while loop with gradients; gives its results. Raises
    UnsupportedOperator.
    """
    (carried,) = call.arguments
    step, (_, structure) = _step(recorder, call, list(tensors(carried)), [])
    condition, body = step.modules
    step = replace(step, modules=(body, condition))
    return filled(structure, _record_differentiable_scan(recorder, step, reverse=False))


def _step(
    recorder: Recorder, call: SubprogramCall, carried: Sequence[Any], sliced: Sequence[Any]
) -> tuple[_Step, list[Any]]:
    """The step of a loop, and by function of the call the structure of its results."""
    fakes = recorder.fakes
    outside = list(tensors(call.outside))
    numbers = symbols_as_numbers([sliced, call.tensors, call.outside])
    inputs = [
        *[like(tensor, fakes) for tensor in carried],
        *[_like_slice(recorder, tensor) for tensor in sliced],
        *[like(tensor, fakes) for tensor in (*outside, *numbers)],
    ]
    count = len(carried) + len(sliced)
    results = [
        from_all(module, len(inputs), [*range(count), *(count + place for place in own)])
        for module, own in zip(call.flow.modules, places(call.outside, numbers), strict=True)
    ]
    step = _Step(
        modules=[module for module, _ in results],
        tensors=[*carried, *sliced, *outside],
        numbers=numbers,
        inputs=inputs,
        carried=len(carried),
        sliced=len(sliced),
    )
    return step, [structure for _, structure in results]


def _traced(recorder: Recorder, step: _Step, module: fx.GraphModule) -> AtenGraph:
    """The graph of a function of a loop, without gradients."""
    with torch_compat.without_modes(), torch.no_grad():
        program = trace(
            module,
            step.inputs,
            recorder.fakes,
            recorder.decompositions,
            verify=recorder.verify,
        )
        graph = finish_graph(program, step.inputs, recorder.fakes)
    _refuse_writes(graph.mutated_inputs)
    return replace(graph, constants=clean_up(graph, verify=recorder.verify))


def _refuse_writes(written: Sequence[Any]) -> None:
    if written:
        raise UnsupportedOperator("a function of a condition or loop writes to its arguments")


def _like_slice(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """A fake of its own like a slice of `tensor` along its first dimension."""
    with torch_compat.without_modes():  # making a fake is no part of the program
        return like_part(tensor, recorder.fakes, tensor.shape[1:], tensor.stride()[1:])


def _record_loop(
    recorder: Recorder, target: LoopCall, inputs: Sequence[Any], arguments: Sequence[Any]
) -> list[Any]:
    """Record a loop whose step takes `inputs`; gives its results."""
    before = inputs[: target.carried]
    values = [*before, *(node.meta["val"] for node in target.step.outputs)]
    results = [like(tensor, recorder.fakes) for tensor in before]
    for value in (values[position] for position in target.stacked):
        if isinstance(target, WhileCall) or isinstance(value, Opaque):
            results.append(Opaque())
        else:
            length = arguments[target.carried].shape[0]
            results.append(empty(recorder, (length, *value.shape), value.dtype, value.device))
    recorder.record_call(target, tuple(arguments), {}, tuple(results))
    return results


# -- gradients -------------------------------------------------------------------------------------


def _record_differentiable_scan(recorder: Recorder, step: _Step, reverse: bool) -> list[Any]:
    """Record a loop; when the engine comes to it, the loop of its gradients."""
    _, *condition = step.modules
    partition = _differentiated(recorder, step)
    backward = _backward(step, partition)
    count = partition.joint.output_count
    every = tuple(map(FromGraph, range(len(partition.forward.outputs))))
    forward = replace(partition.forward, results=every)
    shown = range(2 * step.carried, step.carried + count)
    stacked = [*shown, *(position for position in backward.kept if position not in shown)]
    target = LoopCall(forward, step.carried, step.sliced, stacked, reverse)
    if condition:
        check = _traced(recorder, step, condition[0])
        target = WhileCall(forward, step.carried, stacked, check)
    results = _record_loop(recorder, target, step.inputs, [*step.tensors, *step.numbers])
    columns = dict(zip(stacked, results[step.carried :], strict=True))

    def record_backward(tangents: Sequence[Any]) -> tuple[Any, ...]:
        return backward.record(recorder, tangents, columns, not reverse)

    tracked = {*partition.joint.tangents, *(backward.chained if condition else ())}
    return differentiable(recorder, results[:count], tracked, record_backward, step.tensors)


def _differentiated(recorder: Recorder, step: _Step) -> Partition:
    """The step and its gradient, apart. What is carried is tracked if it ever is."""
    inputs = step.inputs
    tracked = {k for k, tensor in enumerate(step.tensors) if tensor.requires_grad}
    while True:
        for k in tracked:
            inputs[k].requires_grad_()
        with torch_compat.without_modes(), torch.enable_grad():
            joint = trace_joint(
                step.modules[0],
                inputs,
                [False] * len(inputs),
                recorder.fakes,
                recorder.decompositions,
                verify=recorder.verify,
            )
        carried = {position for position in joint.tangents if position < step.carried}
        if carried <= tracked:
            break
        tracked |= carried
    _refuse_writes([*joint.bases, *joint.mutated_inputs])
    joint = replace(joint, constants=clean_up(joint, verify=recorder.verify))
    return min_cut_rematerialization_partition(joint)


@record
class GradientOf:
    """The gradient of a result of the scan."""

    result: int


@record
class ZerosLike:
    """Zeros, to which the gradient of an input of the step is added."""

    input: int


@record
class Kept:
    """The stack that the scan makes at this position of `LoopCall.stacked`."""

    position: int


@record(slots=False)
class _Backward:
    """The loop of the gradients of a loop.

    It carries the gradients of what the loop carries, and sums for the tensors that all steps take;
    its slices are gradients of the stacks, and what the loop's steps were given or have kept.
    """

    step: _Step
    """The loop's."""

    graph: AtenGraph
    inputs: Sequence[Any]
    """The fakes and numbers that a step of the backward takes."""

    sources: Sequence[Any]
    """The source of each of its arguments: a `GradientOf`, `ZerosLike`, `Kept`, `FromInput` or a
    number each.
    """

    carried: int
    sliced: int
    chained: Sequence[int]
    """Which of the tensors that the loop carries have gradients."""

    gradients: Sequence[int]
    """By result: the input of the loop's step whose gradient it is."""

    sums: Mapping[int, tuple[Sum, Sequence[int]]]
    """By input of the loop's step that all steps share: how its gradient is summed when the loop
    has run, and of which stacks: positions among the arguments, and behind those the results.
    """

    @property
    def kept(self) -> list[int]:
        """The positions of values that the loop has to stack for it."""
        return [source.position for source in self.sources if isinstance(source, Kept)]

    def record(
        self,
        recorder: Recorder,
        tangents: Sequence[Any],
        columns: Mapping[int, Any],
        reverse: bool,
    ) -> tuple[Any, ...]:
        """Record the loop; a gradient, or None, for each tensor that the other was given.

        `tangents`: the gradients of the loop's results; `columns`: its stacks.
        """
        inputs = self.step.tensors

        def value(source: Any) -> Any:
            match source:
                case GradientOf(result):
                    return tangents[result]
                case ZerosLike(index):
                    return torch.zeros_like(inputs[index])
                case Kept(position):
                    return columns[position]
                case FromInput(index):
                    return inputs[index]
            return source

        arguments = list(map(value, self.sources))
        stacked = range(2 * self.carried, self.carried + len(self.graph.outputs))
        target = LoopCall(self.graph, self.carried, self.sliced, stacked, reverse)
        results = _record_loop(recorder, target, self.inputs, arguments)
        of_inputs = dict(zip(self.gradients, results, strict=False))
        stacks = [*arguments, *results]
        for index, (sum_, positions) in self.sums.items():
            of_inputs[index] = sum_.of_stacks(*[stacks[position] for position in positions])
        return tuple([of_inputs.get(index) for index in range(len(inputs))])


@record
class _Entry:
    """An argument of the loop of the gradients."""

    source: Any
    """The argument's source: see `_Backward.sources`."""

    value: Any
    """The fake, or number, that each step takes."""

    node: fx.Node | None = None
    """The input of the step's backward graph that it is, if any."""


def _backward(step: _Step, partition: Partition) -> _Backward:
    """The loop of the gradients of a loop with this step."""
    joint, inputs = partition.joint, step.inputs
    first_shared = step.carried + step.sliced
    chained = [k for k in range(step.carried) if inputs[k].requires_grad]
    wanted = [k for k, place in enumerate(joint.gradients) if place is not None]
    sliced = [k for k in wanted if step.carried <= k < first_shared]

    tangents = partition.backward.placeholders[len(partition.saved) :]
    of_results = dict(zip(joint.tangents, tangents, strict=True))
    carried = [_Entry(GradientOf(k), inputs[k], of_results.get(k)) for k in chained]
    slices, rest = _saved_entries(step, partition)
    slices += [
        _Entry(GradientOf(k), node.meta["val"], node)
        for k, node in of_results.items()
        if k >= step.carried
    ]
    if not slices:  # they tell how many steps there are
        source = FromInput(step.carried) if step.sliced else Kept(0)
        slices.append(_Entry(source, inputs[step.carried if step.sliced else 0]))

    sums = _sums(step, partition, [entry.node for entry in (*carried, *slices)])
    summed = [k for k in wanted if k >= first_shared and k not in sums]
    at_hand = {entry.node for entry in slices}
    factors = [factor for sum_ in sums.values() for factor in sum_.factors if factor not in at_hand]
    factors = list(dict.fromkeys(factors))
    carried += [_Entry(ZerosLike(k), inputs[k]) for k in summed]

    entries = [*carried, *slices, *rest]
    count = len(chained) + len(summed) + len(sliced)
    stacks = {entry.node: number for number, entry in enumerate(entries)}
    stacks |= {node: len(entries) + count + number for number, node in enumerate(factors)}
    return _Backward(
        step=step,
        graph=_gradient_step(partition, entries, [chained, summed, sliced], factors),
        inputs=[entry.value for entry in entries],
        sources=[entry.source for entry in entries],
        carried=len(carried),
        sliced=len(slices),
        chained=chained,
        gradients=[*chained, *summed, *sliced],
        sums={k: (sum_, [stacks[node] for node in sum_.factors]) for k, sum_ in sums.items()},
    )


def _sums(step: _Step, partition: Partition, varying: Sequence[fx.Node | None]) -> dict[int, Sum]:
    """By input that all steps share: how its gradient is summed behind the loop, where it can be
    from stacks of what is computed from `varying`. The stacks of a while loop are not at hand.
    """
    sums: dict[int, Sum] = {}
    of_steps = dependent(varying) if step.sliced else set()
    for k, place in enumerate(partition.joint.gradients):
        if isinstance(place, FromGraph) and k >= step.carried + step.sliced:
            node = partition.backward.outputs[place.position]
            sum_ = sum_over_steps(node, of_steps)
            sums.update({k: sum_} if sum_ else {})
    return sums


def _saved_entries(step: _Step, partition: Partition) -> tuple[list[_Entry], list[_Entry]]:
    """The values that a step's backward takes of its forward: slices, and what all steps share,
    tensors and then all numbers.
    """
    slices: list[_Entry] = []
    shared: list[_Entry] = []
    numbers: dict[Any, _Entry] = {
        FromInput(k): _Entry(number, number)
        for k, number in enumerate(step.inputs)
        if is_number(number)
    }
    for place, node in zip(partition.saved, partition.backward.placeholders, strict=False):
        value = node.meta["val"]
        match place:
            case _ if is_number(value):
                numbers[place] = _Entry(value, value, node)
            case FromInput(k) if k >= step.carried + step.sliced:
                shared.append(_Entry(place, value, node))
            case FromInput(k) if k >= step.carried:
                slices.append(_Entry(place, value, node))
            case FromInput(k):
                slices.append(_Entry(Kept(k), value, node))
            case FromGraph(k):
                slices.append(_Entry(Kept(step.carried + k), value, node))
    return slices, [*shared, *numbers.values()]


def _gradient_step(
    partition: Partition,
    entries: Sequence[_Entry],
    wanted: Sequence[Sequence[int]],
    factors: Sequence[fx.Node],
) -> AtenGraph:
    """The step of the gradients: from `entries` to the gradients of those inputs of the scan's step
    that are carried, the sums for those that all steps share, the gradients of slices, and what is
    summed later.
    """
    joint, graph = partition.joint, fx.Graph()
    chained, summed, sliced = wanted
    places: dict[fx.Node, fx.Node] = {}
    inputs: list[fx.Node] = []
    for number, entry in enumerate(entries):
        inputs.append(graph.placeholder(f"input{number}"))
        inputs[-1].meta["val"] = entry.value
        if entry.node is not None:
            inputs[-1].meta["val"] = entry.node.meta["val"]
            places[entry.node] = inputs[-1]
    tangents = partition.backward.placeholders[len(partition.saved) :]
    copied: Any = graph.graph_copy(partition.backward.graph, places)  # and notes all in `places`
    taken: set[fx.Node] = set()

    def gradient(index: int) -> fx.Node:
        match joint.gradients[index]:
            case FromGraph(position):
                node: fx.Node = copied[position]
            case FromInput(position):
                node = places[tangents[position]]
            case None:
                return _call(graph, aten.zeros_like.default, inputs[chained.index(index)])
        if node in taken or node.op == "placeholder":
            node = _call(graph, aten.clone.default, node)
        taken.add(node)
        return node

    outputs = [gradient(index) for index in chained]
    for before, index in zip(inputs[len(chained) :], summed, strict=False):
        outputs.append(_call(graph, aten.add.Tensor, before, gradient(index)))
    outputs += [gradient(index) for index in sliced]
    for node in factors:
        is_input = node.op == "placeholder"
        outputs.append(_call(graph, aten.clone.default, places[node]) if is_input else places[node])
    graph.output(tuple(outputs))
    remove_dead_code(graph)
    results = tuple(map(FromGraph, range(len(outputs))))
    return AtenGraph(graph=graph, constants=partition.backward.constants, results=results)


def _call(graph: fx.Graph, op: Any, *arguments: fx.Node) -> fx.Node:
    """A call in a graph that gives what is like its first argument."""
    node = graph.call_function(op, arguments)
    node.meta["val"] = arguments[0].meta["val"]
    return node
