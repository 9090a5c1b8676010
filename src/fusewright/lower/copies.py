"""Rules of operators that copy a view: the rule of the view, and a new tensor of its elements."""

from __future__ import annotations

from typing import Any

from fusewright.lower import views
from fusewright.lower.boxes import Box
from fusewright.lower.builder import Call
from fusewright.lower.rules import Rule, rule


def copying(view: Rule) -> Rule:
    """The rule that gives new tensors with the elements of the views that `view` gives."""

    def lowered(call: Call, *arguments: Any, **keywords: Any) -> Any:
        viewed = view(call, *arguments, **keywords)
        if viewed is NotImplemented:
            return viewed
        if isinstance(viewed, Box):
            return call.elementwise(lambda at: call.raw(viewed, at))
        return tuple(call.same(box, which) for which, box in enumerate(viewed))

    return lowered


def slice_to(call: Call, x: Box, dim: int, start: Any, length: Any) -> Any:
    """`length` elements of dimension `dim` from `start` on."""
    return views.slice_(call, x, dim, start)


_VIEWS: dict[str, Rule] = {
    "aten.alias_copy.default": views.alias,
    "aten.detach_copy.default": views.alias,
    "aten.diagonal_copy.default": views.diagonal,
    "aten.expand_copy.default": views.expand,
    "aten.narrow_copy.default": slice_to,
    "aten.permute_copy.default": views.permute,
    "aten.select_copy.int": views.select,
    "aten.slice_copy.Tensor": views.slice_,
    "aten.split_with_sizes_copy.default": views.split,
    "aten.squeeze_copy.default": views.squeeze,
    "aten.squeeze_copy.dim": views.squeeze,
    "aten.squeeze_copy.dims": views.squeeze,
    "aten.t_copy.default": views.transposed,
    "aten.transpose_copy.int": views.transpose,
    "aten.unbind_copy.int": views.unbind,
    "aten.unfold_copy.default": views.unfold,
    "aten.unsqueeze_copy.default": views.unsqueeze,
    "aten.view_copy.default": views.reshape,
}
"""The rule of the view, by qualified name of the copying operator."""

for _name, _view in _VIEWS.items():
    rule(_name)(copying(_view))
