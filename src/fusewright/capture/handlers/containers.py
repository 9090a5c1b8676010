"""What the methods of lists, tuples, dicts, sets, their views and iterators mean."""

from __future__ import annotations

import collections
import operator
from typing import Any

import torch

from fusewright.capture.handlers.registry import DECLINED, handles
from fusewright.capture.interpreter.operators import sequence_item
from fusewright.capture.values.base import Interpreter, Value
from fusewright.capture.values.constant import ConstantValue, boolean
from fusewright.capture.values.mappings import DictValue, DictViewValue, InstanceDictValue
from fusewright.capture.values.sequences import ListValue, SequenceValue, TupleValue
from fusewright.capture.values.sets import SetValue

NOT_IMPLEMENTED = ConstantValue(NotImplemented)

# -- construction ---------------------------------------------------------------------------------


@handles(list)
def make_list(interpreter: Interpreter, iterable: Value | None = None) -> Value:
    return ListValue(list, [] if iterable is None else list(interpreter.items(iterable)))


@handles(tuple)
def make_tuple(interpreter: Interpreter, iterable: Value | None = None) -> Value:
    return TupleValue(tuple, [] if iterable is None else interpreter.items(iterable))


@handles(torch.Size)
def make_size(interpreter: Interpreter, iterable: Value | None = None) -> Value:
    return TupleValue(torch.Size, [] if iterable is None else interpreter.items(iterable))


@handles(list.__new__)
def new_list(interpreter: Interpreter, cls: Value, *arguments: Value, **keywords: Value) -> Value:
    return ListValue(cls.constant())


@handles(list.__init__)
def init_list(interpreter: Interpreter, target: ListValue, iterable: Value | None = None) -> None:
    target.replace(interpreter, [] if iterable is None else interpreter.items(iterable))


@handles(tuple.__new__)
def new_tuple(interpreter: Interpreter, cls: Value, iterable: Value | None = None) -> Value:
    return TupleValue(cls.constant(), [] if iterable is None else interpreter.items(iterable))


@handles(dict)
def make_dict(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> Value:
    result = DictValue(dict)
    update(interpreter, result, *arguments, **keywords)
    return result


@handles(collections.OrderedDict)
def make_ordered_dict(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> Value:
    result = DictValue(collections.OrderedDict)
    update(interpreter, result, *arguments, **keywords)
    return result


@handles(collections.defaultdict)
def make_default_dict(interpreter: Interpreter, *arguments: Value, **keywords: Value) -> Value:
    result = DictValue(collections.defaultdict)
    init_default_dict(interpreter, result, *arguments, **keywords)
    return result


@handles(collections.defaultdict.__init__)
def init_default_dict(
    interpreter: Interpreter,
    target: DictValue,
    factory: Value | None = None,
    *arguments: Value,
    **keywords: Value,
) -> None:
    is_none = factory is None or (isinstance(factory, ConstantValue) and factory.value is None)
    target.default_factory = None if is_none else factory
    update(interpreter, target, *arguments, **keywords)


@handles(dict.__new__, collections.OrderedDict.__new__, collections.defaultdict.__new__)
def new_dict(interpreter: Interpreter, cls: Value, *arguments: Value, **keywords: Value) -> Value:
    return DictValue(cls.constant())


@handles(set)
def make_set(interpreter: Interpreter, iterable: Value | None = None) -> Value:
    return _set_of(interpreter, set, [] if iterable is None else interpreter.items(iterable))


@handles(frozenset)
def make_frozenset(interpreter: Interpreter, iterable: Value | None = None) -> Value:
    return _set_of(interpreter, frozenset, [] if iterable is None else interpreter.items(iterable))


@handles(set.__new__, frozenset.__new__)
def new_set(interpreter: Interpreter, cls: Value, *arguments: Value) -> Value:
    kind = cls.constant()
    members = interpreter.items(arguments[0]) if arguments and issubclass(kind, frozenset) else []
    return _set_of(interpreter, kind, members)


@handles(set.__init__)
def init_set(interpreter: Interpreter, target: SetValue, iterable: Value | None = None) -> None:
    target.replace(interpreter, [] if iterable is None else interpreter.items(iterable))


def _set_of(interpreter: Interpreter, cls: type, members: list[Value]) -> SetValue:
    result = SetValue(cls)
    for member in members:
        result.add(interpreter, member)
    return result


# -- sequences ------------------------------------------------------------------------------------


@handles(list.__len__, tuple.__len__)
def sequence_length(interpreter: Interpreter, value: Value) -> Any:
    return ConstantValue(value.size) if isinstance(value, SequenceValue) else DECLINED


@handles(list.__getitem__, tuple.__getitem__)
def get_sequence_item(interpreter: Interpreter, value: Value, key: Value) -> Any:
    return sequence_item(interpreter, value, key) if isinstance(value, SequenceValue) else DECLINED


@handles(list.__contains__, tuple.__contains__)
def sequence_contains(interpreter: Interpreter, value: Value, item: Value) -> Any:
    if not isinstance(value, SequenceValue):
        return DECLINED
    return boolean(
        any(interpreter.equal(candidate, item) for candidate in value.items(interpreter))
    )


@handles(list.__add__, tuple.__add__)
def concatenate(interpreter: Interpreter, left: Value, right: Value) -> Any:
    if isinstance(left, ListValue) and isinstance(right, ListValue):
        return ListValue(list, left.items(interpreter) + right.items(interpreter))
    if isinstance(left, TupleValue) and isinstance(right, TupleValue):
        return TupleValue(tuple, left.items(interpreter) + right.items(interpreter))
    return NOT_IMPLEMENTED


@handles(list.__mul__, tuple.__mul__, list.__rmul__, tuple.__rmul__)
def repeat(interpreter: Interpreter, value: Value, count: Value) -> Any:
    if not isinstance(value, SequenceValue) or not isinstance(count, ConstantValue):
        return NOT_IMPLEMENTED
    if not isinstance(count.value, int):
        return NOT_IMPLEMENTED
    kind = ListValue if isinstance(value, ListValue) else TupleValue
    return kind(list if kind is ListValue else tuple, value.items(interpreter) * count.value)


@handles(list.__eq__, tuple.__eq__)
def sequence_equal(interpreter: Interpreter, left: Value, right: Value) -> Any:
    if not isinstance(left, SequenceValue) or not isinstance(right, SequenceValue):
        return NOT_IMPLEMENTED
    if isinstance(left, ListValue) != isinstance(right, ListValue):
        return NOT_IMPLEMENTED
    if left.size != right.size:
        return boolean(False)
    pairs = zip(left.items(interpreter), right.items(interpreter), strict=True)
    return boolean(all(interpreter.equal(one, other) for one, other in pairs))


def _order(symbol: str, shorter_first: bool) -> Any:
    def compare(interpreter: Interpreter, left: Value, right: Value) -> Any:
        if not isinstance(left, SequenceValue) or not isinstance(right, SequenceValue):
            return NOT_IMPLEMENTED
        for one, other in zip(left.items(interpreter), right.items(interpreter), strict=False):
            if not interpreter.equal(one, other):
                return interpreter.compare(symbol, one, other)
        lengths = ConstantValue(left.size), ConstantValue(right.size)
        return interpreter.compare(symbol, *lengths)

    return compare


for _symbol, _name in (("<", "__lt__"), ("<=", "__le__"), (">", "__gt__"), (">=", "__ge__")):
    handles(getattr(list, _name), getattr(tuple, _name))(_order(_symbol, True))


@handles(list.index, tuple.index)
def index_of(interpreter: Interpreter, value: Value, item: Value, *bounds: Value) -> Any:
    if not isinstance(value, SequenceValue) or bounds:
        return DECLINED
    for position, candidate in enumerate(value.items(interpreter)):
        if interpreter.equal(candidate, item):
            return ConstantValue(position)
    interpreter.raise_error(ValueError, "the item is not in the sequence")


@handles(list.count, tuple.count)
def count_of(interpreter: Interpreter, value: Value, item: Value) -> Any:
    if not isinstance(value, SequenceValue):
        return DECLINED
    return ConstantValue(sum(interpreter.equal(one, item) for one in value.items(interpreter)))


@handles(list.append)
def append(interpreter: Interpreter, target: ListValue, item: Value) -> None:
    target.append(interpreter, item)


@handles(list.extend)
def extend(interpreter: Interpreter, target: ListValue, iterable: Value) -> None:
    added = list(interpreter.items(iterable))
    target.replace(interpreter, [*target.items(interpreter), *added])


@handles(list.__iadd__)
def extend_in_place(interpreter: Interpreter, target: ListValue, iterable: Value) -> Value:
    extend(interpreter, target, iterable)
    return target


@handles(list.insert)
def insert(interpreter: Interpreter, target: ListValue, index: Value, item: Value) -> None:
    items = list(target.items(interpreter))
    items.insert(index.constant(), item)
    target.replace(interpreter, items)


@handles(list.pop)
def pop(interpreter: Interpreter, target: ListValue, index: Value | None = None) -> Value:
    items = list(target.items(interpreter))
    try:
        found = items.pop(-1 if index is None else index.constant())
    except IndexError as error:
        interpreter.raise_error(IndexError, *error.args)
    target.replace(interpreter, items)
    return found


@handles(list.remove)
def remove(interpreter: Interpreter, target: ListValue, item: Value) -> None:
    position = index_of(interpreter, target, item).constant()
    items = list(target.items(interpreter))
    del items[position]
    target.replace(interpreter, items)


@handles(list.clear)
def clear(interpreter: Interpreter, target: ListValue) -> None:
    target.replace(interpreter, [])


@handles(list.reverse)
def reverse(interpreter: Interpreter, target: ListValue) -> None:
    target.replace(interpreter, target.items(interpreter)[::-1])


@handles(list.copy)
def copy_list(interpreter: Interpreter, value: ListValue) -> Value:
    return ListValue(list, value.items(interpreter))


@handles(list.__setitem__)
def set_list_item(interpreter: Interpreter, target: ListValue, key: Value, item: Value) -> None:
    items = list(target.items(interpreter))
    index = key.constant()
    try:
        if isinstance(index, slice):
            items[index] = interpreter.items(item)
        else:
            items[operator.index(index)] = item
    except (IndexError, TypeError, ValueError) as error:
        interpreter.raise_error(type(error), *error.args)
    target.replace(interpreter, items)


@handles(list.__delitem__)
def delete_list_item(interpreter: Interpreter, target: ListValue, key: Value) -> None:
    items = list(target.items(interpreter))
    try:
        del items[key.constant()]
    except IndexError as error:
        interpreter.raise_error(IndexError, *error.args)
    target.replace(interpreter, items)


def _gives_size(handler: Any) -> Any:
    """A method of tuples that gives a torch.Size when called on one."""

    def method(interpreter: Interpreter, *arguments: Value) -> Any:
        result = handler(interpreter, *arguments)
        if not isinstance(result, TupleValue):
            return result
        return TupleValue(torch.Size, result.items(interpreter))

    return method


_SIZE_METHODS = {
    "__getitem__": get_sequence_item,
    "__add__": _gives_size(concatenate),
    "__radd__": _gives_size(lambda interpreter, right, left: concatenate(interpreter, left, right)),
    "__mul__": _gives_size(repeat),
    "__rmul__": _gives_size(repeat),
}
for _name, _handler in _SIZE_METHODS.items():
    if _name in vars(torch.Size):
        handles(vars(torch.Size)[_name])(_handler)


@handles(torch.Size.numel)
def size_numel(interpreter: Interpreter, value: TupleValue) -> Value:
    return ConstantValue(value.constant().numel())


# -- mappings -------------------------------------------------------------------------------------


def _missing(interpreter: Interpreter, mapping: Any, key: Value) -> Value:
    """What `d[key]` does for an absent key."""
    if isinstance(mapping, DictValue):
        if mapping.default_factory is not None:
            made = interpreter.call(mapping.default_factory, [])
            mapping.put(interpreter, key, made)
            return made
        missing = interpreter.special(mapping, "__missing__")
        if missing is not None and not issubclass(mapping.cls, collections.defaultdict):
            return interpreter.call(missing, [key])
    raised = key.constant() if isinstance(key, ConstantValue) else key.describe()
    interpreter.raise_error(KeyError, raised)


@handles(dict.__getitem__)
def get_item(interpreter: Interpreter, mapping: Any, key: Value) -> Value:
    found = mapping.lookup(interpreter, key)
    return _missing(interpreter, mapping, key) if found is None else found


@handles(dict.get)
def get(
    interpreter: Interpreter, mapping: Any, key: Value, default: Value | None = None
) -> Value | None:
    found = mapping.lookup(interpreter, key)
    return default if found is None else found


@handles(dict.__contains__)
def contains(interpreter: Interpreter, mapping: Any, key: Value) -> Value:
    return boolean(mapping.contains(interpreter, key))


@handles(dict.__setitem__, collections.OrderedDict.__setitem__)
def set_item(interpreter: Interpreter, mapping: Any, key: Value, value: Value) -> None:
    mapping.put(interpreter, key, value)


@handles(dict.__delitem__, collections.OrderedDict.__delitem__)
def delete_item(interpreter: Interpreter, mapping: Any, key: Value) -> None:
    if mapping.remove(interpreter, key) is None:
        interpreter.raise_error(KeyError, key.constant())


@handles(dict.pop, collections.OrderedDict.pop)
def pop_key(interpreter: Interpreter, mapping: Any, key: Value, *default: Value) -> Value:
    found = mapping.remove(interpreter, key)
    if found is not None:
        return found
    if default:
        return default[0]
    interpreter.raise_error(KeyError, key.constant())


@handles(dict.popitem, collections.OrderedDict.popitem)
def pop_item(interpreter: Interpreter, mapping: Any, last: Value | None = None) -> Value:
    entries = mapping.entries(interpreter)
    if not entries:
        interpreter.raise_error(KeyError, "popitem(): dictionary is empty")
    from_end = last is None or interpreter.truth(last)
    key, value = entries[-1 if from_end else 0]
    mapping.remove(interpreter, key)
    return interpreter.new_tuple([key, value])


@handles(dict.setdefault, collections.OrderedDict.setdefault)
def set_default(
    interpreter: Interpreter, mapping: Any, key: Value, default: Value | None = None
) -> Value:
    found = mapping.lookup(interpreter, key)
    if found is None:
        found = ConstantValue(None) if default is None else default
        mapping.put(interpreter, key, found)
    return found


@handles(
    dict.update, dict.__init__, collections.OrderedDict.update, collections.OrderedDict.__init__
)
def update(interpreter: Interpreter, mapping: Any, *sources: Value, **keywords: Value) -> None:
    for source in sources:
        if isinstance(source, DictValue | InstanceDictValue) or _has_keys(interpreter, source):
            entries = interpreter.mapping_entries(source)
        else:
            entries = [_pair(interpreter, item) for item in interpreter.items(source)]
        for key, value in entries:
            mapping.put(interpreter, key, value)
    for name, value in keywords.items():
        mapping.put(interpreter, ConstantValue(name), value)


def _pair(interpreter: Interpreter, item: Value) -> tuple[Value, Value]:
    """A key and its value, from one item of what a dict is made of."""
    parts = interpreter.items(item)
    if len(parts) != 2:
        interpreter.raise_error(
            ValueError, f"dictionary update sequence element has length {len(parts)}; 2 is required"
        )
    return parts[0], parts[1]


def _has_keys(interpreter: Interpreter, value: Value) -> bool:
    return interpreter.attribute_or_none(value, "keys") is not None


@handles(dict.clear, collections.OrderedDict.clear)
def clear_mapping(interpreter: Interpreter, mapping: Any) -> None:
    mapping.clear(interpreter)


@handles(dict.copy, collections.OrderedDict.copy)
def copy_mapping(interpreter: Interpreter, mapping: Any) -> Value:
    result = DictValue(mapping.python_type())
    for key, value in mapping.entries(interpreter):
        result.put(interpreter, key, value)
    return result


@handles(vars(dict)["fromkeys"])
def from_keys(
    interpreter: Interpreter, cls: Value, keys: Value, value: Value | None = None
) -> Value:
    result = DictValue(cls.constant())
    for key in interpreter.items(keys):
        result.put(interpreter, key, ConstantValue(None) if value is None else value)
    return result


@handles(dict.keys, collections.OrderedDict.keys)
def keys(interpreter: Interpreter, mapping: Any) -> Value:
    return DictViewValue(mapping, "keys")


@handles(dict.values, collections.OrderedDict.values)
def values(interpreter: Interpreter, mapping: Any) -> Value:
    return DictViewValue(mapping, "values")


@handles(dict.items, collections.OrderedDict.items)
def items(interpreter: Interpreter, mapping: Any) -> Value:
    return DictViewValue(mapping, "items")


@handles(dict.__len__)
def mapping_length(interpreter: Interpreter, mapping: Any) -> Value:
    return ConstantValue(mapping.size(interpreter))


@handles(dict.__or__, dict.__ror__)
def merge(interpreter: Interpreter, left: Any, right: Any) -> Any:
    if not isinstance(left, DictValue) or not isinstance(right, DictValue):
        return NOT_IMPLEMENTED
    result = copy_mapping(interpreter, left)
    update(interpreter, result, right)
    return result


@handles(dict.__ior__, collections.OrderedDict.__ior__)
def merge_in_place(interpreter: Interpreter, mapping: Any, other: Value) -> Value:
    update(interpreter, mapping, other)
    return mapping  # type: ignore[no-any-return]


@handles(dict.__eq__, collections.OrderedDict.__eq__)
def mapping_equal(interpreter: Interpreter, left: Any, right: Any) -> Any:
    kinds = (DictValue, InstanceDictValue)
    if not isinstance(left, kinds) or not isinstance(right, kinds):
        return NOT_IMPLEMENTED
    if left.size(interpreter) != right.size(interpreter):
        return boolean(False)
    for key, value in left.entries(interpreter):
        other = right.lookup(interpreter, key)
        if other is None or not interpreter.equal(value, other):
            return boolean(False)
    return boolean(True)


@handles(collections.OrderedDict.move_to_end)
def move_to_end(
    interpreter: Interpreter, mapping: DictValue, key: Value, last: Value | None = None
) -> None:
    if not mapping.contains(interpreter, key):
        interpreter.raise_error(KeyError, key.constant())
    mapping.move_to_end(interpreter, key, last is None or interpreter.truth(last))


def _view_methods(name: str) -> list[Any]:
    views = [
        *DictViewValue.TYPES.values(),
        *(type(getattr(collections.OrderedDict(), kind)()) for kind in DictViewValue.TYPES),
    ]
    return [getattr(view, name) for view in views if hasattr(view, name)]


@handles(*_view_methods("__len__"))
def view_length(interpreter: Interpreter, view: DictViewValue) -> Value:
    return ConstantValue(view.mapping.size(interpreter))


@handles(*_view_methods("__contains__"))
def view_contains(interpreter: Interpreter, view: DictViewValue, item: Value) -> Value:
    if view.kind == "keys":
        return boolean(view.mapping.contains(interpreter, item))
    return boolean(any(interpreter.equal(one, item) for one in view.items(interpreter)))


# -- sets -----------------------------------------------------------------------------------------


@handles(set.add)
def add(interpreter: Interpreter, target: SetValue, member: Value) -> None:
    target.add(interpreter, member)


@handles(set.discard)
def discard(interpreter: Interpreter, target: SetValue, member: Value) -> None:
    target.discard(interpreter, member)


@handles(set.remove)
def remove_member(interpreter: Interpreter, target: SetValue, member: Value) -> None:
    if not target.discard(interpreter, member):
        interpreter.raise_error(KeyError, member.constant())


@handles(set.pop)
def pop_member(interpreter: Interpreter, target: SetValue) -> Any:
    return DECLINED


@handles(set.clear)
def clear_set(interpreter: Interpreter, target: SetValue) -> None:
    target.replace(interpreter, [])


@handles(set.update)
def update_set(interpreter: Interpreter, target: SetValue, *iterables: Value) -> None:
    for iterable in iterables:
        for member in interpreter.items(iterable):
            target.add(interpreter, member)


@handles(set.__ior__)
def update_set_in_place(interpreter: Interpreter, target: SetValue, other: Value) -> Value:
    update_set(interpreter, target, other)
    return target


@handles(set.copy, frozenset.copy)
def copy_set(interpreter: Interpreter, value: SetValue) -> Value:
    return _set_of(interpreter, value.cls, list(value.members.values()))


@handles(set.__len__, frozenset.__len__)
def set_length(interpreter: Interpreter, value: SetValue) -> Value:
    return ConstantValue(len(value.members))


@handles(set.__contains__, frozenset.__contains__)
def set_contains(interpreter: Interpreter, value: SetValue, member: Value) -> Value:
    return boolean(interpreter.hash_key(member) in value.members)


def _combine(keep: Any) -> Any:
    """A set operation: `keep` picks members given the keys of both sides."""

    def combine(interpreter: Interpreter, left: Value, *others: Value) -> Any:
        assert isinstance(left, SetValue)
        members = dict(left.members)
        for other in others:
            if isinstance(other, SetValue):
                right = other.members
            else:
                right = {interpreter.hash_key(item): item for item in interpreter.items(other)}
            members = keep(members, right)
        return _set_of(interpreter, left.cls, list(members.values()))

    return combine


_SET_OPERATIONS = {
    ("union", "__or__"): lambda left, right: {**left, **right},
    ("intersection", "__and__"): lambda left, right: {k: v for k, v in left.items() if k in right},
    ("difference", "__sub__"): lambda left, right: {
        k: v for k, v in left.items() if k not in right
    },
    ("symmetric_difference", "__xor__"): lambda left, right: {
        k: v for k, v in {**left, **right}.items() if (k in left) != (k in right)
    },
}
for _names, _keep in _SET_OPERATIONS.items():
    for _name in _names:
        handles(getattr(set, _name), getattr(frozenset, _name))(_combine(_keep))


@handles(set.__eq__, frozenset.__eq__)
def set_equal(interpreter: Interpreter, left: SetValue, right: Value) -> Any:
    if not isinstance(right, SetValue):
        return NOT_IMPLEMENTED
    return boolean(left.members.keys() == right.members.keys())


@handles(set.issubset, set.__le__, frozenset.issubset, frozenset.__le__)
def is_subset(interpreter: Interpreter, left: SetValue, right: Value) -> Value:
    keys = {interpreter.hash_key(item) for item in interpreter.items(right)}
    return boolean(left.members.keys() <= keys)


@handles(set.issuperset, set.__ge__, frozenset.issuperset, frozenset.__ge__)
def is_superset(interpreter: Interpreter, left: SetValue, right: Value) -> Value:
    keys = {interpreter.hash_key(item) for item in interpreter.items(right)}
    return boolean(left.members.keys() >= keys)


@handles(str.join)
def join(interpreter: Interpreter, separator: Value, parts: Value) -> Value:
    texts = [part.constant() for part in interpreter.items(parts)]
    return ConstantValue(separator.constant().join(texts))
