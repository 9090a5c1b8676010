"""A test for a backend's generated operators, on torch's own samples."""

from __future__ import annotations

from fusewright.opgen.plan import Plan

_TEXT = '''"""Compares the operators of "{backend}" with the CPU on torch's own samples.

A skeleton: `load` must make the device known.
"""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from fusewright.opgen.conformance import differences

OPERATORS = {{
{names}
}}
"""Operators with a generated in-place or out variant, by their names without overload."""

SAMPLES = [info for info in op_db if info.aten_name in OPERATORS or info.name in OPERATORS]


@pytest.fixture(scope="module", autouse=True)
def load() -> None:
    """Import the backend here."""
    torch.zeros(1, device="{backend}")


@pytest.mark.parametrize("info", SAMPLES, ids=lambda info: info.formatted_name)
def test_variants_are_those_of_the_cpu(info) -> None:
    assert not differences(info, "{backend}", torch.float32)
'''


def emit_test(plan: Plan) -> dict[str, str]:
    """The files of the test by name."""
    backend = plan.description.backend
    bases = sorted({row.operator.base for row in plan.made})
    names = "\n".join(f'    "{name}",' for name in bases)
    return {f"test_{backend}_operators.py": _TEXT.format(backend=backend, names=names)}
