"""Which outputs of a program have a history in autograd together, and which one of their own.

    h = w.exp()                                 sum, mean: one history, of w
    return h.sum(), h.mean(), v.sin()     ->    sin: one of its own, of v

In eager, a backward frees what the nodes that it comes by have saved, so that the next one to come
by such a node fails; and it comes by the inputs that its loss was computed from, no others. Outputs
that share a node that saves tensors therefore are one history, and all others are apart, though
they may be computed from the same inputs: the two losses of a generative adversarial network.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from fusewright.aot.subprograms import Differentiable
from fusewright.records import record


@record
class Reach:
    """The outputs, by number, that have one history, and the inputs that it leads to: all, where
    that is none, so that the outputs require grad.
    """

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    is_freed: bool
    """Whether eager's backward frees something, so that a second one fails."""


Reaching = dict[Any, int]
"""Nodes of autograd, each before those that it leads to; a bit for each output that leads to it."""


def reaching_outputs(outputs: Sequence[torch.Tensor]) -> Reaching:
    """The nodes in the histories of `outputs`."""
    first = [get_gradient_edge(output).node for output in outputs]
    finished: list[Any] = []
    begun: set[Any] = set()
    stack = [(node, False) for node in first]
    while stack:
        node, is_finished = stack.pop()
        if is_finished:
            finished.append(node)
        elif node not in begun:
            begun.add(node)
            stack.append((node, True))
            stack += [(before, False) for before, _ in node.next_functions if before is not None]
    reaching = dict.fromkeys(reversed(finished), 0)
    for number, node in enumerate(first):
        reaching[node] |= 1 << number
    for node, bits in reaching.items():
        for before, _ in node.next_functions:
            if before is not None:
                reaching[before] |= bits
    return reaching


def numbers(bits: int) -> list[int]:
    """The positions of the bits that are set."""
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def separate(reaching: Reaching, count: int, edges: Sequence[GradientEdge | None]) -> list[Reach]:
    """The histories of `count` outputs, in the order of their first; `edges`: by input, where its
    own history begins.
    """
    groups = _Groups(count)
    freed = 0
    for node, bits in reaching.items():
        if saves_tensors(node):
            groups.join(bits)
            freed |= bits
    inputs = [
        tuple(
            index
            for index, edge in enumerate(edges)
            if edge is not None and reaching.get(edge.node, 0) >> number & 1
        )
        for number in range(count)
    ]
    _join_by_inputs(groups, freed, inputs)
    tracked = tuple(index for index, edge in enumerate(edges) if edge is not None)
    return [
        Reach(
            members,
            _union([inputs[member] for member in members]) or tracked,
            any(freed >> member & 1 for member in members),
        )
        for members in groups.groups()
    ]


def together(reaches: Sequence[Reach]) -> Reach:
    """One history of all."""
    return Reach(
        _union([reach.outputs for reach in reaches]),
        _union([reach.inputs for reach in reaches]),
        any(reach.is_freed for reach in reaches),
    )


def _union(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted({number for members in groups for number in members}))


def _join_by_inputs(groups: _Groups, freed: int, inputs: Sequence[tuple[int, ...]]) -> None:
    """Join the outputs that are computed from the same inputs by nodes that save nothing: nobody
    can tell them apart.
    """
    first: dict[tuple[int, ...], int] = {}
    for number, reached in enumerate(inputs):
        if not freed >> number & 1:
            groups.join(1 << number | 1 << first.setdefault(reached, number))


def saves_tensors(node: Any) -> bool:
    """Whether a backward that has come by `node` may have freed what the next one needs."""
    if isinstance(node, BackwardCFunction):
        own = issubclass(node._forward_cls, Differentiable)  # type: ignore[attr-defined]
        return own or bool(node._raw_saved_tensors)
    kind: Any = type(node)
    return _is_freed(kind, "::" in node.name())


FREES_NOTHING = frozenset({"AccumulateGrad", "CopyBackwards"})
"""Nodes of the engine's own, without saved tensors."""


@functools.cache
def _is_freed(kind: type, is_written: bool) -> bool:
    """Whether nodes of type `kind` are; `is_written`: that is no type that torch generates for a
    formula, and may keep what it saves as it likes: `CopySlices`, a function in C++.
    """
    if is_written:
        return kind.__name__ not in FREES_NOTHING
    return any(name.startswith("_raw_saved") for name in dir(kind))


class _Groups:
    """Numbers, each in one group, which are joined."""

    def __init__(self, count: int) -> None:
        self._first = list(range(count))

    def join(self, members: int) -> None:
        """Make one group of those of `members`, a bit for each."""
        firsts = {self._first[number] for number in numbers(members)}
        if len(firsts) > 1:
            first = min(firsts)
            self._first = [first if previous in firsts else previous for previous in self._first]

    def groups(self) -> list[tuple[int, ...]]:
        """The groups, in the order of their first numbers."""
        by_first: dict[int, list[int]] = defaultdict(list)
        for number, first in enumerate(self._first):
            by_first[first].append(number)
        return [tuple(members) for members in by_first.values()]
