"""Formulas of gradients that read the values of tensors run as they are written, inside of one
backward graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

import fusewright
from tests.aot.beside_eager import Program


@torch.library.custom_op("opaque_gradients::grouped_mm", mutates_args=())
def grouped_mm(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    result = x.new_zeros(x.size(0), weight.size(2))
    begin = 0
    for group, end in enumerate(ends.tolist()):
        torch.mm(x[begin:end], weight[group], out=result[begin:end])
        begin = end
    return result


@grouped_mm.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.size(0), weight.size(2))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.ends = inputs[2]


def _by_group(ctx: Any, gradient: torch.Tensor) -> Any:
    x, weight = ctx.saved_tensors
    of_x, of_weight = torch.zeros_like(x), torch.zeros_like(weight)
    begin = 0
    for group, end in enumerate(ctx.ends.tolist()):
        torch.mm(gradient[begin:end], weight[group].T, out=of_x[begin:end])
        torch.mm(x[begin:end].T, gradient[begin:end], out=of_weight[group])
        begin = end
    return of_x, of_weight, None


grouped_mm.register_autograd(_by_group, setup_context=_keep)


def experts(x: torch.Tensor, weight: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return grouped_mm(x * 2, weight, counts.cumsum(0).to(torch.int32)).sin()


class Nested(NamedTuple):
    items: list[Any]


class ByValue(torch.autograd.Function):
    """A gradient that is the tangent itself, another of its size, or none, as a value tells."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, scale: float, which: Any) -> Any:
        ctx.scale = scale
        ctx.size = x.shape
        ctx.nested = {"which": Nested([which])}
        ctx.save_for_backward(y)
        return x + y.exp() * scale

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        (y,) = ctx.saved_tensors
        assert ctx.needs_input_grad[2:] == (False, False)
        assert ctx.size.numel() == gradient.numel()
        of_y = gradient * y.exp() * ctx.scale if ctx.needs_input_grad[1] else None
        match int(ctx.nested["which"].items[0]):
            case 0:
                return gradient, of_y, None, None
            case 1:
                return None, of_y, None, None
            case 2:
                return gradient.new_ones(7, *ctx.size), of_y, None, None
        return gradient.double(), gradient, None, None


def check(program: Program, *inputs: Any, dynamic: bool | None = None) -> None:
    """Gradients equal eager's, for other values as well."""
    options = {"strict": True, "verify": True}
    compiled = fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=options)
    for _ in range(2):
        leaves = [one for one in inputs if one.requires_grad]
        expected, found = program(*inputs), compiled(*inputs)
        torch.testing.assert_close(found, expected)
        tangent = torch.randn_like(expected)
        of_eager = torch.autograd.grad(expected, leaves, tangent, allow_unused=True)
        of_compiled = torch.autograd.grad(found, leaves, tangent, allow_unused=True)
        for one, like in zip(of_compiled, of_eager, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if like is None else like)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("counts", [(2, 0, 4), (0, 6, 0), (1, 2, 3)])
def test_a_custom_operator(counts: tuple[int, ...], dynamic: bool | None) -> None:
    x, weight = torch.randn(6, 4), torch.randn(3, 4, 5)
    inputs = x.requires_grad_(), weight.requires_grad_(), torch.tensor(counts)
    check(experts, *inputs, dynamic=dynamic)


def test_a_custom_operator_of_which_one_gradient_is_needed() -> None:
    x, weight = torch.randn(6, 4, requires_grad=True), torch.randn(3, 4, 5)
    check(experts, x, weight, torch.tensor([2, 1, 3]))
    check(experts, x.detach(), weight.requires_grad_(), torch.tensor([2, 1, 3]))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("which", range(4))
def test_an_autograd_function(which: int, dynamic: bool | None) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        return ByValue.apply(x.cos(), y, 0.5, which) * 3

    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    check(program, x, y, torch.tensor(which), dynamic=dynamic)
    check(program, x, y.requires_grad_(), torch.tensor(which), dynamic=dynamic)


def test_values_change_from_call_to_call() -> None:
    compiled = fusewright.compile(experts, fullgraph=True, options={"strict": True})
    x, weight = torch.randn(6, 4, requires_grad=True), torch.randn(3, 4, 5, requires_grad=True)
    for counts in ((2, 0, 4), (6, 0, 0), (1, 4, 1)):
        given = torch.tensor(counts)
        expected = torch.autograd.grad(experts(x, weight, given).sum(), (x, weight))
        found = torch.autograd.grad(compiled(x, weight, given).sum(), (x, weight))
        torch.testing.assert_close(found, expected)


def test_what_a_formula_raises_comes_through() -> None:
    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            (x,) = ctx.saved_tensors
            if x.sum().item() > 10:
                raise ValueError("too much")
            return gradient * x.cos()

    def program(x: torch.Tensor) -> torch.Tensor:
        return Refusing.apply(x) * 1

    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    x = torch.ones(3, requires_grad=True)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
    with pytest.raises(ValueError, match="too much"):
        compiled(x * 5).sum().backward()
