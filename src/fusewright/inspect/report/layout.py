"""Where the nodes of a graph stand in a picture: in layers by how far they are from the inputs,
each ordered so that few edges cross (K. Sugiyama, S. Tagawa and M. Toda, 1981).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

SWEEPS = 6


def layered(sources: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """For each node its layer and its place there; `sources` says which nodes each one reads, all
    of which come before it.
    """
    layers = _layers(sources)
    rows: dict[int, list[int]] = {}
    for node, layer in enumerate(layers):
        rows.setdefault(layer, []).append(node)
    readers: list[list[int]] = [[] for _ in sources]
    for node, read in enumerate(sources):
        for source in read:
            readers[source].append(node)
    place = {node: float(n) for row in rows.values() for n, node in enumerate(row)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in sorted(rows, reverse=not down):
            neighbours = sources if down else readers
            _order(rows[layer], neighbours, place)
    return [(layers[node], place[node]) for node in range(len(sources))]


def _layers(sources: Sequence[Sequence[int]]) -> list[int]:
    layers: list[int] = []
    for read in sources:
        layers.append(max((layers[source] for source in read), default=-1) + 1)
    return layers


def _order(row: list[int], neighbours: Sequence[Sequence[int]], place: dict[int, float]) -> None:
    """Order one layer by where the neighbours of its nodes stand, and centre it on them."""
    wanted: Mapping[int, float] = {
        node: fmean(place[other] for other in neighbours[node]) if neighbours[node] else place[node]
        for node in row
    }
    row.sort(key=wanted.__getitem__)
    middle = fmean(wanted[node] for node in row)
    for n, node in enumerate(row):
        place[node] = middle + n - (len(row) - 1) / 2
