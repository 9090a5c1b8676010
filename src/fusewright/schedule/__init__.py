"""Scheduling: dependencies, loop simplification, fusion, order, buffer lifetimes and reuse.

Read in this order: `schedule` (the whole floor as one function), `analysis` and `nest` (its working
form), then the passes as they run: `dead_code`, `inline`, `split`, `simplify`, `align`, `fusion`,
`stages`, `order`, `names`, `lifetimes`.
"""

from __future__ import annotations

from fusewright.schedule.schedule import schedule

__all__ = ["schedule"]
