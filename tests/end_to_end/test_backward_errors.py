"""Programs whose backward raises in eager: the compiled ones return from forward, without a
warning, and raise the same.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright
from fusewright.fake import handlers


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


def loss_of_two_types(x: Tensor) -> Tensor:
    """Its gradient takes one type only, where those of other losses take two."""
    return F.huber_loss(x, torch.zeros(5, dtype=torch.float64))


def loss_of_a_narrow_target(x: Tensor) -> Tensor:
    """The same, of a target that would be widened."""
    return F.huber_loss(x, torch.zeros(5, dtype=torch.bfloat16))


PROGRAMS = (
    refused_in_backward,
    saved_result_is_written_to,
    saved_argument_is_written_to,
    loss_of_two_types,
    loss_of_a_narrow_target,
)


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


def reads_the_size_of_what_it_saves(x: Tensor) -> tuple[Tensor, Tensor]:
    """The node of cummax saves its argument, whose sizes alone its gradient needs."""
    total = x * 2
    return total, total.cummax(0).values


def saves_its_input(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same of an input."""
    return x, x.cummax(0).values


def saves_what_it_writes(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same of an input that is written to."""
    x.add_(1)
    return x, x.cummax(0).values


SAVING = (reads_the_size_of_what_it_saves, saves_its_input, saves_what_it_writes)


@pytest.mark.parametrize("program", SAVING)
def test_what_eager_saves_is_checked_though_nothing_reads_it(
    program: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> None:
    def raised(function: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[type, str]:
        saved, result = function(torch.ones(3, requires_grad=True) * 1)
        saved[0] = 4
        with pytest.raises(Exception) as caught:
            result.sum().backward()
        return caught.type, str(caught.value)

    assert raised(fusewright.compile(program)) == raised(program)


@pytest.mark.parametrize("program", SAVING)
def test_what_eager_saves_may_be_gone_when_it_is_checked(
    program: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> None:
    saved, result = fusewright.compile(program)(torch.ones(3, requires_grad=True) * 1)
    saved[0] = 4
    del saved
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.parametrize("program", SAVING)
def test_what_is_not_written_to_or_not_saved_raises_nothing(
    program: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> None:
    compiled = fusewright.compile(program)
    x = torch.ones(3, requires_grad=True)
    saved, result = compiled(x * 1)
    result.sum().backward()
    assert x.grad is not None
    saved, _ = compiled(x * 1)
    saved[0] = 4
    saved.sum().backward()  # the node of cummax does not run
    saved, result = compiled(x * 1)
    saved.data[0] = 4
    result.sum().backward()
    with torch.no_grad():
        saved, result = compiled(x * 1)
    assert not result.requires_grad


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.exp(),
        lambda x: x.relu() + 1,
        lambda x: x.tanh() * 3,
        lambda x: F.softmax(x, -1) * 2,
        lambda x: x.sigmoid().sum(),
    ],
)
def test_an_input_that_eager_does_not_save_may_be_written_to(
    program: Callable[[Tensor], Tensor],
) -> None:
    gradients = []
    for function in (program, fusewright.compile(program)):
        leaf = torch.linspace(-1, 1, 5, requires_grad=True)
        x = leaf * 1
        result = function(x)
        x.add_(1)
        result.sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_check_of_what_eager_saves_keeps_no_memory() -> None:
    total, result = fusewright.compile(reads_the_size_of_what_it_saves)(
        torch.ones(3, requires_grad=True)
    )
    gone = weakref.ref(total)
    del total
    assert gone() is None
    result.sum().backward()


def test_a_defect_while_tracing_backward_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what eager raises as well goes without a warning."""

    def fails(*arguments: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(fusewright.torch_compat.autograd, "gradients", fails)
    with pytest.warns(RuntimeWarning, match="a defect"):
        fusewright.compile(lambda x: x.exp())(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss])
def test_a_gradient_of_two_types_is_asked_of_eager(
    loss: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch before 2.13 refuses it."""
    asked = []

    def refusal(op: torch._ops.OpOverload, *_: object) -> None:
        asked.append(op.overloadpacket.__name__)

    monkeypatch.setattr(handlers, "refusal", refusal)
    compiled = fusewright.compile(lambda x: loss(x, torch.zeros(5, dtype=torch.float64)))
    compiled(torch.ones(5, requires_grad=True)).backward()
    assert f"{loss.__name__}_backward" in asked
