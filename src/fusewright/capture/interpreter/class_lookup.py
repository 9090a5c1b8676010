"""The attributes of classes as the traced program sees them: guarded where they exist, changed
where the program changed them, and real but unguarded where it made them.
"""

from __future__ import annotations

import types
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.interpreter.attributes import (
    WrittenAttribute,
    class_attribute_source,
    find_class_attribute,
)
from fusewright.capture.sources import AttributeSource, ConstantSource, ItemSource, Source
from fusewright.capture.values.base import IMMUTABLE_TYPE, MISSING, Machine, NotConstant, Value
from fusewright.capture.values.classes import ClassNamespace, MadeValue
from fusewright.capture.values.constant import ConstantValue, is_constant
from fusewright.capture.values.functions import FunctionValue
from fusewright.capture.values.mappings import DictValue, InstanceDictValue
from fusewright.capture.values.objects import is_data_descriptor
from fusewright.capture.values.views import shown_mapping

Found = tuple[Any, "Source | None"]


class ClassLookup:
    """The classes of one capture."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._found: dict[tuple[type, str], Found] = {}
        self._made: dict[int, tuple[Any, Value | None]] = {}
        """Classes, and what is in them, that the traced program made, by identity: each with how
        generated code makes another, None where it may hold on to this one."""
        self._written: dict[type, ClassNamespace] = {}
        self._shown: list[Any] = []
        """Mappings that the program sees through proxies: they may be the attributes of classes."""

    # -- reading ---------------------------------------------------------------------------------

    def attribute(self, cls: type, name: str) -> Found:
        """The attribute of the class or a base, unbound (or MISSING), and its source; guarded."""
        if self._made or self._written:
            return self._search(cls, cls.__mro__, name)
        key = (cls, name)
        entry = self._found.get(key)
        if entry is None:
            raw = find_class_attribute(cls, name)
            source = class_attribute_source(cls, name)
            if raw is MISSING:
                source = None
                if not cls.__flags__ & IMMUTABLE_TYPE:
                    self._machine.guard(GuardKind.CLASS_ABSENT, ConstantSource(cls), name)
            elif source is not None and not is_constant(raw):
                self._machine.guard(GuardKind.IDENTITY, source, raw)
            entry = self._found[key] = (raw, source)
        return entry

    def attribute_after(self, cls: type, after: type, name: str) -> Found:
        """The attribute as the classes after `after` have it, in the method resolution order of
        `cls`, which is guarded.
        """
        order = cls.__mro__
        order_source = AttributeSource(ConstantSource(cls), "__mro__")
        rest = order[order.index(after) + 1 :]
        for index, owner in enumerate(rest, order.index(after) + 1):
            if not owner.__flags__ & IMMUTABLE_TYPE:
                self._machine.guard(GuardKind.IDENTITY, ItemSource(order_source, index), owner)
            if name in owner.__dict__:
                break
        return self._search(cls, rest, name)

    def _search(self, cls: type, order: tuple[type, ...], name: str) -> Found:
        """Look class by class, so that each that exists is guarded for itself."""
        for owner in order:
            namespace = self._written.get(owner)
            written = None if namespace is None else namespace.known.get(name)
            if written is MISSING:
                continue
            if written is not None:
                return WrittenAttribute(written), None
            if name in owner.__dict__:
                raw, source = owner.__dict__[name], class_attribute_source(owner, name)
                if source is not None and not is_constant(raw):
                    self._machine.guard(GuardKind.IDENTITY, source, raw)
                return raw, None if id(owner) in self._made else source
            if not owner.__flags__ & IMMUTABLE_TYPE:
                self._machine.guard(GuardKind.ABSENT, ConstantSource(owner), name)
        return MISSING, None

    # -- writing ---------------------------------------------------------------------------------

    def write(self, cls: type, name: str, value: Any) -> None:
        """Set an attribute of a class; MISSING deletes it."""
        machine = self._machine
        recipe = self.made(cls)
        if isinstance(recipe, MadeValue):
            self._write_made(cls, name, value)
            recipe.attributes[name] = value
            return
        if value is not MISSING and is_data_descriptor(value.real()):
            raise machine.unsupported(reasons.UNSUPPORTED_ATTRIBUTE, name=name, object=str(cls))
        namespace = self._written.setdefault(cls, ClassNamespace(cls))
        self._search(cls, (cls,), name)
        namespace.known[name] = value
        machine.record_mutation(namespace)
        self._refuse_shown()

    def show(self, mapping: Any) -> None:
        """Note that the program sees a mapping through a proxy, which shows no recorded write."""
        self._shown.append(mapping)
        self._refuse_shown()

    def _refuse_shown(self) -> None:
        for cls in self._written if self._shown else ():
            attributes = shown_mapping(vars(cls))
            if any(mapping is attributes for mapping in self._shown):
                raise self._machine.unsupported(
                    reasons.UNSUPPORTED_ATTRIBUTE, name="__dict__", object=str(cls)
                )

    def _write_made(self, cls: type, name: str, value: Any) -> None:
        """Set an attribute of a class that the program made, of its stand-in where that can be."""
        written = self._written.setdefault(cls, ClassNamespace(cls)).known
        written.pop(name, None)
        if value is MISSING:
            if name in vars(cls):
                delattr(cls, name)
            return
        try:
            setattr(cls, name, self.real_object(value))
        except NotConstant:
            written[name] = value

    # -- what the program made -------------------------------------------------------------------

    def note_made(self, object: Any, recipe: Value | None) -> None:
        """No guard is to name an object that the program made."""
        self._made[id(object)] = (object, recipe)

    def made(self, object: Any) -> Value | None:
        """The recipe of an object that each call makes anew; None for any other object."""
        entry = self._made.get(id(object)) if self._made else None
        return None if entry is None else entry[1]

    def recipes(self) -> list[Value]:
        """The recipes of all objects that each call makes anew."""
        return [recipe for _, recipe in self._made.values() if recipe is not None]

    def needed_recipes(self, value: Value) -> list[Value]:
        """The recipes of the objects that a value's object needs: itself, its class, or what it is
        read from.
        """
        if not self._made:
            return []
        objects = [value.python_type()]
        if isinstance(value, ConstantValue) and not value.is_unread:
            objects.append(value.value)
        source = value.source
        while source is not None and source.base is not None:
            source = source.base
        if isinstance(source, ConstantSource):
            objects.append(source.value)
        recipes = [self.made(object) for object in objects]
        return [recipe for recipe in recipes if recipe is not None and recipe is not value]

    def is_of_made(self, source: Source | None) -> bool:
        """Whether a source leads through an object that the program made."""
        if not self._made or source is None:
            return False
        while source.base is not None:
            source = source.base
        return isinstance(source, ConstantSource) and id(source.value) in self._made

    def real_object(self, value: Value) -> Any:
        """A real object for something that a class made while tracing holds. Raises NotConstant."""
        real = value.real()
        if real is not MISSING:
            return real
        match value:
            case FunctionValue():
                return self._real_function(value)
            case DictValue() | InstanceDictValue():
                entries = self._machine.mapping_entries(value)
                copy = {self.real_object(key): self.real_object(item) for key, item in entries}
            case _:
                copy = value.to_python()
        if not is_constant(copy):
            self._machine.note_made(copy, value)
        return copy

    def _real_function(self, value: FunctionValue) -> types.FunctionType:
        """A function that stands for one made while tracing, and never runs."""
        cells = tuple(types.CellType() for _ in value.cells)
        defaults = (None,) * len(value.defaults) or None
        function = types.FunctionType(
            value.code, value.namespace.dictionary, value.code.co_name, defaults, cells
        )
        for name in value.written:
            try:
                setattr(function, name, self.real_object(value.known[name]))
            except NotConstant:
                continue  # nothing that makes a class looks at a function's own attributes
        self._machine.note_made(function, value)
        return function

    def release(self) -> None:
        """Let go of the classes."""
        for table in (self._found, self._made, self._written):
            table.clear()
        self._shown.clear()
