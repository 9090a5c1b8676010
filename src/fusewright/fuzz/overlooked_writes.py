"""Finds programs that write to what eager's autograd has saved without knowing: it neither refuses
them nor computes their gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from fusewright.fuzz.watched_calls import WatchedCalls

OVERLOOKING: Final = frozenset(("kron",))
"""Functions of torch that save views of their arguments which share no version with them: backward
multiplies by what is written there later.
"""


class OverlookedWrites(WatchedCalls):
    """A mode in which functions run as they are, and what they are known to overlook is watched."""

    def __init__(self) -> None:
        super().__init__()
        self._watched: list[tuple[torch.Tensor, int]] = []

    def note(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        if name in OVERLOOKING and result.requires_grad:
            for value in (*args, *kwargs.values()):
                tensor = value.detach()  # the same memory and version
                self._watched.append((tensor, tensor._version))

    @property
    def met(self) -> bool:
        """Whether one of the tensors has been written to since."""
        return any(tensor._version != version for tensor, version in self._watched)
