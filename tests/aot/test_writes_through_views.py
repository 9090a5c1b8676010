"""Writes through views of parts, of several results, and of other types reach the whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fusewright.aot import aot_function
from fusewright.backends.eager import eager
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.pipeline import compile_graph
from tests.lower.support import graph_of


def chunks(x: Tensor) -> Tensor:
    y = x * 1
    first, _ = y.detach().chunk(2)
    first.add_(1)
    return y * 2


def rows(x: Tensor) -> Tensor:
    y = x * 1
    with torch.no_grad():
        y.unbind()[-1].mul_(3)
    return y * 2


def parts(x: Tensor) -> Tensor:
    y = x.detach() * 1
    _, second = y.split_with_sizes([1, 3])
    second.add_(1)
    return y * x


def bits(x: Tensor) -> Tensor:
    y = x.detach() * 1
    y.view(torch.int32).bitwise_and_(-(1 << 16))
    return y * x


def real_part(x: Tensor) -> Tensor:
    y = x * (1 + 1j)
    y.real.add_(x)
    return torch.view_as_real(y * 2)


def pairs(x: Tensor) -> Tensor:
    y = torch.stack([x, x * 2], -1)
    torch.view_as_complex(y).mul_(2j)
    return y * 2


def transposed_numbers(x: Tensor) -> Tensor:
    y = (x * (1 + 1j)).t()
    torch.view_as_real(y)[..., 1].mul_(3)
    return torch.view_as_real(y * 2)


def conjugate_numbers(x: Tensor) -> Tensor:
    y = (x * (1 + 1j)).conj()
    y.imag.mul_(3)
    return torch.view_as_real(y * 2)


def exchanged_rows(x: Tensor) -> Tensor:
    """What is written has strides of which the whole cannot be a view."""
    y = torch.zeros(4, 4)
    y.view(2, 2, 4).transpose(0, 1).copy_(x.view(2, 2, 4))
    return y * x


PROGRAMS = [
    chunks,
    rows,
    parts,
    bits,
    real_part,
    pairs,
    transposed_numbers,
    conjugate_numbers,
    exchanged_rows,
]


@pytest.mark.parametrize("whole", [False, True], ids=["traced", "compiled"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_writes(program: Callable[[Tensor], Tensor], whole: bool) -> None:
    x = torch.randn(4, 4, requires_grad=True)
    ours = aot_function(program, fw_compiler=eager)
    if whole:
        module, inputs = graph_of(program, (x,), {})
        ours = compile_graph(module, inputs, CompileContext(Options(strict=True, verify=True)))
    wanted, found = program(x), ours(x)
    torch.testing.assert_close(found, wanted)
    tangent = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad(found, x, tangent), torch.autograd.grad(wanted, x, tangent)
    )
