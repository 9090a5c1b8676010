"""`compile(…, dynamic_shapes=…)`: which sizes and integers of the arguments are symbols, as the
user says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import fusewright
from fusewright.api import compilations
from fusewright.errors import MarkedDimension, WrongShape


def rows(*sizes: int) -> Tensor:
    return torch.arange(float(torch.Size(sizes).numel())).reshape(sizes)


def compiled(function: Any, said: Any, **keywords: Any) -> Any:
    return fusewright.compile(
        function, backend="eager", fullgraph=True, dynamic_shapes=said, **keywords
    )


def agree(function: Any, said: Any, *calls: tuple[Any, ...]) -> int:
    """Compare calls with eager's; how often it was compiled."""
    found = compiled(function, said)
    for arguments in calls:
        torch.testing.assert_close(found(*arguments), function(*arguments))
    return len(compilations(found))


def mean(x: Tensor) -> Tensor:
    return x.sum(0) / x.shape[0] + x.shape[1]


@pytest.mark.parametrize(
    "said",
    [
        {"x": {0: Dim.DYNAMIC}},
        {"x": {-2: Dim("rows")}},
        {"x": (Dim("rows", min=2, max=100), None)},
        {"x": [Dim.DYNAMIC, Dim.STATIC]},
        ({0: Dim.DYNAMIC},),
        [(Dim.DYNAMIC, 3)],
    ],
    ids=str,
)
def test_a_dimension_that_is_said_to_vary_does_from_the_first_call_on(said: Any) -> None:
    assert agree(mean, said, (rows(4, 3),), (rows(5, 3),), (rows(9, 3),)) == 1


@pytest.mark.parametrize("said", [{}, {"x": None}, {"x": {0: None}}, {"x": {0: Dim.STATIC}}, ()])
def test_a_size_of_which_nothing_is_said_is_static(said: Any) -> None:
    assert agree(mean, said, (rows(4, 3),), (rows(5, 3),), (rows(9, 3),)) == 3


def test_a_size_that_is_to_be_found_out() -> None:
    said = {"x": {0: Dim.AUTO}}
    assert agree(mean, said, (rows(4, 3),), (rows(5, 3),), (rows(9, 3),)) == 2
    calls = [(rows(n, m),) for n in (4, 5, 9) for m in (3, 4)]
    assert agree(mean, said, *calls) == 4  # for 4 rows and any, of 3 numbers and of 4


def test_a_size_that_is_said_to_vary_and_may_not() -> None:
    function = compiled(lambda x: x + torch.ones(4, 1), {"x": {0: Dim("rows")}})
    with pytest.raises(MarkedDimension, match=r"x\.size\(0\) .* has to be 4"):
        function(rows(4, 3))


def test_an_integer_that_is_said_to_vary_and_may_not() -> None:
    function = compiled(lambda x, n: [x + i for i in range(n)], {"n": Dim.DYNAMIC})
    with pytest.raises(MarkedDimension, match="n is marked as dynamic, but has to be 3"):
        function(rows(2), 3)


def add(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, y + 1


def test_sizes_of_one_name_are_equal() -> None:
    batch = Dim("batch")
    function = compiled(add, {"x": {0: batch}, "y": {1: batch}})
    for size in (4, 7):
        function(rows(size, 2), rows(3, size))
    assert len(compilations(function)) == 1
    with pytest.raises(WrongShape, match=r"y\.size\(1\) is 5, and x\.size\(0\) is another"):
        function(rows(4, 2), rows(3, 5))
    function(rows(6, 2), rows(3, 6))
    assert len(compilations(function)) == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"x": {0: 4}}, "says at most 4"),
        ({"x": {0: 6}}, "says at least 6"),
        ({"x": {0: Dim("rows", max=4)}}, "says at most 4"),
        ({"x": {0: Dim("rows", min=6)}}, "says at least 6"),
        ({"x": {2: Dim.DYNAMIC}}, "has 2 dimensions"),
        ({"x": (None, None, None)}, "has 2 dimensions"),
        ({"x": Dim.DYNAMIC}, "is a tensor"),
    ],
    ids=str,
)
def test_another_shape_than_was_said_is_an_error(said: Any, words: str) -> None:
    function = compiled(mean, said)
    for _ in range(2):
        with pytest.raises(WrongShape, match=words):
            function(rows(5, 3))


def test_a_bound_is_told_of_at_the_call_that_breaks_it() -> None:
    function = compiled(mean, {"x": {0: Dim("rows", min=3, max=6)}})
    for size in (4, 3, 6):
        torch.testing.assert_close(function(rows(size, 2)), mean(rows(size, 2)))
    for size in (2, 7):
        with pytest.raises(ValueError, match=f"is {size}, and dynamic_shapes says"):
            function(rows(size, 2))
    assert len(compilations(function)) == 1


def nested(parts: Any, n: int, *, named: Any) -> Any:
    return [part * n for part in parts["all"]], named["x"] + n


def test_containers_and_integers() -> None:
    batch = Dim("batch")
    said = {
        "parts": {"all": [{0: batch}, None]},
        "n": Dim.DYNAMIC,
        "named": {"x": (batch, None)},
    }
    function = compiled(nested, said)
    for size, n in ((4, 3), (5, 7), (6, 2)):
        arguments = {"all": [rows(size), rows(2)]}, n
        expected = nested(*arguments, named={"x": rows(size, 2)})
        torch.testing.assert_close(function(*arguments, named={"x": rows(size, 2)}), expected)
    assert len(compilations(function)) == 1
    function({"all": [rows(4), rows(3)]}, 3, named={"x": rows(4, 2)})
    assert len(compilations(function)) == 2


@pytest.mark.parametrize(
    ("said", "times"), [(None, 3), (Dim.STATIC, 3), (Dim.AUTO, 2), (Dim.DYNAMIC, 1)], ids=str
)
def test_an_integer(said: Any, times: int) -> None:
    calls = [(rows(4), n) for n in (3, 4, 5)]
    assert agree(lambda x, n: x * n, {"n": said}, *calls) == times


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor, *more: Tensor, scale: Tensor) -> Any:
        return self.linear(x) * scale, [each + 1 for each in more]


@pytest.mark.parametrize("way", ["module", "method", "object"])
def test_modules_methods_and_objects(way: str) -> None:
    module = Layer()
    batch = Dim("batch")
    said = {"x": {0: batch}, "more": ({0: Dim.DYNAMIC}, None), "scale": {0: batch}}
    targets = {"module": module, "method": module.forward, "object": lambda: None}
    if way == "object":

        class Calls:
            def __call__(self, x: Tensor, *more: Tensor, scale: Tensor) -> Any:
                return module(x, *more, scale=scale)

        targets["object"] = Calls()
    function = compiled(targets[way], said)
    for size, other in ((4, 3), (5, 6), (9, 2)):
        arguments = rows(size, 3), rows(other), rows(2)
        expected = module(*arguments, scale=rows(size, 1))
        torch.testing.assert_close(function(*arguments, scale=rows(size, 1)), expected)
    assert len(compilations(function)) == 1
    torch.testing.assert_close(
        function(x=rows(7, 3), scale=rows(7, 1)), module(x=rows(7, 3), scale=rows(7, 1))
    )


def test_behind_a_break_sizes_are_found_out() -> None:
    def function(x: Tensor) -> Tensor:
        x = x + x.shape[0]
        fusewright.graph_break()
        return x * x.shape[0]

    found = fusewright.compile(function, backend="eager", dynamic_shapes={"x": {0: Dim.DYNAMIC}})
    for size in (4, 5, 6):
        torch.testing.assert_close(found(rows(size)), function(rows(size)))


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: {"y": None}, ValueError, "no parameter 'y'"),
    (lambda: (None, None), ValueError, "2 parameters, and there are 1"),
    (lambda: 3, TypeError, "a dictionary by parameter"),
    (lambda: {"x": {0: "rows"}}, TypeError, "not 'rows'"),
    (lambda: {"x": {0: True}}, TypeError, "not True"),
    (lambda: {"x": {0: 2 * Dim("rows")}}, ValueError, "computed from another"),
]


@pytest.mark.parametrize(("said", "kind", "words"), MISTAKES)
def test_what_cannot_be_said(said: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        compiled(mean, said())


@pytest.mark.parametrize("dynamic", [True, False])
def test_one_of_two_ways_to_say_it(dynamic: bool) -> None:
    with pytest.raises(ValueError, match="give one"):
        compiled(mean, {"x": None}, dynamic=dynamic)
