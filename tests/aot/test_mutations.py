"""The functional operator behind each writing one."""

from __future__ import annotations

import pytest
import torch

from fusewright.aot.mutations import functional_form
from fusewright.errors import UnsupportedOperator

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("writing", "functional"),
    [
        (aten.add_.Tensor, aten.add.Tensor),
        (aten.add_.Scalar, aten.add.Scalar),
        (aten.add.out, aten.add.Tensor),
        (aten.mul_.Scalar, aten.mul.Scalar),
        (aten.relu_.default, aten.relu.default),
        (aten.fill_.Scalar, aten.fill.Scalar),
        (aten.zero_.default, aten.zero.default),
        (aten.masked_fill_.Scalar, aten.masked_fill.Scalar),
        (aten.index_put_.default, aten.index_put.default),
        (aten.scatter_.value, aten.scatter.value),
        (aten.clamp_.default, aten.clamp.default),
        (aten.pow_.Scalar, aten.pow.Tensor_Scalar),
        (aten.div.out, aten.div.Tensor),
        (aten.max.dim_max, aten.max.dim),
        (aten.normal_.default, aten.normal_functional.default),
    ],
)
def test_form(writing: object, functional: object) -> None:
    assert functional_form(writing).operator is functional


def test_arguments_that_only_the_writing_operator_lets_one_leave_out() -> None:
    form, x = functional_form(aten.bernoulli_.float), torch.zeros(1)
    assert form.operator is aten.bernoulli.p
    assert form.split((x,), {})[1:] == ((x,), {"p": 0.5})
    assert form.split((x, 0.25), {})[1:] == ((x, 0.25), {})


def test_an_operator_without_one_is_refused() -> None:
    with pytest.raises(UnsupportedOperator, match="resize_"):
        functional_form(aten.resize_.default)


def test_arguments_of_an_out_operator() -> None:
    form = functional_form(aten.add.out)
    x, y, out = (torch.zeros(1) for _ in range(3))
    targets, args, kwargs = form.split((x, y), {"alpha": 2, "out": out})
    assert targets[0] is out and args == (x, y) and kwargs == {"alpha": 2}
