"""Leaves out masks of attention that mask nothing.

    ge = aten.ge(arange(8)[:, None], 0)                  attention(q, k, v)
    attention(q, k, v, attn_mask=ge.expand(8, 8))   ->

Models make such a mask while they are compiled, where the one that they are given cannot be looked
at; eager execution of the same model has none. Torch's fused kernels for a GPU take few masks, and
none that is the same along a row: without a kernel, scores of all pairs are kept for backward. What
a mask holds is told by bounds of the integers that it is computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, fx

from fusewright import torch_compat
from fusewright.aot.functionalize import shown_memory
from fusewright.fake_rules.geometry import known_equal
from fusewright.ir import intervals
from fusewright.ir.intervals import Interval
from fusewright.symbolic.nodes import index_of
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten

ATTENTION: Final = torch.nn.functional.scaled_dot_product_attention
_PARAMETERS: Final = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Its parameters that may be given by their places."""

_INTEGERS: Final = frozenset({torch.int64, torch.bool})
"""Types whose numbers are bounded; others may be too narrow for their results."""

_UNKNOWN: Final = None, None
_EITHER: Final = 0, 1
_TRUE: Final = 1, 1


def without_full_mask(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    node_of: Callable[[Tensor], Any],
    *,
    draws_freely: bool,
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments of a call of `ATTENTION`, without a mask that holds everywhere and fits the
    other arguments. `node_of`: the node of a tensor in the graph that is recorded. `draws_freely`:
    whether dropout on a GPU may be another kernel's than in eager execution.
    """
    given = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
    mask, query = given.get("attn_mask"), given.get("query")
    if not (isinstance(mask, Tensor) and mask.dtype == torch.bool) or given.get("is_causal"):
        return args, kwargs
    keeps_draws = not draws_freely and mask.device.type != "cpu" and given.get("dropout_p")
    if keeps_draws or not _fits(mask, query, given.get("key")) or bounds(node_of(mask)) != _TRUE:
        return args, kwargs
    return (), {**given, "attn_mask": None}


def _fits(mask: Tensor, query: Any, key: Any) -> bool:
    """Whether a mask is known to be there for these, and to make the result no larger."""
    if not all(isinstance(one, Tensor) and one.device == mask.device for one in (query, key)):
        return False
    if min(mask.dim(), key.dim()) < 2 or mask.dim() > query.dim():
        return False
    scores = (*query.shape[:-1], key.shape[-2])
    pairs = zip(reversed(mask.shape), reversed(scores), strict=False)
    return all(known_equal(size, 1) or known_equal(size, whole) for size, whole in pairs)


# -- bounds ----------------------------------------------------------------------------------------


def bounds(node: Any) -> Interval:
    """Bounds of all elements of an integer tensor in a graph that may write to memory, of a
    symbolic integer there, or of an integer; true is 1.
    """
    found = _Bounds()
    interval = found.of(node)
    return _UNKNOWN if found.owners and _is_written(found.owners) else interval


def _is_written(owners: set[fx.Node]) -> bool:
    """Whether the graph writes to memory of one of these."""
    graph = next(iter(owners)).graph
    writes = graph.find_nodes(op="call_function", target=aten.copy_.default)
    return any(shown_memory(write.args[0]) in owners for write in writes)


class _Bounds:
    """Finds bounds as if nothing was written to, and notes what memory that is said of."""

    def __init__(self) -> None:
        self.owners: set[fx.Node] = set()
        self._known: dict[fx.Node, Interval] = {}

    def of(self, value: Any) -> Interval:
        if isinstance(value, int):
            return int(value), int(value)
        if not isinstance(value, fx.Node):
            return _UNKNOWN
        if value not in self._known:
            self._known[value] = self._of_node(value)
        return self._known[value]

    def _of_node(self, node: fx.Node) -> Interval:
        fake = node.meta.get("val")
        if isinstance(fake, torch.SymInt):
            return index_of(fake).bounds()
        if not isinstance(fake, Tensor) or fake.dtype not in _INTEGERS:
            return _UNKNOWN
        target: Any = node.target
        if not isinstance(target, OpOverload) or target in _OTHER_ELEMENTS:
            return _UNKNOWN
        if torch_compat.is_view_operator(target):
            return self.of(node.args[0])
        self.owners.add(shown_memory(node))
        interval = self._of_result(node)
        return _as_condition(interval) if fake.dtype == torch.bool else _in_type(interval)

    def _of_result(self, node: fx.Node) -> Interval:
        """Bounds of what an operator computes, before it is stored."""
        if node.target in _FILLED:
            number = _FILLED[node.target]
            return self.of(node.args[1] if number is None else number)
        rule = _RULES.get(node.target)
        if rule is None or node.kwargs.get("alpha", 1) != 1:
            return _UNKNOWN
        return rule(*map(self.of, node.args))


def _as_condition(interval: Interval) -> Interval:
    """Bounds of whether a number is none but 0."""
    if interval == (0, 0):
        return interval
    least, most = interval
    return _TRUE if (least or 0) > 0 or (most or 0) < 0 else _EITHER


def _in_type(interval: Interval) -> Interval:
    """The bounds where 64 bits hold them."""
    fits = all(end is None or -(2**63) <= end < 2**63 for end in interval)
    return interval if fits else _UNKNOWN


_OTHER_ELEMENTS: Final = frozenset(
    {aten.as_strided.default, aten.view.dtype, aten._neg_view.default}
)
"""Views that may show what their argument does not."""

_FILLED: Final[Mapping[Any, int | None]] = {
    aten.full.default: None,
    aten.ones.default: 1,
    aten.new_ones.default: 1,
    aten.zeros.default: 0,
    aten.new_zeros.default: 0,
}
"""What fills results; None: the second argument."""


def _range(start: Interval, end: Interval, step: Interval = _TRUE) -> Interval:
    """Numbers from `start` on, up to `end`, which is left out."""
    if step[0] is None or step[0] <= 0:
        return _UNKNOWN
    return start[0], intervals.add(end, (-1, -1))[1]


def _at_least(left: Interval, right: Interval) -> Interval:
    (least, most), (lowest, highest) = left, right
    if least is not None and highest is not None and least >= highest:
        return _TRUE
    return (0, 0) if most is not None and lowest is not None and most < lowest else _EITHER


def _greater(left: Interval, right: Interval) -> Interval:
    return _at_least(left, intervals.add(right, _TRUE))


def _reversed(rule: Callable[[Interval, Interval], Interval]) -> Any:
    return lambda left, right: rule(right, left)


def _both(left: Interval, right: Interval) -> Interval:
    """Bits of both, of what is true or false."""
    return intervals.minimum(left, right) if _are_conditions(left, right) else _UNKNOWN


def _any(left: Interval, right: Interval) -> Interval:
    return intervals.maximum(left, right) if _are_conditions(left, right) else _UNKNOWN


def _are_conditions(*operands: Interval) -> bool:
    return all(
        least is not None and most is not None and least >= 0 and most <= 1
        for least, most in operands
    )


_RULES: Final[Mapping[Any, Callable[..., Interval]]] = {
    aten.arange.start_step: _range,
    aten._to_copy.default: lambda interval: interval,
    aten.clone.default: lambda interval: interval,
    aten.add.Tensor: intervals.add,
    aten.sub.Tensor: lambda left, right: intervals.add(left, intervals.multiply((-1, -1), right)),
    aten.bitwise_and.Tensor: _both,
    aten.bitwise_or.Tensor: _any,
    **{
        overload: rule
        for packet, rule in (
            (aten.ge, _at_least),
            (aten.gt, _greater),
            (aten.le, _reversed(_at_least)),
            (aten.lt, _reversed(_greater)),
        )
        for overload in (packet.Scalar, packet.Tensor)
    },
}
"""By operator: bounds of its results from those of its arguments."""
