"""Checks of tensors' values: a branch that only raises stands in the graph, and what it raises is
the program's own exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, distributions, nn

import fusewright

GOOD, BAD = torch.tensor([1.0, 2.0]), torch.tensor([1.0, -2.0])
BACKENDS = pytest.mark.parametrize("backend", ["eager", "fusewright"])


def raises(x: Tensor) -> Tensor:
    if (x < 0).any():
        raise ValueError(f"negative: {x.tolist()}")
    return x.sqrt() + 1


def asserts(x: Tensor) -> Tensor:
    y = x * 2
    assert (y > 0).all(), "must be positive"
    return y.log()


def either(x: Tensor) -> Tensor:
    if torch.isnan(x).any() or not torch.all(x > 0):
        kind = "NaN" if x.isnan().any() else "sign"
        raise ArithmeticError(kind)
    return x - 1


def through_a_call(x: Tensor) -> Tensor:
    return raises(x) * asserts(x)


def number(x: Tensor) -> Tensor:
    if not x.prod():
        return x
    if x.min() < 0:
        raise ValueError
    return x + 2


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns; else the exception, its text without what pytest adds, and its line."""
    try:
        return function(*arguments)
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        return type(error), str(error).partition("\n")[0], place and place.tb_lineno


def agree(found: Any, wanted: Any) -> None:
    if isinstance(wanted, Tensor):
        torch.testing.assert_close(found, wanted, equal_nan=True)
    else:
        assert found == wanted


@BACKENDS
@pytest.mark.parametrize("function", [raises, asserts, either, through_a_call])
def test_a_branch_that_raises_is_a_check(function: Any, backend: str) -> None:
    compiled = fusewright.compile(function, backend=backend, options={"strict": True})
    for x in (GOOD, BAD, GOOD, torch.full((2,), float("nan"))):
        agree(outcome(compiled, x), outcome(function, x))
    assert len(fusewright.compilations(compiled)) == 1


def test_a_branch_that_goes_on_is_none() -> None:
    found = fusewright.explain(number, backend="eager")(GOOD)
    assert [one.reason for one in found.breaks] == ["branch-on-tensor"]


@BACKENDS
def test_a_check_in_a_try(backend: str) -> None:
    def f(x: Tensor) -> Tensor:
        try:
            return raises(x)
        except ValueError as error:
            return x - len(str(error))

    compiled = fusewright.compile(f, backend=backend, options={"strict": True})
    for x in (GOOD, BAD, GOOD):
        agree(compiled(x), f(x))


@BACKENDS
def test_a_check_beside_a_write_breaks_the_graph(backend: str) -> None:
    """The call could not begin again after the write."""

    def f(x: Tensor, seen: Tensor) -> Tensor:
        seen += 1
        return raises(x)

    compiled = fusewright.compile(f, backend=backend)
    seen = torch.zeros(())
    for x in (GOOD, BAD, GOOD):
        wanted = outcome(raises, x)
        found = outcome(compiled, x, seen)
        agree(found, wanted)
    assert seen == 3
    breaks = fusewright.explain(compiled).history.breaks
    assert {one.reason for one in breaks} == {"branch-on-tensor"}


@BACKENDS
def test_what_a_program_does_before_a_check_that_fails_is_done_once(backend: str) -> None:
    calls: list[int] = []

    def f(x: Tensor) -> Tensor:
        calls.append(x.shape[0])
        noise = torch.rand(2)
        return raises(x) + noise

    compiled = fusewright.compile(f, backend=backend, options={"strict": True})
    torch.manual_seed(0)
    for x in (GOOD, BAD, GOOD):
        outcome(compiled, x)
    state = torch.get_rng_state()
    torch.manual_seed(0)
    for x in (GOOD, BAD, GOOD):
        outcome(f, x)
    assert calls == [2] * 6
    torch.testing.assert_close(state, torch.get_rng_state())


def test_gradients_pass_by_checks() -> None:
    x = GOOD.clone().requires_grad_()
    compiled = fusewright.compile(through_a_call, options={"strict": True})
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    (wanted,) = torch.autograd.grad(through_a_call(x).sum(), x)
    torch.testing.assert_close(found, wanted)


def test_distributions_check_what_they_are_given() -> None:
    policy = nn.Linear(3, 4)

    def act(state: Tensor, spread: Tensor) -> tuple[Tensor, ...]:
        chosen = distributions.Categorical(logits=policy(state), validate_args=True)
        noise = distributions.Independent(
            distributions.Normal(state, spread, validate_args=True), 1
        )
        action = chosen.sample()
        return action, chosen.log_prob(action), chosen.entropy(), noise.log_prob(noise.rsample())

    compiled = fusewright.compile(act, options={"strict": True})
    state, spread = torch.randn(5, 3), torch.ones(3)
    torch.manual_seed(0)
    found = compiled(state, spread)
    torch.manual_seed(0)
    torch.testing.assert_close(found, act(state, spread))
    assert len(fusewright.compilations(compiled)) == 1
    with pytest.raises(ValueError, match="Expected parameter scale"):
        compiled(state, -spread)


def test_checks_of_torch_s_own_functions() -> None:
    def f(x: Tensor, spread: Tensor) -> Tensor:
        return nn.functional.gaussian_nll_loss(x, x * 2, spread)

    compiled = fusewright.compile(f, options={"strict": True})
    torch.testing.assert_close(compiled(GOOD, GOOD), f(GOOD, GOOD))
    with pytest.raises(ValueError, match="var has negative entry"):
        compiled(GOOD, BAD)
