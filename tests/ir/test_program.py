"""Layouts: the memory that a tensor's elements lie in."""

from __future__ import annotations

import itertools

import pytest

from fusewright.ir.dtype import DType
from fusewright.ir.index import SizeSymbol, contiguous_strides, integer
from fusewright.ir.program import Layout

SIZES = [(), (1,), (5,), (0, 3), (2, 3), (1, 3), (3, 1, 2), (2, 0)]


def layout_of(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Layout:
    return Layout(
        dtype=DType.F32,
        size=tuple(map(integer, size)),
        stride=tuple(map(integer, stride)),
        offset=integer(offset),
    )


@pytest.mark.parametrize("offset", [0, 4])
@pytest.mark.parametrize("size", SIZES)
def test_the_span_of_a_layout_reaches_to_its_last_element(
    size: tuple[int, ...], offset: int
) -> None:
    for stride in itertools.product((0, 1, 2, 7), repeat=len(size)):
        positions = itertools.product(*map(range, size))
        places = [offset + sum(map(int.__mul__, at, stride)) for at in positions]
        assert int(layout_of(size, stride, offset).span) == max(places, default=-1) + 1


@pytest.mark.parametrize("size", [size for size in SIZES if 0 not in size])
@pytest.mark.parametrize("factor", [1, 3])
def test_the_span_of_sizes_that_vary_is_that_of_the_sizes_they_become(
    size: tuple[int, ...], factor: int
) -> None:
    symbols = [SizeSymbol(f"s{position}", 2) for position in range(len(size))]
    varying = tuple(symbol.index for symbol in symbols)
    stride = tuple(step * factor for step in contiguous_strides(varying))
    layout = Layout(dtype=DType.F32, size=varying, stride=stride)
    values = dict(zip(symbols, map(integer, size), strict=True))
    fixed = tuple(int(step.substitute(values)) for step in stride)
    assert layout.span.substitute(values) == layout_of(size, fixed, 0).span
