"""The part of fusewright that runs at every call, in C: kernel launch, frame hook, guard evaluation."""

from __future__ import annotations

import torch

try:
    from fusewright.native import _extension
except ImportError as error:
    raise ImportError(
        "fusewright's C extension is missing or was built for another Python: install the package with "
        "`pip install .`, or build it in place with `python setup.py build_ext --inplace`"
    ) from error

from fusewright.native._extension import CpuKernel

__all__ = ["CpuKernel"]


def _samples() -> tuple[tuple[torch.Tensor, int, int], ...]:
    """Tensors of several kinds with their implementation's address and dispatch keys, for the layout probe."""
    plain = torch.empty(2, 3)
    kinds = (
        plain,
        torch.empty(0, dtype=torch.int8),
        torch.empty(1, 2, dtype=torch.complex64).conj(),
        torch.empty(4, device="meta"),
        torch.nn.Parameter(plain),
    )
    return tuple((t, t._cdata, torch._C._dispatch_keys(t).raw_repr()) for t in kinds)


KEY_SETS_READABLE: bool = _extension.attach_torch(
    torch._C.__file__, torch.Tensor, torch.nn.Parameter, _samples()
)
"""Whether dispatch key sets are read from memory; otherwise guards ask torch for them, more slowly."""
