"""Whether what a schedule does may be recorded once and replayed, as a CUDA graph is, and in which
inputs it writes.
"""

from __future__ import annotations

from typing import Final

from fusewright.ir.group import Schedule
from fusewright.ir.program import (
    CallOperator,
    CallSubprogram,
    CheckFact,
    CopyBack,
    ReadItem,
    ReadSize,
)

STATE_OF_RANDOM_NUMBERS: Final = ("fusewright::manual_seed", "rng_state")
"""Parts of the names of operators that set or read states of generators, which replays do not."""


def why_not_recorded(schedule: Schedule) -> str:
    """Why the schedule cannot be recorded as a CUDA graph; empty: nothing is known to forbid it."""
    devices = schedule.program.devices
    if len(devices) != 1 or not devices[0].startswith("cuda"):
        return f"its tensors are on {', '.join(devices) or 'no device'}"
    for step in schedule.steps:
        match step.work:
            case ReadSize() | ReadItem() | CheckFact():
                return "the host waits for a number that data decides"
            case CallSubprogram():
                return "it has conditions, loops or formulas that the host runs"
            case CallOperator(operator=operator) if any(
                part in operator for part in STATE_OF_RANDOM_NUMBERS
            ):
                return f"{operator} is about the state of random numbers"
    return ""


def written_inputs(schedule: Schedule) -> frozenset[str]:
    """The inputs in whose memory the schedule writes."""
    written: set[str] = set()
    for step in schedule.steps:
        written.update(source for _, source in step.takes_over)
        if isinstance(step.work, CopyBack):
            written.add(step.work.target)
        elif isinstance(step.work, CallOperator):
            written.update(step.work.mutates)
    return frozenset(written & {buffer.name for buffer in schedule.program.inputs})
