"""Handlers of functions of the standard library, written in C or worth a short cut."""

from __future__ import annotations

import collections
import copy
import copyreg
import dataclasses
import functools
import inspect
import json
import operator
import os
import pickle
import re
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED, handles, pure
from fusewright.capture.interpreter.stand_ins import raise_real
from fusewright.capture.values.base import MISSING, Machine, NotConstant, Value, known_arguments
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import ConstantValue, boolean, is_none
from fusewright.capture.values.functions import (
    BuiltinValue,
    FunctionValue,
    MethodValue,
    PartialValue,
)
from fusewright.capture.values.mappings import DictValue, InstanceDictValue
from fusewright.capture.values.objects import ObjectValue, ThreadIdentityValue
from fusewright.capture.values.references import ReferenceValue
from fusewright.capture.values.sequences import DequeValue, ListValue, SequenceValue, TupleValue
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.tensors import TensorValue


@handles(inspect.signature)
def signature(machine: Machine, /, target: Value, **keywords: Value) -> Any:
    """The signature of a callable that exists: asked for real, for the function alone of a bound
    method.
    """
    match target:
        case MethodValue(function=FunctionValue(object=function)) if function is not MISSING:
            return machine.new(inspect.signature(types.MethodType(function, object())))
        case FunctionValue(object=function) if function is not MISSING:
            return machine.new(inspect.signature(function))
        case BuiltinValue() | ClassValue():
            return machine.new(inspect.signature(target.real()))
    raise machine.unsupported(
        reasons.TENSOR_TO_UNKNOWN, function="inspect.signature", argument=target.describe()
    )


pure(
    json.dumps, json.loads, re.compile, re.match, re.fullmatch, re.search, re.sub, re.subn,
    re.split, re.findall, re.finditer, re.escape, os.fspath,
)  # fmt: skip


_PICKLED_AS_EQUAL = (type(None), bool, int, float)
_PICKLED_ONCE = (str, bytes)


@handles(pickle.dumps)
def dumps(machine: Machine, /, value: Value, **keywords: Value) -> Any:
    """The bytes of known numbers and texts in at most one container, as caches of calls make them.
    An object met twice is recognized by its identity, which stand-ins do not have.
    """
    items = [value]
    match value:
        case SequenceValue(cls=cls) if cls in (list, tuple):
            items = value.items(machine)
        case DictValue(cls=cls) if cls is dict:
            items = [part for entry in value.entries(machine) for part in entry]
    try:
        objects = [item.to_python() for item in items]
        named = {name: keyword.to_python() for name, keyword in keywords.items()}
        texts = [item for item in objects if type(item) in _PICKLED_ONCE]
        plain = all(type(item) in (*_PICKLED_AS_EQUAL, *_PICKLED_ONCE) for item in objects)
        if not plain or len(set(texts)) < len(texts):
            return DECLINED
        return ConstantValue(pickle.dumps(value.to_python(), **named))
    except NotConstant:
        return DECLINED


# -- operator -------------------------------------------------------------------------------------

_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor",
    "lshift", "rshift",
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior",
    "ixor",
)  # fmt: skip


def _binary(name: str) -> Any:
    return lambda machine, left, right: machine.binary(name, left, right)


for _name in _BINARY:
    handles(getattr(operator, _name))(_binary(_name))
for _name in ("neg", "pos", "invert", "abs"):
    handles(getattr(operator, _name))(lambda machine, value, name=_name: machine.unary(name, value))
for _name, _symbol in {
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "ge": ">=",
}.items():
    handles(getattr(operator, _name))(
        lambda machine, left, right, symbol=_symbol: machine.compare(symbol, left, right)
    )


_MEANINGS: dict[Any, Callable[..., Any]] = {
    divmod: lambda machine, left, right: machine.binary("divmod", left, right),
    operator.getitem: lambda machine, container, key: machine.get_item(container, key),
    operator.setitem: lambda machine, container, key, value: machine.call_special(
        container, "__setitem__", [key, value]
    ),
    operator.contains: lambda machine, container, item: boolean(machine.contains(container, item)),
    operator.not_: lambda machine, value: boolean(not machine.truth(value)),
    operator.truth: lambda machine, value: boolean(machine.truth(value)),
    operator.is_: lambda machine, left, right: boolean(machine.identical(left, right)),
}
for _function, _handler in _MEANINGS.items():
    handles(_function)(_handler)


@handles(pow)
def power(machine: Machine, left: Value, right: Value, *modulus: Value) -> Any:
    return DECLINED if modulus else machine.binary("pow", left, right)


@handles(operator.index)
def index(machine: Machine, value: Value) -> Any:
    if isinstance(value, ConstantValue):
        return DECLINED
    return machine.call_special(value, "__index__", [])


@handles(weakref.ref)
def make_reference(machine: Machine, referent: Value, callback: Value | None = None) -> Value:
    """A callback is called when the referent is gone, which is not followed for one made here."""
    if callback is None or is_none(callback):
        return ReferenceValue(referent)
    if referent.source is None:
        raise machine.unsupported(reasons.UNKNOWN_CALLABLE, function="weakref.ref")
    return ReferenceValue(referent, callback)


def _compares_references(is_equal: bool) -> Callable[..., Any]:
    def compare(machine: Machine, left: Value, right: Value) -> Any:
        if not (isinstance(left, ReferenceValue) and isinstance(right, ReferenceValue)):
            return DECLINED
        if left.is_new or right.is_new:
            referents = [reference.call(machine, [], {}) for reference in (left, right)]
            return boolean(machine.equal(*referents) == is_equal)
        try:
            are_same = left.key() == right.key()
        except NotImplementedError:
            return DECLINED
        machine.keys.note(left)
        machine.keys.note(right)
        return boolean(are_same == is_equal)

    return compare


handles(weakref.ref.__eq__)(_compares_references(is_equal=True))
handles(weakref.ref.__ne__)(_compares_references(is_equal=False))


# -- functools, dataclasses -----------------------------------------------------------------------


@handles(types.SimpleNamespace.__new__)
def new_namespace(machine: Machine, cls: Value, /, **keywords: Value) -> Value:
    return ObjectValue(cls.constant())


@handles(types.SimpleNamespace.__init__)
def init_namespace(machine: Machine, target: Value, /, **keywords: Value) -> None:
    for name, value in keywords.items():
        machine.set_attribute(target, name, value)


@handles(threading.get_ident)
def thread_identity(machine: Machine) -> Value:
    return ThreadIdentityValue()


@handles(collections.namedtuple)
def make_named_tuple(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
    """A class of named tuples: made once, when compiling, since nothing tells two alike apart."""
    constants, named = known_arguments(machine, arguments, keywords)
    module = machine.frames[-1].namespace.dictionary.get("__name__")
    try:
        cls = collections.namedtuple(*constants, **{"module": module, **named})  # type: ignore[misc]
    except (TypeError, ValueError) as error:
        raise_real(machine, error)
    machine.note_made(cls, None)
    return machine.new(cls)


@handles(functools.partial)
def make_partial(
    machine: Machine, function: Value, /, *arguments: Value, **keywords: Value
) -> Value:
    if isinstance(function, PartialValue):
        keywords = function.all_keywords(machine, keywords)
        arguments = (*function.arguments, *arguments)
        function = function.function
    return PartialValue(function, arguments, machine.new_dict(keywords))


@handles(dataclasses.fields)
def dataclass_fields(machine: Machine, value: Value) -> Any:
    """The fields of a dataclass do not change: ask for real."""
    cls = value.cls if isinstance(value, ClassValue) else value.python_type()
    if not dataclasses.is_dataclass(cls):
        return DECLINED
    machine.class_attribute(cls, "__dataclass_fields__")
    return machine.new(dataclasses.fields(cls))


@handles(dataclasses.is_dataclass)
def is_dataclass(machine: Machine, value: Value) -> Value:
    cls = value.cls if isinstance(value, ClassValue) else value.python_type()
    return ConstantValue(dataclasses.is_dataclass(cls))


# -- named tuples, copy ---------------------------------------------------------------------------

_TUPLE_GETTER = type(collections.namedtuple("_Example", "field").field)  # type: ignore[attr-defined]


@handles(_TUPLE_GETTER.__get__)
def get_named_field(machine: Machine, descriptor: Value, instance: Value, *owner: Value) -> Value:
    position = descriptor.real().__reduce__()[1][0]
    return machine.items(instance)[position]  # type: ignore[no-any-return]


@handles(copy.copy)
def shallow_copy(machine: Machine, value: Value) -> Any:
    return _copied(machine, value, "__copy__", lambda part: part)


@handles(copy.deepcopy)
def deep_copy(machine: Machine, value: Value, memo: Value | None = None) -> Any:
    copies: dict[int, Value] = {}

    def copied(part: Value) -> Value:
        if id(part) not in copies:
            result = _copied(machine, part, "__deepcopy__", copied, copies)
            copies[id(part)] = result
        return copies[id(part)]

    return copied(value)


_COPY_METHODS = (
    "__copy__",
    "__deepcopy__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
)


def _copied(
    machine: Machine,
    value: Value,
    method: str,
    part_of: Callable[[Value], Value],
    copies: dict[int, Value] | None = None,
) -> Value:
    """A copy of an object whose parts are `part_of` the original's. `copies` takes note of it
    before its parts are made.
    """
    if isinstance(value, ConstantValue | ClassValue | FunctionValue | BuiltinValue):
        return value
    own = machine.special(value, method)
    if own is not None:
        return machine.call(own, [] if method == "__copy__" else [machine.new({})])
    cls = value.python_type()
    if isinstance(value, InstanceDictValue):
        view = DictValue(dict)
        for key, item in value.entries(machine):
            view.put(machine, key, part_of(item))
        return view
    plain = all(getattr(cls, name, None) is getattr(object, name, None) for name in _COPY_METHODS)
    builtin = cls.__module__ in ("builtins", "collections") or cls is torch.Size
    if (
        not isinstance(value, ObjectValue)
        or not (plain or builtin)
        or isinstance(value, TensorValue)
    ):
        raise machine.unsupported(
            reasons.TENSOR_TO_UNKNOWN, function="copy.copy", argument=value.describe()
        )

    match value:
        case TupleValue():
            return TupleValue(cls, [part_of(item) for item in value.items(machine)])
        case SetValue():
            return SetValue.of(machine, cls, [part_of(item) for item in value.in_order()])
    result: ObjectValue = _empty_like(value)
    if copies is not None:
        copies[id(value)] = result
    for name, attribute in InstanceDictValue(value).entries(machine) if _has_dict(cls) else ():
        result.store(machine, name.constant(), part_of(attribute))
    for slot in copyreg._slotnames(cls):  # type: ignore[attr-defined]
        part = machine.attribute_or_none(value, slot)
        if part is not None:
            result.store(machine, slot, part_of(part))
    _fill_copy(machine, value, result, part_of)
    return result


def _fill_copy(
    machine: Machine, value: ObjectValue, result: ObjectValue, part_of: Callable[[Value], Value]
) -> None:
    """Give a copy the items of the original, by methods that a subclass may have overridden."""
    if isinstance(value, ListValue) and isinstance(result, ListValue):
        items = [part_of(item) for item in machine.items(value)]
        if value.cls in (list, collections.deque):
            result.replace(machine, items)
        else:
            append = machine.attribute(result, "append")
            for item in items:
                machine.call(append, [item])
    if isinstance(value, DictValue) and isinstance(result, DictValue):
        result.default_factory = value.default_factory
        for entry in machine.items(machine.call(machine.attribute(value, "items"), [])):
            key, item = machine.items(entry)
            machine.call_special(result, "__setitem__", [key, part_of(item)])


def _empty_like(value: ObjectValue) -> ObjectValue:
    match value:
        case DequeValue(cls=cls, maximum=maximum):
            return DequeValue(cls, maximum=maximum)
        case ListValue(cls=cls):
            return ListValue(cls)
        case DictValue(cls=cls):
            return DictValue(cls)
        case _:
            return ObjectValue(value.cls)


def _has_dict(cls: type) -> bool:
    return cls.__dictoffset__ != 0
