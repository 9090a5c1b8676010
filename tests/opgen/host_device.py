"""A device for tests, made without a compiler: tensors of the key PrivateUse1 whose memory is the
host's, exchanged through DLPack. One per process; tests that load it run in a process of their own.
"""

from __future__ import annotations

import ctypes
import types
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from fusewright.containers import mapped, tensors
from fusewright.opgen.conformance import Mover
from fusewright.opgen.fall_back import split_arguments
from fusewright.opgen.support import check_apart, check_overlap
from fusewright.torch_compat import (
    operator_arguments,
    operator_returns,
    set_math_bits,
    written_arguments,
)

_EXTERNAL_DEVICE = 12
"""DLPack's number for devices from outside, which torch takes for PrivateUse1."""

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def to_device(tensor: Tensor) -> Tensor:
    """A tensor on the device that shares a CPU tensor's memory."""
    is_bool = tensor.dtype is torch.bool
    capsule = torch.utils.dlpack.to_dlpack(tensor.detach())
    device_type = ctypes.c_int32.from_address(_pointer_of(capsule, b"dltensor") + 8)
    device_type.value = _EXTERNAL_DEVICE
    result = torch._C._from_dlpack(capsule)
    assert not is_bool or result.dtype is torch.bool
    return result


def to_host(tensor: Tensor) -> Tensor:
    """A CPU tensor that shares the memory of one on the device."""
    if tensor.device.type == "cpu":
        return tensor
    storage = tensor.untyped_storage()
    empty = torch.empty(0, dtype=tensor.dtype)
    if storage.nbytes() == 0:
        return empty.new_empty(0).as_strided(tensor.size(), tensor.stride())
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    elements = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    host = empty.set_(elements, tensor.storage_offset(), tensor.size(), tensor.stride())
    set_math_bits(host, like=tensor)
    return host


def empty_memory_format(size: Any, **options: Any) -> Tensor:
    options.pop("device", None)
    options.pop("layout", None)
    options.pop("pin_memory", None)
    return to_device(torch.empty(size, **options))


def empty_strided(size: Any, stride: Any, **options: Any) -> Tensor:
    dtype = options.get("dtype")
    return to_device(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(self: Tensor, dst: Tensor, non_blocking: bool = False) -> Tensor:
    check_overlap(dst, self)  # on the host, storages differ
    to_host(dst).copy_(to_host(self))
    return dst


KERNELS = types.SimpleNamespace(
    empty_memory_format=empty_memory_format,
    empty_strided=empty_strided,
    _copy_from=_copy_from,
)

SUPPORTED = ("empty.memory_format", "empty_strided", "_copy_from")


def through_host(operator: Any) -> Any:
    """A kernel that runs torch's own for the CPU on the device's memory."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        check_apart(*split_arguments(operator, args, kwargs))  # on the host, storages differ
        passed = list(tensors((args, kwargs)))
        args, kwargs = mapped(to_host, (args, kwargs))
        inputs = list(tensors((args, kwargs)))
        storages = {tensor.untyped_storage().data_ptr() for tensor in inputs}

        def back(tensor: Tensor) -> Tensor:
            for written, read in zip(passed, inputs, strict=True):
                if tensor is read:
                    return written
            aliases = tensor.untyped_storage().data_ptr() in storages  # of memory that may go away
            return to_device(tensor.clone() if aliases else tensor)

        return mapped(back, operator(*args, **kwargs))

    return kernel


def out_through_host(operator: Any) -> Any:
    """The same for an out variant: the CPU writes to copies, which it can resize."""
    arguments = [argument.name for argument in operator_arguments(operator)]
    written = written_arguments(operator)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        mover = Mover("cpu")
        passed = dict(zip(arguments, args, strict=False)) | kwargs
        copies = mapped(lambda tensor: mover(to_host(tensor)), passed)
        operator(**copies)
        for name in written:
            pairs = zip(list(tensors(passed[name])), list(tensors(copies[name])), strict=True)
            for tensor, copy in pairs:
                if tensor.size() != copy.size():
                    tensor.resize_(copy.size())
                tensor.copy_(to_device(copy))
        if not operator_returns(operator):
            return None
        outs = tuple(kwargs[name] for name in written if name in kwargs)
        return outs[0] if len(outs) == 1 else outs

    return kernel


def load(name: str = "hosted") -> None:
    _setup_privateuseone_for_python_backend(name)
