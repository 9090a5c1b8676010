"""Lazy conjugates and negatives: compiled code computes what torch only notes in a bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from fusewright.aot import aot_function, interpreter, trace_inference, with_results
from fusewright.backends.eager import eager
from fusewright.context import CompileContext
from fusewright.pipeline import compile_graph

aten = torch.ops.aten


def grid() -> torch.Tensor:
    return torch.complex(torch.arange(12.0), -torch.arange(12.0) - 1).reshape(3, 4)


def runs(module: fx.GraphModule, examples: list[Any]) -> list[Callable[[list[Any]], Any]]:
    """The module compiled in two ways: to eager operators, and to kernels."""
    graph = trace_inference(module, examples, CompileContext())
    targets = {node.target for node in graph.graph.nodes}
    assert not targets & {aten._conj.default, aten._neg_view.default}
    return [
        with_results(graph, interpreter(graph)),
        compile_graph(module, examples, CompileContext()).run,
    ]


def check(function: Callable[..., Any], make: Callable[[], torch.Tensor] = grid) -> None:
    module = fx.symbolic_trace(function)
    for run in runs(module, [make()]):
        eager, ours = make(), make()
        expected, given = module(eager), run([ours])
        for one, other in zip(given, expected, strict=True):
            torch.testing.assert_close(one, other)
            assert one.stride() == other.stride()
        torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x.conj().imag, x.imag.conj(), x.real),
        lambda x: (x.conj() * 2, x.mH @ x, x.conj().mT.contiguous()),
        lambda x: (x.conj().imag + 1, x.conj().real + 1, x.conj().imag.exp()),
        lambda x: (torch.view_as_real(x.conj().resolve_conj()) + 1,),
        lambda x: (x.conj().conj() + 0, x.conj().reshape(-1), x[1].conj() + 1),
        lambda x: (torch.fft.ifft(x), torch.fft.ihfft(x.real), torch.fft.hfft2(x)),
        lambda x: (torch.cat([x.conj(), x]), torch.vdot(x[0], x[1]), x.conj().sum()),
        lambda x: (x.expand(2, 3, 4).conj() + 0, x.t().conj().clone()),
        lambda x: (x.expand(2, 3, 4).conj().imag[:, 1:].exp(), x[:, ::2].conj().real.t() + 1),
    ],
)
@pytest.mark.parametrize("make", [grid, lambda: grid().conj()], ids=["plain", "conjugate"])
def test_values(program: Callable[[torch.Tensor], Any], make: Callable[[], torch.Tensor]) -> None:
    check(program, make)


def test_an_input_with_the_negative_bit() -> None:
    check(lambda x: (x + 1, x.t() * 2, -x), lambda: grid().conj().imag)


def test_a_result_that_is_the_conjugate_of_an_input_is_a_view_of_it() -> None:
    module = fx.symbolic_trace(lambda x: (x.conj(), x[0].conj(), x))
    for make in (grid, lambda: grid().conj()):
        for run in runs(module, [make()]):
            x = make()
            given = run([x])
            x.mul_(2)
            for one, other in zip(given, module(x), strict=True):
                assert torch.equal(one, other) and one.is_conj() == other.is_conj()


def test_a_conjugate_shows_later_writes_and_a_copy_of_it_does_not() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        lazy, copied = y.conj(), y.conj().resolve_conj()
        y.mul_(2)
        return lazy + 0, copied

    check(program)


def test_writing_through_a_conjugate() -> None:
    def program(x: torch.Tensor) -> Any:
        x.conj()[0].mul_(1j)
        return (x * 2,)

    check(program)
    check(program, lambda: grid().conj())


@pytest.mark.parametrize(
    ("program", "make"),
    [
        (lambda x: x * 2j, lambda: grid().conj()),
        (lambda x: x * 3, lambda: grid().conj().imag),
        (torch.view_as_real, grid),
        (lambda x: x.imag[1:], grid),
        (lambda x: x.conj().imag.t(), grid),
        (torch.view_as_complex, lambda: torch.arange(12.0).reshape(3, 2, 2)),
        (lambda x: torch.view_as_complex(x)[:, 1], lambda: torch.arange(12.0).reshape(3, 2, 2)),
    ],
)
def test_gradients(program: Callable[..., Any], make: Callable[[], torch.Tensor]) -> None:
    compiled = aot_function(program, fw_compiler=eager)
    eager_input, ours = make().requires_grad_(), make().requires_grad_()
    wanted, given = program(eager_input), compiled(ours)
    torch.testing.assert_close(given, wanted)
    tangent = torch.randn_like(wanted)
    wanted.backward(tangent)
    given.backward(tangent)
    torch.testing.assert_close(ours.grad, eager_input.grad)


@pytest.mark.parametrize(
    ("program", "loss"),
    [
        (lambda z: z * z, lambda y: y.conj().imag.sum()),
        (
            lambda z: torch.view_as_complex(torch.view_as_real(z) * 3),
            lambda y: y.conj().sum().abs(),
        ),
        (lambda z: z.real * 2, lambda y: torch.complex(y, y).conj().imag.sum()),
    ],
)
def test_a_gradient_that_comes_with_its_bit_set(
    program: Callable[..., Any], loss: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    compiled = aot_function(program, fw_compiler=eager)
    eager_input, ours = grid().requires_grad_(), grid().requires_grad_()
    loss(program(eager_input)).backward()
    loss(compiled(ours)).backward()
    torch.testing.assert_close(ours.grad, eager_input.grad)
