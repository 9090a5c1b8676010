"""Gradients whose formulas ask for values: of what is put by a mask, of complex vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.aot import aot_function
from fusewright.backends.eager import eager
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.pipeline import compile_graph
from tests.lower.support import graph_of

MASK = torch.tensor([[True, False, True], [False, False, True]])


def put(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[MASK] = values
    return y * 2


def put_behind(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[:, MASK[0]] = values
    return y


def put_bytes(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.index_put(x, (MASK.to(torch.uint8),), values)


@pytest.mark.parametrize(
    ("program", "size"),
    [
        (put, (3, 4)),
        (put, (1, 4)),
        (put, (4,)),
        (put, (3, 1)),
        (put, ()),
        (put_behind, (2, 2, 4)),
        (put_behind, (2, 1, 4)),
        (put_behind, (2, 4)),
        (put_bytes, (3, 4)),
    ],
)
@pytest.mark.parametrize("whole", [False, True], ids=["traced", "compiled"])
@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_gradients(program: Any, size: tuple[int, ...], whole: bool) -> None:
    inputs = [torch.randn(2, 3, 4, requires_grad=True), torch.randn(size, requires_grad=True)]
    tangent = torch.randn(2, 3, 4)
    if whole:
        module, _ = graph_of(program, tuple(inputs), {})
        ours: Any = compile_graph(module, inputs, CompileContext(Options(strict=True, verify=True)))
    else:
        ours = aot_function(program, fw_compiler=eager)
    found = torch.autograd.grad(ours(*inputs), inputs, tangent)
    wanted = torch.autograd.grad(program(*inputs), inputs, tangent)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("whole", [False, True], ids=["traced", "compiled"])
def test_the_gradient_of_a_number_that_fills_rows(dim: int, whole: bool) -> None:
    def fill(x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return x.index_fill(dim, torch.tensor([1, 0, 1]), value) * 2

    inputs = [torch.randn(4, 3, requires_grad=True), torch.randn((), requires_grad=True)]
    tangent = torch.randn(4, 3)
    ours: Any = aot_function(fill, fw_compiler=eager)
    if whole:
        module, _ = graph_of(fill, tuple(inputs), {})
        ours = compile_graph(module, inputs, CompileContext(Options(strict=True, verify=True)))
    found = torch.autograd.grad(ours(*inputs), inputs, tangent)
    torch.testing.assert_close(found, torch.autograd.grad(fill(*inputs), inputs, tangent))


def test_no_values_at_all() -> None:
    x, values = torch.randn(3, requires_grad=True), torch.randn(0, requires_grad=True)
    nowhere = torch.zeros(3, dtype=torch.bool)
    ours = aot_function(lambda x, v: x.index_put((nowhere,), v), fw_compiler=eager)
    ours(x, values).sum().backward()
    assert x.grad is not None and values.grad is not None
    assert x.grad.tolist() == [1, 1, 1] and values.grad.shape == (0,)


def test_reading_where_a_mask_holds() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].square().sum()

    ours = aot_function(program, fw_compiler=eager)
    x = torch.randn(7, requires_grad=True)
    found, wanted = (torch.autograd.grad(call(x), x) for call in (ours, program))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("whole", [False, True], ids=["traced", "compiled"])
def test_a_loss_that_depends_on_the_phase_of_singular_vectors(whole: bool) -> None:
    def magnitudes(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(x).U.abs()

    def phases(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svd(x).U.real

    x = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
    tangent = torch.randn(3, 3)
    for program, has_gradient in ((magnitudes, True), (phases, False)):
        ours: Any = aot_function(program, fw_compiler=eager)
        if whole:
            options = Options(strict=True, verify=True)
            ours = compile_graph(graph_of(program, (x,), {})[0], [x], CompileContext(options))
        result = ours(x)
        if has_gradient:
            wanted = torch.autograd.grad(program(x), x, tangent)
            torch.testing.assert_close(torch.autograd.grad(result, x, tangent), wanted)
        else:
            with pytest.raises(RuntimeError, match="phase"):
                torch.autograd.grad(result, x, tangent)
