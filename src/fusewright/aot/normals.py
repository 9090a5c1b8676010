"""Reads results of normalisations again from what their own gradients read.

    norm, mean, inverse = layer_norm(x, w, b)          sub = x - mean; normal = sub * inverse
    gelu_backward(tangent, norm)                ->     gelu_backward(tangent, normal * w + b)
    sub = x - mean; normal = sub * inverse             …
    …

A gradient of an activation reads the norm behind which it stands, and that of the norm reads the
deviations from the mean, or `x`: two tensors of one size, where one tells both. Not where a library
call reads the norm, which is in memory then, nor where its elements are compared, since they are
rounded otherwise the second time.

Some norms of half types give statistics of half types, though they compute in float32. From those
the result would not be what it was; so the norm becomes one of `x` in float32, which gives them as
they are:

    norm, mean, inverse = group_norm(x, …)    ->    wide, mean, inverse = group_norm(x.float(), …)
                                                    norm = wide.bfloat16()
"""

from __future__ import annotations

import operator
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
from fusewright.fake import FakeTensor
from fusewright.fake_rules.geometry import same_sizes
from fusewright.formulas.helpers import HALF_TYPES

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
    if normal is None or (norm.target is GROUP and not _is_row_major(result.meta["val"])):
        return False
    if mean.meta["val"].dtype != normal.meta["val"].dtype:
        norm, result = _widened(norm, results, normal.meta["val"].dtype)
        readers = [user for user in result.users if user in halves.backward]
    first = min(readers)
    _move_ahead(normal, first)
    again = _scaled(norm, result, normal, first)
    for reader in readers:
        reader.replace_input_with(result, again)
    return True


def _widened(
    norm: fx.Node, results: dict[Any, fx.Node], dtype: torch.dtype
) -> tuple[fx.Node, fx.Node]:
    """`norm` in the type that it computes in, and its result in the type that it had; where
    backward computes in that type, it reads the statistics as they are.
    """

    def converted(value: Any, to: torch.dtype) -> Any:
        if not isinstance(value, fx.Node) or not isinstance(value.meta["val"], torch.Tensor):
            return value
        return _call_before(norm, norm, aten._to_copy.default, value, dtype=to)

    wide = _call_before(norm, norm, norm.target, *(converted(one, dtype) for one in norm.args))
    rounded: dict[int, fx.Node] = {}
    for place, narrow in results.items():
        item = _call_before(narrow, norm, operator.getitem, wide, place)
        rounded[place] = converted(item, narrow.meta["val"].dtype)
        for user in list(narrow.users):
            if place and _is_widening(user):
                user.replace_all_uses_with(item)
        narrow.replace_all_uses_with(rounded[place])
    return wide, rounded[0]


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
    """A statistic, and its views, also in the type that is computed in."""
    yield node
    for user in node.users:
        if view_source(user) is node or _is_widening(user):
            yield from _shown(user)


def _is_widening(node: fx.Node) -> bool:
    """Whether a node is another of half type in the type that is computed in."""
    if node.target is not aten._to_copy.default or node.kwargs.keys() != {"dtype"}:
        return False
    (source,) = node.all_input_nodes
    return source.meta["val"].dtype in HALF_TYPES and node.meta["val"].dtype == torch.float32


def _scaled(norm: fx.Node, result: fx.Node, normal: fx.Node, before: fx.Node) -> fx.Node:
    """`normal`, scaled and shifted as `norm` does it, laid out as its `result`; new nodes stand in
    front of `before`.
    """
    fake = result.meta["val"]

    def call(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        return _call_before(result, before, target, *args, **kwargs)

    shape = normal.args[0].meta["val"].shape  # type: ignore[union-attr]
    value = normal
    for place, operation in zip(
        _PLACES[norm.target], (aten.mul.Tensor, aten.add.Tensor), strict=True
    ):
        parameter = norm.args[place]
        if parameter is None:
            continue
        if norm.target is GROUP:
            parameter = call(aten.view.default, parameter, [1, shape[1], shape[2], 1])
        value = call(operation, value, parameter)
    if not same_sizes(shape, fake.shape):
        value = call(aten.view.default, value, list(fake.shape))
    if value.meta["val"].dtype != fake.dtype:
        value = call(aten._to_copy.default, value, dtype=fake.dtype)
    return value


def _call_before(like: fx.Node, before: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A new call in front of a node, of a part of what `like` is."""
    with before.graph.inserting_before(before):
        node = before.graph.call_function(target, args, kwargs)
    values = mapped(lambda one: one.meta["val"], args, fx.Node)
    if target is operator.getitem:
        value = target(*values)
    else:
        tensor = next(one for one in values if isinstance(one, FakeTensor))
        value = tensor.fake_mode.dispatch(target, values, kwargs)
    node.meta = {**like.meta, "val": value}
    return node
