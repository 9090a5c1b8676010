"""Weak references: existing ones give what they refer to now, new ones the object given."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Sequence
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import ReferentSource, Source
from fusewright.capture.values.base import MISSING, Interpreter, Rebuilder, Value


class ReferenceValue(Value):
    """A `weakref.ref`.

    An existing one is guarded by identity, since it never comes to refer to another object.
    """

    __slots__ = ("object", "referent")

    def __init__(
        self, referent: Value | None, *, object: Any = MISSING, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.referent = referent
        """What a new reference refers to; None for an existing one."""
        self.object = object

    def python_type(self) -> type:
        return weakref.ref

    def real(self) -> Any:
        return self.object

    def key(self) -> Hashable:
        """References to a class are equal when the class is the same."""
        referent = MISSING if self.referent is None else self.referent.real()
        real = self.object if self.referent is None else referent
        if isinstance(referent, type):
            return weakref.ref(referent)
        if isinstance(real, weakref.ref) and isinstance(real(), type):
            return real
        raise NotImplementedError

    def describe(self) -> str:
        return "a weak reference"

    def call(
        self, interpreter: Interpreter, arguments: list[Value], keywords: dict[str, Value]
    ) -> Value:
        if self.referent is not None:
            is_made = self.referent.source is None
            if is_made and not interpreter.is_held(self.referent):
                raise interpreter.unsupported(reasons.NOT_KNOWN, object=self.describe())
            return self.referent
        referent = self.object()
        found = interpreter.known_value(referent)
        if found is None:
            return interpreter.wrap(referent, ReferentSource(self.object))
        if found.source is not None:
            interpreter.guard(GuardKind.IDENTITY, found.source, referent)
        return found

    def parts(self) -> Sequence[Value]:
        return () if self.referent is None else (self.referent,)

    def rebuild(self, code: Rebuilder) -> None:
        assert self.referent is not None, "an existing reference has a source"
        code.call(weakref.ref, self.referent)
