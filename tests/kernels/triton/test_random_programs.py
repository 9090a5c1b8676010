"""Random programs, scheduled, as Triton kernels, against the reference meaning of programs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.kernels.triton.interpreter import run_program
from tests.schedule.programs import programs

from fusewright.ir.group import Group  # isort: skip
from fusewright.ir.program import CallOperator, Program  # isort: skip
from fusewright.kernels.triton import Configuration  # isort: skip
from fusewright.kernels.triton.axis_form import CannotRecompute  # isort: skip
from fusewright.kernels.triton.configurations import configurations  # isort: skip
from tests.kernels.triton import agreement  # isort: skip

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
    assume(not any(isinstance(statement, CallOperator) for statement in program.statements))
    agreement.check_random_program(run_program, program, tmp_path, walked)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@relaxed
@given(st.booleans().flatmap(lambda symbolic: programs(symbolic=symbolic)), st.integers(1, 15))
def test_random_programs_in_every_configuration(
    tmp_path: Path, program: Program, number: int
) -> None:
    """Whatever tuning may choose."""
    assume(not any(isinstance(statement, CallOperator) for statement in program.statements))

    def configure(group: Group) -> Configuration:
        several = list(configurations(group))
        return several[number % len(several)]

    with suppress(CannotRecompute):  # Tuning leaves those out.
        run = partial(run_program, configure=configure)
        agreement.check_random_program(run, program, tmp_path, walked=False)
