"""Iterators of every class that a program meets, made of five items and three more."""

# ruff: noqa: B905 (these programs are meant to use the forms as users write them)

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

X = torch.arange(4.0)
TABLE = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
ITEMS, MORE = [1, 3, 4, 1, 5], [1, 4, 2]

Maker = Callable[[list[Any], list[Any]], Iterator[Any]]


class Shelf:
    """A sequence by `__getitem__` alone."""

    def __init__(self, items):
        self.items = items

    def __getitem__(self, index):
        return self.items[index]

    def __len__(self):
        return len(self.items)


class Counting:
    """An iterable written in Python, which counts how often it is iterated."""

    times = 0

    def __iter__(self):
        self.times += 1
        return iter([self.times, "own"])


class CountingSequence:
    """A sequence written in Python, which counts how often it is read."""

    times = 0

    def __len__(self):
        return 3

    def __getitem__(self, index):
        self.times += 1
        return index * 100 + self.times


def countdown(n):
    while n:
        yield n
        n -= 1
    return "done"


def delegating(items):
    yield from items
    result = yield from countdown(2)
    yield result


def divide(left, right):
    return left / right


def smaller_than_four(item):
    if item == 2:
        raise KeyError(item)
    return item < 4


ITERATORS: dict[str, Maker] = {
    "empty": lambda items, more: iter([]),
    "list": lambda items, more: iter(items),
    "list with a tensor": lambda items, more: iter([1, X, "a", 4, 5]),
    "tuple": lambda items, more: iter((*items, X)),
    "range": lambda items, more: iter(range(3, 20, 4)),
    "long range": lambda items, more: iter(range(1 << 70, (1 << 70) + 5)),
    "text": lambda items, more: iter("abcde"),
    "bytes": lambda items, more: iter(b"abcdef"),
    "deque": lambda items, more: iter(deque(items)),
    "bounded deque": lambda items, more: iter(deque([1, X, "a", 4, 5], maxlen=7)),
    "set": lambda items, more: iter({10, 20, 30, 40, 50}),
    "dict": lambda items, more: iter(dict.fromkeys(items)),
    "values": lambda items, more: iter(dict.fromkeys(items, 5).values()),
    "items": lambda items, more: iter({i: -i for i in items}.items()),
    "existing keys": lambda items, more: iter(TABLE),
    "existing values": lambda items, more: iter(TABLE.values()),
    "existing items": lambda items, more: iter(TABLE.items()),
    "ordered": lambda items, more: iter(OrderedDict(TABLE)),
    "protocol": lambda items, more: iter(Shelf(items)),
    "reversed list": lambda items, more: reversed([1, X, 3, 4, 5]),
    "reversed tuple": lambda items, more: reversed((1, X, 3, "a", 5)),
    "reversed range": lambda items, more: reversed(range(7)),
    "reversed text": lambda items, more: reversed("abcde"),
    "reversed deque": lambda items, more: reversed(deque([1, X, "a", 4, 5])),
    "reversed dict": lambda items, more: reversed({1: X, 2: 3, 4: 5, 6: 7, 8: 9}),
    "reversed values": lambda items, more: reversed(TABLE.values()),
    "reversed ordered": lambda items, more: reversed(OrderedDict(TABLE).items()),
    "reversed protocol": lambda items, more: reversed(Shelf(items)),
    "reversed of its own": lambda items, more: reversed(CountingSequence()),
    "enumerate": lambda items, more: enumerate([1, X, "a", 4, 5], 7),
    "enumerate of items": lambda items, more: enumerate(items, 3),
    "enumerate of enumerate": lambda items, more: enumerate(enumerate(iter(items))),
    "enumerate of a deque": lambda items, more: enumerate(deque([1, X, "a", 4, 5])),
    "enumerate of map": lambda items, more: enumerate(map(str, [1, 2, 3, 4, 5])),
    "enumerate of chain": lambda items, more: enumerate(
        itertools.chain({1: 2}.items(), [X, 6, 7, 8])
    ),
    "enumerate of zip": lambda items, more: enumerate(zip(range(5), reversed([1, 2, 3, 4, 5]))),
    "enumerate of a generator": lambda items, more: enumerate(a for a in items),
    "zip": lambda items, more: zip(range(9), TABLE.items(), [X] * 5),
    "zip of two": lambda items, more: zip(items, more),
    "zip of one": lambda items, more: zip(*[iter(items)] * 2),
    "strict zip": lambda items, more: zip(items, TABLE, strict=True),
    "strict zip that fails": lambda items, more: zip(items, more, strict=True),
    "zip with count": lambda items, more: zip(itertools.count(), TABLE),
    "map": lambda items, more: map(lambda a, b: (a, b * 2), range(5), [X] * 9),
    "map of two": lambda items, more: map(divide, items, more),
    "map of map": lambda items, more: map(str, zip("abcde", filter(lambda i: i % 2, range(10)))),
    "filter of items": lambda items, more: filter(None, items),
    "filter": lambda items, more: filter(lambda a: a != 3, items),
    "filter none": lambda items, more: filter(None, [1, 0, "a", 3, "", 4, 5]),
    "sentinel": lambda items, more: iter([6, 7, 8, 9, 0].pop, 6),
    "chain": lambda items, more: itertools.chain(items, more),
    "chain of views": lambda items, more: itertools.chain([1, X], "a", {4: 5}.values(), (), (6,)),
    "chain of iterators": lambda items, more: itertools.chain(iter([1, X]), map(str, [1, 2]), [3]),
    "chain of generators": lambda items, more: itertools.chain(i for i in ([1], [2, 3])),
    "chain of its own": lambda items, more: itertools.chain([1], Counting(), [2, 3]),
    "chain from iterable": lambda items, more: itertools.chain.from_iterable([[1], items, {7}]),
    "chain from numbers": lambda items, more: itertools.chain.from_iterable(items),
    "repeat": lambda items, more: itertools.repeat(X, 5),
    "count": lambda items, more: itertools.islice(itertools.count(3, 2), 5),
    "cycle": lambda items, more: itertools.islice(itertools.cycle(more), 7),
    "cycle of one round": lambda items, more: itertools.islice(itertools.cycle(items), 8),
    "islice": lambda items, more: itertools.islice(items, 1, 4, 2),
    "islice to the end": lambda items, more: itertools.islice(iter([1, X, 3, 4]), 1, None),
    "islice before": lambda items, more: itertools.islice(items, 3, 2),
    "islice of many": lambda items, more: itertools.islice(range(100), 5, 40, 7),
    "islice of map": lambda items, more: itertools.islice(map(str, range(9)), 5),
    "product": lambda items, more: itertools.product(items[:2], "abc"),
    "combinations": lambda items, more: itertools.combinations(items, 2),
    "accumulate": lambda items, more: itertools.accumulate(items),
    "accumulate from": lambda items, more: itertools.accumulate(items, divide, initial=8),
    "accumulate none": lambda items, more: itertools.accumulate([None, 1], lambda a, b: None),
    "starmap": lambda items, more: itertools.starmap(divide, enumerate(items)),
    "starmap of numbers": lambda items, more: itertools.starmap(divide, items),
    "takewhile": lambda items, more: itertools.takewhile(smaller_than_four, items),
    "dropwhile": lambda items, more: itertools.dropwhile(smaller_than_four, items),
    "compress": lambda items, more: itertools.compress(items, more),
    "pairwise": lambda items, more: itertools.pairwise(items),
    "zip_longest": lambda items, more: itertools.zip_longest(items, more, "ab", fillvalue=-1),
    "zip_longest of none": lambda items, more: itertools.zip_longest(),
    "filterfalse": lambda items, more: itertools.filterfalse(smaller_than_four, items),
    "generator": lambda items, more: countdown(5),
    "generator expression": lambda items, more: (a * 2 for a in items if a != 4),
    "generator with a tensor": lambda items, more: (i for i in (1, X, 3)),
    "nested generators": lambda items, more: (b for a in items for b in (a, -a)),
    "delegating": lambda items, more: delegating(items),
}

OF_ANY_ITEMS = (
    "accumulate", "accumulate from", "accumulate none", "chain", "chain from numbers", "compress",
    "cycle", "dropwhile", "enumerate of items", "filter of items", "filterfalse", "islice",
    "islice before", "map of two", "pairwise", "starmap", "starmap of numbers",
    "strict zip that fails", "takewhile", "zip of two", "zip_longest", "zip_longest of none",
)  # fmt: skip
"""Those that take whatever items they are given."""


def outcome(iterator: Iterator[Any]) -> Any:
    """The next item, or what is raised for it."""
    try:
        return next(iterator)
    except Exception as error:
        return type(error).__name__, error.args
