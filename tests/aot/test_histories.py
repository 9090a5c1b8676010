"""Outputs that eager frees apart have histories of their own; see `aot.histories`."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fusewright
from tests.aot.beside_eager import Program, compiled, leaf


def captured(program: Program, **options: Any) -> Program:
    return fusewright.compile(  # type: ignore[no-any-return]
        program, fullgraph=True, options={"strict": True, "verify": True}, **options
    )


WAYS = pytest.mark.parametrize("compile", [compiled, captured], ids=["aot_function", "compile"])

Backwards = Callable[[Any], None]
"""Runs backward from a program's results, in some order."""


def each(results: list[Tensor]) -> None:
    for result in results:
        result.sum().backward()


def reversed_each(results: list[Tensor]) -> None:
    each(list(reversed(results)))


def at_once(results: list[Tensor]) -> None:
    sum(one.sum() for one in results).backward()  # type: ignore[union-attr]


def twice(results: list[Tensor]) -> None:
    results[0].sum().backward()
    results[0].sum().backward()


def retained(results: list[Tensor]) -> None:
    results[0].sum().backward(retain_graph=True)
    each(results)


def first_alone(results: list[Tensor]) -> None:
    results[0].sum().backward()


ORDERS = [each, reversed_each, at_once, twice, retained, first_alone]


def a_chain_of_sharing(x: Tensor, y: Tensor, z: Tensor) -> Any:
    return x.exp() * 2, (x.exp() * y.exp()).sum(), y.exp() * z


def writes_to_a_part(x: Tensor, y: Tensor, z: Tensor) -> Any:
    whole = torch.zeros_like(x)
    whole[0] = x[0] * y[1]
    return whole, z * 2, whole + 1


PROGRAMS: dict[str, Program] = {
    "nothing in common": lambda x, y, z: (x.exp(), y.sin(), z * x.detach()),
    "the same input": lambda x, y, z: (x.exp(), x.sin(), y.tanh()),
    "what saves something": lambda x, y, z: ((h := x.exp()) + y, h * 2, z * z),
    "what saves nothing": lambda x, y, z: ((h := x + y) + 1, h.sum(), h + z),
    "what saves nothing, saving behind": lambda x, y, z: ((h := x + y).exp(), h.sin(), z * h),
    "saved by the other": lambda x, y, z: ((h := x.exp()), (h.detach() * y).exp()),
    "each saved by the other": lambda x, y, z: (
        (a := x.exp()) * (b := y.exp()).detach(),
        b * a.detach(),
        a,
        b,
    ),
    "a chain of sharing": a_chain_of_sharing,
    "a write to a part": writes_to_a_part,
    "views of one result": lambda x, y, z: ((h := x.exp())[0], h[1], y.exp()[0]),
    "a network in common": lambda x, y, z: (F.relu(x @ y).sum(), F.relu(x.detach() @ y).sum()),
    "a factor that no gradient reaches": lambda x, y, z: (x * 2, y * 3, z.detach() * 2),
    "random draws": lambda x, y, z: (F.dropout(x, 0.5), F.dropout(y, 0.5) * z),
}


def outcome(program: Program, inputs: list[Tensor], backwards: Backwards) -> Any:
    """Results, and gradients or the words of what is raised instead: by then, eager may have added
    some gradients.
    """
    torch.manual_seed(0)
    results = list(program(*inputs))
    try:
        backwards([one for one in results if one.requires_grad])
    except RuntimeError as error:
        return results, str(error)
    return results, [one.grad for one in inputs]


@WAYS
@pytest.mark.parametrize("backwards", ORDERS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_backward_frees_what_it_frees_in_eager(
    program: Program, backwards: Backwards, compile: Callable[[Program], Program]
) -> None:
    inputs = [leaf(3, 3, seed=seed) for seed in range(3)]
    others = [one.detach().clone().requires_grad_() for one in inputs]
    expected = outcome(program, others, backwards)
    results, found = outcome(compile(program), inputs, backwards)
    torch.testing.assert_close(results, expected[0])
    if isinstance(found, str):
        assert found == expected[1]
    else:
        torch.testing.assert_close(found, expected[1])


@WAYS
def test_a_backward_does_not_come_by_the_inputs_of_other_outputs(
    compile: Callable[[Program], Program],
) -> None:
    """They have histories of their own, and hooks, which expect gradients."""
    program = compile(lambda fake, weight: ((fake.detach() * weight).exp(), (fake * weight).exp()))
    z, weight = leaf(3), leaf(3, seed=1)
    z.register_hook(lambda gradient: gradient * 2)
    fake = z.exp()
    loss_d, loss_g = program(fake, weight)
    loss_d.sum().backward()
    assert z.grad is None
    loss_g.sum().backward()  # through `exp` outside, which the first backward has not freed
    expected = 2 * (fake * weight).exp() * weight * fake
    torch.testing.assert_close(z.grad, expected.detach())


@WAYS
def test_a_write_between_two_backwards(compile: Callable[[Program], Program]) -> None:
    program = compile(lambda x, y: (x.exp() * y, y.sin()))
    x, y = leaf(3), leaf(3, seed=1)
    first, second = program(x, y)
    second.sum().backward()
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()
    first, second = program(x, y)
    first.sum().backward()
    with torch.no_grad():
        x.add_(1)  # `second` is not computed from it
    second.sum().backward()


def test_a_result_that_another_history_has_saved_is_checked_for_writes() -> None:
    program = compiled(lambda x, y: ((h := x.exp()), (h.detach() * y).sum()))
    h, product = program(leaf(3), leaf(3, seed=1))
    with torch.no_grad():
        h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_histories_that_save_each_others_outputs_are_no_cycle() -> None:
    program = captured(PROGRAMS["each saved by the other"])
    results = program(leaf(3), leaf(3, seed=1), leaf(3, seed=2))
    reference = weakref.ref(results[2].untyped_storage())
    gc.disable()
    try:
        del results
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_that_vary(dynamic: bool) -> None:
    def program(x: Tensor, y: Tensor) -> Any:
        return (x.exp() * x.shape[0]).sum(), y.sin().expand(x.shape[0], 3) * 2

    compiled = captured(program, dynamic=dynamic)
    for size in (4, 5):
        inputs = [leaf(size, 3), leaf(3, seed=1)]
        others = [one.detach().clone().requires_grad_() for one in inputs]
        torch.testing.assert_close(outcome(compiled, inputs, each), outcome(program, others, each))


class Adversaries(nn.Module):
    """A generator and a discriminator."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(4, 8, 4, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 8, 4, bias=False),
            nn.BatchNorm2d(8),
            nn.Flatten(),
            nn.Linear(8, 1),
        )
        self.of_generator = torch.optim.Adam(self.generator.parameters(), 1e-3)
        self.of_discriminator = torch.optim.Adam(self.discriminator.parameters(), 1e-3)

    def step(self, z: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """A step of each."""
        discriminator = self.discriminator
        fake = self.generator(z)
        loss_d = F.softplus(-discriminator(real)).mean()
        loss_d = loss_d + F.softplus(discriminator(fake.detach())).mean()
        self.of_discriminator.zero_grad()
        loss_d.backward()
        self.of_discriminator.step()
        loss_g = F.softplus(-discriminator(fake)).mean()
        self.of_generator.zero_grad()
        loss_g.backward()
        self.of_generator.step()
        return loss_d, loss_g

    def wasserstein_step(self, z: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """A step of each, with a gradient penalty."""
        critic = self.discriminator[:3].append(nn.Flatten())
        fake = self.generator(z)
        mixed = torch.lerp(real, fake.detach(), 0.3).requires_grad_()
        (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = (gradient.flatten(1).norm(2, 1) - 1).square().mean()
        loss_d = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
        self.of_discriminator.zero_grad()
        loss_d.backward()
        self.of_discriminator.step()
        loss_g = -critic(fake).mean()
        self.of_generator.zero_grad()
        loss_g.backward()
        self.of_generator.step()
        return loss_d, loss_g


@pytest.mark.parametrize("step", [Adversaries.step, Adversaries.wasserstein_step])
def test_a_generator_and_a_discriminator(step: Any) -> None:
    def trained(step: Any) -> Any:
        torch.manual_seed(0)
        model = Adversaries().double()
        losses = [
            step(
                model,
                torch.randn(3, 4, 1, 1, dtype=torch.float64),
                torch.randn(3, 1, 8, 8, dtype=torch.float64),
            )
            for _ in range(3)
        ]
        return losses, list(model.parameters()), list(model.buffers())

    expected = trained(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # `backward` breaks the graph, and nothing else is eager
        torch.testing.assert_close(trained(fusewright.compile(step)), expected)
