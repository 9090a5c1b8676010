"""Random programs, scheduled, as Triton kernels, against the reference meaning of programs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.kernels.triton.interpreter import run_program
from tests.schedule.programs import inputs_of, programs

from fusewright.ir.program import ExternKernel, Program  # isort: skip
from fusewright.ir.reference import evaluate  # isort: skip
from fusewright.ir.text import print_program  # isort: skip

relaxed = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@relaxed
@given(st.booleans().flatmap(lambda symbolic: programs(symbolic=symbolic)), st.booleans())
def test_random_programs(tmp_path: Path, program: Program, walked: bool) -> None:
    assume(not any(isinstance(statement, ExternKernel) for statement in program.statements))
    sizes = {fact.symbol.name: fact.hint for fact in program.sizes}
    data = inputs_of(program)
    inputs = []
    for buffer in program.inputs:
        size = [index.evaluate(sizes) for index in buffer.layout.size]
        stride = [index.evaluate(sizes) for index in buffer.layout.stride]
        flat = torch.tensor(data[buffer.name]).to(getattr(torch, buffer.layout.dtype.torch_name))
        inputs.append(torch.as_strided(flat, size, stride))
    wanted = evaluate(program, [tensor.clone() for tensor in inputs], sizes=sizes)
    text = print_program(program)
    persistent = False if walked else None
    found = run_program(text, inputs, tmp_path, sizes=sizes, persistent=persistent)
    for made, right in zip(found, wanted, strict=True):
        torch.testing.assert_close(made, right.to(made.dtype), equal_nan=True, rtol=1e-4, atol=1e-5)
