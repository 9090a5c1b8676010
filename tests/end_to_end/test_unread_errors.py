"""Operators that raise for the values they are given, where nobody reads what they compute, or not
all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.pipeline import compile_graph
from tests.lower.support import graph_of

X = torch.arange(12.0).reshape(3, 4)
WHOLE = torch.arange(12).reshape(3, 4)
ZERO_IN_ROW_1 = torch.ones(3, 4, dtype=torch.int64).index_put((torch.tensor(1),), torch.tensor(0))
BAD = torch.tensor([0, 7, 1])
NEGATIVE = torch.tensor([0, -9, 1])
SINGULAR = torch.zeros(3, 3)

RAISING: dict[str, tuple[Callable[[Tensor, Tensor], Any], Tensor, Tensor]] = {
    "floor division": (lambda x, y: x // y, WHOLE, ZERO_IN_ROW_1),
    "division of a number": (lambda x, y: 5 // y, WHOLE, ZERO_IN_ROW_1),
    "truncated division": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        WHOLE,
        ZERO_IN_ROW_1,
    ),
    "remainder": (lambda x, y: x % y, WHOLE, ZERO_IN_ROW_1),
    "remainder by 0": (lambda x, y: x % 0, WHOLE, ZERO_IN_ROW_1),
    "fmod": (torch.fmod, WHOLE, ZERO_IN_ROW_1),
    "index": (lambda x, i: x[i], X, BAD),
    "negative index": (lambda x, i: x[i], X, NEGATIVE),
    "index_select": (lambda x, i: x.index_select(0, i), X, BAD),
    "gather": (lambda x, i: x.gather(0, i[:, None]), X, BAD),
    "take": (lambda x, i: x.take(i * 10), X, BAD),
    "embedding": (lambda x, i: F.embedding(i, x), X, BAD),
    "bag of embeddings": (lambda x, i: F.embedding_bag(i[None], x), X, BAD),
    "large class": (lambda x, i: F.one_hot(i, 4), X, BAD),
    "negative class": (lambda x, i: F.one_hot(i, 4), X, NEGATIVE),
    "target": (F.nll_loss, X, BAD),
    "cross entropy": (F.cross_entropy, X, BAD),
    "probability": (lambda x, i: F.binary_cross_entropy(x, x), X, BAD),
    "scatter": (lambda x, i: x.scatter(0, i[None], 1.0), X, BAD),
    "scatter_add": (lambda x, i: x.scatter_add(0, i[None], x), X, BAD),
    "index_add": (lambda x, i: x.index_add(0, i, x), X, BAD),
    "index_put": (lambda x, i: x.index_put((i,), torch.tensor(1.0)), X, BAD),
    "bincount": (lambda x, i: torch.bincount(i), X, NEGATIVE),
    "inverse": (lambda x, i: torch.linalg.inv(x), SINGULAR, BAD),
    "eigenvalues": (lambda x, i: torch.linalg.eigh(x / 0), SINGULAR, BAD),
    "margin loss": (F.multi_margin_loss, X, BAD),
    "masked_scatter": (lambda x, i: x.masked_scatter(x > 0, x[0, :2]), X, BAD),
    "sorter": (lambda x, i: torch.searchsorted(x[0, :3], x[0], sorter=i), X, BAD),
}
"""Calls, and what they are given."""


def unread(function: Callable[..., Any], x: Tensor, y: Tensor) -> Tensor:
    """A call of which the result is not looked at."""
    function(x, y)
    return x + 1


def sizes_read(function: Callable[..., Any], x: Tensor, y: Tensor) -> Tensor:
    """A call of which only the size is looked at."""
    result = function(x, y)
    return x + (result.dim() if isinstance(result, Tensor) else 0)


USES = (unread, sizes_read)


def raised(function: Callable[..., Any], *args: Any) -> tuple[type, str]:
    """Type and words of what a call raises."""
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", RAISING)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_nobody_reads_raises(name: str, use: Callable[..., Tensor]) -> None:
    function, x, y = RAISING[name]
    compiled = fusewright.compile(use)
    assert raised(compiled, function, x, y) == raised(use, function, x, y)


@pytest.mark.parametrize("name", ["index", "embedding", "target", "scatter"])
def test_what_nobody_reads_raises_in_the_forward_of_training(name: str) -> None:
    function, x, y = RAISING[name]
    x = x.clone().requires_grad_()
    compiled = fusewright.compile(unread, options={"strict": True})
    assert raised(compiled, function, x, y) == raised(unread, function, x, y)


PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda y: y[:1] + 1,
    "nothing": lambda y: y[:0] + 1,
    "row": lambda y: y[2] + 1,
    "every second": lambda y: y[::2] + 1,
    "diagonal": lambda y: y.diagonal() + 1,
    "cut off": lambda y: F.pad(y, (0, 0, -2, 0)) + 1,
    "joined": lambda y: torch.cat([y, y])[:1] + 1,
    "chosen": lambda y: y[torch.tensor([0])] + 1,
    "triangle": lambda y: torch.tril(y * 1, -3),
    "flipped": lambda y: y.flip(0)[2:] + 1,
    "summed": lambda y: y[0].sum(),
    "times 0": lambda y: y * 0,
    "overwritten": lambda y: y.clone().fill_(1),
    "only like it": lambda y: torch.zeros_like(y) + 1,
    "whole": lambda y: y.t() + 1,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["floor division", "index", "gather"])
def test_what_is_read_in_part_raises(name: str, part: str) -> None:
    function, x, y = RAISING[name]

    def use(x: Tensor, y: Tensor) -> Tensor:
        return PARTS[part](function(x, y))

    assert raised(fusewright.compile(use), x, y) == raised(use, x, y)


ALL_ALIKE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "expanded": lambda x, i: x[:1, 0].expand(2, 3)[:, 0].index_select(0, i),
    "expanded, in the other dimension": lambda x, i: x[:2, :1].expand(2, 3)[0, i],
    "expanded, gathered": lambda x, i: x[:1, 0].expand(2, 2).gather(1, i[None]),
    "of one row": lambda x, i: F.embedding(i, x[:1, 0][:, None]),
    "of numbers": lambda x, i: torch.ones(2)[i],
    "of one number": lambda x, i: torch.full((1,), 3.0)[None, None].expand(1, 1, 2)[0, i, 1],
    "without elements": lambda x, i: x[:0].index_select(1, i),
}
"""Tensors in which the place that an index picks makes no difference."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ALL_ALIKE)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_an_index_is_checked_where_all_elements_are_alike(name: str, dynamic: bool) -> None:
    use = ALL_ALIKE[name]
    compiled = fusewright.compile(use, dynamic=dynamic)
    good, bad = torch.tensor([0]), torch.tensor([7])
    torch.testing.assert_close(compiled(X, good), use(X, good), rtol=0, atol=0)
    assert raised(compiled, X, bad) == raised(use, X, bad)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_resampling_of_nothing_raises(dynamic: bool) -> None:
    """Only the batch may be empty."""

    def use(x: Tensor, size: int) -> Tensor:
        return F.interpolate(x, size)

    compiled = fusewright.compile(use, dynamic=dynamic)
    assert raised(compiled, torch.ones(1, 0, 4), 3) == raised(use, torch.ones(1, 0, 4), 3)
    assert compiled(torch.ones(0, 1, 4), 3).shape == (0, 1, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, n: torch.zeros(n),
        lambda x, n: torch.rand(2, n),
        lambda x, n: torch.eye(3, n),
        lambda x, n: torch.randperm(n),
        lambda x, n: torch.randint(0, 9, (n,)),
        lambda x, n: torch.linspace(0, 1, n),
        lambda x, n: x.new_ones(n),
        lambda x, n: x.view(n, -1),
    ],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_size_that_becomes_negative_raises(make: Callable[[Tensor, int], Tensor]) -> None:
    def use(x: Tensor, n: int, m: int) -> Tensor:
        make(x, n - m)
        return x + 1

    compiled = fusewright.compile(use, dynamic=True)
    for n, m in ((7, 4), (7, 5)):
        assert torch.equal(compiled(X, n, m), X + 1)
    for n, m in ((4, 7), (3, 4)):
        assert raised(compiled, X, n, m)[0] is raised(use, X, n, m)[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.softmax(2),
        lambda x: x.log_softmax(-3),
        lambda x: F.conv1d(x[None], x[None, :, :1], dilation=0),
        lambda x: F.conv_transpose1d(x[None], x[:, None, :1], stride=0),
        lambda x: F.conv1d(x[None], x[None, :, :0]),
        lambda x: F.one_hot(x.long().flatten(), 0),
        lambda x: F.one_hot(x[:0].long().flatten(), 0),
    ],
)
def test_an_argument_out_of_its_range_raises(call: Callable[[Tensor], Tensor]) -> None:
    assert raised(fusewright.compile(call), X)[0] is raised(call, X)[0]


def test_a_read_of_everything_still_takes_the_value_in() -> None:
    """The index is checked in the kernel of its one reader, and nothing is stored between."""

    def use(x: Tensor, i: Tensor) -> Tensor:
        return torch.relu(x[i].t() * 2)

    module, tensors = graph_of(use, (X, torch.tensor([2, 0])), {})
    assert len(compile_graph(module, tensors, CompileContext(Options())).record.launches) == 1


def test_division_by_a_number_is_dead_code() -> None:
    def use(x: Tensor) -> Tensor:
        x // 2
        return x + 1

    module, tensors = graph_of(use, (WHOLE,), {})
    record = compile_graph(module, tensors, CompileContext(Options())).record
    assert [len(group.writes) for group in record.schedule.works] == [1]
