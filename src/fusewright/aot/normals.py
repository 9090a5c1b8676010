"""Reads results of normalisations again from what their own gradients read.

    norm, mean, inverse = layer_norm(x, w, b)          sub = x - mean; normal = sub * inverse
    gelu_backward(tangent, norm)                ->     gelu_backward(tangent, normal * w + b)
    sub = x - mean; normal = sub * inverse             …
    …

A gradient of an activation reads the norm behind which it stands, and that of the norm reads the
deviations from the mean, or `x`: two tensors of one size, where one tells both. Not where a library
call reads the norm, which is in memory then, nor where its elements are compared, since they are
rounded otherwise the second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import fx

from fusewright.aot.functionalize import view_source
from fusewright.aot.joint import JointGraph
from fusewright.aot.partition import (
    Halves,
    is_fused,
    saved_in_place_of,
    sought_values,
)
from fusewright.containers import mapped
from fusewright.fake_rules.geometry import same_sizes

aten = torch.ops.aten

LAYER, GROUP = aten.native_layer_norm.default, aten.native_group_norm.default

_PLACES: Final[dict[Any, tuple[int, int]]] = {LAYER: (2, 3), GROUP: (1, 2)}
"""By operator: the places of weight and bias among its arguments."""


def read_normals_again(joint: JointGraph, halves: Halves) -> int:
    """Let the backward half of a joint graph compute norms from their deviations, where both would
    be saved. Changes the graph in place; gives how many there were. `halves`: of the graph as it
    was.
    """
    norms = [
        node
        for target in _PLACES
        for node in joint.graph.find_nodes(op="call_function", target=target)
        if "checkpoint" not in node.meta
    ]
    sought = sought_values(halves) if norms else set()
    return sum(_reads_again(norm, halves, sought) for norm in norms)


def _reads_again(norm: fx.Node, halves: Halves, sought: set[fx.Node]) -> bool:
    """Let backward compute the result of `norm` where it reads it; whether it does."""
    results: dict[Any, fx.Node] = {user.args[1]: user for user in norm.users}
    if len(results) != 3:
        return False
    result, mean, inverse = (results[place] for place in range(3))
    readers = [user for user in result.users if user in halves.backward]
    in_memory = any(user in halves.backward and not is_fused(user) for user in _readers(result))
    is_returned = any(user.op == "output" for user in _readers(result))
    if not readers or in_memory or is_returned or saved_in_place_of(result) in sought:
        return False
    normal = _normal(mean, inverse, halves)
    if normal is None or normal.meta["val"].dtype != mean.meta["val"].dtype:
        return False  # The statistics are rounded to less than norms are computed in.
    if norm.target is GROUP and not _is_row_major(result.meta["val"]):
        return False
    first = min(readers)
    _move_ahead(normal, first)
    again = _scaled(norm, result, normal, first)
    for reader in readers:
        reader.replace_input_with(result, again)
    return True


def _move_ahead(node: fx.Node, target: fx.Node) -> None:
    """Let a node, and what it is computed from, stand in front of another."""
    stack, moved = [node], set()
    while stack:
        later = stack.pop()
        if target < later and later not in moved:
            moved.add(later)
            stack.extend(later.all_input_nodes)
    for later in sorted(moved):
        target.prepend(later)


def _is_row_major(fake: torch.Tensor) -> bool:
    """Whether a tensor is one of known sizes."""
    return fake.is_contiguous() and all(isinstance(size, int) for size in fake.shape)


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """What reads a node, or a view of it, but views."""
    for user in node.users:
        if view_source(user) is node:
            yield from _readers(user)
        else:
            yield user


def _normal(mean: fx.Node, inverse: fx.Node, halves: Halves) -> fx.Node | None:
    """The node of the backward half that is (x - mean) * inverse."""
    means = set(_shown(mean))
    for factor in _shown(inverse):
        for product in factor.users:
            if product.target is not aten.mul.Tensor or product not in halves.early:
                continue
            deviation, other = product.args
            if other is not factor or not isinstance(deviation, fx.Node):
                continue
            if deviation.target is aten.sub.Tensor and deviation.args[1] in means:
                return product
    return None


def _shown(node: fx.Node) -> Iterator[fx.Node]:
    """A node, and its views."""
    yield node
    for user in node.users:
        if view_source(user) is node:
            yield from _shown(user)


def _scaled(norm: fx.Node, result: fx.Node, normal: fx.Node, before: fx.Node) -> fx.Node:
    """`normal`, scaled and shifted as `norm` does it, laid out as its `result`; new nodes stand in
    front of `before`.
    """
    fake = result.meta["val"]

    def call(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        with before.graph.inserting_before(before):
            node = before.graph.call_function(target, args, kwargs)
        values = mapped(lambda one: one.meta["val"], args, fx.Node)
        node.meta = {**result.meta, "val": fake.fake_mode.dispatch(target, values, kwargs)}
        return node

    shape = normal.args[0].meta["val"].shape  # type: ignore[union-attr]
    value = normal
    for place, operator in zip(
        _PLACES[norm.target], (aten.mul.Tensor, aten.add.Tensor), strict=True
    ):
        parameter = norm.args[place]
        if parameter is None:
            continue
        if norm.target is GROUP:
            parameter = call(aten.view.default, parameter, [1, shape[1], shape[2], 1])
        value = call(operator, value, parameter)
    if not same_sizes(shape, fake.shape):
        value = call(aten.view.default, value, list(fake.shape))
    if value.meta["val"].dtype != fake.dtype:
        value = call(aten._to_copy.default, value, dtype=fake.dtype)
    return value
