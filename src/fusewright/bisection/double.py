"""A program in double precision, whatever types it names: the reference that errors are measured
against; and the same with noise, which tells what rounding may do to each result (Monte Carlo
arithmetic, D. S. Parker, 1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from fusewright.torch_compat import TorchDispatchMode
from fusewright.torch_compat.trees import map_tree

WIDER: Final = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
"""The type that has the same numbers in double precision, by type."""

EXACT: Final = frozenset(
    str.split(
        """
        abs neg relu clone copy copy_ _to_copy where gather index index_select cat stack sign floor
        ceil round trunc maximum minimum max min amax amin aminmax sort topk fill full zeros ones
        arange eye zeros_like ones_like full_like scalar_tensor constant_pad_nd flip roll
        masked_fill clamp clamp_min clamp_max threshold tril triu zero_ new_zeros new_ones new_full
        index_put scatter slice_scatter select_scatter diagonal_scatter max_pool2d_with_indices
        median mode kthvalue cummax cummin repeat masked_select nan_to_num lift_fresh
        unfold_backward embedding empty empty_like new_empty set_ resize_ fill_ hardtanh
        sgn lift_fresh_copy embedding_dense_backward threshold_backward detach_copy
        _local_scalar_dense
        """
    )
)
"""Operators whose results are as exact as their arguments."""

HALF_TO_FLOAT: Final = frozenset(("_softmax", "_log_softmax"))
"""Operators whose last argument says that a half is to become a float."""


def widened(value: Any) -> Any:
    """A tensor or a type in double precision; anything else as it is."""
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in WIDER:
        return value.to(WIDER[value.dtype])
    return value


class InDouble(TorchDispatchMode):
    """Each operator computes in double precision. What draws random numbers draws those of single
    precision, which are others.

    `noise`: by how much, relatively, each rounded result is changed at random at most.
    """

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        self._noise = noise
        self._random = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            return _drawn(func, args, keywords)
        arguments = list(map_tree(widened, list(args)))
        keywords = map_tree(widened, keywords)
        name = func.overloadpacket.__name__
        if name in HALF_TO_FLOAT:
            arguments[2:3] = [False]
        written = [argument for argument in args if isinstance(argument, torch.Tensor)]
        returned = func(*arguments, **keywords)
        returned = map_tree(
            lambda value: value if any(value is tensor for tensor in written) else widened(value),
            returned,
        )
        if self._noise and name not in EXACT and not func.is_view:
            map_tree(self._disturb, returned)
        return returned

    def _disturb(self, value: Any) -> Any:
        """Change a floating tensor in place."""
        if isinstance(value, torch.Tensor) and value.dtype is torch.float64 and value.numel():
            noise = torch.rand(value.shape, generator=self._random, dtype=torch.float64)
            value.mul_((1 + self._noise * (2 * noise - 1)).to(value.device))
        return value


def _drawn(func: Any, args: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """The result of what draws random numbers: those of single precision."""
    first = args[0] if args else None
    if func._schema.is_mutable and isinstance(first, torch.Tensor) and first.dtype is torch.float64:
        drawn = func(first.to(torch.float32), *args[1:], **keywords)
        return first.copy_(drawn)
    return map_tree(widened, func(*args, **keywords))
