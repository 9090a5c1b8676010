"""Golden tests: a program in; out, for each of its kernels on a GPU, the blocks along its axes, the
elements that a thread has, and how many blocks its loop loads ahead.
"""

from __future__ import annotations

from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.group import Group
from fusewright.ir.parse import parse_program
from fusewright.kernels.triton import LIMITS, configuration_of
from fusewright.kernels.triton.in_flight import blocks_ahead
from fusewright.schedule import schedule
from tests.golden import golden


@golden("cases/in_flight.txt")
def test_tiles(text: str) -> str:
    works = schedule(parse_program(text), CompileContext(), lambda device: LIMITS).works
    return "\n".join(described(group) for group in works if isinstance(group, Group))


def described(group: Group) -> str:
    own = canonical_group(group, canonical_names(group))
    configuration = configuration_of(own)
    tiling = configuration.tiling
    blocks = " x ".join(str(axis.block) for axis in tiling.axes)
    elements = tiling.elements / (32 * configuration.warps)
    return f"{group.name}: {blocks}, {elements:g} a thread, {blocks_ahead(own, tiling)} ahead"
