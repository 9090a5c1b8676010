"""Items of tensors by tensors that hold one integer, `x[:, i]`: in the graph they are copies, where
nothing tells them from eager's views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright

X = torch.arange(24.0).reshape(2, 3, 4)
ONE, LAST = torch.tensor(1), torch.tensor(-1)

KEYS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "alone": lambda x, i, j: x[i] + 1,
    "behind a slice": lambda x, i, j: x[:, i] * 2,
    "two": lambda x, i, j: x[i, :, j] + 1,
    "behind dots": lambda x, i, j: x[..., j].sum(0),
    "between numbers": lambda x, i, j: x[1, i, 2:] - 1,
    "with new dimensions": lambda x, i, j: x[None, i, None, 1:, j] * 3,
    "twice": lambda x, i, j: x[i][j] + x[j][i],
    "of a result": lambda x, i, j: (x.sin() + 1)[0, i],
    "where the largest is": lambda x, i, j: x[0, x[0].sum(1).argmax()] + 1,
    "small integers": lambda x, i, j: x[i.to(torch.int16)] + x[j.int()],
}


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", list(KEYS))
def test_one_graph(name: str, backend: str) -> None:
    function = KEYS[name]
    compiled = fusewright.compile(function, backend=backend, options={"strict": True})
    for i, j in ((ONE, LAST), (LAST, ONE), (torch.tensor(0), torch.tensor(1))):
        torch.testing.assert_close(compiled(X, i, j), function(X, i, j))
    assert len(fusewright.compilations(compiled)) == 1


def test_gradients() -> None:
    x = X.clone().requires_grad_()

    def f(x: Tensor, i: Tensor) -> Tensor:
        return (x[:, i] ** 2).sum()

    (found,) = torch.autograd.grad(fusewright.compile(f, options={"strict": True})(x, ONE), x)
    torch.testing.assert_close(found, torch.autograd.grad(f(x, ONE), x)[0])


def test_an_index_out_of_range_is_eager_s_error() -> None:
    compiled = fusewright.compile(KEYS["alone"], options={"strict": True})
    compiled(X, ONE, LAST)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        compiled(X, torch.tensor(7), LAST)


def writes_to_it(x: Tensor, i: Tensor) -> Any:
    y = x + 1
    y[i].mul_(2)
    return y


def writes_to_the_whole(x: Tensor, i: Tensor) -> Any:
    y = x + 1
    item = y[i]
    y.mul_(2)
    return item + 1


def returns_it(x: Tensor, i: Tensor) -> Any:
    return x[i]


def returns_both(x: Tensor, i: Tensor) -> Any:
    y = x + 1
    return y, y[i]


@pytest.mark.parametrize("function", [writes_to_it, writes_to_the_whole, returns_it, returns_both])
def test_views_that_can_be_told_break_the_graph(function: Any) -> None:
    explained = fusewright.explain(function, backend="eager")
    x = X.clone()
    found = explained(x, ONE)
    torch.testing.assert_close(found.result, function(x, ONE))
    assert {one.reason for one in found.breaks} == {"fake-execution"}
    if function is returns_it:
        found.result.zero_()
        assert not x[1].any()


def test_a_slice_to_a_tensor_breaks() -> None:
    def begins(x: Tensor, i: Tensor) -> Tensor:
        return (x + 1)[:, :i] * 2

    found = fusewright.explain(begins, backend="eager")(X, ONE)
    assert torch.equal(found.result, begins(X, ONE)) and not found.fallbacks
    assert [each.reason for each in found.breaks] == ["fake-execution"]
