"""Golden text: the memory pass, and the Python module emitted for every kind of line."""

from __future__ import annotations

from fusewright.ir.forms import print_lines
from fusewright.ir.parse_forms import parse_lines
from fusewright.wrapper import emit_python, plan_memory
from tests.golden import golden


@golden("cases/memory.txt")
def test_memory_pass(text: str) -> str:
    return print_lines(plan_memory(parse_lines(text)))


@golden("cases/python.txt")
def test_python_module(text: str) -> str:
    module = emit_python("graph", parse_lines(text))
    compile(module, "graph.py", "exec")
    return module
