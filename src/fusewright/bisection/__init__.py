"""Finds the stage, kernel and line at which a compiled program goes wrong, and writes small
programs that show it: `fusewright.bisect` and `fusewright.minify`.

Read in this order: `double` and `differences` (what wrong means), `observe`, `stages`, `kernels`,
`captured`, `search`; then `shrink`, `graph_text` and `alone` (programs that show it).
"""

from __future__ import annotations

from fusewright.bisection.bisecting import Bisection, FirstFailure, Minified, bisect, minify

__all__ = ["Bisection", "FirstFailure", "Minified", "bisect", "minify"]
