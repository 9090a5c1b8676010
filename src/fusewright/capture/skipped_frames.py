"""Code that is never captured as a frame of its own: libraries that serve the program, not the
program.

It matters for frames that run natively, around a graph break. Code that a captured frame calls is
inlined wherever it stands, and whatever it is given.
"""

from __future__ import annotations

import os
import sysconfig
import types
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import torch
from torch.nn.utils.rnn import PackedSequence

from fusewright.native import Frame

_PACKAGE: Final = os.path.dirname(os.path.dirname(__file__))
_TORCH: Final = torch.__path__[0]
_STANDARD_LIBRARY: Final = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")}
)
_INSTALLED: Final = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib")}
)

_TRITON: Final = tuple(os.path.join(folder, "triton", "") for folder in _INSTALLED)
"""Directories of Triton, which compiles and launches kernels."""

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

_PACKING: Final = os.path.join(_TORCH, "nn", "utils", "rnn.py")
"""The file of functions that pack sequences: into as many rows for each step as the data says."""

_RECURRENT: Final = os.path.join(_TORCH, "nn", "modules", "rnn.py")

_DISPATCH_OF_MODULES: Final = os.path.join(_TORCH, "nn", "modules", "module.py")
"""`nn.Module.__call__` and what belongs to it: hooks and `forward` are called from there."""


_DATA_PARALLEL: Final = os.path.join(_TORCH, "nn", "parallel", "distributed.py")
"""`DistributedDataParallel`, which serves the module within: it computes by its reducer alone, in
C++.
"""


def is_skipped(code: types.CodeType) -> bool:
    """Whether a frame of this code runs as it is; frames that it calls may be captured."""
    name = code.co_filename
    if name.startswith(_TORCH):
        own = (_DISPATCH_OF_MODULES, _PACKING, _DATA_PARALLEL)
        return name in own or not name.startswith(_PROGRAMS_OF_TORCH)
    if name.startswith((_PACKAGE, *_TRITON)):
        return True
    if name.startswith(_STANDARD_LIBRARY):
        return not name.startswith(_INSTALLED)
    return name.startswith("<frozen ")


def is_written_by_fx(code: types.CodeType) -> bool:
    """Whether torch.fx has generated code, as it does for each new graph module."""
    return code.co_filename.startswith("<eval_with_key>")


def computes_with_tensors(frame: Frame) -> bool:
    """Whether a call is likely to: it is given tensors or modules, or its code names torch or one
    of them. Not within a recurrent layer, or one of a packed sequence.
    """
    if frame.code.co_filename == _RECURRENT and (
        frame.code.co_name != "forward"
        or any(isinstance(value, PackedSequence) for value in frame.locals.values())
    ):
        return False
    if has_tensors((*frame.locals.values(), *(frame.closure or ()))):
        return True
    for name in frame.code.co_names:
        variable = frame.globals.get(name)
        if variable is torch or isinstance(variable, torch.Tensor | torch.nn.Module):
            return True
        if isinstance(variable, types.ModuleType) and variable.__name__.startswith("torch."):
            return True
    return False


def has_tensors(objects: Iterable[Any]) -> bool:
    """Whether a tensor or module is found among objects, or in what they hold: those nearest first,
    and not many.
    """
    waiting = deque(objects)
    for _ in range(_MOST_OBJECTS):
        if not waiting:
            return False
        parts: Iterable[Any] = ()
        match waiting.popleft():
            case torch.Tensor() | torch.nn.Module():
                return True
            case type() | types.ModuleType():
                pass
            case types.CellType() as cell:
                parts = _contents(cell)
            case list() | tuple() | set() | frozenset() as items:
                parts = items
            case dict() as items:
                parts = dict.values(items)
            case types.MethodType() as method:
                parts = [method.__self__]
            case types.FunctionType() as function:
                parts = function.__closure__ or ()
            case item:
                parts = _attributes(item).values()
        waiting.extend(islice(parts, _MOST_PARTS))
    return False


_MOST_OBJECTS: Final = 1024
_MOST_PARTS: Final = 64


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


def _attributes(item: Any) -> dict[str, Any]:
    """An object's own attributes, its class's `__getattr__` not asked."""
    try:
        attributes = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return {}
    return attributes if isinstance(attributes, dict) else {}
