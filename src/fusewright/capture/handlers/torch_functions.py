"""Handlers of torch's own functions that do not simply belong in the graph: modes, queries,
modules, parameters.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.backends.opt_einsum
from torch.distributions.utils import lazy_property

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED, handles, polyfill, pure
from fusewright.capture.interpreter.stand_ins import raise_real
from fusewright.capture.interpreter.tensor_items import at_varying_numbers
from fusewright.capture.values.base import MISSING, Machine, Value
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import FALSE, NONE, TRUE, ConstantValue, boolean
from fusewright.capture.values.functions import MethodValue
from fusewright.capture.values.modules import ModuleValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.tensors import TensorValue
from fusewright.errors import Unsupported
from fusewright.fake.refusals import refusal

pure(
    torch.device, torch.finfo, torch.iinfo, torch.promote_types, torch.can_cast,
    torch.broadcast_shapes, torch.cuda.is_available, torch.backends.mps.is_available,
)  # fmt: skip


@handles(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def is_compiling(machine: Machine) -> Value:
    return TRUE


@handles(torch.compiler.is_exporting, torch.jit.is_scripting, torch.jit.is_tracing)
def is_exporting(machine: Machine) -> Value:
    return FALSE


@handles(torch_compat.call_compile_region)
def call_compile_region(
    machine: Machine, region: Value, /, *arguments: Value, **keywords: Value
) -> Value:
    """A call of a function that `torch.compiler.nested_compile_region` marks: as in eager, one of
    the function. Kernels that are equal are compiled once in any case.
    """
    return machine.call(region, list(arguments), keywords)


@handles(*torch_compat.TRANSFORM_QUERIES)
def are_transforms_active(machine: Machine) -> Value:
    return boolean(torch_compat.is_transforming())


@handles(*torch_compat.TORCH_FUNCTION_QUERIES)
def has_torch_function(machine: Machine, *arguments: Value) -> Value:
    return FALSE


@handles(types.GetSetDescriptorType.__get__)
def read_descriptor(
    machine: Machine, descriptor: Value, instance: Value, owner: Value | None = None
) -> Any:
    """`Tensor.requires_grad.__get__(tensor)`: how torch names an attribute to function modes."""
    if isinstance(instance, TensorValue):
        return machine.attribute(instance, descriptor.constant().__name__)
    return DECLINED


@handles(torch_compat.MethodInC.__get__)
def bind_method_in_c(
    machine: Machine, method: Value, instance: Value, owner: Value | None = None
) -> Value:
    """Bind a method of a class written in C++."""
    return MethodValue(machine.attribute(method, "__func__"), instance)


@handles(torch_compat.MethodInC.__call__)
def call_method_in_c(
    machine: Machine, method: Value, /, *arguments: Value, **keywords: Value
) -> Value:
    """Call a method of a class written in C++, read through its class."""
    function = machine.attribute(method, "__func__")
    return machine.call(function, list(arguments), keywords)


@handles(torch_compat.CALL_SCRIPTED)
def call_scripted(
    machine: Machine, function: Value, /, *arguments: Value, **keywords: Value
) -> Value:
    """A function of `torch.jit.script` does what the one in Python does that it was made from."""
    source = machine.attribute(function, torch_compat.SCRIPTED_SOURCE)
    return machine.call(source, list(arguments), keywords)


@handles(torch.einsum)
def einsum(machine: Machine, *arguments: Value) -> Any:
    """Products of more than two tensors are made in the order that opt_einsum, where it is there,
    finds best for the sizes seen; since every order gives the result, no size is guarded for it.
    """
    equation, *operands = arguments
    tensors = [operand for operand in operands if isinstance(operand, TensorValue)]
    if len(tensors) < max(len(operands), 3) or not _ORDERED.is_available() or not _ORDERED.enabled:
        return DECLINED
    shapes = [tuple(map(_seen, tensor.fake.shape)) for tensor in tensors]
    vary = any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.fake.shape)
    if not vary or any(None in shape for shape in shapes):
        return DECLINED
    pairs, _ = _ORDERED.get_opt_einsum().contract_path(
        equation.constant(), *shapes, shapes=True, optimize=_ORDERED.strategy
    )
    path = machine.new([position for pair in pairs for position in pair])
    inputs = [equation, machine.new_list(tensors)]
    return machine.call_graph(torch_compat.einsum_along, inputs, {"path": path})


_ORDERED: Any = torch.backends.opt_einsum


def _seen(size: int | torch.SymInt) -> int | None:
    """A size, or what it was when compiling; None for one that depends on data."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def _comparison(function: Any) -> Any:
    """Whether two tensors are equal, or nearly: an answer for Python, which is known for some."""

    def compare(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
        try:
            return machine.call_graph(function, arguments, keywords)
        except Unsupported as refusal:
            if refusal.reason != reasons.FAKE_EXECUTION.name:
                raise
        name = f"torch.{function.__name__}"
        raise machine.unsupported(reasons.TENSORS_COMPARED, function=name)

    return compare


for _function in (torch.equal, torch.allclose):
    handles(_function, getattr(torch.Tensor, _function.__name__))(_comparison(_function))


@handles(torch.Tensor.__setitem__)
def set_item(machine: Machine, tensor: Value, key: Value, value: Value) -> Any:
    """`tensor[:, n] = value` where n varies, and `tensor[mask] = value` where the mask is a single
    truth value, which eager reads: a choice between the value and what is there.
    """
    selected = at_varying_numbers(machine, tensor, key) if isinstance(tensor, TensorValue) else None
    if selected is not None:
        item, rest = selected
        keys = machine.new_tuple(rest) if rest else ConstantValue(...)
        return machine.call_special(item, "__setitem__", [keys, value])
    if not isinstance(key, TensorValue) or key.fake.dim() or key.fake.dtype is not torch.bool:
        return DECLINED
    fitted = _fitted_item(machine, tensor, value)
    if fitted is None:
        return DECLINED
    chosen = machine.call_graph(torch.where, [key, fitted, tensor], {})
    machine.call_graph("copy_", [tensor, chosen], {})
    return None


def _fitted_item(machine: Machine, tensor: Value, value: Value) -> Value | None:
    """`value` as what `tensor[mask] = value` writes: without leading dimensions of one more than
    the tensor has. None for what eager refuses: another type, another size, a number that the
    tensor's type does not hold.
    """
    assert isinstance(tensor, TensorValue)
    dtype = tensor.fake.dtype
    if isinstance(value, ConstantValue) and not isinstance(value, SymbolicValue):
        try:
            torch.scalar_tensor(value.value, dtype=dtype, device="cpu")
        except (RuntimeError, TypeError):
            return None
        return value
    if not isinstance(value, TensorValue):
        return value
    if value.fake.dtype != dtype:
        return None
    while isinstance(value, TensorValue) and value.fake.dim() > tensor.fake.dim():
        if value.fake.shape[0] != 1:
            return None
        value = machine.call_graph("squeeze", [value, ConstantValue(0)], {})
    return value


@handles(torch.is_tensor)
def is_tensor(machine: Machine, value: Value) -> Value:
    return machine.call_object(isinstance, None, [value, ClassValue(torch.Tensor)], {})


@handles(torch_compat.check_tensor_all)
def check_tensor_all(machine: Machine, condition: Value, message: Value = NONE) -> Any:
    """A check that runs with the graph. Where it fails the frame is run as it is written, and says
    what it has to say.
    """
    if not isinstance(condition, TensorValue) or condition.fake.dtype is not torch.bool:
        return DECLINED
    holds = machine.call_graph("all", [condition], {})
    return machine.call_graph(torch_compat.assert_async, [holds], {})


@handles(torch.overrides.is_tensor_like)
def is_tensor_like(machine: Machine, value: Value) -> Value:
    if machine.truth(is_tensor(machine, value)):
        return TRUE
    overrides, _ = machine.class_attribute(value.python_type(), "__torch_function__")
    return boolean(overrides is not MISSING)


@handles(torch.Tensor.is_inference)
def is_inference(machine: Machine, tensor: Value) -> Value:
    """Known of a tensor that exists; its dispatch keys, which a guard compares, say it too."""
    if not isinstance(tensor, TensorValue) or tensor.object is MISSING:
        raise machine.unsupported(reasons.TENSOR_VALUE, operation="tensor.is_inference()")
    assert tensor.fake is not None, "used, and so guarded"
    return boolean(tensor.object.is_inference())


@handles(*torch_compat.MODULE_CALLS)
def call_module(machine: Machine, module: Value, /, *arguments: Value, **keywords: Value) -> Any:
    """`module(…)`: its `forward` where no hook is registered, else all that `nn.Module` does."""
    if not isinstance(module, ModuleValue) or module.has_hooks(machine):
        return DECLINED
    forward = machine.attribute(module, "forward")
    return machine.call(forward, list(arguments), keywords)


@handles(torch_compat.log_api_usage)
def log_nothing(machine: Machine, *arguments: Value) -> None:
    return None


@handles(torch.profiler.record_function.__init__)
def new_profiled_region(
    machine: Machine, region: Value, name: Value, args: Value | None = None
) -> None:
    """A region that a profiler shows: in a graph its operators are no longer apart from others."""
    machine.set_attribute(region, "name", name)


@handles(torch.profiler.record_function.__enter__)
def enter_profiled_region(machine: Machine, region: Value) -> Value:
    return region


@handles(torch.profiler.record_function.__exit__)
def leave_profiled_region(machine: Machine, region: Value, *exception: Value) -> None:
    return None


@handles(torch_compat.assert_true)
def torch_assert(machine: Machine, condition: Value, message: Value) -> Any:
    if isinstance(condition, TensorValue):
        return DECLINED
    if not machine.truth(condition):
        machine.raise_error(AssertionError, message.constant())
    return None


@handles(lazy_property.__get__)
def get_lazy_property(
    machine: Machine, descriptor: Value, instance: Value, owner: Value | None = None
) -> Any:
    """A property that a distribution computes when asked for it; through its class, an object of a
    kind.
    """
    real = descriptor.real()
    if real is MISSING or instance.python_type() is not type(None):
        return DECLINED
    return machine.new(lazy_property.__get__(real, None))


@handles(torch.nn.functional.max_pool1d, torch.max_pool1d)
def max_pool1d(
    machine: Machine,
    input: Value,
    kernel_size: Value,
    stride: Value = NONE,
    padding: Value | None = None,
    dilation: Value | None = None,
    ceil_mode: Value = FALSE,
    return_indices: Value = FALSE,
) -> Any:
    """Pool by the operator that gives places too, which takes symbolic sizes. Without gradients
    eager runs another one on the CPU, whose result is row-major.
    """
    if not isinstance(input, TensorValue):
        return DECLINED
    fake = input.fake
    has_places = machine.truth(return_indices)
    is_differentiated = fake.requires_grad and torch.is_grad_enabled()
    is_row_major = fake.device.type == "cpu" and not has_places and not is_differentiated
    if is_row_major and not fake.dtype.is_floating_point:
        error = refusal(torch.ops.aten.max_pool1d.default, (fake, 1), {})
        if error is not None:
            raise_real(machine, error)
    needs_copy = is_row_major and not fake.is_contiguous()
    if not needs_copy and not torch_compat.has_symbolic_geometry(fake):
        return DECLINED
    options = [stride, padding or ConstantValue(0), dilation or ConstantValue(1), ceil_mode]
    both = machine.call_graph(torch.max_pool1d_with_indices, [input, kernel_size, *options], {})
    if has_places:
        return both
    values = machine.items(both)[0]
    return machine.call_graph("contiguous", [values], {}) if needs_copy else values


@handles(torch.nn.functional.interpolate)
def interpolate(machine: Machine, /, input: Value, *arguments: Value, **keywords: Value) -> Any:
    """Interpolate in the layout that eager gives. Where sizes are symbolic, torch computes rows by
    an index, which keeps the layout of the input; its kernel for rows gives a row-major result.
    Means of areas are of another kernel.
    """
    if not isinstance(input, TensorValue) or not torch_compat.has_symbolic_geometry(input.fake):
        return DECLINED
    if input.fake.dim() != 3 or input.fake.is_contiguous():
        return DECLINED
    mode = keywords.get("mode", arguments[2] if len(arguments) > 2 else None)
    if isinstance(mode, ConstantValue) and mode.value == "area":
        return DECLINED
    function = torch.nn.functional.interpolate
    result = machine.call_graph(function, [input, *arguments], keywords)
    return machine.call_graph("contiguous", [result], {})


def _check_classes(machine: Machine, tensor: TensorValue, count: int) -> None:
    """Raise what `one_hot` does where there are no classes at all."""
    if count == 0:
        assert tensor.fake is not None
        machine.raise_error(
            RuntimeError,
            "Class values must be smaller than num_classes."
            if tensor.fake.numel() > 0
            else "Can not infer total number of classes from empty tensor.",
        )


@handles(torch.nn.functional.one_hot)
def one_hot(machine: Machine, tensor: Value, num_classes: Value = NONE) -> Any:
    """`one_hot` with the check that each class is one of so many, which torch's kernels make: on a
    GPU while they run. The result is row-major; torch's own way on fakes takes over the layout of
    the classes.
    """
    if not isinstance(tensor, TensorValue) or not isinstance(num_classes, ConstantValue):
        return DECLINED
    if tensor.fake.device.type not in ("cpu", "cuda") or tensor.fake.dtype is not torch.int64:
        return DECLINED
    if isinstance(num_classes, SymbolicValue):  # its number stays open
        is_count = num_classes.python_type() is int
    else:
        is_count = isinstance(num_classes.value, int) and num_classes.value >= 0
    if not is_count:
        return DECLINED
    if not isinstance(num_classes, SymbolicValue):
        _check_classes(machine, tensor, num_classes.value)
    not_negative = machine.call_graph(torch.ge, [tensor, ConstantValue(0)], {})
    not_more = machine.call_graph(torch.lt, [tensor, num_classes], {})
    both = machine.call_graph(torch.logical_and, [not_negative, not_more], {})
    holds = machine.call_graph("all", [both], {})
    machine.call_graph(torch_compat.assert_async, [holds], {})
    if isinstance(num_classes, SymbolicValue):
        return DECLINED
    encoded = machine.call_graph(torch.nn.functional.one_hot, [tensor, num_classes], {})
    return machine.call_graph("contiguous", [encoded], {})


def _construct(
    machine: Machine, constructor: Any, arguments: list[Value], keywords: dict[str, Value]
) -> Value:
    """`torch.Tensor(…)`, `torch.FloatTensor(…)` or `tensor.new(…)` as a call in the graph.

    A `torch.Size` tells them sizes where a tuple tells them elements. A graph only knows tuples, so
    sizes are given by name.
    """
    if arguments and arguments[-1].python_type() is torch.Size:
        *arguments, sizes = arguments
        keywords = {"size": sizes, **keywords}
    return machine.call_graph(constructor, arguments, keywords)


@handles(torch.Tensor.new)
def new_like(machine: Machine, /, tensor: Value, *arguments: Value, **keywords: Value) -> Any:
    if not isinstance(tensor, TensorValue):
        return DECLINED
    return _construct(machine, "new", [tensor, *arguments], keywords)


def _new_tensor(cls: type) -> Any:
    return lambda machine, *arguments, **keywords: _construct(
        machine, cls, list(arguments), keywords
    )


for _class in torch_compat.TENSOR_CLASSES:
    handles(_class)(_new_tensor(_class))


@polyfill(torch_compat.group_tensors)
def group_tensors(tensor_lists: Any, with_indices: bool = False) -> Any:
    """Lists of tensors, side by side, split by device and dtype of those in the first list."""
    groups: dict[Any, Any] = {}
    for index, first in enumerate(tensor_lists[0]):
        key = (first.device, first.dtype)
        if key not in groups:
            groups[key] = ([[] for _ in tensor_lists], [])
        parts, indices = groups[key]
        for part, tensors in zip(parts, tensor_lists, strict=True):
            part.append(tensors[index] if tensors else None)
        if with_indices:
            indices.append(index)
    return groups


@handles(torch_compat.check)
def check(machine: Machine, condition: Value, message: Value | None = None) -> Any:
    """A condition on sizes that depend on data is taken to hold; any other is decided."""
    if not isinstance(condition, SymbolicValue) or condition.python_type() is not bool:
        return DECLINED
    number = condition.number
    if not isinstance(number, torch.SymBool):
        return DECLINED
    if number.node.depends_on_data():  # checked when the graph runs
        machine.call_graph(torch_compat.check, [condition], {})
        return None
    return None if number.node.expect_true() else DECLINED


@handles(torch_compat.promise_size)
def check_is_size(machine: Machine, /, number: Value, **keywords: Value) -> Any:
    """Assume that an integer which depends on data is a size, so not negative."""
    if not isinstance(number, SymbolicValue):
        return DECLINED
    return None if (number.number >= 0).node.expect_true() else DECLINED
