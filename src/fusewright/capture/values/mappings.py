"""Mappings: dicts with every subclass (ordered, default, user-written), and an object's `__dict__`.

The five primitives `lookup`, `put`, `remove`, `keys` and `entries` are all that the handlers of
dict methods use. Of an existing dict only the keys that are asked for are read and guarded; the
order and the whole set of keys are guarded when the dict is iterated.
"""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Hashable, Sequence
from typing import Any, Final

import torch

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import (
    DictItemSource,
    DictKeySource,
    DictValueSource,
    DictValuesSource,
    Source,
)
from fusewright.capture.values.base import MISSING, Machine, NotConstant, Rebuilder, Value
from fusewright.capture.values.constant import ConstantValue, is_constant, is_none
from fusewright.capture.values.functions import Namespace
from fusewright.capture.values.objects import ObjectValue, instance_dictionary, overrides_items


def keys_in_order(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    """The keys of a dict past an overridden `__iter__`. `OrderedDict` keeps an order of its own."""
    if isinstance(mapping, collections.OrderedDict):
        return tuple(collections.OrderedDict.__iter__(mapping))
    return tuple(dict.keys(mapping))


def values_in_order(mapping: dict[Any, Any]) -> list[Any]:
    """The values of a dict in its order, past overridden methods."""
    if isinstance(mapping, collections.OrderedDict):
        return list(collections.OrderedDict.values(mapping))
    return list(dict.values(mapping))


class OwnKey:
    """A stand-in for a key of an existing dict whose hash would run the program's code."""

    __slots__ = ("object",)

    def __init__(self, object: Any) -> None:
        self.object = object


_BY_POSITION: Final = (torch.Tensor, OwnKey)
"""The stand-ins of keys that are identified by their positions."""


_LIBRARIES: Final = sys.stdlib_module_names | {"torch"}


def has_own_hash(cls: type) -> bool:
    """Whether the program itself says, in code that somebody wrote, which instances of a class are
    equal, or what their hash is.
    """
    return any(
        isinstance(method, types.FunctionType)
        and method.__code__.co_filename != "<string>"  # what `dataclass` generates
        and (method.__module__ or "").partition(".")[0] not in _LIBRARIES
        for method in (cls.__hash__, cls.__eq__)
    )


def _stand_in(key: Any) -> Hashable:
    return OwnKey(key) if type(key) is not str and has_own_hash(type(key)) else key


class DictValue(ObjectValue):
    """A dict, or an instance of a subclass of dict.

    Some keys of an existing dict are identified by their positions: tensors, so that compiled code
    neither keeps them alive nor is limited to them, and keys whose equality the program defines.
    """

    __slots__ = ("_entries", "_keys_guarded", "_positions", "changed", "default_factory")

    def __init__(self, cls: type, *, object: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(cls, object, source)
        self._entries: dict[Hashable, list[Any]] = {}
        """Pairs of key value and item value, in order, by the key's stand-in; None for what was
        not read yet.
        """
        self._keys_guarded = object is MISSING
        self.changed = False
        self.default_factory: Value | None = None
        if object is not MISSING:
            self._entries = {_stand_in(key): [None, None] for key in keys_in_order(object)}
        self._positions = {key: position for position, key in enumerate(self._entries)}
        """The position of each key of the existing dict."""

    def slot(self, machine: Machine, name: str) -> Value:
        if name == "default_factory":
            return self.default_factory or machine.new(None)
        return super().slot(machine, name)

    def store(self, machine: Machine, name: str, value: Any) -> None:
        super().store(machine, name, value)
        if name == "default_factory" and issubclass(self.cls, collections.defaultdict):
            self.default_factory = None if is_none(value) else value

    # -- primitives ------------------------------------------------------------------------------

    def _hashed(self, machine: Machine, key: Value) -> Hashable:
        """The hashable that stands for a key. In a dict that exists it matters which object that
        is.
        """
        is_constant_key = isinstance(key, ConstantValue)
        if not (self.object is MISSING or is_constant_key) and has_own_hash(key.python_type()):
            raise machine.unsupported(reasons.OWN_HASH, key=key.describe())
        hashed = machine.hash_key(key)
        if self.object is MISSING or is_constant_key:
            return hashed
        if isinstance(hashed, torch.Tensor):
            if key.source is not None:
                self._guard_tensor(machine, key.source, hashed)
            return hashed
        machine.keys.pin(key)
        return hashed

    def _guard_tensor(self, machine: Machine, source: Source, tensor: torch.Tensor) -> None:
        """Guard at which position of the existing dict a tensor is a key, or that it is none."""
        if tensor in self._positions:
            value = self._key_value(machine, tensor)
            if tensor in self._entries:
                self._entries[tensor][0] = value
            return
        self._guard_keys(machine)
        others = [
            self._key_source(machine, key)
            for key in self._positions
            if isinstance(key, torch.Tensor)
        ]
        if others:
            machine.guard(GuardKind.DISTINCT, None, (source, *others))

    def lookup(self, machine: Machine, key: Value) -> Value | None:
        """The item under a key, or None."""
        hashed = self._hashed(machine, key)
        entry = self._entries.get(hashed)
        if entry is None:
            self._guard_absent(machine, hashed)
            return None
        return self._read(machine, hashed, entry)

    def contains(self, machine: Machine, key: Value) -> bool:
        """Whether a key is present; reads no item."""
        hashed = self._hashed(machine, key)
        if hashed not in self._entries:
            self._guard_absent(machine, hashed)
            return False
        if self.object is not MISSING and not self.changed and not self._keys_guarded:
            machine.guard(GuardKind.DICT_CONTAINS, self.required_source(machine), hashed)
        return True

    def _guard_absent(self, machine: Machine, hashed: Hashable) -> None:
        if self.object is not MISSING and not self._keys_guarded:
            machine.guard(GuardKind.DICT_ABSENT, self.required_source(machine), hashed)

    def _read(self, machine: Machine, hashed: Hashable, entry: list[Any]) -> Value:
        if entry[1] is None:
            self.required_source(machine)
            if isinstance(hashed, OwnKey):
                item = values_in_order(self.object)[self._positions[hashed]]
            else:
                item = dict.__getitem__(self.object, hashed)
            entry[1] = machine.wrap(item, self._item_source(hashed))
        item_value: Value = entry[1]
        return item_value

    def put(self, machine: Machine, key: Value, value: Value) -> None:
        """Put an item under a key."""
        hashed = self._hashed(machine, key)
        self._change(machine)
        entry = self._entries.get(hashed)
        if entry is None:
            self._entries[hashed] = [key, value]
        else:
            entry[1] = value

    def remove(self, machine: Machine, key: Value) -> Value | None:
        """Take an item out; None when the key is absent."""
        item = self.lookup(machine, key)
        if item is not None:
            self._change(machine)
            del self._entries[self._hashed(machine, key)]
        return item

    def clear(self, machine: Machine) -> None:
        """Take all items out."""
        self._change(machine)
        self._entries = {}

    def move_to_end(self, machine: Machine, key: Value, last: bool) -> None:
        """Make a present key the last or the first."""
        self._change(machine)
        hashed = machine.hash_key(key)
        entry = self._entries.pop(hashed)
        if last:
            self._entries[hashed] = entry
        else:
            self._entries = {hashed: entry, **self._entries}

    def _change(self, machine: Machine) -> None:
        if self.object is not MISSING and not self.changed:
            self._guard_keys(machine)
            machine.record_mutation(self)
        self.changed = True

    def _guard_keys(self, machine: Machine) -> None:
        if self._keys_guarded:
            return
        self._keys_guarded = True
        source, keys = self.required_source(machine), tuple(self._positions)
        if not any(isinstance(key, _BY_POSITION) for key in keys):
            machine.guard(GuardKind.DICT_KEYS, source, keys)
            return
        machine.guard(GuardKind.LENGTH, source, len(keys))
        for key in keys:
            if isinstance(key, torch.Tensor):
                self._key_value(machine, key)
            else:
                real = key.object if isinstance(key, OwnKey) else key
                kind = GuardKind.EQUALS if is_constant(real) else GuardKind.IDENTITY
                machine.guard(kind, self._key_source(machine, key), real)

    def size(self, machine: Machine) -> int:
        """The number of items."""
        self._guard_keys(machine)
        return len(self._entries)

    def keys(self, machine: Machine) -> list[Value]:
        """The keys, in order."""
        self._guard_keys(machine)
        for hashed, entry in self._entries.items():
            if entry[0] is None:
                entry[0] = self._key_value(machine, hashed)
        return [entry[0] for entry in self._entries.values()]

    def _key_value(self, machine: Machine, key: Any) -> Value:
        """The value of a key of the existing dict."""
        if is_constant(key) or isinstance(key, type):
            return machine.new(key)
        real = key.object if isinstance(key, OwnKey) else key
        return machine.wrap(real, self._key_source(machine, key))

    def _key_source(self, machine: Machine, key: Any) -> DictKeySource:
        return DictKeySource(self.required_source(machine), self._positions[key])

    def entries(self, machine: Machine) -> list[tuple[Value, Value]]:
        """Pairs of key and item, in order."""
        keys = self.keys(machine)
        items = [self._read(machine, hashed, entry) for hashed, entry in self._entries.items()]
        return list(zip(keys, items, strict=True))

    # -- the object as a whole -------------------------------------------------------------------

    def read_entries(self) -> list[tuple[Value, Value]]:
        """Pairs of key and item of a dict of which all were read or made while tracing."""
        if any(entry[1] is None for entry in self._entries.values()):
            raise NotConstant(self)
        return [
            (ConstantValue(hashed) if entry[0] is None else entry[0], entry[1])
            for hashed, entry in self._entries.items()
        ]

    def is_rewritten(self) -> bool:
        """Whether an existing dict is to be emptied and filled again: its keys come in another
        order now, or after new ones, or one is gone that compiled code cannot name.
        """
        if any(isinstance(key, _BY_POSITION) for key in self.removed_keys()):
            return True
        positions = [self._positions.get(key, len(self._positions)) for key in self._entries]
        return positions != sorted(positions)

    def changed_entries(self) -> list[tuple[Hashable, Value, Value]]:
        """Stand-in, key and item of the entries that differ from the existing dict's, in order."""
        return [
            (hashed, ConstantValue(hashed) if entry[0] is None else entry[0], entry[1])
            for hashed, entry in self._entries.items()
            if entry[1] is not None and not self._is_original(hashed, entry[1])
        ]

    def is_as_before(self) -> bool:
        """Whether an existing dict holds what it held, though items were put into it: a module's
        `self.calls += 1` puts back the tensor that it has.
        """
        return not (self.removed_keys() or self.is_rewritten() or self.changed_entries())

    def _is_original(self, hashed: Hashable, item: Value) -> bool:
        is_old = self.source is not None and hashed in self._positions
        return is_old and item.source == self._item_source(hashed)

    def _item_source(self, hashed: Hashable) -> Source:
        """The source of an item of an existing dict."""
        assert self.source is not None, "the dict exists"
        if isinstance(hashed, _BY_POSITION):
            return DictValueSource(DictValuesSource(self.source), self._positions[hashed])
        return DictItemSource(self.source, hashed, overrides_items(self.cls, dict))

    def removed_keys(self) -> list[Hashable]:
        """The keys that an existing dict has no longer."""
        return [key for key in self._positions if key not in self._entries]

    def to_python(self) -> Any:
        if self.cls not in (dict, collections.OrderedDict):
            raise NotConstant(self)
        return self.cls((key.to_python(), item.to_python()) for key, item in self.read_entries())

    def key(self) -> Hashable:
        raise TypeError(f"unhashable type: {self.cls.__name__!r}")

    def parts(self) -> Sequence[Value]:
        values: list[Value] = [
            part for entry in self._entries.values() for part in entry if part is not None
        ]
        if self.default_factory is not None:
            values.append(self.default_factory)
        return [*values, *super().parts()]

    def rebuild(self, code: Rebuilder) -> None:
        if self.cls is dict:
            code.push({})
        elif issubclass(self.cls, collections.defaultdict) and self.default_factory is not None:
            code.call(self.cls, self.default_factory)
        else:
            code.call(allocate_dict, self.cls)


def allocate_dict(cls: type) -> Any:
    """An empty instance of a subclass of dict, `__init__` not run, in generated code."""
    base = collections.OrderedDict if issubclass(cls, collections.OrderedDict) else dict
    return base.__new__(cls)


class InstanceDictValue(Value):
    """The `__dict__` of an object: a live view of its attributes."""

    __slots__ = ("owner",)

    def __init__(self, owner: ObjectValue) -> None:
        super().__init__(None)
        self.owner = owner

    @classmethod
    def of(cls, machine: Machine, owner: ObjectValue) -> Value:
        """The dictionary that `owner.__dict__` gives."""
        owner.own_dictionary(machine)
        return cls(owner) if owner.shared is None else owner.shared

    def real(self) -> Any:
        owner = self.owner.object
        return MISSING if owner is MISSING else instance_dictionary(owner)

    def python_type(self) -> type:
        return dict

    def lookup(self, machine: Machine, key: Value) -> Value | None:
        """The attribute under a name, or None."""
        return self.owner.field(machine, key.constant())

    def contains(self, machine: Machine, key: Value) -> bool:
        """Whether the object has the attribute itself."""
        return self.lookup(machine, key) is not None

    def put(self, machine: Machine, key: Value, value: Value) -> None:
        """Set an attribute, past descriptors."""
        self.owner.store(machine, key.constant(), value)

    def remove(self, machine: Machine, key: Value) -> Value | None:
        """Take an attribute out; None when there is none."""
        attribute = self.lookup(machine, key)
        if attribute is not None:
            self.owner.store(machine, key.constant(), MISSING)
        return attribute

    def clear(self, machine: Machine) -> None:
        """Take all attributes out."""
        for key in self.keys(machine):
            self.remove(machine, key)

    def size(self, machine: Machine) -> int:
        """The number of attributes that the object has itself."""
        return len(self.keys(machine))

    def keys(self, machine: Machine) -> list[Value]:
        """The attributes' names, in order."""
        owner = self.owner
        if owner.shared is not None:
            return owner.shared.keys(machine)
        if owner.object is not MISSING:
            machine.guard(
                GuardKind.ATTRIBUTES,
                owner.required_source(machine),
                tuple(owner.object.__dict__),
            )
        return [machine.new(name) for name in owner.field_names()]

    def entries(self, machine: Machine) -> list[tuple[Value, Value]]:
        """Pairs of name and attribute, in order."""
        pairs = []
        for key in self.keys(machine):
            value = self.lookup(machine, key)
            assert value is not None, "a listed attribute is present"
            pairs.append((key, value))
        return pairs

    def to_python(self) -> Any:
        raise NotConstant(self)

    def parts(self) -> Sequence[Value]:
        return (self.owner,)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(getattr, self.owner, "__dict__")


class GlobalsValue(InstanceDictValue):
    """The dict of a module's variables, as `globals()` gives it: a live view."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(ObjectValue(dict))
        self.namespace = namespace

    def real(self) -> Any:
        return self.namespace.dictionary

    def lookup(self, machine: Machine, key: Value) -> Value | None:
        return self.namespace.variable(machine, key.constant())

    def put(self, machine: Machine, key: Value, value: Value) -> None:
        self.namespace.store(machine, key.constant(), value)

    def remove(self, machine: Machine, key: Value) -> Value | None:
        variable = self.lookup(machine, key)
        if variable is not None:
            self.namespace.store(machine, key.constant(), MISSING)
        return variable

    def keys(self, machine: Machine) -> list[Value]:
        source = self.namespace.dictionary_source()
        if source is None:
            raise machine.unsupported(
                reasons.UNSUPPORTED_ATTRIBUTE, name="keys", object="the dict of global variables"
            )
        machine.guard(GuardKind.DICT_KEYS, source, tuple(self.namespace.dictionary))
        return [machine.new(name) for name in self.namespace.names()]

    def parts(self) -> Sequence[Value]:
        return ()

    def rebuild(self, code: Rebuilder) -> None:
        code.constant(self.namespace.dictionary)
