"""The reference evaluation knows every operation, and refuses what a program must not do."""

from __future__ import annotations

import pytest
import torch

from fusewright.ir.ops import OPERATIONS, REDUCTION_KINDS
from fusewright.ir.parse import parse_group, parse_program
from fusewright.ir.reference import OPERATIONS as KNOWN
from fusewright.ir.reference import evaluate, reduce_values
from fusewright.ir.reference_groups import evaluate_group


def test_every_operation_has_a_meaning() -> None:
    assert KNOWN.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("kind", REDUCTION_KINDS)
def test_every_reduction_has_a_meaning(kind: str) -> None:
    values = torch.tensor([[3, 1, 2], [4, 4, 0]])
    if kind in ("any", "all"):
        values = values.bool()
    if kind == "welford":
        values = values.double()
    expected = {
        "sum": [[6, 8]],
        "dot": [[6, 8]],
        "prod": [[6, 0]],
        "max": [[3, 4]],
        "min": [[1, 0]],
        "any": [[1, 1]],
        "all": [[1, 0]],
        "argmax": [[0, 0]],
        "argmin": [[1, 2]],
        "xor": [[0, 0]],
        "welford": [[2, 8 / 3], [2, 32 / 3]],
    }[kind]
    for result, wanted in zip(reduce_values(kind, values), expected, strict=True):
        torch.testing.assert_close(result.double(), torch.tensor(wanted).double())


def test_masked_loads_do_not_happen() -> None:
    program = parse_program(
        """
program shifted(x: f32[4])
  y: f32[6] = pointwise [i0<6]
    t0 = index i0: i64
    t1 = lt t0, 4
    t2 = load x[i0]
    t3 = masked t1, t2, 7.0
    yield t3
  return y
"""
    )
    (result,) = evaluate(program, [torch.arange(4.0)])
    assert result.tolist() == [0, 1, 2, 3, 7, 7]


def test_loads_outside_are_errors() -> None:
    program = parse_program(
        """
program outside(x: f32[4])
  y: f32[4] = pointwise [i0<4]
    t0 = load x[i0 + 1]
    yield t0
  return y
"""
    )
    with pytest.raises(IndexError, match="leaves"):
        evaluate(program, [torch.arange(4.0)])


@pytest.mark.parametrize("rows", [0, 3])
def test_columns_are_gathered_along_a_stripe_of_rows(rows: int) -> None:
    group = parse_group(
        f"""
group columns [i0<2, i1<{rows}]
  read g: f32[{2 * rows}, 5]
  write p: f32[2, 5]
  stage over [r0<5]
    t0 = load g[{5 * rows}*i0 + 5*i1 + r0]
    gather p[5*i0 + r0] = sum t0
"""
    )
    g, p = torch.randn(2, rows, 5), torch.full((10,), torch.nan)
    evaluate_group(group, {"g": g.flatten(), "p": p}, {})
    torch.testing.assert_close(p, g.sum(1).flatten())
