"""Iterators and generators that are at some position when the graph breaks go on from there."""

# ruff: noqa: B905, C416 (these programs are meant to use the forms as users write them)

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from tests.capture.reporting import agrees, report

X = torch.arange(4.0)

LIST = [1, 2, 3, 4, 5]
TABLE = {"a": 1, "b": 2, "c": 3, "d": 4}


def countdown(n):
    while n:
        yield n
        n -= 1
    return "done"


def echo():
    received = []
    while True:
        received.append((yield len(received)))
        if received[-1] is None:
            return received


class Shelf:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, index):
        return self.items[index]

    def __len__(self):
        return len(self.items)


ITERATORS: dict[str, Callable[[list[Any]], Any]] = {
    "list": lambda items: iter(items),
    "tuple": lambda items: iter(tuple(items)),
    "range": lambda items: iter(range(3, 30, 4)),
    "text": lambda items: iter("abcdef"),
    "bytes": lambda items: iter(b"abcdef"),
    "deque": lambda items: iter(collections.deque(items)),
    "set": lambda items: iter({10, 20, 30, 40}),
    "dict": lambda items: iter(dict.fromkeys(items)),
    "values": lambda items: iter(dict.fromkeys(items, 5).values()),
    "items": lambda items: iter({i: -i for i in items}.items()),
    "existing keys": lambda items: iter(TABLE),
    "existing items": lambda items: iter(TABLE.items()),
    "protocol": lambda items: iter(Shelf(items)),
    "reversed list": lambda items: reversed(items),
    "reversed tuple": lambda items: reversed(tuple(items)),
    "reversed range": lambda items: reversed(range(7)),
    "reversed dict": lambda items: reversed(dict.fromkeys(items)),
    "reversed text": lambda items: reversed("abcdef"),
    "reversed protocol": lambda items: reversed(Shelf(items)),
    "enumerate": lambda items: enumerate(items, 7),
    "enumerate of enumerate": lambda items: enumerate(enumerate(iter(items))),
    "zip": lambda items: zip(items, "abcdef"),
    "zip of one": lambda items: zip(*[iter(items)] * 2),
    "strict zip": lambda items: zip(items, range(5), strict=True),
    "map": lambda items: map(lambda a, b: a * b, items, range(10)),
    "filter": lambda items: filter(lambda a: a != 3, items),
    "filter none": lambda items: filter(None, [0, 1, 0, 2, 3]),
    "sentinel": lambda items: iter([6, 7, 8, 9, 0].pop, 6),
    "chain": lambda items: itertools.chain(items, "xyz"),
    "chain early": lambda items: itertools.chain([1], [2, 3], items),
    "chain from iterable": lambda items: itertools.chain.from_iterable([items, "xyz"]),
    "repeat": lambda items: itertools.repeat("r", 5),
    "count": lambda items: itertools.islice(itertools.count(3, 2), 6),
    "cycle": lambda items: itertools.islice(itertools.cycle(items[:3]), 8),
    "cycle of one round": lambda items: itertools.islice(itertools.cycle(items), 8),
    "islice": lambda items: itertools.islice(items, 1, None, 2),
    "islice to": lambda items: itertools.islice(iter(items), 4),
    "islice of many": lambda items: itertools.islice(range(100), 5, 40, 7),
    "product": lambda items: itertools.product(items[:2], "ab"),
    "combinations": lambda items: itertools.combinations(items, 2),
    "accumulate": lambda items: itertools.accumulate(items),
    "starmap": lambda items: itertools.starmap(lambda a, b: a - b, [(5, 2), (3, 1), (9, 4)]),
    "takewhile": lambda items: itertools.takewhile(lambda a: a < 5, items),
    "dropwhile": lambda items: itertools.dropwhile(lambda a: a < 1, items),
    "pairwise": lambda items: itertools.pairwise(items),
    "zip longest": lambda items: itertools.zip_longest(items, "ab", fillvalue="-"),
    "filterfalse": lambda items: itertools.filterfalse(lambda a: a == 2, items),
    "generator": lambda items: countdown(5),
    "generator expression": lambda items: (a * 2 for a in items if a != 2),
    "nested generators": lambda items: (b for a in items for b in (a, -a)),
    "delegating": lambda items: _delegates(items),
    "enumerate of a generator": lambda items: enumerate(countdown(5)),
}


def _delegates(items):
    yield from items
    result = yield from countdown(2)
    yield result


@pytest.mark.parametrize("taken", [0, 2])
@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_goes_on_behind_a_break(name: str, taken: int) -> None:
    make = ITERATORS[name]

    def function(x, items):
        y = x + 1
        iterator = make(items)
        before = [next(iterator) for _ in range(taken)]
        report("break", before)
        return y * 2, before, list(iterator)

    too_short = len(list(make([1, 2, 3, 4, 5]))) < taken
    assert agrees(function, (X, [1, 2, 3, 4, 5])) == ([] if too_short else [1, 1])


@pytest.mark.parametrize("name", ITERATORS)
def test_an_exhausted_iterator_stays_so(name: str) -> None:
    make = ITERATORS[name]

    def function(x, items):
        iterator = make(items)
        before = [item for item in iterator]
        report("break")
        items.append(9)
        return x * 2, before, list(iterator), next(iterator, "end")

    assert agrees(function, (X, [1, 2, 3, 4, 5])) == [1]


def test_an_iterator_sees_what_is_added_to_its_list() -> None:
    def function(x, items):
        forward, backward = iter(items), reversed(items)
        first = next(forward), next(backward), next(backward)
        report("break")
        items.append(6)
        items.insert(0, 0)
        return x + 1, first, list(forward), list(backward)

    agrees(function, (X, [1, 2, 3, 4]))


def test_two_names_for_one_iterator() -> None:
    def function(x, items):
        one = iter(items)
        other = one
        pair = [one, {"it": other}]
        next(one)
        report("break")
        next(one)
        return x + 1, next(other), pair[0] is pair[1]["it"], next(pair[0])

    agrees(function, (X, [1, 2, 3, 4]))


def test_a_returned_iterator_is_where_it_was_left() -> None:
    def function(x, items):
        iterator = iter(items)
        generator = countdown(4)
        next(iterator), next(generator)
        return x + 1, iterator, generator, enumerate(items)

    target = fusewright.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        items = [1, 2, 3]
        _, iterator, generator, numbered = target(X, items)
        items.append(4)
        assert type(iterator) is type(iter([]))
        assert list(iterator) == [2, 3, 4]
        assert list(generator) == [3, 2, 1]
        assert list(numbered) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_iterators_over_existing_containers_that_changed_before() -> None:
    def function(x, items, table):
        items.append(4)
        table["c"] = 3
        forward, keys, pairs = iter(items), iter(table), iter(table.items())
        first = next(forward), next(forward), next(forward), next(forward), next(keys), next(pairs)
        report("break")
        items.append(5)
        return x + 1, first, list(forward), list(keys), list(pairs)

    agrees(function, (X, [1, 2, 3], {"a": 1, "b": 2}))


def test_a_break_in_a_loop_over_a_dict_that_was_just_filled() -> None:
    def function(x, table):
        table["last"] = 3
        for key, value in table.items():
            x = x + value
            report(key)
        return x

    agrees(function, (X, {"a": 1, "b": 2}))


def test_a_dict_that_grew_meanwhile() -> None:
    def function(x, table):
        iterator = iter(table)
        next(iterator)
        table["new"] = 1
        try:
            next(iterator)
        except RuntimeError as error:
            return x + 1, str(error)

    agrees(function, (X, {"a": 1, "b": 2}))


# -- generators -----------------------------------------------------------------------------------


def test_send_reaches_a_generator_behind_a_break() -> None:
    def function(x):
        generator = echo()
        log = [next(generator), generator.send("a")]
        report("break")
        log.append(generator.send("b"))
        try:
            generator.send(None)
        except StopIteration as stop:
            log.append(stop.value)
        return x + 1, log

    agrees(function, (X,))


def test_throw_and_close_reach_the_regions_of_a_generator() -> None:
    def guarded(log):
        with Noting(log):
            try:
                yield 1
            except KeyError as error:
                log.append(error.args)
                yield 2
            finally:
                log.append("finally")

    def function(x):
        log = []
        one, other = guarded(log), guarded(log)
        log += [next(one), next(other)]
        report("break")
        log.append(one.throw(KeyError("k")))
        other.close()
        one.close()
        return x + 1, log

    agrees(function, (X,))


class Noting:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")

    def __exit__(self, kind, value, traceback):
        self.log.append(kind and kind.__name__)


def test_throw_through_yield_from_behind_a_break() -> None:
    def inner(log):
        try:
            yield 1
        except KeyError:
            log.append("inner")
            yield 2
        return 3

    def outer(log):
        log.append((yield from inner(log)))
        yield 4

    def function(x):
        log = []
        generator = outer(log)
        next(generator)
        report("break")
        log += [generator.throw(KeyError()), next(generator)]
        return x + 1, log

    agrees(function, (X,))


def test_a_generator_that_waits_in_a_handler() -> None:
    def generate(log):
        try:
            raise KeyError("first")
        except KeyError:
            yield 1
            try:
                raise
            except KeyError as error:
                log.append(error.args)
        yield 2

    def function(x):
        log = []
        generator = generate(log)
        next(generator)
        report("break")
        log.append(next(generator))
        return x + 1, log

    agrees(function, (X,))


def test_a_generator_shares_its_cells() -> None:
    def function(x):
        total = 0

        def generate():
            nonlocal total
            while True:
                total += 1
                yield total

        generator = generate()
        next(generator)
        report("break")
        total += 10
        return x + total, next(generator), total

    agrees(function, (X,))


def test_a_generator_not_started_yet() -> None:
    def function(x, n):
        generator = countdown(n)
        report("break")
        return x + 1, list(generator), generator.gi_frame is None

    agrees(function, (X, 3))


def test_a_generator_of_a_method_that_calls_super() -> None:
    class Base:
        def walk(self):
            yield 1
            yield 2

    class Derived(Base):
        def walk(self):
            yield 0
            yield from super().walk()

    def function(x):
        generator = Derived().walk()
        next(generator)
        report("break")
        return x + 1, list(generator)

    agrees(function, (X,))


def test_a_generator_of_tensors() -> None:
    def rows(x):
        for index, row in enumerate(x):
            yield row * index

    def function(x):
        generator = rows(x)
        first = next(generator) + next(generator)
        report("break")
        return first, [row.sum() for row in generator]

    agrees(function, (torch.arange(12.0).reshape(4, 3),))


def test_a_break_in_a_loop_over_each_iterator() -> None:
    def function(x, items):
        total = x
        for index, (item, letter) in enumerate(zip(items, "abcd")):
            total = total + item
            report(index, letter)
            total = total * 2
        return total

    agrees(function, (X, [1, 2, 3]))


def test_a_break_in_a_loop_over_a_generator() -> None:
    def function(x):
        for item in countdown(3):
            x = x * 2
            report(item)
            x = x + item
        return x

    agrees(function, (X,))
