"""Finds programs of which eager's gradient is wrong, with some versions of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from fusewright.fuzz.watched_calls import WatchedCalls
from fusewright.torch_version import version_of

FILLS_BEYOND_THE_DIAGONAL: Final = version_of(torch.__version__) < (2, 13)
"""Whether the gradient of the trace of a matrix with more rows than columns goes on below it: the
diagonal is written with one step through memory for all rows.
"""


class EagerFaults(WatchedCalls):
    """A mode in which functions run as they are; `met` tells whether a gradient is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        if FILLS_BEYOND_THE_DIAGONAL and name == "trace" and result.requires_grad:
            rows, columns = (args[0] if args else kwargs["input"]).shape
            self.met |= rows > columns
