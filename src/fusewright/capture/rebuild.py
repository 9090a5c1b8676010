"""Write the function that runs in place of a captured frame: load inputs, call the graph, replay
effects, return.

The new function has the parameters of the old one, so that whoever called the old one calls the
new one alike:

    def forward(self, x):                        # parameters of the captured function
        t0 = self.__dict__["_modules"]["fc"]…    # graph inputs, by source; prefixes loaded once
        g0, g1 = compiled(x, t1, t2)
        r0 = {}                                  # new objects, empty first so that cycles close
        r0["hidden"] = g0
        self.__dict__["calls"] = 3               # what the program wrote to objects that existed
        return r0

An existing object is found again through its source, before anything is written; each object is
made once, however often it is referred to.
"""

from __future__ import annotations

import builtins
import collections
import operator
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.bytecode import Builder, Positions, assemble, header, with_body
from fusewright.capture.effects import Recover, SideEffects, Write, reachable, written_values
from fusewright.capture.interpreter.attributes import find_class_attribute
from fusewright.capture.interpreter.machine import Machine
from fusewright.capture.sources import (
    AttributeSource,
    BuiltinSource,
    CellContentsSource,
    CellSource,
    ConstantSource,
    DictItemSource,
    DictKeySource,
    DictValueSource,
    DictValuesSource,
    ExtentSource,
    GlobalSource,
    InstanceSource,
    ItemSource,
    LocalSource,
    ModuleSource,
    ReducedSource,
    ReferentSource,
    ShownSource,
    Source,
    TypeAttributeSource,
)
from fusewright.capture.values.base import MISSING, NotConstant, Value
from fusewright.capture.values.classes import ClassNamespace, MadeValue
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import CellValue, FunctionValue, Namespace
from fusewright.capture.values.iterators import ExistingIteratorValue, move_on
from fusewright.capture.values.mappings import DictValue, keys_in_order, values_in_order
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.objects import ObjectValue
from fusewright.capture.values.sequences import DequeValue, ListValue, sequence_base
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.views import shown_mapping
from fusewright.native import size_of, stride_of
from fusewright.symbolic.graph_nodes import numeric_function
from fusewright.symbolic.nodes import SYMBOLIC


class FunctionWriter:
    """Writes the new function; the `Rebuilder` that values see."""

    def __init__(self, machine: Machine, root: FunctionValue) -> None:
        self.machine = machine
        self.root = root
        line = root.code.co_firstlineno
        self.code = Builder(positions=Positions(line, line))
        self._locals: dict[int, str] = {}
        """Local variables that hold objects, by the identity of their values."""
        self._sources: dict[Source, str] = {}
        self._uses: dict[Source, int] = {}
        self._unfilled: list[Value] = []
        self._empty_cells: list[CellValue] = []
        """Filled last: what they hold may need what is made of the functions that share them."""
        self._completing: set[int] = set()
        """The containers that are being made for an iterator over them."""
        self._outputs: dict[int, str] = {}
        self._alive: list[Value] = []
        self._count = 0
        self._recover: Recover | None = None
        self._graph_failed = self.code.label()

    # -- the body --------------------------------------------------------------------------------

    def write(self, effects: SideEffects, result: Value) -> types.CodeType:
        """The code of a new function that returns `result`."""
        self.begin(effects, [result])
        self.value(result)
        self.code.return_value()
        return self.assemble()

    def begin(self, effects: SideEffects, outputs: Iterable[Value]) -> None:
        """Call the graph, find the existing objects, make the changes to them, and then the new
        objects that are kept, since iterators among these look at the content of others.
        """
        if effects.compiled is not None:
            self._recover = effects.recover
            self._call_graph(effects.compiled, effects.outputs)
        changed = [write.owner for write in effects.writes if isinstance(write.owner, Value)]
        for value in reachable(self.machine, [*outputs, *changed, *written_values(effects.writes)]):
            if value.source is not None or isinstance(value, SymbolicValue):
                self.value(value)
                self.code.pop()
        for write in effects.writes:
            if isinstance(write.owner, Value):
                self._prepare(write.owner)
            if isinstance(write.value, Value):
                self._prepare(write.value)
            if write.value is None and write.name is None:
                for part in write.owner.parts():
                    self._prepare(part)
        for write in effects.writes:
            self._replay(write)
        for value in outputs:
            self._prepare(value)
        for function, arguments in effects.calls:
            self.change(function, *map(ConstantValue, arguments))

    def assemble(self) -> types.CodeType:
        """The code object of what was written, with the parameters of the captured function."""
        shell = header(self.root.code)
        if self._recover is not None:
            parameters = shell.local_names[: shell.parameter_count]
            self._write_recovery(self._recover, parameters, shell.free_names)
        body = with_body(shell, self.code.instructions, cell_names=(), free_names=shell.free_names)
        return assemble(body)

    def _write_recovery(
        self, recover: Recover, parameters: Sequence[str], free_names: Sequence[str]
    ) -> None:
        """Write the handler of the graph's exception: return what `recover` makes of the call as it
        was written, or raise on.
        """
        code = self.code
        code.place(self._graph_failed)
        code.load_constant(recover)
        code.prepare_call()
        code.duplicate(3)
        for name in free_names:
            code.load_closure(name)
        if free_names:
            code.build_tuple(len(free_names))
        code.make_function(self.root.code, closure=bool(free_names))
        for name in parameters:
            code.load_local(name)
        code.build_tuple(len(parameters))
        code.call(3)
        raises = code.label()
        code.duplicate()
        code.jump_if_none(raises)
        code.swap(2)
        code.pop()
        code.return_value()
        code.place(raises)
        code.pop()
        code.emit("RERAISE", 0)

    def _call_graph(self, compiled: Callable[..., Any], outputs: Sequence[Value]) -> None:
        sources = self.machine.input_sources()
        for source in sources:
            step: Source | None = source
            while step is not None:
                self._uses[step] = self._uses.get(step, 0) + 1
                step = step.base
        self.code.load_constant(compiled)
        self.code.prepare_call()
        for source in sources:
            self.source(source)
        with self.code.protected(self._graph_failed, 0):
            self.code.call(len(sources))
        if not outputs:
            self.code.pop()
            return
        self.code.unpack_sequence(len(outputs))
        for tensor in outputs:
            self._outputs[id(tensor)] = self._store_new_local("graph")

    def _store_new_local(self, prefix: str) -> str:
        """Pop the top into a new local variable."""
        name = f".{prefix}{self._count}"
        self._count += 1
        self.code.store_local(name)
        return name

    def _prepare(self, value: Value) -> None:
        """Make an object and all that it holds, kept in a local variable."""
        self.complete(value)
        while self._empty_cells:
            cell = self._empty_cells.pop()
            self._set_cell(cell, cell.contents)
            self._fill_all()

    def complete(self, value: Value) -> None:
        if id(value) in self._completing:
            raise NotConstant(value)
        self._completing.add(id(value))
        self.value(value)
        self.code.pop()
        self._fill_all()
        self._completing.discard(id(value))

    def _fill_all(self) -> None:
        while self._unfilled:
            self._fill(self._unfilled.pop())

    # -- Rebuilder -------------------------------------------------------------------------------

    def constant(self, value: Any) -> None:
        recipe = self.machine.classes.made(value)
        if recipe is None:
            self.code.load_constant(value)
        else:
            self.value(recipe)

    def tensor(self, value: Value) -> None:
        self.code.load_local(self._outputs[id(value)])

    def number(self, number: Any) -> None:
        if not isinstance(number, SYMBOLIC):
            self.constant(number)
            return
        compute, symbols = numeric_function(number)
        sources = [self.machine.sizes.readings[symbol.name].source for symbol in symbols]
        self.call(compute, *sources)

    def push(self, part: Any) -> None:
        match part:
            case Value():
                self.value(part)
            case Source():
                self.source(part)
            case tuple() | list():
                for item in part:
                    self.push(item)
                build = self.code.build_tuple if type(part) is tuple else self.code.build_list
                build(len(part))
            case dict():
                for key, item in part.items():
                    self.constant(key)
                    self.push(item)
                self.code.build_map(len(part))
            case _:
                self.constant(part)

    def call(self, function: Callable[..., Any], *parts: Any) -> None:
        self.constant(function)
        self.code.prepare_call()
        for part in parts:
            self.push(part)
        self.code.call(len(parts))

    def change(self, function: Callable[..., Any], *parts: Any) -> None:
        """Call a function for what it changes."""
        self.call(function, *parts)
        self.code.pop()

    def value(self, value: Value) -> None:
        if type(value) is ConstantValue and not value.is_unread:
            self.constant(value.value)
            return
        name = self._locals.get(id(value))
        if name is not None:
            self.code.load_local(name)
            return
        if value.source is not None:
            self.source(value.source)
        else:
            self._create(value)
        self.code.duplicate()
        self._locals[id(value)] = self._store_new_local("object")
        self._alive.append(value)

    def _create(self, value: Value) -> None:
        """Push a new object, its content still to be filled in."""
        if isinstance(value, SetValue) and issubclass(value.cls, frozenset):
            self._complete_keys(value.members.values())
        try:
            value.rebuild(self)
        except NotConstant:
            raise self.machine.unsupported(reasons.NO_REBUILD, object=value.describe()) from None
        if isinstance(value, CellValue):
            self._empty_cells.append(value)
        elif isinstance(value, ObjectValue | MadeValue):
            self._unfilled.append(value)

    # -- contents --------------------------------------------------------------------------------

    def _fill(self, value: Value) -> None:
        """Put the content into a new object."""
        match value:
            case ListValue():
                self._fill_list(value, sequence_base(value.cls).extend)
            case DictValue():
                entries = list(value.read_entries())
                self._complete_keys(key for key, _ in entries)
                for key, item in entries:
                    self._store_item(value, key, item)
            case SetValue() if not issubclass(value.cls, frozenset):
                self._complete_keys(value.members.values())
                self.change(set.update, value, list(value.members.values()))
            case MadeValue(attributes=attributes):
                for name, item in attributes.items():
                    self._write_class(value, name, item)
        if isinstance(value, ObjectValue):
            for name, attribute in value.changes().items():
                if attribute is not MISSING:
                    self._set_attribute(value, name, attribute)

    def _complete_keys(self, keys: Iterable[Value]) -> None:
        """Make new objects whole before a set or dict asks for their hashes, which read them."""
        for key in keys:
            if _hashes_content(key) and id(key) not in self._completing:
                self.complete(key)

    def _fill_list(self, value: ListValue, function: Callable[..., Any]) -> None:
        items = value.read_items()
        if items or value.source is not None:
            self.change(function, value, list(items))

    def _store_item(self, mapping: DictValue, key: Value, item: Value) -> None:
        if mapping.cls is dict:
            self.value(item)
            self.value(mapping)
            self.value(key)
            self.code.store_subscript()
        else:
            self.change(_dict_base(mapping).__setitem__, mapping, key, item)

    def _set_attribute(self, owner: ObjectValue, name: str, value: Value) -> None:
        self.change(set_attribute, owner, name, value)

    def _set_cell(self, cell: CellValue, contents: Any) -> None:
        if isinstance(contents, Value):
            self.value(contents)
            self.value(cell)
            self.code.store_attribute("cell_contents")
        elif cell.source is not None:
            self.value(cell)
            self.code.delete_attribute("cell_contents")

    # -- effects ---------------------------------------------------------------------------------

    def _replay(self, write: Write) -> None:
        """Make one change to an existing object."""
        match write:
            case Write(owner=Namespace() as namespace, name=str(name), value=value):
                self._write_global(namespace, name, value)
            case Write(owner=ClassNamespace(cls=cls), name=str(name), value=value):
                self._write_class(cls, name, value)
            case Write(owner=CellValue() as cell, value=value):
                self._set_cell(cell, value)
            case Write(owner=ObjectValue() as owner, name=str(name), value=value):
                if value is MISSING:
                    self.change(delete_attribute, owner, name)
                else:
                    self._set_attribute(owner, name, value)
            case Write(owner=ExistingIteratorValue(steps=steps) as owner):
                self.change(move_on, owner, steps)
            case Write(owner=ListValue(added=list(added)) as owner):
                self.change(sequence_base(owner.cls).extend, owner, added)
            case Write(owner=DequeValue(times_changed=0) as owner):
                self._fill_list(owner, set_items)
            case Write(owner=ListValue() as owner):
                self._fill_list(owner, replace_list)
            case Write(owner=DictValue() as owner):
                self._write_mapping(owner)
            case Write(owner=SetValue() as owner):
                self.change(replace_set, owner, list(owner.members.values()))

    def _write_class(self, cls: Value | type, name: str, value: Any) -> None:
        if value is MISSING:
            self.change(type.__delattr__, cls, name)
        else:
            self.change(type.__setattr__, cls, name, value)

    def _write_global(self, namespace: Namespace, name: str, value: Any) -> None:
        if value is MISSING:  # perhaps of a variable that the program itself has made
            self.change(dict.pop, ConstantValue(namespace.dictionary), name, None)
            return
        self.value(value)
        self.constant(namespace.dictionary)
        self.constant(name)
        self.code.store_subscript()

    def _write_mapping(self, owner: DictValue) -> None:
        """Bring an existing dict to its new content, touching only what changed where the order
        allows.
        """
        if owner.is_rewritten():
            self.change(_dict_base(owner).clear, owner)
            for key, item in owner.read_entries():
                self._store_item(owner, key, item)
            return
        for removed in owner.removed_keys():
            self.change(_dict_base(owner).__delitem__, owner, ConstantValue(removed))
        for _, key, item in owner.changed_entries():
            self._store_item(owner, key, item)

    # -- sources ---------------------------------------------------------------------------------

    def source(self, source: Source) -> None:
        name = self._sources.get(source)
        if name is not None:
            self.code.load_local(name)
            return
        self._load_step(source)
        if self._uses.get(source, 0) > 1:
            self.code.duplicate()
            self._sources[source] = self._store_new_local("source")

    def _load_step(self, source: Source) -> None:
        """Push what a source names, given its base."""
        if source.base is None:
            self._load_root(source)
        else:
            self._load_from_base(source)

    def _load_root(self, source: Source) -> None:
        code = self.code
        match source:
            case LocalSource(name=name):
                code.load_local(name)
            case GlobalSource(name=name, module=None):
                code.load_global(name)
            case GlobalSource(name=name, module=str(module)):
                self._load_item(ConstantValue(sys.modules[module].__dict__), name)
            case BuiltinSource(name=name):
                code.load_constant(getattr(builtins, name))
            case ModuleSource(name=name):
                code.load_constant(sys.modules[name])
            case ConstantSource(value=value):
                self.constant(value)
            case ReferentSource(value=reference):
                self.call(reference)
            case CellSource(name=name):
                code.load_closure(name)
            case _:
                raise AssertionError(f"compiled code reads no {type(source).__name__}")

    def _load_from_base(self, source: Source) -> None:
        code = self.code
        match source:
            case CellContentsSource(origin=origin):
                self.source(origin)
                code.load_attribute("cell_contents")
            case AttributeSource(origin=origin, name=name):
                self.source(origin)
                code.load_attribute(name)
            case InstanceSource(origin=origin, name=name):
                self.source(origin)
                code.load_attribute("__dict__")
                code.load_constant(name)
                code.load_subscript()
            case (
                ItemSource(origin=origin, index=key, overridden=True)
                | DictItemSource(origin=origin, key=key, overridden=True)
            ):
                self.call(own_item, origin, ConstantValue(key))
            case (
                ItemSource(origin=origin, index=key)
                | DictItemSource(origin=origin, key=key)
                | DictValueSource(origin=origin, index=key)
            ):
                self._load_item(origin, key)
            case TypeAttributeSource(origin=origin, name=name):
                self.call(find_class_attribute, origin, ConstantValue(name))
            case DictKeySource(origin=origin, index=index):
                self.call(key_at, origin, ConstantValue(index))
            case DictValuesSource(origin=origin):
                self.call(values_in_order, origin)
            case ReducedSource(origin=origin):
                self.call(_reduce, origin)
            case ShownSource(origin=origin):
                self.call(shown_mapping, origin)
            case ExtentSource(origin=origin, dim=dim, is_stride=is_stride):
                self.call(stride_of if is_stride else size_of, origin, ConstantValue(dim))
            case _:
                raise AssertionError(f"compiled code reads no {type(source).__name__}")

    def _load_item(self, container: Value | Source, key: Any) -> None:
        self.push(container)
        self.code.load_constant(key)
        self.code.load_subscript()


def _hashes_content(value: Value) -> bool:
    """Whether the hash of a new object depends on what it holds, and not on which object it is."""
    kind: Any = value.python_type()
    is_new = value.source is None and not isinstance(value, ConstantValue | SymbolicValue)
    return is_new and kind.__hash__ is not object.__hash__ and bool(value.parts())


# -- called by generated code ---------------------------------------------------------------------


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """Write an attribute past the class's own `__setattr__`, which ran while tracing."""
    object.__setattr__(owner, name, value)


def delete_attribute(owner: Any, name: str) -> None:
    """Delete an attribute past the class's own `__delattr__`, which ran while tracing."""
    object.__delattr__(owner, name)


def replace_list(target: list[Any] | collections.deque[Any], items: list[Any]) -> None:
    """Make `items` the content of a list or deque, past overridden methods."""
    if isinstance(target, list):
        list.__setitem__(target, slice(None), items)
    else:
        collections.deque.clear(target)
        collections.deque.extend(target, items)


def set_items(target: collections.deque[Any], items: list[Any]) -> None:
    """Set the items of a deque, which its iterators survive."""
    for position, item in enumerate(items):
        collections.deque.__setitem__(target, position, item)


def replace_set(target: set[Any], members: list[Any]) -> None:
    """Make `members` the content of a set, past overridden methods."""
    set.clear(target)
    set.update(target, members)


def _dict_base(mapping: DictValue) -> type[dict[Any, Any]]:
    """The class whose methods change a dict past overridden ones and keep its own order right."""
    ordered = issubclass(mapping.cls, collections.OrderedDict)
    return collections.OrderedDict if ordered else dict


def own_item(container: Any, key: Any) -> Any:
    """An item of an instance of a subclass of a built-in container, past its `__getitem__`."""
    builtin: Any = dict if isinstance(container, dict) else sequence_base(type(container))
    return builtin.__getitem__(container, key)


def key_at(mapping: dict[Any, Any], index: int) -> Any:
    """The key of a dict at a position of its order."""
    return keys_in_order(mapping)[index]


_reduce: Final = operator.methodcaller("__reduce__")
