"""Every kind of body as Triton: its source, and its results in the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.kernels.triton.interpreter import run_program

from fusewright.ir.dtype import DType  # isort: skip
from fusewright.ir.group import Group  # isort: skip
from fusewright.ir.ops import SCAN_KINDS  # isort: skip
from tests.golden import Case, golden  # isort: skip
from tests.kernels.triton import agreement  # isort: skip
from tests.kernels.triton.launching import scheduled, write_group  # isort: skip


TORCH_NAMES = {dtype.text: dtype.torch_name for dtype in DType}


def sources(text: str, persistent: bool | None = None) -> list[str]:
    """The kernels of a program. `persistent` False: rows are walked even where one block fits."""
    groups = [step for step in scheduled(text).works if isinstance(step, Group)]
    return [write_group(group, persistent).source for group in groups]


@golden("cases/sources.txt")
def test_source(text: str) -> str:
    return "\n".join(sources(text))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("case", agreement.RUN_CASES, ids=lambda case: case.name)
def test_results(case: Case, tmp_path: Path) -> None:
    agreement.check_case(run_program, case, tmp_path, persistent=None)
    if sources(case.input, persistent=False) != sources(case.input):
        agreement.check_case(run_program, case, tmp_path, persistent=False)


@pytest.mark.parametrize("kind", SCAN_KINDS)
@pytest.mark.parametrize("length", [12, 16])
def test_scans_from_the_end(kind: str, length: int, tmp_path: Path) -> None:
    """In one kernel, which counts from the ends of the rows."""
    (source,) = sources(agreement.scan_from_the_end(kind, length))
    assert "reverse=True" in source
    agreement.check_scan_from_the_end(run_program, kind, tmp_path, length)


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("persistent", [True, False])
def test_nan_wins(kind: str, persistent: bool, tmp_path: Path) -> None:
    agreement.check_nan(run_program, kind, tmp_path, persistent)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("persistent", [True, False])
def test_of_equal_truths_the_first_is_the_place(
    kind: str, persistent: bool, tmp_path: Path
) -> None:
    """Rows of less than a block, whose lanes beyond the row must not win."""
    text = f"""program truths(x: bool[4, 20])
  y: i64[4] = reduce {kind} [i0<4] over [r0<20]
    t0 = load x[20*i0 + r0]
    yield t0
  return y
"""
    truths = torch.zeros(4, 20, dtype=torch.bool)
    truths[0] = truths[1, 3:] = truths[2, :3] = True
    (found,) = run_program(text, [truths], tmp_path, persistent=persistent)
    assert found.tolist() == getattr(truths.int(), kind)(1).tolist()


@pytest.mark.parametrize("operation", ["maximum", "minimum", "add", "div", "lt"])
def test_numbers_beside_doubles_are_doubles(operation: str) -> None:
    """Some versions of Triton take a bare number for f32 on its way to f64."""
    result = "bool" if operation == "lt" else "f64"
    text = f"""program bound(x: f64[8])
  y: {result}[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = {operation} t0, 1e-12
    yield t1
  return y
"""
    (source,) = sources(text)
    assert source.count("1e-12") == source.count("tl.full([], 1e-12, tl.float64)") == 1


@pytest.mark.parametrize("dtype", ["u8", "i8", "i16"])
@pytest.mark.parametrize("operation", ["maximum", "minimum", "where", "add"])
def test_numbers_beside_narrow_integers_are_narrow(operation: str, dtype: str) -> None:
    """Some versions of Triton take a bare number for i32, in which nothing wraps around."""
    first = "t1, t0" if operation == "where" else "t0"
    text = f"""program wrap(x: {dtype}[8])
  y: i64[8] = pointwise [i0<8]
    t0 = load x[i0]
    t1 = ne t0, 0
    t2 = {operation} {first}, 77
    t3 = add t2, 78
    t4 = cast t3: i64
    yield t4
  return y
"""
    (source,) = sources(text)
    for number in ("77", "78"):
        typed = f"tl.full([], {number}, tl.{TORCH_NAMES[dtype]})"
        assert source.count(f" {number}, ") == source.count(typed) == 1


def test_rows_are_rounded_once() -> None:
    """What later steps read of a row that was rounded to bfloat16 is the variable in float32."""
    (source,) = sources("""program deviations(x: bf16[4, 64], y: bf16[4, 64])
  z: bf16[4, 64] = pointwise [i0<4, i1<64]
    t0 = load x[64*i0 + i1]
    t1 = cast t0: f32
    t2 = load y[64*i0 + i1]
    t3 = cast t2: f32
    t4 = add t1, t3
    t5 = cast t4: bf16
    yield t5
  m: f32[4] = reduce sum [i0<4] over [r0<64]
    t0 = load z[64*i0 + r0]
    t1 = cast t0: f32
    yield t1
  d: f32[4] = reduce sum [i0<4] over [r0<64]
    t0 = load z[64*i0 + r0]
    t1 = cast t0: f32
    t2 = load m[i0]
    t3 = sub t1, t2
    t4 = mul t3, t3
    yield t4
  return d
""")
    assert source.count("rounded_to_bfloat16") == 1
    assert source.count(".to(tl.float32)") == 2  # of x and of y


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", SCAN_KINDS)
@pytest.mark.parametrize("persistent", [True, False])
def test_scans_of_special_values(kind: str, persistent: bool, tmp_path: Path) -> None:
    agreement.check_scan(run_program, kind, tmp_path, persistent)


@pytest.mark.filterwarnings("ignore:overflow")
def test_deviations_of_long_rows(tmp_path: Path) -> None:
    """Equal numbers have none, a large mean takes no digits from them, and what is out of range is
    infinite, as NaN is NaN.
    """
    text = """program welford(x: f32[700, 5])
  m: f32[5], v: f32[5] = reduce welford [i0<5] over [r0<700]
    t0 = load x[i0 + 5*r0]
    yield t0
  return m, v
"""
    values = torch.randn(5, 700, generator=torch.Generator().manual_seed(0))
    values[0] = 0.1
    values[1] += 1000
    values[2] *= 1e25
    values[3, 450] = float("nan")
    mean, deviations = run_program(text, [values.t().contiguous()], tmp_path)
    exact = values.double()
    wanted = (exact - exact.mean(-1, keepdim=True)).square().sum(-1)
    assert deviations[0] == 0
    torch.testing.assert_close(
        mean[[0, 1, 4]].double(), exact.mean(-1)[[0, 1, 4]], rtol=3e-6, atol=1e-6
    )
    torch.testing.assert_close(deviations[[1, 4]].double(), wanted[[1, 4]], rtol=3e-5, atol=0)
    assert torch.isposinf(deviations[2])
    assert torch.isnan(deviations[3])


def test_deviations_of_one_large_number_in_a_block(tmp_path: Path) -> None:
    """The lanes that no element falls to add nothing: not infinity times nothing."""
    text = """program welford(x: f32[1, 3])
  m: f32[1], v: f32[1] = reduce welford [i0<1] over [r0<3]
    t0 = load x[3*i0 + r0]
    yield t0
  return m, v
"""
    values = torch.full((1, 3), 1e25)
    mean, deviations = run_program(text, [values], tmp_path, persistent=False)
    assert mean == values[0, 0]
    assert deviations == 0


def test_an_index_out_of_range_stops_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="out of range"):
        agreement.embedding_out_of_range(run_program, tmp_path)
