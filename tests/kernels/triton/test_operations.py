"""Every operation as Triton, interpreted, against the reference meaning of programs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.kernels.triton.interpreter import run_program
from tests.kernels.triton.operators import inputs_of, program_of, types

from fusewright.ir.dtype import DType  # isort: skip
from fusewright.ir.ops import OPERATIONS  # isort: skip
from fusewright.ir.parse import parse_program  # isort: skip
from fusewright.ir.reference import evaluate  # isort: skip

CASES = [(operation, dtype) for operation in OPERATIONS.values() for dtype in types(operation)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("operation", "dtype"), CASES, ids=[f"{operation.name}-{dtype}" for operation, dtype in CASES]
)
def test_operation(operation, dtype: DType, tmp_path: Path) -> None:
    text = program_of(operation, dtype)
    inputs = inputs_of(operation, dtype)
    (wanted,) = evaluate(parse_program(text), inputs)
    (found,) = run_program(text, inputs, tmp_path)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=2e-6, atol=1e-7)
    if dtype.is_float and wanted.is_floating_point() and operation.name not in ("sign",):
        zeros = (wanted == 0) & (found == 0)
        assert torch.equal(torch.signbit(found)[zeros], torch.signbit(wanted)[zeros])
