"""Rules of resampling by whole ratios: repeated elements, and means of windows that do not overlap.

Other ratios and overlapping windows stay with eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusewright.ir.index import Index, integer, known_multiple
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.reductions import mean_of
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import reshaped


@rule(
    "aten.upsample_nearest1d.default",
    "aten.upsample_nearest2d.default",
    "aten.upsample_nearest3d.default",
)
def upsample_nearest(call: Call, x: Box, size: Any, *scales: float | None) -> Any:
    """Whole multiples of the size: each element is repeated. Other ratios round in floats, as eager
    does.
    """
    scale_factors = [scale for scale in scales if scale is not None]
    first = x.rank - len(call.result.size[2:])
    ratios: list[int] = []
    for old, new in zip(x.size[first:], call.result.size[first:], strict=True):
        if not (old.is_constant and new.is_constant and known_multiple(new, int(old))):
            return NotImplemented
        ratios.append(int(new) // int(old))
    if scale_factors and scale_factors != [float(ratio) for ratio in ratios]:
        return NotImplemented

    def element(at: Position) -> Scalar:
        inner = (index // ratio for index, ratio in zip(at[first:], ratios, strict=True))
        return call.raw(x, (*at[:first], *inner))

    return call.elementwise(element)


@rule("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_average(call: Call, x: Box, size: Sequence[Any]) -> Any:
    """A mean over each window, where the windows divide the input evenly."""
    if any(extent == 0 for extent in x.size):
        return NotImplemented
    spatial = len(size)
    split: list[Index] = list(x.size[: x.rank - spatial])
    gathered: list[int] = []
    for old, new in zip(x.size[-spatial:], call.result.size[-spatial:], strict=True):
        if not (old.is_constant and new.is_constant and known_multiple(old, int(new))):
            return NotImplemented
        split += [new, old // new]
        gathered.append(len(split) - 1)
    windows = reshaped(call, x, tuple(split))
    computed = call.result.dtype.compute
    mean = mean_of(call, tuple(split), gathered, lambda at: call.read(windows, at, computed))

    def element(at: Position) -> Scalar:
        place = list(at[: x.rank - spatial])
        for index in at[-spatial:]:
            place += [index, integer(0)]
        return call.read(mean, tuple(place))

    return call.elementwise(element)
