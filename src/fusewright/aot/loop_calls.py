"""Loops over steps as targets of calls in traced graphs, and how they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from fusewright.aot.dead_code import remove_dead_code
from fusewright.aot.graph import AtenGraph
from fusewright.aot.held_memory import held, released, stacked, unstacked
from fusewright.aot.interpret import interpreter
from fusewright.aot.runtime import with_results
from fusewright.aot.specs import FromGraph
from fusewright.aot.subprograms import Layouts, with_stride
from fusewright.records import replace

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
        self.step, self.stacked = _without_duplicates(step, carried, stacked)
        """The step: from what is carried, the slices, and the rest, to the new values of what is
        carried and further results. And what is stacked, in the order of the slices: positions
        among what a step is given as carried, and behind that its results.
        """

        self.carried = carried
        self.sliced = sliced
        """How many of the arguments those are."""

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
        return self.running([with_results(one, interpreter(one)) for one in self.graphs])(*given)

    def running(self, runs: Sequence[Run]) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The call, given what runs each of the graphs."""
        (step,) = runs
        layouts = Layouts(self.step)
        carried, sliced = self.carried, self.carried + self.sliced

        def call(*given: Any) -> tuple[torch.Tensor, ...]:
            strides = layouts.strides(given[layouts.count :])
            shared = given[sliced : layouts.count]
            rest = [*map(with_stride, shared, strides[sliced:]), *given[layouts.count :]]
            slices = map(_slices, given[carried:sliced], strides[carried:])
            steps = list(zip(*slices, strict=True))
            rounds = _Rounds(step, strides[:carried], rest, self.stacked)
            carry = rounds.begun(given[:carried])
            for of_step in reversed(steps) if self.reverse else steps:
                carry = rounds.stepped(carry, of_step)
            if self.reverse:
                for stack in rounds.stacks:
                    stack.reverse()
            return *rounds.ended(carry), *map(stacked, rounds.stacks)

        return call


def _without_duplicates(
    step: AtenGraph, carried: int, stacked: Sequence[int]
) -> tuple[AtenGraph, list[int]]:
    """The step with each result once, and what is stacked: a hidden state is often both carried
    and stacked.
    """
    outputs = list(step.outputs)
    kept = outputs[:carried]
    known = {_copied(node): number for number, node in enumerate(kept)}
    positions = []
    for position in stacked:
        if position < carried:
            positions.append(position)
            continue
        node = outputs[position - carried]
        place = known.setdefault(_copied(node), len(kept))
        positions.append(carried + place)
        kept += [node] if place == len(kept) else []
    step.graph.output_node().args = (tuple(kept),)
    remove_dead_code(step.graph)
    results = tuple(map(FromGraph, range(len(kept))))
    return replace(step, results=results), positions


def _copied(node: fx.Node) -> Any:
    return node.args[0] if node.target is torch.ops.aten.clone.default else node


class WhileCall(LoopCall):
    """A loop that takes another step while a condition holds. It has no inputs that are sliced. How
    long its stacks get is not known beforehand: its results are the last values, the number of
    steps, and for each stack a tensor without elements that owns its memory.
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

    def running(self, runs: Sequence[Run]) -> Callable[..., tuple[torch.Tensor, ...]]:
        step, condition = runs
        layouts = Layouts(self.step)
        carried = self.carried

        def call(*given: Any) -> tuple[torch.Tensor, ...]:
            strides = layouts.strides(given[layouts.count :])
            shared = given[carried : layouts.count]
            rest = [*map(with_stride, shared, strides[carried:]), *given[layouts.count :]]
            rounds = _Rounds(step, strides[:carried], rest, self.stacked)
            carry = rounds.begun(given[:carried])
            while condition([*carry, *rest])[0]:
                carry = rounds.stepped(carry, ())
            return (
                *rounds.ended(carry),
                torch.tensor(rounds.count, device="cpu"),
                *map(_held, rounds.stacks),
            )

        return call


class BackwardOfWhileCall(LoopCall):
    """A loop over what a `WhileCall` has stacked, from the end: the tensors that are sliced are
    those that hold the memory of stacks; one more argument is the number of steps.
    """

    def running(self, runs: Sequence[Run]) -> Callable[..., tuple[torch.Tensor, ...]]:
        run = super().running(runs)
        layouts = Layouts(self.step)
        carried, sliced = self.carried, self.carried + self.sliced

        def call(*given: Any) -> tuple[torch.Tensor, ...]:
            *arguments, count = given
            sizes = layouts.sizes(arguments[layouts.count :])
            for position in range(carried, sliced):
                holder, size = arguments[position], (int(count), *sizes[position])
                is_empty = 0 in size
                found = held(holder, size) if is_empty else released(holder).view(size)
                arguments[position] = found
            return run(*arguments)

        return call


class _Rounds:
    """Runs the step of one call of a loop, and keeps what is stacked."""

    def __init__(
        self,
        step: Run,
        strides: Sequence[tuple[int, ...]],
        rest: Sequence[Any],
        stacked: Sequence[int],
    ) -> None:
        self.step = step
        self.strides = strides
        """Strides of the tensors that a step hands to the next."""

        self.rest = rest
        """What all steps take."""

        self.stacks: list[list[torch.Tensor]] = [[] for _ in stacked]
        self.count = 0
        keeping = [(stack.append, at) for stack, at in zip(self.stacks, stacked, strict=True)]
        carried = len(strides)
        self.keeps_carried = [(keep, at) for keep, at in keeping if at < carried]
        self.keeps_results = [(keep, at - carried) for keep, at in keeping if at >= carried]

    def begun(self, carry: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The first values of what is carried."""
        return list(map(with_stride, carry, self.strides))

    def stepped(self, carry: list[torch.Tensor], slices: Sequence[Any]) -> list[torch.Tensor]:
        """Run a step; gives what is carried behind it."""
        results = self.step([*carry, *slices, *self.rest])
        self.count += 1
        for keep, position in self.keeps_carried:
            keep(carry[position])
        for keep, position in self.keeps_results:
            keep(results[position])
        return list(map(with_stride, results, self.strides))

    def ended(self, carry: list[torch.Tensor]) -> list[torch.Tensor]:
        """The last values of what is carried, which share no memory with another or the first."""
        distinct = self.count and len(set(map(id, carry))) == len(carry)
        return carry if distinct else list(map(torch.clone, carry))


def _slices(tensor: torch.Tensor, stride: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """`tensor` along its first dimension, each slice with this stride."""
    if tensor.stride()[1:] != stride:
        extent = 1 + sum((n - 1) * step for n, step in zip(tensor.shape[1:], stride, strict=True))
        tensor = with_stride(tensor, (extent, *stride))
    return unstacked(tensor)


def _held(stack: Sequence[torch.Tensor]) -> torch.Tensor:
    """What holds the memory of a stack."""
    return held(stacked(stack)) if stack else torch.empty(0)
