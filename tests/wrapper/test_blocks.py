"""Conditions and loops as blocks of lines: equal to eager under every target, within each other, on
arguments however they lie; and their kernels are told of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan

import fusewright
from fusewright.config import TARGETS
from fusewright.ir.forms import blocks_of, print_lines
from fusewright.ir.lines import CallProgram, Conditional, DefineKernel, Line, ScanLoop, WhileLoop
from fusewright.ir.parse_forms import parse_lines
from fusewright.runtime.compiled import CompiledGraph, Record

Tensor = torch.Tensor


def nested(x: Tensor, w: Tensor) -> Any:
    """A loop in a condition in a condition; a condition in a loop."""

    def halved(a: Tensor) -> Tensor:
        return torch.while_loop(lambda a: a.abs().sum() > 1, lambda a: (a * 0.5,), (a,))[0]

    def inner(a: Tensor) -> Tensor:
        return torch.cond(a.amax() > 1, halved, lambda a: a.cos() * 2, (a,))

    def outer(a: Tensor) -> Tensor:
        return torch.cond(a.sum() > 0, inner, lambda a: inner(-a) + 1, (a,))

    def step(n: Tensor, a: Tensor) -> Any:
        return n + 1, torch.cond(a.sum() > 0, lambda a: a - 1, lambda a: a + 2, (a,))

    looped = torch.while_loop(lambda n, a: n < 4, step, (torch.zeros((), dtype=torch.int64), w))
    return outer(x) * 2, looped[1]


def constants(x: Tensor, w: Tensor) -> Any:
    """Some of the same name around and within."""

    def then(a: Tensor) -> Tensor:
        return a * torch.tensor([2.0, 3.0, 5.0, 7.0])

    y = x * torch.tensor([1.0, 4.0, 9.0, 16.0])
    return torch.cond(y.sum() > 0, then, lambda a: a @ torch.tensor([[1.0] * 4] * 4).t(), (y,))


def laid_out(x: Tensor, w: Tensor) -> Any:
    """Arguments that are transposed, expanded, or part of another."""
    y = torch.cond(x.sum() > 0, lambda a, b: a.t() + b, lambda a, b: a.t() - b, (x.t(), w[:4, :4]))
    z = torch.while_loop(lambda a: a.sum() > -9, lambda a: (a - 1,), (w[:4, :4].t() + 0,))
    return y, z[0], torch.cond(x.sum() > 0, lambda a: a * 2, torch.neg, (x[:1].expand(5, 4),))


def never(x: Tensor, w: Tensor) -> Any:
    """A loop whose body does not run: its result is no argument."""
    return torch.while_loop(lambda a: a.sum() > 1e9, lambda a: (a + 1,), (x,))[0], x * 2


PROGRAMS = (nested, constants, laid_out, never)


def arguments(sign: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 4, generator=generator)
    return sign * (x - x.sum() / 16 + 1), torch.randn(6, 5, generator=generator)


def compiled(program: Callable[..., Any], target: str, dynamic: bool) -> Callable[..., Any]:
    options = {"strict": True, "target": target, "verify": True}
    return fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=options)


def record_of(function: Callable[..., Any]) -> Record:
    (compilation,) = fusewright.api.compilations(function)
    assert isinstance(compilation.compiled, CompiledGraph)
    return compilation.compiled.record


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: Callable[..., Any], target: str, dynamic: bool) -> None:
    function = compiled(program, target, dynamic)
    for sign in (1, -1):
        given = arguments(sign)
        found, expected = function(*given), program(*given)
        torch.testing.assert_close(found, expected)
        memory = {one.data_ptr() for one in given}
        for one in found if isinstance(found, tuple) else (found,):
            assert one.data_ptr() not in memory


def every_line(lines: tuple[Line, ...]) -> list[Line]:
    return [
        *lines,
        *(one for line in lines for b in blocks_of(line) for one in every_line(b.lines)),
    ]


def test_blocks_are_lines_of_one_module() -> None:
    function = compiled(nested, "native", True)
    function(*arguments())
    record = record_of(function)
    lines = every_line(record.lines)
    assert not any(isinstance(line, CallProgram) for line in lines)
    assert sum(isinstance(line, Conditional) for line in lines) == 4
    assert sum(isinstance(line, WhileLoop) for line in lines) == 3
    kernels = [line.kernel.name for line in record.lines if isinstance(line, DefineKernel)]
    assert len(kernels) == len(set(kernels))
    inner = {kernel.name for one in record.subprograms for kernel in one.kernels}
    assert inner and inner <= set(kernels)
    text = print_lines(record.lines)
    assert print_lines(parse_lines(text)) == text
    shown = str(fusewright.explain(function)(*arguments()))
    assert shown.count("of a condition or loop: ") == len(record.subprograms) == 14


def test_steps_of_training_are_blocks() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        carry, stack = scan(lambda c, row: (c * 0.5 + row @ w, c.sin()), x[0] * 0, x)
        return carry.sum() + stack.sum()

    x = torch.randn(7, 4, requires_grad=True)
    w = torch.randn(4, 4, requires_grad=True)
    function = fusewright.compile(program, options={"strict": True})
    found = torch.autograd.grad(function(x, w), (x, w))
    carry, total = x[0] * 0, torch.zeros(())
    for row in x:
        carry, total = carry * 0.5 + row @ w, total + carry.sin().sum()
    torch.testing.assert_close(found, torch.autograd.grad(carry.sum() + total, (x, w)))
    (compilation,) = fusewright.api.compilations(function)
    assert isinstance(compilation.compiled, CompiledGraph)
    training = compilation.compiled.training
    assert training is not None and training.backward is not None
    for graph in (compilation.compiled, training.backward):
        assert any(isinstance(line, ScanLoop) for line in graph.record.lines)


def test_the_text_of_a_module_does_not_vary() -> None:
    texts = []
    for _ in range(2):
        function = compiled(nested, "python", False)
        function(*arguments())
        (compilation,) = fusewright.api.compilations(function)
        assert isinstance(compilation.compiled, CompiledGraph)
        texts.append(compilation.compiled.path.read_text())
    assert texts[0] == texts[1] and " object at 0x" not in texts[0]
