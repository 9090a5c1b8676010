"""What tuning ahead of time chose, for `explain` and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusewright.compilation import Compilation
from fusewright.records import record

if TYPE_CHECKING:  # Importing it takes the runtime along.
    from fusewright.runtime.trials import Tuned

TUNING_STAGES = ("schedule.tune", "kernels.tune")
"""The stages whose time is that of tuning."""


@record(kw_only=True)
class TuningReport:
    """The trials of all kernels of a compiled function."""

    trials: tuple[Tuned, ...]
    """By kernel, forward and backward halves and the functions of conditions and loops included."""

    seconds: float
    """Time spent on them, compiling the candidates included."""

    @property
    def peak_bytes(self) -> int:
        """The largest arguments that a kernel was tried on, which are freed before the next."""
        return max((trial.argument_bytes for trial in self.trials), default=0)

    def __str__(self) -> str:
        tried = [trial for trial in self.trials if not trial.untried_because]
        kept = sum(trial.was_kept for trial in tried)
        earlier = f", {kept} of them by an earlier process" if kept else ""
        kinds = Counter(trial.kind for trial in tried)
        counts = [f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in kinds.items()]
        largest = f"{self.peak_bytes / 2**20:.1f} MiB"
        tuned = ", ".join(counts) or "nothing"
        rows = [
            f"tuned {tuned} in {self.seconds:.2f} s{earlier}, on arguments of at most "
            f"{largest}; where not listed, the rule's choice is the fastest"
        ]
        for trial in tried:
            if trial.decision.winner:
                rows.append(f"  {trial.kernel}: {why_taken(trial)}")
        rows += [
            f"  {trial.kernel}: not tried, since {trial.untried_because}"
            for trial in self.trials
            if trial.untried_because
        ]
        return "\n".join(rows)


def why_taken(trial: Tuned) -> str:
    """`4 x 256, 8 warps (1.12 times as fast, of 16)`: what won, beside what a rule chooses."""
    words = trial.candidates[trial.decision.winner]
    if not trial.decision.winner:
        return f"{words} (the rule's choice, the fastest of {len(trial.candidates)})"
    gain = trial.decision.speed_up
    faster = "the first failed" if gain is None else f"{gain:.2f} times as fast"
    return f"{words} ({faster}, of {len(trial.candidates)})"


def tuning_report(compilations: Sequence[Compilation]) -> TuningReport | None:
    """The report on all that was compiled so far; None where nothing was tuned."""
    parts = [part for compilation in compilations for part in compilation.records]
    trials = tuple(trial for part in parts for trial in part.tuned)
    if not trials:
        return None
    seconds = sum(part.timings.get(stage, 0.0) for part in parts for stage in TUNING_STAGES)
    return TuningReport(trials=trials, seconds=seconds)
