"""Dicts that are the `__dict__` of an object and that the program reaches by another way too.

A function may be given an object and its `vars()`, objects that share one `__dict__`, or a dict
that is its own `__dict__`. What is written through one is read through the other, so the attributes
are then kept in one place, the value of the dict. Those of a `threading.local` are always kept so.
"""

from __future__ import annotations

from typing import Any

from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import (
    AttributeSource,
    ConstantSource,
    InstanceSource,
    Source,
)
from fusewright.capture.values.base import Machine
from fusewright.capture.values.mappings import DictValue
from fusewright.capture.values.objects import ObjectValue, reads_by_thread


class AttributeDictionaries:
    """The `__dict__` of each existing object whose attributes were looked at."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._owners: dict[int, list[ObjectValue]] = {}
        """Objects by the identity of their `__dict__`, which they keep alive."""

    def shared(self, owner: ObjectValue, dictionary: dict[str, Any]) -> DictValue | None:
        """The value of an object's `__dict__`, if the program has that dict by another way too."""
        owners = self._owners.setdefault(id(dictionary), [])
        if not any(other is owner for other in owners):
            owners.append(owner)
        value = self._machine.known_value(dictionary)
        if value is None and (len(owners) > 1 or reads_by_thread(owner.cls)):
            source = AttributeSource(owner.required_source(self._machine), "__dict__")
            value = self._machine.wrap(dictionary, source)
        if not isinstance(value, DictValue):
            return None
        self._guard_shared(owner, value)
        return value

    def meet(self, dictionary: DictValue) -> None:
        """Tell the objects whose `__dict__` the program now has by another way."""
        for owner in self._owners.get(id(dictionary.object), ()):
            self._guard_shared(owner, dictionary)
            owner.share(self._machine, dictionary)

    def _guard_shared(self, owner: ObjectValue, dictionary: DictValue) -> None:
        source = AttributeSource(owner.required_source(self._machine), "__dict__")
        if source != dictionary.source:
            self._machine.guard(GuardKind.SAME, source, dictionary.source)

    def guard_apart(self, dictionaries: list[DictValue]) -> None:
        """Guard that the dicts which the program was given stay other ones than the `__dict__` of
        the objects that it was given, where it writes to either.
        """
        changed = self._machine.mutated
        inputs = [dictionary for dictionary in dictionaries if _is_given(dictionary.source)]
        owners = [
            owner
            for (owner, *_) in self._owners.values()
            if owner.shared is None and _is_given(owner.source)
        ]
        if not any(id(dictionary) in changed for dictionary in inputs):
            owners = [owner for owner in owners if id(owner) in changed]
        if owners and inputs:
            sources = [
                AttributeSource(owner.required_source(self._machine), "__dict__")
                for owner in owners
            ]
            self._machine.guard(
                GuardKind.DISTINCT, None, (*sources, *(dictionary.source for dictionary in inputs))
            )

    def release(self) -> None:
        """Let go of the objects."""
        self._owners.clear()


def _is_given(source: Source | None) -> bool:
    """Whether something comes from an argument, itself or inside containers: not an attribute."""
    while source is not None and source.base is not None:
        if isinstance(source, InstanceSource | AttributeSource):
            return False
        source = source.base
    return source is not None and not isinstance(source, ConstantSource)
