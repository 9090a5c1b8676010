"""Scans beside eager: of rows and of columns, each kind and type, rows that end anywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fusewright.runtime.llvm_engine import cpu_target
from tests.kernels.llvm.harness import build
from tests.kernels.llvm.test_groups import WIDTHS

LENGTHS = [1, 16, 49, 769]

TYPES = [("auto", name) for name in ("f32", "f64", "i64", "i32", "u8")]
TYPES += [(width, name) for width in ("avx2", "scalar") for name in ("f32", "i64")]
"""Widths of vectors and types of elements."""

NAN, INFINITY = float("nan"), float("inf")

EAGER: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda x, d: x.cumsum(d, dtype=x.dtype),
    "prod": lambda x, d: x.cumprod(d, dtype=x.dtype),
    "max": lambda x, d: x.cummax(d).values,
    "min": lambda x, d: x.cummin(d).values,
    "logsumexp": lambda x, d: x.logcumsumexp(d),
}


def scan(kind: str, rows: int, columns: int, along: str, dtype: str = "f32", held: str = "") -> str:
    """Scan x[rows, columns] along its rows or its columns into y."""
    outer, inner, element = rows, columns, f"{columns}*i0 + r0"
    if along == "columns":
        outer, inner, element = columns, rows, f"{columns}*r0 + i0"
    return f"""group scan [i0<{outer}]
  read x: {dtype}[{rows}, {columns}]
  write y: {held or dtype}[{rows}, {columns}]
  stage over [r0<{inner}]
    t0 = load x[{element}]
    scan y[{element}] = {kind} t0
"""


def torch_type(name: str) -> torch.dtype:
    names = {"f32": "float32", "f64": "float64", "i64": "int64", "i32": "int32", "bf16": "bfloat16"}
    result: torch.dtype = getattr(torch, names.get(name, "uint8"))
    return result


@pytest.mark.parametrize(("width", "dtype"), TYPES)
@pytest.mark.parametrize("kind", EAGER)
@pytest.mark.parametrize("along", ["rows", "columns"])
def test_scans(kind: str, along: str, width: str, dtype: str) -> None:
    if kind == "logsumexp" and dtype[0] != "f":
        return
    generator = torch.Generator().manual_seed(0)
    for length in LENGTHS:
        shape = (7, length) if along == "rows" else (length, 37)
        if dtype[0] == "f":
            x = torch.randn(shape, generator=generator, dtype=torch.float64)
            x = (1 + x / 100 if kind == "prod" else x).to(torch_type(dtype))
        else:
            x = torch.randint(0, 200, shape, generator=generator).to(torch_type(dtype))
        y = torch.empty_like(x)
        build(scan(kind, *shape, along, dtype), cpu_target(width))({"x": x, "y": y})
        wanted = EAGER[kind](x, 1 if along == "rows" else 0)
        torch.testing.assert_close(y, wanted, rtol=1e-5, atol=1e-3 if dtype == "f32" else 1e-9)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("along", ["rows", "columns"])
def test_results_are_converted(along: str, width: str) -> None:
    """Sums of more than 256 ones, which bfloat16 alone would not count."""
    x = torch.ones(400, 400)
    y = torch.empty(400, 400, dtype=torch.bfloat16)
    build(scan("sum", 400, 400, along, "f32", "bf16"), cpu_target(width))({"x": x, "y": y})
    assert torch.equal(y, x.cumsum(1 if along == "rows" else 0).bfloat16())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", EAGER)
@pytest.mark.parametrize("along", ["rows", "columns"])
def test_special_values(kind: str, along: str, width: str) -> None:
    """Once NaN, always NaN; infinities and zeros, whose signs count, as in eager."""
    values = torch.tensor([-0.0, 0.0, 1.0, -INFINITY, -0.0, INFINITY, 2.0, NAN, 3.0, -1.0])
    for length in (10, 35):
        shape = (3, length) if along == "rows" else (length, 20)
        kernel = build(scan(kind, *shape, along), cpu_target(width))
        for shift in range(10):
            row = values.roll(shift).repeat(4)[:length]
            x = (row if along == "rows" else row[:, None]).expand(shape).contiguous()
            y = torch.empty_like(x)
            kernel({"x": x, "y": y})
            wanted = EAGER[kind](x, 1 if along == "rows" else 0)
            assert torch.equal(torch.isnan(y), torch.isnan(wanted))
            same = (y == wanted) | torch.isclose(y, wanted, rtol=1e-6, atol=0) | torch.isnan(y)
            assert bool(same.all()), (kind, shift, y, wanted)
            if kind in ("max", "min"):
                real = ~torch.isnan(y)
                assert torch.equal(torch.signbit(y)[real], torch.signbit(wanted)[real])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_of_several_loops_is_scanned_in_their_order(width: str) -> None:
    """Steps of a masked vector carry nothing from behind the end of the inner loop."""
    text = """group scan [i0<3]
  read x: f32[3, 4, 21]
  write y: f32[3, 4, 21]
  write z: i32[3, 4, 21]
  stage over [r0<4, r1<21]
    t0 = load x[84*i0 + 21*r0 + r1]
    t1 = index r0 + r1: i32
    scan y[84*i0 + 21*r0 + r1] = sum t0
    scan z[84*i0 + 21*r0 + r1] = max t1
"""
    x = torch.randn(3, 4, 21)
    y, z = torch.empty(3, 4, 21), torch.empty(3, 4, 21, dtype=torch.int32)
    build(text, cpu_target(width))({"x": x, "y": y, "z": z})
    torch.testing.assert_close(y.flatten(1), x.flatten(1).cumsum(1))
    place = torch.arange(4)[:, None] + torch.arange(21)
    assert torch.equal(z[0].flatten(), place.flatten().cummax(0).values.int())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("rows", "columns"), [(3, 50), (40, 5)])
def test_a_row_is_kept_beside_a_sum(rows: int, columns: int, width: str) -> None:
    """A scan into a local, beside a reduction in the same stage; a later stage reads both."""
    text = f"""group shares [i0<{rows}]
  read x: f32[{rows}, {columns}]
  write y: f32[{rows}, {columns}]
  local c: f32[{columns}]
  local s: f32
  stage over [r0<{columns}]
    t0 = load x[{columns}*i0 + r0]
    t1 = cast t0: f64
    scan c[r0] = sum t1
    reduce s = sum t0
  stage over [r0<{columns}]
    t0 = load c[r0]
    t1 = load s[0]
    t2 = div t0, t1
    store y[{columns}*i0 + r0] = t2
"""
    x = torch.rand(rows, columns)
    y = torch.empty_like(x)
    build(text, cpu_target(width))({"x": x, "y": y})
    torch.testing.assert_close(y, x.cumsum(1) / x.sum(1, keepdim=True))
