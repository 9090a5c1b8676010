"""Products of one row by a matrix whose rows lie in one piece are sums of ours, with what is
computed of them; any other product stays the library's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu
from torch.utils._pytree import tree_leaves

from tests.kernels.triton.interpreted import NAME  # isort: skip - it has to come before triton

import fusewright
from tests.relative_error import relative_error


def gated(x: Tensor, w: Tensor, v: Tensor, y: Tensor) -> Tensor:
    return silu(linear(x, w)) * linear(x, v) + y


def with_bias(x: Tensor, w: Tensor, v: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return linear(x, w, y[0, 0]).relu(), linear(x, v, y[0, 0])


def of_a_column(x: Tensor, w: Tensor, v: Tensor, y: Tensor) -> Tensor:
    return w @ x.flatten().unsqueeze(1) + v @ x.reshape(-1, 1) + y.reshape(-1, 1)


@pytest.mark.parametrize("function", [gated, with_bias, of_a_column])
@pytest.mark.parametrize(("depth", "dtype"), [(72, torch.bfloat16), (4500, torch.float16)])
def test_sums(function: Callable[..., Tensor], depth: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    shapes = (1, 1, depth), (37, depth), (37, depth), (1, 1, 37)
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    explanation = fusewright.explain(function, backend=NAME, options={"strict": True})(*inputs)
    (graph,) = explanation.graphs
    assert (graph.library_calls, graph.launches) == (0, 1)
    exact = together(function(*(value.double() for value in inputs)))
    eager, own = (
        relative_error(together(result), exact)
        for result in (function(*inputs), explanation.result)
    )
    # The interpreter cuts numbers off to bfloat16, each time; a GPU rounds them.
    assert own <= (4 if dtype is torch.bfloat16 else 1.1) * eager


def together(results: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The elements of all results."""
    return torch.cat([result.flatten() for result in tree_leaves(results)])


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.randn(2, 64).bfloat16(), torch.randn(64, 48).bfloat16().t()),
        (torch.randn(1, 64).bfloat16(), torch.randn(64, 48).bfloat16().t()),
        (torch.randn(1, 64), torch.randn(48, 64)),
    ],
    ids=["two rows", "rows lie across memory", "float32"],
)
def test_library(inputs: tuple[Tensor, Tensor]) -> None:
    explanation = fusewright.explain(linear, backend=NAME, options={"strict": True})(*inputs)
    (graph,) = explanation.graphs
    assert (graph.library_calls, graph.launches) == (1, 0)
