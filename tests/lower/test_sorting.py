"""Stable sorts of short rows are loops, with eager's order of equals and of NaN."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.lower import sorting
from tests.lower.support import assert_same, lowered

SHAPES = [
    ((), 0),
    ((5,), 0),
    ((3, 17), 1),
    ((3, 17), 0),
    ((2, 64, 3), 1),
    ((4, 0), 1),
    ((2, 128), 1),
]


def ordered(x: Tensor, dim: int, descending: bool) -> tuple[Tensor, ...]:
    result = torch.sort(x, dim=dim, descending=descending, stable=True)
    return (*result, torch.argsort(x, dim=dim, descending=descending, stable=True))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_as_in_eager(dtype: torch.dtype, descending: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    for shape, dim in SHAPES:
        x = torch.randint(-4, 5, shape, generator=generator).to(dtype)
        if dtype.is_floating_point and x.numel() > 8:
            special = [float("nan"), -0.0, 0.0, float("inf"), float("nan"), float("-inf"), -0.0]
            x.view(-1)[:7] = torch.tensor(special)
        result = lowered(ordered, x, dim, descending)
        assert not result.externs
        wanted = ordered(x, dim, descending)
        assert_same(result.run(), wanted)
        compiled = fusewright.compile(ordered, fullgraph=True, options={"strict": True})
        values, *places = compiled(x, dim, descending)
        assert_same((values, *places), wanted)
        if dtype.is_floating_point:
            assert torch.equal(torch.signbit(values), torch.signbit(wanted[0]))


PICKING = {
    "topk": lambda x, dim: torch.topk(x, min(3, x.size(dim)), dim),
    "smallest": lambda x, dim: torch.topk(x, 1, dim, largest=False),
    "kthvalue": lambda x, dim: torch.kthvalue(x, x.size(dim) // 2 + 1, dim, keepdim=True),
    "kthvalue, dropped": lambda x, dim: torch.kthvalue(x, 1, dim),
    "median": lambda x, dim: torch.median(x, dim),
    "nanmedian": lambda x, dim: torch.nanmedian(x, dim, keepdim=True),
    "sort": lambda x, dim: torch.sort(x, dim),
}


def holes(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Few different numbers; in the first rows some, or all, or no NaN."""
    x = torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    if dtype.is_floating_point:
        x[0, ::2] = x[1] = float("nan")
        x[2, -1] = float("inf")
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", PICKING)
def test_picking_where_equals_have_no_order(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype
) -> None:
    """As on a GPU: the values are eager's, and lie where the indices say, each in another place."""
    monkeypatch.setattr(sorting, "ORDERS_EQUALS", frozenset())
    for shape, dim in [((4, 6), 1), ((3, 5), 0), ((3, 1), 1), ((3, 4, 2), 1)]:
        x = holes(shape, dtype)
        result = lowered(PICKING[name], x, dim)
        assert not result.externs
        values, indices = result.run()
        wanted = PICKING[name](x, dim)
        assert_same(values, wanted[0])
        assert indices.shape == wanted[1].shape and indices.dtype is torch.int64
        if values.dim() == x.dim():
            assert_same(x.gather(dim, indices), values)
            ordered = indices.sort(dim).values
            assert (ordered.diff(dim=dim) > 0).all()
        else:
            assert_same(x.gather(dim, indices.unsqueeze(dim)).squeeze(dim), values)


def test_other_sorts_are_the_library_s() -> None:
    assert lowered(lambda x: x.sort(-1), torch.randn(3, 8)).externs
    assert lowered(lambda x: x.sort(dim=-1, stable=True), torch.randn(3, 129)).externs
    assert lowered(lambda x: x.topk(2), torch.randn(3, 8)).externs


def test_what_a_library_picks_otherwise_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "ORDERS_EQUALS", frozenset())
    assert lowered(lambda x: x.topk(2, sorted=False), torch.randn(3, 8)).externs
    assert lowered(lambda x: x.topk(2), torch.randn(3, 129)).externs
    assert lowered(lambda x: x.median(0), torch.randn(())).externs


def test_gradients() -> None:
    def function(x: Tensor) -> Tensor:
        return (torch.sort(x, dim=1, stable=True).values * torch.arange(20)).sum()

    x = torch.randn(5, 20)
    eager, compiled = (x.clone().requires_grad_() for _ in range(2))
    function(eager).backward()
    fusewright.compile(function, fullgraph=True)(compiled).backward()
    torch.testing.assert_close(compiled.grad, eager.grad)
