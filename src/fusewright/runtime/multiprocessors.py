"""What a multiprocessor of a GPU has for the threads of a program: compilers of kernels choose
tiles and warps by it, without loading Triton.
"""

from __future__ import annotations

from typing import Final

WARP: Final = 32
"""Threads that run in step."""

MOST_WARPS: Final = 16
"""Warps of a program: with more, no thread could have 128 registers."""

REGISTERS: Final = 1 << 16
"""Registers, of 32 bits, that the threads of a program share."""

MOST_REGISTERS: Final = 255
"""Registers of a thread at most."""
