"""Functions written in C, written again in Python, to be inlined where their arguments are not
wholly known.
"""

from __future__ import annotations

import collections
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.capture.handlers.registry import polyfill

_ABSENT = object()


@polyfill(sum)
def total(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    result = start
    for item in iterable:
        result = result + item
    return result


@polyfill(*torch_compat.SIZE_INFERENCE)
def broadcast_size(first: Sequence[int], second: Sequence[int], /) -> torch.Size:
    length = max(len(first), len(second))
    result = []
    for place in range(length):
        from_end = length - place
        left = first[-from_end] if from_end <= len(first) else 1
        right = second[-from_end] if from_end <= len(second) else 1
        if left != right and left != 1 and right != 1:
            raise RuntimeError(
                f"The size of tensor a ({left}) must match the size of tensor b ({right}) at "
                f"non-singleton dimension {place}"
            )
        result.append(right if left == 1 else left)
    return torch.Size(result)


class ComparisonKey:
    """A key of `functools.cmp_to_key`: an object ordered by a function of two objects."""

    __slots__ = ("compare", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compare: Callable[[Any, Any], int], obj: Any) -> None:
        self.compare = compare
        self.obj = obj

    def __lt__(self, other: ComparisonKey) -> bool:
        return self.compare(self.obj, other.obj) < 0

    def __gt__(self, other: ComparisonKey) -> bool:
        return self.compare(self.obj, other.obj) > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComparisonKey) and self.compare(self.obj, other.obj) == 0

    def __le__(self, other: ComparisonKey) -> bool:
        return self.compare(self.obj, other.obj) <= 0

    def __ge__(self, other: ComparisonKey) -> bool:
        return self.compare(self.obj, other.obj) >= 0


@polyfill(functools.cmp_to_key)
def comparison_key(mycmp: Callable[[Any, Any], int]) -> Callable[[Any], ComparisonKey]:
    return lambda obj: ComparisonKey(mycmp, obj)


@polyfill(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(mapping: dict[Any, int], iterable: Iterable[Any]) -> None:
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


@polyfill(functools.cached_property.__get__)
def get_cached(self: Any, instance: Any, owner: Any = None) -> Any:
    """Without the lock of Python 3.11: nobody else computes while this program is traced."""
    if instance is None:
        return self
    cache = instance.__dict__
    if self.attrname not in cache:
        cache[self.attrname] = self.func(instance)
    return cache[self.attrname]


@polyfill(BaseException.__repr__)
def exception_text(self: BaseException) -> str:
    arguments = self.args
    if len(arguments) == 1:
        return f"{type(self).__name__}({arguments[0]!r})"
    return f"{type(self).__name__}{arguments!r}"


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


@polyfill(operator.itemgetter)
def item_getter(item: Any, /, *items: Any) -> Callable[[Any], Any]:
    if not items:
        return lambda owner: owner[item]
    return lambda owner: tuple([owner[key] for key in (item, *items)])


@polyfill(operator.attrgetter)
def attribute_getter(name: str, /, *names: str) -> Callable[[Any], Any]:
    def read(owner: Any, path: str) -> Any:
        for part in path.split("."):
            owner = getattr(owner, part)
        return owner

    if not names:
        return lambda owner: read(owner, name)
    return lambda owner: tuple([read(owner, path) for path in (name, *names)])


@polyfill(operator.methodcaller)
def method_caller(name: str, /, *arguments: Any, **keywords: Any) -> Callable[[Any], Any]:
    return lambda owner: getattr(owner, name)(*arguments, **keywords)
