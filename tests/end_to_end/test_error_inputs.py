"""Some calls that eager refuses; all of them: `python -m tests.end_to_end.error_inputs --all`."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from fusewright.lower.rules import words
from tests.end_to_end.error_inputs import Case, cases, difference, outcome
from tests.operators.samples import name_of

NAMES = words(
    """
    add amax argmax bitwise_and cat cdist gather index_select ldexp logaddexp masked_fill min mul
    native_layer_norm nn.functional.gelu nn.functional.one_hot scatter_reduce.mean sub take
    """
)


@pytest.mark.parametrize(
    "info", [pytest.param(info, id=name_of(info)) for info in op_db if name_of(info) in NAMES]
)
def test_compiled_call_raises_what_eager_does(info: object) -> None:
    refused = []
    for number, case in enumerate(cases(info, every_type=True)):
        if number % 11:  # of hundreds of pairs of types some
            continue
        what = difference(case)
        if what is not None:
            refused.append((case.label, what))
    assert refused, "eager takes them all"
    assert [row for row in refused if row[1]] == []


def test_a_call_that_returns_is_told_apart() -> None:
    """The sweep sees a compiled call that does not raise what eager does."""

    def raises_when_eager(x: torch.Tensor) -> torch.Tensor:
        if not torch.jit.is_scripting() and x.sum().item() > 0:
            raise ValueError("positive")
        return x

    case = Case("", raises_when_eager, lambda: ((torch.ones(2),), {}))
    eager = outcome(raises_when_eager, case.arguments())
    assert (eager.error, eager.message) == (ValueError, "positive")
    assert difference(case) == ""
