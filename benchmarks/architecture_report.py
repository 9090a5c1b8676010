"""What was measured of the architectures, as a table on a terminal or in Markdown."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

Figures = Mapping[str, Any]
Rows = Mapping[str, Mapping[str, Figures]]
"""By architecture, by half (`inference`, `training`, or `missing` alone), what was measured."""

HALVES = ("inference", "training")
HEADINGS = ("architecture", "", "result", "graphs", "breaks", "cold", "capture", "x eager")
WORDS = 60
"""Characters of a failure that a table shows."""


def verdict(figures: Figures) -> str:
    """`passes`, or in a few words what is wrong."""
    if "failure" in figures:
        return str(figures["failure"]).splitlines()[0][:WORDS]
    if figures["fallbacks"]:
        return "falls back"
    if not figures["error"] <= figures["allowed_error"]:
        return f"wrong: {figures['error']:.1e}"
    return "passes"


def passes(row: Mapping[str, Figures]) -> bool:
    """Whether both halves are right; what the library does not have is not asked."""
    return "missing" in row or all(verdict(row[half]) == "passes" for half in HALVES)


def is_whole(row: Mapping[str, Figures]) -> bool:
    """Whether both halves are one graph each."""
    return all(row[half].get("graphs") == 1 and not row[half]["breaks"] for half in HALVES)


def table(rows: Rows) -> Table:
    """Two lines an architecture."""
    shown = Table(*HEADINGS)
    for name, row in rows.items():
        for cells in _lines(name, row):
            shown.add_row(*cells, style="" if passes(row) else "red")
    return shown


def document(record: Mapping[str, Any], about: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """All of it as lines of Markdown; `about`: the kind of each, and what was left out."""
    rows = record["rows"]
    yield "# Architectures"
    yield ""
    yield (
        f"Made by `python -m benchmarks.architectures` on {record['date']}: {record['column']}, "
        f"torch {record['torch']}, {record['processor']}. Cold times include the compiler's own "
        "import in inference; capture is a part of them."
    )
    yield ""
    yield from (f"- {sentence}" for sentence in sentences(rows))
    yield ""
    yield from _markdown_table(rows, about)
    broken = list(problems(rows))
    if broken:
        yield ""
        yield "## What breaks or fails"
        yield ""
        yield from (f"- {text.replace('](', '] (')}" for text in broken)  # code, and no link
    yield ""


def _markdown_table(rows: Rows, about: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    headings = (*HEADINGS, "kind", "left out")
    yield f"| {' | '.join(headings)} |"
    yield f"| {' | '.join('---' for _ in headings)} |"
    for name, row in rows.items():
        more = about[name]
        for cells in _lines(name, row):
            yield f"| {' | '.join((*cells, *more)).replace('  ', ' ')} |"
            more = ("", "")


def _lines(name: str, row: Mapping[str, Figures]) -> Iterator[tuple[str, ...]]:
    """The cells of both halves; the name stands in the first line only."""
    if "missing" in row:
        yield name, "", str(row["missing"]["because"]), *[""] * (len(HEADINGS) - 3)
        return
    for half in HALVES:
        yield name if half == HALVES[0] else "", half, *_cells(row[half])


def _cells(figures: Figures) -> tuple[str, ...]:
    return (
        verdict(figures),
        str(figures.get("graphs", "")),
        str(len(figures["breaks"])) if "breaks" in figures else "",
        _written(figures.get("first_call"), " s"),
        _written(figures.get("stages", {}).get("capture"), " s"),
        _written(figures["eager"] / figures["call"] if "call" in figures else None, ""),
    )


def _written(figure: float | None, unit: str) -> str:
    return "" if figure is None else f"{figure:.2f}{unit}"


def sentences(rows: Rows) -> Iterator[str]:
    """How many of them pass, how many are whole, and the means."""
    there = {name: row for name, row in rows.items() if "missing" not in row}
    if not there:
        return
    right = sum(map(passes, there.values()))
    whole = sum(
        is_whole(row) for row in there.values() if all("breaks" in row[half] for half in HALVES)
    )
    yield f"{len(there)} architectures: {right} pass, {whole} as one graph each"
    if len(there) < len(rows):
        yield f"{len(rows) - len(there)} are not in the transformers library that is installed"
    for half in HALVES:
        measured = {name: row[half] for name, row in there.items() if "call" in row[half]}
        if not measured:
            continue
        speeds = [figures["eager"] / figures["call"] for figures in measured.values()]
        cold = [figures["first_call"] for figures in measured.values()]
        yield (
            f"{half}: {geometric_mean(speeds):.2f}x eager (least {min(speeds):.2f}), "
            f"first call {geometric_mean(cold):.2f} s (most {max(cold):.2f})"
        )
        captures = {
            name: figures["stages"]["capture"]
            for name, figures in measured.items()
            if "capture" in figures.get("stages", {})
        }
        if captures:
            slowest = max(captures, key=captures.__getitem__)
            yield f"{half}: slowest capture {captures[slowest]:.2f} s, {slowest}"


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers, at least one."""
    return math.exp(sum(map(math.log, values)) / len(values))


def problems(rows: Rows) -> Iterator[str]:
    """Every failure, wrong result, fall-back and break, with its place and how often."""
    for name, row in rows.items():
        for half in HALVES:
            figures = row.get(half, {})
            if figures and verdict(figures) != "passes":
                yield f"{name}, {half}: {figures.get('failure', verdict(figures))}"
            told = (*figures.get("fallbacks", ()), *figures.get("breaks", ()))
            for text, times in Counter(map(_short, told)).items():
                shown = text.replace("][", r"]\[")  # Markdown takes two brackets for a link.
                yield f"{name}, {half}, {times} times: {shown}"


def _short(text: str) -> str:
    """On one line, paths from the installed package on."""
    return " ".join(re.sub(r"\S*/site-packages/", "", text).split())
