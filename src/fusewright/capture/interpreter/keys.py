"""Objects that stand in dicts and sets by their identity: capture finds there what is the same
object now, and compiled code holds as long as that is so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import ConstantSource
from fusewright.capture.values.base import Machine, Value, overrides_object
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.functions import MethodValue
from fusewright.capture.values.objects import IdentityValue, ObjectValue
from fusewright.capture.values.references import ReferenceValue
from fusewright.capture.values.sequences import TupleValue
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.tensors import TensorValue


class Keys:
    """The keys of dicts and members of sets that the traced program made or asked for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._objects: dict[int, ObjectValue] = {}
        self._by_number: list[ObjectValue] = []
        """Objects whose `id()` was the key."""
        self._known_classes: set[type] = set()
        """Classes of members of existing sets, which are known by themselves, not by a source."""
        self._has_integers = False

    def note(self, key: Value, is_known: bool = False) -> None:
        """A key of a new dict or a member of a set; `is_known`: of one that exists."""
        if isinstance(key, ConstantValue):
            self._has_integers |= type(key.value) is int
            return
        if isinstance(key, ReferenceValue) and key.referent is None:
            self._known_classes.add(type(key.object()))
        for identity in _identities(key):
            self._objects.setdefault(id(identity), identity)
            if is_known:
                self._known_classes.add(identity.cls)
            if isinstance(key, IdentityValue):
                self._by_number.append(identity)

    def pin(self, key: Value) -> None:
        """A key that an existing dict is asked for: which object it is is guarded."""
        self._guard_identity(_identities(key))

    def guard(self) -> None:
        """Guard which of the objects are the same, and which are those that are known."""
        groups: dict[type, list[ObjectValue]] = {}
        for value in self._objects.values():
            if value.source is not None and not isinstance(value.source, ConstantSource):
                groups.setdefault(value.cls, []).append(value)
        for cls, group in groups.items():
            if cls in self._known_classes:
                self._guard_identity(group)
            elif len(group) > 1 and not isinstance(group[0], TensorValue):  # they are told apart
                sources = tuple(value.source for value in group)
                self._machine.guard(GuardKind.DISTINCT, None, sources)
        if self._has_integers:
            self._guard_identity(self._by_number)

    def _guard_identity(self, objects: Iterable[ObjectValue]) -> None:
        for value in objects:
            if value.source is not None and not isinstance(value.source, ConstantSource):
                self._machine.guard(GuardKind.IDENTITY, value.source, value.real())

    def release(self) -> None:
        """Let go of the objects."""
        self._objects.clear()
        self._by_number.clear()


def _identities(key: Value) -> Iterator[ObjectValue]:
    """The objects that a key is, holds, or refers to, and that equal none but themselves."""
    match key:
        case TupleValue():
            parts = key.read_items()
        case SetValue():
            parts = list(key.members.values())
        case MethodValue():
            parts = [key.function, key.instance]
        case ReferenceValue() if key.referent is not None:
            parts = [key.referent]
        case IdentityValue(target=ObjectValue() as target):
            yield target
            return
        case TensorValue():
            yield key
            return
        case ObjectValue() if not overrides_object(key.cls, "__hash__"):
            yield key
            return
        case _:
            return
    for part in parts:
        yield from _identities(part)
