"""Registers a backend's operators of the Python target with torch, and beside them those that every
backend gets: operators on geometry alone, the fall-back for convolutions, cells of recurrent
networks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.opgen.fall_back import FallBack
from fusewright.torch_compat import run_cpu_kernel

aten = torch.ops.aten


def resize(self: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
    """`resize_` on any device: into the memory that is there, or into new memory with the old
    elements. Other tensors that share the memory keep the old one.
    """
    if memory_format not in (None, torch.preserve_format, torch.contiguous_format):
        raise NotImplementedError(f"resize_ to {memory_format}")
    needed = math.prod(size) * self.element_size() + self.storage_offset() * self.element_size()
    if needed <= self.untyped_storage().nbytes() or math.prod(size) == 0:
        run_cpu_kernel(aten.resize_.default, self, size)
        return self
    fresh = torch.empty(size, dtype=self.dtype, device=self.device)
    kept = self.reshape(-1)[: fresh.numel()]
    fresh.view(-1)[: kept.numel()].copy_(kept)
    return self.set_(fresh.untyped_storage(), 0, fresh.size(), fresh.stride())


def set_empty(self: Tensor) -> Tensor:
    """`set_` without a source: to no elements, in memory of its own."""
    fresh = torch.empty(0, dtype=self.dtype, device=self.device)
    return self.set_(fresh.untyped_storage(), 0, fresh.size(), fresh.stride())


GEOMETRY = (
    aten.as_strided.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor,
)
"""Operators that touch no elements, and hence are the same on every device."""

_CONVOLUTIONS = (
    aten.convolution_overrideable.default,
    aten.convolution_backward_overrideable.default,
)
"""Operators that torch has for every device, only to refuse; the fall-back knows what is meant."""


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A step of an LSTM by the device's other operators: the new state, the new cell, and the gates
    before their activation, (batch, 4 hidden), which the gradient needs.
    """
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    start, forget, cell, output = gates.chunk(4, 1)
    cy = forget.sigmoid() * cx + start.sigmoid() * cell.tanh()
    return output.sigmoid() * cy.tanh(), cy, gates


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    gates: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the gates, the cell and a bias, by torch's own formula."""
    nothing = gates.new_zeros(())
    grad_gates, _, grad_cx, _, _ = aten._thnn_differentiable_lstm_cell_backward(
        grad_hy, grad_cy, gates, nothing, None, None, cx, cy
    )
    return grad_gates, grad_cx, grad_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A step of a GRU by the device's other operators: the new state, and what the gradient needs,
    (batch, 7 hidden).
    """
    from_input = _biased(input_gates, input_bias)
    from_hidden = _biased(hidden_gates, hidden_bias)
    x, h = from_input.chunk(3, 1), from_hidden.chunk(3, 1)
    reset, update = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
    fresh = (x[2] + reset * h[2]).tanh()
    return fresh + update * (hx - fresh), torch.cat((from_input, from_hidden, hx), 1)


def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Any, ...]:
    """Gradients of both gates, the state and both biases, by torch's own formula."""
    size = grad_hy.size(1)
    parts = workspace.split_with_sizes((3 * size, 3 * size, size), 1)
    from_input, from_hidden, grad_hx, _, _ = aten._thnn_differentiable_gru_cell_backward(
        grad_hy, *parts, None, None
    )
    biases = (from_input.sum(0), from_hidden.sum(0)) if has_bias else (None, None)
    return from_input, from_hidden, grad_hx, *biases


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


_CELLS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
"""Cells of recurrent networks: torch asks a device from outside for these, and has them for CUDA
alone.
"""


def with_gradient(name: str) -> str:
    """One name for an operator and its gradient, which knows what the operator keeps for it."""
    return name.removesuffix("_impl").removesuffix("_backward")


def register(
    library: torch.library.Library,
    operators: Mapping[str, Callable[..., Any]],
    autograd: Mapping[str, Callable[..., Any]],
    fall_back: FallBack,
    key: str,
) -> None:
    """Register kernels and wrappers under a backend's key, and those that differentiate
    themselves under its autograd key as well.
    """
    common: dict[str, Callable[..., Any]] = {
        op.name().removeprefix("aten::"): functools.partial(run_cpu_kernel, op) for op in GEOMETRY
    }
    common |= {**_CELLS, "resize_": resize, "set_": set_empty}
    for operator in _CONVOLUTIONS:
        common[operator.name().removeprefix("aten::")] = functools.partial(fall_back, operator)
    own = {with_gradient(name) for name in operators}
    common = {name: common[name] for name in common if with_gradient(name) not in own}
    for name, function in (common | dict(operators)).items():
        library.impl(name, function, key)
    for bit in ("Conjugate", "Negative"):  # to resolve it takes a copy; hence copies get it as is
        library.impl("_copy_from", torch.library.fallthrough_kernel, bit)
    for name, function in autograd.items():
        library.impl(name, function, f"Autograd{key}")
