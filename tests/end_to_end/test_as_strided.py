"""`as_strided` counts from the beginning of a storage, which other tensors may show as well, and
raises where that ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright

Program = Callable[[torch.Tensor], Any]


def part(begin: int, *, step: int = 1) -> torch.Tensor:
    """Four elements of a tensor of twenty."""
    return torch.arange(20.0)[begin : begin + 4 * step : step]


def outcome(function: Program, x: torch.Tensor) -> tuple[Any, ...]:
    """What a call gives, or the class of what it raises, and all the memory behind its argument."""
    try:
        result = function(x)
    except RuntimeError as error:
        return type(error), x._base
    shares = [
        one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        for one in (result if isinstance(result, tuple) else (result,))
    ]
    return result, shares, x._base


def assert_alike(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found[:-1], expected[:-1], rtol=0, atol=0)
    torch.testing.assert_close(found[-1], expected[-1], rtol=0, atol=0)


def add_to_view(x: torch.Tensor, *geometry: Any) -> tuple[torch.Tensor, ...]:
    x.as_strided(*geometry).add_(1)
    return x + 1, x.as_strided(*geometry)


def write_all_then_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.view(2, 2).t() + 1
    z = y.as_strided((3,), (1,))
    y.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    return z + 1, y, z


def view_of_view(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[1:3].as_strided((3,), (1,), 0).mul_(2)
    return y


INSIDE: dict[str, Program] = {
    "a view": lambda x: x.as_strided((2,), (1,), x.numel()),
    "read": lambda x: x.as_strided((2,), (1,), 4) + 1,
    "written": lambda x: add_to_view(x, (2,), (1,), 4),
    "written, from the tensor's own beginning": lambda x: add_to_view(x, (2,), (2,)),
    "a part is put in": lambda x: x.as_strided_scatter(torch.ones(2), (2,), (1,), 4),
    "of a result": lambda x: (x + 1)[1:].as_strided((3,), (1,), 0) * 2,
    "of a copied view": lambda x: (x + 1)[2:].clone().as_strided((2,), (1,), 0) * 2,
    "a view of a result is written": view_of_view,
    "of a result written in another order": write_all_then_view,
    "in place": lambda x: (x + 1).as_strided_((2, 2), (1, 2)) * 2,
}


@pytest.mark.parametrize("case", INSIDE)
def test_within_the_elements_of_the_argument_is_compiled(case: str) -> None:
    ours = fusewright.compile(INSIDE[case], options={"strict": True})
    for begin in (3, 4, 2, 3):
        assert_alike(outcome(ours, part(begin)), outcome(INSIDE[case], part(begin)))


def add_to_gaps(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.mul_(3)
    y = x.as_strided((5,), (1,))
    y.add_(1)
    return x + 1, y


ANYWHERE: dict[str, Program] = {
    "before the argument": lambda x: x.as_strided((2,), (1,), 0),
    "before it, read": lambda x: x.as_strided((2,), (1,), 0) + 1,
    "before it, written": lambda x: add_to_view(x, (2,), (1,), 0),
    "behind it, written": lambda x: add_to_view(x, (6,), (1,)),
    "between its elements": lambda x: x[::2].as_strided((3,), (1,)) * 2,
    "between its elements, written": lambda x: add_to_gaps(x),
}


@pytest.mark.parametrize("case", ANYWHERE)
@pytest.mark.parametrize("step", [1, 2])
def test_beyond_the_elements_of_the_argument(case: str, step: int) -> None:
    ours = fusewright.compile(ANYWHERE[case])
    for begin in (1, 2, 0, 6):
        given, expected = part(begin, step=step), part(begin, step=step)
        assert_alike(outcome(ours, given), outcome(ANYWHERE[case], expected))


BEYOND: dict[str, Program] = {
    "a result": lambda x: (x + 1).as_strided((100,), (1,), 0) + 1,
    "a result that nobody reads": lambda x: ((x + 1).as_strided((100,), (1,), 0), x)[1],
    "an argument": lambda x: x.as_strided((100,), (1,), 0) + 1,
    "an argument that nobody reads": lambda x: (x.as_strided((3, 9), (9, 1), 0), x)[1],
    "of the size given": lambda x: ((x + 1).as_strided((2 * x.shape[0],), (1,)) + 1).sum(),
    "a negative offset": lambda x: (x + 1).as_strided((2,), (1,), -3) + 1,
    "a negative stride": lambda x: (x + 1).as_strided((2,), (-1,), 3) + 1,
    "in place": lambda x: (x + 1).as_strided_((2, 2), (2, 2)),
    "a copy": lambda x: torch.as_strided_copy(x + 1, (2,), (1,), 3),
    "a part put in": lambda x: (x + 1).as_strided_scatter(torch.ones(2), (2,), (1,), 3),
}


@pytest.mark.parametrize("case", BEYOND)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_beyond_the_storage_raises(case: str, dynamic: bool, grad: bool) -> None:
    x = part(2).requires_grad_(grad)
    with pytest.raises(RuntimeError) as expected:
        BEYOND[case](x)
    with pytest.raises(RuntimeError) as found:
        fusewright.compile(BEYOND[case], dynamic=dynamic)(x)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("begin", [4, 3])
def test_arguments_that_share_memory(begin: int) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.as_strided((2,), (1,), 4).add_(1)
        return x + 1, y * 2

    def run(function: Any) -> Any:
        base = torch.arange(10.0)
        return function(base[begin : begin + 4], base[begin + 1 : begin + 5]), base

    ours = fusewright.compile(program, options={"strict": True})
    torch.testing.assert_close(run(ours), run(program), rtol=0, atol=0)


@pytest.mark.parametrize("shared", [False, True])
def test_gradients(shared: bool) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.as_strided((2,), (1,), 4).mul_(3)
        return x.as_strided((3,), (1,), 3).sin(), y * 2

    def run(function: Any) -> Any:
        leaf = torch.linspace(0, 1, 10, requires_grad=True)
        base = leaf * 2
        other = base if shared else leaf.cos()
        results = function(base[3:7], other[4:8])
        sum((one * torch.linspace(1, 2, len(one))).sum() for one in results).backward()
        return results, leaf.grad

    ours = fusewright.compile(program, options={"strict": True})
    torch.testing.assert_close(run(ours), run(program))
