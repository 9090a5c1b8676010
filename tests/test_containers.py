"""Nested containers: their members in order, and copies of the same classes."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch

from fusewright.containers import mapped, members, tensors

Pair = namedtuple("Pair", "left right")
ONE, TWO, THREE = (torch.full((2,), float(number)) for number in (1, 2, 3))


def test_members_stand_in_order() -> None:
    nested = (ONE, [2, {"a": TWO, "b": Pair("x", THREE)}], None)
    assert [id(x) for x in tensors(nested)] == [id(x) for x in (ONE, TWO, THREE)]
    assert list(members(nested, (int, str))) == [2, "x"]
    assert list(tensors(ONE)) == [ONE]


def test_copies_have_the_classes_of_containers() -> None:
    found = mapped(lambda x: x + 1, [ONE, Pair(TWO, (3,)), {"a": (THREE,)}])
    assert isinstance(found, list) and isinstance(found[1], Pair)
    assert torch.equal(found[0], TWO) and torch.equal(found[1].left, THREE)
    assert found[1].right == (3,) and isinstance(found[2]["a"], tuple)


def test_results_of_torch_keep_their_class() -> None:
    largest = torch.tensor([[1.0, 3.0], [4.0, 2.0]]).max(1)
    copy = mapped(torch.clone, largest)
    assert type(copy) is type(largest) and torch.equal(copy.values, largest.values)


def test_a_size_stays_one_while_it_holds_numbers() -> None:
    doubled: Any = mapped(lambda size: size * 2, torch.Size([2, 3]), int)
    assert doubled == torch.Size([4, 6]) and isinstance(doubled, torch.Size)
    named: Any = mapped(str, torch.Size([2, 3]), int)
    assert named == ("2", "3")
    assert isinstance(mapped(int, named, str), torch.Size)
