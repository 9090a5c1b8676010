"""Launches of a program's own kernels behind which inputs of the call have been written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusewright.errors import note_partial_write


def telling_of_writes(launch: Callable[..., None]) -> Callable[..., None]:
    """`launch`, made to mark what it raises: the call must not begin again."""

    def call(*arguments: Any) -> None:
        try:
            launch(*arguments)
        except Exception as error:
            note_partial_write(error)
            raise

    return call
