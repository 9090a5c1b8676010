"""Concatenations of equal pieces, and what follows them, in Triton's interpreter: each lane
computes an element of every piece, and no condition is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.kernels.triton.interpreted import NAME  # isort: skip - before triton

import fusewright
from fusewright.ir.bounds import compared_indices
from fusewright.ir.value import Apply, postorder
from fusewright.kernels.triton.emit import KernelWriter
from tests.gpu.support import gradients


def geglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return functional.gelu(gate) * value


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotary(x: Tensor, angles: Tensor) -> Tensor:
    angles = torch.cat((angles, angles), dim=-1)
    return x * angles.cos() + rotate_half(x) * angles.sin()


def queries_and_keys(q: Tensor, k: Tensor, angles: Tensor) -> tuple[Tensor, Tensor]:
    """Of heads that lie behind positions."""
    q, k = (x.view(2, 24, -1, 32).transpose(1, 2) for x in (q, k))
    return rotary(q, angles), rotary(k, angles)


def behind_a_product(x: Tensor, weight: Tensor, angles: Tensor) -> Tensor:
    """The memory of the product is taken over."""
    return rotary((x @ weight).view(2, 24, 3, 32).transpose(1, 2), angles)


def norm_then_rotary(x: Tensor, scale: Tensor, angles: Tensor) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    return rotary(wide.to(x.dtype) * scale, angles)


def softmax_of_joined(x: Tensor, y: Tensor) -> Tensor:
    """Its reductions are put together of parts."""
    return torch.cat((x.exp(), y), dim=-1).softmax(-1)


def three_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The gradient of a projection's three results."""
    return torch.cat([x.transpose(1, 2).reshape(2, 24, -1) for x in (q, k, v)], dim=-1)


def of_types(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x.half(), y, x.bool().half()), dim=1).float() + 1


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "geglu": (geglu, (torch.randn(6, 48),)),
    "rotary": (rotary, (torch.randn(2, 3, 24, 32), torch.randn(24, 16))),
    "queries and keys": (
        queries_and_keys,
        (torch.randn(2, 24, 96), torch.randn(2, 24, 64), torch.randn(24, 16)),
    ),
    "behind a product": (
        behind_a_product,
        (torch.randn(48, 8), torch.randn(8, 96), torch.randn(24, 16)),
    ),
    "norm then rotary": (
        norm_then_rotary,
        (torch.randn(2, 3, 24, 32), torch.randn(32), torch.randn(24, 16)),
    ),
    "softmax of joined": (softmax_of_joined, (torch.randn(12, 40), torch.randn(12, 40))),
    "three heads": (three_heads, tuple(torch.randn(2, 3, 24, 16) for _ in range(3))),
    "rows": (lambda x, y: torch.cat((x, y.sin())) * 2, (torch.randn(5, 9), torch.randn(5, 9))),
    "a stack": (lambda x, y: torch.stack((x, y, x * y)), (torch.randn(5, 9), torch.randn(5, 9))),
    "of several types": (of_types, (torch.randn(5, 24), torch.randn(5, 24))),
    "padded": (lambda x: functional.pad(x, (0, 24)).cos(), (torch.randn(5, 24),)),
}


@pytest.mark.parametrize("name", CASES)
def test_no_condition_is_left(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, inputs = CASES[name]
    writers: list[KernelWriter] = []
    write = KernelWriter.write

    def kept(writer: KernelWriter) -> list[str]:
        writers.append(writer)
        return write(writer)

    monkeypatch.setattr(KernelWriter, "write", kept)
    compiled = fusewright.compile(
        function, backend=NAME, options={"strict": True, "verify": True}, fullgraph=True
    )
    torch.manual_seed(0)
    exact = gradients(function, [value.double() for value in inputs])
    eager = gradients(function, inputs)
    for own, other, wanted in zip(gradients(compiled, inputs), eager, exact, strict=True):
        error, allowed = ((given.double() - wanted).abs().max() for given in (own, other))
        assert error <= 4 * allowed + 1e-6
    values = [value for writer in writers for value in postorder(writer.roots())]
    assert values
    assert not any(isinstance(v, Apply) and compared_indices(v) is not None for v in values)
