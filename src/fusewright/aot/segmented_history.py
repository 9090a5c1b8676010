"""A history whose backward runs in segments, each a node of autograd: the gradients of a bucket go
out before the next segment runs, so that `DistributedDataParallel` reduces them meanwhile.

    outputs <- segment 0 <- segment 1 <- segment 2        (the engine runs them from the left)
                  |            |            |
           last layers'    middle's     first layers' parameters

Each node keeps what its segment reads, and frees that when it has run, as eager's nodes do. What
the backward of one hands to the next (`Handed`) travels with the gradient of a tensor without
dimensions, which joins their nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.aot.absent_gradients import (
    ByAbsentTangents,
    PartialBackward,
    backward_without,
)
from fusewright.aot.backward_parts import BackwardPart, backward_parts
from fusewright.aot.backward_segments import (
    Segment,
    SizeSource,
    mark_segments,
    output_segments,
    segment_ends,
    segments,
    size_sources,
)
from fusewright.aot.buckets import Limits
from fusewright.aot.graph import AtenGraph
from fusewright.aot.joint import JointGraph
from fusewright.aot.partition import Partition, subgraph
from fusewright.aot.runtime import Compiled
from fusewright.aot.specs import FromGraph, FromInput
from fusewright.aot.training import (
    AddHistories,
    CompileBackward,
    ConnectedHistory,
    HistoryPlan,
    absent_numbers,
    found,
    saved_despite,
    without_second_derivative,
)
from fusewright.native import disable
from fusewright.opaque import is_number
from fusewright.records import record


@record(frozen=False)
class Handed:
    """The values that the backward of one segment hands to that of the next."""

    absent: frozenset[int]
    """The numbers of the tangents that are not there."""

    values: list[torch.Tensor]
    """Tangents and results of segments before, until the segment takes them."""


@record
class SegmentBackward:
    """A compiled segment, for calls in which certain tangents are absent. Places are those of
    `Segment`.
    """

    run: Compiled
    saved: tuple[int, ...]
    """Numbers, among what its node saves, of what it takes."""

    unread: frozenset[int]
    """Numbers, among the tensors that its node saves, of those that it does not take."""

    reads: tuple[int, ...]
    gradients: tuple[int | None, ...]
    """By input of its node: the place of its gradient; None where that is absent."""

    passes: tuple[int, ...]
    keeps: frozenset[int]
    """Numbers of the given values that outlast the segment: it returns them, or passes them on."""


@record
class SegmentedBackward:
    """A compiled backward graph in segments."""

    tangents: tuple[int, ...]
    """The numbers of the tangents that the first segment is given."""

    segments: tuple[SegmentBackward, ...]


class SegmentedHistory:
    """One of the histories of a compiled graph's outputs, in segments."""

    def __init__(
        self,
        part: BackwardPart,
        ends: Sequence[int],
        compile_backward: CompileBackward,
        joint: JointGraph,
    ) -> None:
        """`ends`: see `segment_ends`."""
        self.tangents = part.outputs
        self._part = part
        self._compile_backward = compile_backward
        self._backwards: ByAbsentTangents[SegmentedBackward] = ByAbsentTangents()
        mark_segments(part.graph, ends)
        count = len(ends) + 1
        self._sizes = size_sources(part.graph)
        self._size_places = [self._place(source) for source in self._sizes]
        self._ends_in = output_segments(part.graph)
        """By output of the backward graph: the segment that returns it."""

        self._inputs: list[list[int]] = [[] for _ in range(count)]
        """By segment: the numbers, among the part's inputs, of those whose gradients it returns."""

        for number, gradient in enumerate(part.gradients):
            self._inputs[self._segment_of(gradient, count - 1)].append(number)
        self._saved = [segment.saved for segment in self._segments(part.graph)]
        """By segment: the numbers, among the part's saved values, of those that its node saves."""

        parts = [self._node_part(number, joint.tangents) for number in range(count)]
        self.plans = [HistoryPlan(segment, compile_backward) for segment in parts]

    def _segment_of(self, gradient: FromInput | FromGraph | None, last: int) -> int:
        match gradient:
            case FromInput():
                return 0
            case FromGraph(position):
                return self._ends_in[position]
        return last

    def _segments(self, graph: AtenGraph, outputs: Sequence[int] | None = None) -> list[Segment]:
        """The segments of a graph that gives those `outputs` of the whole one, by default all."""
        ends_in = self._ends_in
        if outputs is not None:
            ends_in = [ends_in[number] for number in outputs]
        return segments(graph, len(self._part.saved), ends_in, len(self._inputs), self._sizes)

    def _place(self, source: SizeSource) -> FromInput | FromGraph:
        """Where the forward call finds the input of the backward graph that tells a size."""
        saved = self._part.saved
        if source.placeholder < len(saved):
            return saved[source.placeholder]
        return FromGraph(self._part.outputs[source.placeholder - len(saved)])

    def sizes(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """The sizes that each segment takes."""
        return [
            source.read(
                inputs[place.index] if isinstance(place, FromInput) else outputs[place.position]
            )
            for source, place in zip(self._sizes, self._size_places, strict=True)
        ]

    def _node_part(self, number: int, tangents: Sequence[int]) -> BackwardPart:
        """The part of the backward that the node of a segment is. `tangents`: the positions of the
        outputs that have a history.
        """
        part, is_first = self._part, number == 0
        nodes = [part.saved_nodes[index] for index in self._saved[number]]
        saved = tuple(part.saved[index] for index in self._saved[number])
        own = part.outputs if is_first else ()
        others = {FromGraph(position) for position in tangents if position not in own}
        buffers = [
            place
            for place, node in zip(saved, nodes, strict=True)
            if not is_number(node.meta["val"])
        ]
        inputs = [*nodes, *(part.tangent_nodes if is_first else ())]
        return BackwardPart(
            graph=AtenGraph(graph=subgraph((), inputs, ())),
            saved=saved,
            outputs=own,
            outputs_of_others=tuple(k for k, place in enumerate(buffers) if place in others),
            inputs=tuple(part.inputs[index] for index in self._inputs[number]),
            gradients=tuple(part.gradients[index] for index in self._inputs[number]),
            is_freed=part.is_freed,
            eager_saves=part.eager_saves if is_first else (),
        )

    def add(self, inputs: tuple[Any, ...], outputs: list[Any], /) -> None:
        """Put outputs with the history in the places of those without."""
        results: Any = ()
        for number, plan in reversed([*enumerate(self.plans)]):
            reached = [inputs[index] for index in plan.inputs]
            results = torch_compat.autograd.apply_function(
                SegmentFunction, self, number, inputs, outputs, *results, *reached
            )
        for position, result in zip(self.tangents, results, strict=True):
            outputs[position] = result

    def backward(self, absent: frozenset[int]) -> SegmentedBackward:
        """The segments for calls in which the tangents `absent`, by number, are not there, compiled
        when first asked for. Backward may run in compiled code.
        """
        return self._backwards.get(absent, self._compiled)

    def _compiled(self, absent: frozenset[int]) -> SegmentedBackward:
        partial = backward_without(self._part.graph, len(self._part.saved), absent)
        parts = self._segments(partial.graph, partial.outputs)
        compiled = [
            self._compiled_segment(segment, number, partial, absent)
            for number, segment in enumerate(parts)
        ]
        return SegmentedBackward(partial.tangents, tuple(compiled))

    def _compiled_segment(
        self, segment: Segment, number: int, partial: PartialBackward, absent: frozenset[int]
    ) -> SegmentBackward:
        graph, own = segment.graph, self._saved[number]
        numbers = {whole: number for number, whole in enumerate(partial.outputs)}

        def place(gradient: FromInput | FromGraph | None) -> int | None:
            match gradient:
                case FromInput(index) if index not in absent:
                    return len(graph.outputs) + partial.tangents.index(index)
                case FromGraph(position) if position in numbers:
                    return segment.gradients[numbers[position]]
            return None

        saved = tuple(own.index(index) for index in segment.saved)
        nodes = [self._part.saved_nodes[index] for index in own]
        tensors = [k for k, node in enumerate(nodes) if isinstance(node.meta["val"], torch.Tensor)]
        computes = any(node.op not in ("placeholder", "output") for node in graph.graph.nodes)
        gradients = tuple(place(self._part.gradients[index]) for index in self._inputs[number])
        places = [index for index in (*gradients, *segment.passes) if index is not None]
        kept = {index - len(graph.outputs) for index in places}
        return SegmentBackward(
            run=disable(self._compile_backward(graph)) if computes else _nothing,
            saved=saved,
            unread=frozenset(number for number, k in enumerate(tensors) if k not in saved),
            reads=segment.reads,
            gradients=gradients,
            passes=segment.passes,
            keeps=frozenset(index for index in kept if index >= 0),
        )


def _nothing(inputs: list[Any]) -> tuple[()]:
    """The results of a segment whose gradients are all absent: none."""
    inputs.clear()
    return ()


class SegmentFunction(torch.autograd.Function):
    """One call of a compiled graph, in one segment of one of its histories."""

    @staticmethod
    def forward(
        ctx: Any,
        history: SegmentedHistory,
        number: int,
        inputs: list[Any],
        outputs: list[Any],
        *reached: Any,
    ) -> Any:
        plan = history.plans[number]
        tensors, ctx.special = plan.save_specially(found(plan.saved, inputs, outputs))
        ctx.save_for_backward(*tensors)
        ctx.numbers = found(plan.numbers, inputs, outputs)
        ctx.history = plan
        ctx.set_materialize_grads(False)
        ctx.segments, ctx.number = history, number
        ctx.sizes = history.sizes(inputs, outputs)
        ctx.joins = number + 1 < len(history.plans)
        results = tuple([outputs[position] for position in history.tangents])
        ctx.device = results[0].device
        if number > 0:  # The engine runs a node on the device, and in the stream, of its results.
            return (torch.empty((), dtype=torch.float32, device=ctx.device),)
        ctx.strides = plan.strides or [plan.gradient_strides(result) for result in results]
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        handed = None if ctx.number == 0 else gradients[0].handed
        absent = absent_numbers(gradients) if handed is None else handed.absent
        saved = _saved_tensors(ctx, absent)
        if handed is None and ctx.history.eager_saves:
            ctx.history.check_versions(ctx, gradients)
        if not torch.is_grad_enabled():
            ctx.maybe_clear_saved_tensors()  # `saved` alone holds them now
            values, taken = _run_segment(ctx, absent, saved, gradients)
            return _results(ctx, absent, values, taken)
        read = [*saved, *(gradient for gradient in gradients if gradient is not None)]
        read += () if handed is None else handed.values
        with torch.no_grad():
            values, taken = _run_segment(ctx, absent, saved, gradients)
        results = without_second_derivative((*values, *taken), read)
        return _results(ctx, absent, results[: len(values)], results[len(values) :])


def _saved_tensors(ctx: Any, absent: frozenset[int]) -> list[torch.Tensor]:
    """The tensors that the node of a segment saved."""
    if ctx.history.can_be_repeated:
        return []
    try:
        return list(ctx.saved_tensors)
    except RuntimeError as error:
        segment = ctx.segments.backward(absent).segments[ctx.number]
        return saved_despite(error, ctx, segment.unread)


def _run_segment(
    ctx: Any, absent: frozenset[int], saved: list[Any], gradients: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The values for the next segment, and the gradients of the inputs of one."""
    backward = ctx.segments.backward(absent)
    segment = backward.segments[ctx.number]
    saved[:] = [*ctx.numbers, *ctx.history.take_specially(saved, ctx.special)]
    try:
        if ctx.number == 0:
            arguments = [
                ctx.history.tangent(ctx, tangent, gradients[tangent], ctx.strides[tangent])
                for tangent in backward.tangents
            ]
        else:
            arguments, gradients[0].handed.values = gradients[0].handed.values, []
        inputs = [saved[place] for place in segment.saved]
        inputs += [arguments[place] for place in segment.reads]
        inputs += ctx.sizes
        saved.clear()
        kept = [value if k in segment.keeps else None for k, value in enumerate(arguments)]
        del arguments
        values = [*segment.run(inputs), *kept]
    except RuntimeError as error:
        ctx.history.fail(error, gradients)
    taken = [None if place is None else values[place] for place in segment.gradients]
    return [values[place] for place in segment.passes], taken


def _results(ctx: Any, absent: frozenset[int], values: Sequence[Any], taken: Sequence[Any]) -> Any:
    """The gradients that the node of a segment returns."""
    if not ctx.joins:
        return (None, None, None, None, *taken)
    joint: Any = _zero(ctx.device).detach()
    joint.handed = Handed(absent, list(values))
    return (None, None, None, None, joint, *taken)


@functools.cache
def _zero(device: torch.device) -> torch.Tensor:
    with torch.inference_mode(mode=False):
        return torch.zeros((), dtype=torch.float32, device=device)


def split_by_buckets(partition: Partition, compile_backward: CompileBackward) -> AddHistories:
    """Has the backward of a partition run in segments where a `DistributedDataParallel` calls it:
    one for each of that one's buckets.
    """
    return _ByBuckets(partition, compile_backward).add


class _ByBuckets:
    """The histories of a partition, in segments for buckets of one size or another."""

    def __init__(self, partition: Partition, compile_backward: CompileBackward) -> None:
        self._partition = partition
        self._compile_backward = disable(compile_backward)
        self._known: dict[Limits, list[ConnectedHistory]] = {}
        self._limits: Limits | None = None

    def add(self, inputs: tuple[Any, ...], outputs: list[Any], /) -> bool:
        """Give the outputs of a call histories for the buckets of whoever calls the graph; says
        whether it has. They stay when it is called by nobody: a checkpoint that calls it again in
        backward has to find the same nodes.
        """
        limits = torch_compat.distributed.active_bucket_limits() or self._limits
        if limits is None:
            return False
        self._limits = limits
        histories = self._known.get(limits)
        if histories is None:
            histories = self._known[limits] = [
                self._history(part, limits) for part in backward_parts(self._partition)
            ]
        for history in histories:
            history.add(inputs, outputs)
        return True

    def _history(self, part: BackwardPart, limits: Limits) -> ConnectedHistory:
        joint = self._partition.joint
        counted = [
            number
            for number, index in enumerate(part.inputs)
            if index not in joint.interior_inputs  # what has a history is no parameter
        ]
        ends = segment_ends(part, counted, limits)
        if not ends:
            return HistoryPlan(part, self._compile_backward)
        return SegmentedHistory(part, ends, self._compile_backward, joint)
