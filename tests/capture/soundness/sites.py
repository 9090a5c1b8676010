"""The places from which a compiled function may get a value, and how to put another one there."""

from __future__ import annotations

import collections
import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

X = torch.arange(6.0).reshape(2, 3)
Read = Callable[[Any, torch.Tensor], Any]


@dataclass(kw_only=True)
class Site:
    """A function that reads a value, and how to put another value in its place."""

    function: Callable[..., Any]
    arguments: list[Any] = field(default_factory=lambda: [X])
    keywords: dict[str, Any] = field(default_factory=dict)
    replace: Callable[[Any], None]


MakeSite = Callable[[Read, Any], AbstractContextManager[Site]]

SITES: dict[str, MakeSite] = {}


def place(name: str) -> Callable[[Callable[[Read, Any], Site]], Callable[[Read, Any], Site]]:
    """Register a place under a name."""

    def register(make: Callable[[Read, Any], Site]) -> Callable[[Read, Any], Site]:
        SITES[name] = contextmanager(functools.partial(_yield_site, make))
        return make

    return register


def _yield_site(make: Callable[[Read, Any], Site], read: Read, value: Any) -> Iterator[Site]:
    yield make(read, value)


# -- arguments -----------------------------------------------------------------------------------


@place("argument")
def _argument(read: Read, value: Any) -> Site:
    arguments = [X, value]
    return Site(
        function=lambda x, value: read(value, x),
        arguments=arguments,
        replace=lambda new: arguments.__setitem__(1, new),
    )


@place("star argument")
def _star_argument(read: Read, value: Any) -> Site:
    arguments = [X, 0, value]
    return Site(
        function=lambda x, *rest: read(rest[1], x),
        arguments=arguments,
        replace=lambda new: arguments.__setitem__(2, new),
    )


@place("keyword argument")
def _keyword_argument(read: Read, value: Any) -> Site:
    keywords = {"other": 1, "value": value}
    return Site(
        function=lambda x, **rest: read(rest["value"], x),
        keywords=keywords,
        replace=lambda new: keywords.__setitem__("value", new),
    )


@place("default")
def _default(read: Read, value: Any) -> Site:
    def function(x: Any, value: Any = value) -> Any:
        return read(value, x)

    def replace(new: Any) -> None:
        function.__defaults__ = (new,)

    return Site(function=function, replace=replace)


@place("inlined default")
def _inlined_default(read: Read, value: Any) -> Site:
    def inner(x: Any, value: Any = value) -> Any:
        return read(value, x)

    def replace(new: Any) -> None:
        inner.__defaults__ = (new,)

    return Site(function=lambda x: inner(x), replace=replace)


@place("inlined keyword default")
def _inlined_keyword_default(read: Read, value: Any) -> Site:
    def inner(x: Any, *, value: Any = value) -> Any:
        return read(value, x)

    def replace(new: Any) -> None:
        inner.__kwdefaults__["value"] = new

    return Site(function=lambda x: inner(x), replace=replace)


@place("partial's argument")
def _partial(read: Read, value: Any) -> Site:
    arguments = [X, functools.partial(read, value)]

    def replace(new: Any) -> None:
        arguments[1] = functools.partial(read, new)

    return Site(function=lambda x, f: f(x), arguments=arguments, replace=replace)


# -- variables -----------------------------------------------------------------------------------


def _in_module(source: str, **variables: Any) -> dict[str, Any]:
    """The variables of a module made from source."""
    namespace = {"__name__": "somewhere", **variables}
    exec(compile(source, __file__, "exec"), namespace)
    return namespace


@place("global")
def _global(read: Read, value: Any) -> Site:
    namespace = _in_module("def f(x): return read(value, x)", read=read, value=value)
    return Site(function=namespace["f"], replace=lambda new: namespace.__setitem__("value", new))


@place("inlined function's global")
def _inlined_global(read: Read, value: Any) -> Site:
    namespace = _in_module("def f(x): return read(value, x)", read=read, value=value)
    inner = namespace["f"]
    return Site(
        function=lambda x: inner(x), replace=lambda new: namespace.__setitem__("value", new)
    )


@contextmanager
def _other_module(read: Read, value: Any) -> Iterator[Site]:
    module = types.ModuleType("soundness_other_module")
    module.value = value
    sys.modules[module.__name__] = module
    try:
        yield Site(
            function=lambda x: read(module.value, x),
            replace=lambda new: setattr(module, "value", new),
        )
    finally:
        del sys.modules[module.__name__]


SITES["other module"] = _other_module


@contextmanager
def _imported(read: Read, value: Any) -> Iterator[Site]:
    module = types.ModuleType("soundness_imported_module")
    module.value = value
    sys.modules[module.__name__] = module

    def function(x: Any) -> Any:
        from soundness_imported_module import value

        return read(value, x)

    try:
        yield Site(function=function, replace=lambda new: setattr(module, "value", new))
    finally:
        del sys.modules[module.__name__]


SITES["imported"] = _imported


@place("closure cell")
def _closure(read: Read, value: Any) -> Site:
    def replace(new: Any) -> None:
        nonlocal value
        value = new

    return Site(function=lambda x: read(value, x), replace=replace)


@place("inlined closure cell")
def _inlined_closure(read: Read, value: Any) -> Site:
    def replace(new: Any) -> None:
        nonlocal value
        value = new

    inner = lambda x: read(value, x)  # noqa: E731
    return Site(function=lambda x: inner(x), replace=replace)


# -- parts of objects ----------------------------------------------------------------------------


class Holder:
    """An object with an attribute."""

    def __init__(self, value: Any) -> None:
        self.value = value


@place("attribute")
def _attribute(read: Read, value: Any) -> Site:
    holder = Holder(value)
    return Site(
        function=lambda x, holder: read(holder.value, x),
        arguments=[X, holder],
        replace=lambda new: setattr(holder, "value", new),
    )


@place("attribute chain")
def _attribute_chain(read: Read, value: Any) -> Site:
    outer = Holder(Holder(Holder(value)))
    return Site(
        function=lambda x: read(outer.value.value.value, x),
        replace=lambda new: setattr(outer.value, "value", Holder(new)),
    )


@place("getattr")
def _getattr(read: Read, value: Any) -> Site:
    holder = Holder(value)
    return Site(
        function=lambda x: read(getattr(holder, "value", None), x),
        replace=lambda new: setattr(holder, "value", new),
    )


@place("vars")
def _vars(read: Read, value: Any) -> Site:
    holder = Holder(value)
    return Site(
        function=lambda x, holder: read(holder.__dict__["value"], x),
        arguments=[X, holder],
        replace=lambda new: setattr(holder, "value", new),
    )


@place("slot")
def _slot(read: Read, value: Any) -> Site:
    class Slotted:
        __slots__ = ("value",)

    holder = Slotted()
    holder.value = value
    return Site(
        function=lambda x: read(holder.value, x),
        replace=lambda new: setattr(holder, "value", new),
    )


@place("property")
def _property(read: Read, value: Any) -> Site:
    class Computed:
        def __init__(self) -> None:
            self.hidden = value

        @property
        def value(self) -> Any:
            return self.hidden

    holder = Computed()
    return Site(
        function=lambda x: read(holder.value, x),
        replace=lambda new: setattr(holder, "hidden", new),
    )


@place("__getattr__")
def _getattr_hook(read: Read, value: Any) -> Site:
    class Forwards:
        def __init__(self) -> None:
            self.table = {"value": value}

        def __getattr__(self, name: str) -> Any:
            return self.table[name]

    holder = Forwards()
    return Site(
        function=lambda x: read(holder.value, x),
        replace=lambda new: holder.table.__setitem__("value", new),
    )


@place("descriptor")
def _descriptor(read: Read, value: Any) -> Site:
    class Descriptor:
        def __get__(self, instance: Any, owner: Any) -> Any:
            return instance.hidden

    class Described:
        value = Descriptor()

    holder = Described()
    holder.hidden = value
    return Site(
        function=lambda x: read(holder.value, x),
        replace=lambda new: setattr(holder, "hidden", new),
    )


@place("class attribute")
def _class_attribute(read: Read, value: Any) -> Site:
    class Owner:
        pass

    Owner.value = staticmethod(value) if isinstance(value, types.FunctionType) else value
    instance = Owner()
    return Site(
        function=lambda x: read(instance.value, x),
        replace=lambda new: setattr(
            Owner, "value", staticmethod(new) if isinstance(new, types.FunctionType) else new
        ),
    )


@place("class itself")
def _class_itself(read: Read, value: Any) -> Site:
    class Owner:
        pass

    Owner.value = value
    return Site(
        function=lambda x: read(Owner.value, x),
        replace=lambda new: setattr(Owner, "value", new),
    )


@place("inherited attribute")
def _inherited(read: Read, value: Any) -> Site:
    class Base:
        pass

    class Middle(Base):
        pass

    class Derived(Middle):
        pass

    Base.value = value
    return Site(
        function=lambda x: read(Derived.value, x),
        replace=lambda new: setattr(Middle, "value", new),
    )


@place("instance over class")
def _instance_over_class(read: Read, value: Any) -> Site:
    class Owner:
        value = 0

    Owner.value = value
    holder = Owner()
    return Site(
        function=lambda x: read(holder.value, x),
        replace=lambda new: setattr(holder, "value", new),
    )


@place("module attribute")
def _module_attribute(read: Read, value: Any) -> Site:
    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return read(self.value, x)

    net = Net()
    net.value = value
    return Site(function=lambda x: net(x), replace=lambda new: setattr(net, "value", new))


@place("function attribute")
def _function_attribute(read: Read, value: Any) -> Site:
    def holder() -> None:
        pass

    holder.value = value
    return Site(
        function=lambda x: read(holder.value, x),
        replace=lambda new: setattr(holder, "value", new),
    )


# -- containers ----------------------------------------------------------------------------------


@place("list item")
def _list_item(read: Read, value: Any) -> Site:
    items = [0, value]
    return Site(
        function=lambda x, items: read(items[1], x),
        arguments=[X, items],
        replace=lambda new: items.__setitem__(1, new),
    )


@place("last list item")
def _last_item(read: Read, value: Any) -> Site:
    items = [0, value]
    return Site(function=lambda x: read(items[-1], x), replace=items.append)


@place("iterated list")
def _iterated(read: Read, value: Any) -> Site:
    items = [value, value]
    return Site(
        function=lambda x: [read(item, x) for item in items],
        replace=lambda new: items.__setitem__(1, new),
    )


@place("tuple item")
def _tuple_item(read: Read, value: Any) -> Site:
    holder = Holder((0, value))
    return Site(
        function=lambda x: read(holder.value[1], x),
        replace=lambda new: setattr(holder, "value", (0, new)),
    )


@place("dict item")
def _dict_item(read: Read, value: Any) -> Site:
    table = {"other": 0, "value": value}
    return Site(
        function=lambda x, table: read(table["value"], x),
        arguments=[X, table],
        replace=lambda new: table.__setitem__("value", new),
    )


@place("dict.get")
def _dict_get(read: Read, value: Any) -> Site:
    table = {"value": value}
    return Site(
        function=lambda x: read(table.get("value"), x),
        replace=lambda new: table.__setitem__("value", new),
    )


@place("iterated dict")
def _iterated_dict(read: Read, value: Any) -> Site:
    table = {"a": 0, "value": value}
    return Site(
        function=lambda x: [read(item, x) for key, item in table.items() if key == "value"],
        replace=lambda new: table.__setitem__("value", new),
    )


@place("list in dict in instance")
def _nested(read: Read, value: Any) -> Site:
    holder = Holder({"items": [value]})
    return Site(
        function=lambda x: read(holder.value["items"][0], x),
        replace=lambda new: holder.value["items"].__setitem__(0, new),
    )


@place("instance in list")
def _instance_in_list(read: Read, value: Any) -> Site:
    items = [Holder(0), Holder(value)]
    return Site(
        function=lambda x: read(items[1].value, x),
        replace=lambda new: setattr(items[1], "value", new),
    )


Pair = collections.namedtuple("Pair", "first value")


@place("named tuple field")
def _named_tuple(read: Read, value: Any) -> Site:
    arguments = [X, Pair(0, value)]
    return Site(
        function=lambda x, pair: read(pair.value, x),
        arguments=arguments,
        replace=lambda new: arguments.__setitem__(1, Pair(0, new)),
    )


@dataclasses.dataclass(frozen=True)
class Record:
    """A frozen dataclass."""

    value: Any


@place("dataclass field")
def _dataclass_field(read: Read, value: Any) -> Site:
    arguments = [X, Record(value)]
    return Site(
        function=lambda x, record: read(record.value, x),
        arguments=arguments,
        replace=lambda new: arguments.__setitem__(1, Record(new)),
    )


@place("default dict item")
def _default_dict(read: Read, value: Any) -> Site:
    table: Any = collections.defaultdict(int, value=value)
    return Site(
        function=lambda x: read(table["value"], x),
        replace=lambda new: table.__setitem__("value", new),
    )
