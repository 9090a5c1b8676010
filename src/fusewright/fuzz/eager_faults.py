"""Finds programs of which eager's gradient is wrong, with some versions of torch."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

from fusewright.torch_version import version_of

FILLS_BEYOND_THE_DIAGONAL: Final = version_of(torch.__version__) < (2, 13)
"""Whether the gradient of the trace of a matrix with more rows than columns goes on below it: the
diagonal is written with one step through memory for all rows.
"""


class EagerFaults(TorchFunctionMode):
    """A mode in which functions run as they are; `met` tells whether a gradient is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        is_trace = getattr(function, "__name__", "") == "trace"
        if FILLS_BEYOND_THE_DIAGONAL and is_trace and result.requires_grad:
            rows, columns = (args[0] if args else kwargs["input"]).shape
            self.met |= rows > columns
        return result
