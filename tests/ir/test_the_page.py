"""docs/the-ir.md names every node of the IR with its fields, and shows what scheduling gives."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from fusewright.context import CompileContext
from fusewright.ir import group, index, kernel, lines, program, sizes, value
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_schedule
from fusewright.records import is_record
from fusewright.schedule import schedule

PAGE = (Path(__file__).parents[2] / "docs" / "the-ir.md").read_text()
BLOCKS = re.findall(r"```\n(.*?)```", PAGE, flags=re.S)
NODES = set(re.findall(r"(\w+)\(([^)]*)\)", re.sub(r",\n +", ", ", BLOCKS[0])))
NOT_SHOWN = {"origins", "expressions"}


@pytest.mark.parametrize("module", [index, sizes, value, program, group, kernel, lines])
def test_all_nodes_stand_on_the_page(module: ModuleType) -> None:
    classes = [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type) and cls.__module__ == module.__name__ and is_record(cls)
    ]
    assert classes or module is index
    classes += [*index.Symbol.__subclasses__(), index.Compound] if module is index else []
    for cls in classes:
        fields = [name for name in inspect.signature(cls).parameters if name not in NOT_SHOWN]
        assert (cls.__name__, ", ".join(fields)) in NODES


def test_no_other_nodes_stand_there() -> None:
    modules = (index, sizes, value, program, group, kernel, lines)
    assert [name for name, _ in NODES if not any(hasattr(m, name) for m in modules)] == []


def test_the_example() -> None:
    text = print_schedule(schedule(parse_program(BLOCKS[1]), CompileContext()))
    assert text == BLOCKS[1] + BLOCKS[2]
