"""Scheduling: dependencies, loop simplification, fusion, order, buffer lifetimes and reuse.

Read in this order: `schedule` (the whole floor as one function); `nest`, its working form, with its
`text` and what makes it legal (`verify`), with `analysis`, `effects` and `dependencies`; then the
passes as they run: `dead_code`, `split`, `products`, `simplify`, `inline` (with `invert`), `fusion`
(with `align`), `stripes`, `parts`, `batch` and `order` (both with `live_memory`), `stages` (with
`names`). `lifetimes` (with `in_place`) says whose memory each step takes over and what it uses
last; `traffic` tells how many bytes the result moves.
"""

from __future__ import annotations

from fusewright.schedule.schedule import PASSES, schedule

__all__ = ["PASSES", "schedule"]
