"""Handlers of iterators: `iter`, `next`, the iterators of the built-in containers, `zip` and its
like, the iterators of itertools that are written in C, and generators.

Each says how it is made again at its present position, so that it outlives a graph break.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from fusewright.capture import reasons
from fusewright.capture.handlers.registry import DECLINED, handles, polyfill
from fusewright.capture.values.base import Machine, TracedError, Value, evaluate
from fusewright.capture.values.classes import ClassValue
from fusewright.capture.values.constant import NONE, ConstantValue, is_none
from fusewright.capture.values.iterators import (
    GENERATOR,
    GeneratorValue,
    InterpretedIteratorValue,
    IteratorValue,
    Outdating,
    Remaking,
    chain_again,
    cycle_again,
    iterator_at,
    outdated_iterator,
    rest_of,
    reverse_iterator_at,
    set_iterator_at,
    zip_strictly,
)
from fusewright.capture.values.sequences import DequeValue, ListValue, SequenceValue
from fusewright.capture.values.sets import SetValue
from fusewright.capture.values.views import VIEW_TYPES, DictViewValue
from fusewright.errors import Unsupported

# -- iter, next -----------------------------------------------------------------------------------


@handles(iter)
def iterate(machine: Machine, value: Value, *sentinel: Value) -> Value:
    if not sentinel:
        return machine.iterate(value)
    (last,) = sentinel

    def advance(machine: Machine) -> Value | None:
        try:
            item = machine.call(value, [])
        except TracedError as error:
            if error.is_caught_as(StopIteration):
                return None
            raise
        return None if machine.equal(item, last) else item

    return IteratorValue(advance, type(iter(int, 1)), lambda: (iter, [value, last]))


@handles(next)
def next_item(machine: Machine, iterator: Value, *default: Value) -> Value:
    if isinstance(iterator, InterpretedIteratorValue) and not default:
        return iterator.step(machine)
    item = machine.next(iterator)
    if item is not None:
        return item
    if default:
        return default[0]
    if isinstance(iterator, GeneratorValue):
        iterator.stop(machine)
    machine.raise_error(StopIteration)


# -- iterators of iterators -----------------------------------------------------------------------


@handles(enumerate)
def enumerated(machine: Machine, iterable: Value, start: Value | None = None) -> Value:
    iterator = machine.iterate(iterable)
    number = 0 if start is None else start.constant()

    def advance(machine: Machine) -> Value | None:
        nonlocal number
        item = machine.next(iterator)
        if item is None:
            return None
        number += 1
        return machine.new_tuple([ConstantValue(number - 1), item])

    def remake() -> Remaking:
        return enumerate, [iterator, ConstantValue(number)]

    return IteratorValue(advance, enumerate, remake, stays_at_end=False)


@handles(zip)
def zipped(machine: Machine, *iterables: Value, strict: Value | None = None) -> Value:
    iterators = [machine.iterate(iterable) for iterable in iterables]
    is_strict = strict is not None and machine.truth(strict)

    def advance(machine: Machine) -> Value | None:
        row: list[Value] = []
        for iterator in iterators:
            item = machine.next(iterator)
            if item is None:
                if is_strict:
                    _check_equally_long(machine, iterators, len(row))
                return None
            row.append(item)
        return machine.new_tuple(row) if row else None

    def remake() -> Remaking:
        return zip_strictly if is_strict else zip, iterators

    return IteratorValue(advance, zip, remake, stays_at_end=False)


def _check_equally_long(machine: Machine, iterators: list[Value], ended: int) -> None:
    """Raise when not all iterators are at their end as the one at index `ended` is."""
    others = "argument 1" if ended < 2 else f"arguments 1-{ended}"
    if ended:
        machine.raise_error(ValueError, f"zip() argument {ended + 1} is shorter than {others}")
    for index, iterator in enumerate(iterators[1:], start=1):
        if machine.next(iterator) is not None:
            others = "argument 1" if index < 2 else f"arguments 1-{index}"
            machine.raise_error(ValueError, f"zip() argument {index + 1} is longer than {others}")


@handles(map)
def mapped(machine: Machine, function: Value, *iterables: Value) -> Value:
    iterators = [machine.iterate(iterable) for iterable in iterables]

    def advance(machine: Machine) -> Value | None:
        arguments: list[Value] = []
        for iterator in iterators:
            item = machine.next(iterator)
            if item is None:
                return None
            arguments.append(item)
        return machine.call(function, arguments)

    def remake() -> Remaking:
        return map, [function, *iterators]

    return IteratorValue(advance, map, remake, stays_at_end=False)


@handles(filter)
def filtered(machine: Machine, function: Value, iterable: Value) -> Value:
    return _kept(machine, function, iterable, filter, truth=True)


@handles(itertools.filterfalse)
def filtered_false(machine: Machine, function: Value, iterable: Value) -> Value:
    return _kept(machine, function, iterable, itertools.filterfalse, truth=False)


def _kept(machine: Machine, function: Value, iterable: Value, kind: type, *, truth: bool) -> Value:
    """The items for which a function's answer, or their own truth, is as wanted."""
    iterator = machine.iterate(iterable)

    def advance(machine: Machine) -> Value | None:
        while (item := machine.next(iterator)) is not None:
            answer = item if is_none(function) else machine.call(function, [item])
            if machine.truth(answer) is truth:
                return item
        return None

    def remake() -> Remaking:
        return kind, [function, iterator]

    return IteratorValue(advance, kind, remake, stays_at_end=False)


@handles(reversed)
def reverse(machine: Machine, value: Value) -> Value:
    if isinstance(value, ConstantValue):
        return _reversed_sequence(machine, value)
    method = machine.special(value, "__reversed__")
    if method is not None:
        return machine.call(method, [])
    if machine.special(value, "__getitem__") is None:
        cls = value.python_type().__name__
        machine.raise_error(TypeError, f"{cls!r} object is not reversible")
    return _reversed_sequence(machine, value)


@handles(list.__reversed__)
def reverse_list(machine: Machine, value: ListValue) -> Value:
    return IteratorValue.backwards(value, value.size - 1)


@handles(collections.deque.__reversed__)
def reverse_deque(machine: Machine, value: Value) -> Any:
    return IteratorValue.over_reversed_deque(value) if isinstance(value, DequeValue) else DECLINED


@handles(reverse_iterator_at)
def reverse_at(machine: Machine, value: Value, position: Value) -> Value:
    """An iterator backwards over a tuple or text, after some items."""
    return _reversed_sequence(machine, value, position.constant())


def _reversed_sequence(machine: Machine, value: Value, position: int = 0) -> Value:
    """An iterator backwards over what has a length and items at indices."""
    kind: type = reversed
    if isinstance(value, ConstantValue):
        kind = type(evaluate(machine, reversed, value.value))
    size = machine.length(value)

    def item(machine: Machine, position: int) -> Value | None:
        if position >= size:
            return None
        return machine.get_item(value, ConstantValue(size - 1 - position))

    return IteratorValue.of_container(value, item, kind, reverse_iterator_at, position)


# -- the built-in containers ----------------------------------------------------------------------


@handles(list.__iter__, tuple.__iter__, collections.deque.__iter__)
def iterate_sequence(machine: Machine, value: Value) -> Any:
    return IteratorValue.over_sequence(value) if isinstance(value, SequenceValue) else DECLINED


@handles(dict.__iter__, collections.OrderedDict.__iter__)
def iterate_mapping(machine: Machine, mapping: Any) -> Value:
    return _over_mapping(machine, mapping, mapping, mapping.keys(machine), iter)


@handles(dict.__reversed__, collections.OrderedDict.__reversed__)
def reverse_mapping(machine: Machine, mapping: Any) -> Value:
    return _over_mapping(machine, mapping, mapping, mapping.keys(machine), reversed)


@handles(*[cls.__iter__ for cls in VIEW_TYPES.values()])
def iterate_view(machine: Machine, view: Value) -> Any:
    if not isinstance(view, DictViewValue):
        return DECLINED  # that of an ordered dict as of a plain one
    return _over_mapping(machine, view, view.mapping, view.items(machine), iter)


@handles(*[cls.__reversed__ for cls in VIEW_TYPES.values()])
def reverse_view(machine: Machine, view: Value) -> Any:
    if not isinstance(view, DictViewValue):
        return DECLINED  # that of an ordered dict as of a plain one
    return _over_mapping(machine, view, view.mapping, view.items(machine), reversed)


def _over_mapping(
    machine: Machine, container: Value, mapping: Any, content: list[Value], direction: Any
) -> Value:
    """An iterator over a dict or a view of it, which must keep its size meanwhile."""
    size = len(content)
    items = content[::-1] if direction is reversed else list(content)

    def item(machine: Machine, position: int) -> Value | None:
        return items[position] if position < size else None

    is_ordered = issubclass(mapping.python_type(), collections.OrderedDict)
    view = container.kind if isinstance(container, DictViewValue) else None
    outdated = functools.partial(
        outdated_iterator, collections.OrderedDict if is_ordered else dict, view, direction
    )
    outdating = Outdating(lambda: mapping.size(machine) != size, outdated)
    restore = reverse_iterator_at if direction is reversed else iterator_at
    return IteratorValue.of_container(
        container, item, type(outdated()), restore, outdating=outdating
    )


@handles(set.__iter__, frozenset.__iter__)
def iterate_set(machine: Machine, value: SetValue) -> Value:
    items = value.in_order()
    position = 0
    outdated = functools.partial(outdated_iterator, set, None, iter)

    def advance(machine: Machine) -> Value | None:
        nonlocal position
        if len(value.members) != len(items):
            evaluate(machine, next, outdated())
        position += 1
        return items[position - 1] if position <= len(items) else None

    def remake() -> Remaking:
        if len(value.members) != len(items):
            return outdated, []
        return set_iterator_at, [value, ConstantValue(position), *items[position:]]

    return IteratorValue(advance, type(iter(set())), remake)


# -- itertools ------------------------------------------------------------------------------------


@handles(itertools.chain)
def chain(machine: Machine, *iterables: Value) -> Value:
    return _chained(machine, IteratorValue.over(iterables))


@handles(vars(itertools.chain)["from_iterable"])
def chain_from_iterable(machine: Machine, cls: Value, iterables: Value) -> Value:
    return _chained(machine, machine.iterate(iterables))


@handles(chain_again)
def _chained(machine: Machine, outer: Value, *started: Value) -> Value:
    """The iterables in `outer`, after what is left of one that was begun."""
    active = list(started)
    is_open = True
    """Whether more may come. What the iterables raise, or one that is none, ends the chain."""

    def advance(machine: Machine) -> Value | None:
        nonlocal is_open
        while is_open:
            if not active:
                is_open = False
                iterable = machine.next(outer)
                if iterable is None:
                    break
                active.append(machine.iterate(iterable))
                is_open = True
            item = machine.next(active[0])
            if item is not None:
                return item
            active.clear()
        return None

    def remake() -> Remaking:
        return (chain_again, [outer, *active]) if is_open else (itertools.chain, [])

    return IteratorValue(advance, itertools.chain, remake, stays_at_end=False)


@handles(itertools.repeat)
def repeat(machine: Machine, object: Value, times: Value | None = None) -> Value:
    left = None if times is None else max(times.constant(), 0)

    def advance(machine: Machine) -> Value | None:
        nonlocal left
        if left == 0:
            return None
        left = left and left - 1
        return object

    def remake() -> Remaking:
        return itertools.repeat, [object] if left is None else [object, ConstantValue(left)]

    return IteratorValue(advance, itertools.repeat, remake)


@handles(itertools.count)
def count(machine: Machine, start: Value | None = None, step: Value | None = None) -> Value:
    number: Value = ConstantValue(0) if start is None else start
    by: Value = ConstantValue(1) if step is None else step

    def advance(machine: Machine) -> Value | None:
        nonlocal number
        item, number = number, machine.binary("add", number, by)
        return item

    return IteratorValue(advance, itertools.count, lambda: (itertools.count, [number, by]))


@handles(itertools.cycle)
def cycle(machine: Machine, iterable: Value) -> Value:
    iterator = machine.iterate(iterable)
    saved: list[Value] = []
    position = -1
    """The position in `saved` of a further round; -1 in the first, which reads the iterator."""

    def advance(machine: Machine) -> Value | None:
        nonlocal position
        if position < 0:
            item = machine.next(iterator)
            if item is not None:
                saved.append(item)
                return item
        if not saved:
            return None
        position = max(position, 0)
        item = saved[position]
        position = (position + 1) % len(saved)
        return item

    def remake() -> Remaking:
        if position < 0:
            return cycle_again, [iterator, *saved]
        return itertools.cycle, [machine.new_tuple(saved[position:] + saved[:position])]

    return IteratorValue(advance, itertools.cycle, remake)


@handles(itertools.islice)
def slice_iterator(machine: Machine, iterable: Value, *bounds: Value) -> Value:
    constants = [bound.constant() for bound in bounds]
    evaluate(machine, itertools.islice, (), *constants)
    span = slice(*constants)
    start, stop, step = span.start or 0, span.stop, span.step or 1
    iterator = machine.iterate(iterable)
    position = 0
    is_open = True
    """Whether more may come. What the iterator raises ends the slice."""

    def advance(machine: Machine) -> Value | None:
        nonlocal position, start, is_open
        if not is_open:
            return None
        is_open = False
        while position < start:
            position += 1
            if machine.next(iterator) is None:
                return None
        if stop is not None and position >= stop:
            return None
        position += 1
        start = start + step if stop is None else min(start + step, stop)
        item = machine.next(iterator)
        is_open = item is not None
        return item

    def remake() -> Remaking:
        if not is_open:
            return itertools.islice, [machine.new(()), ConstantValue(0)]
        end = None if stop is None else max(stop - position, 0)
        rest = [ConstantValue(item) for item in (max(start - position, 0), end, step)]
        return itertools.islice, [iterator, *rest]

    return IteratorValue(advance, itertools.islice, remake, stays_at_end=False)


def _arranging(function: Any) -> Any:
    """A handler of a class that only arranges what it is given."""

    def arrange(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
        pools = [_pool(machine, argument) for argument in arguments]
        named = {name: _pool(machine, argument) for name, argument in keywords.items()}
        rows = evaluate(machine, function, *pools, **named)
        left = (machine.new_tuple(row) for row in rows)

        def remake() -> Remaking:
            nonlocal left
            rows = list(left)
            left = (row for row in rows)
            return rest_of, rows

        return IteratorValue(lambda machine: next(left, None), function, remake)

    return arrange


def _pool(machine: Machine, argument: Value) -> Any:
    """The items to arrange, or how many of them."""
    is_number = isinstance(argument, ConstantValue) and argument.python_type() in (int, type(None))
    return argument.constant() if is_number else machine.items(argument)


for _function in (
    itertools.product,
    itertools.permutations,
    itertools.combinations,
    itertools.combinations_with_replacement,
):
    handles(_function)(_arranging(_function))


@polyfill(itertools.groupby)
def group_by(iterable: Iterable[Any], key: Any = None) -> Iterator[tuple[Any, Iterator[Any]]]:
    iterator = iter(iterable)
    item, item_key = _ABSENT, _ABSENT

    def advance() -> None:
        nonlocal item, item_key
        item = next(iterator, _ABSENT)
        if item is not _ABSENT:
            item_key = item if key is None else key(item)

    def members(group_key: Any) -> Iterator[Any]:
        while item is not _ABSENT and (group_key is item_key or group_key == item_key):
            yield item
            advance()

    advance()
    while item is not _ABSENT:
        group = members(item_key)
        yield item_key, group
        for _ in group:
            pass  # what the caller has left of the group


@polyfill(itertools.tee)
def tee(iterable: Iterable[Any], n: int = 2, /) -> tuple[Iterator[Any], ...]:
    if n < 0:
        raise ValueError("n must be >= 0")
    iterator = iter(iterable)

    def branch(link: list[Any]) -> Iterator[Any]:
        """Follow a list of an item and the next such list, made by the branch that is ahead."""
        while True:
            if not link:
                item = next(iterator, _ABSENT)
                if item is _ABSENT:
                    return
                link += (item, [])
            yield link[0]
            link = link[1]

    first: list[Any] = []
    return tuple([branch(first) for _ in range(n)])


_ABSENT = object()


# -- iterators written in C -----------------------------------------------------------------------

_REVERSIBLE: Final[tuple[Any, ...]] = ([], {}, {}.values(), {}.items())
_EXAMPLES: Final[tuple[Any, ...]] = (
    *(iter(example) for example in (*_REVERSIBLE, (), set(), "", b"", range(0))),
    *(reversed(example) for example in _REVERSIBLE),
    iter(collections.OrderedDict()),
    iter(int, 0),
    iter(collections.deque()),
)
ITERATORS: Final[tuple[Any, ...]] = (
    *(type(example) for example in _EXAMPLES),
    *(zip, map, filter, enumerate, reversed),
    *(cls for cls in vars(itertools).values() if hasattr(cls, "__next__")),
)
"""The classes of iterators that are written in C."""


@handles(*[cls.__next__ for cls in ITERATORS])
def iterator_next(machine: Machine, iterator: Value) -> Any:
    if isinstance(iterator, IteratorValue):
        return next_item(machine, iterator)
    raise _refusal(machine, iterator)


def _refusal(machine: Machine, iterator: Value) -> Unsupported:
    name = iterator.python_type().__name__
    return machine.unsupported(reasons.EXISTING_ITERATOR, iterator=name)


@handles(*[cls.__iter__ for cls in ITERATORS])
def iterator_itself(machine: Machine, iterator: Value) -> Value:
    return iterator


# -- generators made while tracing -----------------------------------------------------------------


@handles(GENERATOR.__next__)
def generator_next(machine: Machine, generator: Value) -> Any:
    return generator_send(machine, generator, NONE)


@handles(GENERATOR.__iter__)
def generator_iter(machine: Machine, generator: Value) -> Value:
    return generator


@handles(GENERATOR.send)
def generator_send(machine: Machine, generator: Value, sent: Value) -> Any:
    if not isinstance(generator, GeneratorValue):
        raise _refusal(machine, generator)
    item = generator.frame.resume(sent)
    return generator.stop(machine) if item is None else item


@handles(GENERATOR.throw)
def generator_throw(machine: Machine, generator: Value, raised: Value, *rest: Value) -> Any:
    if not isinstance(generator, GeneratorValue):
        return DECLINED
    value = rest[0] if rest and isinstance(raised, ClassValue) else raised
    if isinstance(value, ClassValue):
        value = machine.call(value, [])
    item = generator.frame.throw(TracedError(value))
    return generator.stop(machine) if item is None else item


@handles(GENERATOR.close)
def generator_close(machine: Machine, generator: Value) -> Any:
    if not isinstance(generator, GeneratorValue):
        return DECLINED
    generator.frame.close()
    return None
