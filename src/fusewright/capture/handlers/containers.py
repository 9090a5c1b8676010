"""Handlers of the methods of lists, tuples, deques, dicts, sets and views of dicts.

Most methods of sequences and sets run for real on stand-ins (`interpreter.stand_ins`); those of
dicts use the primitives of `DictValue`, which read and guard only the keys that are asked for.
"""

from __future__ import annotations

import _heapq
import bisect
import collections
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from fusewright.capture.handlers.registry import DECLINED, handles
from fusewright.capture.interpreter.operators import sequence_item
from fusewright.capture.interpreter.stand_ins import raise_as, run_for_real
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.constant import ConstantValue, boolean, is_none
from fusewright.capture.values.mappings import DictValue, InstanceDictValue
from fusewright.capture.values.sequences import (
    DequeValue,
    ListValue,
    SequenceValue,
    TupleValue,
)
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.views import VIEW_TYPES, DictViewValue, MappingProxyValue

KEPT_WHEN_COPIED = (collections.OrderedDict, collections.defaultdict)
"""Subclasses of dict written in C whose copies are of the same class; those of others are dicts."""

# -- what runs for real ---------------------------------------------------------------------------


def _for_real(function: Callable[..., Any]) -> Any:
    def call(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
        return run_for_real(machine, function, arguments, keywords)

    return call


_INHERITED = ("__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class_getitem__")
_READS_THE_OBJECT = ("__getattribute__", "__sizeof__", "__reduce__", "__reduce_ex__")


def methods_in_c(cls: Any) -> list[Any]:
    """The methods that a class written in C has itself, but for those that make or reflect on an
    object.
    """
    return [
        method
        for name, method in vars(cls).items()
        if callable(method) and name not in (*_INHERITED, *_READS_THE_OBJECT)
    ]


for _class in (
    list, tuple, torch.Size, collections.deque, set, frozenset, str, bytes, bytearray,
    *VIEW_TYPES.values(),
):  # fmt: skip
    for _method in methods_in_c(_class):
        handles(_method)(_for_real(_method))
for _function in (
    _heapq.heappush, _heapq.heappop, _heapq.heapify, _heapq.heapreplace, _heapq.heappushpop,
    bisect.bisect_left, bisect.bisect_right, bisect.insort_left, bisect.insort_right,
    sorted, min, max, any, all, dict.__repr__, collections.OrderedDict.__repr__,
    collections.defaultdict.__repr__,
    operator.concat, operator.countOf, operator.indexOf, operator.length_hint,
):  # fmt: skip
    handles(_function)(_for_real(_function))


# -- construction ---------------------------------------------------------------------------------


@handles(list)
def make_list(machine: Machine, iterable: Value | None = None) -> Value:
    return ListValue(list, [] if iterable is None else list(machine.items(iterable)))


@handles(tuple)
def make_tuple(machine: Machine, iterable: Value | None = None) -> Value:
    if isinstance(iterable, TupleValue) and iterable.cls is tuple:
        return iterable
    return TupleValue(tuple, [] if iterable is None else machine.items(iterable))


@handles(torch.Size)
def make_size(machine: Machine, iterable: Value | None = None) -> Value:
    return TupleValue(torch.Size, [] if iterable is None else machine.items(iterable))


@handles(list.__new__)
def new_list(machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value) -> Value:
    return ListValue(cls.constant())


@handles(list.__init__)
def init_list(machine: Machine, target: ListValue, iterable: Value | None = None) -> None:
    target.replace(machine, [] if iterable is None else machine.items(iterable))


@handles(tuple.__new__)
def new_tuple(machine: Machine, cls: Value, iterable: Value | None = None) -> Value:
    return TupleValue(cls.constant(), [] if iterable is None else machine.items(iterable))


@handles(dict)
def make_dict(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
    result = DictValue(dict)
    if len(arguments) > 1:
        raise_as(machine, dict, *arguments)
    update(machine, result, *arguments, **keywords)
    return result


@handles(collections.defaultdict.__init__)
def init_default_dict(
    machine: Machine,
    target: DictValue,
    factory: Value | None = None,
    /,
    *arguments: Value,
    **keywords: Value,
) -> None:
    target.default_factory = None if factory is None or is_none(factory) else factory
    if target.default_factory and machine.special(target.default_factory, "__call__") is None:
        machine.raise_error(TypeError, "first argument must be callable or None")
    update(machine, target, *arguments, **keywords)


@handles(dict.__new__, collections.OrderedDict.__new__, collections.defaultdict.__new__)
def new_dict(machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value) -> Value:
    return DictValue(cls.constant())


for _class in (set, frozenset, collections.deque):
    handles(_class)(_for_real(_class))


@handles(set.__new__, frozenset.__new__)
def new_set(machine: Machine, cls: Value, *arguments: Value) -> Value:
    kind = cls.constant()
    members = machine.items(arguments[0]) if arguments and issubclass(kind, frozenset) else []
    return SetValue.of(machine, kind, members)


@handles(set.__init__)
def init_set(machine: Machine, target: SetValue, iterable: Value | None = None) -> None:
    target.replace(machine, [] if iterable is None else machine.items(iterable))


@handles(collections.deque.__new__)
def new_deque(machine: Machine, cls: Value, /, *arguments: Value, **keywords: Value) -> Value:
    return DequeValue(cls.constant())


@handles(collections.deque.__init__)
def init_deque(
    machine: Machine,
    target: DequeValue,
    iterable: Value | None = None,
    maxlen: Value | None = None,
) -> None:
    target.maximum = None if maxlen is None else maxlen.constant()
    run_for_real(machine, collections.deque.clear, [target], {})
    if iterable is not None:
        run_for_real(machine, collections.deque.extend, [target, iterable], {})


# -- sequences ------------------------------------------------------------------------------------


@handles(list.__len__, tuple.__len__, collections.deque.__len__)
def sequence_length(machine: Machine, value: Value) -> Any:
    return ConstantValue(value.size) if isinstance(value, SequenceValue) else DECLINED


@handles(list.__getitem__, tuple.__getitem__)
def get_sequence_item(machine: Machine, value: Value, key: Value) -> Any:
    return sequence_item(machine, value, key) if isinstance(value, SequenceValue) else DECLINED


@handles(list.append)
def append(machine: Machine, target: ListValue, item: Value) -> None:
    target.append(machine, item)


@handles(list.extend)
def extend(machine: Machine, target: ListValue, more: Value) -> None:
    if isinstance(more, SequenceValue) and more.cls in (list, tuple):
        for item in list(more.items(machine)):
            target.append(machine, item)
    else:
        run_for_real(machine, list.extend, [target, more], {})


@handles(list.__iadd__)
def add_in_place(machine: Machine, target: ListValue, more: Value) -> Value:
    extend(machine, target, more)
    return target


@handles(collections.deque.copy, collections.deque.__copy__)
def copy_deque(machine: Machine, value: DequeValue) -> Value:
    return DequeValue(value.cls, value.items(machine), maximum=value.maximum)


# -- mappings -------------------------------------------------------------------------------------


def _missing(machine: Machine, mapping: Any, key: Value) -> Value:
    """The item that `d[key]` gives for an absent key, or its KeyError."""
    if isinstance(mapping, DictValue):
        if mapping.default_factory is not None:
            default = machine.call(mapping.default_factory, [])
            mapping.put(machine, key, default)
            return default
        missing = machine.special(mapping, "__missing__")
        if missing is not None and not issubclass(mapping.cls, collections.defaultdict):
            return machine.call(missing, [key])
    machine.raise_error(KeyError, key)


@handles(dict.__getitem__)
def get_item(machine: Machine, mapping: Any, key: Value) -> Value:
    item = mapping.lookup(machine, key)
    return _missing(machine, mapping, key) if item is None else item


@handles(dict.get)
def get(machine: Machine, mapping: Any, key: Value, default: Value | None = None) -> Value | None:
    item = mapping.lookup(machine, key)
    return default if item is None else item


@handles(dict.__contains__)
def contains(machine: Machine, mapping: Any, key: Value) -> Value:
    return boolean(mapping.contains(machine, key))


@handles(dict.__setitem__, collections.OrderedDict.__setitem__)
def set_item(machine: Machine, mapping: Any, key: Value, value: Value) -> None:
    mapping.put(machine, key, value)


@handles(dict.__delitem__, collections.OrderedDict.__delitem__)
def delete_item(machine: Machine, mapping: Any, key: Value) -> None:
    if mapping.remove(machine, key) is None:
        machine.raise_error(KeyError, key)


@handles(dict.pop, collections.OrderedDict.pop)
def pop_key(machine: Machine, mapping: Any, key: Value, *default: Value) -> Value:
    item: Value | None = mapping.remove(machine, key)
    if item is not None:
        return item
    if default:
        return default[0]
    machine.raise_error(KeyError, key)


@handles(dict.update, dict.__init__)
def update(
    machine: Machine, mapping: Any, source: Value | None = None, /, **keywords: Value
) -> None:
    if source is not None:
        if not _has_keys(machine, source):
            source = run_for_real(machine, dict, [source], {})
        for key, value in machine.mapping_entries(source):
            mapping.put(machine, key, value)
    for name, value in keywords.items():
        mapping.put(machine, ConstantValue(name), value)


@handles(collections.OrderedDict.update, collections.OrderedDict.__init__)
def update_ordered(
    machine: Machine, mapping: Any, source: Value | None = None, /, **keywords: Value
) -> None:
    """Update by a subclass's own `__setitem__`, where `dict.update` writes past it."""
    parts = [] if source is None else [source]
    if source is not None and not _has_keys(machine, source):
        parts = [ListValue(list, [pair]) for pair in machine.items(source)]
    added = DictValue(dict)
    update(machine, added, None, **keywords)
    for part in [*parts, added]:
        entries = DictValue(dict)
        update(machine, entries, part)
        for entry in entries.entries(machine):
            machine.call_special(mapping, "__setitem__", list(entry))


def _has_keys(machine: Machine, value: Value) -> bool:
    if isinstance(value, DictValue | InstanceDictValue):
        return True
    return machine.attribute_or_none(value, "keys") is not None


@handles(dict.clear, collections.OrderedDict.clear)
def clear_mapping(machine: Machine, mapping: Any) -> None:
    mapping.clear(machine)


@handles(
    dict.copy,
    collections.OrderedDict.copy,
    collections.defaultdict.copy,
    collections.defaultdict.__copy__,
)
def copy_mapping(machine: Machine, mapping: Any) -> Value:
    cls = mapping.python_type()
    result = DictValue(cls if issubclass(cls, KEPT_WHEN_COPIED) else dict)
    if isinstance(mapping, DictValue):
        result.default_factory = mapping.default_factory
    for key, value in mapping.entries(machine):
        result.put(machine, key, value)
    return result


@handles(dict.keys, collections.OrderedDict.keys)
def keys(machine: Machine, mapping: Any) -> Value:
    return DictViewValue(mapping, "keys")


@handles(dict.values, collections.OrderedDict.values)
def values(machine: Machine, mapping: Any) -> Value:
    return DictViewValue(mapping, "values")


@handles(dict.items, collections.OrderedDict.items)
def items(machine: Machine, mapping: Any) -> Value:
    return DictViewValue(mapping, "items")


@handles(dict.__len__)
def mapping_length(machine: Machine, mapping: Any) -> Value:
    return ConstantValue(mapping.size(machine))


@handles(collections.OrderedDict.move_to_end)
def move_to_end(
    machine: Machine, mapping: DictValue, key: Value, last: Value | None = None
) -> None:
    if not mapping.contains(machine, key):
        machine.raise_error(KeyError, key)
    mapping.move_to_end(machine, key, last is None or machine.truth(last))


def _view_methods(name: str) -> list[Any]:
    return [getattr(view, name) for view in VIEW_TYPES.values() if hasattr(view, name)]


@handles(*_view_methods("__len__"))
def view_length(machine: Machine, view: Value) -> Any:
    if not isinstance(view, DictViewValue):
        return DECLINED  # that of an ordered dict as of a plain one
    return ConstantValue(view.mapping.size(machine))


@handles(type({}.keys()).__contains__)
def key_view_contains(machine: Machine, view: Value, item: Value) -> Any:
    if not isinstance(view, DictViewValue):
        return DECLINED
    return boolean(view.mapping.contains(machine, item))


@handles(types.MappingProxyType)
def make_proxy(machine: Machine, mapping: Value) -> Any:
    return MappingProxyValue(mapping) if isinstance(mapping, DictValue) else DECLINED


def _of_shown(name: str) -> Any:
    """A method of mapping proxies that asks the mapping for the same."""

    def call(machine: Machine, proxy: Value, /, *arguments: Value, **keywords: Value) -> Any:
        if not isinstance(proxy, MappingProxyValue):
            return DECLINED
        if name.startswith("__"):
            return machine.call_special(proxy.mapping, name, list(arguments), keywords)
        method = machine.attribute(proxy.mapping, name)
        return machine.call(method, list(arguments), keywords)

    return call


for _name in (
    *("__getitem__", "__contains__", "__iter__", "__len__", "__reversed__"),
    *("get", "keys", "values", "items", "copy"),
):
    handles(vars(types.MappingProxyType)[_name])(_of_shown(_name))


def _compares_shown(symbol: str) -> Any:
    def compare(machine: Machine, proxy: Value, other: Value) -> Any:
        if not isinstance(proxy, MappingProxyValue):
            return DECLINED
        return machine.compare(symbol, proxy.mapping, other)

    return compare


for _name, _symbol in (("__eq__", "=="), ("__ne__", "!=")):
    handles(vars(types.MappingProxyType)[_name])(_compares_shown(_symbol))


# -- sets -----------------------------------------------------------------------------------------


@handles(set.__contains__, frozenset.__contains__)
def set_contains(machine: Machine, value: Value, member: Value) -> Any:
    if not isinstance(value, SetValue):
        return run_for_real(machine, frozenset.__contains__, [value, member], {})
    return boolean(machine.hash_key(member) in value.members)
