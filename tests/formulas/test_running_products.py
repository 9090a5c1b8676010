"""The gradient of a running product, where torch would trace another than eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.formulas import running_products

Function = Callable[[Tensor], Tensor]

ROWS = torch.tensor(
    [
        [2.0, -3.0, 0.5, 4.0],
        [2.0, 0.0, 0.5, 4.0],
        [0.0, 2.0, 3.0, 4.0],
        [2.0, 0.0, 3.0, 0.0],
        [2.0, torch.nan, 3.0, 4.0],
        [2.0, 0.0, torch.nan, 4.0],
        [torch.inf, 0.0, 3.0, 4.0],
        [1.0, 2.0, 3.0, -0.0],
    ]
)


@pytest.fixture(autouse=True)
def _traces_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with an older torch."""
    monkeypatch.setattr(running_products, "TRACES_ANOTHER", True)


def gradient(function: Function, x: Tensor) -> Tensor | None:
    leaf = x.clone().requires_grad_()
    result = function(leaf)
    weights = torch.arange(1.0, result.numel() + 1, dtype=result.dtype).reshape(result.shape)
    (result * weights).sum().backward()
    return leaf.grad


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumprod(1),
        lambda x: torch.cumprod(x, dim=0),
        lambda x: x[:, :1].cumprod(-1) * x,
        lambda x: x[:, :0].cumprod(1).sum() + x,
        lambda x: x.cumprod(1, dtype=torch.float64),
    ],
    ids=["rows", "columns", "of one", "of nothing", "in double"],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_gradient_is_eagers(
    function: Function, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Tensor] = []
    formula = running_products.gradient_of_product

    def counted(*arguments: Tensor) -> Tensor:
        calls.append(arguments[0])
        return formula(*arguments)

    monkeypatch.setattr(running_products, "gradient_of_product", counted)
    compiled = fusewright.compile(function, dynamic=dynamic, options={"strict": True})
    torch.testing.assert_close(gradient(compiled, ROWS), gradient(function, ROWS), equal_nan=True)
    assert calls


def test_a_second_derivative_is_eagers() -> None:
    def function(x: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(x.cumprod(0).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * first).sum(), x)
        return second

    x = torch.tensor([1.0, 2.0, 0.0, 3.0, 0.0], requires_grad=True)
    torch.testing.assert_close(fusewright.compile(function, fullgraph=True)(x), function(x))


def test_a_product_without_a_gradient_is_torchs() -> None:
    compiled = fusewright.compile(lambda x: x.cumprod(1), options={"strict": True})
    torch.testing.assert_close(compiled(ROWS), ROWS.cumprod(1), equal_nan=True)
