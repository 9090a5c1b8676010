"""What planted timers know of the alternatives that tuning gives them."""

from __future__ import annotations

from typing import Any

import torch

from fusewright.runtime import trials


def first_call(alternative: Any) -> Any:
    """The call, a `partial`, that an alternative makes; of several that it makes in turn, the
    next.
    """
    return alternative.args[0][0] if alternative.func is trials.call_next else alternative


def is_library_call(alternative: Any) -> bool:
    """Whether an alternative calls the library; else it launches kernels."""
    return isinstance(first_call(alternative).func, type(torch.ops.aten.mm.default))
