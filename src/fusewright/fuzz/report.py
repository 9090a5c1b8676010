"""The table at the end of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fusewright.fuzz.checking import CheckResult
from fusewright.fuzz.comparison import CLASSES
from fusewright.records import record


@record
class FindingGroup:
    """Findings that look like one cause."""

    signature: str
    kind: str
    verdicts: tuple[CheckResult, ...]
    file: str = ""
    """The smallest program, where there is a folder."""


def grouped(verdicts: Sequence[CheckResult], files: dict[str, str]) -> list[FindingGroup]:
    """Findings by signature, gravest class and most frequent first."""
    by_signature: dict[str, list[CheckResult]] = {}
    for verdict in verdicts:
        by_signature.setdefault(verdict.signature, []).append(verdict)
    groups = [
        FindingGroup(name, members[0].worst.kind, tuple(members), files.get(name, ""))
        for name, members in by_signature.items()
    ]
    order = list(CLASSES)
    return sorted(groups, key=lambda group: (order.index(group.kind), -len(group.verdicts)))


def table(
    outcomes: Counter[tuple[str, str]],
    groups: Sequence[FindingGroup],
    seconds: float,
    options: str = "",
) -> str:
    """The table of a run: cases by kind and outcome, then each group with the command that repeats
    its first case.
    """
    kinds = sorted({kind for kind, _ in outcomes})
    columns = ("right", "same exception", "found", "discarded")
    lines = [f"{'':10}{'cases':>9}" + "".join(f"{name:>16}" for name in columns)]
    for kind in kinds:
        counts = [outcomes[kind, name] for name in columns]
        lines.append(f"{kind:10}{sum(counts):>9}" + "".join(f"{count:>16}" for count in counts))
    total = sum(outcomes.values())
    lines.append(f"{total / max(seconds, 1e-9):.1f} cases a second in {seconds:.0f} s")
    by_class = Counter[str]()
    for group in groups:
        by_class[group.kind] += len(group.verdicts)
    if groups:
        lines.append("")
        sorts = (f"{kind} {by_class[kind]}" for kind in CLASSES if by_class[kind])
        lines.append(
            f"{sum(by_class.values())} findings of {len(groups)} sorts: {', '.join(sorts)}"
        )
    for group in groups:
        first = group.verdicts[0]
        lines += ["", f"{len(group.verdicts):>5} × {_short(group.signature)}"]
        lines.append(f"        {_short(str(first.worst))}")
        command = f"fusewright fuzz --kind {first.kind} --seed {first.seed} --count 1{options}"
        lines.append(f"        {command}" + (f"   {group.file}" if group.file else ""))
    return "\n".join(lines)


def _short(text: str, width: int = 240) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
