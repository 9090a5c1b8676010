"""Custom operators that write to their arguments, and operators on lists of tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from fusewright.config import TARGETS
from fusewright.errors import (
    BackendCompilerFailed,
    GraphFailed,
    NothingRaised,
    Unsupported,
    WrongLayout,
)

CALLS: list[float] = []


@torch.library.custom_op("fusewright_tests::bump", mutates_args={"x"})
def bump(x: torch.Tensor, by: float = 1.0) -> None:
    CALLS.append(by)
    x.add_(by)


@torch.library.custom_op("fusewright_tests::swap", mutates_args={"x", "y"})
def swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    before = x.clone()
    x.copy_(y)
    y.copy_(before)
    return x - y


@swap.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("fusewright_tests::spread", mutates_args={"targets", "last"})
def spread(
    x: torch.Tensor, targets: list[torch.Tensor], last: torch.Tensor | None
) -> list[torch.Tensor]:
    for target in targets:
        target.add_(x)
    if last is not None:
        last.copy_(x)
    return [x + number for number in range(len(targets))]


@spread.register_fake
def _(
    x: torch.Tensor, targets: list[torch.Tensor], last: torch.Tensor | None
) -> list[torch.Tensor]:
    return [torch.empty_like(x) for _ in targets]


@torch.library.custom_op("fusewright_tests::drawn", mutates_args=())
def drawn(count: int) -> torch.Tensor:
    CALLS.append(0.0)
    return torch.full((count,), float(len(CALLS)))


@drawn.register_fake
def _(count: int) -> torch.Tensor:
    return torch.empty(count)


library = torch.library.Library("fusewright_tests", "FRAGMENT")
library.define("scaled(Tensor(a!) x, Tensor(b!)? y, *, float by=2) -> (Tensor(a!), Tensor)")
library.define("all_doubled(Tensor(a!)[] xs) -> ()")


@torch.library.impl(library, "scaled", "CompositeExplicitAutograd")
def _scaled(x: torch.Tensor, y: torch.Tensor | None, *, by: float = 2.0) -> Any:
    if y is not None:
        y.mul_(by)
    return x.mul_(by), x + 1


@torch.library.impl(library, "all_doubled", "CompositeExplicitAutograd")
def _all_doubled(xs: list[torch.Tensor]) -> None:
    for x in xs:
        x.mul_(2)


def strict(program: Callable[..., Any]) -> Callable[..., Any]:
    return fusewright.compile(program, fullgraph=True, options={"strict": True, "verify": True})


def test_a_write_to_an_input_is_seen() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2
        bump(x, by=3.0)
        return x + doubled

    x = torch.zeros(3)
    assert strict(program)(x).tolist() == [3.0] * 3
    assert x.tolist() == [3.0] * 3


def test_a_write_to_a_view_is_seen_in_its_base() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        whole = x + 0
        bump(whole[1])
        return whole

    assert strict(program)(torch.zeros(2, 2)).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_it_runs_once_for_each_call_even_if_nobody_reads_the_result() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        bump(x.clone(), 5.0)
        bump(x.clone(), 5.0)
        return x + 1

    compiled = strict(program)
    compiled(torch.zeros(2))
    CALLS.clear()
    compiled(torch.zeros(2))
    assert CALLS == [5.0, 5.0]


def test_results_come_beside_what_is_written() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return swap(x, y) * 2

    x, y = torch.zeros(2), torch.ones(2)
    assert strict(program)(x, y).tolist() == [2.0, 2.0]
    assert (x.tolist(), y.tolist()) == ([1.0, 1.0], [0.0, 0.0])


def check(program: Callable[..., Any], *arguments: torch.Tensor) -> None:
    given = [argument.clone() for argument in arguments]
    found = strict(program)(*given)
    torch.testing.assert_close(found, program(*arguments))
    torch.testing.assert_close(given, list(arguments))


@pytest.mark.parametrize("has_last", [False, True])
def test_lists_and_tensors_that_may_be_absent_are_written(has_last: bool) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        doubled = y * 2
        own = spread(x, [doubled[0], z], y[1] if has_last else None)
        return doubled, own, y + 1

    check(program, torch.randn(3), torch.randn(2, 3), torch.randn(3))


def test_an_argument_that_is_returned_is_the_argument() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        fresh = y + 1
        same, more = torch.ops.fusewright_tests.scaled(fresh, x, by=3.0)
        same.add_(1)
        once, _ = torch.ops.fusewright_tests.scaled(y, None)
        return fresh, same is fresh, more, once * 2

    check(program, torch.randn(3), torch.randn(3))


def test_an_operator_of_no_tensors_is_not_run_when_compiling() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.ops.fusewright_tests.all_doubled([])
        return x + drawn(3)

    compiled = fusewright.compile(program)
    CALLS.clear()
    assert [compiled(torch.zeros(3))[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert len(CALLS) == 3


def test_a_fused_step_of_an_optimiser_is_one_call() -> None:
    def trained(wrap: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        step = wrap(lambda: optimizer.step())
        for _ in range(3):
            step()
        return list(model.parameters())

    torch.testing.assert_close(trained(strict), trained(lambda step: step))


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: bump(x * 2), "gradients are tracked"),
        (lambda x: swap(x.detach(), x.detach()), "share memory"),
    ],
)
def test_what_copies_would_get_wrong_is_refused(program: Any, reason: str) -> None:
    with pytest.raises(BackendCompilerFailed, match=reason) as caught:
        strict(program)(torch.zeros(2, requires_grad=True))
    assert caught.value.location is not None


def test_lists_of_tensors_are_written_one_by_one() -> None:
    def program(first: torch.Tensor, second: torch.Tensor) -> list[torch.Tensor]:
        torch._foreach_mul_([first, second], [2.0, 3.0])
        return list(torch._foreach_norm([first, second]))

    first, second = torch.ones(4), torch.ones(2, 2)
    norms = strict(program)(first, second)
    assert [norm.item() for norm in norms] == [4.0, 6.0]
    assert (first.sum().item(), second.sum().item()) == (8.0, 12.0)


def test_gradients_are_clipped() -> None:
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.full((3,), 2.0)
    norm = strict(lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))()
    assert norm.item() == pytest.approx(24**0.5)
    found = [parameter.grad for parameter in parameters if parameter.grad is not None]
    assert torch.cat(found).norm().item() == pytest.approx(1.0, abs=1e-4)


def test_an_input_whose_geometry_changes_is_refused_at_its_line() -> None:
    with pytest.raises(Unsupported, match="`as_strided_` gives a tensor that existed") as caught:
        strict(lambda x: x.as_strided_((2,), (1,)) * 2)(torch.zeros(2, 3))
    assert caught.value.location is not None


KEPT: list[torch.Tensor] = []


@torch.library.custom_op("fusewright_tests::keep", mutates_args=())
def keep(x: torch.Tensor) -> torch.Tensor:
    """An operator that stores its argument, as one that logs activations does."""
    KEPT.append(x)
    return x + 1


@keep.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def keeps_a_buffer(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1) * 2
    z = torch.softmax(keep(y), -1).sum(0)
    return torch.softmax(torch.softmax(z + x, -1).flip(0) + 1, -1).sum(1)


def keeps_a_view(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1) * 2
    z = torch.softmax(keep(y.t()[1:]), -1).sum(0)
    return torch.softmax(torch.softmax(z + x, -1).flip(0) + 1, -1).sum(1)


def keeps_what_is_read_again(x: torch.Tensor) -> torch.Tensor:
    """A later kernel, which could write its result where it reads the buffer."""
    y = torch.softmax(x, -1) * 2
    return torch.softmax(y + keep(y), -1) * 3 + keep(x).sum()


@pytest.mark.parametrize("target", ["native", "python"])
@pytest.mark.parametrize("function", [keeps_a_buffer, keeps_a_view, keeps_what_is_read_again])
def test_what_an_operator_keeps_is_not_overwritten(
    function: Callable[[torch.Tensor], torch.Tensor], target: str
) -> None:
    x = torch.randn(64, 64)
    compiled = fusewright.compile(function, options={"verify": True, "target": target})
    KEPT.clear()
    torch.testing.assert_close(compiled(x), function(x))
    ours, eagers = KEPT[: len(KEPT) // 2], KEPT[len(KEPT) // 2 :]
    torch.testing.assert_close(ours, eagers)


@torch.library.custom_op("fusewright_tests::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).t().contiguous().t()


@turned.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    """Another layout than the operator's results have."""
    return torch.empty(x.shape)


def asks_for_turned(x: torch.Tensor) -> torch.Tensor:
    return turned(x) * 2


@pytest.mark.parametrize("target", TARGETS)
def test_copies_of_results_that_lie_otherwise_are_counted(target: str) -> None:
    options = {"target": target, "verify": True}
    explain = fusewright.explain(asks_for_turned, options=options)
    x = torch.randn(3, 4)
    before = explain(x).graphs[0].layout_copies
    found = explain(x)
    ((whose, count),) = found.graphs[0].layout_copies.items()
    assert whose.startswith("fusewright_tests.turned.default, test_custom_operators.py:")
    assert whose.endswith("  return turned(x) * 2") and count == before[whose] + 1
    assert f"  copied {count} times, since it lay otherwise: the result of {whose}" in str(found)
    torch.testing.assert_close(found.result, asks_for_turned(x))


@pytest.mark.parametrize("target", TARGETS)
def test_copies_of_results_are_an_error_under_strict(target: str) -> None:
    options = {"target": target, "verify": True, "strict": True}
    compiled = fusewright.compile(asks_for_turned, options=options)
    with pytest.raises(
        WrongLayout, match=r"\(1, 3\).*turned.*test_custom_operators.py.*\n.*strict"
    ):
        compiled(torch.randn(3, 4))


# Faults of fake implementations are told as such --------------------------------------------------


@torch.library.custom_op("fusewright_tests::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("fusewright_tests::longer_fake", mutates_args=())
def longer_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@longer_fake.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(5)


@torch.library.custom_op("fusewright_tests::raising_fake", mutates_args=())
def raising_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@raising_fake.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise TypeError("of a fake")


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (
            lambda x: without_fake(x) + 1,
            Unsupported,
            r"`torch.ops.fusewright_tests.without_fake.default` .*register_fake",
        ),
        (
            lambda x: longer_fake(x) + 1,
            GraphFailed,
            r"size \(3,\) .* size \(5,\) .* the fake implementation of "
            r"fusewright_tests.longer_fake.default says so",
        ),
        (
            lambda x: raising_fake(x) + 1,
            NothingRaised,
            r"TypeError\('of a fake'\)\n.*fake implementation of "
            r"torch.ops.fusewright_tests.raising_fake.default raised",
        ),
    ],
    ids=["none", "wrong", "raises"],
)
def test_the_fault_of_a_fake_is_told(
    function: Callable[[torch.Tensor], torch.Tensor], error: type[Exception], text: str
) -> None:
    x = torch.ones(3)
    with pytest.raises(error, match=text) as raised:
        fusewright.compile(function, fullgraph=True)(x)
    assert "please report" not in str(raised.value)
    with warnings.catch_warnings(record=True) as caught:
        assert torch.equal(fusewright.compile(function)(x), x + 1)
    assert not any("please report" in str(each.message) for each in caught)
