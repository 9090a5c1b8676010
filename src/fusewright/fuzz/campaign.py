"""Many programs: which seeds, for how long, and what came of them, kept in a folder.

The folder holds `cases.jsonl`, a line for each case, by which a later run goes on where this one
stopped, and for each sort of finding a program, `CLASS_KIND_SEED.py`, made smaller.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fusewright.errors import did_you_mean
from fusewright.fuzz import loop_programs, modules, python, tensors
from fusewright.fuzz.checking import ON_CPU, CheckResult, Way
from fusewright.fuzz.comparison import CLASSES
from fusewright.fuzz.program import RandomProgram
from fusewright.fuzz.report import FindingGroup, grouped, table
from fusewright.fuzz.shrink import shrink
from fusewright.fuzz.workers import Generate, Pool, Task, verdict_from, verdict_to, warm_up
from fusewright.records import record
from fusewright.runtime.memory_checks import GARBAGE, GUARD_PAGES

GENERATORS: Final[Mapping[str, Any]] = {
    "tensors": tensors.generate,
    "python": python.generate,
    "modules": modules.generate,
    "loops": loop_programs.generate,
}
"""From a seed to a program, for each kind."""

DEVICES: Final[Mapping[str, tuple[str, ...]]] = {"cpu": tuple(GENERATORS), "cuda": ("tensors",)}
"""Where programs run, and which kinds do without being told: others make tensors of the CPU."""

SHRINK_SECONDS: Final = 25.0


def generate(kind: str, seed: int) -> RandomProgram:
    """The program of a kind and a seed."""
    program: RandomProgram = GENERATORS[kind](seed)
    return program


@record(kw_only=True)
class CampaignPlan:
    """The settings of a campaign."""

    kinds: tuple[str, ...] = tuple(GENERATORS)
    seed: int = 0
    count: int | None = None
    """Programs of each kind; None: as many as there is time for."""

    seconds: float | None = None
    jobs: int = 1
    folder: Path | None = None
    dynamic: bool | None = None
    device: str = "cpu"
    guard_pages: bool = False
    garbage: bool = False
    only: frozenset[str] = frozenset(CLASSES)
    """Classes that count as findings."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables that choose checks of memory, keep no plans of programs that come once, and
        hide GPUs where programs run on the CPU: what autograd starts for a GPU does not outlive a
        fork.
        """
        gpus = {"CUDA_VISIBLE_DEVICES": ""} if self.device == "cpu" else {}
        pages = {GUARD_PAGES: "both"} if self.guard_pages else {}
        plans = {"FUSEWRIGHT_GRAPH_CACHE": "0"}
        return plans | gpus | pages | ({GARBAGE: "1"} if self.garbage else {})

    @property
    def way(self) -> Way:
        """How programs are checked."""
        return Way(self.dynamic, self.device)

    @property
    def options(self) -> str:
        """Options, beside the seed, of a command that repeats a case."""
        chosen = {
            "--dynamic": self.dynamic,
            f"--device {self.device}": self.device != "cpu",
            "--guard-pages": self.guard_pages,
            "--garbage": self.garbage,
        }
        return "".join(f" {name}" for name, value in chosen.items() if value)


def plan_from(
    *,
    kinds: Sequence[str] | None,
    count: int | None,
    seconds: float | None,
    only: Sequence[str] | None,
    dynamic: bool,
    device: str = "cpu",
    **fields: Any,
) -> CampaignPlan:
    """The plan that a command line tells. ValueError: a name is not known."""
    for names, choices in ((kinds, GENERATORS), (only, CLASSES)):
        for name in names or ():
            if name not in choices:
                raise ValueError(f"{name!r} is not known; {did_you_mean(name, list(choices))}")
    if device not in DEVICES:
        raise ValueError(f"{device!r} is no device; {did_you_mean(device, list(DEVICES))}")
    return CampaignPlan(
        kinds=tuple(kinds or DEVICES[device]),
        device=device,
        count=100 if count is None and seconds is None else count,
        seconds=seconds,
        only=frozenset(only or CLASSES),
        dynamic=True if dynamic else None,
        **fields,
    )


class Campaign:
    """A campaign, and what it has found. `told` is called with each finding as it comes."""

    def __init__(
        self, plan: CampaignPlan, told: Callable[[CheckResult], None] = lambda found: None
    ) -> None:
        self.plan = plan
        self.told = told
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.found: list[CheckResult] = []
        self.broken: list[CheckResult] = []
        """Programs on which the fuzzer itself failed."""

        self.files: dict[str, str] = {}
        self._done: set[tuple[str, int]] = set()
        self._shrinking: set[int] = set()
        self._waiting: list[tuple[CheckResult, Path]] = []
        self._start = time.monotonic()

    def run(self, generate: Generate = generate) -> list[FindingGroup]:
        """Check programs until the plan is done; the findings, grouped."""
        before = dict(os.environ)
        os.environ.update(self.plan.environment)
        if self.plan.device == "cpu":
            warm_up()
        self._resume()
        pool = Pool(self.plan.jobs, generate, self.plan.way)
        try:
            for verdict in pool.check(self._tasks(), self._is_over):
                self._note(self._confirmed(verdict, generate))
                self._start_shrinking(generate)
            self._finish_shrinking(generate)
        finally:
            pool.close()
            for process in self._shrinking:
                os.kill(process, signal.SIGKILL)
            for name in self.plan.environment:
                os.environ.pop(name)
            os.environ.update(before)
        return self.groups()

    def groups(self) -> list[FindingGroup]:
        """The findings by cause, as far as one can tell."""
        return grouped(self.found, self.files)

    def report(self) -> str:
        """The table of the campaign."""
        seconds = time.monotonic() - self._start
        text = table(self.outcomes, self.groups(), seconds, self.plan.options)
        if not self.broken:
            return text
        first = self.broken[0]
        count = len(self.broken)
        return (
            f"{text}\n\nthe fuzzer failed {count} times: {first.kind} {first.seed}: {first.worst}"
        )

    def _tasks(self) -> Iterator[Task]:
        seed = self.plan.seed
        while self.plan.count is None or seed < self.plan.seed + self.plan.count:
            for kind in self.plan.kinds:
                if (kind, seed) not in self._done:
                    yield Task(kind, seed)
            seed += 1

    def _is_over(self) -> bool:
        limit = self.plan.seconds
        return limit is not None and time.monotonic() - self._start > limit

    def _confirmed(self, verdict: CheckResult, generate: Generate) -> CheckResult:
        """A crash or a hang may be of another program's making: alone, it shows again or not."""
        if verdict.outcome != "found" or verdict.worst.kind not in ("crash", "hang"):
            return verdict
        pool = Pool(1, generate, self.plan.way)
        try:
            again = pool.one(Task(verdict.kind, verdict.seed))
        finally:
            pool.close()
        is_confirmed = again.outcome == "found" and again.worst.kind == verdict.worst.kind
        return again if is_confirmed or verdict.worst.kind == "hang" else verdict

    def _note(self, verdict: CheckResult) -> None:
        if verdict.outcome == "found" and verdict.worst.kind not in self.plan.only:
            verdict = CheckResult(verdict.kind, verdict.seed, "right", seconds=verdict.seconds)
        self._count(verdict)
        if verdict.outcome == "found":
            self.told(verdict)
        folder = self.plan.folder
        if folder is None:
            return
        with (folder / "cases.jsonl").open("a") as file:
            file.write(f"{json.dumps(verdict_to(verdict))}\n")
        if verdict.outcome == "found" and verdict.signature not in self.files:
            path = folder / f"{verdict.worst.kind}_{verdict.kind}_{verdict.seed}.py"
            self.files[verdict.signature] = str(path)
            self._waiting.append((verdict, path))

    def _count(self, verdict: CheckResult) -> None:
        self.outcomes[verdict.kind, verdict.outcome] += 1
        if verdict.outcome == "found":
            self.found.append(verdict)
        elif verdict.findings:
            self.broken.append(verdict)

    def _resume(self) -> None:
        folder = self.plan.folder
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        state = folder / "cases.jsonl"
        for line in state.read_text().splitlines() if state.exists() else ():
            verdict = verdict_from(json.loads(line))
            self._done.add((verdict.kind, verdict.seed))
            self._count(verdict)
            if verdict.outcome == "found":
                path = folder / f"{verdict.worst.kind}_{verdict.kind}_{verdict.seed}.py"
                if path.exists():
                    self.files.setdefault(verdict.signature, str(path))

    def _start_shrinking(self, generate: Generate) -> None:
        """Begin to make findings smaller, beside the campaign, one for each four jobs."""
        for process in list(self._shrinking):
            if os.waitpid(process, os.WNOHANG)[0]:
                self._shrinking.discard(process)
        while self._waiting and len(self._shrinking) < max(1, self.plan.jobs // 4):
            self._waiting.sort(key=lambda entry: list(CLASSES).index(entry[0].worst.kind))
            verdict, path = self._waiting.pop(0)
            process = os.fork()
            if not process:
                try:
                    write_smaller(verdict, path, generate, self.plan.way)
                finally:
                    os._exit(0)
            self._shrinking.add(process)

    def _finish_shrinking(self, generate: Generate) -> None:
        """Give what is left a little time: a twentieth of the plan's, or half a minute."""
        limit = self.plan.seconds
        end = self._start + limit * 1.05 if limit is not None else time.monotonic() + 30.0
        while (self._waiting or self._shrinking) and time.monotonic() < end:
            self._start_shrinking(generate)
            time.sleep(0.05)
        for verdict, path in self._waiting:
            path.write_text(annotated(generate(verdict.kind, verdict.seed), verdict))


def write_smaller(verdict: CheckResult, path: Path, generate: Generate, way: Way = ON_CPU) -> None:
    """Write the program of a finding, and then a smaller one over it."""
    program = generate(verdict.kind, verdict.seed)
    path.write_text(annotated(program, verdict))
    if program.kind == "loops":
        write_whole(path, annotated(loop_programs.smaller(program), verdict))
        return
    pool = Pool(1, generate, way)
    try:
        shrink(
            program,
            verdict,
            lambda candidate: pool.one(Task(candidate.kind, candidate.seed, candidate.source)),
            SHRINK_SECONDS,
            lambda smaller, answer: write_whole(path, annotated(smaller, answer)),
        )
    finally:
        pool.close()


def write_whole(path: Path, text: str) -> None:
    """Write a file such that whoever ends this process leaves the old text or the new one."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def annotated(program: RandomProgram, verdict: CheckResult) -> str:
    """The text of a program with what was found of it above."""
    comment = "\n".join(f"# {line}" for line in str(verdict.worst).splitlines())
    return f"{comment}\n{program.source.rstrip()}\n"
