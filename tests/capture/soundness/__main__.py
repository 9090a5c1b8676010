"""Runs cases of guard soundness and prints those that fail: `python -m tests.capture.soundness`.

--all          every place for every case, not one in turn
--part K/N     every Nth case from the Kth on: N processes share the work
--seconds S    stop after so many
WORD …         only cases whose name contains all the words
"""

from __future__ import annotations

import argparse
import collections
import itertools
import math
import time
import traceback

from tests.capture.soundness.cases import all_cases, check, chosen_cases
from tests.capture.soundness.kinds import KINDS


def main() -> int:
    """Run the cases; the number of failures is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--traceback", action="store_true")
    arguments = parser.parse_args()
    start = time.perf_counter()
    counts: collections.Counter[str] = collections.Counter()
    first, step = map(int, arguments.part.split("/"))
    cases = (all_cases if arguments.all else chosen_cases)(KINDS)
    for case in itertools.islice(cases, first - 1, None, step):
        if time.perf_counter() - start > arguments.seconds:
            break
        if not all(word in f" {case.name} " for word in arguments.words):
            continue
        counts["cases"] += 1
        try:
            report = check(case)
        except Exception as error:
            counts["failed"] += 1
            line = str(error).strip().partition("\n")[0]
            print(f"{case.name}\n    {type(error).__name__}: {line}", flush=True)
            if arguments.traceback:
                traceback.print_exception(error)
            continue
        counts["refused"] += report.refused
        if case.is_unread and report.captures > 1:
            counts["captured again"] += 1
            print(f"{case.name}\n    captured again", flush=True)
    print(dict(counts), f"{time.perf_counter() - start:.1f} s")
    return min(counts["failed"], 125)


if __name__ == "__main__":
    raise SystemExit(main())
