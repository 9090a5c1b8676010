"""Nested arguments and results as data, and back."""

from __future__ import annotations

import dataclasses
import json
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch

from fusewright.errors import WrongArgument
from fusewright.packages.structure import (
    CannotDescribe,
    Named,
    describe,
    leaves_of,
    rebuild,
    take_leaves,
)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Output(OrderedDict[str, Any]):
    logits: Any = None
    hidden: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value


def described(value: Any) -> tuple[Any, list[torch.Tensor]]:
    tensors: list[torch.Tensor] = []

    def leaf(item: Any) -> int | None:
        if not isinstance(item, torch.Tensor):
            return None
        tensors.append(item)
        return len(tensors) - 1

    return json.loads(json.dumps(describe(value, leaf, "x"))), tensors


X, Y = torch.ones(2), torch.zeros(3)


@pytest.mark.parametrize(
    "value",
    [
        X,
        (X, [Y, None], {"a": X, 3: (Y,)}),
        [1, 2.5, True, "text", float("inf"), 1 + 2j],
        [torch.float16, torch.device("cpu"), torch.strided, torch.channels_last],
        Pair(X, [Y]),
        Output(logits=X),
        (),
    ],
    ids=str,
)
def test_round_trip(value: Any) -> None:
    description, tensors = described(value)
    again = rebuild(description, tensors)
    assert type(again) is type(value)
    assert repr(again) == repr(value)
    leaves: list[Any] = [None] * len(tensors)
    take_leaves(description, value, "x", leaves)
    assert all(one is other for one, other in zip(leaves, tensors, strict=True))


def test_classes_that_are_not_loaded_have_a_stand_in() -> None:
    description, tensors = described(Output(logits=X, hidden=(Y,)))
    description["class"][0] = "no.such.module"
    result = rebuild(description, tensors)
    assert isinstance(result, Named)
    assert result.logits is X and result["hidden"] == (Y,) and result[0] is X
    assert result.to_tuple() == (X, (Y,))
    with pytest.raises(AttributeError, match="other"):
        _ = result.other


def test_only_plain_classes_are_called() -> None:
    description = {"class": ["os", "system"], "fields": [["command", {"constant": "true"}]]}
    assert isinstance(rebuild(description, ()), Named)


def test_places_are_named() -> None:
    description, _ = described({"a": [X, {"b": Y}], "p": Pair(X, 1)})
    assert [place for _, place in leaves_of(description, "x")] == [
        "x['a'][0]",
        "x['a'][1]['b']",
        "x['p'].left",
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [X]}, r"x\['a'\] has to be a list of 2, not \["),
        ({"a": [X, 3]}, r"x\['a'\]\[1\] has to be 2, as when the package was made, not 3"),
        ({"a": [X, True]}, r"x\['a'\]\[1\] has to be 2, .* not True"),
        ({"a": [None, 2]}, r"x\['a'\]\[0\] has to be a tensor, not None"),
        ({"b": [X, 2]}, r"x has to be a dict with the keys \['a'\]"),
        (X, r"x has to be a dict .* not a tensor of size \(2,\)"),
    ],
)
def test_other_arguments_are_named(value: Any, words: str) -> None:
    description, tensors = described({"a": [X, 2]})
    with pytest.raises(WrongArgument, match=words):
        take_leaves(description, value, "x", [None] * len(tensors))


def test_what_is_no_data() -> None:
    with pytest.raises(CannotDescribe, match=r"x\[0\]\['k'\] is an object of class object"):
        described([{"k": object()}])
