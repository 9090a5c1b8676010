"""The dimensions that `torch.export.Dim` describes. Seen in torch 2.11 to 2.15."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple


class DimensionSpec(NamedTuple):
    """The kind and bounds of a dimension, as an object of `torch.export` describes it."""

    kind: str
    """`DYNAMIC`, `AUTO` or `STATIC`; `DERIVED` for one that is computed from others."""

    name: str | None
    minimum: int | None
    maximum: int | None


def dimension_spec(spec: Any) -> DimensionSpec | None:
    """The description by a `Dim`, or `Dim.DYNAMIC` and the like; None for any other object. A
    program that has one has imported `torch.export`, which takes a while.
    """
    shapes: Any = sys.modules.get("torch.export.dynamic_shapes")
    if shapes is None:
        return None
    if isinstance(spec, shapes._DimHint):
        return DimensionSpec(spec.type.name, None, spec.min, spec.max)
    if not isinstance(spec, shapes.Dim):
        return None
    if type(spec) is not shapes.Dim:
        return DimensionSpec("DERIVED", None, None, None)
    limit = sys.maxsize  # what torch writes for no limit
    maximum = spec.max if isinstance(spec.max, int) and spec.max < limit else None
    return DimensionSpec("DYNAMIC", spec.__name__, spec.min or None, maximum)
