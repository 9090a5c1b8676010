"""The table of formulas: one for each operator in each place, and only of what torch has."""

from __future__ import annotations

import pytest
import torch

import fusewright.aot  # noqa: F401  some formulas stand beside the tracer
from fusewright.formulas import When, formula, formula_of_call, formulas
from fusewright.formulas.table import Formula
from fusewright.torch_compat import OpOverload

OF_OPERATORS = (When.EVERYWHERE, When.COMPILED, When.FREE_DRAWS, When.BACKWARD)


def test_a_second_formula_is_refused() -> None:
    target = next(iter(formulas(When.COMPILED)))
    with pytest.raises(ValueError, match="has a formula already, COMPILED"):
        formula(target)(lambda: NotImplemented)


@pytest.mark.parametrize("when", When, ids=lambda when: when.name)
def test_operators_and_functions_are_kept_apart(when: When) -> None:
    assert formulas(when)
    for target in formulas(when):
        assert isinstance(target, OpOverload) == (when in OF_OPERATORS), target


def test_a_method_gets_its_tensor() -> None:
    x = torch.arange(4.0)
    method: Formula | None = formula_of_call(x.kron, When.VARYING_SIZE)
    assert method is not None
    torch.testing.assert_close(method(x), x.kron(x))
    assert formula_of_call(x.exp, When.VARYING_SIZE) is None
    assert formula_of_call([], When.VARYING_SIZE) is None
