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


# -- methods of dicts, by those that have handlers (`handlers.containers`) -------------------------

_ORDERED = collections.OrderedDict
_DEFAULT = collections.defaultdict


@polyfill(dict.popitem)
def pop_last_item(self: dict[Any, Any], /) -> tuple[Any, Any]:
    if not dict.__len__(self):
        raise KeyError("popitem(): dictionary is empty")
    key = list(dict.keys(self))[-1]
    return key, dict.pop(self, key)


@polyfill(_ORDERED.popitem)
def pop_ordered_item(self: _ORDERED[Any, Any], last: bool = True) -> tuple[Any, Any]:
    if not dict.__len__(self):
        raise KeyError("dictionary is empty")
    key = list(_ORDERED.keys(self))[-1 if last else 0]
    return key, _ORDERED.pop(self, key)


@polyfill(dict.setdefault)
def set_default(self: dict[Any, Any], key: Any, default: Any = None, /) -> Any:
    if not dict.__contains__(self, key):
        dict.__setitem__(self, key, default)
    return dict.__getitem__(self, key)


@polyfill(_ORDERED.setdefault)
def set_ordered_default(self: _ORDERED[Any, Any], key: Any, default: Any = None) -> Any:
    if key in self:
        return self[key]
    self[key] = default
    return default


@polyfill(vars(dict)["fromkeys"], vars(_ORDERED)["fromkeys"])
def from_keys(cls: Any, iterable: Iterable[Any], value: Any = None) -> Any:
    result = cls()
    for key in iterable:
        result[key] = value
    return result


@polyfill(dict.__or__, _ORDERED.__or__, _DEFAULT.__or__)
def merge(self: Any, other: Any, /) -> Any:
    return _merged(self, self, other)


@polyfill(dict.__ror__, _ORDERED.__ror__, _DEFAULT.__ror__)
def merge_reflected(self: Any, other: Any, /) -> Any:
    return _merged(self, other, self)


def _merged(owner: Any, first: Any, second: Any) -> Any:
    if not isinstance(first, dict) or not isinstance(second, dict):
        return NotImplemented
    if isinstance(owner, _ORDERED):
        return merge_in_place_ordered(type(owner)(first), second)
    if isinstance(owner, _DEFAULT):
        return merge_in_place(type(owner)(owner.default_factory, first), second)
    return merge_in_place(dict(first), second)


@polyfill(dict.__ior__)
def merge_in_place(self: Any, other: Any, /) -> Any:
    dict.update(self, other)
    return self


@polyfill(_ORDERED.__ior__)
def merge_in_place_ordered(self: Any, other: Any, /) -> Any:
    _ORDERED.update(self, other)
    return self


@polyfill(dict.__eq__, _ORDERED.__eq__)
def equal_mappings(self: dict[Any, Any], other: Any, /) -> Any:
    return _equal(self, other) if isinstance(other, dict) else NotImplemented


@polyfill(dict.__ne__, _ORDERED.__ne__)
def unequal_mappings(self: dict[Any, Any], other: Any, /) -> Any:
    return not _equal(self, other) if isinstance(other, dict) else NotImplemented


def _equal(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if isinstance(left, _ORDERED) and isinstance(right, _ORDERED):
        return list(_ORDERED.items(left)) == list(_ORDERED.items(right))
    if dict.__len__(left) != dict.__len__(right):
        return False
    for key, item in dict.items(left):
        if not dict.__contains__(right, key) or [item] != [dict.__getitem__(right, key)]:
            return False
    return True


@polyfill(*[vars(dict)[name] for name in ("__lt__", "__le__", "__gt__", "__ge__")])
def no_order(self: dict[Any, Any], other: Any, /) -> Any:
    return NotImplemented
