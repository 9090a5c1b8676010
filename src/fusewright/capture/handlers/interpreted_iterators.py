"""Iterators of itertools, written again as Python classes, which are interpreted like any class of
the program. The most frequent ones are handlers (`handlers.iterators`), which take an item in a
sixth of the time.

`__init__` and `__next__` say what the iterator does. Its fields, the `__slots__`, are its whole
state; `restored` makes the iterator in C again from them, in generated code.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from fusewright.capture.handlers.registry import handles
from fusewright.capture.interpreter.stand_ins import raise_as
from fusewright.capture.values.base import Machine, Value
from fusewright.capture.values.iterators import InterpretedIteratorValue
from fusewright.capture.values.objects import ObjectValue

Class = TypeVar("Class", bound=type)

_ABSENT: Final = object()


def in_place_of(cls: type) -> Callable[[Class], Class]:
    """Decorates the Python class that is interpreted for an iterator's class written in C."""

    def enter(replacement: Class) -> Class:
        signature = inspect.signature(replacement)

        @handles(cls)
        def make(machine: Machine, /, *arguments: Value, **keywords: Value) -> Value:
            try:
                signature.bind(*arguments, **keywords)
            except TypeError:
                raise_as(machine, cls, *arguments, **keywords)
            state = machine.call_object(replacement, None, list(arguments), keywords)
            assert isinstance(state, ObjectValue)
            return InterpretedIteratorValue(cls, state)

        return replacement

    return enter


@in_place_of(itertools.accumulate)
class Accumulate:
    __slots__ = ("function", "is_first", "iterator", "total")

    def __init__(self, iterable: Any, func: Any = None, *, initial: Any = None) -> None:
        self.function = func
        self.is_first = True
        self.iterator = iter(iterable)
        self.total = initial

    def __next__(self) -> Any:
        if self.is_first:
            if self.total is None:
                self.total = next(self.iterator)
            self.is_first = False
        else:
            item = next(self.iterator)
            if self.function is None:
                self.total = self.total + item
            else:
                self.total = self.function(self.total, item)
        return self.total

    @staticmethod
    def restored(
        function: Any, is_first: bool, iterator: Iterator[Any], total: Any
    ) -> Iterator[Any]:
        if not is_first and total is None:
            iterator = itertools.chain((None,), iterator)
        result = itertools.accumulate(iterator, function, initial=total)
        if not is_first:
            next(result)
        return result


@in_place_of(itertools.starmap)
class StarMap:
    __slots__ = ("function", "iterator")

    def __init__(self, function: Any, iterable: Any, /) -> None:
        self.function = function
        self.iterator = iter(iterable)

    def __next__(self) -> Any:
        return self.function(*next(self.iterator))

    restored = itertools.starmap


@in_place_of(itertools.takewhile)
class TakeWhile:
    __slots__ = ("has_ended", "iterator", "predicate")

    def __init__(self, predicate: Any, iterable: Any, /) -> None:
        self.has_ended = False
        self.iterator = iter(iterable)
        self.predicate = predicate

    def __next__(self) -> Any:
        if not self.has_ended:
            item = next(self.iterator)
            if self.predicate(item):
                return item
            self.has_ended = True
        raise StopIteration

    @staticmethod
    def restored(has_ended: bool, iterator: Iterator[Any], predicate: Any) -> Iterator[Any]:
        return itertools.takewhile(predicate, () if has_ended else iterator)


@in_place_of(itertools.dropwhile)
class DropWhile:
    __slots__ = ("has_begun", "iterator", "predicate")

    def __init__(self, predicate: Any, iterable: Any, /) -> None:
        self.has_begun = False
        self.iterator = iter(iterable)
        self.predicate = predicate

    def __next__(self) -> Any:
        item = next(self.iterator)
        while not self.has_begun:
            if not self.predicate(item):
                self.has_begun = True
            else:
                item = next(self.iterator)
        return item

    @staticmethod
    def restored(has_begun: bool, iterator: Iterator[Any], predicate: Any) -> Iterator[Any]:
        return itertools.dropwhile(_never if has_begun else predicate, iterator)


def _never(item: object) -> bool:
    return False


@in_place_of(itertools.compress)
class Compress:
    __slots__ = ("data", "selectors")

    def __init__(self, data: Any, selectors: Any) -> None:
        self.data = iter(data)
        self.selectors = iter(selectors)

    def __next__(self) -> Any:
        while True:
            item = next(self.data)
            if next(self.selectors):
                return item

    restored = itertools.compress


@in_place_of(itertools.pairwise)
class Pairwise:
    __slots__ = ("iterator", "previous")

    def __init__(self, iterable: Any, /) -> None:
        self.iterator: Any = iter(iterable)
        self.previous: Any = ()

    def __next__(self) -> Any:
        if self.iterator is None:
            raise StopIteration
        iterator, self.iterator = self.iterator, None  # whatever is raised ends it
        first = self.previous[0] if self.previous else next(iterator)
        second = next(iterator)
        self.iterator, self.previous = iterator, (second,)
        return first, second

    @staticmethod
    def restored(iterator: Any, previous: tuple[Any, ...]) -> Iterator[Any]:
        return itertools.pairwise(() if iterator is None else itertools.chain(previous, iterator))


@in_place_of(itertools.zip_longest)
class ZipLongest:
    __slots__ = ("fill", "iterators")

    def __init__(self, *iterables: Any, fillvalue: Any = None) -> None:
        self.fill = fillvalue
        self.iterators: list[Any] = [iter(iterable) for iterable in iterables]

    def __next__(self) -> Any:
        iterators, self.iterators = self.iterators, []  # whatever is raised ends it
        row = []
        active = 0
        for place, iterator in enumerate(iterators):
            item = _ABSENT if iterator is None else next(iterator, _ABSENT)
            if item is _ABSENT:
                iterators[place] = None
            else:
                active += 1
            row.append(self.fill if item is _ABSENT else item)
        if not active:
            raise StopIteration
        self.iterators = iterators
        return tuple(row)

    @staticmethod
    def restored(fill: Any, iterators: Iterable[Any]) -> Iterator[Any]:
        left = [() if iterator is None else iterator for iterator in iterators]
        return itertools.zip_longest(*left, fillvalue=fill)
