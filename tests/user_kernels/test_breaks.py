"""Launches that no call in a graph can stand for break the graph, with a reason; and graphs hold
for one kernel that calls the same functions.
"""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import fusewright
from fusewright.events import GraphBreak
from tests.user_kernels.programs import add, blocks, scale, store_tripled

assert interpreter


@triton.jit
def follow(addresses, count, BLOCK: tl.constexpr):
    target = tl.load(addresses).to(tl.pointer_type(tl.float32))
    place = tl.arange(0, BLOCK)
    tl.store(target + place, tl.load(target + place, place < count) + 1.0, place < count)


def parts_that_overlap(x: torch.Tensor) -> Any:
    y = x.sin()
    scale_from[(1,)](y[1:], y[:-1], 3, BLOCK=4)
    return y


@triton.jit
def scale_from(x, out, count, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, place < count) * 2, place < count)


def repeated_elements(x: torch.Tensor) -> Any:
    y = x[:1].sin().expand(4)
    scale[(1,)](y, 1, 2.0, BLOCK=4)
    return y + 1


def a_tracked_tensor(x: torch.Tensor) -> Any:
    y = PARAMETER * x
    scale[(1,)](y, y.numel(), 2.0, BLOCK=64)
    return y.detach() + 1


PARAMETER = torch.ones(8, requires_grad=True)
WEIGHT = torch.ones(64, dtype=torch.float32)
ADDRESSES = torch.tensor([WEIGHT.data_ptr()])


def found_addresses(x: torch.Tensor) -> Any:
    WEIGHT.zero_()
    follow[(1,)](ADDRESSES, 64, BLOCK=64)
    return x + WEIGHT[: x.numel()]


@pytest.mark.parametrize(
    ("program", "detail"),
    [
        (parts_that_overlap, "two of its arguments share memory"),
        (repeated_elements, "elements share memory"),
        (a_tracked_tensor, "requires grad"),
        (found_addresses, "addresses that it finds in memory"),
    ],
)
def test_a_reason(program: Callable[..., Any], detail: str) -> None:
    compiled = fusewright.compile(program)
    x = torch.randn(8)
    torch.testing.assert_close(compiled(x.clone()), program(x.clone()))
    breaks = [event for event in compiled.compiler.events if isinstance(event, GraphBreak)]
    assert breaks and breaks[0].reason == "triton-kernel"
    assert detail in str(breaks[0])


def a_number(x: torch.Tensor) -> torch.Tensor:
    numbers = torch.arange(3)
    scale[(1,)](numbers, 3, 5, BLOCK=4)
    return x * numbers.max().item()


def a_number_that_was_known(x: torch.Tensor) -> torch.Tensor:
    numbers = torch.arange(3)
    assert numbers.max().item() == 2
    scale[(1,)](numbers[1:], 2, 5, BLOCK=4)
    return x * numbers.max().item()


@pytest.mark.parametrize("backend", ["fusewright", "eager"])
@pytest.mark.parametrize("program", [a_number, a_number_that_was_known])
def test_what_a_kernel_has_written_is_not_known_when_compiling(
    program: Callable[..., Any], backend: str
) -> None:
    x = torch.ones(3)
    compiled = fusewright.compile(program, backend=backend)
    assert compiled(x).tolist() == program(x).tolist() == [10.0] * 3


def test_an_unknown_function_inside_an_autograd_function() -> None:
    class Overlapping(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            scale_from[(1,)](y[1:], y[:-1], 3, BLOCK=4)
            return y

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient

    def program(x: torch.Tensor) -> torch.Tensor:
        return Overlapping.apply(x * 2) + 1  # type: ignore[no-any-return]

    x = torch.randn(8)
    torch.testing.assert_close(fusewright.compile(program)(x), program(x))


def test_another_kernel_is_compiled_for() -> None:
    kernel: Any = add

    def program(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        kernel[blocks(x.numel())](x, x, out, x.numel(), BLOCK=16)
        return out + 1

    compiled = fusewright.compile(program, fullgraph=True)
    x = torch.randn(40)
    torch.testing.assert_close(compiled(x), 2 * x + 1)
    kernel = subtract
    torch.testing.assert_close(compiled(x), torch.ones_like(x))
    assert len(fusewright.compilations(compiled)) == 2


@triton.jit
def subtract(left, right, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(out + place, tl.load(left + place, inside) - tl.load(right + place, inside), inside)


@triton.jit
def store_elsewhere(x, y, place, inside):
    tl.store(x + place, tl.load(y + place, inside) * 3, inside)


helper = store_tripled


@triton.jit
def call_helper(x, y, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    helper(x, y, place, place < count)


def test_another_function_of_a_kernel_is_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        call_helper[blocks(x.numel())](x, y, x.numel(), BLOCK=16)
        return x + y

    compiled = fusewright.compile(program, fullgraph=True)
    for function in (store_tripled, store_elsewhere):
        monkeypatch.setitem(globals(), "helper", function)
        tensors = [torch.randn(40), torch.randn(40)]
        own, eager = ([tensor.clone() for tensor in tensors] for _ in range(2))
        torch.testing.assert_close(compiled(*own), program(*eager))
        torch.testing.assert_close(own, eager)
    assert len(fusewright.compilations(compiled)) == 2


def test_inputs_that_share_memory() -> None:
    """A graph for inputs with memory of their own does not hold for views of one tensor."""

    def program(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        scale_from[(1,)](x, out, 4, BLOCK=4)
        return x + out

    compiled = fusewright.compile(program)
    torch.testing.assert_close(compiled(*torch.ones(2, 4)), torch.full((4,), 3.0))
    own, eager = torch.arange(8.0), torch.arange(8.0)
    expected = program(eager[1:5], eager[:4])
    torch.testing.assert_close(compiled(own[1:5], own[:4]), expected)
    torch.testing.assert_close(own, eager)


def test_the_result_of_a_launch_is_not_known() -> None:
    def program(x: torch.Tensor) -> Any:
        launched = scale[(1,)](x, 4, 2.0, BLOCK=4)
        return x + 1 if launched is None else x - 1

    x = torch.randn(4)
    compiled = fusewright.compile(program)
    torch.testing.assert_close(compiled(x.clone()), program(x.clone()))
