"""What `torch.export.Dim` says of a dimension. Seen in torch 2.11 to 2.15."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple


class Said(NamedTuple):
    """What an object of `torch.export` says of a dimension."""

    kind: str
    """`DYNAMIC`, `AUTO` or `STATIC`; `DERIVED` for one that is computed from others."""

    name: str | None
    minimum: int | None
    maximum: int | None


def said_of_dimension(said: Any) -> Said | None:
    """What a `Dim`, or `Dim.DYNAMIC` and the like, says; None for any other object. Who has one has
    imported `torch.export`, which takes a while.
    """
    shapes: Any = sys.modules.get("torch.export.dynamic_shapes")
    if shapes is None:
        return None
    if isinstance(said, shapes._DimHint):
        return Said(said.type.name, None, said.min, said.max)
    if not isinstance(said, shapes.Dim):
        return None
    if type(said) is not shapes.Dim:
        return Said("DERIVED", None, None, None)
    limit = sys.maxsize  # what torch writes for no limit
    maximum = said.max if isinstance(said.max, int) and said.max < limit else None
    return Said("DYNAMIC", said.__name__, said.min or None, maximum)
