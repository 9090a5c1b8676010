"""Guards that held before: every change is still seen, and nothing is kept alive. Without torch.

A first check writes a journal of what it depended on, which later ones read (guard_journal.c).
`tests/native/test_other_pythons.py` runs this file under each CPython that is supported.
"""

from __future__ import annotations

import collections
import gc
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.native.extension import extension

GuardProgram = extension.GuardProgram


class Thing:
    kind = "class attribute"
    __slots__ = ("__dict__", "__weakref__", "slot")

    def __init__(self) -> None:
        self.number = 5
        self.items: list[Any] = [1, Leaf(), (2, 3)]
        self.table: dict[Any, Any] = {"a": Leaf(), "b": 2}
        self.ordered = collections.OrderedDict(a=1, b=2)
        self.function = make_function()
        self.slot = Leaf()


class OtherThing(Thing):
    __slots__ = ()


class Leaf:
    value = 1


class Base:
    pass


def make_function() -> Callable[..., Any]:
    captured = Leaf()

    def function(default: Any = (4, 5), *, keyword: Any = 6) -> Any:
        return captured

    return function


def g(x: Any) -> Any:
    return x


SELF = (0, ("local", "x"), (("type", Thing),))
DICT = (1, ("instance_dict",), (("lacks", "absent"),))


def below(*path: Any, tests: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """A program of one path from the argument's dictionary, with tests of its end."""
    nodes = [(depth, step, ()) for depth, step in enumerate(path, 2)]
    nodes[-1] = (*nodes[-1][:2], tests)
    return (SELF, DICT, *nodes)


def item(name: str) -> tuple[str, str]:
    return ("dict_item", name)


LEAF = (("type", Leaf),)
FUNCTION = item("function")

PROGRAMS: dict[str, tuple[Any, ...]] = {
    "number": below(item("number"), tests=(("equals", 5),)),
    "table": below(item("table"), tests=(("type", dict), ("keys", ("a", "b")))),
    "length of table": below(item("table"), tests=(("length", 2),)),
    "key of table": below(item("table"), ("dict_key", 0), tests=(("equals", "a"),)),
    "in table": below(item("table"), tests=(("contains", "a"), ("lacks", "z"))),
    "order": below(item("ordered"), tests=(("keys", ("a", "b")),)),
    "length of ordered": below(item("ordered"), tests=(("length", 2),)),
    "leaf of table": below(item("table"), item("a"), tests=LEAF),
    "leaf's dictionary": below(
        item("table"), item("a"), ("instance_dict",), tests=(("length", 0),)
    ),
    "list": below(item("items"), tests=(("type", list), ("length", 3))),
    "list item": below(item("items"), ("item", 0), tests=(("equals", 1),)),
    "leaf of list": below(item("items"), ("item", 1), tests=LEAF),
    "tuple item": below(item("items"), ("item", 2), ("item", 1), tests=(("equals", 3),)),
    "code": below(FUNCTION, tests=(("code", make_function().__code__),)),
    "defaults": below(FUNCTION, ("attribute", "__defaults__"), tests=(("length", 1),)),
    "keyword default": below(
        FUNCTION, ("attribute", "__kwdefaults__"), item("keyword"), tests=(("equals", 6),)
    ),
    "cell": below(
        FUNCTION, ("attribute", "__closure__"), ("item", 0), ("cell_contents",), tests=LEAF
    ),
    "slot": (SELF, (1, ("attribute", "slot"), LEAF)),
    "class attribute": (
        SELF,
        (0, ("constant", Thing), ()),
        (1, ("type_attribute", "kind"), (("equals", "class attribute"),)),
    ),
    "what a class lacks": (SELF, (0, ("constant", Thing), (("type_lacks", "absent"),))),
    "leaf's class": (
        (0, ("constant", Leaf), (("type_lacks", "absent"),)),
        (1, ("type_attribute", "value"), (("equals", 1),)),
        *below(item("number"), tests=(("equals", 5),)),
    ),
}


def replace_cell(thing: Thing) -> None:
    (cell,) = thing.function.__closure__  # type: ignore[attr-defined]
    cell.cell_contents = 1


def replace_code(thing: Any) -> None:
    captured = 1

    def function(default: Any = (4, 5), *, keyword: Any = 6) -> Any:
        return captured, default

    thing.function.__code__ = function.__code__


def set_class_attribute(owner: type, name: str) -> Callable[[Thing], Callable[[], None]]:
    def change(thing: Thing) -> Callable[[], None]:
        before = owner.__dict__.get(name)
        setattr(owner, name, "changed")
        if before is None:
            return lambda: delattr(owner, name)
        return lambda: setattr(owner, name, before)

    return change


CHANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "number set": ("number", lambda x: setattr(x, "number", 6)),
    "number set below": ("number", lambda x: x.__dict__.update(number=6)),
    "number to a bool": ("number", lambda x: setattr(x, "number", True)),
    "number deleted": ("number", lambda x: delattr(x, "number")),
    "another dictionary": ("number", lambda x: setattr(x, "__dict__", {**vars(x), "number": 6})),
    "absent set": ("number", lambda x: setattr(x, "absent", 1)),
    "another class": ("number", lambda x: setattr(x, "__class__", OtherThing)),
    "key added": ("table", lambda x: x.table.update(c=1)),
    "key renamed": ("table", lambda x: x.table.update(c=x.table.pop("b"))),
    "order of keys": ("table", lambda x: x.table.update(a=x.table.pop("a"))),
    "a longer table": ("length of table", lambda x: x.table.update(c=1)),
    "an empty table": ("length of table", lambda x: x.table.clear()),
    "another first key": ("key of table", lambda x: x.table.update(a=x.table.pop("a"))),
    "key gone": ("in table", lambda x: x.table.pop("a")),
    "key come": ("in table", lambda x: x.table.update(z=1)),
    "moved to the end": ("order", lambda x: x.ordered.move_to_end("a")),
    "a longer ordered dict": ("length of ordered", lambda x: x.ordered.update(c=1)),
    "another in table": ("leaf of table", lambda x: x.table.update(a=1)),
    "class of a leaf": ("leaf of table", lambda x: setattr(x.table["a"], "__class__", Base)),
    "attribute of a leaf": ("leaf's dictionary", lambda x: setattr(x.table["a"], "new", 1)),
    "a longer list": ("list", lambda x: x.items.append(1)),
    "another list item": ("list item", lambda x: x.items.__setitem__(0, 7)),
    "list item of another type": ("list item", lambda x: x.items.__setitem__(0, 1.0)),
    "list moved": ("list item", lambda x: x.items.__setitem__(slice(None), [9] * 100)),
    "another leaf in the list": ("leaf of list", lambda x: x.items.__setitem__(1, Base())),
    "class of a leaf in the list": (
        "leaf of list",
        lambda x: setattr(x.items[1], "__class__", Base),
    ),
    "another tuple": ("tuple item", lambda x: x.items.__setitem__(2, (2, 4))),
    "another code": ("code", replace_code),
    "other defaults": ("defaults", lambda x: setattr(x.function, "__defaults__", (4, 5))),
    "no defaults": ("defaults", lambda x: setattr(x.function, "__defaults__", None)),
    "keyword default changed": (
        "keyword default",
        lambda x: x.function.__kwdefaults__.update(keyword=7),
    ),
    "other keyword defaults": (
        "keyword default",
        lambda x: setattr(x.function, "__kwdefaults__", {"keyword": 7}),
    ),
    "cell set": ("cell", replace_cell),
    "slot set": ("slot", lambda x: setattr(x, "slot", 1)),
    "slot deleted": ("slot", lambda x: delattr(x, "slot")),
    "class attribute set": ("class attribute", set_class_attribute(Thing, "kind")),
    "class attribute come": ("what a class lacks", set_class_attribute(Thing, "absent")),
    "constant's attribute set": ("leaf's class", set_class_attribute(Leaf, "value")),
    "constant's attribute come": ("leaf's class", set_class_attribute(Leaf, "absent")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    program_name, change = CHANGES[name]
    program = GuardProgram(("x",), PROGRAMS[program_name])
    thing = Thing()
    for _ in range(4):
        assert program.check({"x": thing}, g)
    restore = change(thing)
    try:
        assert not program.check({"x": thing}, g)
        assert program.explain({"x": thing}, g) is not None
        assert not program.check({"x": thing}, g)
        if name not in ("class attribute come", "class attribute set") and "constant" not in name:
            assert program.check({"x": Thing()}, g)
    finally:
        if callable(restore):
            restore()


def test_every_program_is_changed() -> None:
    assert {program for program, _ in CHANGES.values()} == set(PROGRAMS)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="dictionaries have no versions there")
def test_an_unchanged_dictionary_is_not_searched_again() -> None:
    class Key:
        compared = 0

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            Key.compared += 1
            return isinstance(other, Key)

    program = GuardProgram(("x",), below(item("table"), ("dict_item", Key()), tests=LEAF))
    thing = Thing()
    thing.table[Key()] = Leaf()
    assert program.check({"x": thing}, g)
    Key.compared = 0
    assert program.check({"x": thing}, g)
    assert Key.compared == 0
    thing.table["c"] = 1
    assert program.check({"x": thing}, g)
    assert Key.compared > 0


def store_attribute(x: Any) -> None:
    x.number = 6


def store_then_new(x: Any) -> None:
    x.absent = 1


def delete_attribute(x: Any) -> None:
    del x.number


def store_item(x: Any) -> None:
    x.__dict__["number"] = 6


def delete_item(x: Any) -> None:
    del x.__dict__["number"]


def increment(x: Any) -> None:
    x.number += 1


def call_setattr(x: Any) -> None:
    setattr(x, "number", 6)  # noqa: B010


def call_object_setattr(x: Any) -> None:
    object.__setattr__(x, "number", 6)


def call_delattr(x: Any) -> None:
    delattr(x, "number")


def update(x: Any) -> None:
    x.__dict__.update(number=6)


def update_in_place(x: Any) -> None:
    x.__dict__ |= {"number": 6}


def set_default(x: Any) -> None:
    x.__dict__.setdefault("absent", 1)


def pop(x: Any) -> None:
    x.__dict__.pop("number")


def pop_last(x: Any) -> None:
    while "number" in x.__dict__:
        x.__dict__.popitem()


def clear(x: Any) -> None:
    x.__dict__.clear()


def execute(x: Any) -> None:
    exec("number = 6", x.__dict__)


def execute_as_locals(x: Any) -> None:
    exec("number = 6", {}, x.__dict__)


def reinitialize(x: Any) -> None:
    Thing.__init__(x)
    x.number = 6


def replace_dictionary(x: Any) -> None:
    x.__dict__ = {"number": 6}


def replace_by_equal_dictionary(x: Any) -> None:
    x.__dict__ = dict(x.__dict__)
    x.number = 6


def delete_dictionary(x: Any) -> None:
    del x.__dict__


WAYS = (
    *(store_attribute, store_then_new, delete_attribute, store_item, delete_item, increment),
    *(call_setattr, call_object_setattr, call_delattr, update, update_in_place, set_default),
    *(pop, pop_last, clear, execute, execute_as_locals, reinitialize, replace_dictionary),
    *(replace_by_equal_dictionary, delete_dictionary),
)


class Plain:
    """Without slots: its instances may keep attributes beside a dictionary, or in place of one."""

    def __init__(self) -> None:
        self.number = 5


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", [Thing, Plain])
@pytest.mark.parametrize("touched", [False, True], ids=["", "dictionary made before"])
def test_every_way_of_changing_an_attribute_is_seen(way: Any, kind: type, touched: bool) -> None:
    """Often enough for the interpreter to specialise the instructions that change it."""
    nodes = ((0, ("local", "x"), (("type", kind),)), DICT, (2, item("number"), (("equals", 5),)))
    program = GuardProgram(("x",), nodes)
    for _ in range(60):
        thing = kind()
        if touched:
            vars(thing)
        for _ in range(2):
            assert program.check({"x": thing}, g)
        way(thing)
        assert not program.check({"x": thing}, g)


def test_a_change_and_back_holds() -> None:
    program = GuardProgram(("x",), PROGRAMS["number"])
    thing = Thing()
    for number in (5, 6, 5, 5, 5, 6, 5):
        thing.number = number
        for _ in range(2):
            assert program.check({"x": thing}, g) is (number == 5)


def test_many_objects_in_turn() -> None:
    """More objects than there are journals, among them some for which the guards fail."""
    program = GuardProgram(("x",), PROGRAMS["number"])
    things = [Thing() for _ in range(50)]
    chance = random.Random(0)
    for _ in range(3000):
        thing = chance.choice(things)
        if chance.random() < 0.1:
            thing.number = chance.choice((5, 6))
        assert program.check({"x": thing}, g) is (thing.number == 5)


def test_objects_that_take_the_place_of_dead_ones() -> None:
    """A new object at an old address, of the same class, with another content."""
    program = GuardProgram(("x",), PROGRAMS["leaf of table"])
    places = set()
    for number in range(200):
        thing = Thing()
        places.add(id(thing))
        if number % 2:
            thing.table["a"] = Base()
        for _ in range(2):
            assert program.check({"x": thing}, g) is (number % 2 == 0)
        del thing
    assert len(places) < 200, "no address came back: the test shows nothing"


def test_a_class_that_takes_the_place_of_a_dead_one() -> None:
    """What was expected is gone: an instance of a class at the same address is another thing."""
    leaf_class: Any = type("Temporary", (), {})
    thing = Thing()
    thing.table["a"] = leaf_class()
    program = GuardProgram(("x",), below(item("table"), item("a"), tests=(("type", leaf_class),)))
    for _ in range(3):
        assert program.check({"x": thing}, g)
    leaf = thing.table["a"]
    leaf.__class__ = type("Other", (), {})
    gone = weakref.ref(leaf_class)
    del leaf_class
    gc.collect()
    assert gone() is None and program.is_dead()
    for _ in range(200):
        leaf.__class__ = type("Temporary", (), {})
        assert not program.check({"x": thing}, g)


def test_a_constant_held_weakly() -> None:
    constant: Any = type("Constant", (), {"value": 1})
    step = ("constant", weakref.ref(constant))
    own = (1, ("type_attribute", "value"), (("equals", 1),))
    program = GuardProgram(
        ("x",), ((0, step, (("type_lacks", "absent"),)), own, *PROGRAMS["number"])
    )
    thing = Thing()
    for _ in range(3):
        assert program.check({"x": thing}, g)
    constant.value = 2
    assert not program.check({"x": thing}, g)
    constant.value = 1
    for _ in range(3):
        assert program.check({"x": thing}, g)
    del constant
    gc.collect()
    assert not program.check({"x": thing}, g)


def test_user_code_in_a_check_may_change_what_the_rest_reads() -> None:
    class Changes:
        def __init__(self) -> None:
            self.inner: Any = Inner()

        @property
        def attribute(self) -> int:
            if self.armed:
                self.inner = None
                gc.collect()
            return 1

        armed = False

    class Inner:
        @property
        def value(self) -> int:
            return 1

    nodes = (
        (0, ("local", "x"), (("type", Changes),)),
        (1, ("attribute", "attribute"), (("equals", 1),)),
        (1, ("instance_dict",), ()),
        (2, ("dict_item", "inner"), (("type", Inner),)),
        (3, ("attribute", "value"), (("equals", 1),)),
    )
    program = GuardProgram(("x",), nodes)
    changes = Changes()
    for _ in range(4):
        assert program.check({"x": changes}, g)
    Changes.armed = True
    for _ in range(2):
        program.check({"x": changes}, g)  # either answer is true of some moment; no crash
    assert not program.check({"x": changes}, g)


def test_same_and_distinct_across_what_is_fresh() -> None:
    """Objects behind a lasting root are compared with arguments that are new at each call."""

    def program(test: str) -> Any:
        nodes = (
            (0, ("local", "x"), (("type", Thing),)),
            (1, ("instance_dict",), (("lacks", "absent"),)),
            (2, ("dict_item", "table"), (("type", dict),)),
            (3, ("dict_item", "a"), (("type", Leaf), (test, 0))),
            (0, ("local", "y"), (("type", tuple),)),
            (1, ("item", 0), ((test, 0),)),
            (1, ("item", 1), ((test, 1),)),
        )
        return GuardProgram(("x", "y"), nodes)

    thing, other = Thing(), Leaf()
    leaf = thing.table["a"]
    same, distinct = program("same"), program("distinct")
    for _ in range(4):
        assert same.check({"x": thing, "y": (leaf, 1)}, g)
        assert not same.check({"x": thing, "y": (other, 1)}, g)
        assert distinct.check({"x": thing, "y": (other, 1)}, g)
        assert not distinct.check({"x": thing, "y": (leaf, 1)}, g)
    thing.table["a"] = other
    for _ in range(3):
        assert not same.check({"x": thing, "y": (leaf, 1)}, g)
        assert same.check({"x": thing, "y": (other, 1)}, g)
        assert distinct.check({"x": thing, "y": (leaf, 1)}, g)
        assert not distinct.check({"x": thing, "y": (other, 1)}, g)


def test_nothing_is_kept_alive() -> None:
    for name, nodes in PROGRAMS.items():
        program = GuardProgram(("x",), nodes)
        thing = Thing()
        for _ in range(4):
            assert program.check({"x": thing}, g), name
        gone = [weakref.ref(each) for each in (thing, thing.function, thing.table["a"])]
        del thing
        assert [reference() for reference in gone] == [None] * 3, name
