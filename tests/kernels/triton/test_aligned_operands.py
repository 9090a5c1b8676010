"""Products whose operands and results have room behind their rows compute what eager does, and
nobody else sees the room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.utils._pytree import tree_leaves

from tests.kernels.triton import interpreted  # isort: skip - it has to come before triton

import fusewright
from fusewright.backends.torch_dynamo import kernel_backend
from fusewright.ir.limits import HALF_TYPES, ProductSizes
from fusewright.ir.program import Statement
from fusewright.records import replace
from fusewright.schedule import aligned_operands
from tests.relative_error import relative_error

NAME = "triton_padded"


def is_half(product: ProductSizes) -> bool:
    """Small products of half types want operands to be aligned, too, as large ones do."""
    return product.dtype in HALF_TYPES and not product.is_uneven


language = replace(
    interpreted.language,
    name=NAME,
    limits=replace(interpreted.language.limits, wants_aligned_rows=is_half),
)
fusewright.register_backend(kernel_backend(language), name=NAME)


def loss(x: Tensor, w: Tensor) -> Tensor:
    """Logits, and the gradient of them, have rows of an odd number of elements."""
    logits = linear(x, w).float().flatten(0, 1)
    return cross_entropy(logits, torch.arange(len(logits)))


def batches(x: Tensor, w: Tensor) -> Tensor:
    scores = torch.bmm(x, w.expand(4, -1, -1).transpose(1, 2)).float()
    return (scores * torch.arange(scores.shape[-1]).cos()).sum()


def seen(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Results, views that no rows are, and what is written to."""
    scores = linear(x, w)
    parts = (scores * 2).flatten().view(-1, 6)
    product = linear(x, w).sigmoid().flatten(0, 1)
    changed = (product @ w).relu_() + product.as_strided((40,), (7,), 3)
    return scores, parts + 1, changed


@pytest.mark.parametrize(
    ("function", "columns", "dtype"),
    [
        (loss, 131, torch.bfloat16),
        (loss, 4107, torch.bfloat16),  # rows that no tile holds
        (batches, 131, torch.bfloat16),
        (seen, 131, torch.float16),
    ],
)
def test_rows_with_room(
    function: Callable[..., Any], columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    with_room: set[str] = set()
    moved = aligned_operands._moved

    def noted(statement: Statement, paddings: Mapping[str, Any], analysis: Any) -> Statement:
        with_room.update(paddings)
        return moved(statement, paddings, analysis)

    monkeypatch.setattr(aligned_operands, "_moved", noted)
    inputs = [
        torch.randn(shape).to(dtype).requires_grad_() for shape in ((4, 6, 40), (columns, 40))
    ]
    options = {"strict": True, "verify": True}
    compiled = fusewright.compile(function, backend=NAME, options=options, fullgraph=True)
    exact, eager, own = (
        results_and_gradients(run, values)
        for run, values in (
            (function, [value.detach().double().requires_grad_() for value in inputs]),
            (function, inputs),
            (compiled, inputs),
        )
    )
    assert with_room
    for result, other, wanted in zip(own, eager, map(Tensor.detach, exact), strict=True):
        error, allowed = (relative_error(value.detach(), wanted) for value in (result, other))
        # The interpreter cuts numbers off to bfloat16, each time; a GPU rounds them.
        assert error <= (4 if dtype is torch.bfloat16 else 1.2) * allowed + 1e-4
        assert result.stride() == other.stride()


def results_and_gradients(function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
    results = tree_leaves(function(*inputs))
    total = sum(result.sum() for result in results)
    return [*results, *torch.autograd.grad(total, inputs)]
