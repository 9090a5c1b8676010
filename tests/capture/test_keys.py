"""Objects, functions and modules as keys of dicts and members of sets: which of them are the same
object is guarded, whatever holds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
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
