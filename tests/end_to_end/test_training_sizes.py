"""Training with sizes that vary from call to call: one compilation, whose forward half keeps the
sizes that its backward half needs.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fusewright

Program = Callable[[torch.Tensor, torch.Tensor], Any]

PROGRAMS: dict[str, Program] = {
    "a mean over what varies": lambda x, w: (x @ w).mean(0),
    "a size as a number": lambda x, w: (x @ w).sum() / x.shape[0],
    "flattened": lambda x, w: (x @ w).view(-1).sin(),
    "split in two": lambda x, w: (x @ w).view(2, x.shape[0] // 2, -1).exp().sum(1),
    "expanded": lambda x, w: w.sum(0).expand(x.shape[0], -1) * x.sum(1, keepdim=True),
    "joined": lambda x, w: torch.cat([x @ w, x, x @ w * 2]).sin(),
    "the first half": lambda x, w: (x @ w)[: x.shape[0] // 2].cos(),
    "all but one": lambda x, w: (x @ w)[1:].cos(),
    "chunks": lambda x, w: (x @ w).chunk(2)[1].sin(),
    "rows by number": lambda x, w: (x @ w)[torch.arange(x.shape[0] - 1)].sin(),
    "normed over what varies": lambda x, w: F.layer_norm((x @ w).t(), (x.shape[0],)),
    "attention": lambda x, w: F.scaled_dot_product_attention(*(x @ w, x, x), is_causal=True),
    "all pairs": lambda x, w: ((x @ w) @ (x @ w).t()).tril().sum(0),
    "dropout": lambda x, w: F.dropout(x @ w, 0.5),
    "padded": lambda x, w: F.pad(x @ w, (0, 0, 1, 2)).sin(),
    "sums so far": lambda x, w: (x @ w).cumsum(0).sin(),
    "pooled": lambda x, w: F.adaptive_avg_pool1d((x @ w).t(), 2),
    "a loss": lambda x, w: F.cross_entropy(x @ w, torch.zeros(x.shape[0], dtype=torch.long)),
    "margin losses": lambda x, w: (
        F.multi_margin_loss(x @ w, torch.arange(x.shape[0]) % 4),
        F.multilabel_margin_loss(x @ w, torch.arange(4).expand(x.shape[0], -1)),
    ),
    "shrunk": lambda x, w: F.softshrink(x @ w, 0.3) + F.hardshrink(x @ w, 0.2),
    "results that are views": lambda x, w: ((y := x @ w), y.t(), y[1:]),
}


@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: x.topk(n // 2, 0)[0],
        lambda x, n: (x.topk(n // 2, 0)[0] * 2, x[: n // 3].sin()),
        lambda x, n: x.flatten()[: n // 2].view(n // 2, 1).exp().sum(0),
    ],
)
def test_sizes_that_are_parts_of_a_number(program: Callable[..., Any]) -> None:
    """Backward takes the number: from half of it, rounded down, it does not follow."""
    compiled = fusewright.compile(program, dynamic=True, options={"strict": True, "verify": True})
    for rows, n in ((8, 6), (5, 5), (9, 8), (7, 7)):
        x = torch.randn(rows, 4, requires_grad=True)
        gradients = []
        for function in (compiled, program):
            results = function(x, n)
            loss = sum(y.sum() for y in (results if isinstance(results, tuple) else (results,)))
            gradients.append(torch.autograd.grad(loss, x))
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    program = PROGRAMS[name]
    options = {"strict": True, "verify": True}
    compiled = fusewright.compile(program, dynamic=True, fullgraph=True, options=options)
    for size in (4, 10, 6):
        torch.testing.assert_close(step(compiled, size), step(program, size))
    assert len(fusewright.compilations(compiled)) == 1


def step(program: Program, size: int) -> list[Any]:
    """Results and gradients for inputs of `size` rows."""
    torch.manual_seed(size)
    x, w = (torch.randn(rows, 4, dtype=torch.float64).requires_grad_() for rows in (size, 4))
    result = program(x, w)
    results = result if isinstance(result, tuple) else (result,)
    weights = [torch.arange(one.numel()).view(one.shape).cos() for one in results]
    torch.stack(
        [(one * many).sum() for one, many in zip(results, weights, strict=True)]
    ).sum().backward()
    return [*results, x.grad, w.grad]


@pytest.mark.dynamic(None)
@pytest.mark.parametrize(("dynamic", "compilations"), [(True, 1), (None, 2)])
def test_a_network_on_batches_of_any_size(dynamic: bool | None, compilations: int) -> None:
    """Left to itself, the second size makes the dimension dynamic."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(2), nn.Linear(36, 4), nn.GELU()
    )
    reference = copy.deepcopy(model)
    compiled = fusewright.compile(model, dynamic=dynamic, options={"strict": True, "verify": True})
    for size in (4, 7, 2, 9):
        images = torch.randn(size, 3, 8, 8)
        for compute in (compiled, reference):
            compute(images).cos().mean().backward()
        for one, other in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(model.named_buffers()), dict(reference.named_buffers()))
    made = fusewright.compilations(compiled)
    assert len(made) == compilations
    training = made[-1].training
    assert training is not None and training.measured_bytes == training.saved_bytes


@pytest.mark.dynamic(None)
def test_strides_that_only_backward_reads() -> None:
    """Rows cut out of wider ones, whose width no size tells."""
    compiled = fusewright.compile(
        lambda x: F.elu(x).exp(), fullgraph=True, options={"strict": True, "verify": True}
    )
    for rows, columns, width in ((2, 3, 5), (4, 6, 9), (3, 7, 11), (5, 4, 8)):
        x = torch.randn(2, rows, width, requires_grad=True)
        (expected,) = torch.autograd.grad(F.elu(x[..., :columns]).exp().sum(), x)
        (found,) = torch.autograd.grad(compiled(x[..., :columns]).sum(), x)
        torch.testing.assert_close(found, expected)
    assert len(fusewright.compilations(compiled)) == 2


def test_convolutions_of_any_size_are_traced_quickly() -> None:
    """The prover of relations is asked thousands of times, with a dozen assumptions about products
    of quotients that prove nothing. A search in which each step adds terms took a minute.
    """

    def program(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(F.conv2d(x, first)), 3, 2, 1)
        return F.conv2d(F.relu(F.conv2d(x, second, padding=1)), second, padding=1) + x

    sizes = ((2, 3, 17, 17), (8, 3, 3, 3), (8, 8, 3, 3))
    inputs = [torch.randn(size, dtype=torch.bfloat16, requires_grad=True) for size in sizes]
    compiled = fusewright.compile(program, dynamic=True, options={"strict": True})
    start = time.process_time()
    compiled(*inputs).sum().backward()
    assert time.process_time() - start < 10
