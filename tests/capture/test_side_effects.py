"""Effects on Python objects are replayed once, after the graph, with aliasing kept."""

from __future__ import annotations

import collections
import sys
import types
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


# -- aliasing, order, and every place that can hold a change ---------------------------------------


class Holder:
    count = 0
    shared: list[Any] = []  # noqa: RUF012
    label = "label"

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    @classmethod
    def bump(cls) -> int:
        cls.count += 1
        return cls.count


class Slots:
    __slots__ = ("left", "right")


class Pushed(list):  # type: ignore[type-arg]
    pass


def remember(item, seen=[]):  # noqa: B006
    seen.append(item)
    return len(seen)


def remember_by_name(item, *, table={}):  # noqa: B006
    table[item] = len(table)
    return dict(table)


def make_pair():
    total = []
    count = 0

    def add(item):
        nonlocal count
        count += 1
        total.append(item)
        return count

    def read():
        return count, list(total)

    return add, read


def both(function: Any, make: Any, calls: int = 3) -> None:
    """Call a function and its compiled twin several times, each on a state of its own."""
    compiled = api.compile(function, backend="eager", fullgraph=True)
    mine, theirs = make(), make()
    for _ in range(calls):
        assert_same(compiled(X, *mine), function(X, *theirs))
        assert_same(mine, theirs, "state")


def one_list_in_two_attributes(x, h):
    h.a.append(x.shape[0])
    h.b.append("b")
    h.c = [h.a, h.b]
    return h.a is h.b, len(h.a)


def make_one_list_in_two_attributes():
    items = [0]
    return (Holder(a=items, b=items, outer={"k": items}),)


def a_list_in_itself(x, items):
    items.append(items)
    items[0].append(len(items))
    return items is items[-1]


def a_cycle_of_objects(x, h):
    h.next = Holder(back=h, x=x)
    h.next.back.name = "h"
    return h.next.x + 1


def order_of_keys(x, d):
    d.pop("a", None)
    d["z"] = d.pop("b", 1)
    d["a"] = 9
    d.setdefault("b", []).append(2)
    return list(d)


def nested_containers(x, d):
    d["a"][1]["b"].append(d["a"])
    d["a"][1]["n"] = {"x": [1]}
    d["a"][1]["n"]["x"][0] += 1
    return len(d["a"])


def slots_written(x, s):
    s.left = getattr(s, "left", 0) + 1
    s.right = [s]
    return s.left


def container_of_each_kind(x, q, o, d, s, r):
    q.append(1)
    q.rotate(1)
    o.move_to_end("a")
    d["new"].append(5)
    s ^= {1, 7}
    s.add("k")
    r.push = 3
    r.append(r.push)
    return list(q), list(o), len(d), 7 in s


def closures_that_share_cells(x, add, read):
    first = add(x.shape[0])
    second = add("b")
    return first, second, read()


def attributes_of_functions(x, h):
    remember.calls = getattr(remember, "calls", 0) + 1
    return remember.calls >= 1


SIDE_EFFECTS = [
    (one_list_in_two_attributes, make_one_list_in_two_attributes),
    (a_list_in_itself, lambda: ([[]],)),
    (a_cycle_of_objects, lambda: (Holder(),)),
    (order_of_keys, lambda: ({"a": 1, "b": 2, "c": 3},)),
    (nested_containers, lambda: ({"a": [0, {"b": []}]},)),
    (slots_written, lambda: (Slots(),)),
    (
        container_of_each_kind,
        lambda: (
            collections.deque([5, 6], 3),
            collections.OrderedDict(a=1, b=2),
            collections.defaultdict(list, a=[1]),
            {1, 2},
            Pushed(),
        ),
    ),
    (closures_that_share_cells, make_pair),
    (attributes_of_functions, lambda: (None,)),
]


@pytest.mark.parametrize(("function", "make"), SIDE_EFFECTS, ids=lambda p: p.__name__)
def test_state_over_calls(function: Any, make: Any) -> None:
    both(function, make)


def test_class_attributes() -> None:
    def f(x, cls):
        cls.count += 1
        cls.shared.append(cls.count)
        cls.label = "changed"
        cls.made = x.shape[0]
        found = cls.bump(), cls().count, cls().label, cls.made, hasattr(cls, "gone")
        cls.gone = 1
        del cls.gone
        return x * cls.count, found

    results = []
    for compile_it in (False, True):
        made = type("Made", (Holder,), {"shared": [], "count": 0})
        call = api.compile(f, backend="eager", fullgraph=True) if compile_it else f
        results.append([call(X, made) for _ in range(3)] + [dict(made.__dict__)["count"]])
        results[-1].append((made.shared, made.label, made.made, "gone" in made.__dict__))
    assert_same(results[1], results[0])
    assert Holder.count == 0 and Holder.shared == []


def test_an_attribute_set_on_a_class_is_seen_by_its_subclasses() -> None:
    def f(x, base, derived):
        base.late = lambda self: self.count + 1
        return x + derived().late(), derived.late is base.late

    base = type("Base", (), {"count": 1})
    derived = type("Derived", (base,), {})
    assert_same(api.compile(f, backend="eager", fullgraph=True)(X, base, derived)[0], X + 2)
    assert derived().late() == 2


def test_mutated_defaults() -> None:
    def f(x):
        return remember(x.shape[0]), remember_by_name("k"), remember_by_name(x.shape[0])

    compiled = api.compile(f, backend="eager", fullgraph=True)
    before = remember("start")
    found = [compiled(X)[0] for _ in range(3)]
    assert found == [before + 1, before + 2, before + 3]
    assert remember_by_name("k") == {"k": 0, 3: 1} or len(remember_by_name("k")) == 2


def test_variables_of_another_module() -> None:
    other = types.ModuleType("a_module_of_this_test")
    exec("N = 1\ndef bump():\n    global N\n    N += 1\n    return N\n", other.__dict__)
    sys.modules[other.__name__] = other

    def f(x):
        import a_module_of_this_test as module

        module.M = module.bump() + module.N
        return x * module.N, module.M

    try:
        compiled = api.compile(f, backend="eager", fullgraph=True)
        for n in (2, 3, 4):
            assert_same(compiled(X), (X * n, 2 * n))
            assert_same((other.N, other.M), (n, 2 * n))
    finally:
        del sys.modules[other.__name__]


def test_effects_before_an_exception_leaves_the_frame() -> None:
    log: list[Any] = []

    def f(x, h):
        log.append("before")
        h.value = 1
        h.result = x + 1
        raise ValueError("out") if h.fail else KeyError("other")

    compiled = api.compile(f, backend="eager", fullgraph=True)
    holder = Holder(fail=True)
    for count in (1, 2):
        with pytest.raises(ValueError, match="out"):
            compiled(X, holder)
        assert len(log) == count and holder.value == 1
    holder.fail = False
    with pytest.raises(KeyError):
        compiled(X, holder)
    assert len(log) == 3


def test_a_global_made_and_deleted() -> None:
    def f(x):
        global MADE_AND_DELETED
        MADE_AND_DELETED = x
        y = MADE_AND_DELETED + 1
        del MADE_AND_DELETED
        return y, "MADE_AND_DELETED" in globals()

    check(f, X)


def test_an_effect_through_a_property_is_made_once() -> None:
    class Counted:
        sets = 0

        @property
        def value(self):
            return self._value

        @value.setter
        def value(self, new):
            self.sets += 1
            self._value = new

    def f(x, c):
        c.value = x + 1
        c.value = c.value * 2
        return c.sets

    both(f, lambda: (Counted(),))


def test_writes_that_hide_one_another() -> None:
    def f(x, h):
        h.a = [1]
        kept = h.a
        h.a = [2]
        kept.append(x.shape[0])
        h.b = kept
        h.a = h.b
        return h.a is kept

    both(f, lambda: (Holder(a=None),))
