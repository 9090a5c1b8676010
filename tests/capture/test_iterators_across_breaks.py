"""Iterators and generators that a graph break leaves somewhere: seen from two sides, sent to,
closed. Those of each class: `tests/programs/test_iterators.py`.
"""

# ruff: noqa: B905 (these programs are meant to use the forms as users write them)

from __future__ import annotations

import torch

import fusewright
from tests.capture.reporting import agrees, report
from tests.programs.iterators import countdown

X = torch.arange(4.0)


def echo():
    received = []
    while True:
        received.append((yield len(received)))
        if received[-1] is None:
            return received


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
