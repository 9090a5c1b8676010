"""Golden tests: a program in; out, for each of its kernels on a GPU, the blocks along its axes, the
elements that a thread has, and how many blocks its loop loads ahead.
"""

from __future__ import annotations

import pytest

from fusewright.context import CompileContext
from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.group import Group
from fusewright.ir.parse import parse_program
from fusewright.kernels.triton import LIMITS, configuration_of
from fusewright.kernels.triton.in_flight import blocks_ahead
from fusewright.schedule import schedule
from tests.golden import golden
from tests.gpu.traced_programs import texts


@golden("cases/in_flight.txt")
def test_tiles(text: str) -> str:
    works = schedule(parse_program(text), CompileContext(), lambda device: LIMITS).works
    return "\n".join(described(group) for group in works if isinstance(group, Group))


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("layer_norm_backward", "1 x 2048, 16 a thread, 2 ahead"),
        ("embedding_position_norm_backward", "1 x 2048, 16 a thread, 2 ahead"),
        ("bias_gelu_residual_layer_norm_backward", "1 x 2048, 8 a thread, 3 ahead"),
        ("rms_norm_rotary_backward", "16 x 64, 4 a thread, 3 ahead"),
    ],
)
def test_stripes_leave_registers_for_as_many_programs_as_run_at_once(name: str, tile: str) -> None:
    """Four programs of four warps share a multiprocessor, or two of eight."""
    text = dict(texts(["patterns"]))[name]
    works = schedule(parse_program(text), CompileContext(), lambda device: LIMITS).works
    (group,) = (work for work in works if isinstance(work, Group) and work.walked)
    assert described(group).endswith(f": {tile}")


def described(group: Group) -> str:
    own = canonical_group(group, canonical_names(group))
    configuration = configuration_of(own)
    tiling = configuration.tiling
    blocks = " x ".join(str(axis.block) for axis in tiling.axes)
    elements = tiling.elements / (32 * configuration.warps)
    return f"{group.name}: {blocks}, {elements:g} a thread, {blocks_ahead(own, tiling)} ahead"
