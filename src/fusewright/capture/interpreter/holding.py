"""Whether the traced program still holds an object that it made."""

from __future__ import annotations

from collections.abc import Iterator

from fusewright.capture.interpreter.frame import SavedException
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.references import ReferenceValue


def is_held(machine: Machine, value: Value) -> bool:
    """Whether a variable or the stack of a frame leads to a value, or what was put into an existing
    object does; not through weak references.
    """
    visited: set[int] = set()
    pending = list(_roots(machine))
    while pending:
        part = pending.pop()
        if part is value:
            return True
        if id(part) not in visited and not isinstance(part, ReferenceValue):
            visited.add(id(part))
            pending.extend(part.parts())
    return False


def _roots(machine: Machine) -> Iterator[Value]:
    for frame in machine.frames:
        yield from frame.locals.values()
        yield from frame.cells.values()
        for entry in frame.stack:
            if isinstance(entry, SavedException):
                yield entry.handled
            elif isinstance(entry, Value):
                yield entry
    for owner in machine.mutated.values():
        if isinstance(owner, Value):
            yield owner
        else:
            yield from filter(lambda change: isinstance(change, Value), owner.changes().values())
