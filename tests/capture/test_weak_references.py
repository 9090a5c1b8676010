"""Weak references as keys of dicts and members of sets, and the weak dicts and sets that Python's
library builds of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import api

X = torch.ones(2)


class Plain:
    """An object that equals itself alone."""


class Numbered:
    """An object with an equality of its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbered) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


class Held:
    """Objects and what holds them weakly."""

    def __init__(self) -> None:
        self.objects = [Plain() for _ in range(3)]
        one, other, _ = self.objects
        self.keys = weakref.WeakKeyDictionary({one: 2.0, other: 3.0})
        self.values = weakref.WeakValueDictionary({"one": one, "other": other})
        self.set = weakref.WeakSet([one])
        self.references = {weakref.ref(one): 2.0, weakref.ref(other): 3.0}


def stored_once(held: Held, o: Any) -> Any:
    if o not in held.keys:
        held.keys[o] = 5.0
    return held.keys[o]


def new_dictionary(held: Held, o: Any) -> Any:
    made: Any = weakref.WeakKeyDictionary()
    made[o] = 2.0
    return made[o], len(made), len(made.copy())


def new_set(held: Held, o: Any) -> Any:
    made: Any = weakref.WeakSet()
    made.add(o)
    made.add(held.objects[0])
    return len(made), o in made


def removed(held: Held, o: Any) -> Any:
    return held.keys.pop(o, None), len(held.keys)


USES: dict[str, Callable[[Held, Any], Any]] = {
    "get": lambda held, o: held.keys.get(o, 7.0),
    "in": lambda held, o: o in held.keys,
    "length": lambda held, o: len(held.keys),
    "loop": lambda held, o: [value for key, value in held.keys.items() if key is not o],
    "values": lambda held, o: held.values.get("one") is o,
    "in a set": lambda held, o: o in held.set,
    "set default": lambda held, o: held.keys.setdefault(o, 9.0),
    "plain dict": lambda held, o: held.references.get(weakref.ref(o)),
    "copied dict": lambda held, o: dict(held.references).get(weakref.ref(o)),
    "copied set": lambda held, o: weakref.ref(o) in set(held.set.data),
    "new keys": lambda held, o: {weakref.ref(o): 1, weakref.ref(held.objects[0]): 2},
    "compared": lambda held, o: weakref.ref(o) == weakref.ref(held.objects[0]),
    "different": lambda held, o: weakref.ref(o) != next(iter(held.references)),
    "stored once": stored_once,
    "new dictionary": new_dictionary,
    "new set": new_set,
    "removed": removed,
}


@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_they_are_keys(use: Callable[[Held, Any], Any], first: int) -> None:
    def f(x: Any, held: Held, o: Any) -> Any:
        found = use(held, o)
        return x + 1, found

    compiled = api.compile(f, backend="eager", fullgraph=True)
    mine, theirs = Held(), Held()
    for number in (first, (first + 1) % 3, (first + 2) % 3, first):
        found = compiled(X, mine, mine.objects[number])[1]
        expected = f(X, theirs, theirs.objects[number])[1]
        assert len(found) == len(expected) if isinstance(found, dict) else found == expected
        assert len(mine.keys) == len(theirs.keys)


def test_what_compiled_code_stores_goes_with_its_key() -> None:
    def f(x: Any, cache: Any, o: Any) -> Any:
        if o not in cache:
            cache[o] = x * 2
        return x + cache[o]

    compiled = api.compile(f, backend="eager", fullgraph=True)
    cache: Any = weakref.WeakKeyDictionary()
    for _ in range(2):
        o = Plain()
        for _ in range(2):
            assert compiled(X, cache, o).tolist() == [3, 3]
            assert len(cache) == 1
        gone = weakref.ref(o)
        del o
        assert gone() is None and len(cache) == 0


@pytest.mark.filterwarnings("ignore")
def test_objects_with_an_equality_of_their_own() -> None:
    def f(x: Any, table: Any, o: Any) -> Any:
        return x * table.get(o, 7.0)

    compiled = api.compile(f, backend="eager")
    kept = [Numbered(1), Numbered(2)]
    table: Any = weakref.WeakKeyDictionary({kept[0]: 2.0, kept[1]: 3.0})
    for number in (1, 2, 3, 1):
        o = Numbered(number)
        assert torch.equal(compiled(X, table, o), f(X, table, o))


KNOWN = Plain()
NUMBERED = Numbered(1)


def test_references_made_of_one_object_are_one() -> None:
    def f(x: Any, held: Any, o: Any) -> Any:
        local = Plain()
        first, second = weakref.ref(local), weakref.ref(local)
        known, given = weakref.ref(KNOWN), weakref.ref(o)
        equal = Numbered(1)
        return (
            x + 1,
            (first is second, first == second, first != second, first is known, first == known),
            (known is weakref.ref(KNOWN), known == weakref.ref(KNOWN), given is known),
            (given is held[0], given == held[0], held[0] is held[1], known is held[0]),
            weakref.ref(NUMBERED) == weakref.ref(equal),
            weakref.ref(o, print) is given,
            given is held[2],
        )

    compiled = api.compile(f, backend="eager", fullgraph=True)
    o, other = Plain(), Plain()
    plain, watched = weakref.ref(o), weakref.ref(o, lambda _: None)
    for held in ([plain, plain, watched], [weakref.ref(other), plain, watched]):
        assert compiled(X, held, o)[1:] == f(X, held, o)[1:]
