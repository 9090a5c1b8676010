"""Programs whose backward raises in eager: the compiled ones return from forward, without a
warning, and raise the same.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright


def refused_in_backward(x: Tensor) -> Tensor:
    """Its gradient subtracts a bool tensor."""
    return torch.logaddexp2(x, torch.tensor(True))


def saved_result_is_written_to(x: Tensor) -> Tensor:
    """The gradient of exp is its result."""
    y = x.exp()
    y.add_(1)
    return y


def saved_argument_is_written_to(x: Tensor) -> Tensor:
    """The gradient of the loss needs its argument."""
    loss = F.binary_cross_entropy_with_logits(x, x)
    x[x > 0] = 0
    return loss


PROGRAMS = (refused_in_backward, saved_result_is_written_to, saved_argument_is_written_to)


def raised_in_backward(program: Callable[[Tensor], Tensor]) -> tuple[type, str, str]:
    """The result's text, and what its backward raises: type and words."""
    x = torch.linspace(-1, 1, 5, requires_grad=True)
    result = program(x * 1)
    with pytest.raises(Exception) as caught:
        result.sum().backward()
    return caught.type, str(caught.value), str(result.detach())


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_backward_raises_what_eager_does(program: Callable[[Tensor], Tensor], strict: bool) -> None:
    compiled = fusewright.compile(program, options={"strict": strict})
    assert raised_in_backward(compiled) == raised_in_backward(program)


def test_what_eager_raises_in_backward_is_told_but_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A program whose backward would raise may never be differentiated."""

    def program(x: Tensor) -> Tensor:
        products = x @ x.t()
        logarithms = torch.special.log_ndtr(products)
        products.diagonal().fill_(2.0)
        return logarithms

    compiled = fusewright.compile(program)
    with caplog.at_level("INFO", "fusewright.fallbacks"):
        compiled(torch.ones(3, 4, requires_grad=True))
    (told,) = [one for one in caplog.records if one.name == "fusewright.fallbacks"]
    assert told.levelname == "INFO"
    assert "backward raises RuntimeError" in told.getMessage()


def test_a_defect_while_tracing_backward_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what eager raises as well goes without a warning."""

    def fails(*arguments: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(fusewright.torch_compat, "gradients", fails)
    with pytest.warns(RuntimeWarning, match="a defect"):
        fusewright.compile(lambda x: x.exp())(torch.ones(2, requires_grad=True))
