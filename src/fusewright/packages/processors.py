"""Levels of processors that a package may hold machine code for."""

from __future__ import annotations

import platform
from typing import Final

from fusewright.native import lacking_features

_AVX2: Final = ("avx2", "fma", "bmi", "bmi2", "popcnt", "f16c", "lzcnt", "movbe")

LEVELS: Final[dict[str, tuple[str, ...]]] = {
    "avx512": (*_AVX2, "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"),
    "avx2": _AVX2,
    "scalar": (),
}
"""The best first: by level, the processor features that its code needs. Names are those of the
option `kernel_target`."""


def machine_name() -> str:
    """The architecture of this machine, such as `x86_64`."""
    return platform.machine()


def best_level() -> str:
    """The best level that this machine runs."""
    return next(name for name, features in LEVELS.items() if not lacking_features(features))
