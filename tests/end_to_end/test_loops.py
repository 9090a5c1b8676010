"""Loops over steps and their gradients, over any number of steps, beside the same in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import scan, while_loop

import fusewright
from fusewright import compilations


def running(x: Tensor, w: Tensor) -> Any:
    return scan(lambda c, a: (torch.tanh(c @ w + a), c * 2), x.new_zeros(x.shape[1:]), x)


def running_by_python(x: Tensor, w: Tensor) -> Any:
    carry, results = x.new_zeros(x.shape[1:]), []
    for row in x:
        results.append(carry * 2)
        carry = torch.tanh(carry @ w + row)
    return carry, torch.stack(results)


def from_the_end(x: Tensor, w: Tensor) -> Any:
    def step(carry: Any, a: Tensor) -> Any:
        total, count = carry["total"], carry["count"]
        return {"total": total * a + a @ w, "count": count + 1}, (total.sum(), a.detach() * total)

    start = {"total": w[0], "count": torch.zeros((), dtype=torch.int64)}
    carry, (sums, products) = scan(step, start, x, dim=1, reverse=True)
    return carry["total"], carry["count"], sums, products.square().sum()


def from_the_end_by_python(x: Tensor, w: Tensor) -> Any:
    total, sums, products = w[0], [], []
    for a in reversed(x.unbind(1)):
        sums.append(total.sum())
        products.append(a.detach() * total)
        total = total * a + a @ w
    return (
        total,
        torch.tensor(len(sums)),
        torch.stack(sums[::-1]),
        torch.stack(products).square().sum(),
    )


def of_nothing_kept(x: Tensor, w: Tensor) -> Any:
    """The gradient needs no value of forward but the number of steps."""
    carry, _ = scan(lambda c, a: (c + a, a.detach().clone()), w[0], x)
    return carry


def of_nothing_kept_by_python(x: Tensor, w: Tensor) -> Any:
    return w[0] + x.sum(0)


def in_a_scan(x: Tensor, w: Tensor) -> Any:
    def row(carry: Tensor, matrix: Tensor) -> Any:
        last, outputs = scan(lambda c, a: ((c * a).sin() + w[0], c @ w), carry, matrix)
        return last, outputs.sum()

    return scan(row, w[1], torch.stack([x, x.cos(), x * 2]))


def in_a_scan_by_python(x: Tensor, w: Tensor) -> Any:
    carry, sums = w[1], []
    for matrix in (x, x.cos(), x * 2):
        outputs = []
        for a in matrix:
            outputs.append(carry @ w)
            carry = (carry * a).sin() + w[0]
        sums.append(torch.stack(outputs).sum())
    return carry, torch.stack(sums)


def with_a_condition(x: Tensor, w: Tensor) -> Any:
    def step(carry: Tensor, a: Tensor) -> Any:
        new = torch.cond(a.sum() > 0, lambda c: (c @ w).sin(), lambda c: c * a, (carry,))
        return new, carry + a

    return scan(step, w[0], x)


def with_a_condition_by_python(x: Tensor, w: Tensor) -> Any:
    carry, results = w[0], []
    for a in x:
        results.append(carry + a)
        carry = (carry @ w).sin() if a.sum() > 0 else carry * a
    return carry, torch.stack(results)


def swapped(x: Tensor, w: Tensor) -> Any:
    """Two values change places, and one is returned twice."""
    step = lambda c, a: ((c[1], c[0] * a), (c[0] + 1, c[0] + 1))  # noqa: E731
    return scan(step, (w[0], w[1]), x)


def swapped_by_python(x: Tensor, w: Tensor) -> Any:
    one, other, results = w[0], w[1], []
    for a in x:
        results.append(one + 1)
        one, other = other, one * a
    return (one, other), (torch.stack(results), torch.stack(results))


def adding(x: Tensor, w: Tensor) -> Any:
    """The gradient of what is carried is itself a factor of that of the weight."""
    step = lambda c, a: (c + a.unsqueeze(0) @ w, c[0] * 2)  # noqa: E731
    return scan(step, w[:1] * 2, x)


def adding_by_python(x: Tensor, w: Tensor) -> Any:
    carry, results = w[:1] * 2, []
    for a in x:
        results.append(carry[0] * 2)
        carry = carry + a.unsqueeze(0) @ w
    return carry, torch.stack(results)


PROGRAMS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (running, running_by_python),
    (from_the_end, from_the_end_by_python),
    (of_nothing_kept, of_nothing_kept_by_python),
    (in_a_scan, in_a_scan_by_python),
    (with_a_condition, with_a_condition_by_python),
    (swapped, swapped_by_python),
    (adding, adding_by_python),
]


def tensors(value: Any) -> list[Tensor]:
    return (
        [value] if isinstance(value, Tensor) else [one for each in value for one in tensors(each)]
    )


def with_gradients(program: Callable[..., Any], x: Tensor, w: Tensor) -> list[Tensor]:
    """What a program gives, and gradients of what it gives."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    results = tensors(program(x, w))
    weights = (torch.linspace(0.1, 1, one.numel()).view_as(one) for one in results)
    pairs = zip(results, weights, strict=True)
    loss = sum((one * each).sum() for one, each in pairs if one.requires_grad)
    return [*results, *torch.autograd.grad(loss, (x, w), allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize(("program", "expected"), PROGRAMS, ids=lambda one: one.__name__)
def test_one_compile_for_any_number_of_steps(program: Any, expected: Any) -> None:
    torch.manual_seed(0)
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for rows in (3, 5, 2, 7):
        sizes = (4, rows) if program is from_the_end else (rows, 4)
        w = torch.rand(4, 4)
        x = torch.randn(sizes)
        found = with_gradients(compiled, x, w)
        torch.testing.assert_close(found, with_gradients(expected, x, w), rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(tensors(compiled(x, w)), tensors(expected(x, w)))
    assert len(compilations(compiled)) == 4  # twice with gradients, and twice without


def test_second_derivatives_of_a_loop() -> None:
    """Of a program that asks for gradients itself: every step is written out."""

    def penalty(program: Callable[..., Any], x: Tensor, w: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(program(x, w)[1].square().sum(), x, create_graph=True)
        return gradient.square().sum()

    compiled = fusewright.compile(penalty, fullgraph=True, options={"strict": True})
    for rows in (3, 5):
        x, w = torch.randn(rows, 4, requires_grad=True), torch.rand(4, 4)
        found = torch.autograd.grad(compiled(running, x, w), x)
        expected = torch.autograd.grad(penalty(running_by_python, x, w), x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_results_require_grad_only_where_they_depend_on_what_does() -> None:
    def program(x: Tensor, w: Tensor) -> Any:
        step = lambda c, a: ((c[0] + a, c[1] + 1.5), (c[1] * 2, c[0].clone()))  # noqa: E731
        return scan(step, (w, x.new_zeros(4)), x)

    x, w = torch.randn(3, 4, requires_grad=True), torch.rand(4)
    found = fusewright.compile(program, fullgraph=True, options={"strict": True})(x, w)
    assert [one.requires_grad for one in tensors(found)] == [True, False, False, True]


def shrinking(x: Tensor, w: Tensor) -> Any:
    def body(count: Tensor, a: Tensor, total: Tensor) -> Any:
        return count + 1, (a @ w) * 0.3, total + a.sum() * x[0]

    start = (torch.tensor(0), x.sin(), x.new_zeros(4))
    return while_loop(lambda count, a, _: a.abs().max() > 0.05, body, start)


def shrinking_by_python(x: Tensor, w: Tensor) -> Any:
    count, a, total = 0, x.sin(), x.new_zeros(4)
    while a.abs().max() > 0.05:
        count, total, a = count + 1, total + a.sum() * x[0], (a @ w) * 0.3
    return torch.tensor(count), a, total


def in_a_while_loop(x: Tensor, w: Tensor) -> Any:
    def body(count: Tensor, a: Tensor) -> Any:
        inner = lambda i, b: (i + 1, (b @ w).sin())  # noqa: E731
        return count + 1, while_loop(lambda i, b: i < count, inner, (torch.tensor(0), a))[1] + x

    return while_loop(lambda count, a: count < 4, body, (torch.tensor(0), x))[1]


def in_a_while_loop_by_python(x: Tensor, w: Tensor) -> Any:
    a = x
    for count in range(4):
        for _ in range(count):
            a = (a @ w).sin()
        a = a + x
    return a


def scan_of_while_loops(x: Tensor, w: Tensor) -> Any:
    def step(carry: Tensor, a: Tensor) -> Any:
        found = while_loop(lambda b: b.abs().sum() > 1, lambda b: (b * a.sigmoid(),), (carry + a,))
        return found[0], (found[0] @ w).sum()

    return scan(step, w[0], x)


def scan_of_while_loops_by_python(x: Tensor, w: Tensor) -> Any:
    carry, results = w[0], []
    for a in x:
        carry = carry + a
        while carry.abs().sum() > 1:
            carry = carry * a.sigmoid()
        results.append((carry @ w).sum())
    return carry, torch.stack(results)


WHILE_LOOPS = [
    (shrinking, shrinking_by_python),
    (in_a_while_loop, in_a_while_loop_by_python),
    (scan_of_while_loops, scan_of_while_loops_by_python),
]


@pytest.mark.parametrize(("program", "expected"), WHILE_LOOPS, ids=lambda one: one.__name__)
def test_gradients_of_while_loops(program: Any, expected: Any) -> None:
    torch.manual_seed(0)
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for rows, scale in ((3, 1), (5, 2), (2, 1e-3), (7, 0.5)):
        x, w = torch.randn(rows, 4) * scale, torch.rand(4, 4)
        found = with_gradients(compiled, x, w)
        torch.testing.assert_close(found, with_gradients(expected, x, w), rtol=1e-4, atol=1e-5)
    assert len(compilations(compiled)) == 2


@pytest.mark.parametrize(("program", "expected"), WHILE_LOOPS, ids=lambda one: one.__name__)
def test_hooks_on_saved_tensors_see_what_while_loops_keep(program: Any, expected: Any) -> None:
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    x, w = torch.randn(3, 4), torch.rand(4, 4)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda saved: saved):
        found = with_gradients(compiled, x, w)
    torch.testing.assert_close(found, with_gradients(expected, x, w), rtol=1e-4, atol=1e-5)


def test_a_layer_that_keeps_a_workspace_in_a_scan() -> None:
    layer = torch.nn.LSTM(4, 4)

    def program(x: Tensor, w: Tensor) -> Any:
        return scan(lambda c, a: (layer(a, None)[0] + c, c.sum()), w, x)

    def by_python(x: Tensor, w: Tensor) -> Any:
        carry, results = w, []
        for a in x:
            results.append(carry.sum())
            carry = layer(a, None)[0] + carry
        return carry, torch.stack(results)

    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    for count in (3, 5, 4):
        x, w = torch.randn(count, 2, 3, 4), torch.randn(2, 3, 4)
        found = with_gradients(compiled, x, w)
        torch.testing.assert_close(found, with_gradients(by_python, x, w), rtol=1e-4, atol=1e-5)
    assert len(compilations(compiled)) == 2
