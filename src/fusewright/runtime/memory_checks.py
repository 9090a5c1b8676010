"""Checks of what generated code does to memory, chosen by environment variables. They are read when
a generated module is loaded; where none is set, calls cost what they did.

- `FUSEWRIGHT_GUARD_PAGES=end`: each CPU kernel runs on copies of its tensors that end at pages
  which may not be touched (`guard_pages`); an access past the end raises `MemoryFault`. `=begin`:
  the same before the beginning; `=both`: one after the other.
- `FUSEWRIGHT_GARBAGE=1`: new memory, that of kernels' locals too, is filled with 0xFF bytes, which
  are NaN, -1 or 255: what was never written shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import torch

from fusewright.records import record

GUARD_PAGES = "FUSEWRIGHT_GUARD_PAGES"
GARBAGE = "FUSEWRIGHT_GARBAGE"

SIDES = ("", "end", "begin", "both")

ALLOCATION = re.compile(r"^  (%\w+) = alloca (.+?)(?:, i64 (\S+))?, align \d+$", re.MULTILINE)
"""A local in a kernel's source: register, type, how many."""


@record
class MemoryChecks:
    """The checks that are on."""

    guard_pages: str = ""
    """The side on which buffers meet a page that may not be touched: end, begin or both, which runs
    kernels twice; empty: off."""

    garbage: bool = False
    """Whether new memory is filled with 0xFF bytes."""

    @classmethod
    def chosen(cls) -> MemoryChecks:
        """The checks that the environment asks for. ValueError: a variable has another value."""
        side = os.environ.get(GUARD_PAGES, "")
        if side not in SIDES:
            raise ValueError(f"{GUARD_PAGES} has to be end, begin or both, not {side!r}")
        garbage = os.environ.get(GARBAGE, "")
        if garbage not in ("", "0", "1"):
            raise ValueError(f"{GARBAGE} has to be 0 or 1, not {garbage!r}")
        return cls(side, garbage == "1")


def allocator() -> Callable[..., torch.Tensor]:
    """The function by which a generated module that is loaded now makes tensors:
    `torch.empty_strided`, or the same filled with garbage.
    """
    return _garbage_strided if MemoryChecks.chosen().garbage else torch.empty_strided


def placer() -> Callable[..., torch.Tensor]:
    """The function by which a generated module that is loaded now gives buffers memory of its
    arena. Under checks each has memory of its own, so that what is written beside it shows.
    """
    if MemoryChecks.chosen() == MemoryChecks():
        return _place
    make = allocator()
    return lambda arena, offset, size, stride, dtype: make(size, stride, dtype=dtype)


def _place(
    arena: torch.Tensor,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
) -> torch.Tensor:
    """A tensor in the memory of `arena`, `offset` bytes from its beginning."""
    storage, first = arena.untyped_storage(), offset // dtype.itemsize
    return torch.empty(0, dtype=dtype).set_(storage, first, size, stride)


def _garbage_strided(size: Any, stride: Any, **keywords: Any) -> torch.Tensor:
    tensor = torch.empty_strided(size, stride, **keywords)
    memory = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    memory.set_(tensor.untyped_storage()).fill_(0xFF)
    return tensor


def with_garbage_in_locals(source: str) -> str:
    """A kernel's source that fills the memory of its locals with 0xFF bytes where it makes them."""

    def filled(match: re.Match[str]) -> str:
        local = match[1]
        return (
            f"{match[0]}\n{local_size(match)}\n"
            f"  call void @llvm.memset.p0.i64(ptr {local}, i8 -1, i64 {local}.size, i1 false)"
        )

    return ALLOCATION.sub(filled, source)


def local_size(match: re.Match[str]) -> str:
    """Lines that compute the bytes of a local, as the register `%LOCAL.size`."""
    local, kind, count = match[1], match[2], match[3] or "1"
    return (
        f"  {local}.end = getelementptr {kind}, ptr null, i64 {count}\n"
        f"  {local}.size = ptrtoint ptr {local}.end to i64"
    )
