"""Effects on Python objects are replayed once, after the graph, with aliasing kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fusewright import api
from fusewright.errors import Unsupported
from tests.capture.agreement import Point, assert_same, check

X = torch.arange(3.0)
CALLS: list[Any] = []
STATE = {"n": 0}
TOTAL = 0


def test_attributes_of_an_argument() -> None:
    def f(point, x):
        point.x = x + 1
        point.new = point.x * 2
        point.y += 1
        return point.new

    check(f, Point(0), X)


def test_an_attribute_deleted() -> None:
    def f(point, x):
        del point.y
        return x + len(vars(point))

    check(f, Point(0), X)


def test_lists_of_an_argument() -> None:
    def f(items, x):
        items.append(x * 2)
        items[0] = "first"
        items.extend([x, 3])
        return len(items)

    check(f, [1, 2], X)


def test_dicts_of_an_argument() -> None:
    def f(table, x):
        table["new"] = x + 1
        table["a"] += 1
        del table["b"]
        table["b"] = "last"
        return list(table)

    check(f, {"a": 1, "b": 2, "c": 3}, X)


def test_sets_of_an_argument() -> None:
    def f(members, x):
        members.add(x.shape[0])
        members.discard(1)
        return x

    check(f, {1, 2}, X)


def test_two_names_of_one_list() -> None:
    def f(one, other, x):
        one.append(x)
        other.append(1)
        return one is other, len(one)

    shared: list[Any] = []
    compiled = api.compile(f, backend="eager", fullgraph=True)
    assert compiled(shared, shared, X) == (True, 2)
    assert len(shared) == 2
    separate: list[Any] = [[], []]
    assert compiled(*separate, X) == (False, 1)
    assert separate[1] == [1]


def test_two_lists_that_become_one() -> None:
    def f(one, other, x):
        one.append(x)
        return len(other)

    compiled = api.compile(f, backend="eager", fullgraph=True)
    assert compiled([], [], X) == 0
    shared: list[Any] = []
    assert compiled(shared, shared, X) == 1


def test_a_new_object_put_in_two_places() -> None:
    def f(point, x):
        made = [x]
        point.x = made
        made.append(1)
        return made, {"made": made}

    point = Point(0)
    result, table = api.compile(f, backend="eager", fullgraph=True)(point, X)
    assert point.x is result is table["made"]
    assert result[1] == 1


def test_globals() -> None:
    def f(x):
        global TOTAL
        TOTAL += 1
        STATE["n"] += 1
        CALLS.append(x.shape)
        return x * TOTAL

    compiled = api.compile(f, backend="eager", fullgraph=True)
    for count in (1, 2, 3):
        assert_same(compiled(X), X * count)
    assert (TOTAL, STATE["n"], len(CALLS)) == (3, 3, 3)


def test_closure_cells() -> None:
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x + count

    compiled = api.compile(f, backend="eager", fullgraph=True)
    assert_same(compiled(X), X + 1)
    assert_same(compiled(X), X + 2)
    assert count == 2


def test_swapped_attributes() -> None:
    def f(point, x):
        point.x, point.y = point.y, point.x
        return x

    check(f, Point([1], [2]), X)


def test_a_function_made_in_the_frame_escapes() -> None:
    def f(x, n):
        def inner(y):
            return y + x * n

        return inner

    found = api.compile(f, backend="eager", fullgraph=True)(X, 2)
    assert_same(found(X), X + X * 2)


def test_tensors_changed_in_place() -> None:
    def f(x, y):
        x.add_(1)
        y[0] = 7
        x.mul_(y)
        return x

    check(f, X.clone(), X.clone())


def test_an_argument_returned_is_the_argument() -> None:
    def f(x, items):
        return x, items, [x]

    items = [1]
    found = api.compile(f, backend="eager", fullgraph=True)(X, items)
    assert found[0] is X and found[1] is items and found[2][0] is X


def test_a_write_that_changes_nothing_is_not_replayed() -> None:
    class Watched:
        writes = 0

        def __init__(self) -> None:
            self.flag = False

    def f(w, x):
        w.flag = True
        y = x + 1
        w.flag = False
        return y

    watched = Watched()
    compiled = api.compile(f, backend="eager", fullgraph=True)
    assert_same(compiled(watched, X), X + 1)
    watched.flag = True
    assert_same(compiled(watched, X), X + 1)
    assert watched.flag is False
    assert compiled.compiler.capture_count == 2


def test_module_state() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("running", torch.zeros(3))

        def forward(self, x):
            self.calls += 1
            self.running += x
            self.last = x * 2
            return self.running * self.calls

    mine, theirs = Counting(), Counting()
    compiled = api.compile(mine, backend="eager", fullgraph=True)
    for _ in range(3):
        assert_same(compiled(X), theirs(X))
    assert mine.calls == 3
    assert_same(mine.running, theirs.running)
    assert_same(mine.last, theirs.last)


def test_a_buffer_replaced() -> None:
    class Replacing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(3))

        def forward(self, x):
            self.state = self.state + x
            return self.state * 2

    mine, theirs = Replacing(), Replacing()
    compiled = api.compile(mine, backend="eager", fullgraph=True)
    for _ in range(3):
        assert_same(compiled(X), theirs(X))
    assert_same(mine.state, theirs.state)
    assert "state" in mine._buffers


def test_effects_are_not_made_when_capture_fails() -> None:
    def f(point, x):
        point.x = 1
        if x.sum() > 0:
            return x
        return -x

    point = Point(0)
    with pytest.raises(Unsupported):
        api.compile(f, backend="eager", fullgraph=True)(point, X)
    assert point.x == 0
