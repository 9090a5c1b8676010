"""Every kind of Triton kernel on a GPU.

    TRITON_INTERPRET=0 python -m pytest tests/kernels/triton/on_gpu.py

Its name keeps it out of the whole suite, where Triton interprets: `test_gpu` runs it in a process
of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.models import MODELS
from fusewright.ir.dtype import DType
from fusewright.ir.ops import SCAN_KINDS, ScalarOperation
from fusewright.ir.program import CallOperator, Program
from tests.golden import Case
from tests.kernels.triton import agreement, gpu, model_kernels
from tests.kernels.triton.gpu import run_program
from tests.schedule.programs import programs

GIBIBYTE = 1 << 30

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.skipif(triton.knobs.runtime.interpret, reason="Triton interprets here"),
]


@pytest.mark.parametrize("persistent", [None, False], ids=["chosen", "walked"])
@pytest.mark.parametrize("case", agreement.RUN_CASES, ids=lambda case: case.name)
def test_results(case: Case, persistent: bool | None, tmp_path: Path) -> None:
    agreement.check_case(run_program, case, tmp_path, persistent)


def test_indices_that_need_64_bits(tmp_path: Path) -> None:
    if torch.cuda.mem_get_info()[0] < 10 * GIBIBYTE:
        pytest.skip("the GPU has less than 10 GiB free")
    (text,) = (case.input for case in agreement.CASES if case.name == agreement.TOO_LARGE)
    values = torch.zeros(65536, 65536, dtype=torch.uint8, device="cuda")
    rows = torch.arange(65536, device="cuda")
    values[rows, 65535 - rows] = (rows % 251).to(torch.uint8)
    (found,) = run_program(text, [values], tmp_path)
    assert torch.equal(found, (rows % 251).to(torch.uint8))


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("persistent", [True, False])
def test_nan_wins(kind: str, persistent: bool, tmp_path: Path) -> None:
    agreement.check_nan(run_program, kind, tmp_path, persistent)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", SCAN_KINDS)
@pytest.mark.parametrize("persistent", [True, False])
def test_scans_of_special_values(kind: str, persistent: bool, tmp_path: Path) -> None:
    agreement.check_scan(run_program, kind, tmp_path, persistent, 12 if persistent else 5000)


@pytest.mark.parametrize("kind", SCAN_KINDS)
@pytest.mark.parametrize("length", [12, 2048, 3000])
def test_scans_from_the_end(kind: str, length: int, tmp_path: Path) -> None:
    agreement.check_scan_from_the_end(run_program, kind, tmp_path, length)


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        pytest.param(operation, dtype, id=f"{operation.name}-{dtype}")
        for operation, dtype in agreement.OPERATION_CASES
    ],
)
def test_operation(operation: ScalarOperation, dtype: DType, tmp_path: Path) -> None:
    agreement.check_operation(run_program, operation, dtype, tmp_path)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.booleans().flatmap(lambda symbolic: programs(symbolic=symbolic)), st.booleans())
def test_random_programs(tmp_path: Path, program: Program, walked: bool) -> None:
    assume(not any(isinstance(statement, CallOperator) for statement in program.statements))
    agreement.check_random_program(run_program, program, tmp_path, walked)


@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_models(name: str, tmp_path: Path) -> None:
    groups = model_kernels.groups_of(name)
    assert groups
    for group in groups:
        model_kernels.check_group(group, gpu.launcher(tmp_path), "cuda")


def test_an_index_out_of_range_stops_the_kernel(tmp_path: Path) -> None:
    """In a process of its own: a failed assertion on the GPU is the end of its process's GPU."""
    code = f"""
from pathlib import Path
from tests.kernels.triton import agreement, gpu
agreement.embedding_out_of_range(gpu.run_program, Path({str(tmp_path)!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "out of range for size 10" in done.stdout + done.stderr
