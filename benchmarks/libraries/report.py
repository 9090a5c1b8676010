"""What was measured of the programs, as a table on a terminal or in Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from benchmarks.architecture_report import geometric_mean

Figures = Mapping[str, Any]
Rows = Mapping[str, Figures]

SLOWEST = 0.95
"""Speed over eager below which a program is too slow in its steady state."""

HEADINGS = ("program", "result", "graphs", "breaks", "compiles", "first", "eager", "x eager")
WORDS = 70
"""Characters of a failure that a table shows."""


def verdict(figures: Figures) -> str:
    """`passes`, or in a few words what is wrong."""
    if "missing" in figures:
        return f"not run: no {figures['missing']} here"
    if "failure" in figures:
        return str(figures["failure"]).splitlines()[0][:WORDS]
    if figures["wrong"]:
        return f"wrong: {figures['wrong'][0]}"[:WORDS]
    if any("defect" in told for told in figures["warnings"]):
        return "tells of a defect"
    if figures["fallbacks"]:
        return "runs eagerly in part"
    if figures["late_compiles"]:
        return f"still compiles: {figures['late_compiles']}"
    return "passes"


def is_right(figures: Figures) -> bool:
    """Whether results are eager's and nothing failed; what is not installed is not asked."""
    told = ("wrong", "tells")
    return "missing" in figures or not ("failure" in figures or verdict(figures).startswith(told))


def speed(figures: Figures) -> float | None:
    """Times as fast as eager; None where it was not measured."""
    return figures["eager"] / figures["call"] if "call" in figures else None


def is_fast(figures: Figures) -> bool:
    """Whether it is not slower than eager, as far as that was measured."""
    found = speed(figures)
    return found is None or found >= SLOWEST


def passes(figures: Figures) -> bool:
    """Whether there is nothing to mend."""
    return is_right(figures) and is_fast(figures)


def table(rows: Rows) -> Table:
    """One line a program."""
    shown = Table(*HEADINGS)
    for name, figures in rows.items():
        style = "red" if not is_right(figures) else "yellow" if not is_fast(figures) else ""
        shown.add_row(*_cells(name, figures), style=style)
    return shown


def document(record: Mapping[str, Any], about: Mapping[str, str]) -> Iterator[str]:
    """All of it as lines of Markdown; `about`: what each program does."""
    rows = record["rows"]
    yield "# Programs that use libraries"
    yield ""
    yield (
        f"Made by `python -m benchmarks.libraries` on {record['date']}: torch {record['torch']}, "
        f"{record['processor']}. First calls include the compiler's own import."
    )
    yield ""
    yield from (f"- {sentence}" for sentence in sentences(rows))
    yield ""
    headings = (*HEADINGS, "what it does")
    yield f"| {' | '.join(headings)} |"
    yield f"| {' | '.join('---' for _ in headings)} |"
    for name, figures in rows.items():
        cells = (*_cells(name, figures), about.get(name, ""))
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    broken = list(problems(rows))
    if broken:
        yield ""
        yield "## What is wrong, breaks or is told"
        yield ""
        yield from (f"- {text}" for text in broken)
    yield ""


def _cells(name: str, figures: Figures) -> tuple[str, ...]:
    found = speed(figures)
    return (
        name,
        verdict(figures),
        str(figures.get("graphs", "")),
        str(len(figures["breaks"])) if "breaks" in figures else "",
        str(figures.get("compiles", "")),
        f"{figures['first_call']:.2f} s" if "first_call" in figures else "",
        f"{1e3 * figures['eager']:.3g} ms" if "eager" in figures else "",
        "" if found is None else f"{found:.2f}",
    )


def sentences(rows: Rows) -> Iterator[str]:
    """How many are right, whole and fast, and the mean speed."""
    there = {name: figures for name, figures in rows.items() if "missing" not in figures}
    if not there:
        return
    right = sum(map(is_right, there.values()))
    whole = sum(one.get("graphs") == 1 and not one.get("breaks") for one in there.values())
    yield f"{len(there)} programs: {right} right, {whole} as one graph"
    if len(there) < len(rows):
        yield f"{len(rows) - len(there)} need what is not installed"
    speeds = {name: found for name, one in there.items() if (found := speed(one)) is not None}
    if speeds:
        slow = sorted(name for name, found in speeds.items() if found < SLOWEST)
        slowest = min(speeds, key=speeds.__getitem__)
        yield (
            f"{geometric_mean(list(speeds.values())):.2f}x eager; {len(slow)} slower than "
            f"{SLOWEST}, least {speeds[slowest]:.2f} ({slowest})"
        )


def problems(rows: Rows) -> Iterator[str]:
    """Every failure, wrong result, fall-back, warning and break, and how often."""
    for name, figures in rows.items():
        if "failure" in figures:
            yield f"{name}: {figures['failure']}"
        parts = ("wrong", "fallbacks", "warnings", "breaks")
        told = [text for part in parts for text in figures.get(part, ())]
        for text, times in Counter(map(_short, told)).items():
            yield f"{name}{f', {times} times' if times > 1 else ''}: {text}"


def _short(text: str) -> str:
    """On one line, paths from the installed package on."""
    return " ".join(re.sub(r"\S*/site-packages/", "", text).split())[:400]
