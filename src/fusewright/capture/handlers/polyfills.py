"""Functions written in C, written again in Python, to be inlined where their arguments are not
wholly known.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fusewright.capture.handlers.registry import polyfill

_ABSENT = object()


@polyfill(any)
def any_true(iterable: Iterable[Any]) -> bool:
    for item in iterable:  # noqa: SIM110 (this is what `any` does)
        if item:
            return True
    return False


@polyfill(all)
def all_true(iterable: Iterable[Any]) -> bool:
    for item in iterable:  # noqa: SIM110 (this is what `all` does)
        if not item:
            return False
    return True


@polyfill(sum)
def total(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    result = start
    for item in iterable:
        result = result + item
    return result


@polyfill(max)
def largest(
    *arguments: Any, key: Callable[[Any], Any] | None = None, default: Any = _ABSENT
) -> Any:
    return _extreme("max", arguments, key, default, lambda one, other: one > other)


@polyfill(min)
def smallest(
    *arguments: Any, key: Callable[[Any], Any] | None = None, default: Any = _ABSENT
) -> Any:
    return _extreme("min", arguments, key, default, lambda one, other: one < other)


def _extreme(
    name: str,
    arguments: tuple[Any, ...],
    key: Callable[[Any], Any] | None,
    default: Any,
    better: Callable[[Any, Any], bool],
) -> Any:
    best = _ABSENT
    best_key = None
    for item in arguments[0] if len(arguments) == 1 else arguments:
        item_key = item if key is None else key(item)
        if best is _ABSENT or better(item_key, best_key):
            best, best_key = item, item_key
    if best is not _ABSENT:
        return best
    if default is not _ABSENT:
        return default
    raise ValueError(f"{name}() arg is an empty sequence")


@polyfill(functools.reduce)
def reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], /, *initial: Any) -> Any:
    iterator = iter(iterable)
    if initial:
        result = initial[0]
    else:
        result = next(iterator, _ABSENT)
        if result is _ABSENT:
            raise TypeError("reduce() of empty iterable with no initial value")
    for item in iterator:
        result = function(result, item)
    return result


@polyfill(math.prod)
def product(iterable: Iterable[Any], /, *, start: Any = 1) -> Any:
    result = start
    for item in iterable:
        result = result * item
    return result


@polyfill(itertools.accumulate)
def accumulate(
    iterable: Iterable[Any], function: Any = None, *, initial: Any = None
) -> Iterator[Any]:
    total = initial
    started = initial is not None
    if started:
        yield total
    for item in iterable:
        if not started:
            total, started = item, True
        else:
            total = total + item if function is None else function(total, item)
        yield total


@polyfill(itertools.starmap)
def starmap(function: Callable[..., Any], iterable: Iterable[Any]) -> Iterator[Any]:
    for arguments in iterable:
        yield function(*arguments)


@polyfill(itertools.takewhile)
def take_while(predicate: Callable[[Any], Any], iterable: Iterable[Any]) -> Iterator[Any]:
    for item in iterable:
        if not predicate(item):
            break
        yield item


@polyfill(itertools.dropwhile)
def drop_while(predicate: Callable[[Any], Any], iterable: Iterable[Any]) -> Iterator[Any]:
    iterator = iter(iterable)
    for item in iterator:
        if not predicate(item):
            yield item
            break
    yield from iterator


@polyfill(itertools.zip_longest)
def zip_longest(*iterables: Iterable[Any], fillvalue: Any = None) -> Iterator[Any]:
    iterators = [iter(iterable) for iterable in iterables]
    while iterators:
        row = [next(iterator, _ABSENT) for iterator in iterators]
        if all(item is _ABSENT for item in row):
            break
        yield tuple([fillvalue if item is _ABSENT else item for item in row])


@polyfill(itertools.pairwise)
def pairwise(iterable: Iterable[Any]) -> Iterator[Any]:
    iterator = iter(iterable)
    previous = next(iterator, _ABSENT)
    for item in iterator:
        yield previous, item
        previous = item


@polyfill(operator.itemgetter)
def item_getter(item: Any, /, *items: Any) -> Callable[[Any], Any]:
    if not items:
        return lambda owner: owner[item]
    return lambda owner: tuple([owner[each] for each in (item, *items)])


@polyfill(operator.attrgetter)
def attribute_getter(name: str, /, *names: str) -> Callable[[Any], Any]:
    def read(owner: Any, path: str) -> Any:
        for part in path.split("."):
            owner = getattr(owner, part)
        return owner

    if not names:
        return lambda owner: read(owner, name)
    return lambda owner: tuple([read(owner, each) for each in (name, *names)])


@polyfill(operator.methodcaller)
def method_caller(name: str, /, *arguments: Any, **keywords: Any) -> Callable[[Any], Any]:
    return lambda owner: getattr(owner, name)(*arguments, **keywords)
