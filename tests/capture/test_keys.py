"""Objects, functions and modules as keys of dicts and members of sets: which of them are the same
object is guarded, whatever holds them.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fusewright import api

X = torch.ones(2)


class Plain:
    """An object that equals itself alone."""

    def method(self) -> None:
        """Bound methods are keys, too."""


ONE, OTHER, THIRD = Plain(), Plain(), Plain()
OBJECTS = {ONE: 2.0, OTHER: 3.0}
PAIRS = {(ONE, 1): 2.0, (OTHER, 1): 3.0}
FROZEN = {frozenset([ONE]): 2.0, frozenset([OTHER]): 3.0}
METHODS = {ONE.method: 2.0, OTHER.method: 3.0}
NUMBERS = {id(ONE): 2.0, id(OTHER): 3.0}
SET, SET_OF_PAIRS, SET_OF_NUMBERS = {ONE}, {(ONE, 1)}, {id(ONE)}

LOOKUPS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda o: OBJECTS.get(o),
    "dict that raises": lambda o: OBJECTS[o],
    "in a dict": lambda o: o in OBJECTS,
    "pair": lambda o: PAIRS.get((o, 1)),
    "pair that raises": lambda o: PAIRS[(o, 1)],
    "frozen set": lambda o: FROZEN.get(frozenset([o])),
    "method": lambda o: METHODS.get(o.method),
    "number": lambda o: NUMBERS.get(id(o)),
    "number in a set": lambda o: id(o) in SET_OF_NUMBERS,
    "number in a copied dict": lambda o: dict(NUMBERS).get(id(o)),
    "new dict": lambda o: {ONE: 2.0, OTHER: 3.0}.get(o),
    "new dict that raises": lambda o: {ONE: 2.0, OTHER: 3.0}[o],
    "new pairs": lambda o: {(ONE, 1): 2.0, (OTHER, 1): 3.0}.get((o, 1)),
    "copied dict": lambda o: {**PAIRS}.get((o, 1)),
    "set": lambda o: o in SET,
    "pair in a set": lambda o: (o, 1) in SET_OF_PAIRS,
    "new set": lambda o: o in {ONE},
    "copied set": lambda o: o in set(SET),
    "intersection": lambda o: len({o} & SET),
    "subset": lambda o: {o} <= SET,
    "keys": lambda o: len({o: 1}.keys() & SET),
    "member": lambda o: next(iter(SET)) is o,
    "size of a new set": lambda o: len({ONE, OTHER, o}),
}


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except KeyError:
        return KeyError


@pytest.mark.filterwarnings("error::RuntimeWarning")  # "a defect of fusewright"
@pytest.mark.parametrize("given", list(itertools.permutations([ONE, OTHER, THIRD], 2)))
@pytest.mark.parametrize("look", LOOKUPS.values(), ids=LOOKUPS)
def test_another_object_is_another_key(look: Callable[[Any], Any], given: list[Any]) -> None:
    def f(x: Any, o: Any) -> Any:
        found = look(o)
        return x + 1, found

    compiled = api.compile(f, backend="eager")
    for each in (*given, *given):
        mine, theirs = outcome(compiled, X, each), outcome(f, X, each)
        assert (mine is theirs) if theirs is KeyError else mine[1] == theirs[1]


def test_keys_of_new_dicts_are_told_apart_only() -> None:
    def f(x: Any, first: Any, second: Any) -> Any:
        return x * len({first, second}) + len({id(first): 1, id(second): 2})

    compiled = api.compile(f, backend="eager", fullgraph=True)
    for pair in (ONE, OTHER), (OTHER, THIRD), (Plain(), Plain()):
        assert compiled(X, *pair).tolist() == [4, 4]
    assert compiled.compiler.capture_count == 1
    assert compiled(X, ONE, ONE).tolist() == [2, 2]


# -- new objects whose hashes read them -----------------------------------------------------------


@dataclass(frozen=True)
class Marked:
    """An object that is hashed by what it holds."""

    number: int
    inner: Any = None


class Holder:
    """An object with whatever attributes it is given."""


def in_attribute(x: Any) -> Any:
    holder = Holder()
    holder.marks = set()
    holder.marks.add(Marked(1))
    return x + 1, holder.marks


NEW_KEYS: dict[str, Callable[[Any], Any]] = {
    "set": lambda x: (x + 1, {Marked(1), Marked(2)}),
    "dict": lambda x: (x + 1, {Marked(1): x, Marked(2): 3}),
    "frozen set": lambda x: (x + 1, frozenset([Marked(1), Marked(2)])),
    "pair": lambda x: (x + 1, {(Marked(1), 2), (Marked(2), 2)}),
    "nested": lambda x: (x + 1, {Marked(1, Marked(2)): {Marked(3, (Marked(4),))}}),
    "set of frozen sets": lambda x: (x + 1, {frozenset([Marked(1)])}),
    "ordered dict": lambda x: (x + 1, collections.OrderedDict([(Marked(1), 2)])),
    "attribute": in_attribute,
}


@pytest.mark.parametrize("name", NEW_KEYS)
def test_new_objects_that_are_hashed_by_what_they_hold(name: str) -> None:
    program = NEW_KEYS[name]
    compiled = api.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        (result, found), (expected, keys) = compiled(X), program(X)
        assert torch.equal(result, expected) and type(found) is type(keys)
        assert {*found} == {*keys}


def test_new_objects_as_keys_behind_a_graph_break() -> None:
    def program(x: Any) -> Any:
        marks = {Marked(1): 2}
        api.graph_break()
        return x * marks[Marked(1)]

    assert torch.equal(api.compile(program, backend="eager")(X), X * 2)
