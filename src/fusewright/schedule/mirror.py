"""What reads a scan from its end goes along its rows from their ends, so that both are one kernel.

Before, the gradient of a cumulative sum, which is one from the end:
```
nest [i0<32]              scan sum c[128*i0 + r0] along [r0<128]:  g[128*i0 - r0 + 127]
nest [i0<32, i1<128]      store y[128*i0 + i1]:  c[128*i0 - i1 + 127] * x[128*i0 + i1]
```
After:
```
nest [i0<32]              scan sum c[128*i0 + r0] along [r0<128]:  g[128*i0 - r0 + 127]
nest [i0<32, i1<128]      store y[128*i0 - i1 + 127]:  c[128*i0 + i1] * x[128*i0 - i1 + 127]
```
Where all rows run from their ends, kernels count from there (`kernels/triton/tiling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.index import Index, Symbol
from fusewright.ir.value import Load, Random
from fusewright.records import replace
from fusewright.schedule.analysis import Analysis
from fusewright.schedule.nest import Nest, Step


def mirror(
    steps: Sequence[Step | None], kept: frozenset[str], analysis: Analysis
) -> list[Step | None]:
    """Steps of which those that read scans from their ends go along their rows from there. Expects
    one piece a nest.
    """
    scanned: set[str] = set()
    result: list[Step | None] = []
    for step in steps:
        if not isinstance(step, Nest) or not analysis.limits_of(step.device).mirrors_rows:
            result.append(step)
            continue
        result.append(_mirrored(step, scanned, analysis))
        scanned |= {w.buffer for piece in step.pieces if piece.is_scan for w in piece.writes}
    return result


def _mirrored(nest: Nest, scanned: set[str], analysis: Analysis) -> Nest:
    """A nest with its last loop turned round, where all that it reads of scans needs it."""
    if not nest.is_pointwise or not nest.outer or scanned.isdisjoint(nest.loaded):
        return nest
    loop = nest.outer[-1]
    nodes = [node for p in nest.pieces for root in p.roots for node in analysis.nodes(root)]
    if any(isinstance(node, Random) for node in nodes):
        return nest  # They are drawn by four, forwards.
    reads = [node for node in nodes if isinstance(node, Load)]
    if not all(analysis.stride(r.index, loop) == -1 for r in reads if r.buffer in scanned):
        return nest
    turned: dict[Symbol, Index] = {}
    turned.update((symbol, symbol.index) for symbol in nest.outer)
    turned[loop] = loop.extent - 1 - loop.index
    pieces = tuple(piece.rename(turned, piece.inner, analysis) for piece in nest.pieces)
    return replace(nest, pieces=pieces)
