"""Loads some elements apart, and loops that are cut where a condition on them changes."""

from __future__ import annotations

import pytest
import torch

from fusewright.ir.dtype import BY_TEXT
from fusewright.ir.parse import parse_group
from fusewright.kernels.analysis import stage_values
from fusewright.kernels.llvm.conditions import middle
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.memory_checks import MemoryChecks
from tests.kernels.llvm.harness import build, write_group

WIDTHS = ["auto", "avx2", "scalar"]
LENGTHS = [1, 7, 16, 17, 33, 100]
CHECKS = MemoryChecks(guard_pages="both", garbage=True)


def every(step: int, length: int, dtype: str = "f32") -> str:
    """y[i] = x[step * i], of five rows."""
    last = step * (length - 1) + 1
    return f"""group every [i0<5, i1<{length}]
  read x: {dtype}[5, {last}]
  write y: {dtype}[5, {length}]
  stage
    t0 = load x[{last}*i0 + {step}*i1]
    store y[{length}*i0 + i1] = t0
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f32", "i8", "bf16", "i64"])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_every_so_many_elements(step: int, dtype: str, width: str) -> None:
    for length in LENGTHS:
        kernel = build(every(step, length, dtype), cpu_target(width), CHECKS)
        torch_type = getattr(torch, BY_TEXT[dtype].torch_name)
        x = (torch.arange(5 * (step * (length - 1) + 1)) % 100).to(torch_type).view(5, -1)
        y = torch.empty(5, length, dtype=torch_type)
        kernel({"x": x, "y": y})
        assert torch.equal(y, x[:, ::step])


def windows(step: int, before: int, length: int, columns: int) -> str:
    """y[i] = x[step * i - before], or 9 outside of x."""
    index = f"{step}*i1 - {before}"
    return f"""group windows [i0<3, i1<{length}]
  read x: f32[3, {columns}]
  write y: f32[3, {length}]
  stage
    t0 = index {index}: i64
    t1 = ge t0, 0
    t2 = lt t0, {columns}
    t3 = bitwise_and t1, t2
    t4 = load x[{columns}*i0 + {index}]
    t5 = masked t3, t4, 9.0
    store y[{length}*i0 + i1] = t5
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_windows_at_the_edges(step: int, width: str) -> None:
    for length in LENGTHS:
        for before in (0, 1, 40):
            columns = max(1, step * (length - 1) - before)
            text = windows(step, before, length, columns)
            kernel = build(text, cpu_target(width), CHECKS)
            x = torch.randn(3, columns, generator=torch.Generator().manual_seed(length))
            y = torch.empty(3, length)
            kernel({"x": x, "y": y})
            places = step * torch.arange(length) - before
            inside = (places >= 0) & (places < columns)
            expected = torch.full((3, length), 9.0)
            expected[:, inside] = x[:, places[inside]]
            assert torch.equal(y, expected), (length, before)


@pytest.mark.parametrize(
    ("before", "length", "columns", "part"),
    [
        (0, 56, 200, None),  # all are inside
        (1, 56, 200, (16, 56)),
        (1, 112, 110, (16, 96)),
        (40, 112, 200, (48, 112)),
        (1, 17, 200, None),  # no whole vector is left
        (0, 112, 111, (0, 96)),
    ],
)
def test_the_middle_of_a_loop(
    before: int, length: int, columns: int, part: tuple[int, int] | None
) -> None:
    group = parse_group(windows(1, before, length, columns))
    (stage,) = group.stages
    assert middle([*stage_values(stage)], group.outer[1], 16) == part


def test_the_middle_is_free_of_masks_and_gathers() -> None:
    source, _, _ = write_group(windows(2, 1, 64, 128), cpu_target("avx512"))
    assert "masked.gather" not in source
    assert source.count("masked.load") == 1  # the first vector's first half
    loop = source[source.rindex("phi i64") :]
    assert "select" not in loop and "icmp sge" not in loop


PATTERNS = {
    "backwards": ("{n} - i1 - 1", lambda i, n: n - i - 1),
    "twice": ("i1 // 2", lambda i, n: i // 2),
    "twice, one on": ("(i1 + 1) // 2", lambda i, n: (i + 1) // 2),
    "four times": ("(i1 + 3) // 4", lambda i, n: (i + 3) // 4),
    "pairs turned": ("2*(i1 // 2) - (i1 % 2) + 1", lambda i, n: i // 2 * 2 + 1 - i % 2),
    "pairs apart": ("4*(i1 // 2) + (i1 % 2)", lambda i, n: i // 2 * 4 + i % 2),
    "thirds": ("i1 // 3", lambda i, n: i // 3),  # no vector is a whole number of these
    "one of two": ("i1 % 2", lambda i, n: i % 2),
}


def picked(
    text: str, width: str, columns: int, size: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """x, three rows of so many columns, and y, of this size, which a kernel computes from it."""
    kernel = build(text, cpu_target(width), CHECKS)
    x = torch.arange(3.0 * columns).view(3, columns)
    y = torch.empty(size)
    kernel({"x": x, "y": y})
    return x, y


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str, width: str) -> None:
    index, place = PATTERNS[name]
    for length in LENGTHS:
        places = place(torch.arange(length), length)
        columns = int(places.max()) + 1
        text = f"""group pattern [i0<3, i1<{length}]
  read x: f32[3, {columns}]
  write y: f32[3, {length}]
  stage
    t0 = load x[{columns}*i0 + {index.format(n=length)}]
    store y[{length}*i0 + i1] = t0
"""
        x, y = picked(text, width, columns, (3, length))
        assert torch.equal(y, x[:, places]), length


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_of_rows_that_may_be_outside(name: str, width: str) -> None:
    index, place = PATTERNS[name]
    for length in LENGTHS:
        places = place(torch.arange(length), length)
        columns = int(places.max()) + 1
        text = f"""group pattern [i0<5, i1<{length}]
  read x: f32[3, {columns}]
  write y: f32[5, {length}]
  stage
    t0 = index i0 - 1: i64
    t1 = ge t0, 0
    t2 = lt t0, 3
    t3 = bitwise_and t1, t2
    t4 = load x[{columns}*i0 - {columns} + {index.format(n=length)}]
    t5 = masked t3, t4, 7.0
    store y[{length}*i0 + i1] = t5
"""
        x, y = picked(text, width, columns, (5, length))
        expected = torch.full((5, length), 7.0)
        expected[1:4] = x[:, places]
        assert torch.equal(y, expected), length


def test_conditions_that_recur_are_constants() -> None:
    text = """group interleave [i0<3, i1<64]
  read x: f32[3, 32]
  write y: f32[3, 64]
  stage
    t0 = index i1 % 2: i64
    t1 = lt t0, 1
    t2 = load x[32*i0 + i1 // 2]
    t3 = masked t1, t2, 7.0
    store y[64*i0 + i1] = t3
"""
    source, _, _ = write_group(text, cpu_target("avx512"))
    assert "icmp slt <16" not in source and "masked.gather" not in source
    x, y = torch.randn(3, 32), torch.empty(3, 64)
    build(text, checks=CHECKS)({"x": x, "y": y})
    assert torch.equal(y, torch.stack((x, torch.full_like(x, 7.0)), -1).flatten(1))


def test_a_sum_of_columns_is_cut_at_whole_steps() -> None:
    """Steps of four vectors, in which i1 // 64 is one number because they begin at multiples."""
    text = """group sums [i0<64, i1<256]
  read x: f32[64, 9, 256]
  read w: f32[4]
  write y: f32[64, 256]
  local m: f32
  stage over [r0<9]
    t0 = index i1: i64
    t1 = ge t0, 5
    t2 = load x[2304*i0 + 256*r0 + i1]
    t3 = masked t1, t2, 0.0
    t4 = load w[i1 // 64]
    t5 = mul t3, t4
    reduce m = sum t5
  stage
    t6 = load m[0]
    store y[256*i0 + i1] = t6
"""
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(64, 9, 256, generator=generator), torch.randn(4, generator=generator)
    y = torch.empty(64, 256)
    build(text, checks=CHECKS)({"x": x, "w": w, "y": y})
    expected = (x * w.repeat_interleave(64)).sum(1)
    expected[:, :5] = 0
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("extent", [49, 64, 77, 130])
@pytest.mark.parametrize("width", ["avx2", "avx512"])
def test_a_reduction_beside_a_loop_that_is_cut(extent: int, width: str) -> None:
    """Both loop over one symbol, with steps of different widths: the reduction is not cut."""
    text = f"""group beside []
  read x: i64[{extent}]
  write y: f32[{extent}]
  local m: bool
  stage over [r0<{extent}]
    t0 = load x[r0]
    t1 = cast t0: f64
    t2 = ne t1, t1
    reduce m = all t2
  stage over [r0<{extent}]
    t0 = index r0 - 2: i64
    t1 = ge t0, 0
    t2 = load x[r0 - 2]
    t3 = cast t2: f32
    t4 = masked t1, t3, 1.0
    t5 = load m[0]
    t6 = cast t5: f32
    t7 = add t4, t6
    store y[r0] = t7
"""
    x, y = torch.arange(extent), torch.empty(extent)
    build(text, cpu_target(width), checks=CHECKS)({"x": x, "y": y})
    assert torch.equal(y, torch.cat([torch.ones(2), x[:-2].float()]))
