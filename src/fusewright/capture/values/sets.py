"""Sets and frozen sets."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any

from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import Source
from fusewright.capture.values.base import MISSING, Machine, Rebuilder, Value
from fusewright.capture.values.constant import ConstantValue
from fusewright.capture.values.objects import ObjectValue


class SetValue(ObjectValue):
    """A set or a frozenset: members by what stands for them as keys."""

    __slots__ = ("_in_order", "_real", "changed", "members")

    def __init__(self, cls: type, *, object: Any = MISSING, source: Source | None = None) -> None:
        super().__init__(cls, object, source)
        self.members: dict[Hashable, Value] = {}
        self.changed = False
        self._in_order = True
        """Whether `members` are in the order in which the set iterates."""
        self._real: Any = None
        """A set or frozenset of the keys that went through the same changes, whose order is that of
        the set; None before the first.
        """

    @classmethod
    def existing(cls, machine: Machine, object: Any, source: Source) -> SetValue:
        """The value of a set that exists; its members are guarded together."""
        machine.guard(GuardKind.SET_EQUALS, source, frozenset(object))
        value = cls(type(object), object=object, source=source)
        value.members = {member: machine.new(member) for member in object}
        for member in value.members.values():
            machine.keys.note(member, is_known=True)
        return value

    @classmethod
    def of(
        cls, machine: Machine, kind: type, members: Sequence[Value], real: Any = None
    ) -> SetValue:
        """A new set, its members in the order in which it iterates; `real` is a set that C made of
        what stands for them.
        """
        value = cls(kind)
        value._fill(machine, members, real)
        return value

    def _fill(self, machine: Machine, members: Sequence[Value], real: Any) -> None:
        self.members = {machine.hash_key(member): member for member in members}
        self._in_order = True
        is_of_keys = real is not None and all(map(operator.is_, self.members, real))
        self._real = real if is_of_keys else None

    def real_constants(self, *, to_change: bool) -> Any:
        """The real set, where every member is a constant; None otherwise, and where only the order
        of its members is known. A set of the program's own is none `to_change`. Operations ask for
        the table itself: two sets that are equal and iterate in the same order may give results
        that iterate in different ones.
        """
        real = self._real
        if real is None and self.object is not MISSING and not self.changed and not to_change:
            real = self.object
        if type(real) is not self.cls or self.cls not in (set, frozenset):
            return None
        is_constant = all(
            type(member) is ConstantValue and member.value is key
            for key, member in self.members.items()
        )
        return real if is_constant else None

    def in_order(self) -> list[Value]:
        """The members in the order in which the set iterates."""
        if not self._in_order:
            self.members = {key: self.members[key] for key in self._order()}
            self._in_order = True
        return list(self.members.values())

    def _order(self) -> Any:
        """The real set that is changed as this one is."""
        if self._real is None:
            self._real = set(iter(self.members))
        return self._real

    def add(self, machine: Machine, member: Value) -> None:
        """Put a member in."""
        self._change(machine)
        key = machine.hash_key(member)
        self._order().add(key)
        self.members.setdefault(key, member)
        self._in_order = False

    def update(self, machine: Machine, added: Value) -> None:
        """Put the members of an iterable in. Those of a set or a constant go in all at once, into a
        table made for all of them, whose order is another than where each is added.
        """
        members = machine.items(added)
        keys = {machine.hash_key(member) for member in members}
        if isinstance(added, SetValue):
            self._order().update(added._order())
        elif isinstance(added, ConstantValue) and keys == added.constant():
            self._order().update(added.constant())
        for member in members:
            self.add(machine, member)

    def discard(self, machine: Machine, member: Value) -> bool:
        """Take a member out; False when it is absent."""
        self._change(machine)
        key = machine.hash_key(member)
        self._order().discard(key)
        return self.members.pop(key, None) is not None

    def replace(self, machine: Machine, members: Sequence[Value], real: Any = None) -> None:
        """Make `members` the whole content of the set; `real` as in `of`."""
        self._change(machine)
        self._fill(machine, members, real)

    def _change(self, machine: Machine) -> None:
        machine.record_mutation(self)
        self.changed = True

    def constant(self) -> Any:
        if not issubclass(self.cls, frozenset):
            return super().constant()
        return frozenset(member.constant() for member in self.members.values())

    def to_python(self) -> Any:
        kind = frozenset if issubclass(self.cls, frozenset) else set
        return kind(member.to_python() for member in self.members.values())

    def key(self) -> Hashable:
        if issubclass(self.cls, frozenset):
            return frozenset(self.members)
        raise TypeError(f"unhashable type: {self.cls.__name__!r}")

    def parts(self) -> Sequence[Value]:
        return [*self.members.values(), *super().parts()]

    def rebuild(self, code: Rebuilder) -> None:
        if self.cls is set:
            code.call(set)
        elif issubclass(self.cls, frozenset):
            code.call(self.cls, list(self.members.values()))
        else:
            code.call(set.__new__, self.cls)
