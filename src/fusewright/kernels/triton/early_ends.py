"""Where rows end early: reductions to which nothing is added from a place on that memory tells.

    sum over r < 512 of (r < count[x] ? rows[first[x] + r] : 0)

The mask keeps what lies behind that place from being read, but blocks of it would still take turns:
a loop ends at the last place of the rows of its tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fusewright.ir.group import Action, Group, Reduce
from fusewright.ir.index import Symbol
from fusewright.ir.neutral import NEUTRAL_ELEMENTS, neutral
from fusewright.ir.value import Apply, IndexValue, Load, Masked, Random, Value, postorder

WIDEST: Final = 512
"""Rows beside each other in a tile at most."""

BLOCK: Final = 4
"""Elements of rows in a block: rows may be short."""


def early_ends(actions: Sequence[Action], inner: Symbol) -> tuple[Value, ...]:
    """Values, the same all along the loop `inner`, from the greatest of which on a stage does
    nothing; none where it may do something up to the end of its rows.
    """
    ends = [_end(action, inner) for action in actions]
    known = [end for end in ends if end is not None]
    return tuple(dict.fromkeys(known)) if len(known) == len(ends) else ()


def _end(action: Action, inner: Symbol) -> Value | None:
    """The value that `inner` has to be below for anything to be gathered."""
    if not isinstance(action, Reduce) or action.kind not in NEUTRAL_ELEMENTS:
        return None
    match action.value:
        case Masked(
            mask=Apply(operation="lt", arguments=(IndexValue(index=place), end)),
            otherwise=otherwise,
            dtype=dtype,
        ) if place == inner.index and otherwise.value == neutral(action.kind, dtype):
            return None if _varies_along(end, inner) else end
    return None


def _varies_along(value: Value, inner: Symbol) -> bool:
    return any(
        inner in (node.position if isinstance(node, Random) else node.index).free()
        for node in postorder((value,))
        if isinstance(node, Load | IndexValue | Random)
    )


def ends_early(group: Group) -> bool:
    """Whether the rows of some stage end where memory tells."""
    return any(
        len(stage.inner) == 1
        and any(_is_loaded(end) for end in early_ends(stage.actions, stage.inner[0]))
        for stage in group.stages
    )


def _is_loaded(value: Value) -> bool:
    return any(isinstance(node, Load) for node in postorder((value,)))
