"""Eager's kernels are asked with values that do not lead them out of their memory: a sample of
`python -m tests.operators.made_up_values`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from torch.testing._internal.common_methods_invocations import op_db

from tests.operators.made_up_values import SIDES, build, run_guarded
from tests.operators.samples import name_of

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("cc") is None, reason="compiles a library"),
]

TRUSTING = ("linalg.ldl_solve", "nn.functional.adaptive_max_pool1d", "nn.functional.ctc_loss")
SAMPLE = [name_of(info) for number, info in enumerate(op_db) if number % 120 == 7]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("guarded"))


@pytest.mark.parametrize("side", SIDES)
def test_a_sample_of_operators(library: Path, side: str) -> None:
    assert run_guarded(library, side, [*TRUSTING, *SAMPLE]) == []


def test_a_kernel_that_goes_elsewhere_is_named(library: Path) -> None:
    """As it would, were it asked with a place that is none."""
    found = run_guarded(library, "end", ["--ignore-table", TRUSTING[1]])
    operators = {fault["trial"].split()[0] for fault in found}
    assert operators == {"aten.adaptive_max_pool2d_backward.default"}
