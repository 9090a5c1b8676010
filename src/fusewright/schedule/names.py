"""Names for groups, made of what they compute: `add_gelu`, `add_native_layer_norm`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fusewright.ir.origin import Origin
from fusewright.ir.value import Apply, Cast
from fusewright.schedule.nest import Nest

PARTS_LIMIT = 6
"""A longer name says less, not more."""

SILENT = frozenset({"clone", "view", "reshape", "permute", "expand", "transpose", "unsqueeze", "t"})
"""Operators that only move data; they give a name only where nothing else does."""


def group_name(nest: Nest, origins: Iterable[Origin]) -> str:
    """From the operators that the group comes from; without origins from the operations of its
    values.
    """
    parts = list(dict.fromkeys(_short(origin.operator) for origin in origins))
    telling = [part for part in parts if part not in SILENT]
    chosen = telling or parts or _operations(nest) or ["copy"]
    return "_".join(chosen[:PARTS_LIMIT])


def _short(operator: str) -> str:
    """`aten.native_layer_norm.default` is `native_layer_norm`, `aten._softmax.default` is
    `softmax`.
    """
    pieces = operator.split(".")
    name = pieces[1] if len(pieces) > 1 else pieces[0]
    return re.sub(r"\W", "_", name).strip("_") or "copy"


def _operations(nest: Nest) -> list[str]:
    names: dict[str, None] = {}
    for piece in nest.pieces:
        for node in nest.analysis.nodes(piece.value):
            if isinstance(node, Apply):
                names[node.operation] = None
            elif isinstance(node, Cast):
                names["cast"] = None
        if not piece.is_store:
            names[piece.kind] = None
    return list(names)
