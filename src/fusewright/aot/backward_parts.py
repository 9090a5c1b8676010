"""A backward graph in parts, one for each history of the forward half's outputs.

    backward(exp, cos, tangent0, tangent1)         backward(exp, tangent0)
        mul = aten.mul(tangent0, exp)                  mul = aten.mul(tangent0, exp)
        mul_1 = aten.mul(tangent1, cos)     ->         return (mul,)
        return (mul, mul_1)                        backward(cos, tangent1)
                                                       mul_1 = aten.mul(tangent1, cos)
                                                       return (mul_1,)

Each takes of what is saved only what it reads, so that autograd holds and frees that by itself.
What several parts compute again from the same, each computes for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from fusewright.aot.dead_code import dependents, is_wanted
from fusewright.aot.eager_saves import EagerSave
from fusewright.aot.graph import AtenGraph, constants_of
from fusewright.aot.joint import JointGraph, OutputHistory
from fusewright.aot.partition import Partition, ancestors, subgraph, untold_numbers
from fusewright.aot.specs import FromGraph, FromInput, Leaf
from fusewright.opaque import is_number
from fusewright.records import record, replace


@record(kw_only=True, slots=False)
class BackwardPart:
    """The backward graph of one history."""

    graph: AtenGraph
    """Takes the saved values, then the tangents; returns the gradients."""

    saved: tuple[FromInput | FromGraph, ...]
    """Where the forward call finds each saved value."""

    outputs: tuple[int, ...]
    """By tangent: the position of its output."""

    outputs_of_others: tuple[int, ...]
    """Numbers, among the saved values that are no numbers, of outputs with another history."""

    inputs: tuple[int, ...]
    """Indices of the inputs that the history leads to."""

    gradients: tuple[FromInput | FromGraph | None, ...]
    """By index in `inputs`: the gradient, one that the graph returns, or a tangent as it is
    (`FromInput`, counted among the tangents); None where there is none.
    """

    is_freed: bool
    """Whether eager's backward frees something, so that a second one fails."""

    eager_saves: tuple[EagerSave, ...]
    """The tensors that eager saves for these gradients, and `saved` does not name."""

    @property
    def saved_nodes(self) -> list[fx.Node]:
        """The placeholders of what is saved."""
        return self.graph.placeholders[: len(self.saved)]

    @property
    def tangent_nodes(self) -> list[fx.Node]:
        """The placeholders of the tangents."""
        return self.graph.placeholders[len(self.saved) :]


def backward_parts(partition: Partition) -> list[BackwardPart]:
    """The backward graph of `partition`, history by history."""
    joint = partition.joint
    if len(joint.histories) == 1:
        (history,) = joint.histories
        return [
            BackwardPart(
                graph=partition.backward,
                saved=partition.saved,
                outputs=joint.tangents,
                outputs_of_others=(),
                inputs=history.inputs,
                gradients=tuple(history.gradients[index] for index in history.inputs),
                is_freed=history.is_freed,
                eager_saves=_eager_saves(joint, history, partition.saved),
            )
        ]
    return [_part(partition, history) for history in joint.histories]


def _part(partition: Partition, history: OutputHistory) -> BackwardPart:
    backward, joint = partition.backward, partition.joint
    placeholders = backward.placeholders
    all_saved = list(zip(placeholders, partition.saved, strict=False))
    tangents = [placeholders[len(all_saved) + number] for number in history.tangents]
    gradients = [history.gradients[index] for index in history.inputs]
    positions = {
        gradient.position: None for gradient in gradients if isinstance(gradient, FromGraph)
    }
    outputs = [backward.outputs[position] for position in positions]
    own = dependents(backward.graph, tangents)
    needed = ancestors([*outputs, *(node for node in own if is_wanted(node))])
    nodes = [node for node in backward.graph.nodes if node in needed]
    read = {node for node, _ in all_saved if node in needed}
    read.update(untold_numbers([node for node, _ in all_saved], [*read, *tangents]))
    saved = [(node, place) for node, place in all_saved if node in read]
    graph = subgraph(nodes, [*(node for node, _ in saved), *tangents], outputs)
    numbers = {position: number for number, position in enumerate(positions)}

    def renumbered(place: FromInput | FromGraph | None) -> Any:
        match place:
            case FromInput(index):
                return FromInput(history.tangents.index(index))
            case FromGraph(position):
                return FromGraph(numbers[position])
        return None

    mine = tuple(joint.tangents[number] for number in history.tangents)
    others = {FromGraph(position) for position in joint.tangents if position not in mine}
    buffers = [place for node, place in saved if not is_number(node.meta["val"])]
    return BackwardPart(
        graph=AtenGraph(graph=graph, constants=constants_of(graph, backward.constants)),
        saved=tuple(place for _, place in saved),
        outputs=mine,
        outputs_of_others=tuple(k for k, place in enumerate(buffers) if place in others),
        inputs=history.inputs,
        gradients=tuple(map(renumbered, gradients)),
        is_freed=history.is_freed,
        eager_saves=_eager_saves(joint, history, [place for _, place in saved]),
    )


def _eager_saves(
    joint: JointGraph, history: OutputHistory, saved: Sequence[FromInput | FromGraph]
) -> tuple[EagerSave, ...]:
    """The tensors that eager saves for the gradients of `history` beside `saved`; tangents counted
    as there.
    """
    numbers = {tangent: number for number, tangent in enumerate(history.tangents)}
    kept = []
    for save in joint.eager_saves:
        place = joint.results[save.place.index] if isinstance(save.place, Leaf) else save.place
        tangents = frozenset(numbers[position] for position in save.tangents if position in numbers)
        if tangents and place not in saved:
            kept.append(replace(save, tangents=tangents))
    return tuple(kept)
