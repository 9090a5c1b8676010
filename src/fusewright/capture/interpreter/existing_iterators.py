"""Iterators that exist when capture begins, such as that of a loop which a graph break interrupted:
Python's own are taken apart by `__reduce__`, and captured like those that the program makes itself.

How many items are left is guarded. Where a place is found with iterators in different states, as
when a loop breaks in each round, they are left whole: taking an item then breaks the graph, and one
capture serves all rounds. So are iterators over deques, which do not tell whether their deque has
changed.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeGuard

from fusewright.capture import reasons
from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import ItemSource, ReducedSource, Source
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.iterators import (
    ITERTOOLS_HAVE_PARTS,
    ExistingIteratorValue,
    IteratorValue,
    chain_again,
    reverse_iterator_at,
)
from fusewright.capture.values.mappings import DictValue
from fusewright.capture.values.sequences import SequenceValue
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.views import VIEW_TYPES

_SEQUENCES: Final[tuple[Any, ...]] = ([], (), "", "é", b"", range(0), range(1 << 70))
_HASHED: Final[tuple[Any, ...]] = ({}, {}.values(), {}.items(), set())

_OVER_TUPLES: Final[tuple[type, ...]] = (type(iter(())), type(iter([])))

_REVERSIBLE: Final[tuple[Any, ...]] = ({}, {}.values(), {}.items(), collections.OrderedDict())

_OVER_COPIES: Final = (
    *(type(iter(example)) for example in _HASHED),
    *(type(reversed(example)) for example in _REVERSIBLE),
)
"""Iterators that tell what is left as a new list."""

_BACKWARDS: Final[type] = type(reversed([]))
_REVERSED_BY_INDEX: Final = frozenset({tuple, str, bytes})
"""Containers, written in C, that are iterated backwards by their length and their items."""

_DRAWING: Final = (zip, map, filter)
"""Iterators that are nothing but what they draw from, and perhaps a function."""

_OVER_CONTAINERS: Final = frozenset(
    {
        *(type(iter(example)) for example in _SEQUENCES),
        *_OVER_COPIES,
        _BACKWARDS,
        reversed,
    }
)

_OF_ITERTOOLS: Final = (itertools.chain, itertools.islice, itertools.repeat, itertools.count)

TYPES: Final[frozenset[type]] = _OVER_CONTAINERS | {
    enumerate,
    *_DRAWING,
    *(_OF_ITERTOOLS if ITERTOOLS_HAVE_PARTS else ()),
}
"""The classes of the iterators that can be taken apart."""

_MOVING_OTHERS: Final = (enumerate, itertools.chain, itertools.islice)
"""Iterators that are more than what they draw from, which they alone move on."""

_CHAINED: Final = frozenset(
    {list, tuple, dict, set, frozenset, str, bytes, range, collections.deque, *VIEW_TYPES.values()}
)
"""Classes whose objects a chain may yet come to: moving it on runs no code of the program."""


def wrap_iterator(machine: Machine, iterator: Any, source: Source) -> Value:
    """The value of an existing iterator of one of `TYPES`."""
    machine.guard(GuardKind.TYPE, source, type(iterator))
    take_apart = functools.partial(_take_apart, machine, source)
    has_state = not isinstance(iterator, _DRAWING)
    return ExistingIteratorValue(iterator, source, take_apart, has_state=has_state)


def _take_apart(
    machine: Machine, source: Source, value: ExistingIteratorValue
) -> IteratorValue | None:
    """An iterator made of the same parts; None for one that has to stay whole."""
    iterator = value.object
    left = _items_left(iterator)
    if left is None or machine.sizes.history.has_changed(source.expression(), left):
        return None
    function, arguments, *state = _parts(iterator)
    reduced = ReducedSource(source)
    machine.guard(GuardKind.LENGTH, reduced, 2 + len(state))
    if isinstance(iterator, itertools.chain):
        return _rechained(machine, iterator, ItemSource(reduced, 2), *state)
    origin = ItemSource(reduced, 1)
    machine.guard(GuardKind.LENGTH, origin, len(arguments))
    values = [machine.wrap(item, ItemSource(origin, i)) for i, item in enumerate(arguments)]
    states = [machine.wrap(item, ItemSource(reduced, i)) for i, item in enumerate(state, 2)]
    if type(iterator) not in _OVER_CONTAINERS:
        outer = iterator if value.has_state else value.outer
        if outer is not None:
            values = [value.taken(outer) if _is_apart(value) else value for value in values]
        if isinstance(iterator, itertools.islice):
            return _resliced(machine, *values, *states)
        keywords = {"strict": states[0]} if states else {}
        return _made_by(machine, function, *values, **keywords)
    state = [value.constant() for value in (*values[1:], *states)]
    return _at_position(machine, iterator, values[0], state)


def _made_by(
    machine: Machine, function: Any, /, *arguments: Value, **keywords: Value
) -> IteratorValue:
    """The iterator that a function of the table makes."""
    iterator = machine.call_object(function, None, list(arguments), keywords)
    assert isinstance(iterator, IteratorValue)
    return iterator


def _rechained(
    machine: Machine, chain: Any, source: Source, inner: tuple[Any, ...] = ()
) -> IteratorValue:
    """A chain of the same iterators: that of its iterables, and of the one which it has begun."""
    if not inner:
        return IteratorValue.over((), itertools.chain)
    machine.guard(GuardKind.LENGTH, source, len(inner))
    values = [machine.wrap(iterator, ItemSource(source, i)) for i, iterator in enumerate(inner)]
    moved = [iterator.taken(chain) if _is_apart(iterator) else iterator for iterator in values]
    chained = _made_by(machine, chain_again, *moved)
    return _unless_changed(machine, chained, (SequenceValue, DictValue, SetValue))


def _resliced(machine: Machine, inner: Value, *bounds: Value) -> IteratorValue:
    """A slice of an iterator that was moved on `bounds[-1]` times since it began."""
    first, *rest, done = [bound.constant() for bound in bounds]
    if not rest:  # at its end
        return IteratorValue.over((), itertools.islice)
    stop, step = rest
    last = None if stop is None else stop - done
    left = [machine.new(bound) for bound in (first - done, last, step)]
    return _made_by(machine, itertools.islice, inner, *left)


def keep_iterators_whole(machine: Machine) -> bool:
    """Have the next captures leave the iterators whole that the program has moved on; whether there
    are any that were not yet to be left so.
    """
    moved = [
        iterator
        for iterator in machine.mutated.values()
        if isinstance(iterator, ExistingIteratorValue)
    ]
    places = [iterator.source.expression() for iterator in moved if iterator.source is not None]
    changed = [machine.sizes.history.has_changed(place, None) for place in places]
    return any(changed)


def _is_apart(value: Value) -> TypeGuard[ExistingIteratorValue]:
    return isinstance(value, ExistingIteratorValue)


def _parts(iterator: Iterator[Any]) -> tuple[Any, ...]:
    """A function, its arguments, and perhaps a state."""
    parts: Any = iterator.__reduce__()
    return parts  # type: ignore[no-any-return]


def _items_left(iterator: Iterator[Any], outer: bool = False) -> tuple[int, ...] | None:
    """The number of items left in an iterator and in each of those that it draws from; None where
    it, or one of those, cannot be taken apart. `outer`: whether another moves it on, which for one
    that calls a function would call it again.
    """
    if type(iterator) not in TYPES or (outer and isinstance(iterator, map | filter)):
        return None
    if isinstance(iterator, reversed) and type(_parts(iterator)[1][0]) not in _REVERSED_BY_INDEX:
        return None
    try:
        if type(iterator) in _OVER_CONTAINERS and not isinstance(iterator, _OVER_COPIES):
            return (operator.length_hint(iterator),)
        _, arguments, *state = _parts(iterator)
    except RuntimeError:  # over a dict that has changed its size
        return None
    if isinstance(iterator, itertools.chain):
        arguments = state[0] if state else ()
        if not all(type(iterable) in _CHAINED for iterable in _yet_to_come(*arguments[:1])):
            return None
    if isinstance(iterator, _OVER_COPIES):
        return (len(arguments[0]),)
    if isinstance(iterator, itertools.count):
        return () if all(type(number) in (int, float) for number in arguments) else None
    if isinstance(iterator, itertools.repeat):
        return tuple(arguments[1:])
    distances: tuple[int, ...] = ()
    if isinstance(iterator, itertools.islice):
        distances = tuple(bound or 0 for bound in (*arguments[1:], *state))
    for argument in filter(_is_iterator, arguments):
        left = _items_left(argument, outer or isinstance(iterator, _MOVING_OTHERS))
        if left is None:
            return None
        distances += left
    return distances


def _yet_to_come(iterator: Iterator[Any] | None = None) -> tuple[Any, ...]:
    """The items that an iterator over a list or tuple will give. Another stands for its items."""
    if iterator is None:
        return ()
    if type(iterator) not in _OVER_TUPLES:
        return (iterator,)
    _, (container,), *state = _parts(iterator)
    return tuple(container[state[0] if state else 0 :])


def _is_iterator(part: Any) -> bool:
    """Whether a part of an iterator is one, and not a function or number."""
    return hasattr(type(part), "__next__")


def _at_position(
    machine: Machine, iterator: Iterator[Any], container: Value, state: list[Any]
) -> IteratorValue:
    """An iterator over a container, or backwards over a list, where a state says. From 3.12 on,
    that of a range is None: the range is what is left.
    """
    position = (state[0] or 0) if state else 0
    if isinstance(iterator, reversed) and state:
        position = machine.length(container) - 1 - position
    if isinstance(iterator, reversed):
        return _made_by(machine, reverse_iterator_at, container, machine.new(position))
    if isinstance(container, SequenceValue):
        if isinstance(iterator, _OVER_COPIES):
            over = IteratorValue.over_sequence(container, position)
            return _unless_changed(machine, over, (DictValue, SetValue))
        backwards = state and isinstance(iterator, _BACKWARDS)
        begin = IteratorValue.backwards if backwards else IteratorValue.over_sequence
        return _unless(
            machine, begin(container, position), lambda: id(container) in machine.mutated
        )
    over_constant = machine.iterate(container)
    assert isinstance(over_constant, IteratorValue)
    for _ in range(position):
        over_constant.advance(machine)
    return over_constant


def _unless_changed(
    machine: Machine, over: IteratorValue, containers: tuple[type[Value], ...]
) -> IteratorValue:
    """`over`, until the program changes one of such containers that exist: that may be the one of
    which this goes through a copy, or through which it is moved on later.
    """
    mutated = machine.mutated
    return _unless(machine, over, lambda: any(isinstance(v, containers) for v in mutated.values()))


def _unless(
    machine: Machine, over: IteratorValue, has_changed: Callable[[], bool]
) -> IteratorValue:
    """`over`, until its container has changed: generated code moves the iterator on before or after
    it makes the changes, and not between.
    """

    def advance(machine: Machine) -> Value | None:
        if has_changed():
            name = over.cls.__name__
            raise machine.unsupported(reasons.EXISTING_ITERATOR, iterator=name)
        return over.advance(machine)

    return IteratorValue(advance, over.cls)
