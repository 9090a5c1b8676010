"""Loops over steps as targets of calls in traced graphs, and how they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph
from fusewright.aot.specs import FromGraph
from fusewright.aot.subprograms import by_eager_operators
from fusewright.ir.lines import Block, CallProgram, Line, ScanLoop, WhileLoop
from fusewright.records import replace
from fusewright.runtime.loops import scan, while_loop


class LoopCall:
    """The target of a call in a traced graph: runs a step once for each slice of some tensors.

    Its arguments: the first values of what is carried; the tensors that are sliced, along their
    first dimension; and what each step takes as it is, tensors and then numbers. Its results: the
    last values of what is carried, and stacks.
    """

    def __init__(
        self, step: AtenGraph, carried: int, sliced: int, stacked: Sequence[int], reverse: bool
    ) -> None:
        self.step, self.stacked = _without_duplicates(step, carried, stacked)
        """The step: from what is carried, the slices, and the rest, to the new values of what is
        carried and further results. And what is stacked, in the order of the slices: positions
        among what a step is given as carried, and behind that its results.
        """

        self.carried = carried
        self.sliced = sliced
        """The number of arguments that are sliced."""

        self.reverse = reverse
        """Whether the last slices come first."""

        self.__name__ = self.__qualname__ = "scan"  # as fx asks them of the target of a call
        self.__module__ = __name__

    def __repr__(self) -> str:
        return self.__name__

    @property
    def graphs(self) -> tuple[AtenGraph, ...]:
        """The graphs that are to be compiled."""
        return (self.step,)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """By eager operators."""
        step = by_eager_operators(self.step)
        return scan(step, inputs, self.carried, self.sliced, self.stacked, self.reverse)

    @property
    def roles(self) -> tuple[str, ...]:
        """The name of each graph's part in the loop."""
        return ("step",)

    @property
    def signature(self) -> tuple[str | int, ...]:
        """All that a plan depends on, beside its graphs."""
        return self.__name__, self.carried, self.sliced, self.reverse, *self.stacked

    def line(self, call: CallProgram, blocks: Sequence[Block]) -> Line:
        """The call as a wrapper line that runs `blocks`."""
        (body,) = blocks
        return ScanLoop(
            arguments=call.arguments,
            carried=self.carried,
            sliced=self.sliced,
            stacked=tuple(self.stacked),
            is_reversed=self.reverse,
            body=body,
            results=call.results,
            origins=call.origins,
        )


def _without_duplicates(
    step: AtenGraph, carried: int, stacked: Sequence[int]
) -> tuple[AtenGraph, list[int]]:
    """The step with each result once, and what is stacked: a hidden state is often both carried
    and stacked.
    """
    outputs = list(step.outputs)
    kept = outputs[:carried]
    place_of = {_copied_node(node): number for number, node in enumerate(kept)}
    positions = []
    for position in stacked:
        if position < carried:
            positions.append(position)
            continue
        node = outputs[position - carried]
        place = place_of.setdefault(_copied_node(node), len(kept))
        positions.append(carried + place)
        kept += [node] if place == len(kept) else []
    step.graph.output_node().args = (tuple(kept),)
    remove_dead_code(step.graph)
    results = tuple(map(FromGraph, range(len(kept))))
    return replace(step, results=results), positions


def _copied_node(node: fx.Node) -> Any:
    return node.args[0] if node.target is torch.ops.aten.clone.default else node


class WhileCall(LoopCall):
    """A loop that takes another step while a condition holds. It has no inputs that are sliced. How
    long its stacks get is not known beforehand: each is an opaque value.
    """

    def __init__(
        self, step: AtenGraph, carried: int, stacked: Sequence[int], condition: AtenGraph
    ) -> None:
        super().__init__(step, carried, 0, stacked, reverse=False)
        self.condition = condition
        """From what a step takes to whether it is to run."""

        self.__name__ = self.__qualname__ = "while_loop"

    @property
    def graphs(self) -> tuple[AtenGraph, ...]:
        return (self.step, self.condition)

    @property
    def roles(self) -> tuple[str, ...]:
        return "step", "condition"

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        step, condition = map(by_eager_operators, self.graphs)
        return while_loop(condition, step, inputs, self.carried, self.stacked)

    def line(self, call: CallProgram, blocks: Sequence[Block]) -> Line:
        body, condition = blocks
        return WhileLoop(
            arguments=call.arguments,
            carried=self.carried,
            condition=condition,
            body=body,
            stacked=tuple(self.stacked),
            results=call.results,
            origins=call.origins,
        )
