"""Sequences: lists, deques and tuples, with every subclass of them (named tuples, torch.Size, the
return types of torch), and slices.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from fusewright.capture.sources import ItemSource, Source
from fusewright.capture.values.base import MISSING, Machine, NotConstant, Rebuilder, Value
from fusewright.capture.values.objects import ObjectValue, overrides_items


def sequence_base(cls: type) -> type[Any]:
    """The built-in class whose methods read a sequence past those of a subclass."""
    return next(base for base in (tuple, list, collections.deque) if issubclass(cls, base))


class SequenceValue(ObjectValue):
    """The base of lists and tuples: items in order. Those of an existing sequence are wrapped when
    they are read.
    """

    __slots__ = ("_items", "_unread")

    def __init__(
        self,
        cls: type,
        items: Sequence[Value] = (),
        *,
        object: Any = MISSING,
        source: Source | None = None,
    ) -> None:
        super().__init__(cls, object, source)
        length = 0 if object is MISSING else sequence_base(cls).__len__(object)
        self._items: list[Any] = list(items) if object is MISSING else [None] * length
        self._unread = object is not MISSING

    def look(self) -> None:
        """Make the captured code depend on the content, hence on the number of items."""

    @property
    def size(self) -> int:
        """The number of items."""
        self.look()
        return len(self._items)

    def item(self, machine: Machine, index: int) -> Value:
        """The item at a position from 0 to size - 1."""
        self.look()
        item: Value | None = self._items[index]
        if item is None:
            overridden = overrides_items(self.cls, sequence_base(self.cls))
            source = ItemSource(self.required_source(machine), index, overridden)
            item = self._items[index] = machine.wrap(self._original(index), source)
        return item

    def items(self, machine: Machine) -> list[Value]:
        """All items; the list itself, to be changed only by `replace`."""
        self.look()
        if self._unread:
            for index in range(len(self._items)):
                self.item(machine, index)
            self._unread = False
        return self._items

    def _original(self, index: int) -> Any:
        return sequence_base(self.cls).__getitem__(self.object, index)

    def read_items(self) -> list[Value]:
        """The items of a sequence of which all were read or made while tracing."""
        self.look()
        if any(item is None for item in self._items):
            raise NotConstant(self)
        return self._items


class ListValue(SequenceValue):
    """A list, or an instance of a subclass of list. While the program only adds to one that exists,
    it does not matter what that holds already.
    """

    __slots__ = ("_guard_length", "_is_replaced", "changed")

    def __init__(
        self,
        cls: type,
        items: Sequence[Value] = (),
        *,
        guard_length: Callable[[], None] | None = None,
        **origin: Any,
    ) -> None:
        """`guard_length` is called when the content of an existing list is first looked at."""
        super().__init__(cls, items, **origin)
        self.changed = False
        self._guard_length = guard_length
        self._is_replaced = False

    def look(self) -> None:
        if self._guard_length is not None:
            guard, self._guard_length = self._guard_length, None
            guard()

    @property
    def added(self) -> list[Value] | None:
        """The items added to an existing list; None where its content changed otherwise."""
        if self.object is MISSING or self._is_replaced:
            return None
        return self._items[sequence_base(self.cls).__len__(self.object) :]

    def replace(self, machine: Machine, items: Sequence[Value]) -> None:
        """Make `items` the whole content of the list."""
        machine.record_mutation(self)
        self._guard_length = None
        self._is_replaced = True
        self._items = list(items)
        self._unread = False
        self.changed = True

    def append(self, machine: Machine, item: Value) -> None:
        """Add one item at the end."""
        if self.object is not MISSING:
            machine.record_mutation(self)
            self.changed = True
        self._items.append(item)

    def to_python(self) -> Any:
        return [item.to_python() for item in self.read_items()]

    def key(self) -> Hashable:
        raise TypeError(f"unhashable type: {self.cls.__name__!r}")

    def parts(self) -> Sequence[Value]:
        return [*(item for item in self._items if item is not None), *super().parts()]

    def rebuild(self, code: Rebuilder) -> None:
        if self.cls is list:
            code.push([])
        else:
            code.call(list.__new__, self.cls)


class DequeValue(ListValue):
    """A deque, or an instance of a subclass of deque."""

    __slots__ = ("maximum", "times_changed")

    def __init__(
        self, cls: type, items: Sequence[Value] = (), *, maximum: int | None = None, **origin: Any
    ) -> None:
        super().__init__(cls, items, **origin)
        self.maximum = maximum
        """The most items that it holds; None for any number."""
        self.times_changed = 0
        """The number of changes that its iterators do not survive."""

    def key(self) -> Hashable:
        raise TypeError(f"unhashable type: '{self.cls.__module__}.{self.cls.__qualname__}'")

    def to_python(self) -> Any:
        return collections.deque([item.to_python() for item in self.read_items()], self.maximum)

    def slot(self, machine: Machine, name: str) -> Value:
        if name == "maxlen":
            return machine.new(self.maximum)
        return super().slot(machine, name)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(make_deque, self.cls, self.maximum)


def make_deque(cls: type, maximum: int | None) -> Any:
    """An empty deque, past the constructor of a subclass, in generated code."""
    result: collections.deque[Any] = collections.deque.__new__(cls)
    collections.deque.__init__(result, (), maximum)
    return result


class TupleValue(SequenceValue):
    """A tuple, or an instance of a subclass of tuple."""

    __slots__ = ("_pending",)

    def __init__(
        self,
        cls: type,
        items: Sequence[Value] = (),
        *,
        pending: Callable[[], None] | None = None,
        **origin: Any,
    ) -> None:
        super().__init__(cls, items, **origin)
        self._pending = pending

    def constant(self) -> Any:
        return make_tuple(self.cls, tuple(item.constant() for item in self.read_items()))

    def to_python(self) -> Any:
        return make_tuple(self.cls, tuple(item.to_python() for item in self.read_items()))

    def key(self) -> Hashable:
        return tuple(item.key() for item in self.read_items())

    def describe(self) -> str:
        return f"a {self.cls.__name__} of {self.size} items"

    def slot(self, machine: Machine, name: str) -> Value:
        fields = getattr(self.cls, "__match_args__", ()) if is_structure_sequence(self.cls) else ()
        if name in fields:
            return self.item(machine, fields.index(name))
        return super().slot(machine, name)

    def parts(self) -> Sequence[Value]:
        return [*(item for item in self._items if item is not None), *super().parts()]

    def rebuild(self, code: Rebuilder) -> None:
        items = tuple(self.read_items())
        if self.cls is tuple:
            code.push(items)
        else:
            code.call(make_tuple, self.cls, items)


def make_tuple(cls: type, items: tuple[Any, ...]) -> Any:
    """An instance of tuple or a subclass from its items, whatever the subclass's own constructor
    takes.
    """
    if cls is tuple:
        return items
    if cls is torch.Size or is_structure_sequence(cls):
        return cls(items)
    return tuple.__new__(cls, items)


def is_structure_sequence(cls: type) -> bool:
    """Whether a class is a named tuple made in C, such as torch.return_types.max."""
    return issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields")


class SliceValue(Value):
    """A slice object."""

    __slots__ = ("start", "step", "stop")

    def __init__(
        self, start: Value, stop: Value, step: Value, *, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.start = start
        self.stop = stop
        self.step = step

    def python_type(self) -> type:
        return slice

    def constant(self) -> slice:
        return slice(self.start.constant(), self.stop.constant(), self.step.constant())

    def get_attribute(self, machine: Machine, name: str) -> Value:
        match name:
            case "start" | "stop" | "step":
                bound: Value = getattr(self, name)
                return bound
            case _:
                return super().get_attribute(machine, name)

    def parts(self) -> Sequence[Value]:
        return (self.start, self.stop, self.step)

    def rebuild(self, code: Rebuilder) -> None:
        code.call(slice, self.start, self.stop, self.step)
