"""Kernels that check what they do: a fault they report becomes the exception that eager would
raise."""

from __future__ import annotations

import ctypes
from typing import Any

from fusewright.native import CpuKernel

MESSAGES: dict[int, tuple[type[Exception], str]] = {
    1: (IndexError, "index out of range in compiled kernel {name}"),
    2: (RuntimeError, "ZeroDivisionError in compiled kernel {name}"),
}
"""By the code that a kernel stores in its fault word: what to raise."""


class CheckedKernel:
    """Calls a kernel, then looks at its fault word. The kernel has gone on with element 0 or
    divisor 1 instead."""

    __slots__ = ("_word", "kernel", "name")

    def __init__(self, kernel: CpuKernel, word: int) -> None:
        self.kernel = kernel
        self.name = kernel.name
        self._word = ctypes.c_int64.from_address(word)

    def __call__(self, *arguments: Any) -> None:
        self.kernel(*arguments)
        code = self._word.value
        if code:
            self._word.value = 0
            exception, text = MESSAGES[code]
            raise exception(text.format(name=self.name))
