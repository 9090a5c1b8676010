"""`torch.equal` and its like give Python an answer: known from the sizes, or of one tensor that
cannot hold NaN. Any other answer is in the data, and breaks the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import api
from fusewright.errors import Unsupported
from tests.capture.agreement import assert_same

X = torch.arange(6.0)
NAN = torch.tensor([1.0, float("nan")])


def equal(x: Any, y: Any) -> Any:
    """As a function."""
    return x + 1, torch.equal(x, y)


def equal_by_method(x: Any, y: Any) -> Any:
    """As a method, of tensors computed here."""
    x, y = x * 2, y * 2
    return x + 1, x.equal(y), y.equal(x)


KNOWN: dict[str, Callable[[], tuple[Any, Any]]] = {
    "other length": lambda: (X, torch.ones(5)),
    "other rank": lambda: (X, X.reshape(2, 3)),
    "other length and type": lambda: (X, torch.ones(5, dtype=torch.int64)),
    "no elements": lambda: (X[:0], X[:0].double()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [equal, equal_by_method], ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", KNOWN)
def test_sizes_may_tell(kind: str, function: Callable[..., Any], dynamic: bool) -> None:
    compiled = api.compile(function, backend="eager", fullgraph=True, dynamic=dynamic)
    for _ in range(2):
        x, y = KNOWN[kind]()
        assert_same(compiled(x, y), function(x, y))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_a_tensor_without_nan_equals_itself(dtype: torch.dtype) -> None:
    def function(x: Any, y: Any) -> Any:
        same = torch.equal(x, y)
        y.fill_(1)
        return x.sum(), same, x.equal(y)

    compiled = api.compile(function, backend="eager")
    compiled_alone = api.compile(lambda x: function(x, x), backend="eager", fullgraph=True)
    for _ in range(2):
        x = torch.ones(3).to(dtype)
        assert_same(compiled_alone(x), function(x, x))
        assert_same(compiled(x, x), function(x, x))
        for other in (torch.zeros(3).to(dtype), x.clone()):
            assert_same(compiled(x, other.clone()), function(x, other.clone()))


@pytest.mark.parametrize("x", [X, NAN, NAN + 1j], ids=["numbers", "nan", "complex nan"])
def test_a_tensor_that_may_hold_nan_is_looked_at(x: torch.Tensor) -> None:
    def function(x: Any) -> Any:
        return x * 2 if torch.equal(x, x) else x - 1

    assert_same(api.compile(function, backend="eager")(x), function(x))
    with pytest.raises(Unsupported, match="even a tensor is not equal to itself"):
        api.compile(function, fullgraph=True)(x)


def test_sizes_that_vary_are_guarded() -> None:
    compiled = api.compile(equal, backend="eager")
    for sizes in ((3, 4), (3, 3), (5, 5), (7, 8), (0, 0), (0, 1)):
        x, y = torch.ones(sizes[0]), torch.ones(sizes[1])
        assert_same(compiled(x, y), equal(x, y))


def test_known_tensors_are_compared() -> None:
    def function(x: Any) -> Any:
        return x + 1, torch.equal(torch.arange(3), torch.tensor([0, 1, 2]))

    compiled = api.compile(function, backend="eager", fullgraph=True)
    assert_same(compiled(X), function(X))


@pytest.mark.parametrize("way", ["function", "method"])
def test_values_that_are_near_are_looked_at(way: str) -> None:
    def function(x: Any, y: Any) -> Any:
        asked = torch.allclose(x, y, rtol=1e-3) if way == "function" else x.allclose(y, atol=1e-3)
        return x + 1 if asked else x - 1

    compiled = api.compile(function, backend="eager")
    for other in (X.clone(), X + 1, X + 1e-5):
        assert_same(compiled(X, other), function(X, other))
    with pytest.raises(Unsupported, match=r"torch\.allclose` compares the values of tensors"):
        api.compile(function, fullgraph=True)(X, X + 1)


def test_what_cannot_be_compared_raises_what_eager_raises() -> None:
    def function(x: Any, y: Any) -> Any:
        try:
            return x + torch.equal(x, y)
        except TypeError as error:
            return x, str(error)

    compiled = api.compile(function, backend="eager")
    assert_same(compiled(X, 3), function(X, 3))
