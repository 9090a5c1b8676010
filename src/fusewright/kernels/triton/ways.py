"""The ways to do a reduction's work on a GPU among which measuring chooses: by programs that hold
their rows in registers, by such that walk over them, and in chunks, by several kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from fusewright.ir.group import Group, Reduce
from fusewright.ir.index import Symbol
from fusewright.ir.limits import Limits
from fusewright.kernels.analysis import SizeHints, rows_of
from fusewright.kernels.language import Implementation, Work
from fusewright.kernels.split_groups import in_chunks, tiles_of
from fusewright.kernels.triton.axis_form import can_be_written
from fusewright.kernels.triton.configurations import configuration_of
from fusewright.kernels.triton.early_ends import ends_early
from fusewright.kernels.triton.products import product_of
from fusewright.kernels.triton.tiling import Configuration

SHORTEST: Final = 1024
"""Rows for which it matters how they are gone through: shorter ones are held."""


def is_open(tiles: int, length: int) -> bool:
    """Whether it is unclear if a reduction of so many tiles of rows, each of so many elements,
    should be cut into chunks: tiles are hardly more than multiprocessors, or a second kernel costs
    about as much as one program takes for its rows.
    """
    return tiles <= 1024 and length >= 1 << 13 and (tiles >= 128 or length <= 1 << 17)


WriteIn = Callable[[Group, Sequence[str], Sequence[Symbol], Configuration], tuple[str, Work]]
"""Writes a group in a configuration."""


def ways_to_reduce(
    group: Group, hints: SizeHints, limits: Limits, write: WriteIn
) -> list[Implementation]:
    """The ways to do the work of a group, the one of the rule first; one alone where that is
    clear.
    """

    def way(name: str, configuration: Configuration) -> Implementation:
        def write_so(
            group: Group, tensors: Sequence[str], sizes: Sequence[Symbol]
        ) -> tuple[str, Work]:
            return write(group, tensors, sizes, configuration)

        return Implementation(name=name, write=write_so, parts=(group,))

    first = configuration_of(group)
    ways = [way(_word(first), first)]
    _, length = rows_of(group, hints)
    reduces = any(isinstance(a, Reduce) for stage in group.stages for a in stage.actions)
    is_clear = length < SHORTEST or product_of(group) is not None or ends_early(group)
    if not reduces or is_clear:
        return ways
    other = configuration_of(group, persistent=not first.tiling.persistent)
    if other.tiling.persistent != first.tiling.persistent and can_be_written(group, other.tiling):
        ways.append(way(_word(other), other))
    tiles, elements = tiles_of(group, limits, hints)
    if limits.leaves_open(tiles, elements):
        wanted = min(-(-limits.chunks // tiles), elements // limits.shortest_chunk)
        ways += in_chunks(group, max(2, wanted), partial(_write_by_rule, write))
    return ways


def _word(configuration: Configuration) -> str:
    return "held" if configuration.tiling.persistent else "walked"


def _write_by_rule(
    write: WriteIn, group: Group, tensors: Sequence[str], sizes: Sequence[Symbol]
) -> tuple[str, Work]:
    return write(group, tensors, sizes, configuration_of(group))
