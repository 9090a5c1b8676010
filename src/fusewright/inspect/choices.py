"""Which kernels measuring chose at first calls, for `explain` and reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fusewright.compilation import Compilation
from fusewright.records import record

if TYPE_CHECKING:  # Importing it takes the runtime along.
    from fusewright.runtime.choices import Decision
    from fusewright.runtime.compiled import MeasuredChoice


@record(kw_only=True)
class ChoiceReport:
    """A choice among kernels."""

    name: str
    alternatives: tuple[str, ...]
    """The first is what the compiler would do without measuring."""

    decisions: tuple[Decision, ...]
    """The decisions, one for each class of sizes; empty before the first call."""

    place: str
    """The operation that it computes, with the user's line; empty where that is not known."""

    @classmethod
    def of(cls, choice: MeasuredChoice) -> ChoiceReport:
        """The report on a choice as it stands now."""
        return cls(
            name=choice.name,
            alternatives=choice.alternatives,
            decisions=tuple(choice.decisions.values()),
            place=next(
                (
                    f"{origin.operator} at {Path(origin.file).name}:{origin.line}"
                    for origin in choice.origins
                    if origin.file
                ),
                "",
            ),
        )

    def words(self, decision: Decision) -> str:
        """`split 12.1 µs, whole 15.0 µs`: the winner first, with the sizes that were timed."""
        order = sorted(range(len(self.alternatives)), key=lambda n: n != decision.winner)
        if decision.source == "forced":
            return f"{self.alternatives[decision.winner]}, as an option says"
        shown = []
        for number in order:
            seconds = decision.seconds[number]
            time = "failed" if seconds is None else f"{seconds * 1e6:.1f} µs"
            shown.append(f"{self.alternatives[number]} {time}")
        sizes = f" for {', '.join(map(str, decision.sizes))}" if decision.sizes else ""
        earlier = " (timed by an earlier process)" if decision.source == "kept" else ""
        return ", ".join(shown) + sizes + earlier

    def __str__(self) -> str:
        head = f"{self.name}: "
        if not self.decisions:
            head += f"{' or '.join(self.alternatives)}, to be timed at the first call"
        else:
            head += "; ".join(map(self.words, self.decisions))
        return f"{head}   {self.place}" if self.place else head


def choice_reports(compilations: Sequence[Compilation]) -> tuple[ChoiceReport, ...]:
    """The choices of all that was compiled so far."""
    records = (part for compilation in compilations for part in compilation.records)
    return tuple(ChoiceReport.of(choice) for part in records for choice in part.choices)
