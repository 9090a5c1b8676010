"""Weak references: existing ones give what they refer to now, new ones the object given."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import ReferentSource, Source
from fusewright.capture.values.base import MISSING, Machine, Rebuilder, Value, overrides_object


class ReferenceValue(Value):
    """A `weakref.ref`.

    An existing one is guarded by identity, since it never comes to refer to another object.
    """

    __slots__ = ("callback", "object", "referent")

    def __init__(
        self,
        referent: Value | None,
        callback: Value | None = None,
        *,
        object: Any = MISSING,
        source: Source | None = None,
    ) -> None:
        super().__init__(source)
        self.referent = referent
        """The object that a new reference refers to; None for an existing one."""
        self.callback = callback
        """The function that a new reference calls when its referent is gone."""
        self.object = object

    def python_type(self) -> type:
        return weakref.ref

    def real(self) -> Any:
        return self.object

    def key(self) -> Hashable:
        """References to what equals itself alone are equal where that is the same object."""
        referent = self.object() if self.referent is None else self.referent.real()
        if referent is MISSING or not _equals_itself_alone(referent):
            raise NotImplementedError
        return weakref.ref(referent) if self.referent is not None else self.object

    def describe(self) -> str:
        return "a weak reference"

    def call(self, machine: Machine, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        if self.referent is not None:
            is_made = self.referent.source is None
            if is_made and not machine.is_held(self.referent):
                raise machine.unsupported(reasons.NOT_KNOWN, object=self.describe())
            return self.referent
        referent = self.object()
        value = machine.known_value(referent)
        if value is None:
            return machine.wrap(referent, ReferentSource(self.object))
        if value.source is not None:
            machine.guard(GuardKind.IDENTITY, value.source, referent)
        return value

    def is_made_again_as(self, machine: Machine, other: ReferenceValue) -> bool:
        """`self is other` where one is new: an object has one reference without a callback, which
        each call of `weakref.ref` gives.
        """
        if self.has_callback or other.has_callback:
            return False
        return machine.identical(self.call(machine, [], {}), other.call(machine, [], {}))

    @property
    def is_new(self) -> bool:
        """Whether the traced program has made it."""
        return self.referent is not None

    @property
    def has_callback(self) -> bool:
        """Whether a function is called when the referent is gone."""
        return self.callback is not None or getattr(self.object, "__callback__", None) is not None

    def parts(self) -> Sequence[Value]:
        return [part for part in (self.referent, self.callback) if part is not None]

    def rebuild(self, code: Rebuilder) -> None:
        assert self.referent is not None, "an existing reference has a source"
        code.call(weakref.ref, *self.parts())


def _equals_itself_alone(referent: Any) -> bool:
    cls = type(referent)
    if issubclass(cls, type):
        return cls.__hash__ is type.__hash__ and cls.__eq__ is type.__eq__
    return not (overrides_object(cls, "__hash__") or overrides_object(cls, "__eq__"))
