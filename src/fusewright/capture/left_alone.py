"""Which code is never captured as a frame of its own: libraries that serve the program, not the
program.

It matters for frames that run natively, around a graph break. Code that a captured frame calls is
inlined wherever it stands.
"""

from __future__ import annotations

import os
import sysconfig
import types
from typing import Final

import torch

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))
_TORCH: Final = torch.__path__[0]
_STANDARD_LIBRARY: Final = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")}
)
_INSTALLED: Final = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")}
)

_PROGRAMS_OF_TORCH: Final = tuple(
    os.path.join(_TORCH, *path)
    for path in (
        ("nn", "functional.py"),
        ("nn", "modules", ""),
        ("nn", "parallel", ""),
        ("nn", "utils", ""),
        ("ao", "nn", ""),
        ("distributions", ""),
        ("optim", ""),
    )
)
"""Parts of torch that compute with tensors in Python, as a user's code would."""

_DISPATCH_OF_MODULES: Final = os.path.join(_TORCH, "nn", "modules", "module.py")
"""`nn.Module.__call__` and what belongs to it: hooks and `forward` are called from there."""


def is_left_alone(code: types.CodeType) -> bool:
    """Whether a frame of this code runs as it is; frames that it calls may be captured."""
    name = code.co_filename
    if name.startswith(_TORCH):
        return name == _DISPATCH_OF_MODULES or not name.startswith(_PROGRAMS_OF_TORCH)
    if name.startswith(_PACKAGE):
        return True
    if name.startswith(_STANDARD_LIBRARY):
        return not name.startswith(_INSTALLED)
    return name.startswith("<frozen ")
