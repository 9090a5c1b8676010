"""The machine code of kernels for AVX2: vector arithmetic in every one, calls only where needed."""

from __future__ import annotations

import re

import pytest

from fusewright.runtime.llvm_engine import cpu_target
from tests.kernels.llvm.harness import assembly
from tests.kernels.llvm.test_groups import EMBEDDING, reduce_columns, reduce_rows, softmax

ARITHMETIC = re.compile(
    r"\bv(add|sub|mul|div|max|min|sqrt|fn?m(add|sub)\d+)p[sd]\s.*%ymm|\bvp(add|max|min)[bwdq]\s.*%ymm"
)
MOVES = re.compile(r"\bvmov[au]p[sd]\s.*%ymm")
"""All that an embedding does."""


def pointwise(operation: str) -> str:
    return f"""group line [i0<1000]
  read x: f32[1000]
  write y: f32[1000]
  stage
    t0 = load x[i0]
    t1 = {operation} t0
    store y[i0] = t1
"""


KERNELS = {
    "softmax": softmax("128"),
    "softmax_any_size": softmax("s0", "\n  size s0 in [2, 100000]"),
    "sum_rows": reduce_rows("sum", 7, 500),
    "sum_short_rows": reduce_rows("sum", 7, 25),
    "sum_columns": reduce_columns("sum", 7, 500),
    "max_rows": reduce_rows("max", 7, 500),
    "argmax_rows": reduce_rows("argmax", 7, 500, "i64"),
    **{name: pointwise(name) for name in ("exp", "log", "tanh", "erf", "sin", "sqrt", "sigmoid")},
}


@pytest.mark.parametrize("name", KERNELS)
def test_arithmetic_is_on_vectors(name: str) -> None:
    text = assembly(KERNELS[name], cpu_target("avx2"))
    assert ARITHMETIC.search(text), text


def test_rows_are_copied_by_vectors() -> None:
    text = assembly(EMBEDDING, cpu_target("avx2"))
    assert MOVES.search(text), text


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid"])
def test_common_functions_are_inlined(name: str) -> None:
    """In whole vectors; the tail may call a function of the module."""
    text = assembly(KERNELS[name].replace("1000", "1024"), cpu_target("avx2"))
    assert "call" not in text, text


def test_wide_vectors_where_the_processor_has_them() -> None:
    assert "%zmm" in assembly(KERNELS["softmax"], cpu_target("avx512"))
