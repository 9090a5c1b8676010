"""Trials of operators on zeros: for those that torch has no meta kernel for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fusewright import torch_compat
from fusewright.containers import mapped
from fusewright.fake_rules.arguments import flat
from fusewright.fake_rules.geometry import Geometry, extent
from fusewright.operators import facts
from fusewright.torch_compat import OpOverload

TRIAL_LIMIT = 1 << 26
"""Bytes of arguments up to which an operator is tried."""


def result_for_zeros(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `op` for real zeros of its arguments' geometry.

    None for operators that are not torch's own, write, draw random numbers or give views, for
    arguments that are large or of symbolic sizes, and where zeros are refused, or would lead the
    kernel out of its memory.
    """
    tensors = [value for value in flat((*args, *kwargs.values())) if isinstance(value, Tensor)]
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    acts = is_random or torch_compat.written_arguments(op) or torch_compat.is_view_operator(op)
    fixed = all(isinstance(n, int) for x in tensors for n in (*x.shape, *x.stride()))
    if acts or op.namespace != "aten" or not fixed or not is_small(tensors):
        return None
    if 0 not in facts(op).made_up:
        return None
    try:
        with torch.no_grad():
            result = op(*mapped(zeros_for, args), **mapped(zeros_for, kwargs))
    except (RuntimeError, ValueError, IndexError):
        return None
    layouts = {tensor.layout for tensor in flat((result,)) if isinstance(tensor, Tensor)}
    return result if layouts <= {torch.strided} else None


def is_small(tensors: list[Any]) -> bool:
    """Whether a trial with memory for all of them is worth it."""
    total: int = sum(tensor.numel() * tensor.itemsize for tensor in tensors)
    return total <= TRIAL_LIMIT


def zeros_for(like: Any, device: torch.device | None = None) -> Tensor:
    """Real zeros laid out as a fake, on its device or another."""
    length = extent(like.shape, like.stride())
    zeros = torch.zeros(length, dtype=like.dtype, device=device or like.device)
    return zeros.as_strided(like.shape, like.stride())


def geometry_of(real: Tensor) -> Geometry:
    """The geometry of a real tensor with strides."""
    return Geometry(real.dtype, tuple(real.shape), real.stride())
