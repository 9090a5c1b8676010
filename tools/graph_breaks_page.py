"""Writes docs/graph-breaks.md, the catalogue of graph breaks, from the reasons that capture gives
and the programs that provoke them in the tests:

    python -m tools.graph_breaks_page
"""

from __future__ import annotations

import re
from pathlib import Path

from fusewright.capture import reasons
from fusewright.capture.reasons import Reason
from tests.golden import Case, read_cases

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "graph-breaks.md"
CASES = ROOT / "tests" / "capture" / "cases" / "graph_breaks.txt"

INTRODUCTION = """\
# Graph breaks

Where a program does something that cannot be captured, its graph ends: the operators before are
compiled as one graph, the statement runs as it is written, and the rest of the function is captured
as a graph of its own. Results stay the same; what is lost is fusion across the break, and some
microseconds a call.

`print(fusewright.explain(f)(*args))` lists the breaks of a function, each with its line, its reason
and what to change. `fusewright.compile(f, fullgraph=True)` makes the first one an error, whose text
is shown below. `FUSEWRIGHT_LOG=breaks` prints them as they happen. What runs around a break can be
read, too: `fusewright.explain(f)(*args).graphs[0].python` is the function that calls the first
graph, executes the statement, and returns the place where the next one goes on.

This page is written by `python -m tools.graph_breaks_page`.
"""


def catalogue() -> list[Reason]:
    """All reasons, in the order in which they are declared."""
    return [value for value in vars(reasons).values() if isinstance(value, Reason)]


def page() -> str:
    """The text of the page."""
    cases = {case.name: case for case in read_cases(CASES)}
    sections = [_section(reason, cases[reason.name]) for reason in catalogue()]
    return "\n".join([INTRODUCTION, *sections])


def _section(reason: Reason, case: Case) -> str:
    """What happened, why, what to change, and a program with its message."""
    what = _sentence(f"{reason.what}: {reason.why}")
    return (
        f"## {reason.name}\n\n{what}\n\n**What to change.** {_sentence(reason.remedy)}\n\n"
        f"```python\n{case.input.strip()}\n```\n```\n{case.expected.strip()}\n```\n"
    )


def _sentence(text: str) -> str:
    """A capital at the beginning and a full stop at the end; details as dots."""
    text = re.sub(r"\{\w+\}", "…", text)
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    PAGE.write_text(page())
