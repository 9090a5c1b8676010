"""Loops of a compiled graph: how often their blocks run, on what, and what is kept of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.runtime.held_memory import held, released, stacked, unstacked

Block = Callable[[list[Any]], Sequence[Any]]
"""A list of tensors and numbers in, its results out."""


def while_loop(
    condition: Block,
    body: Block,
    arguments: Sequence[Any],
    carried: int,
    keeps: bool = False,
    positions: Sequence[int] = (),
) -> tuple[Tensor, ...]:
    """Run `body` while `condition` holds: each gets the values carried, the first `carried` of the
    arguments, and the other arguments; the first results of the body are the values carried on.

    Gives the last values. With `keeps`, behind them the number of steps, and for each of
    `positions` a tensor without elements that owns the stack of its values, whose size is not known
    beforehand: positions among the values that a step is given, and behind these its results.
    """
    carry, rest = [*arguments[:carried]], arguments[carried:]
    rounds = _Rounds(body, rest, carried, positions)
    while condition([*carry, *rest])[0]:
        carry = rounds.stepped(carry, ())
    if not keeps:
        return tuple(rounds.ended(carry))
    count = torch.tensor(rounds.count, device="cpu")
    return (*rounds.ended(carry), count, *map(_held, rounds.stacks))


def scan(
    body: Block,
    arguments: Sequence[Any],
    carried: int,
    sliced: int,
    positions: Sequence[int],
    is_reversed: bool = False,
    sizes: Sequence[Sequence[int]] | None = None,
) -> tuple[Tensor, ...]:
    """Run `body` for each slice along the first dimension of the `sliced` arguments behind those
    `carried`; `is_reversed`: the last slices first. Gives the last values carried, and the stacks
    of what stands at `positions`, in the order of the slices.

    `sizes`: what is sliced holds the stacks of a while loop, of slices of these sizes, and the last
    argument is its number of steps.
    """
    if sizes is not None:
        *arguments, count = arguments
        for position, size in enumerate(sizes, carried):
            arguments[position] = _stack(arguments[position], (int(count), *size))
    carry, rest = [*arguments[:carried]], arguments[carried + sliced :]
    slices = map(unstacked, arguments[carried : carried + sliced])
    steps = list(zip(*slices, strict=True))
    rounds = _Rounds(body, rest, carried, positions)
    for of_step in reversed(steps) if is_reversed else steps:
        carry = rounds.stepped(carry, of_step)
    if is_reversed:
        for stack in rounds.stacks:
            stack.reverse()
    return (*rounds.ended(carry), *map(stacked, rounds.stacks))


class _Rounds:
    """Runs the steps of one loop, and keeps what is stacked."""

    def __init__(
        self, body: Block, rest: Sequence[Any], carried: int, positions: Sequence[int]
    ) -> None:
        self.count = 0
        self.stacks: list[list[Tensor]] = [[] for _ in positions]
        self._body = body
        self._rest = rest
        self._carried = carried
        keeping = [(stack.append, at) for stack, at in zip(self.stacks, positions, strict=True)]
        self._keeps_carried = [(keep, at) for keep, at in keeping if at < carried]
        self._keeps_results = [(keep, at - carried) for keep, at in keeping if at >= carried]

    def stepped(self, carry: Sequence[Tensor], slices: Sequence[Tensor]) -> list[Tensor]:
        """Run a step; gives what is carried behind it."""
        results = self._body([*carry, *slices, *self._rest])
        self.count += 1
        for keep, position in self._keeps_carried:
            keep(carry[position])
        for keep, position in self._keeps_results:
            keep(results[position])
        return [*results[: self._carried]]

    def ended(self, carry: Sequence[Tensor]) -> Sequence[Tensor]:
        """The last values of what is carried, which share no memory with another or the first."""
        is_distinct = self.count and len(set(map(id, carry))) == len(carry)
        return carry if is_distinct else [*map(torch.clone, carry)]


def _held(stack: Sequence[Tensor]) -> Tensor:
    """What holds the memory of a stack."""
    return held(stacked(stack)) if stack else torch.empty(0)


def _stack(holder: Tensor, size: tuple[int, ...]) -> Tensor:
    """The stack of this size whose memory is held."""
    return held(holder, size) if 0 in size else released(holder).view(size)
