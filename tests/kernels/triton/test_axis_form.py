"""Rows that a tile does not hold are computed again, unless what they came from is gone."""

from __future__ import annotations

import pytest

from fusewright.ir.canonical import canonical_group, canonical_names
from fusewright.ir.parse import parse_group
from fusewright.kernels.triton import holds_rows, tile, write
from fusewright.kernels.triton.axis_form import CannotRecompute

IN_PLACE = """group g [i0<4]
  read x: f32[4, 8192]
  write y: f32[4, 8192]
  write z: f32[4, 8192]
  reuse x for y
  local e: f32[8192]
  stage over [r0<8192]
    t0 = load x[8192*i0 + r0]
    t1 = exp t0
    store e[r0] = t1
    store y[8192*i0 + r0] = t0
  stage over [r0<8192]
    t0 = load e[r0]
    store z[8192*i0 + r0] = t0
"""


def source(text: str) -> str:
    group = parse_group(text)
    names = canonical_names(group)
    return write(canonical_group(group, names), names.arguments, ()).source


def test_a_long_row_is_computed_again() -> None:
    text = source(IN_PLACE.replace("  reuse x for y\n", ""))
    assert text.count("libdevice.exp") == 1
    assert text.count("tl.load(in0") == 2


def test_a_row_whose_source_was_overwritten_is_refused() -> None:
    with pytest.raises(CannotRecompute, match="in0, which was overwritten"):
        source(IN_PLACE)


def test_a_short_row_is_held() -> None:
    text = source(IN_PLACE.replace("8192", "512"))
    assert text.count("tl.load(in0") == 1
    assert "for start" not in text


def test_a_row_that_is_read_over_another_axis_is_not_held() -> None:
    """So nothing may take over the memory that it is made from."""
    assert holds_rows(parse_group(IN_PLACE.replace("8192", "512")))
    text = IN_PLACE.replace("8192", "512").replace("z: f32[4, 512]", "z: f32[3, 4, 512]")
    first, second = text.split("    store y")
    second = second.replace("stage over [r0<512]", "stage over [r1<3, r0<512]")
    second = second.replace("store z[512*i0 + r0]", "store z[2048*r1 + 512*i0 + r0]")
    text = f"{first}    store y{second}"
    assert tile(parse_group(text)).persistent
    assert not holds_rows(parse_group(text))
    with pytest.raises(CannotRecompute, match="in0, which was overwritten"):
        source(text)


def test_rows_are_walked_when_asked() -> None:
    group = parse_group(IN_PLACE.replace("8192", "512"))
    assert tile(group).persistent
    assert not tile(group, persistent=False).persistent
    assert not tile(parse_group(IN_PLACE.replace("8192", "32768")), persistent=True).persistent
