"""Kernels that hand memory on piece by piece, as one: which are, by what lies between two products
of as many batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.ir.lines import CallKernel
from fusewright.kernels.llvm import chains
from tests.relative_error import relative_error

Between = Callable[[Tensor], Tensor]

BETWEEN: dict[str, tuple[int, Between]] = {
    # Kernels, and what makes the left operand of the second product of the result of the first.
    "softmax": (1, lambda scores: scores.softmax(-1)),
    "sums of columns": (1, lambda scores: scores.softmax(-2)),
    "over batches": (3, lambda scores: scores.softmax(1)),
    "the next batch": (3, lambda scores: scores.roll(1, 1).softmax(-1)),
}


def program(between: Between) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda left, middle, right: between(left @ middle) @ right


def operands(*, rows: int = 50, columns: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = (2, 3, rows, 16), (2, 3, 16, columns), (2, 3, columns, 24)
    first, second, third = (torch.randn(size, generator=generator) for size in sizes)
    return first, second, third


def compiled_kernels(function: Any, *arguments: Any) -> tuple[Tensor, int]:
    """The result, and the number of launches."""
    compiled = fusewright.compile(function, options={"strict": True}, dynamic=False)
    with torch.no_grad():
        result = compiled(*arguments)
    record = fusewright.compilations(compiled)[-1].record
    assert record is not None
    return result, len({launch.kernel for launch in record.launches})


@pytest.mark.parametrize("name", BETWEEN)
@pytest.mark.parametrize("block", [1 << 10, 1 << 20])
def test_what_lies_between(monkeypatch: pytest.MonkeyPatch, name: str, block: int) -> None:
    """Blocks of 12 rows of a batch where each row is made of one, else whole batches."""
    monkeypatch.setattr(chains, "BLOCK_BYTES", block)
    monkeypatch.setattr(chains, "LEAST_ROWS", 12)
    monkeypatch.setattr(chains, "FEW_PIECES", 0)
    count, between = BETWEEN[name]
    tensors = operands()
    exact = program(between)(*(x.double() for x in tensors))
    result, kernels = compiled_kernels(program(between), *tensors)
    assert relative_error(result, exact) <= 1e-6
    assert kernels == count


def test_what_makes_the_operands_keeps_its_own_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports name as many launches, of the same kernels, as the compiled code has."""
    monkeypatch.setattr(chains, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(chains, "LEAST_ROWS", 12)
    monkeypatch.setattr(chains, "FEW_PIECES", 0)

    def reads_products(left: Tensor, middle: Tensor, right: Tensor, square: Tensor) -> Tensor:
        return (left @ square @ middle).softmax(-1) @ right

    arguments = *operands(), torch.eye(16)
    compiled = fusewright.compile(reads_products, options={"strict": True}, dynamic=False)
    with torch.no_grad():
        compiled(*arguments)
    record = fusewright.compilations(compiled)[-1].record
    assert record is not None
    told = [launch.kernel for launch in record.launches if not launch.shares_launch]
    made = [line.launch.kernel for line in record.lines if isinstance(line, CallKernel)]
    assert len(made) == 2 and sum("_chain_" in kernel for kernel in made) == 1
    assert told == made
    assert {kernel.name for kernel in record.kernels} == set(made)


def test_a_result_that_is_read_outside() -> None:
    """It is made as a whole."""

    def both(left: Tensor, middle: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        weights = (left @ middle).softmax(-1)
        return weights @ right, weights

    tensors = operands()
    result, kernels = compiled_kernels(both, *tensors)
    for own, exact in zip(result, both(*(x.double() for x in tensors)), strict=True):
        assert relative_error(own, exact) <= 1e-6
    assert kernels == 3


def test_more_than_a_frame_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "MOST_SCRATCH", 4 * 50 * 40 - 1)
    function = program(BETWEEN["softmax"][1])
    _, kernels = compiled_kernels(function, *operands())
    assert kernels == 3
    _, kernels = compiled_kernels(function, *operands(rows=49))
    assert kernels == 1
