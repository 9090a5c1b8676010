"""Properties that a guard expects of a tensor: class, dispatch keys, dtype, device, sizes and
strides.
"""

from __future__ import annotations

from typing import Any

import torch

from fusewright.native import read_tensor
from fusewright.records import record

Extents = tuple[int | None, ...]


@record
class TensorPattern:
    """Tensors that compiled code accepts in one place."""

    type: type[torch.Tensor]
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    metadata: tuple[int, int, int, int, bool, Extents, Extents]
    """The pattern as the native floor compares it: key set, dtype, device type and index as torch
    numbers them, requires_grad, sizes, strides; None for what may be anything."""

    @classmethod
    def of(
        cls, tensor: torch.Tensor, extents: tuple[Extents, Extents] | None = None
    ) -> TensorPattern:
        """The tensors like this one, with the sizes and strides in `extents` where there are any.

        ValueError: a tensor without plain sizes, such as a nested one.
        """
        *head, sizes, strides = read_tensor(tensor)
        metadata: Any = (*head, *(extents or (sizes, strides)))
        return cls(type(tensor), tensor.dtype, tensor.device, tensor.layout, metadata)

    @property
    def sizes(self) -> Extents:
        """The sizes; None: any."""
        return self.metadata[5]

    @property
    def strides(self) -> Extents:
        """The strides; None: any."""
        return self.metadata[6]

    @property
    def requires_grad(self) -> bool:
        """Whether the tensors require gradients."""
        return self.metadata[4]

    def __str__(self) -> str:
        sizes = _extents(self.sizes)
        strides = " strides " + _extents(self.strides)
        grad = " requires_grad" if self.requires_grad else ""
        return f"{str(self.dtype).removeprefix('torch.')}{sizes}{strides} on {self.device}{grad}"

    def difference(self, tensor: torch.Tensor) -> tuple[str, str, str] | None:
        """The first way in which a tensor is not as expected: what to read of it, such as
        `.size(0)`, what that gives for the expected tensors, and for this one. None when the
        difference is in its dispatch keys.
        """
        rows = [
            (".dtype", self.dtype, tensor.dtype),
            (".device", self.device, tensor.device),
            (".layout", self.layout, tensor.layout),
            (".requires_grad", self.requires_grad, tensor.requires_grad),
            (".dim()", len(self.sizes), tensor.dim()),
        ]
        if (
            tensor.dim() == len(self.sizes)
            and tensor.layout == torch.strided
            and not tensor.is_nested
        ):
            rows += [
                (f".size({dimension})", expected, size)
                for dimension, (expected, size) in enumerate(
                    zip(self.sizes, tensor.size(), strict=True)
                )
                if expected is not None
            ]
            rows += [
                (f".stride({dimension})", expected, stride)
                for dimension, (expected, stride) in enumerate(
                    zip(self.strides, tensor.stride(), strict=True)
                )
                if expected is not None
            ]
        return next(((read, str(was), str(now)) for read, was, now in rows if was != now), None)


def _extents(extents: Extents) -> str:
    """Sizes or strides in words."""
    return f"[{', '.join('any' if extent is None else str(extent) for extent in extents)}]"
