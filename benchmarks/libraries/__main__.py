"""Programs that use libraries as their users do, eagerly and compiled: are they right, one graph,
and how fast?

    python -m benchmarks.libraries [--only NAME …] [--part K/N] [--resume DIR] [--seconds N]
        [--jobs N] [--peer]

Every program runs in a process of its own with a time limit (`benchmarks.libraries.measure`): its
outputs, gradients and changed state are compared with eager's, its graphs, compiles and warnings
are counted, and calls in the steady state take turns with eager's. A NAME is that of a program or
of a file of them, such as `optim`. `--part K/N`: every N-th program from the K-th on. With
`--resume`, DIR/libraries.json keeps what was measured, what passes there is not measured again, and
DIR/libraries.md is the table. `--peer` measures torch.compile instead. The exit status is 1 if a
result is wrong, or something failed.

`pip install -r benchmarks/libraries/requirements.txt` beside an installed torch gets the libraries;
a program whose library is missing is not run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.compare import environment, fresh_caches, run
from benchmarks.compilers import OURS, PEER
from benchmarks.libraries import report
from benchmarks.libraries.program import Program, programs

SECONDS = 240


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; return the exit status."""
    options = _parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    column = PEER if options.peer else OURS
    today = date.today().isoformat()
    record: dict[str, Any] = {"column": column, "date": today, "rows": {}, **environment()}
    file = None if options.resume is None else options.resume / "libraries.json"
    if file is not None and file.exists():
        record = json.loads(file.read_text())
    rows = record["rows"]

    chosen = _chosen(options.only, options.part)
    wanted = [one for one in chosen if one not in rows or not report.passes(rows[one])]
    with ThreadPoolExecutor(options.jobs) as pool:
        started = {pool.submit(_measure, column, name, options): name for name in wanted}
        for done in track(as_completed(started), total=len(wanted), console=console):
            rows[started[done]] = done.result()
            if file is not None:
                _keep(record, file)

    shown = {name: rows[name] for name in chosen}
    console.print(report.table(shown))
    failing = {name: row for name, row in shown.items() if not report.is_right(row)}
    for line in (*report.problems(failing), *report.sentences(shown)):
        console.print(line, markup=False, highlight=False)
    return int(not all(map(report.is_right, shown.values())))


def _chosen(only: Sequence[str], part: tuple[int, int]) -> list[str]:
    """Names of programs, in the order of the table."""
    asked = [one for one in programs().values() if not only or _is_asked(one, only)]
    return [one.name for one in asked][part[0] - 1 :: part[1]]


def _is_asked(program: Program, only: Sequence[str]) -> bool:
    return program.name in only or program.library in only


def _measure(column: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    settings = {"FUSEWRIGHT_STRICT": "0"}  # Breaks and fall-backs are counted, not raised.
    if options.jobs > 1:
        settings["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // options.jobs))
    with fresh_caches() as caches:
        return run(
            [column, name], caches | settings, "benchmarks.libraries.measure", options.seconds
        )


def _keep(record: dict[str, Any], file: Path) -> None:
    """Write the record and its table, in the order of the programs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = record["rows"]
    record["rows"] = {name: rows[name] for name in programs() if name in rows}
    file.write_text(json.dumps(record, indent=1) + "\n")
    about = {one.name: one.about for one in programs().values()}
    file.with_suffix(".md").write_text("\n".join(report.document(record, about)))
    record["rows"] = rows


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = [*programs(), *{one.library for one in programs().values()}]
    parser.add_argument("--only", nargs="+", choices=names, default=(), metavar="NAME")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="K/N")
    parser.add_argument("--resume", type=Path, metavar="DIR")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of a process")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--peer", action="store_true", help="measure torch.compile instead")
    return parser.parse_args(arguments)


def _part(text: str) -> tuple[int, int]:
    first, _, step = text.partition("/")
    part = int(first), int(step)
    if not 1 <= part[0] <= part[1]:
        raise argparse.ArgumentTypeError(f"{text} is not K/N with K from 1 to N")
    return part


if __name__ == "__main__":
    sys.exit(main())
