"""The minimum cut of a directed graph: Dinic's algorithm (E. A. Dinic, 1970), in plain Python.

The graphs cut here have some vertices an operator of a model; most of their paths are short, so
that few phases are needed, each linear in the edges: some 20 ms for a transformer of 12 layers.
Importing scipy for its solver in C takes ten times that.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = 1 << 62
"""A capacity above every sum of others: an edge that no cut crosses."""


class FlowNetwork:
    """A directed graph with capacities, whole numbers, on its edges; vertices are numbered as they
    are added.
    """

    def __init__(self) -> None:
        self._edges: list[list[int]] = []
        """By vertex: numbers of the edges that leave it; edge `e ^ 1` is the reverse of `e`."""

        self._heads: list[int] = []
        self._room: list[int] = []
        """By edge: how much more can flow along it."""

    def vertex(self) -> int:
        """Add a vertex; gives its number."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge."""
        for start, end, room in ((tail, head, capacity), (head, tail, 0)):
            self._edges[start].append(len(self._heads))
            self._heads.append(end)
            self._room.append(room)

    def source_side(self, source: int, sink: int) -> set[int]:
        """Vertices on the source's side of a minimum cut; of several minimum cuts, the one nearest
        to the source.

        Raises: ValueError when every cut crosses an unlimited edge.
        """
        flow = 0
        while (levels := self._levels(source, sink))[sink] >= 0:
            flow += self._blocking_flow(source, sink, levels)
            if flow >= UNLIMITED:
                raise ValueError("there is no cut: an unlimited path leads from source to sink")
        return {vertex for vertex, level in enumerate(levels) if level >= 0}

    def _levels(self, source: int, sink: int) -> list[int]:
        """By vertex: its distance from the source along edges with room; -1 where there is no way.

        Vertices farther than the sink may be missing, which is harmless.
        """
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = deque([source])
        heads, room = self._heads, self._room
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                head = heads[edge]
                if room[edge] and levels[head] < 0:
                    levels[head] = levels[vertex] + 1
                    queue.append(head)
        return levels

    def _blocking_flow(self, source: int, sink: int, levels: list[int]) -> int:
        """Send as much as fits along paths on which each edge rises a level; gives how much."""
        edges, heads, room = self._edges, self._heads, self._room
        untried = [list(reversed(leaving)) for leaving in edges]
        path: list[int] = []
        vertex, sent = source, 0
        while True:
            if vertex == sink:
                amount = min(room[edge] for edge in path)
                sent += amount
                for edge in path:
                    room[edge] -= amount
                    room[edge ^ 1] += amount
                full = next(index for index, edge in enumerate(path) if not room[edge])
                vertex = heads[path[full] ^ 1]
                del path[full:]
                continue
            waiting = untried[vertex]
            while waiting:
                edge = waiting[-1]
                if room[edge] and levels[heads[edge]] == levels[vertex] + 1:
                    break
                waiting.pop()
            if waiting:
                path.append(waiting[-1])
                vertex = heads[waiting[-1]]
            elif path:
                vertex = heads[path.pop() ^ 1]
                untried[vertex].pop()
            else:
                return sent
