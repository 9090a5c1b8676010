"""Loops of a compiled graph: how often their blocks run, on what, and what is kept of each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Block = Callable[[list[Any]], Sequence[Any]]
"""A list of tensors and numbers in, its results out."""


def while_loop(
    condition: Block,
    body: Block,
    arguments: Sequence[Any],
    carried: int,
    positions: Sequence[int] = (),
) -> tuple[Any, ...]:
    """Run `body` while `condition` holds: each gets the values carried, the first `carried` of the
    arguments, and the other arguments; the first results of the body are the values carried on.

    Gives the last values, and for each of `positions` an opaque value, the tuple of what stood
    there in each step: positions among the values carried that a step is given, and behind these
    its results.
    """
    carry, rest = _cloned(arguments[:carried], positions), arguments[carried:]
    rounds = _Rounds(body, rest, carried, positions)
    while condition([*carry, *rest])[0]:
        carry = rounds.stepped(carry, ())
    last = _cloned(rounds.ended(carry), [position - carried for position in positions])
    return (*last, *map(tuple, rounds.stacks))


def scan(
    body: Block,
    arguments: Sequence[Any],
    carried: int,
    sliced: int,
    positions: Sequence[int],
    is_reversed: bool = False,
) -> tuple[Any, ...]:
    """Run `body` for each slice along the first dimension of the `sliced` arguments behind those
    `carried`, or each item of one that is opaque; `is_reversed`: the last slices first. Gives the
    last values carried, and the stacks of what stands at `positions`, in the order of the slices:
    of opaque values, the tuple.
    """
    carry, rest = [*arguments[:carried]], arguments[carried + sliced :]
    slices = map(_slices, arguments[carried : carried + sliced])
    steps = list(zip(*slices, strict=True))
    rounds = _Rounds(body, rest, carried, positions)
    for of_step in reversed(steps) if is_reversed else steps:
        carry = rounds.stepped(carry, of_step)
    if is_reversed:
        for stack in rounds.stacks:
            stack.reverse()
    return (*rounds.ended(carry), *map(_stacked, rounds.stacks))


class _Rounds:
    """Runs the steps of one loop, and keeps what is stacked."""

    def __init__(
        self, body: Block, rest: Sequence[Any], carried: int, positions: Sequence[int]
    ) -> None:
        self.count = 0
        self.stacks: list[list[Any]] = [[] for _ in positions]
        self._body = body
        self._rest = rest
        self._carried = carried
        keeping = [(stack.append, at) for stack, at in zip(self.stacks, positions, strict=True)]
        self._keeps_carried = [(keep, at) for keep, at in keeping if at < carried]
        self._keeps_results = [(keep, at - carried) for keep, at in keeping if at >= carried]

    def stepped(self, carry: Sequence[Tensor], slices: Sequence[Any]) -> list[Tensor]:
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


def _cloned(values: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    """The values, those at `places` as copies: an opaque value shares no memory."""
    return [value.clone() if place in places else value for place, value in enumerate(values)]


def _slices(stack: Tensor | tuple[Any, ...]) -> tuple[Any, ...]:
    """The slices of a tensor, or the items of an opaque value."""
    return stack.unbind(0) if isinstance(stack, Tensor) else stack


def _stacked(values: Sequence[Any]) -> Tensor | tuple[Any, ...]:
    """The stack of tensors, or an opaque value of opaque values."""
    return tuple(values) if values and isinstance(values[0], tuple) else torch.stack([*values])
