"""Runs random programs compiled and as they are, and compares all that can be seen of them:
`python -m tests.capture.soundness.breaks --count 5000`.

A program that disagrees is shrunk and printed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import io
import linecache
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import fusewright
from tests.capture.agreement import assert_same
from tests.capture.soundness.programs import Generator, Program, shrunk

CALLS = ((1.0, 2), (-1.0, 2), (0.25, 3), (1.0, 2), (0.0, 0))
"""What `main` is called with, one after the other: the tensor's elements, and the number."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All that can be seen of one call."""

    result: Any
    error: tuple[Any, ...] | None
    """Class, text, and the program's own lines in the traceback, of the exception and of those
    that it came from."""

    printed: str
    effects: Any
    """What the call left in its arguments and in the module's variables."""


def observe(function: Callable[..., Any], namespace: dict[str, Any], file: str) -> list[Seen]:
    """Call a program's main function several times."""
    found = []
    for element, number in CALLS:
        x = torch.full((2, 3), element) + torch.arange(6.0).reshape(2, 3) / 8
        items, table, log = [x + 1], {0: x * 2}, []
        box = namespace["Box"](x - 1)
        output = io.StringIO()
        result, error = None, None
        with contextlib.redirect_stdout(output):
            try:
                result = function(x, number, items, table, box, log)
            except Exception as raised:
                error = describe(raised, file)
        state = (namespace["counter"], list(namespace["finished"]), torch.is_grad_enabled())
        effects = (items, table, vars(box), log, state)
        found.append(Seen(result, error, output.getvalue(), effects))
    return found


def describe(error: BaseException | None, file: str) -> tuple[Any, ...] | None:
    """An exception's class, text, the program's lines that it passed, and what it came from."""
    if error is None:
        return None
    lines = [
        (frame.name, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    cause = describe(error.__cause__, file)
    context = None if error.__suppress_context__ else describe(error.__context__, file)
    return type(error).__name__, str(error), lines, cause, context


def load(source: str, file: str) -> dict[str, Any]:
    """The variables of a fresh module made from a program's source."""
    namespace: dict[str, Any] = {"__name__": "random_program"}
    exec(compile(source, file, "exec"), namespace)
    return namespace


def disagreement(program: Program, name: str) -> str | None:
    """What differs between a program compiled and as it is; None when nothing does."""
    source, file = program.source, f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    plain = load(source, file)
    expected = observe(plain["main"], plain, file)
    namespace = load(source, file)
    compiled = fusewright.compile(namespace["main"], backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = observe(compiled, namespace, file)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        for part in ("error", "printed", "result", "effects"):
            try:
                assert_same(getattr(one, part), getattr(other, part), part)
            except AssertionError as error:
                return f"call {number}, {error}\n  {getattr(one, part)}\n  {getattr(other, part)}"
    for event in compiled.compiler.events:
        if "defect of fusewright" in str(event):
            return str(event)
    return None


def smallest(program: Program, name: str, word: str = "", seconds: float = 30.0) -> Program:
    """A part of a disagreeing program that still disagrees, with `word` in what is said of it, and
    of which no part does.
    """
    end = time.monotonic() + seconds
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in shrunk(program):
            try:
                found = disagreement(candidate, name)
            except Exception:
                found = None
            if found is not None and word in found:
                program, progress = candidate, True
                break
            if time.monotonic() > end:
                break
    return program


def main() -> int:
    """Run programs; 1 when one disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="how many failures to shrink and print")
    parser.add_argument("--only", default="", help="shrink failures whose text has this word")
    arguments = parser.parse_args()
    faulthandler.enable()
    counts: Counter[str] = Counter()
    start = time.perf_counter()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        program = Generator(seed).program()
        counts["programs"] += 1
        found = disagreement(program, f"program {seed}")
        if found is None:
            continue
        counts["disagree"] += 1
        first = found.partition("\n")[0][:150]
        print(f"seed {seed}: {first}", flush=True)
        if arguments.only in found and counts["shown"] < arguments.show:
            counts["shown"] += 1
            small = smallest(program, f"program {seed}", arguments.only)
            text = small.source[small.source.index("def helper") :]
            print(text, disagreement(small, f"program {seed}"), sep="\n", flush=True)
    print(dict(counts), f"{time.perf_counter() - start:.1f} s")
    return int(counts["disagree"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
