"""Scatters and their like are loops that give what eager gives, also where points meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.ir.dtype import DType
from fusewright.ir.index import integer
from fusewright.lower.boxes import Box, Storage
from fusewright.lower.scatters import has_kernel
from tests.lower.support import assert_same, lowered

GENERATOR = torch.Generator().manual_seed(0)
ROWS = torch.randint(0, 9, (20, 70), generator=GENERATOR)
COLUMNS = torch.randint(0, 70, (9, 20), generator=GENERATOR)
ONCE = torch.randperm(70, generator=GENERATOR)[:20]

SCATTERS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "scatter_add 0": lambda x, s: x.scatter_add(0, ROWS, s),
    "scatter_add 1": lambda x, s: x.scatter_add(1, COLUMNS, s.t()[:9]),
    "scatter_add of a corner": lambda x, s: x.scatter_add(0, ROWS[:7, :3], s),
    "scatter_add of rows": lambda x, s: x.scatter_add(0, ROWS[:, :1].expand(20, 70), s),
    "scatter": lambda x, s: x.scatter(1, COLUMNS, s.t()[:9]),
    "scatter of a number": lambda x, s: x.scatter(-1, COLUMNS, 1),
    "scatter with a mode": lambda x, s: x.scatter(0, ROWS, s, reduce="add"),
    "greatest": lambda x, s: x.scatter_reduce(0, ROWS, s, "amax"),
    "smallest": lambda x, s: x.scatter_reduce(1, COLUMNS, s.t()[:9], "amin"),
    "sum": lambda x, s: x.scatter_reduce(1, COLUMNS, s.t()[:9], "sum"),
    "index_add 0": lambda x, s: x.index_add(0, ROWS[:, 0], s),
    "index_add 1": lambda x, s: x.index_add(1, COLUMNS[0], s.t()[:9]),
    "index_add of multiples": lambda x, s: x.index_add(0, ROWS[:, 0].int(), s, alpha=2),
    "index_add at one place": lambda x, s: x.index_add(0, ROWS[0, 0], s[:1]),
    "index_copy": lambda x, s: x.index_copy(1, ONCE, s.t()[:9]),
    "index_put of rows": lambda x, s: x.index_put((ROWS[:, 0],), s, accumulate=True),
    "index_put of elements": lambda x, s: x.index_put((ROWS[0], ONCE[:1] - 70), s[0], True),
    "index_put once": lambda x, s: x.index_put((ROWS[:3, :1], ONCE), s[:3, :20]),
    "of a view": lambda x, s: x.t().scatter_add(0, COLUMNS.t(), s[:, :9]),
    "of what is read": lambda x, s: x.scatter_add(0, ROWS[:9], x),
    "after it is read": lambda x, s: (x * 1 + 1, x.index_add(0, ROWS[:, 0], s), x * 1 - 1),
}

NOT_OF_BOOL = ("mode", "multiples")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.filterwarnings("ignore:The reduce argument")
def test_as_in_eager(name: str, dtype: torch.dtype) -> None:
    if dtype is torch.bool and any(word in name for word in NOT_OF_BOOL):
        return
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-4, 5, (9, 70), generator=generator).to(dtype)
    source = torch.randint(-4, 5, (20, 70), generator=generator).to(dtype)
    function = SCATTERS[name]
    result = lowered(function, x, source)
    if dtype is not torch.bool:
        assert not result.externs
    assert_same(result.run(), function(x, source))
    compiled = fusewright.compile(function, fullgraph=True, options={"strict": True})
    assert_same(compiled(x.clone(), source), function(x, source))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_are_rounded_as_in_eager(dtype: torch.dtype) -> None:
    """In order, in single precision."""
    x, source = torch.randn(5, 40).to(dtype), torch.randn(300, 40).to(dtype)
    rows = torch.randint(0, 5, (300,))
    compiled = fusewright.compile(lambda x, s: x.index_add(0, rows, s))
    assert torch.equal(compiled(x, source), x.index_add(0, rows, source))


@pytest.mark.parametrize("index", [-1, 9])
@pytest.mark.parametrize("name", ["scatter_add", "scatter", "index_add", "index_copy"])
def test_an_index_out_of_range_raises_what_eager_raises(name: str, index: int) -> None:
    def function(x: Tensor, places: Tensor, source: Tensor) -> Tensor:
        result: Tensor = getattr(x, name)(0, places, source)
        return result

    shape = (4,) if name.startswith("index") else (4, 40)
    places = torch.zeros(shape, dtype=torch.int64)
    places.view(-1)[-1] = index
    arguments = torch.zeros(9, 40), places, torch.ones(4, 40)
    with pytest.raises((RuntimeError, IndexError)) as eager:
        function(*arguments)
    with pytest.raises(type(eager.value)) as compiled:
        fusewright.compile(function)(*arguments)
    assert str(compiled.value) == str(eager.value)


def test_gradients_are_scatters() -> None:
    def function(x: Tensor) -> Tensor:
        return (x.gather(1, COLUMNS) * x.index_select(1, ONCE)).sum() + x.cummax(1).values.sum()

    x = torch.randn(9, 70)
    eager, compiled = (x.clone().requires_grad_() for _ in range(2))
    function(eager).backward()
    fusewright.compile(function, fullgraph=True, options={"strict": True})(compiled).backward()
    torch.testing.assert_close(compiled.grad, eager.grad)


def test_a_size_that_varies() -> None:
    compiled = fusewright.compile(lambda x, i, s: x.index_add(0, i, s), dynamic=True)
    for rows, columns, count in ((3, 5, 4), (7, 40, 100), (2, 16, 2), (4, 33, 0)):
        x, source = torch.randn(rows, columns), torch.randn(count, columns)
        places = torch.randint(0, rows, (count,))
        assert torch.equal(compiled(x, places, source), x.index_add(0, places, source))


def test_on_a_gpu_only_where_eager_adds_in_any_order_too() -> None:
    def of(dtype: DType, mode: str) -> bool:
        size = (integer(4),)
        storage = Storage(size=size, dtype=dtype, device="cuda:0", stride=size, value=None)
        return has_kernel(Box(storage, size), mode)

    assert of(DType.F32, "add") and of(DType.I64, "add") and of(DType.BF16, "store")
    assert of(DType.BF16, "add") and not of(DType.BOOL, "add") and not of(DType.F32, "max")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert not of(DType.F32, "add") and not of(DType.F32, "store")
    finally:
        torch.use_deterministic_algorithms(before)
