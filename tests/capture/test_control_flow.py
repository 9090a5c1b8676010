"""Conditions and loops over tensors: one graph, each function a program of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan, while_loop

import fusewright
from fusewright.errors import BackendCompilerFailed, Unsupported
from fusewright.torch_compat import SCAN_STACKS_ALONG_ITS_DIMENSION

torch.manual_seed(0)
X, W, LINEAR = torch.randn(5, 4), torch.randn(4, 4), torch.nn.Linear(4, 4).requires_grad_(False)
KEPT = torch.randn(3, 4, 4)


def condition(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a.sin() @ W, lambda a: a.cos() + 1, (x,))


def containers(x: Any) -> Any:
    def yes(a: Any, b: Any) -> Any:
        return {"sum": (a + b, [b * 2])}

    def no(a: Any, b: Any) -> Any:
        return {"sum": (a - b, [a * 3])}

    return torch.cond(x.sum() > 0, yes, no, (x, x * 2))


def captured_tensors(x: Any) -> Any:
    doubled = x * 2
    return torch.cond(x.sum() > 0, lambda: doubled @ W, lambda: x - KEPT[0, 0])


def nested(x: Any) -> Any:
    def inner(a: Any) -> Any:
        return torch.cond(a.max() > 1, lambda b: b * 2, lambda b: b @ W, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a.relu(), (x,)) + 1


def modules(x: Any) -> Any:
    return torch.cond(x.sum() > 0, LINEAR, lambda a: a.clone(), (x,))


def known_condition(x: Any) -> Any:
    return torch.cond(x.shape[0] > 3, lambda a: a * 2, lambda a: a @ a, (x,))


def in_a_loop(x: Any) -> Any:
    for _ in range(2):
        x = torch.cond(x.sum() > 0, lambda a: a - 1, lambda a: a + 1, (x,))
    return x


def count_to(x: Any) -> Any:
    step = lambda i, a: (i + 1, a @ W * 0.5)  # noqa: E731
    return while_loop(lambda i, a: i < 5, step, (torch.tensor(0), x))


def until_small(x: Any) -> Any:
    return while_loop(lambda a: a.abs().max() > 0.1, lambda a: (a * 0.5,), (x,))


def no_rounds(x: Any) -> Any:
    return while_loop(lambda a: a.sum() > 1e9, lambda a: (a * 2,), (x,))


def running_sum(x: Any) -> Any:
    return scan(lambda c, row: (c + row, c * row), torch.zeros(4), x)


def backwards(x: Any) -> Any:
    combine = lambda c, row: (c + row @ W, {"product": (c * row).sum()})  # noqa: E731
    return scan(combine, torch.zeros(4), x, reverse=True)


def along_columns(x: Any) -> Any:
    return scan(lambda c, column: (c + column, c.clone()), torch.zeros(5), x, dim=1)


def sums_of_columns(x: Any) -> Any:
    """Its results have no second dimension to be stacked along."""
    return scan(lambda c, column: (c + column, column.sum()), torch.zeros(5), x, dim=-1)


def matrices(x: Any) -> Any:
    combine = lambda c, a: ((c @ W).sin() + a, c.sum(0))  # noqa: E731
    return scan(combine, W.t().contiguous(), (KEPT + x.sum()).mT)


PROGRAMS: list[Callable[..., Any]] = [
    condition,
    containers,
    captured_tensors,
    nested,
    modules,
    known_condition,
    in_a_loop,
    count_to,
    until_small,
    no_rounds,
    running_sum,
    backwards,
    along_columns,
    sums_of_columns,
    matrices,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fusewright"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs(program: Callable[..., Any], backend: str) -> None:
    options = {"strict": True} if backend == "fusewright" else {}
    compiled = fusewright.compile(program, fullgraph=True, backend=backend, options=options)
    for x in (X, -X, X * 10):
        torch.testing.assert_close(compiled(x), program(x), check_stride=True)
    assert len(fusewright.compilations(compiled)) == 1


def gradients(function: Callable[..., Any], *inputs: Any) -> Any:
    inputs = tuple(one.detach().requires_grad_() for one in inputs)
    return torch.autograd.grad(function(*inputs), inputs, allow_unused=True, materialize_grads=True)


def two_results(x: Any, w: Any) -> Any:
    y = x * 2
    yes = lambda a, b: (a.sin() @ w, b.sum())  # noqa: E731
    no = lambda a, b: (a * 3, a.sum() * 0.5)  # noqa: E731
    first, second = torch.cond(x.sum() > 0, yes, no, (y, x))
    return (first * first).sum() + second


def two_results_by_python(x: Any, w: Any) -> Any:
    y = x * 2
    first, second = (y.sin() @ w, x.sum()) if x.sum() > 0 else (y * 3, y.sum() * 0.5)
    return (first * first).sum() + second


def condition_in_condition(x: Any, w: Any) -> Any:
    def inner(a: Any) -> Any:
        return torch.cond(a.max() > 1, lambda b: b @ w, lambda b: b.sin(), (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a * 2, (x,)).square().sum()


def condition_in_condition_by_python(x: Any, w: Any) -> Any:
    return ((x @ w if x.max() > 1 else x.sin()) if x.sum() > 0 else x * 2).square().sum()


def steps(x: Any, w: Any) -> Any:
    carry, results = scan(lambda c, a: (c * a + a @ w, c * 2), torch.zeros(4), x)
    return results.sum() + carry.prod()


def steps_by_python(x: Any, w: Any) -> Any:
    carry, results = torch.zeros(4), []
    for row in x:
        carry, result = carry * row + row @ w, carry * 2
        results.append(result)
    return torch.stack(results).sum() + carry.prod()


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (two_results, two_results_by_python),
        (condition_in_condition, condition_in_condition_by_python),
        (steps, steps_by_python),
    ],
    ids=["two results", "nested", "scan"],
)
def test_gradients(program: Any, expected: Any, backend: str) -> None:
    options = {"strict": True} if backend == "fusewright" else {}
    compiled = fusewright.compile(program, fullgraph=True, backend=backend, options=options)
    for x in (X.abs(), -X.abs(), X.abs() * 0.1):
        torch.testing.assert_close(gradients(compiled, x, W), gradients(expected, x, W))
    assert len(fusewright.compilations(compiled)) == 1


def test_gradients_where_a_side_draws_random_numbers_are_refused() -> None:
    def program(x: Any) -> Any:
        return torch.cond(x.sum() > 0, torch.nn.functional.dropout, lambda a: a * 2, (x,)).sum()

    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    with pytest.raises(BackendCompilerFailed, match="draws random numbers"):
        compiled(X.clone().requires_grad_())


def test_each_side_has_kernels_of_its_own() -> None:
    compiled = fusewright.compile(condition, fullgraph=True, options={"strict": True})
    compiled(X)
    record = fusewright.compilations(compiled)[0].record
    assert record is not None and record.extern_calls == ("subprogram.cond",)


def test_random_draws_are_eager_s() -> None:
    def program(x: Any) -> Any:
        y = x + torch.rand(4)
        return torch.cond(x.sum() > 0, lambda a: a + torch.rand(4), lambda a: a - 1, (y,))

    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for x in (X.abs(), -X.abs()):
        torch.manual_seed(1)
        expected = program(x), torch.rand(2)
        torch.manual_seed(1)
        torch.testing.assert_close((compiled(x), torch.rand(2)), expected)


def reads_a_size(x: Any) -> Any:
    doubled, count = x * 2, x.shape[0]
    return torch.cond(x.sum() > 0, lambda: doubled @ W * count, lambda: x - count)


def nested_sizes(x: Any) -> Any:
    def inner(a: Any) -> Any:
        return torch.cond(a.max() > 0.5, lambda b: b * 2 / b.shape[0], lambda b: b @ W, (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: a.relu(), (x,)) + 1


def turned(x: Any) -> Any:
    y = x.t().contiguous().t()
    return torch.cond(x.sum() > 0, lambda a: a.t().sin(), lambda a: a.t() + a.shape[0], (y,))


def scaled_loop(x: Any) -> Any:
    return while_loop(lambda a: a.sum().abs() > 0.1, lambda a: (a / a.shape[0],), (x,))[0]


def over_columns(x: Any) -> Any:
    return scan(lambda c, one: (c + one, c * one), torch.zeros(x.shape[0]), x, dim=1)


WITH_SIZES = [
    condition, reads_a_size, nested_sizes, turned, count_to, scaled_loop, running_sum, over_columns
]  # fmt: skip


@pytest.mark.dynamic(None)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "fusewright"])
@pytest.mark.parametrize("program", WITH_SIZES)
def test_sizes_that_vary(program: Callable[..., Any], backend: str) -> None:
    compiled = fusewright.compile(
        program, fullgraph=True, backend=backend, options={"strict": True}
    )
    for count in (3, 5, 9):
        for x in (torch.rand(count, 4), -torch.rand(count, 4)):
            torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-5)
    assert len(fusewright.compilations(compiled)) == 2


@pytest.mark.dynamic(None)
@pytest.mark.parametrize("program", [condition, reads_a_size, nested_sizes, turned, over_columns])
def test_gradients_with_sizes_that_vary(program: Callable[..., Any]) -> None:
    if program is over_columns and not SCAN_STACKS_ALONG_ITS_DIMENSION:
        pytest.skip("eager's own gradient is wrong there before torch 2.13")

    def loss(function: Any, x: Any) -> Any:
        results = function(x)
        return sum(one.square().sum() for one in (results if type(results) is tuple else [results]))

    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for count in (3, 5, 9):
        for x in (torch.rand(count, 4), -torch.rand(count, 4)):
            x.requires_grad_()
            (expected,) = torch.autograd.grad(loss(program, x), x)
            (found,) = torch.autograd.grad(loss(compiled, x), x)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(fusewright.compilations(compiled)) == 2


def test_sides_that_differ_break() -> None:
    def program(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.sum(), lambda a: a * 2, (x,))

    with pytest.raises(Unsupported, match="the sides of a condition differ"):
        fusewright.compile(program, fullgraph=True, backend="eager")(X)


def test_sides_that_write_break() -> None:
    def program(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.add_(1), lambda a: a * 2, (x,))

    with pytest.raises(Unsupported, match="writes to a tensor that exists outside"):
        fusewright.compile(program, fullgraph=True, backend="eager")(X)
