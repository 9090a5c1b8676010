"""Columns that are gathered beside rows, one walked point after the other, into memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fusewright
from fusewright.kernels.llvm.emit import GroupWriter
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.memory_checks import MemoryChecks
from tests.kernels.llvm.harness import build
from tests.kernels.normalizations import (
    calls_of,
    check_gradients,
    inputs_of,
    layer_norm,
    layer_norm_at_places,
    rms_norm,
)
from tests.threads import with_threads

CHECKS = MemoryChecks(guard_pages="both", garbage=True)

EAGER = {
    "sum": lambda x: x.sum(1),
    "prod": lambda x: x.prod(1),
    "max": lambda x: x.amax(1),
    "min": lambda x: x.amin(1),
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(1),
    "xor": lambda x: x.sum(1) % 2 == 1,
}
"""What is gathered of x[stripes, rows, columns], by kind."""

CASES = [
    *((kind, "f32") for kind in ("sum", "prod", "max", "min")),
    *((kind, "bool") for kind in ("any", "all", "xor")),
    *((kind, "i64") for kind in ("sum", "min")),
    ("sum", "f64"),
]


def rows_and_columns(kind: str, dtype: str, stripes: int, rows: int, columns: int) -> str:
    """Copy x, and gather each of its columns in stripes of rows."""
    place = f"{rows * columns}*i0 + {columns}*i1 + r0"
    return f"""group beside [i0<{stripes}, i1<{rows}]
  read x: {dtype}[{stripes}, {rows}, {columns}]
  write y: {dtype}[{stripes}, {rows}, {columns}]
  write p: {dtype}[{stripes}, {columns}]
  stage over [r0<{columns}]
    t0 = load x[{place}]
    store y[{place}] = t0
    gather p[{columns}*i0 + r0] = {kind} t0
"""


@pytest.mark.parametrize("columns", [1, 3, 16, 70, 769])
@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_every_kind_of_columns(kind: str, dtype: str, columns: int) -> None:
    torch.manual_seed(0)
    types = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "bool": torch.bool}
    x = torch.randn(3, 5, columns)
    x[0, 2, 0] = torch.nan
    x[1, 0, -1] = -torch.inf
    x = x.nan_to_num(0).mul(9).long() if dtype == "i64" else x > 0 if dtype == "bool" else x
    x = x.to(types[dtype])
    for vectors in ("auto", "avx2", "scalar"):
        y, p = torch.empty_like(x), x.new_empty(3, columns)
        kernel = build(rows_and_columns(kind, dtype, *x.shape), cpu_target(vectors), CHECKS)
        kernel({"x": x, "y": y, "p": p})
        torch.testing.assert_close(y, x, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(p, EAGER[kind](x), equal_nan=True)


@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
        (layer_norm_at_places, (32, 12, 104), torch.float32),
        (layer_norm_at_places, (6, 64, 104), torch.float32),
        (layer_norm, (2, 512, 72), torch.float32),
        (layer_norm, (260, 130), torch.float32),
        (rms_norm, (1024, 264), torch.bfloat16),
        (layer_norm, (64, 770), torch.float64),
    ],
)
def test_gradients_of_normalisations(
    function: Any, shape: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as near to exact ones as eager's, whatever the number of threads, and one kernel
    makes all of them.
    """
    written = calls_of(monkeypatch, GroupWriter, "_write_stripe")
    inputs = inputs_of(shape, 1 if function is rms_norm else 2, dtype)
    compiled = fusewright.compile(function, options={"strict": True, "verify": True})
    for threads in (1, 2):
        with with_threads(threads):
            check_gradients(function, compiled, inputs, share=2)
    assert len(written) == 1
