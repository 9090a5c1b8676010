"""The kinds of guards, a row each: the test that the native floor runs, what it is run on, and the
words for what it expects and what it found instead.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final

import torch

from fusewright.capture.sources import Source
from fusewright.errors import Location
from fusewright.records import record

GONE: Any = object()
"""Stands for an expected object that was held weakly and is gone."""

Subjects = Iterable[tuple[Any, Any]]
"""Sources, each with what is expected of what it names."""

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


def _show(value: Any) -> str:
    """A short text for any object; a tensor is never printed, since that would read its data."""
    if value is GONE:
        return "one that is gone"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, torch.nn.Module):
        return f"a {type(value).__qualname__}"
    return _repr.repr(value)


def _names(keys: Any) -> str:
    return ", ".join(key if isinstance(key, str) else _show(key) for key in keys) or "none"


def _code_name(code: Any) -> str:
    return "the code of " + getattr(code, "co_qualname", "a function that is gone")


def _itself(guard: Guard, group: int) -> Subjects:
    """The one object that the guard's source names."""
    if guard.source is None:
        raise ValueError(f"a guard of kind {guard.kind.title!r} needs a source")
    return ((guard.source, guard.expected),)


@record(eq=False, kw_only=True)
class Kind:
    """One kind of guard: what it compares, and how to speak of it."""

    title: str
    """The kind's name in tables of guards."""

    test: str
    """The native floor's test; see native/guard_tests.c."""

    says: Callable[[Any], str]
    """Words for what is expected; GONE is an object that was held weakly."""

    finds: Callable[[Any, Any], str]
    """Words for what was found where something else was expected."""

    subjects: Callable[[Guard, int], Subjects] = _itself
    """The objects that a guard tests, each with what is expected of it. The number is the guard's
    own among those that compare objects with each other.
    """

    compares: bool = False
    """Whether the objects are compared with each other, as a group of this number."""

    operand: Callable[[Any], Any] | None = None
    """The native floor's form of what is expected, where it takes another."""

    in_dictionary: bool = False
    """Whether the object's `__dict__` is tested in its place."""

    is_weak: bool = False
    """Whether the expected object is held weakly, where it can be."""

    is_first: bool = False
    """Whether the test comes before the object's others, which rely on it."""


class GuardKind:
    """All kinds; `x` is what a guard's source names, `expected` what tracing found."""

    TYPE: Final = Kind(
        title="type",
        test="type",
        says=lambda cls: f"type {_show(cls)}",
        finds=lambda cls, actual: f"type {_show(type(actual))}",
        is_weak=True,
        is_first=True,
    )
    """`type(x) is expected`."""

    IDENTITY: Final = Kind(
        title="identity",
        test="is",
        says=lambda value: f"the very same {_show(value)}",
        finds=lambda value, actual: f"another object, {_show(actual)}",
        is_weak=True,
    )
    """`x is expected`; the object is held weakly where it can be."""

    CODE: Final = Kind(
        title="code",
        test="code",
        says=_code_name,
        finds=lambda code, actual: "other code",
        is_weak=True,
    )
    """`x.__code__ is expected`, for a function."""

    EQUALS: Final = Kind(
        title="equals",
        test="equals",
        says=_show,
        finds=lambda value, actual: _show(actual),
    )
    """`type(x) is type(expected) and x == expected`, with NaN equal to itself and 0.0 unlike -0.0.
    """

    TENSOR: Final = Kind(
        title="tensor",
        test="tensor",
        says=str,
        finds=lambda pattern, actual: "a tensor of another kind (its dispatch keys differ)",
        operand=attrgetter("metadata"),
    )
    """`x` has the dtype, device, layout, sizes, strides and requires_grad of the `TensorPattern`
    `expected`. A guard of kind TYPE tests its class.
    """

    LENGTH: Final = Kind(
        title="length",
        test="length",
        says=lambda length: f"length {length}",
        finds=lambda length, actual: f"length {len(actual)}",
    )
    """`len(x) == expected`, for a built-in container or an instance of a subclass."""

    DICT_KEYS: Final = Kind(
        title="dict keys",
        test="keys",
        says=lambda keys: f"the keys {_names(keys)}",
        finds=lambda keys, actual: f"the keys {_names(actual)}",
    )
    """The keys of dict `x`, in order, are the tuple `expected`."""

    DICT_CONTAINS: Final = Kind(
        title="dict contains",
        test="contains",
        says=lambda key: f"the key {_show(key)}",
        finds=lambda key, actual: "no such key",
    )
    """`expected in x`, past an overridden `__contains__`."""

    DICT_ABSENT: Final = Kind(
        title="dict absent",
        test="lacks",
        says=lambda key: f"no {_show(key)}",
        finds=lambda key, actual: "it is there",
    )
    """`expected not in x`, past an overridden `__contains__`."""

    SET_EQUALS: Final = Kind(
        title="set equals",
        test="members",
        says=lambda members: f"the members {_names(members)}",
        finds=lambda members, actual: f"the members {_names(actual)}",
    )
    """`frozenset(x) == expected`."""

    ATTRIBUTES: Final = Kind(
        title="attributes",
        test="keys",
        says=lambda names: f"the keys {_names(names)}",
        finds=lambda names, actual: f"the keys {_names(actual)}",
        in_dictionary=True,
    )
    """The keys of `x.__dict__`, in order, are the tuple `expected`."""

    ABSENT: Final = Kind(
        title="absent",
        test="lacks",
        says=lambda name: f"no {_show(name)}",
        finds=lambda name, actual: "it is there",
        in_dictionary=True,
    )
    """`expected not in x.__dict__`."""

    ATTRIBUTE_ABSENT: Final = Kind(
        title="attribute absent",
        test="lacks_attribute",
        says=lambda name: f"no attribute {name}",
        finds=lambda name, actual: "it is there",
    )
    """`x` has no attribute named `expected`; only where asking runs no user code."""

    PRESENT: Final = Kind(
        title="present",
        test="present",
        says=lambda expected: "something",
        finds=lambda expected, actual: "something",
    )
    """There is something at the source: it may be handed on, whatever it is."""

    CLASS_ABSENT: Final = Kind(
        title="class absent",
        test="type_lacks",
        says=lambda name: f"no class attribute {name}",
        finds=lambda name, actual: "it is there",
    )
    """No class in the method resolution order of class `x` has an attribute named `expected`."""

    SAME: Final = Kind(
        title="same",
        test="same",
        says=lambda group: "one object in both places",
        finds=lambda group, actual: "two objects",
        subjects=lambda guard, group: ((guard.source, group), (guard.expected, group)),
        compares=True,
    )
    """`x is y`, where `y` is what the source `expected` names."""

    DISTINCT: Final = Kind(
        title="distinct",
        test="distinct",
        says=lambda group: "an object given only once",
        finds=lambda group, actual: "an object given twice",
        subjects=lambda guard, group: [(source, group) for source in guard.expected],
        compares=True,
    )
    """The objects that the sources in the tuple `expected` name are pairwise different."""

    MEMORY: Final = Kind(
        title="memory",
        test="storage",
        says=str,
        finds=lambda placement, actual: "memory shared in another way with what the graph reads",
        subjects=lambda guard, group: guard.expected,
        operand=attrgetter("metadata"),
    )
    """The tensors lie in memory beside each other as they did: which share a storage, and where;
    `expected` is a tuple of pairs of a source and a `Placement`.
    """

    SHAPES: Final = Kind(
        title="shapes",
        test="sizes",
        says=str,
        finds=lambda sizes, actual: _show(actual) + sizes.why_unread,
        subjects=lambda guard, group: guard.expected.subjects(),
        operand=attrgetter("metadata"),
    )
    """The relations of the `ShapeGuard` `expected` hold between sizes and integers; no source."""

    GLOBAL_STATE: Final = Kind(
        title="global state",
        test="state",
        says=lambda reading: _show(reading.value),
        finds=lambda reading, actual: _show(reading.read()),
        operand=attrgetter("metadata"),
    )
    """The state of torch that the `StateReading` `expected` reads is as it was. Without a source
    and anything expected: so is every state that graphs depend on, when the guards are built.
    """

    GRAD_MODE: Final = Kind(
        title="global state",
        test="grad_mode",
        says=lambda is_on: "on" if is_on else "off",
        finds=lambda is_on, actual: "off" if is_on else "on",
    )
    """Grad mode is on, or off, as `expected` says."""

    DISPATCH_STATE: Final = Kind(
        title="global state",
        test="dispatch_state",
        says=lambda words: "as when compiled",
        finds=lambda words, actual: "a change",
    )
    """Torch's dispatcher sees the modes and levels that the two numbers in `expected` stand for."""


@record
class Guard:
    """One fact about the outside world that captured code relies on."""

    kind: Kind
    source: Source | None
    expected: Any = None
    location: Location | None = None
    """The user's line that made the fact matter."""
