"""Every operation as Triton, interpreted, against the reference meaning of programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.triton.interpreter import run_program

from fusewright.ir.dtype import DType  # isort: skip
from fusewright.ir.ops import ScalarOperation  # isort: skip
from tests.kernels.triton import agreement  # isort: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        pytest.param(operation, dtype, id=f"{operation.name}-{dtype}")
        for operation, dtype in agreement.OPERATION_CASES
    ],
)
def test_operation(operation: ScalarOperation, dtype: DType, tmp_path: Path) -> None:
    agreement.check_operation(run_program, operation, dtype, tmp_path)
