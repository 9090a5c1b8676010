"""Objects whose end runs code of the program, or is seen by it: generators that wait inside `try`,
instances of classes with `__del__`, and what weak references refer to. What happens when they are
dropped happens in eager's order.
"""

# ruff: noqa (what these programs drop is not used)

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright
from tests.capture.agreement import assert_same
from tests.capture.reporting import report

X = torch.arange(3.0)
log: list[Any] = []


def numbers(n):
    try:
        for i in range(n):
            yield i
    finally:
        log.append(f"gen {n} closed")


def broken_loop(x):
    for i in numbers(3):
        break
    log.append("after")
    return x + 1


def broken_loop_in_finally(x):
    try:
        x = x + 1
    finally:
        for n in numbers(3):
            if n > 1:
                break
    log.append("after")
    l = list(numbers(1))
    return x + 1


def nested_loops(x):
    for i in numbers(3):
        for j in numbers(2):
            break
        break
    log.append("after")
    return x + 1


def return_in_a_loop(x):
    for i in numbers(3):
        if i == 1:
            return x + 1


def variable_rebound(x):
    g = numbers(3)
    next(g)
    g = None
    log.append("after")
    return x + 1


def dead_variable(x):
    g = numbers(3)
    next(g)
    x = x + 1
    return x


def return_in_an_inner_function(x):
    def inner():
        for i in numbers(2):
            for j in numbers(3):
                return i

    inner()
    log.append("after")
    return x + 1


def temporary(x):
    a, b = 0, next(numbers(3))
    log.append("after")
    return x + b


def raised_in_a_loop(x):
    try:
        for i in numbers(3):
            raise ValueError("v")
    except ValueError as e:
        log.append(str(e))
    return x + 1


def drawn_from_by_zip(x):
    z = zip(numbers(3), numbers(2))
    for a in z:
        break
    log.append("after")
    del z
    log.append("after2")
    return x + 1


def broken_loop_with_a_graph_break(x):
    for i in numbers(3):
        report(1)
        break
    log.append("after")
    return x + 1


def partly_used(x):
    s = sum(x for x in numbers(3) if x > 0)
    any(v == 1 for v in numbers(4))
    log.append("after")
    return x + s


def generator_expression(x):
    it = (v for v in numbers(4))
    next(it)
    log.append("a")
    del it
    log.append("b")
    return x + 1


def in_a_dict(x):
    d = {"g": numbers(4)}
    next(d["g"])
    log.append("a")
    d.clear()
    log.append("b")
    return x + 1


def deleg(n):
    r = yield from numbers(n)
    return r


def delegating(x):
    for i in deleg(3):
        break
    log.append("b")
    for i in deleg(4):
        for j in deleg(5):
            if j:
                break
        if i:
            break
    log.append("c")
    return x + 1


class Told:
    def __init__(self, n):
        self.n = n

    def __del__(self):
        log.append(f"del {self.n}")


def deleted(x):
    d = Told(1)
    del d
    log.append("after")
    return x + 1


def two_at_the_end(x):
    d = Told(1)
    e = Told(2)
    log.append("after")
    return x + 1


def two_behind_a_break(x):
    b = Told(1)
    a = Told(2)
    report(1)
    log.append("after")
    return x + 1


def in_containers(x):
    d = Told(1)
    x = x + d.n
    l = [d, Told(2)]
    d = None
    log.append("a")
    l.pop()
    log.append("b")
    l[0] = 1
    log.append("c")
    return x


def in_an_inner_function(x):
    def inner(n):
        d = Told(n)
        return d.n

    y = x + inner(2)
    log.append("a")
    return y * inner(3)


class Plain:
    pass


def weakly_referred_to(x):
    p = Plain()
    r = weakref.ref(p)
    log.append(r() is p)
    p = None
    log.append(r() is None)
    return x + 1


def returned(x):
    r = Told(5)
    return x + 1, r


@contextlib.contextmanager
def managed(n):
    log.append(f"open {n}")
    try:
        yield n
    finally:
        log.append(f"close {n}")


def raised_in_a_loop_inside_with(x):
    try:
        with managed(5):
            if bool(x.sum() > 1):
                log.append("positive")
            for i in numbers(3):
                try:
                    {}[i]
                except KeyError:
                    raise ValueError("raised") from None
    except ValueError as error:
        log.append(str(error))
    return x + 1


def left_from_a_handler(x):
    for i in numbers(3):
        try:
            {}[i]
        except KeyError:
            break
    log.append("after")
    return x + 1


@fusewright.disable
def fails():
    raise LookupError("outside")


def left_by_an_exception_from_outside(x):
    for i in numbers(3):
        fails()
    return x + 1


def left_from_two_loops(x):
    for i in numbers(3):
        for j in numbers(2):
            y = x + j
            fails()
    return y


def left_by_an_exception_behind_a_break(x):
    for i in numbers(3):
        report(i)
        if i == 1:
            fails()
    return x + 1


def left_by_an_exception_that_a_call_makes(x):
    for i in numbers(3):
        next()
    return x + 1


def left_while_a_variable_holds_the_generator(x):
    generator = numbers(3)
    for i in generator:
        fails()
    return x + 1


LEFT_BY_AN_EXCEPTION = [
    left_by_an_exception_from_outside,
    left_from_two_loops,
    left_by_an_exception_behind_a_break,
    left_by_an_exception_that_a_call_makes,
    left_while_a_variable_holds_the_generator,
]


@pytest.mark.parametrize("program", LEFT_BY_AN_EXCEPTION, ids=lambda program: program.__name__)
def test_an_exception_drops_what_the_stack_held(program: Callable[..., Any]) -> None:
    compiled = fusewright.compile(program, backend="eager")
    logs = []
    for function in (program, compiled, compiled):
        log.clear()
        with pytest.raises((LookupError, TypeError)) as raised:
            function(X)
        log.append("left")
        places = [(entry.name, entry.lineno) for entry in raised.traceback][1:]
        del raised
        logs.append((list(log), [place for place in places if place[0] == program.__name__]))
    assert logs[1:] == [logs[0], logs[0]]


PROGRAMS = [
    broken_loop,
    broken_loop_in_finally,
    nested_loops,
    return_in_a_loop,
    variable_rebound,
    dead_variable,
    return_in_an_inner_function,
    temporary,
    raised_in_a_loop,
    drawn_from_by_zip,
    broken_loop_with_a_graph_break,
    partly_used,
    generator_expression,
    in_a_dict,
    delegating,
    deleted,
    two_at_the_end,
    two_behind_a_break,
    in_containers,
    in_an_inner_function,
    weakly_referred_to,
    returned,
    raised_in_a_loop_inside_with,
    left_from_a_handler,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_side_effects_come_in_order(program: Callable[..., Any]) -> None:
    compiled = fusewright.compile(program, backend="eager")
    for _ in range(3):
        outcomes = []
        for function in (program, compiled):
            log.clear()
            result = function(X)
            before = list(log)
            outcomes.append((result[0] if isinstance(result, tuple) else result, before))
            del result
            outcomes[-1][1].append(list(log))
        (expected, expected_log), (found, found_log) = outcomes
        assert_same(found, expected)
        assert found_log == expected_log
