"""The tiles, warps and stages that tuning tries for a group: around what `tile` chooses by rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from fusewright.ir.group import Group
from fusewright.ir.kernel import STAGES
from fusewright.kernels.triton.in_flight import crowded_axis, elements_a_thread
from fusewright.kernels.triton.products import product_configurations, product_of
from fusewright.kernels.triton.tiling import (
    LONGEST_HELD,
    Configuration,
    TileAxis,
    Tiling,
    tile,
    warps_for,
)
from fusewright.records import replace
from fusewright.runtime.multiprocessors import MOST_WARPS

LARGEST_TILE: Final = LONGEST_HELD
"""Elements of the largest tile that is tried."""

MOST_TRIED: Final = 16
"""Configurations of one group."""

WIDTHS: Final = ((512, 2), (1024, 8), (2048, 4), (2048, 8), (4096, 8), (4096, 16))
"""Elements and warps of pointwise tiles of one axis."""

SQUARES: Final = ((16, 64), (64, 16), (32, 64), (64, 64), (16, 16), (8, 128))
"""Blocks of pointwise tiles of two axes, the inner axis last."""

HELD_ROWS: Final = (1, 2, 4, 8, 16)
"""Rows of a tile that holds them whole."""

WALKED: Final = (
    (1, 1024),
    (1, 2048),
    (1, 4096),
    (1, 8192),
    (4, 1024),
    (16, 256),
    (64, 64),
    (128, 32),
)
"""Blocks of a tile that walks over its rows, rows first."""


def configuration_of(group: Group, persistent: bool | None = None) -> Configuration:
    """The configuration of a group that is chosen by rule. `persistent` overrides a choice where it
    can.
    """
    product = product_of(group)
    if product is not None:
        return next(product_configurations(group, product))
    tiling = tile(group, persistent)
    while True:
        warps = warps_for(tiling.elements, elements_a_thread(group, tiling))
        crowded = crowded_axis(group, tiling, warps)
        if crowded is None:
            return Configuration(tiling=tiling, warps=warps, stages=STAGES)
        tiling = with_blocks(tiling, {crowded.name: crowded.block // 2})


def configurations(group: Group, rounds: bool = False) -> Iterator[Configuration]:
    """The configurations that tuning tries, that of the rule first; each once. `rounds`: factors of
    products may be rounded to TF32.
    """
    first = configuration_of(group)
    product = product_of(group)
    if product is None:
        others = _around(group, first)
    else:
        others = product_configurations(group, product, rounds)
    tried = {first.words: first}
    for configuration in others:
        tried.setdefault(configuration.words, configuration)
    yield from islice(tried.values(), MOST_TRIED)


def _around(group: Group, first: Configuration) -> Iterator[Configuration]:
    tiling = first.tiling
    if any(axis is not None for axis in tiling.inner):
        yield from _of_rows(group, first)
        return
    *_, last = tiling.outer
    if len(tiling.outer) == 1:
        for width, warps in WIDTHS:
            yield replace(first, tiling=with_blocks(tiling, {last.name: width}), warps=warps)
    elif len(tiling.outer) == 2:
        across = tiling.outer[0]
        for rows, columns in SQUARES:
            blocks = {across.name: rows, last.name: columns}
            yield replace(first, tiling=with_blocks(tiling, blocks))
    for warps in (first.warps // 2, 2 * first.warps):
        if 1 <= warps <= MOST_WARPS:
            yield replace(first, warps=warps)


def _of_rows(group: Group, first: Configuration) -> Iterator[Configuration]:
    """Rows held whole and rows walked over, each with several blocks and numbers of warps."""
    held, walked = tile(group, persistent=True), tile(group, persistent=False)
    (x,) = held.outer
    if held.persistent:
        length = max(axis.block for axis in held.inner if axis is not None)
        for rows in HELD_ROWS:
            if rows * length <= LARGEST_TILE:
                yield from _with_warps(first, with_blocks(held, {x.name: rows}))
    if not walked.persistent:
        names = {axis.name for axis in walked.inner if axis is not None}
        for rows, block in WALKED:
            blocks = {x.name: rows, **dict.fromkeys(names, block)}
            yield from _with_warps(first, with_blocks(walked, blocks))


def _with_warps(first: Configuration, tiling: Tiling) -> Iterator[Configuration]:
    """A tiling with as many warps as leave a thread eight elements, or sixteen."""
    for count in (16, 8):
        yield replace(first, tiling=tiling, warps=warps_for(tiling.elements, count))


def with_blocks(tiling: Tiling, blocks: Mapping[str, int]) -> Tiling:
    """A tiling with other blocks, by name of the axis; no block is larger than its axis needs."""

    def changed(axis: TileAxis | None) -> TileAxis | None:
        if axis is None or axis.name not in blocks:
            return axis
        extent = axis.extent
        most = 1 << max(int(extent) - 1, 0).bit_length() if extent.is_constant else 1 << 20
        return replace(axis, block=min(blocks[axis.name], most))

    return replace(
        tiling,
        outer=tuple(axis for axis in map(changed, tiling.outer) if axis is not None),
        inner=tuple(map(changed, tiling.inner)),
    )
