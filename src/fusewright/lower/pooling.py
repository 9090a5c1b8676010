"""Rules of pooling over small windows.

A window's elements are read one after the other in a single expression, so that neighbouring
results are computed together, in vectors:

    max_pool1d(x, 3, 2, 1)[i]  ->  max(x[2i - 1] where 2i >= 1, x[2i], x[2i + 1] where 2i + 1 < n)

Windows of more elements than `WINDOW_LIMIT`, and adaptive windows of unequal sizes stay with
eager.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product as choices
from typing import Any

from fusewright.ir import relations
from fusewright.ir.dtype import DType
from fusewright.ir.index import (
    Index,
    IndexLike,
    as_index,
    contiguous_strides,
    integer,
    known_multiple,
    product,
)
from fusewright.ir.proof import proves
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.indexing import all_of, at_least, below, within
from fusewright.lower.reductions import mean_of
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import reshaped
from fusewright.records import record

WINDOW_LIMIT = 27
"""The most elements of a window that is written out."""


@record(kw_only=True)
class Windows:
    """The windows of a pooling: for each of the last dimensions, from the outermost on, how many
    elements a window has, how far windows and elements are apart, and how far the first window
    begins before the image.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls,
        call: Call,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int] = (1,),
    ) -> Windows | None:
        """The windows of a call, from its lists of one number for all dimensions or one for each;
        None where they are not small, or their sizes vary.
        """
        spatial = 3 if "pool3d" in call.operator else 2
        numbers = [
            tuple(values) * (spatial if len(values) == 1 else 1)
            for values in (kernel, stride or kernel, padding, dilation)
        ]
        if not all(isinstance(number, int) for row in numbers for number in row):
            return None
        if math.prod(numbers[0]) > WINDOW_LIMIT:
            return None
        return cls(kernel=numbers[0], stride=numbers[1], padding=numbers[2], dilation=numbers[3])

    def extents(self, image: Box) -> tuple[Index, ...]:
        """The sizes of the dimensions that windows are over."""
        return image.size[-len(self.kernel) :]

    def origin(self, at: Position) -> Position:
        """The place of a window's first element, which may lie outside the image."""
        rows = zip(at[-len(self.kernel) :], self.stride, self.padding, strict=True)
        return tuple(index * stride - padding for index, stride, padding in rows)

    def places(self, at: Position) -> Iterator[tuple[tuple[int, ...], Position]]:
        """Each element of the window at `at`, in order: its number in each dimension, and its place
        in the image.
        """
        origin = self.origin(at)
        for steps in choices(*map(range, self.kernel)):
            rows = zip(origin, steps, self.dilation, strict=True)
            yield steps, tuple(first + step * apart for first, step, apart in rows)

    def elements(
        self, call: Call, x: Box, at: Position, otherwise: int | float
    ) -> Iterator[tuple[tuple[int, ...], Scalar]]:
        """Each element of the window at `at`: its number in each dimension, and its value, which
        outside the image is `otherwise`.
        """
        extents, front = self.extents(x), at[: -len(self.kernel)]
        for steps, place in self.places(at):
            conditions: list[Scalar] = []
            for index, extent in zip(place, extents, strict=True):
                conditions += within(call, index, 0, extent)
            value = call.stored(x, (*front, *place))
            if conditions:
                value = value.masked(all_of(call, conditions), otherwise)
            yield steps, value

    def around(
        self, call: Call, pooled: Box, at: Position
    ) -> Iterator[tuple[list[Scalar], Position]]:
        """Each window that may hold the image's element at `at`: the conditions under which it
        does, and its place in `pooled`, which has one element a window.
        """
        ends, front = self.extents(pooled), at[: -len(self.kernel)]
        inner = at[-len(self.kernel) :]
        most = [-(-k // s) for k, s in zip(self.kernel, self.stride, strict=True)]
        for steps in choices(*map(range, most)):
            conditions: list[Scalar] = []
            place = []
            for d, back in enumerate(steps):
                stride, behind = self.stride[d], inner[d] + self.padding[d]
                conditions += within(call, behind, back * stride, (ends[d] + back) * stride)
                inside = below(call, behind % stride, self.kernel[d] - back * stride)
                conditions += [] if inside is None else [inside]
                place.append(behind // stride - back)
            yield conditions, (*front, *place)


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
    call: Call,
    x: Box,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    """The largest element of each window, the last of its NaNs where there are any, and where in
    its image it lies, counted row by row.
    """
    windows = Windows.of(call, kernel, stride, padding, dilation)
    if windows is None or not x.dtype.is_float:
        return NotImplemented
    call.realise_unless_free(x)
    extents = windows.extents(x)
    strides = contiguous_strides(extents)
    dtype = _place_type(extents)

    @cache  # both results are made of it, at the same position
    def chosen(at: Position) -> tuple[Scalar, Scalar]:
        """The largest element of a window, and how far behind its first one it lies."""
        best = offset = None
        for steps, value in windows.elements(call, x, at, -math.inf):
            behind = [step * apart for step, apart in zip(steps, windows.dilation, strict=True)]
            own = call.index(_flat(behind, strides), dtype)
            if best is None or offset is None:
                best, offset = value, first_inside(at)
                continue
            is_larger = (value > best) | value.apply("isnan")
            best, offset = is_larger.where(value, best), is_larger.where(own, offset)
        assert best is not None and offset is not None
        return best, offset

    def first_inside(at: Position) -> Scalar:
        """How far behind a window's first element that one lies which is the first in the image:
        the answer where all are as small as can be.
        """
        total = call.number(0, dtype)
        rows = zip(windows.origin(at), windows.padding, windows.dilation, strides, strict=True)
        for first, before, apart, step in rows:
            for outside in range(0, before, apart):
                is_outside = at_least(call, -first, 1 + outside)
                if is_outside is not None:
                    total = total + is_outside.where(call.index(step * apart, dtype), 0)
        return total

    def position(at: Position) -> Scalar:
        origin = _flat(windows.origin(at), strides)
        return (call.index(origin, dtype) + chosen(at)[1]).cast(DType.I64)

    return call.elementwise(lambda at: chosen(at)[0]), call.elementwise(position, 1)


@rule(
    "aten.max_pool2d_with_indices_backward.default",
    "aten.max_pool3d_with_indices_backward.default",
)
def max_pool_backward(
    call: Call,
    gradient: Box,
    x: Box,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Box,
) -> Any:
    """The sum of the gradients of all windows whose largest element is this one, in eager's order.
    The indices are those of the same pooling: each lies in its window.
    """
    windows = Windows.of(call, kernel, stride, padding, dilation)
    dtype = call.result.dtype.compute
    if windows is None or call.result.device != "cpu" or not dtype.is_float:
        return NotImplemented
    if any(apart != 1 for apart in windows.dilation):
        return NotImplemented
    extents = windows.extents(x)
    strides = contiguous_strides(extents)
    place_type = _place_type(extents)
    places = call.lazy(
        indices.size,
        place_type,
        lambda at: call.read(indices, at, place_type),
        indices.storage.stride if indices.position is None else None,
    )
    for box in (gradient, places):
        call.realise_unless_free(box)

    def element(at: Position) -> Scalar:
        own = call.index(_flat(at[-len(strides) :], strides), place_type)
        total = call.number(0.0, dtype)
        for conditions, place in reversed([*windows.around(call, gradient, at)]):
            is_inside = all_of(call, conditions)
            largest = call.read(places, place, place_type).masked(is_inside, -1)
            value = call.read(gradient, place, dtype).masked(is_inside, 0.0)
            total = total + largest.apply("eq", own).where(value, 0.0)
        return total

    return call.elementwise(element)


def _place_type(extents: Sequence[Index]) -> DType:
    """The type of arithmetic on places in an image: 32 bits where they are enough."""
    elements = product(extents)
    return DType.I32 if elements.is_constant and int(elements) < 1 << 31 else DType.I64


def _flat(place: Sequence[IndexLike], strides: Sequence[Index]) -> Index:
    """Elements between the first one of an image and that at `place`."""
    total = integer(0)
    for index, stride in zip(place, strides, strict=True):
        total = total + as_index(index) * stride
    return total


@rule("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def average_pool(
    call: Call,
    x: Box,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    counts_padding: bool = True,
    divisor: int | None = None,
) -> Any:
    """The mean of each window: over its elements in the image, or also over the padding around it,
    but not over what `ceil_mode` adds behind that.
    """
    windows = Windows.of(call, kernel, stride, padding)
    dtype = call.result.dtype.compute
    if windows is None or not dtype.is_float:
        return NotImplemented
    call.realise_unless_free(x)
    count = _Count(windows, windows.extents(x), counts_padding, divisor)

    def element(at: Position) -> Scalar:
        total = call.number(0.0, dtype)
        for _, value in windows.elements(call, x, at, 0):
            total = total + value.cast(dtype)
        return total / count.at(call, at, dtype)

    return call.elementwise(element)


@rule("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def average_pool_backward(
    call: Call,
    gradient: Box,
    x: Box,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    counts_padding: bool,
    divisor: int | None,
) -> Any:
    """The sum of the gradients of all windows that an element is in, each over its count."""
    windows = Windows.of(call, kernel, stride, padding)
    dtype = call.result.dtype.compute
    if windows is None or call.result.device != "cpu" or not dtype.is_float:
        return NotImplemented
    count = _Count(windows, windows.extents(x), counts_padding, divisor)
    share = call.lazy(
        gradient.size,
        dtype,
        lambda at: call.read(gradient, at, dtype) / count.at(call, at, dtype),
        gradient.storage.stride if gradient.position is None else None,
    )
    if any(k > s for k, s in zip(windows.kernel, windows.stride, strict=True)):
        call.builder.realise(share)

    def element(at: Position) -> Scalar:
        total = call.number(0.0, dtype)
        for conditions, place in windows.around(call, share, at):
            value = call.read(share, place)
            if conditions:
                value = value.masked(all_of(call, conditions), 0.0)
            total = total + value
        return total

    return call.elementwise(element)


@record
class _Count:
    """The number that the sum of each window is divided by."""

    windows: Windows
    extents: Sequence[Index]
    """The image's sizes."""

    counts_padding: bool
    divisor: int | None

    def at(self, call: Call, at: Position, dtype: DType) -> Scalar:
        """That of the window at `at`."""
        if self.divisor is not None:
            return call.number(self.divisor, dtype)
        windows = self.windows
        total = call.number(1.0, dtype)
        rows = zip(windows.origin(at), windows.kernel, windows.padding, self.extents, strict=True)
        for first, length, beside, extent in rows:
            around = beside if self.counts_padding else 0
            own = call.number(length, dtype)
            if not proves(relations.at_least(first, -around)):
                own = own - call.index(-around - first, dtype).apply("maximum", 0.0)
            if not proves(relations.at_least(extent + around, first + length)):
                behind = call.index(first + length - extent - around, dtype)
                own = own - behind.apply("maximum", 0.0)
            total = total * own
        return total


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
