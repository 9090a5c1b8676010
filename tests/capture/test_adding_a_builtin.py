"""docs/adding-a-builtin.md: the change of its example, made to the file that it names."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fusewright import api
from fusewright.capture.handlers.registry import MEANINGS
from fusewright.errors import Unsupported

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-builtin.md"
TABLE = torch.rand(7, 3)


def row_of_name(table: torch.Tensor, name: str) -> Any:
    return table[zlib.crc32(name.encode()) % 7] * 2


def changed(text: str, difference: str) -> str:
    """A text after a difference, each of whose parts fits one place of it."""
    for part in difference.split("@@\n"):
        lines = part.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@pytest.fixture
def added() -> Iterator[None]:
    """The table of callables as the changed file fills it."""
    rows = dict(MEANINGS)
    (change,) = re.findall(r"```diff\n(.*?)```", PAGE.read_text(), flags=re.S)
    head, _, difference = change.partition("\n")
    path = ROOT / head.removeprefix("--- ")
    module = ModuleType("fusewright.capture.handlers.changed")
    exec(compile(changed(path.read_text(), difference), str(path), "exec"), vars(module))
    yield
    MEANINGS.clear()
    MEANINGS.update(rows)


def test_before_it_breaks_the_graph() -> None:
    with pytest.raises(Unsupported, match="crc32"):
        api.compile(row_of_name, fullgraph=True)(TABLE, "weight")


@pytest.mark.usefixtures("added")
def test_after_it_is_captured() -> None:
    compiled = api.compile(row_of_name, fullgraph=True)
    for name in ("weight", "bias", "ü", ""):
        assert torch.equal(compiled(TABLE, name), row_of_name(TABLE, name))


@pytest.mark.usefixtures("added")
def test_it_raises_as_in_python() -> None:
    def program(table: torch.Tensor, data: Any) -> Any:
        return table + zlib.crc32(data)

    compiled = api.compile(program, backend="eager")
    with pytest.raises(TypeError, match="bytes-like object is required, not 'str'"):
        compiled(TABLE, "text")
