"""Rows of records: which objects share one, and what has none."""

from __future__ import annotations

import json

import pytest

from fusewright.ir.index import SizeSymbol
from fusewright.ir.stored import NotStored, RecordStorage

STORAGE = RecordStorage({})


def test_numbers_that_are_equal_and_of_other_classes_keep_their_rows() -> None:
    items = ((1,), (1.0,), (True,), (0.0,), (-0.0,), (0,), (False,))
    assert repr(STORAGE.read(STORAGE.text(items))) == repr(items)


def test_equal_objects_are_one() -> None:
    first, second = ((SizeSymbol("s0", 2).index, "name") for _ in range(2))
    assert first is not second
    text = STORAGE.text((first, second, {"other": first}))
    stored = json.loads(text)
    names = [stored["classes"][number] for number, *_ in stored["rows"]]
    assert [names.count(name) for name in ("SizeSymbol", "Index", "dict")] == [1, 1, 1]
    left, right, named = STORAGE.read(text)
    assert left is right is named["other"]
    assert left == first


def test_equal_objects_have_equal_texts_whoever_else_holds_their_parts() -> None:
    name = "".join(["na", "me"])
    held = [name] * 3
    assert STORAGE.text((name, held[0])) == STORAGE.text(("".join(["na", "me"]), "name"))


def test_a_class_without_rows_is_named() -> None:
    with pytest.raises(NotStored, match=r"builtins\.list"):
        STORAGE.text(([1],))
