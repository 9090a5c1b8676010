"""The effects of a captured call besides its result: changes to objects that existed before, and
the new objects and tensors that these and its result need.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fusewright.capture.guards import GuardKind
from fusewright.capture.interpreter.machine import Machine
from fusewright.capture.sources import InstanceSource
from fusewright.capture.values.base import MISSING, NotConstant, Value
from fusewright.capture.values.classes import ClassNamespace
from fusewright.capture.values.constant import ConstantValue, is_constant
from fusewright.capture.values.functions import CellValue, Namespace
from fusewright.capture.values.iterators import ExistingIteratorValue, GeneratorValue
from fusewright.capture.values.mappings import DictValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.objects import ObjectValue, instance_dictionary
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.tensors import TensorValue
from fusewright.errors import Location, Unsupported
from fusewright.modes import ModeChange
from fusewright.native import Continuation
from fusewright.records import record


@record
class Write:
    """One change to an existing object, to be made after the graph has run."""

    owner: Any
    """An ObjectValue, CellValue or Namespace."""

    name: str | None
    """The attribute or variable; None for the content of a container or cell."""

    value: Any
    """The new value, MISSING to delete; None for a container, whose content stands in `owner`."""


Recover = Callable[[BaseException, types.FunctionType, tuple[Any, ...]], Continuation | None]
"""(what the graph raised, the function as written, its locals at entry) -> how the call goes on;
None: the exception does.
"""


@record
class SideEffects:
    """The effects of a captured call besides its result."""

    compiled: Callable[..., Any] | None
    """The compiled graph; None when it has nothing to do."""

    outputs: Sequence[TensorValue | SymbolicValue]
    """The values that the graph returns."""

    writes: Sequence[Write]
    calls: Sequence[ModeChange]
    """Calls that draw from Python's random numbers, and that bring the thread's modes to what the
    program made them.
    """

    recover: Recover
    """The function that goes on with the call when the graph raises."""


def pending_writes(machine: Machine) -> list[Write]:
    """The changes to replay. One that changes nothing becomes a guard that it is so."""
    writes: list[Write] = []
    for owner in machine.mutated.values():
        match owner:
            case Namespace() | ClassNamespace():
                writes += [Write(owner, name, value) for name, value in owner.changes().items()]
            case CellValue():
                writes.append(Write(owner, None, owner.contents))
            case ExistingIteratorValue():
                writes.append(Write(owner, None, None))
            case ObjectValue():
                for name, value in owner.changes().items():
                    if not _is_unchanged(machine, owner, name, value):
                        writes.append(Write(owner, name, value))
                if getattr(owner, "changed", False) and not _is_as_before(owner):
                    if isinstance(owner, DictValue) and owner.is_rewritten():
                        owner.entries(machine)
                    writes.append(Write(owner, None, None))
    return writes


def _is_as_before(owner: ObjectValue) -> bool:
    """Whether an existing set or dict holds what it held, though it was written to."""
    match owner:
        case SetValue():
            return owner.members.keys() == set(owner.object)
        case DictValue():
            return owner.is_as_before()
    return False


def _is_unchanged(machine: Machine, owner: ObjectValue, name: str, value: Any) -> bool:
    """Whether writing `value` would leave the object as it was; guarded then."""
    if owner.source is None:
        return False
    dictionary = instance_dictionary(owner.object) or {}
    source = InstanceSource(owner.source, name)
    if value is MISSING:
        if name not in dictionary:
            machine.guard(GuardKind.ABSENT, owner.source, name)
            return True
        return False
    if name not in dictionary:
        return False
    before = dictionary[name]
    if type(value) is ConstantValue and is_constant(before):
        after = value.value
        if type(before) is type(after) and before == after:
            machine.guard(GuardKind.EQUALS, source, before)
            return True
    return bool(value.source == source)


def reachable_outputs(
    machine: Machine, roots: Iterable[Value]
) -> list[TensorValue | SymbolicValue]:
    """The tensors, and the numbers that depend on data, which the graph must return so that `roots`
    can be built, in order.
    """
    return [
        value
        for value in reachable(machine, roots)
        if (isinstance(value, TensorValue) and value.object is MISSING)
        or (isinstance(value, SymbolicValue) and value.is_result)
    ]


@record
class Dropped:
    """An object that the program made and dropped, which runs code then."""

    made_at: int
    """The number of instructions that the outermost frame had executed then."""

    place: Location | None
    what: str


def first_dropped(machine: Machine, roots: Iterable[Value]) -> Dropped | None:
    """The first object that the program made, that runs code when it is dropped, and that generated
    code does not make for `roots`.
    """
    generators = [frame for frame in machine.generators if frame.cleans_up]
    if not generators and not machine.finalizers:
        return None
    reached = list(reachable(machine, roots))
    frames = {id(value.frame) for value in reached if isinstance(value, GeneratorValue)}
    reached_ids = {id(value) for value in reached}
    dropped = [
        Dropped(frame.made_at, frame.place, f"`{frame.code.co_name}`, waiting in `try` or `with`,")
        for frame in generators
        if id(frame) not in frames
    ]
    for finalizer in machine.finalizers:
        if id(finalizer.value) not in reached_ids:
            name = finalizer.value.python_type().__qualname__
            dropped.append(Dropped(finalizer.made_at, finalizer.place, f"an object of `{name}`"))
    return min(dropped, key=lambda dropped: dropped.made_at, default=None)


def first_unmakeable(machine: Machine, roots: Iterable[Value]) -> Value | None:
    """A value without which `roots` cannot be built, and that generated code cannot make."""
    for value in reachable(machine, roots):
        if isinstance(value, TensorValue) and value.object is MISSING:
            if not machine.builder.can_use(value.node):
                return value
            continue
        if value.source is None and not isinstance(value, ConstantValue | TensorValue):
            try:
                value.rebuild(_PROBE)
            except (NotConstant, Unsupported):
                return value
    return None


class _Probe:
    """A Rebuilder that writes nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


_PROBE: Any = _Probe()


def reachable(machine: Machine, roots: Iterable[Value]) -> Iterator[Value]:
    """The values that are built when `roots` are, each once, in order."""
    ids: set[int] = set()
    pending = list(roots)[::-1]
    while pending:
        value = pending.pop()
        if id(value) in ids:
            continue
        ids.add(id(value))
        yield value
        if isinstance(value, TensorValue) or value.source is None or _is_changed(value):
            pending.extend(reversed(value.parts()))
        pending += machine.classes.needed_recipes(value)


def written_values(writes: Sequence[Write]) -> Iterator[Value]:
    """The values that are written, and those that make up the new content of containers."""
    for write in writes:
        if isinstance(write.value, Value):
            yield write.value
        elif write.value is None and isinstance(write.owner, Value):
            yield from write.owner.parts()


def _is_changed(value: Value) -> bool:
    return bool(getattr(value, "changed", False) or getattr(value, "written", None))
