"""The entry point of torch.compile: results, dynamic sizes, and what happens to graphs that cannot
be compiled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import scan, while_loop

from fusewright.backends.aot_eager import aot_eager
from fusewright.backends.torch_dynamo import fusewright


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()


STRICT = {"strict": True}


@pytest.mark.parametrize("backend", [fusewright, aot_eager], ids=lambda one: one.__name__)
def test_a_model(backend: Callable[..., Any]) -> None:
    model, x = perceptron(), torch.randn(5, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend)(x), model(x))


def test_written_inputs_and_views_of_them() -> None:
    def program(x: torch.Tensor) -> Any:
        x.add_(1)
        return x[0], x.sum()

    ours, eager = torch.zeros(3, 4), torch.zeros(3, 4)
    with torch.no_grad():
        row, total = torch.compile(program, backend=fusewright, options=STRICT)(ours)
        program(eager)
    assert torch.equal(ours, eager) and total.item() == 12
    row.zero_()
    assert ours[0].sum() == 0  # still a view of the input


def test_gradients_are_those_of_eager() -> None:
    model, x = perceptron(), torch.randn(5, 8)
    torch.compile(model, backend=fusewright, options=STRICT)(x).sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    torch.testing.assert_close(found, list(expected))


def test_no_warning_when_all_is_well() -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        torch.compile(perceptron(), backend=fusewright)(torch.randn(5, 8))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(Exception, match="unknown option 'colour'"):
        torch.compile(perceptron(), backend=fusewright, options={"colour": 1})(torch.randn(5, 8))


WEIGHT = torch.eye(4)

CONTROL_FLOW: dict[str, Callable[[torch.Tensor], Any]] = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: a @ WEIGHT, lambda a: a.cos(), (x,)) * 2,
    "while_loop": lambda x: while_loop(
        lambda i, a: i < 5, lambda i, a: (i + 1, a @ WEIGHT * 0.5), (torch.tensor(0), x)
    ),
    "scan": lambda x: scan(lambda c, row: (c + row @ WEIGHT, c * row), torch.zeros(4), x),
}


@pytest.mark.parametrize("name", CONTROL_FLOW)
def test_conditions_and_loops(name: str) -> None:
    program = CONTROL_FLOW[name]
    compiled = torch.compile(program, backend=fusewright, fullgraph=True, options=STRICT)
    for x in (torch.ones(3, 4), -torch.ones(3, 4)):
        torch.testing.assert_close(compiled(x), program(x))
