"""Stages whose own loops go in squares against the lanes: loads and stores along them are turned in
registers, in whole squares, and one by one in what is left of the loop and of the lanes.
"""

from __future__ import annotations

import pytest
import torch

from fusewright.ir.dtype import BY_TEXT
from fusewright.ir.parse import parse_group
from fusewright.kernels.llvm.tiles import squares_of
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.memory_checks import MemoryChecks
from tests.kernels.llvm.harness import build

WIDTHS = ["auto", "avx2"]
SIZES = [(33, 45), (64, 128), (70, 15), (7, 64)]
"""Channels, which stages loop over, and pixels, which are lanes."""

CHECKS = MemoryChecks(guard_pages="both", garbage=True)


def centred(channels: str, pixels: str, dtype: str = "f32", declared: str = "") -> str:
    """x of channels by pixels less its mean over channels, written as pixels by channels."""
    return f"""group centred [i0<2, i1<{pixels}]{declared}
  read x: {dtype}[2, {channels}, {pixels}]
  write y: {dtype}[2, {pixels}, {channels}]
  local m: {dtype}
  stage over [r0<{channels}]
    t0 = load x[{channels}*{pixels}*i0 + {pixels}*r0 + i1]
    reduce m = max t0
  stage over [r0<{channels}]
    t1 = load x[{channels}*{pixels}*i0 + {pixels}*r0 + i1]
    t2 = load m[0]
    t3 = sub t1, t2
    store y[{channels}*{pixels}*i0 + {channels}*i1 + r0] = t3
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f32", "i64", "u8"])
def test_stores_of_squares(dtype: str, width: str) -> None:
    torch_type = getattr(torch, BY_TEXT[dtype].torch_name)
    for channels, pixels in SIZES:
        kernel = build(centred(str(channels), str(pixels), dtype), cpu_target(width), CHECKS)
        x = (torch.arange(2.0 * channels * pixels) % 101).to(torch_type)
        x = x.view(2, channels, pixels)
        y = torch.empty(2, pixels, channels, dtype=torch_type)
        kernel({"x": x, "y": y})
        assert torch.equal(y, (x - x.amax(1, keepdim=True)).transpose(1, 2)), (channels, pixels)
        lanes = cpu_target(width).lanes(64 if dtype == "i64" else 32)
        assert ("@transpose." in kernel.source) == (1 < lanes <= min(channels, pixels))


@pytest.mark.parametrize("width", WIDTHS)
def test_sizes_that_are_known_in_the_call(width: str) -> None:
    declared = "\n  size s0 in [2, 1000]\n  size s1 in [2, 1000]"
    kernel = build(centred("s0", "s1", declared=declared), cpu_target(width), CHECKS)
    for channels, pixels in SIZES:
        x = torch.randn(2, channels, pixels)
        y = torch.empty(2, pixels, channels)
        kernel({"x": x, "y": y}, s0=channels, s1=pixels)
        assert torch.equal(y, (x - x.amax(1, keepdim=True)).transpose(1, 2)), (channels, pixels)


@pytest.mark.parametrize("width", WIDTHS)
def test_sums_of_products_along_squares(width: str) -> None:
    """The gradient of a scale: one operand by rows of channels, the other by rows of pixels. A sum
    is so long that it is taken in runs, which are cut where squares end.
    """
    for channels, pixels in [(16, 1000), (33, 96), (64, 5), (70, 1024)]:
        text = f"""group scale [i0<{channels}]
  read g: f32[3, {pixels}, {channels}]
  read x: f32[3, {channels}, {pixels}]
  write y: f32[{channels}]
  local m: f32
  stage over [r0<3, r1<{pixels}]
    t0 = load g[{pixels * channels}*r0 + {channels}*r1 + i0]
    t1 = load x[{pixels * channels}*r0 + {pixels}*i0 + r1]
    t2 = mul t0, t1
    reduce m = sum t2
  stage
    t3 = load m[0]
    store y[i0] = t3
"""
        g, x = torch.randn(3, pixels, channels), torch.randn(3, channels, pixels)
        y = torch.empty(channels)
        build(text, cpu_target(width), CHECKS)({"g": g, "x": x, "y": y})
        expected = (g.double() * x.double().transpose(1, 2)).sum((0, 1))
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-4)


def test_where_a_result_follows_its_operand_in_memory() -> None:
    """What is read by squares may lie where results are written, at the same points."""
    x = torch.randn(2, 40, 50)
    expected = x * 2 + x.amax(2, keepdim=True)
    text = """group doubled [i0<2, i1<40]
  read x: f32[2, 40, 50]
  write y: f32[2, 40, 50]
  local m: f32
  stage over [r0<50]
    t0 = load x[2000*i0 + 50*i1 + r0]
    reduce m = max t0
  stage over [r0<50]
    t1 = load x[2000*i0 + 50*i1 + r0]
    t2 = mul t1, 2.0
    t3 = load m[0]
    t4 = add t2, t3
    store y[2000*i0 + 50*i1 + r0] = t4
"""
    group = parse_group(text)
    assert squares_of(group.stages[1], group.outer[1], 16) is not None
    build(text)({"x": x, "y": x})
    assert torch.equal(x, expected)


def test_what_a_stage_reads_of_its_own_results_goes_in_no_squares() -> None:
    text = """group running [i0<40]
  write y: f32[40, 50]
  stage over [r0<50]
    t0 = load y[50*i0 + r0]
    t1 = add t0, 1.0
    store y[50*i0 + r0] = t1
"""
    group = parse_group(text)
    assert squares_of(group.stages[0], group.outer[0], 16) is None
