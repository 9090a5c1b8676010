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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from fusewright import control_flow, torch_compat
from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph
from fusewright.aot.interpret import interpreter
from fusewright.aot.joint import trace_joint
from fusewright.aot.leaves import filled
from fusewright.aot.partition import Partition
from fusewright.aot.rematerialization import min_cut_rematerialization_partition
from fusewright.aot.results import finish_graph
from fusewright.aot.runtime import with_results
from fusewright.aot.specs import FromGraph, FromInput
from fusewright.aot.subprograms import (
    Call,
    Strides,
    differentiable,
    from_all,
    like,
    places,
    with_stride,
)
from fusewright.aot.sums_over_steps import Sum, dependent, sum_over_steps
from fusewright.aot.symbols import symbols_as_numbers
from fusewright.aot.trace import clean_up
from fusewright.aot.tracer import Recorder, trace
from fusewright.errors import UnsupportedOperator
from fusewright.records import record, replace

aten = torch.ops.aten

Run = Callable[[list[Any]], Any]
"""Runs one graph: a list of tensors and numbers in, its results out."""


class LoopCall:
    """The target of a call in a traced graph: runs a step once for each slice of some tensors.

    Its arguments: the first values of what is carried; the tensors that are sliced, along their
    first dimension; and what each step takes as it is, tensors and then numbers. Its results: the
    last values of what is carried, and stacks.
    """

    def __init__(
        self, step: AtenGraph, carried: int, sliced: int, stacked: Sequence[int], reverse: bool
    ) -> None:
        self.step = step
        """From what is carried, the slices, and the rest, to the new values of what is carried and
        further results.
        """

        self.carried = carried
        self.sliced = sliced
        """How many of the arguments those are."""

        self.stacked = stacked
        """What is stacked, in the order of the slices: positions among what a step is given as
        carried, and behind that its results.
        """

        self.reverse = reverse
        """Whether the last slices come first."""

        self.__name__ = self.__qualname__ = "scan"  # as fx asks them of the target of a call
        self.__module__ = __name__

    @property
    def graphs(self) -> tuple[AtenGraph, ...]:
        """What is to be compiled."""
        return (self.step,)

    def __call__(self, *given: Any) -> tuple[torch.Tensor, ...]:
        """By eager operators."""
        return self.running([with_results(self.step, interpreter(self.step))])(*given)

    def running(self, runs: Sequence[Run]) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The call, given what runs the step."""
        (step,) = runs
        layout = Strides(self.step)
        carried, sliced = self.carried, self.sliced

        def call(*given: Any) -> tuple[torch.Tensor, ...]:
            count = len(layout.strides)
            strides = layout.found(given[count:])
            carry = list(map(with_stride, given[:carried], strides))
            shared = map(with_stride, given[carried + sliced : count], strides[carried + sliced :])
            rest = [*shared, *given[count:]]
            slices = map(_slices, given[carried : carried + sliced], strides[carried:])
            steps = list(zip(*slices, strict=True))
            stacks: list[list[torch.Tensor]] = [[] for _ in self.stacked]
            for of_step in reversed(steps) if self.reverse else steps:
                results = step([*carry, *of_step, *rest])
                for stack, position in zip(stacks, self.stacked, strict=True):
                    is_before = position < carried
                    stack.append(carry[position] if is_before else results[position - carried])
                carry = list(map(with_stride, results[:carried], strides))
            if self.reverse:
                for stack in stacks:
                    stack.reverse()
            return *carry, *map(torch.stack, stacks)

        return call


def _slices(tensor: torch.Tensor, stride: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """`tensor` along its first dimension, each slice with this stride."""
    if tensor.stride()[1:] != stride:
        extent = 1 + sum((n - 1) * step for n, step in zip(tensor.shape[1:], stride, strict=True))
        tensor = with_stride(tensor, (extent, *stride))
    return tensor.unbind(0)


# -- recording -------------------------------------------------------------------------------------


@record
class _Step:
    """The step of a scan that is recorded."""

    module: fx.GraphModule
    """From the inputs to the tensors in the results: those carried first."""

    inputs: Sequence[Any]
    """Fakes and numbers: what is carried, a slice of each tensor, and the rest."""

    carried: int
    sliced: int


def record_scan(recorder: Recorder, call: Call) -> Any:
    """Record a call of a scan; gives its results. Raises UnsupportedOperator."""
    if recorder.differentiates:  # the gradients of a loop cannot be differentiated again
        (module,), (own,) = call.flow.modules, call.outside
        return control_flow.scan_by_steps(control_flow.called(module, own), *call.arguments)
    init, xs, dim, reverse = [*call.arguments, 0, False][:4]
    carried = list(control_flow.tensors(init))
    sliced = [one.movedim(dim, 0) if dim else one for one in control_flow.tensors(xs)]
    outside = list(control_flow.tensors(call.outside))
    numbers = symbols_as_numbers([sliced, call.given, call.outside])
    given = [*carried, *sliced, *outside]
    count = len(carried) + len(sliced)
    (own,) = places(call.outside, numbers)
    taken = [*range(count), *(count + place for place in own)]
    module, structure = from_all(call.flow.modules[0], len(given) + len(numbers), taken)
    fakes = recorder.fakes
    inputs = [
        *[like(one, fakes) for one in carried],
        *[_like_slice(recorder, one) for one in sliced],
        *[like(one, fakes) for one in (*outside, *numbers)],
    ]
    step = _Step(module, inputs, len(carried), len(sliced))
    if torch.is_grad_enabled() and any(one.requires_grad for one in given):
        results = _record_with_gradients(recorder, step, given, numbers, reverse)
    else:
        with torch_compat.without_modes(), torch.no_grad():
            program = trace(module, inputs, fakes, recorder.decompositions)
            graph = finish_graph(program, inputs, fakes)
        _refuse_writes(graph.mutated_inputs)
        stacked = range(2 * len(carried), len(carried) + len(graph.outputs))
        graph = replace(graph, constants=clean_up(graph))
        results = _record_loop(recorder, graph, step, stacked, given, numbers, reverse)
    last = results[: len(carried)]
    stacks = [control_flow.moved(one, dim) for one in results[len(carried) :]]
    return filled(structure, [*last, *stacks])


def _refuse_writes(written: Sequence[Any]) -> None:
    if written:
        raise UnsupportedOperator("a function of a condition or loop writes to its arguments")


def _like_slice(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """A fake of its own like a slice of `tensor` along its first dimension."""
    options = {"dtype": tensor.dtype, "device": tensor.device}
    geometry = (tensor.shape[1:], tensor.stride()[1:])
    return recorder.fakes.dispatch(aten.empty_strided.default, geometry, options)


def _record_loop(
    recorder: Recorder,
    graph: AtenGraph,
    step: _Step,
    stacked: Sequence[int],
    given: Sequence[Any],
    numbers: Sequence[Any],
    reverse: bool,
) -> list[Any]:
    """Record a loop whose step is `graph`; gives its results."""
    fakes = recorder.fakes
    length = given[step.carried].shape[0]
    before = step.inputs[: step.carried]
    values = [*before, *(node.meta["val"] for node in graph.outputs)]
    results = [like(one, fakes) for one in before]
    for position in stacked:
        one = values[position]
        options = {"dtype": one.dtype, "device": one.device}
        results.append(fakes.dispatch(aten.empty.memory_format, ((length, *one.shape),), options))
    target = LoopCall(graph, step.carried, step.sliced, tuple(stacked), reverse)
    recorder.record_call(target, (*given, *numbers), {}, tuple(results))
    return results


# -- gradients -------------------------------------------------------------------------------------


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _record_with_gradients(
    recorder: Recorder, step: _Step, given: Sequence[Any], numbers: Sequence[Any], reverse: bool
) -> list[Any]:
    """Record a scan; when the engine comes to it, the loop of its gradients."""
    partition = _differentiated(recorder, step, given)
    backward = _backward(step, partition)
    count = partition.joint.output_count
    shown = range(2 * step.carried, step.carried + count)
    stacked = [*shown, *(position for position in backward.kept if position not in shown)]
    every = tuple(map(FromGraph, range(len(partition.forward.outputs))))
    forward = replace(partition.forward, results=every)
    found = _record_loop(recorder, forward, step, stacked, given, numbers, reverse)
    columns = dict(zip(stacked, found[step.carried :], strict=True))

    def record_backward(tangents: Sequence[Any]) -> tuple[Any, ...]:
        return backward.record(recorder, given, tangents, columns, not reverse)

    return differentiable(recorder, found[:count], partition.joint.tangents, record_backward, given)


def _differentiated(recorder: Recorder, step: _Step, given: Sequence[Any]) -> Partition:
    """The step and its gradient, apart. What is carried is tracked if it ever is."""
    inputs = step.inputs
    tracked = {k for k, one in enumerate(given) if one.requires_grad}
    while True:
        for k in tracked:
            inputs[k].requires_grad_()
        with torch_compat.without_modes(), torch.enable_grad():
            joint = trace_joint(
                step.module, inputs, [False] * len(inputs), recorder.fakes, recorder.decompositions
            )
        found = {position for position in joint.tangents if position < step.carried}
        if found <= tracked:
            break
        tracked |= found
    _refuse_writes([*joint.bases, *joint.mutated_inputs])
    joint = replace(joint, constants=clean_up(joint))
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
    """What the scan stacks at this position of `LoopCall.stacked`."""

    position: int


@record(slots=False)
class _Backward:
    """The loop of the gradients of a scan.

    It carries the gradients of what the scan carries, and sums for the tensors that all steps take;
    its slices are gradients of the stacks, and what the scan's steps were given or have kept.
    """

    step: _Step
    graph: AtenGraph
    sources: Sequence[Any]
    """What it is called with: a `GradientOf`, `ZerosLike`, `Kept`, `FromInput` or a number each."""

    gradients: Sequence[int]
    """By result: the input of the scan's step whose gradient it is."""

    sums: Mapping[int, tuple[Sum, Sequence[int]]]
    """By input of the scan's step that all steps share: how its gradient is summed when the loop
    has run, and of which stacks: positions among the arguments, and behind those the results.
    """

    @property
    def kept(self) -> list[int]:
        """What the scan has to stack for it."""
        return [source.position for source in self.sources if isinstance(source, Kept)]

    def record(
        self,
        recorder: Recorder,
        given: Sequence[Any],
        tangents: Sequence[Any],
        columns: Mapping[int, Any],
        reverse: bool,
    ) -> tuple[Any, ...]:
        """Record the loop; a gradient, or None, for each tensor in `given`.

        `tangents`: the gradients of the scan's results; `columns`: its stacks.
        """

        def value(source: Any) -> Any:
            match source:
                case GradientOf(result):
                    return tangents[result]
                case ZerosLike(index):
                    return torch.zeros_like(given[index])
                case Kept(position):
                    return columns[position]
                case FromInput(index):
                    return given[index]
            return source

        arguments = list(map(value, self.sources))
        stacked = range(2 * self.step.carried, self.step.carried + len(self.graph.outputs))
        found = _record_loop(recorder, self.graph, self.step, stacked, arguments, (), reverse)
        of_inputs = dict(zip(self.gradients, found, strict=False))
        stacks = [*arguments, *found]
        for index, (sum_, positions) in self.sums.items():
            of_inputs[index] = sum_.of_stacks(*[stacks[position] for position in positions])
        return tuple([of_inputs.get(index) for index in range(len(given))])


@record
class _Entry:
    """An argument of the loop of the gradients."""

    source: Any
    """As in `_Backward.sources`."""

    value: Any
    """The fake, or number, that each step takes."""

    node: fx.Node | None = None
    """The input of the step's backward graph that it is, if any."""


def _backward(step: _Step, partition: Partition) -> _Backward:
    """The loop of the gradients of a scan with this step."""
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
        slices.append(_Entry(FromInput(step.carried), inputs[step.carried]))

    of_steps = dependent([entry.node for entry in (*carried, *slices)])
    sums: dict[int, Sum] = {}
    for k in wanted:
        match joint.gradients[k]:
            case FromGraph(position) if k >= first_shared:
                found = sum_over_steps(partition.backward.outputs[position], of_steps)
                sums.update({k: found} if found else {})
    summed = [k for k in wanted if k >= first_shared and k not in sums]
    carried += [_Entry(ZerosLike(k), inputs[k]) for k in summed]

    entries = [*carried, *slices, *rest]
    factors = [one for sum_ in sums.values() for one in sum_.factors if one.op != "placeholder"]
    factors = list(dict.fromkeys(factors))
    graph = _gradient_graph(partition, entries, [chained, summed, sliced], factors)
    count = len(chained) + len(summed) + len(sliced)
    stacks = {entry.node: number for number, entry in enumerate(entries)}
    stacks |= {node: len(entries) + count + number for number, node in enumerate(factors)}
    return _Backward(
        step=_Step(step.module, [entry.value for entry in entries], len(carried), len(slices)),
        graph=graph,
        sources=[entry.source for entry in entries],
        gradients=[*chained, *summed, *sliced],
        sums={k: (one, [stacks[node] for node in one.factors]) for k, one in sums.items()},
    )


def _saved_entries(step: _Step, partition: Partition) -> tuple[list[_Entry], list[_Entry]]:
    """What a step's backward takes of its forward: slices, and what all steps share, tensors and
    then all numbers.
    """
    slices: list[_Entry] = []
    shared: list[_Entry] = []
    numbers: dict[Any, _Entry] = {
        FromInput(k): _Entry(one, one) for k, one in enumerate(step.inputs) if not _is_tensor(one)
    }
    for place, node in zip(partition.saved, partition.backward.placeholders, strict=False):
        value = node.meta["val"]
        match place:
            case _ if not _is_tensor(value):
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


def _gradient_graph(
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
                found: fx.Node = copied[position]
            case FromInput(position):
                found = places[tangents[position]]
            case None:
                return _call(graph, aten.zeros_like.default, inputs[chained.index(index)])
        if found in taken or found.op == "placeholder":
            found = _call(graph, aten.clone.default, found)
        taken.add(found)
        return found

    outputs = [gradient(index) for index in chained]
    for before, index in zip(inputs[len(chained) :], summed, strict=False):
        outputs.append(_call(graph, aten.add.Tensor, before, gradient(index)))
    outputs += [gradient(index) for index in sliced]
    outputs += [places[node] for node in factors]
    graph.output(tuple(outputs))
    remove_dead_code(graph)
    results = tuple(map(FromGraph, range(len(outputs))))
    return AtenGraph(graph=graph, constants=partition.backward.constants, results=results)


def _call(graph: fx.Graph, op: Any, *arguments: fx.Node) -> fx.Node:
    """A call in a graph that gives what is like its first argument."""
    node = graph.call_function(op, arguments)
    node.meta["val"] = arguments[0].meta["val"]
    return node
