"""The functional operator behind each writing one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fusewright.aot import aot_function
from fusewright.aot.mutations import functional_form
from fusewright.backends.eager import eager

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
        (aten.__iand__.Tensor, aten.bitwise_and.Tensor),
        (aten.__ilshift__.Scalar, aten.__lshift__.Scalar),
        (aten.__irshift__.Tensor, aten.__rshift__.Tensor),
        (aten._batch_norm_with_update.default, aten._batch_norm_with_update_functional.default),
    ],
)
def test_form(writing: object, functional: object) -> None:
    form = functional_form(writing)
    assert form is not None and form.operator is functional


def test_arguments_that_only_the_writing_operator_lets_one_leave_out() -> None:
    form, x = functional_form(aten.bernoulli_.float), torch.zeros(1)
    assert form is not None
    assert form.operator is aten.bernoulli.p
    assert form.split((x,), {})[1:] == ((x,), {"p": 0.5})
    assert form.split((x, 0.25), {})[1:] == ((x, 0.25), {})


def test_an_operator_without_one() -> None:
    assert functional_form(aten.resize_.default) is None


def test_arguments_of_an_out_operator() -> None:
    form = functional_form(aten.add.out)
    assert form is not None
    x, y, out = (torch.zeros(1) for _ in range(3))
    targets, args, kwargs = form.split((x, y), {"alpha": 2, "out": out})
    assert targets[0] is out and args == (x, y) and kwargs == {"alpha": 2}


def shifted(x: torch.Tensor) -> torch.Tensor:
    count = (x * 0).long() + 5
    count <<= 2
    count >>= torch.ones_like(count)
    return x * count


def leaky(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rrelu(x * 3, training=True, inplace=True) * 2


@pytest.mark.parametrize("program", [shifted, leaky])
def test_programs(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    results = []
    for function in (program, aot_function(program, fw_compiler=eager)):
        torch.manual_seed(0)
        y = function(x)
        results.append((y, *torch.autograd.grad(y.sum(), x)))
    torch.testing.assert_close(*results)
