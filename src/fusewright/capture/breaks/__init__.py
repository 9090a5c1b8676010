"""Graph breaks: where capture of a call stops, what runs natively there, how the call goes on
after it, and what happens when a compiled graph raises.
"""

from __future__ import annotations

from fusewright.capture.breaks.graph_failure import (
    Failed,
    entry_of,
    keeping_random_state,
    run_as_written,
    run_unless_written,
    tell_why_not,
    writes_last,
)
from fusewright.capture.breaks.plan import Retrace, TracePlan
from fusewright.capture.breaks.table import BreakTable
from fusewright.capture.breaks.writer import BreakWriter, Interruption, interruption

__all__ = [
    "BreakTable",
    "BreakWriter",
    "Failed",
    "Interruption",
    "Retrace",
    "TracePlan",
    "entry_of",
    "interruption",
    "keeping_random_state",
    "run_as_written",
    "run_unless_written",
    "tell_why_not",
    "writes_last",
]
