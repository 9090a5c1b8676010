"""Rules of operators that copy a view: the rule of the view, and a new tensor of its elements."""

from __future__ import annotations

from typing import Any

from fusewright.lower import views
from fusewright.lower.boxes import Box
from fusewright.lower.builder import Call
from fusewright.lower.rules import RULES, Rule, rule
from fusewright.operators import copy_of_view, facts


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


_RULES: dict[str, Rule] = {
    **{name: RULES[name] for name in RULES if facts(name).is_view},
    "aten.alias.default": views.alias,
    "aten.detach.default": views.alias,
    "aten.narrow.default": slice_to,
    "aten.split_with_sizes.default": views.split,
    "aten.unbind.int": views.unbind,
}
"""The rules of views, with those that need none where they are views: these are followed before
lowering, or made of others.
"""

for _view, _rule in _RULES.items():
    _copy = copy_of_view(_view)
    if _copy is not None:
        rule(str(_copy))(copying(_rule))
