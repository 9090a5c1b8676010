"""A program that is run as a file: it prints both results, and what differs."""

from __future__ import annotations

import sys
from pathlib import Path

from fusewright.fuzz.checking import Way, check
from fusewright.fuzz.execution import Outcome, eagerly, run
from fusewright.fuzz.observation import Tensor
from fusewright.fuzz.program import read_program


def show(file: str) -> None:
    """Run the program in a file, eagerly and compiled, on a GPU where the command line says `cuda`.
    SystemExit with 1: there are findings.
    """
    program = read_program(Path(file))
    way = Way(device="cuda" if sys.argv[1:] == ["cuda"] else "cpu")
    runs = (
        ()
        if "\ndef verify(" in program.source
        else (("eager", eagerly), ("compiled", way.transform))
    )
    for name, transform in runs:
        for number, outcome in enumerate(run(program, transform, device=way.device)):
            print(f"{name}, call {number + 1}")
            print(shown(outcome))
    verdict = check(program, way=way)
    print(verdict.outcome)
    for finding in verdict.findings:
        print(f"  {finding}")
    raise SystemExit(1 if verdict.findings else 0)


def shown(outcome: Outcome) -> str:
    """A call as text, a line for each fact."""
    lines = [f"  raised {outcome.raised}"] if outcome.raised else []
    for path, fact in outcome.facts.items():
        if isinstance(fact, Tensor):
            lines.append(f"  {path}: {fact.dtype}, strides {fact.strides}, {fact.values}")
        else:
            lines.append(f"  {path}: {fact.kind} {fact.value!r}")
    return "\n".join(lines)
