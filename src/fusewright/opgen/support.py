"""What generated operators of the Python target share: checks, geometry, writing, and the CPU
fall-back.

A kernel computes; its result, or torch's word on meta tensors for what it will be, is held against
what a variant writes to, as ATen does, with ATen's words.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fusewright.torch_compat import (
    OpOverload,
    external_device_name,
    has_internal_overlap,
    has_kernel,
    operator_arguments,
    operator_returns,
    run_cpu_kernel,
    written_arguments,
)

aten = torch.ops.aten


def map_tensors(function: Callable[[Tensor], Any], values: Any) -> Any:
    """The same nested lists, tuples and dictionaries with each tensor replaced."""
    match values:
        case Tensor():
            return function(values)
        case list() | tuple():
            return type(values)(map_tensors(function, value) for value in values)
        case dict():
            return {key: map_tensors(function, value) for key, value in values.items()}
        case _:
            return values


def tensors_in(values: object) -> list[Tensor]:
    """All tensors in nested arguments, in order."""
    found: list[Tensor] = []
    map_tensors(found.append, values)
    return found


def to_meta(values: Any) -> Any:
    """The same arguments with the geometry of tensors alone; a scalar on the CPU stays as it is,
    since it takes part in type promotion in its own way.
    """
    return map_tensors(_meta, values)


def _meta(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu" and tensor.dim() == 0:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def geometry(operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """What `operator` would return, as meta tensors. Raises what torch raises for such arguments,
    NotImplementedError where torch has no meta function.
    """
    if "device" in kwargs:
        kwargs["device"] = "meta"
    return operator(*to_meta(args), **to_meta(kwargs))


def check_same_device(*values: Any) -> None:
    """Raise if tensors are on different devices."""
    devices = list(dict.fromkeys(str(tensor.device) for tensor in tensors_in(values)))
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{devices[0]} and {devices[1]}!"
        )


def check_same_device_or_scalar(*values: Any) -> None:
    """The same as pointwise operators have it: scalars may be on the CPU."""
    check_same_device(*(t for t in tensors_in(values) if t.dim() > 0 or t.device.type != "cpu"))


def check_overlap(written: Any, *read: Any) -> None:
    """Raise if what is written to overlaps with itself, or in part with what is read."""
    for output in tensors_in(written):
        if has_internal_overlap(output):
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a "
                "single memory location. Please clone() the tensor before performing the operation."
            )
    check_apart(written, read)


def check_apart(written: Any, read: Any) -> None:
    """Raise if what is written to overlaps in part with what is read."""
    pairs = itertools.product(tensors_in(written), tensors_in(read))
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
    return aten.is_non_overlapping_and_dense.default(tensor)


def pairs(written: Any, results: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """What is written to beside its result; arguments that were left out are passed over."""
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
"""What ATen's messages call a dtype: as a scalar type, and as a C++ type."""


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
    return map_tensors(
        lambda t: torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device),
        like,
    )


def device_of(*values: Any) -> torch.device:
    """The device asked for, or that of the first tensor which is not on the CPU."""
    for value in values:
        if isinstance(value, torch.device):
            return value
    for tensor in tensors_in(values):
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
    return map_tensors(torch.clone, values)


class FallBack:
    """Computes on the CPU what a backend has no kernel for, and counts it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often each operator was computed on the CPU."""

        self.mode = "warn"
        """`warn` names an operator at its first fall-back, `quiet` does not, `error` raises."""

        self._lock = threading.Lock()

    def __call__(self, operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Run `operator` on the CPU: inputs moved, what it writes to copied back, the result moved
        back. Views are made of the device's own memory.
        """
        if _returns_view(operator):
            return run_cpu_kernel(operator, *args, **kwargs)
        self._note(operator)
        operator, args = _counterpart(operator, _numbers_as_tensors(operator, args))
        written, read = split_arguments(operator, args, kwargs)
        check_apart(written, read)  # what the CPU is given are copies, which never overlap
        device = device_of(kwargs.get("device"), args, kwargs)
        host = _Host()
        host_args, host_kwargs = host.moved((args, dict(kwargs)))
        if isinstance(kwargs.get("device"), torch.device):
            host_kwargs["device"] = torch.device("cpu")
        result = operator(*host_args, **host_kwargs)
        host.copy_back(*written)
        return host.moved_back(result, device)

    def _note(self, operator: OpOverload) -> None:
        name = str(operator).removesuffix(".default").replace(".", "::", 1)
        if operator in _REQUIRED:
            raise NotImplementedError(f"the backend must provide {name}: all others rest on it")
        if not has_kernel(name.removeprefix("aten::"), "CPU"):
            raise NotImplementedError(f"{name} has no kernel on this device, nor on the CPU")
        with self._lock:
            self.counts[name] += 1
            first = self.counts[name] == 1
        if self.mode == "error":
            raise NotImplementedError(
                f"{name} has no kernel on this device, and falling back to the CPU is off"
            )
        if first and self.mode == "warn":
            warnings.warn(
                f"{name} has no kernel on this device and is computed on the CPU", stacklevel=3
            )


_REQUIRED = (
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten._copy_from.default,
)


def _counterpart(operator: OpOverload, args: Sequence[Any]) -> tuple[OpOverload, Sequence[Any]]:
    """The operator that computes the same on the CPU, and its arguments. torch asks a device from
    outside for convolutions by names under which the CPU has none; and only one of two batch
    norms declares that it writes to the running statistics, and so has them copied back.
    """
    match operator:
        case aten.convolution_overrideable.default:
            return aten.convolution.default, args
        case aten.convolution_backward_overrideable.default:
            gradient, image, weight, *form = args
            channels = weight.size(1) * form[5] if form[3] else weight.size(0)
            return (
                aten.convolution_backward.default,
                [gradient, image, weight, [channels], *form],
            )
        case aten.native_batch_norm.default if args[3] is not None:
            return aten._native_batch_norm_legit.default, args
        case aten.native_batch_norm.out if args[3] is not None:
            return aten._native_batch_norm_legit.out, args
        case _:
            return operator, args


_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _numbers_as_tensors(operator: OpOverload, args: Sequence[Any]) -> list[Any]:
    """Arguments with a tensor wherever the operator declares one. torch hands a number that stands
    beside a tensor (`x % 2`) on as a number, though most operators take it in no such place.
    """
    values = list(args)
    for position, argument in enumerate(operator_arguments(operator)[: len(values)]):
        number = values[position]
        if type(number) in _NUMBERS and str(argument.type) == "Tensor":
            values[position] = _tensor_beside(number, tensors_in(args)[:1])
    return values


def _tensor_beside(number: complex, others: Sequence[Tensor]) -> Tensor:
    """A scalar tensor that promotes the type of another as a number does."""
    for other in others:
        dtype = torch.result_type(other, number)
        if other.dim() == 0 or dtype != other.dtype:
            return torch.scalar_tensor(number, dtype=dtype)
    return torch.scalar_tensor(number, dtype=_NUMBERS[type(number)])  # in full precision


def split_arguments(
    operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors among an operator's arguments that it writes to, and the others."""
    arguments = operator_arguments(operator)
    named = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    named.update(kwargs)
    written = written_arguments(operator)
    return (
        tensors_in([named[name] for name in written if name in named]),
        tensors_in([value for name, value in named.items() if name not in written]),
    )


class _Host:
    """Copies of arguments on the CPU, one for each tensor however often it is passed."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def moved(self, values: Any) -> Any:
        return map_tensors(self._move, values)

    def _move(self, tensor: Tensor) -> Tensor:
        if tensor.device.type == "cpu":
            return tensor
        if id(tensor) not in self._copies:
            self._copies[id(tensor)] = (tensor, tensor.cpu())
        return self._copies[id(tensor)][1]

    def copy_back(self, *written: Tensor) -> None:
        """Copy what an operator wrote to the tensors it was asked to write to."""
        for tensor in written:
            if id(tensor) not in self._copies:
                continue
            copy = self._copies[id(tensor)][1]
            if tensor.size() != copy.size():
                tensor.resize_(copy.size())
            tensor.copy_(copy)

    def moved_back(self, result: Any, device: torch.device) -> Any:
        originals = {id(copy): tensor for tensor, copy in self._copies.values()}
        return map_tensors(
            lambda t: originals[id(t)] if id(t) in originals else _to(t, device), result
        )


def _returns_view(operator: OpOverload) -> bool:
    aliases = (result.alias_info for result in operator_returns(operator))
    return any(alias is not None and not alias.is_write for alias in aliases)


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
    return copy.copy_(tensor)


def resize(self: Tensor, size: Sequence[int], *, memory_format: Any = None) -> Tensor:
    """`resize_` on any device: into the memory that is there, or into new memory with the old
    elements. Other tensors that share the memory keep the old one.
    """
    if memory_format not in (None, torch.preserve_format, torch.contiguous_format):
        raise NotImplementedError(f"resize_ to {memory_format}")
    needed = math.prod(size) * self.element_size() + self.storage_offset() * self.element_size()
    if needed <= self.untyped_storage().nbytes() or math.prod(size) == 0:
        return run_cpu_kernel(aten.resize_.default, self, size)
    fresh = torch.empty(size, dtype=self.dtype, device=self.device)
    kept = self.reshape(-1)[: fresh.numel()]
    fresh.view(-1)[: kept.numel()].copy_(kept)
    return self.set_(fresh.untyped_storage(), 0, fresh.size(), fresh.stride())


GEOMETRY = (
    aten.as_strided.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor,
)
"""Operators that touch no elements, and hence are the same on every device."""

_CONVOLUTIONS = (
    aten.convolution_overrideable.default,
    aten.convolution_backward_overrideable.default,
)
"""Operators that torch has for every device, only to refuse; the fall-back knows what is meant."""


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A step of an LSTM by the device's other operators: the new state, the new cell, and the gates
    before their activation, (batch, 4 hidden), which the gradient needs.
    """
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    start, forget, cell, output = gates.chunk(4, 1)
    cy = forget.sigmoid() * cx + start.sigmoid() * cell.tanh()
    return output.sigmoid() * cy.tanh(), cy, gates


def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    gates: Tensor,
    has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the gates, the cell and a bias, by torch's own formula."""
    nothing = gates.new_zeros(())
    grad_gates, _, grad_cx, _, _ = aten._thnn_differentiable_lstm_cell_backward(
        grad_hy, grad_cy, gates, nothing, None, None, cx, cy
    )
    return grad_gates, grad_cx, grad_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A step of a GRU by the device's other operators: the new state, and what the gradient needs,
    (batch, 7 hidden).
    """
    from_input = _biased(input_gates, input_bias)
    from_hidden = _biased(hidden_gates, hidden_bias)
    x, h = from_input.chunk(3, 1), from_hidden.chunk(3, 1)
    reset, update = (x[0] + h[0]).sigmoid(), (x[1] + h[1]).sigmoid()
    fresh = (x[2] + reset * h[2]).tanh()
    return fresh + update * (hx - fresh), torch.cat((from_input, from_hidden, hx), 1)


def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Any, ...]:
    """Gradients of both gates, the state and both biases, by torch's own formula."""
    size = grad_hy.size(1)
    parts = workspace.split_with_sizes((3 * size, 3 * size, size), 1)
    from_input, from_hidden, grad_hx, _, _ = aten._thnn_differentiable_gru_cell_backward(
        grad_hy, *parts, None, None
    )
    biases = (from_input.sum(0), from_hidden.sum(0)) if has_bias else (None, None)
    return from_input, from_hidden, grad_hx, *biases


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


_CELLS: Mapping[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
}
"""Cells of recurrent networks: torch asks a device from outside for these, and has them for CUDA
alone.
"""


def _with_gradient(name: str) -> str:
    """One name for an operator and its gradient, which knows what the operator keeps for it."""
    return name.removesuffix("_impl").removesuffix("_backward")


def set_empty(self: Tensor) -> Tensor:
    """`set_` without a source: to no elements, in memory of its own."""
    return self.set_(torch.empty(0, dtype=self.dtype, device=self.device))


def register(
    library: torch.library.Library,
    operators: Mapping[str, Callable[..., Any]],
    autograd: Mapping[str, Callable[..., Any]],
    fall_back: FallBack,
    key: str,
) -> None:
    """Register kernels and wrappers under a backend's key, and those that differentiate
    themselves under its autograd key as well.
    """
    common: dict[str, Callable[..., Any]] = {
        op.name().removeprefix("aten::"): functools.partial(run_cpu_kernel, op) for op in GEOMETRY
    }
    common |= {"resize_": resize, "set_": set_empty} | _CELLS
    for operator in _CONVOLUTIONS:
        common[operator.name().removeprefix("aten::")] = functools.partial(fall_back, operator)
    given = {_with_gradient(name) for name in operators}
    common = {name: common[name] for name in common if _with_gradient(name) not in given}
    for name, function in (common | dict(operators)).items():
        library.impl(name, function, key)
    for bit in ("Conjugate", "Negative"):  # to resolve it takes a copy; hence copies get it as is
        library.impl("_copy_from", torch.library.fallthrough_kernel, bit)
    for name, function in autograd.items():
        library.impl(name, function, f"Autograd{key}")
