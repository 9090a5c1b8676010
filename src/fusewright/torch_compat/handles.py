"""Tensors as the handles of libtorch's stable C functions, and back."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import torch

_aoti = torch._C._aoti
"""Bindings that make handles; private, since torch's own generated C++ is all that uses them."""

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def handles_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """A handle of each tensor, which is its owner's to delete: a reference to it."""
    capsules = _aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
    return [_pointer(capsule, None) or 0 for capsule in capsules]


def tensor_of(handle: int) -> torch.Tensor:
    """The tensor of a handle, which is deleted."""
    (tensor,) = _aoti.alloc_tensors_by_stealing_from_void_ptrs([_capsule(handle, None, None)])
    assert isinstance(tensor, torch.Tensor)
    return tensor


def delete(handle: int) -> None:
    """Delete a handle."""
    _library().aoti_torch_delete_tensor_object(ctypes.c_void_p(handle))


@functools.cache
def _library() -> ctypes.CDLL:
    """The library of libtorch's stable C functions, which is loaded."""
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
