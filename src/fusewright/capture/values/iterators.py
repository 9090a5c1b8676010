"""Iterators: over sequences, over ranges of constants, driven by a Python function, and
generators.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from fusewright.capture import reasons
from fusewright.capture.sources import Source
from fusewright.capture.values.base import (
    Machine,
    NotConstant,
    Rebuilder,
    TracedError,
    Value,
    evaluate,
)
from fusewright.capture.values.constant import ConstantValue, is_none
from fusewright.capture.values.objects import ExceptionValue, ObjectValue
from fusewright.capture.values.sequences import DequeValue, SequenceValue, sequence_base
from fusewright.records import record

LIST_ITERATOR: Final[type] = type(iter([]))
SEQUENCE_ITERATOR: Final[type] = type(iter(type("_", (), {"__getitem__": None})()))
"""The iterator of an object that has `__getitem__` and no `__iter__`."""

GENERATOR: Final = types.GeneratorType

_TOLD_AT_END: Final[tuple[type, ...]] = (
    type(iter(collections.deque())),
    type(reversed(collections.deque())),
)
"""Iterators that raise for a container that has changed even after their last item."""

_Item = Callable[[Machine, int], Value | None]
"""Gives the item at a position, or None past the last."""


Remaking = tuple[Callable[..., Any], Sequence[Value]]
"""A function known now and what it is called with: the result is an iterator as it is now."""


@record
class Outdating:
    """The end of an iterator whose container changes, in its size or at all, while it is gone
    through.
    """

    has_changed: Callable[[], bool]
    iterator: Callable[[], Iterator[Any]]
    """Makes an iterator of the same kind whose container has changed: its next item is the error
    that Python raises.
    """

    @staticmethod
    def of_deque(deque: DequeValue, direction: Callable[[Any], Iterator[Any]]) -> Outdating:
        """The outdating of an iterator over a deque, which survives no change."""
        times_changed = deque.times_changed
        iterator = functools.partial(outdated_iterator, collections.deque, None, direction)
        return Outdating(lambda: deque.times_changed != times_changed, iterator)


class IteratorValue(Value):
    """An iterator made while tracing, at its present position."""

    __slots__ = ("_advance", "_remake", "cls", "finished", "stays_at_end")

    def __init__(
        self,
        advance: Callable[[Machine], Value | None],
        cls: type = LIST_ITERATOR,
        remake: Callable[[], Remaking] | None = None,
        *,
        stays_at_end: bool = True,
    ) -> None:
        """`advance` gives the next item, or None at the end; it is not called again then, unless
        the iterator asks those that it draws from again (`stays_at_end` is False).

        `remake` says how generated code makes the iterator again at the position where it is.
        """
        super().__init__(None)
        self._advance = advance
        self._remake = remake
        self.cls = cls
        self.finished = False
        self.stays_at_end = stays_at_end

    @classmethod
    def over(cls, items: Sequence[Value], kind: type = LIST_ITERATOR) -> IteratorValue:
        """An iterator over values that are all at hand; the sequence may grow meanwhile."""
        position = 0

        def advance(machine: Machine) -> Value | None:
            nonlocal position
            position += 1
            return items[position - 1] if position <= len(items) else None

        return cls(advance, kind, lambda: (rest_of, items[position:]))

    @classmethod
    def of_container(
        cls,
        container: Value,
        item: _Item,
        kind: type,
        restore: Callable[[Any, int], Any],
        position: int = 0,
        outdating: Outdating | None = None,
    ) -> IteratorValue:
        """An iterator that holds on to its container and counts: `item` gives the item at a
        position or None past the last, `restore` makes the iterator at a position for real.
        """

        def advance(machine: Machine) -> Value | None:
            nonlocal position
            if outdating is not None and outdating.has_changed():
                evaluate(machine, next, outdating.iterator())
            value = item(machine, position)
            position += value is not None
            return value

        def remake() -> Remaking:
            if outdating is not None and outdating.has_changed():
                return outdating.iterator, []
            return restore, [container, ConstantValue(position)]

        return cls(advance, kind, remake, stays_at_end=kind not in _TOLD_AT_END)

    @classmethod
    def over_sequence(cls, sequence: SequenceValue, position: int = 0) -> IteratorValue:
        """An iterator over a list, which may grow meanwhile, a tuple or a deque."""

        def item(machine: Machine, position: int) -> Value | None:
            return sequence.item(machine, position) if position < sequence.size else None

        kind = type(iter(sequence_base(sequence.cls)()))
        if not isinstance(sequence, DequeValue):
            return cls.of_container(sequence, item, kind, iterator_at, position)
        outdating = Outdating.of_deque(sequence, iter)
        return cls.of_container(sequence, item, kind, iterator_at, outdating=outdating)

    @classmethod
    def over_reversed_deque(cls, deque: DequeValue) -> IteratorValue:
        """An iterator backwards over a deque."""

        def item(machine: Machine, position: int) -> Value | None:
            last = deque.size - 1 - position
            return deque.item(machine, last) if last >= 0 else None

        kind: type = type(reversed(collections.deque()))
        outdating = Outdating.of_deque(deque, reversed)
        return cls.of_container(deque, item, kind, reverse_iterator_at, outdating=outdating)

    @classmethod
    def backwards(cls, sequence: SequenceValue, index: int) -> IteratorValue:
        """An iterator backwards over a list, at an index."""

        def advance(machine: Machine) -> Value | None:
            nonlocal index
            if not 0 <= index < sequence.size:
                return None
            index -= 1
            return sequence.item(machine, index + 1)

        kind: type = type(reversed([]))
        return cls(
            advance, kind, lambda: (list_reverse_iterator_at, [sequence, ConstantValue(index)])
        )

    def python_type(self) -> type:
        return self.cls

    def advance(self, machine: Machine) -> Value | None:
        """The next item, or None at the end."""
        if self.finished:
            return None
        item = self._advance(machine)
        self.finished = item is None and self.stays_at_end
        return item

    def _remade(self) -> Remaking:
        if self.finished:
            return (rest_of, ())
        if self._remake is None:
            raise NotConstant(self)
        return self._remake()

    def parts(self) -> Sequence[Value]:
        return () if self._remake is None else self._remade()[1]

    def rebuild(self, code: Rebuilder) -> None:
        function, operands = self._remade()
        for operand in operands:
            code.complete(operand)
        code.call(function, *operands)


class InterpretedIteratorValue(IteratorValue):
    """An iterator of a class written in C, for which one written in Python is interpreted: `state`
    is an object of that, with nothing but its `__slots__`.
    """

    __slots__ = ("state",)

    def __init__(self, cls: type, state: ObjectValue) -> None:
        advance = functools.partial(_item_or_none, state)
        super().__init__(advance, cls, functools.partial(_restoring, state), stays_at_end=False)
        self.state = state

    def step(self, machine: Machine) -> Value:
        """The next item; at the end StopIteration is raised."""
        return _call_next(self.state, machine)


def _call_next(state: ObjectValue, machine: Machine) -> Value:
    return machine.call_object(vars(state.cls)["__next__"], None, [state], {})


def _item_or_none(state: ObjectValue, machine: Machine) -> Value | None:
    try:
        return _call_next(state, machine)
    except TracedError as error:
        if error.is_caught_as(StopIteration):
            return None
        raise


def _restoring(state: ObjectValue) -> Remaking:
    cls: Any = state.cls
    return cls.restored, [state.known[name] for name in cls.__slots__]


class ExistingIteratorValue(IteratorValue):
    """An iterator of Python's own that exists. Where the program has moved it on, generated code
    does so too, when the graph has run.
    """

    __slots__ = ("_apart", "_take_apart", "has_state", "object", "outer", "steps")

    def __init__(
        self,
        iterator: Any,
        source: Source,
        take_apart: Callable[[ExistingIteratorValue], IteratorValue | None],
        *,
        has_state: bool,
    ) -> None:
        """`take_apart` gives one of the same parts, or None where it has to stay whole; called when
        the program first takes an item. `has_state`: whether it is more than the iterators that it
        draws from, which are moved on themselves.
        """
        super().__init__(self._next, type(iterator))
        self.source = source
        self.object = iterator
        self._take_apart = take_apart
        self._apart: IteratorValue | None = None
        self.has_state = has_state
        self.steps = 0
        """The number of times that the program has moved it on."""
        self.outer: Any = None
        """The iterator that alone moves it on, such as one that enumerates it."""

    def real(self) -> Any:
        return self.object

    def advance(self, machine: Machine) -> Value | None:
        if self.outer is not None:
            raise NotConstant(self)
        if self.has_state:
            machine.record_mutation(self)
            self.steps += 1
        return super().advance(machine)

    def _next(self, machine: Machine) -> Value | None:
        if self._apart is None:
            self._apart = self._take_apart(self)
        if self._apart is None:
            name = self.cls.__name__
            raise machine.unsupported(reasons.EXISTING_ITERATOR, iterator=name)
        return self._apart.advance(machine)

    def taken(self, outer: Any) -> IteratorValue:
        """The iterator as another one moves it on, which alone does so from here on."""
        if self.steps or self._apart is not None or self.outer not in (None, outer):
            raise NotConstant(self)
        self.outer = outer
        return IteratorValue(super().advance, self.cls)


# -- called by generated code: iterators at a position --------------------------------------------


def move_on(iterator: Iterator[Any], steps: int) -> None:
    """Take items of an iterator of Python's own, which runs no code of the program."""
    for _ in range(steps):
        next(iterator, None)


def rest_of(*items: Any) -> Iterator[Any]:
    """An iterator over the items that are left."""
    return iter(items)


def iterator_at(iterable: Any, position: int) -> Iterator[Any]:
    """`iter(iterable)` after `position` items. Methods that a subclass overrides are left out."""
    own = next((cls for cls in _ITERABLES if isinstance(iterable, cls)), type(iterable))
    return _moved(own.__iter__(iterable) if hasattr(own, "__iter__") else iter(iterable), position)


def set_iterator_at(members: Any, position: int, *rest: Any) -> Iterator[Any]:
    """`iter(members)` after `position` items, if these are left then: an equal set need not have
    its members in the same order.
    """
    iterator: Any = _moved(iter(members), position)
    _, (left,) = iterator.__reduce__()
    in_order = len(left) == len(rest) and all(map(operator.is_, left, rest))
    return iterator if in_order else iter(rest)


def outdated_iterator(
    cls: Any, view: str | None, direction: Callable[[Any], Iterator[Any]]
) -> Iterator[Any]:
    """An iterator over a container of a class, or over a view of a dict, that changed later."""
    container = cls({0: 0})
    iterator = direction(container if view is None else getattr(container, view)())
    match container:
        case dict():
            container[1] = 1
        case set():
            container.add(1)
        case _:
            container.append(1)
    return iterator


def reverse_iterator_at(iterable: Any, position: int) -> Iterator[Any]:
    """`reversed(iterable)` after `position` items."""
    iterator: Any = reversed(iterable)
    if type(iterator) is reversed:  # over a sequence of the program, which is not read again
        set_position = iterator.__setstate__  # type: ignore[attr-defined]
        set_position(iterator.__length_hint__() - 1 - position)
    else:
        move_on(iterator, position)
    return iterator  # type: ignore[no-any-return]


def list_reverse_iterator_at(items: list[Any], index: int) -> Iterator[Any]:
    """An iterator backwards over a list, at an index of the list."""
    iterator = list.__reversed__(items)
    iterator.__setstate__(index)  # type: ignore[attr-defined]
    return iterator


_ITERABLES: Final = (list, tuple, collections.OrderedDict, dict, str, bytes)


def _moved(iterator: Any, position: int) -> Iterator[Any]:
    """A new iterator, moved on."""
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(position)
    else:
        for _ in range(position):
            next(iterator)
    return iterator  # type: ignore[no-any-return]


def cycle_again(iterator: Iterator[Any], *saved: Any) -> Iterator[Any]:
    """`itertools.cycle` in its first round, after the items saved."""
    restored = itertools.cycle(itertools.chain(saved, iterator))
    for _ in saved:
        next(restored)
    return restored


def zip_strictly(*iterators: Iterator[Any]) -> Iterator[Any]:
    """`zip` of iterables that must be of equal length."""
    return zip(*iterators, strict=True)


ITERTOOLS_HAVE_PARTS: Final = sys.version_info < (3, 12)
"""Whether iterators of itertools may be taken apart and put together."""


def chain_again(outer: Iterator[Any], *active: Iterator[Any]) -> Iterator[Any]:
    """`itertools.chain` in the middle of one of its iterables, the others still in `outer`."""
    if not ITERTOOLS_HAVE_PARTS:
        return itertools.chain(*active, itertools.chain.from_iterable(outer))
    chain: Any = itertools.chain()
    chain.__setstate__((outer, *active))
    return chain  # type: ignore[no-any-return]


class GeneratorValue(Value):
    """A generator object: a suspended frame of the machine."""

    __slots__ = ("frame",)

    def __init__(self, frame: Any) -> None:
        super().__init__(None)
        self.frame = frame

    def python_type(self) -> type:
        return GENERATOR

    def advance(self, machine: Machine) -> Value | None:
        """Run to the next `yield`; None when the function has returned."""
        return self.frame.resume(machine.new(None))  # type: ignore[no-any-return]

    def stop(self, machine: Machine) -> NoReturn:
        """Raise the StopIteration that says that the function has returned, with its result."""
        result = self.frame.result
        raise TracedError(ExceptionValue(StopIteration, [] if is_none(result) else [result]))

    def parts(self) -> Sequence[Value]:
        return self.frame.parts()  # type: ignore[no-any-return]

    def rebuild(self, code: Rebuilder) -> None:
        self.frame.rebuild(code)
