"""docs/adding-a-target.md and the target that draws: the code shown is the example's, and the
drawing shows what was computed from what.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from examples.graphviz_target import emit_graphviz
from fusewright.ir.parse_forms import parse_lines
from fusewright.wrapper.views import name_views

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "examples" / "graphviz_target.py").read_text()

LINES = """
x: f32[8] = input 0
w: f32[8] = constant
kernel cpu_add_3f in cpu key '3f' grain 64
  read in0: f32
  read in1: f32
  write out0: f32
a: f32[8] = allocate
launch cpu_add_3f(x, w, a) units 8
b = call aten.relu.default(view(a, f32[2, 4]))
c: f32[8] = reuse a
launch cpu_add_3f(x, x, c) units 8
copy b to x
return (b, c)
"""


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "adding-a-target.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    assert len(blocks) == 2
    for block in blocks:
        indented = (textwrap.indent(block, " " * count) for count in (4, 12))
        assert any(text in EXAMPLE for text in indented), block
    assert len(EXAMPLE.splitlines()) < 100


def test_the_drawing() -> None:
    text = emit_graphviz(name_views(parse_lines(LINES)))
    labels = dict(re.findall(r'(\w+) \[label="([^"]+)", shape', text))
    edges = {
        (labels[source], labels[target], label, style)
        for source, target, label, style in re.findall(
            r'(\w+) -> (\w+) \[label="([^"]+)", style=(\w+)\]', text
        )
    }
    add, relu = "cpu_add_3f", "aten.relu.default"
    assert edges == {
        ("x", add, "x f32[8]", "solid"),
        ("w", add, "w f32[8]", "solid"),
        (add, relu, "a_view f32[2, 4]", "solid"),
        (add, add, "c f32[8]", "dashed"),
        (relu, "copy", "b", "solid"),
        ("x", "copy", "x f32[8]", "dashed"),
        (relu, "result", "b", "solid"),
        (add, "result", "c f32[8]", "solid"),
    }
