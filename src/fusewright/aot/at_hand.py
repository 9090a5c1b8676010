"""Operands of backward that its kernels compute from what they read anyway.

    forward:  normal = (x - mean) * inverse;  y = relu(normal)
    backward: g = where(y <= 0, 0, tangent);  dx = (g - a - normal * b) * inverse

Eager saves `y`, a result or an operand of the next layer, so that it costs no memory to save it.
But it costs as much to read it as to read `x`, which the kernels that mask the tangent read for
`normal`: they are given a `relu(normal)` of their own. The backward of a batch norm with relu then
reads five tensors in its two kernels, and not seven.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.aot.joint import JointGraph
from fusewright.aot.partition import Halves, byte_count
from fusewright.operators import is_pointwise
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten

CHEAP: Final = frozenset(
    {
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.neg.default, aten.where.self),
        *(aten.relu.default, aten.clamp.default, aten.clamp_min.default, aten.hardtanh.default),
        *(aten.leaky_relu.default, aten._to_copy.default),
    }
)
"""Operators of a few instructions an element."""

MOST_CALLS: Final = 12
"""Calls of cheap operators of large tensors that are made again at most."""

SMALL_SHARE: Final = 8
"""What has at most one part in so many of the bytes costs nothing to read."""

LEAST_BYTES: Final = 1 << 20
"""Smaller operands are in a cache, or read in no time."""

MOST_STEPS: Final = 8
"""Calls that may lie between an operand's reader and what reads the rest, in one kernel."""


def compute_what_is_at_hand(
    joint: JointGraph, halves: Halves, is_fused: Callable[[fx.Node], bool]
) -> int:
    """Let calls of the backward half read a copy of their own of a cheap value of the forward half,
    where kernels that they are part of read the one large tensor that it is made from. Changes the
    graph in place; gives how many copies were made. `is_fused`: whether a kernel of others may
    compute a node.
    """
    fused = dict.fromkeys(filter(is_fused, halves.backward))
    copies: dict[fx.Node, fx.Node] = {}
    for reader in fused:
        for value in reader.all_input_nodes:
            if value not in halves.forward or not _is_cheap(value):
                continue
            sources = _sources(value)
            if sources is None or len(sources) != 1:
                continue
            if not sources <= _read_beside(reader, value, fused, halves):
                continue
            if value not in copies:
                with joint.graph.inserting_after(value):
                    copies[value] = joint.graph.node_copy(value)
            reader.replace_input_with(value, copies[value])
    return len(copies)


def _is_cheap(node: fx.Node) -> bool:
    """Whether a node is a large float that a cheap operator gives."""
    value = node.meta.get("val")
    return (
        node.target in CHEAP
        and "checkpoint" not in node.meta
        and isinstance(value, torch.Tensor)
        and value.dtype.is_floating_point
        and byte_count(value) >= LEAST_BYTES
    )


def _sources(value: fx.Node, barrier: fx.Node | None = None) -> set[fx.Node] | None:
    """The large tensors in memory that cheap calls make a value from, and `barrier` where it is
    made from that; None: there are too many calls, or some of other operators.
    """
    least = byte_count(value.meta["val"]) // SMALL_SHARE
    sources: set[fx.Node] = set()
    calls: set[fx.Node] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if node in calls or byte_count(node.meta.get("val")) <= least:
            continue
        if node is not barrier and (node.target in CHEAP or (node is not value and _is_view(node))):
            calls.add(node)
            stack.extend(node.all_input_nodes)
        elif node is not barrier and _is_computed_on_the_way(node):
            return None
        else:
            sources.add(node)
    return sources if len(calls) <= MOST_CALLS else None


def _is_computed_on_the_way(node: fx.Node) -> bool:
    """Whether no library call or reduction gives a node, so that it need not be in memory."""
    return isinstance(node.target, OpOverload) and is_pointwise(node.target)


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and torch_compat.is_view_operator(node.target)


def _read_beside(
    reader: fx.Node, value: fx.Node, fused: Container[fx.Node], halves: Halves
) -> set[fx.Node]:
    """The tensors in memory that kernels read which also compute `reader`, but for `value`."""
    found: set[fx.Node] = set()
    for node in _following(reader, fused):
        for operand in node.all_input_nodes:
            if operand is not value and (operand in halves.forward or operand in halves.early):
                found |= _sources(operand, barrier=value) or {operand}
    return found


def _following(reader: fx.Node, fused: Container[fx.Node]) -> Iterator[fx.Node]:
    """A node and what is computed from it by few fused calls."""
    seen = {reader}
    layer = [reader]
    for _ in range(MOST_STEPS):
        yield from layer
        layer = [user for node in layer for user in node.users if user in fused]
        layer = [user for user in dict.fromkeys(layer) if user not in seen]
        seen.update(layer)
