"""The words of a plan for the C code: their meaning is the same in Python and in the header."""

from __future__ import annotations

import re
from enum import IntEnum

import pytest

from fusewright.packages.standalone_plan import (
    MOST_ARGUMENTS,
    OPERATIONS,
    ArgumentKind,
    InputKind,
    RecipeKind,
    text_words,
)
from tests.packages.in_c import SOURCES

HEADER = re.sub(r"/\*.*?\*/", "", (SOURCES / "package_plan.h").read_text(), flags=re.DOTALL)


def names_in_header(first: str) -> dict[str, int]:
    """The names, and their numbers, of the enumeration that begins with a name."""
    (body,) = re.findall(rf"enum {{\s*({first}\b.*?)}}", HEADER, flags=re.DOTALL)
    numbers: dict[str, int] = {}
    for row in filter(None, map(str.strip, body.split(","))):
        name, _, number = row.partition(" = ")
        numbers[name] = int(number) if number else len(numbers)
    return numbers


@pytest.mark.parametrize("kind", [ArgumentKind, InputKind, RecipeKind])
def test_kinds(kind: type[IntEnum]) -> None:
    members = {member.name: member.value for member in kind}
    assert names_in_header(next(iter(members))) == members


def test_operations() -> None:
    """Those that the C code treats by themselves."""
    numbers = names_in_header("LAUNCH")
    assert numbers.pop("OPERATION_COUNT") == len(OPERATIONS)
    assert {"launch", "dispatch", "branch", "while", "scan"} == {
        name for name, number in OPERATIONS.items() if number in numbers.values()
    }
    assert names_in_header("MOST_ARGUMENTS")["MOST_ARGUMENTS"] == MOST_ARGUMENTS


@pytest.mark.parametrize(("text", "words"), [("", 2), ("a" * 7, 2), ("a" * 8, 3), ("é", 2)])
def test_texts_end_with_a_zero(text: str, words: int) -> None:
    length, *content = text_words(text)
    assert len(content) + 1 == words and length == len(text.encode())
    memory = b"".join(word.to_bytes(8, "little") for word in content)
    assert memory.rstrip(b"\0") == text.encode() and memory[length] == 0
