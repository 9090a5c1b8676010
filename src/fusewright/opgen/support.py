"""Functions that generated wrappers of the Python target call: checks, geometry, allocating and
writing.

A kernel computes; its result, or torch's word on meta tensors for what it will be, is held against
what a variant writes to, as ATen does, with ATen's words.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fusewright.containers import mapped, tensors
from fusewright.torch_compat import (
    OpOverload,
    external_device_name,
    has_internal_overlap,
)

aten = torch.ops.aten


def to_meta(values: Any) -> Any:
    """Arguments with meta tensors in place of tensors. A scalar tensor on the CPU stays, since it
    takes part in type promotion in its own way.
    """
    return mapped(_meta, values)


def _meta(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu" and tensor.dim() == 0:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def geometry(operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The result of `operator` as meta tensors. Raises what torch raises for such arguments,
    NotImplementedError where torch has no meta function.
    """
    if "device" in kwargs:
        kwargs["device"] = "meta"
    return operator(*to_meta(args), **to_meta(kwargs))


def check_same_device(*values: Any) -> None:
    """Raise if tensors are on different devices."""
    devices = list(dict.fromkeys(str(tensor.device) for tensor in tensors(values)))
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{devices[0]} and {devices[1]}!"
        )


def check_same_device_or_scalar(*values: Any) -> None:
    """Require tensors on one device as pointwise operators do: scalars may be on the CPU."""
    check_same_device(*(t for t in tensors(values) if t.dim() > 0 or t.device.type != "cpu"))


def check_overlap(written: Any, *read: Any) -> None:
    """Raise if what is written to overlaps with itself, or in part with what is read."""
    for output in tensors(written):
        if has_internal_overlap(output):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the operation."
            )
    check_apart(written, read)


def check_apart(written: Any, read: Any) -> None:
    """Raise if what is written to overlaps in part with what is read."""
    pairs = itertools.product(tensors(written), tensors(read))
    if any(_overlaps_in_part(output, tensor) for output, tensor in pairs):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor "
            "refer to a single memory location. Please clone() the tensor before performing the "
            "operation."
        )


def _overlaps_in_part(first: Tensor, second: Tensor) -> bool:
    """Whether two dense tensors share some memory without being one and the same; tensors with
    gaps are taken to be apart, as torch does.
    """
    if first.device != second.device or first.numel() == 0 or second.numel() == 0:
        return False
    if not (_is_dense(first) and _is_dense(second)):
        return False
    if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr():
        return False
    start, other = first.data_ptr(), second.data_ptr()
    end = start + first.numel() * first.element_size()
    other_end = other + second.numel() * second.element_size()
    same = (start, end, first.stride()) == (other, other_end, second.stride())
    return not same and start < other_end and other < end


def _is_dense(tensor: Tensor) -> bool:
    return bool(aten.is_non_overlapping_and_dense.default(tensor))


def pairs(written: Any, results: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Each tensor that is written to, beside its result; arguments that were left out are passed
    over.
    """
    if isinstance(written, Tensor):
        yield written, results
    elif written is not None:
        for target, result in zip(written, results, strict=True):
            yield from pairs(target, result)


def check_self(written: Any, results: Any, *, castable: bool) -> None:
    """Raise unless tensors can take results, which may be meta tensors, as they are: of the same
    sizes and the same dtype, or of one to which the result's converts if `castable`.
    """
    for target, result in pairs(written, results):
        if target.size() != result.size():
            raise RuntimeError(
                f"output with shape {list(target.size())} doesn't match the broadcast shape "
                f"{list(result.size())}"
            )
        _check_dtype(target, result.dtype, castable)


def _check_dtype(target: Tensor, dtype: torch.dtype, castable: bool) -> None:
    if castable and not torch.can_cast(dtype, target.dtype):
        raise RuntimeError(
            f"result type {_word(dtype)} can't be cast to the desired output type "
            f"{_word(target.dtype)}"
        )
    if not castable and dtype != target.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {_c_word(dtype)}, but got {_c_word(target.dtype)} "
            "instead"
        )


_WORDS = {
    torch.uint8: ("Byte", "unsigned char"),
    torch.int8: ("Char", "signed char"),
    torch.int16: ("Short", "short"),
    torch.int32: ("Int", "int"),
    torch.int64: ("Long", "long int"),
    torch.float16: ("Half", "c10::Half"),
    torch.float32: ("Float", "float"),
    torch.float64: ("Double", "double"),
    torch.complex64: ("ComplexFloat", "c10::complex<float>"),
    torch.complex128: ("ComplexDouble", "c10::complex<double>"),
    torch.bool: ("Bool", "bool"),
    torch.bfloat16: ("BFloat16", "c10::BFloat16"),
}
"""A dtype in the words of ATen's messages: as a scalar type, and as a C++ type."""


def _word(dtype: torch.dtype) -> str:
    return _WORDS.get(dtype, (str(dtype), str(dtype)))[0]


def _c_word(dtype: torch.dtype) -> str:
    return _WORDS.get(dtype, (str(dtype), str(dtype)))[1]


def resize_outs(outs: Any, results: Any, *, castable: bool) -> None:
    """Bring outs to the sizes of results, with ATen's warning where they held elements; raise for
    outs of a wrong dtype or on another device.
    """
    for out, result in pairs(outs, results):
        if result.device.type != "meta" and out.device != result.device:
            raise RuntimeError(
                f"Expected out tensor to have device {result.device}, but got {out.device} instead"
            )
        _check_dtype(out, result.dtype, castable)
    for out, result in pairs(outs, results):
        if out.size() == result.size():
            continue
        if out.numel() > 0:
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.size())}, which does not match the required output shape "
                f"{list(result.size())}. torch is going to refuse this: empty it first with "
                "out.resize_(0).",
                stacklevel=4,
            )
        out.resize_(result.size())


def write_self(written: Any, results: Any, *, castable: bool) -> None:
    """Check that results fit, and copy them to the tensors that an operator changes in place."""
    check_self(written, results, castable=castable)
    copy(written, results)


def write_out(outs: Any, results: Any, *, castable: bool) -> None:
    """Resize outs, and copy results to them."""
    resize_outs(outs, results, castable=castable)
    copy(outs, results)


def copy(written: Any, results: Any) -> None:
    """Copy results, converting them."""
    for target, result in pairs(written, results):
        if target is not result:
            target.copy_(result)


def allocate(like: Any, device: torch.device | str) -> Any:
    """Tensors on a device with the geometry of meta tensors."""
    return mapped(
        lambda t: torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device),
        like,
    )


def device_of(*values: Any) -> torch.device:
    """The device asked for, or that of the first tensor which is not on the CPU."""
    for value in values:
        if isinstance(value, torch.device):
            return value
    for tensor in tensors(values):
        if tensor.device.type != "cpu":
            return tensor.device
    return torch.device(external_device_name(), 0)


def writable_copy(selfs: Any, like: Any, *, in_result_dtype: bool) -> Any:
    """Copies of what an in-place operator starts from, with room for its result: its sizes, and a
    dtype that holds both; or the result's, for operators that convert before they compute.
    """
    if not isinstance(selfs, Tensor):
        return [
            writable_copy(tensor, meta, in_result_dtype=in_result_dtype)
            for tensor, meta in zip(selfs, like, strict=True)
        ]
    dtype = like.dtype if in_result_dtype else torch.promote_types(selfs.dtype, like.dtype)
    copy = torch.empty_strided(like.size(), like.stride(), dtype=dtype, device=selfs.device)
    return copy.copy_(selfs)


def converted(values: Any, like: Any) -> Any:
    """Results in the dtypes of meta tensors."""
    if not isinstance(values, Tensor):
        return [converted(tensor, meta) for tensor, meta in zip(values, like, strict=True)]
    return values.to(like.dtype)


def clone(values: Any) -> Any:
    """Fresh copies of all tensors."""
    return mapped(torch.clone, values)
