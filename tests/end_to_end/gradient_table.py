"""Writes docs/operator-gradients.md from the results of `tests.end_to_end.gradients`.

python -m tests.end_to_end.gradient_table
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.end_to_end import gradients
from tests.end_to_end.gradients import DTYPES, SWEEPS, Line, read, results_file

PAGE = Path("docs/operator-gradients.md")
NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
HEADINGS = {
    "aot_eager": "fusewright: `aot_autograd`, without capture",
    "one_graph": 'fusewright: `compile(backend="aot_eager", fullgraph=True)`',
    "aot_eager_with_breaks": 'fusewright: `compile(backend="aot_eager")`',
    "fusewright": "fusewright: compiled to machine code, without capture",
    "peer": '`torch.compile(backend="aot_eager", fullgraph=True)`',
    "peer_with_breaks": '`torch.compile(backend="aot_eager")`',
}
INTRODUCTION = """\
# Gradients of torch's operators

Every differentiable operator in torch's own database of samples (`op_db`), with some samples each,
from all over its list: results, which of them have a history, and gradients for random gradients of
the results are compared with eager's. An operator passes where all of its samples do, in all dtypes
that eager differentiates among float32, float64 and complex64. Torch {torch}, CPU; torch.compile's
results are of {date}. Without `fullgraph`, what cannot be traced runs eagerly under either.

    python -m tests.end_to_end.gradients aot_eager      # goes on where it was stopped
    python -m tests.end_to_end.gradients fusewright
    python -m tests.end_to_end.gradients peer           # torch.compile
    python -m tests.end_to_end.gradient_table           # writes this page

"""


def passes(line: Line, dtype: str, way: str) -> bool | None:
    """Whether an operator passes; None where there was nothing to compare."""
    outcomes = line.get(dtype, {})
    if gradients.passes(outcomes, way):
        return True
    return False if way in outcomes else None


def passes_all(line: Line, way: str) -> bool | None:
    """Whether an operator passes in all dtypes that there is something to compare in."""
    found = [one for dtype in NAMES if (one := passes(line, dtype, way)) is not None]
    return all(found) if found else None


def rates(sweeps: dict[str, list[Line]]) -> Iterator[str]:
    """The rows of the table of totals."""
    yield f"| | samples | all dtypes | {' | '.join(NAMES)} |"
    yield "| --- |" + " --- |" * (2 + len(NAMES))
    for way, heading in HEADINGS.items():
        rows = sweeps[sweep_of(way)]
        columns = [[passes_all(line, way) for line in rows]]
        columns += [[passes(line, dtype, way) for line in rows] for dtype in NAMES]
        counts = (
            f"{column.count(True)} of {len(column) - column.count(None)}" for column in columns
        )
        samples = header(sweep_of(way))["samples"]
        yield f"| {heading} | {samples} | {' | '.join(counts)} |"


def header(sweep: str) -> Line:
    """The first line of a file of results: torch's version, date, samples an operator."""
    return json.loads(results_file(sweep).read_text().splitlines()[0])  # type: ignore[no-any-return]


def sweep_of(way: str) -> str:
    """The sweep whose file holds the results of a way."""
    return next(name for name, ways in SWEEPS.items() if way in ways)


def exceptions(lines: Sequence[Line], ways: Sequence[str]) -> Iterator[str]:
    """The rows of the table of operators that do not pass, equal reasons together."""
    yield "| operator | dtypes | where | what | reason |"
    yield "| --- | --- | --- | --- | --- |"
    for line in lines:
        found = [
            (reason(line["operator"], way, line[dtype][way]), way, dtype)
            for way in ways
            for dtype in NAMES
            if passes(line, dtype, way) is False
        ]
        for ((status, words), way), group in groupby(found, key=lambda one: one[:2]):
            dtypes = ", ".join(dtype for _, _, dtype in group)
            yield f"| {line['operator']} | {dtypes} | {way} | {status} | {words} |"


KNOWN = {
    ("native_layer_norm", "fusewright"): "over one element, its gradient is 0, which eager misses "
    "by 1e-4: a difference of rounded products times 1 / sqrt(eps)",
}
"""By operator and way: why it differs, where the difference itself does not tell."""


def reason(operator: str, way: str, outcome: Any) -> tuple[str, str]:
    """Status and words of an outcome, fit for a table."""
    status, words = outcome
    if (operator, way) in KNOWN:
        return status, KNOWN[operator, way]
    words = re.sub(r"^sample \d+: (\S+\.py:\d+ .*?\) )?", "", words)
    return status, words.replace("|", "\\|")[:200]


def main() -> None:
    sweeps = {name: read(results_file(name)) for name in ("aot_eager", "fusewright", "peer")}
    ours = {line["operator"] for line in sweeps["aot_eager"] if passes_all(line, "one_graph")}
    theirs = [line["operator"] for line in sweeps["peer"] if passes_all(line, "peer")]
    behind = [name for name in theirs if name not in ours]
    ahead = sorted(ours - set(theirs))
    page = [
        INTRODUCTION.format(**header("peer")),
        *rates(sweeps),
        "",
        f"What passes in one graph under torch.compile alone: {', '.join(behind) or 'nothing'}.",
        "",
        f"Under fusewright alone: {', '.join(ahead) or 'nothing'}.",
        "",
        "## What does not pass",
        "",
        *exceptions(sweeps["aot_eager"], ["one_graph", "aot_eager_with_breaks"]),
        "",
        "## What does not pass when compiled to machine code",
        "",
        *exceptions(sweeps["fusewright"], ["fusewright"]),
        "",
        "## What does not pass under torch.compile",
        "",
        *exceptions(sweeps["peer"], ["peer", "peer_with_breaks"]),
        "",
    ]
    PAGE.write_text("\n".join(page))


if __name__ == "__main__":
    main()
