"""The values of objects that exist: one row a kind of object, by class."""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.handlers.registry import MEANINGS
from fusewright.capture.interpreter import existing_iterators
from fusewright.capture.interpreter.attributes import find_class_attribute
from fusewright.capture.sources import (
    AttributeSource,
    ConstantSource,
    ItemSource,
    ShownSource,
    Source,
)
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.classes import ClassValue, PythonModuleValue, SuperValue
from fusewright.capture.values.constant import CONSTANT_TYPES, ConstantValue
from fusewright.capture.values.functions import (
    BuiltinValue,
    FunctionValue,
    MethodValue,
    PartialValue,
    guard_function,
)
from fusewright.capture.values.mappings import DictValue, GlobalsValue
from fusewright.capture.values.modules import ModuleValue, keeps_module_getattr
from fusewright.capture.values.numbers import SymbolicValue, is_of_data
from fusewright.capture.values.objects import ExceptionValue, ObjectValue
from fusewright.capture.values.references import ReferenceValue
from fusewright.capture.values.sequences import (
    DequeValue,
    ListValue,
    SliceValue,
    TupleValue,
    sequence_base,
)
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.tensors import ForeignTensorValue, TensorValue
from fusewright.capture.values.views import (
    VIEW_TYPES,
    DictViewValue,
    MappingProxyValue,
    shown_mapping,
    view_kind,
)
from fusewright.symbolic.nodes import SYMBOLIC

Maker = Callable[[Machine, Any, Source], Value]

BUILTIN_TYPES: Final = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    type(functools.lru_cache(lambda: None)),
    type(torch.ops.aten.add),
    type(torch.ops.aten.add.Tensor),
)
"""Classes of callables that are known by identity."""

IDENTITY_TYPES: Final = (type, types.FunctionType, types.ModuleType, *BUILTIN_TYPES)
"""Objects that are guarded by identity wherever they are read."""


def wrap_object(machine: Machine, object: Any, source: Source) -> Value:
    """The value of an existing object that is not a constant, on first sight."""
    cls = type(object)
    for base in cls.__mro__:
        maker = MAKERS.get(base)
        if maker is not None:
            return maker(machine, object, source)
    if isinstance(object, enum.Enum):
        return ConstantValue(object, source)
    return wrap_plain(machine, object, source)


def wrap_plain(machine: Machine, object: Any, source: Source) -> Value:
    """An object of a class that has no kind of its own."""
    if not isinstance(source, ConstantSource):
        machine.guard(GuardKind.TYPE, source, type(object))
    return ObjectValue(type(object), object, source)


def is_plain_tensor(tensor: torch.Tensor) -> bool:
    """Whether a graph can hold a tensor: strided memory of numbers, no subclass but parameters."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested)
        and not (torch_compat.is_zero_tensor(tensor) or torch_compat.is_transformed(tensor))
        and not torch_compat.has_forward_tangent(tensor)
    )


def wrap_tensor(machine: Machine, tensor: torch.Tensor, source: Source) -> Value:
    cls = type(tensor)
    if not is_plain_tensor(tensor):
        machine.guard(GuardKind.TYPE, source, cls)
        return ForeignTensorValue(tensor, source)

    def create(value: TensorValue) -> tuple[Any, Any]:
        return machine.add_input(value, tensor, source)

    return TensorValue(cls, object=tensor, source=source, create=create)


def wrap_module(machine: Machine, module: torch.nn.Module, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(module))
    kind = ModuleValue if keeps_module_getattr(machine, type(module)) else ObjectValue
    return kind(type(module), module, source)


def wrap_exception(machine: Machine, error: Any, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(error))
    return ExceptionValue.existing(machine, error, source)


def wrap_tuple(machine: Machine, object: Any, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(object))
    machine.guard(GuardKind.LENGTH, source, sequence_base(type(object)).__len__(object))
    return TupleValue(type(object), object=object, source=source)


def wrap_list(machine: Machine, object: Any, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(object))
    length = list.__len__(object)
    return ListValue(
        type(object),
        object=object,
        source=source,
        guard_length=lambda: machine.guard(GuardKind.LENGTH, source, length),
    )


def wrap_deque(machine: Machine, object: Any, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(object))
    machine.guard(GuardKind.LENGTH, source, len(object))
    maximum = machine.wrap(object.maxlen, AttributeSource(source, "maxlen")).constant()
    return DequeValue(type(object), maximum=maximum, object=object, source=source)


def wrap_dict(machine: Machine, object: Any, source: Source) -> Value:
    namespace = machine.namespaces.known(object)
    if namespace is not None:
        machine.guard(GuardKind.IDENTITY, source, object)
        return GlobalsValue(namespace)
    machine.guard(GuardKind.TYPE, source, type(object))
    value = DictValue(type(object), object=object, source=source)
    factory = getattr(object, "default_factory", None)
    if factory is not None:
        value.default_factory = machine.wrap(factory, AttributeSource(source, "default_factory"))
    return value


def wrap_set(machine: Machine, object: Any, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(object))
    return SetValue.existing(machine, object, source)


def wrap_function(machine: Machine, function: types.FunctionType, source: Source) -> Value:
    guard_function(machine, function, source)
    namespace = machine.namespaces.of(function.__globals__, AttributeSource(source, "__globals__"))
    return FunctionValue.existing(machine, function, namespace, source)


def wrap_method(machine: Machine, method: types.MethodType, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(method))
    function = machine.wrap(method.__func__, AttributeSource(source, "__func__"))
    instance = machine.wrap(method.__self__, AttributeSource(source, "__self__"))
    return MethodValue(function, instance, source)


def wrap_super(machine: Machine, object: Any, source: Source) -> Value:
    if object.__self__ is None:
        return wrap_plain(machine, object, source)
    machine.guard(GuardKind.TYPE, source, super)
    cls = machine.wrap(object.__thisclass__, AttributeSource(source, "__thisclass__"))
    instance = machine.wrap(object.__self__, AttributeSource(source, "__self__"))
    return SuperValue(cls.constant(), instance, source)


def wrap_builtin(machine: Machine, function: Any, source: Source) -> Value:
    owner = getattr(function, "__self__", None)
    bound = isinstance(function, types.BuiltinFunctionType | types.MethodWrapperType)
    if bound and owner is not None and not isinstance(owner, types.ModuleType):
        raw = _method_in_c(owner, function.__name__)
        if raw is not None:
            machine.guard(GuardKind.TYPE, source, type(function))
            instance = machine.wrap(owner, AttributeSource(source, "__self__"))
            return MethodValue(BuiltinValue(raw), instance, source)
    if not isinstance(source, ConstantSource):
        machine.guard(GuardKind.IDENTITY, source, function)
    return BuiltinValue(function, source)


def _method_in_c(owner: Any, name: str) -> Any:
    """The descriptor written in C that `owner.name` was bound from, if it is one: of a class
    method, where capture knows the descriptor, and not what it is bound to.
    """
    if isinstance(owner, type):
        raw = find_class_attribute(owner, name)
        is_known = isinstance(raw, types.ClassMethodDescriptorType) and raw in MEANINGS
        return raw if is_known else None
    raw = getattr(type(owner), name, None)
    is_in_c = isinstance(raw, types.MethodDescriptorType | types.WrapperDescriptorType)
    return raw if is_in_c else None


def wrap_class(machine: Machine, cls: type, source: Source) -> Value:
    if not isinstance(source, ConstantSource):
        machine.guard(GuardKind.IDENTITY, source, cls)
    return ClassValue(cls, source)


def wrap_python_module(machine: Machine, module: types.ModuleType, source: Source) -> Value:
    if not isinstance(source, ConstantSource):
        machine.guard(GuardKind.IDENTITY, source, module)
    return PythonModuleValue(
        module, machine.namespaces.of(module.__dict__, AttributeSource(source, "__dict__")), source
    )


def wrap_cell(machine: Machine, cell: Any, source: Source) -> Value:
    return machine.cell(cell, source)


def wrap_slice(machine: Machine, object: slice, source: Source) -> Value:
    start, stop, step = (
        machine.wrap(getattr(object, name), AttributeSource(source, name))
        for name in ("start", "stop", "step")
    )
    return SliceValue(start, stop, step, source=source)


def wrap_view(machine: Machine, view: Any, source: Source) -> Value:
    kind = view_kind(view)
    if kind is None:
        return wrap_plain(machine, view, source)
    machine.guard(GuardKind.TYPE, source, type(view))
    mapping = machine.wrap(shown_mapping(view), ShownSource(source))
    assert isinstance(mapping, DictValue | GlobalsValue), "views are of dicts"
    return DictViewValue(mapping, kind, view, source)


def wrap_mapping_proxy(machine: Machine, proxy: Any, source: Source) -> Value:
    """A read-only view of a mapping. That of an object computed while tracing holds what it holds
    now.
    """
    root = source
    while root.base is not None:
        root = root.base
    if isinstance(root, ConstantSource):
        return MappingProxyValue(new_value(machine, shown_mapping(proxy)))
    shown = shown_mapping(proxy)
    machine.classes.show(shown)
    machine.guard(GuardKind.TYPE, source, types.MappingProxyType)
    return MappingProxyValue(machine.wrap(shown, ShownSource(source)), proxy, source)


def wrap_partial(machine: Machine, partial: Any, source: Source) -> Value:
    machine.guard(GuardKind.TYPE, source, type(partial))
    arguments_source = AttributeSource(source, "args")
    machine.guard(GuardKind.LENGTH, arguments_source, len(partial.args))
    return PartialValue(
        machine.wrap(partial.func, AttributeSource(source, "func")),
        [
            machine.wrap(item, ItemSource(arguments_source, i))
            for i, item in enumerate(partial.args)
        ],
        machine.wrap(partial.keywords, AttributeSource(source, "keywords")),
        object=partial,
        source=source,
    )


def wrap_reference(machine: Machine, reference: Any, source: Source) -> Value:
    machine.guard(GuardKind.IDENTITY, source, reference)
    return ReferenceValue(None, object=reference, source=source)


MAKERS: Final[dict[type, Maker]] = {
    torch.Tensor: wrap_tensor,
    torch.nn.Module: wrap_module,
    BaseException: wrap_exception,
    tuple: wrap_tuple,
    list: wrap_list,
    collections.deque: wrap_deque,
    dict: wrap_dict,
    set: wrap_set,
    frozenset: wrap_set,
    slice: wrap_slice,
    types.FunctionType: wrap_function,
    types.MethodType: wrap_method,
    super: wrap_super,
    types.ModuleType: wrap_python_module,
    types.CellType: wrap_cell,
    functools.partial: wrap_partial,
    weakref.ref: wrap_reference,
    types.MappingProxyType: wrap_mapping_proxy,
    **dict.fromkeys(VIEW_TYPES.values(), wrap_view),
    **dict.fromkeys(existing_iterators.TYPES, existing_iterators.wrap_iterator),
    type: wrap_class,
    **dict.fromkeys(BUILTIN_TYPES, wrap_builtin),
}


def _symbolic(number: Any) -> Value:
    """The value of a symbolic number that was computed; a condition is decided."""
    if isinstance(number, torch.SymBool):
        return SymbolicValue(number) if is_of_data(number) else ConstantValue(bool(number))
    integer = number.node.maybe_as_int() if isinstance(number, torch.SymInt) else None
    return SymbolicValue(number) if integer is None else ConstantValue(integer)


def new_value(machine: Machine, object: Any) -> Value:
    """The value of an object computed while tracing, to which there is no other reference:
    containers are taken apart.
    """
    cls = type(object)
    if cls in SYMBOLIC:
        return _symbolic(object)
    if cls in CONSTANT_TYPES or isinstance(object, enum.Enum):
        return ConstantValue(object)
    if isinstance(object, IDENTITY_TYPES) or cls is types.MethodType:
        return machine.wrap(object, ConstantSource(object))
    if cls is slice:
        start, stop, step = (
            new_value(machine, part) for part in (object.start, object.stop, object.step)
        )
        return SliceValue(start, stop, step)
    if isinstance(object, tuple):
        return TupleValue(cls, [new_value(machine, item) for item in object])
    if cls is list:
        return ListValue(cls, [new_value(machine, item) for item in object])
    if issubclass(cls, dict) and (cls is dict or cls.__module__ == "collections"):
        result = DictValue(cls)
        for key, item in object.items():
            result.put(machine, new_value(machine, key), new_value(machine, item))
        return result
    if cls in (set, frozenset):
        return SetValue.of(machine, cls, [new_value(machine, item) for item in object])
    if cls is types.MappingProxyType:
        return MappingProxyValue(new_value(machine, shown_mapping(object)))
    if isinstance(object, torch.Tensor):
        raise machine.unsupported(reasons.INTERNAL_ERROR, error="a tensor that no guard reads")
    return machine.wrap(object, ConstantSource(object))
