"""Maximum flow, and the minimum cut that goes with it.

Dinic's algorithm (Soviet Math. Doklady 11, 1970): shortest augmenting paths, level by level.
Capacities are integers, so the result is exact; everything is iterative.
"""

from __future__ import annotations

from collections import deque

#: More than any sum of finite capacities: an edge that no minimum cut contains.
UNLIMITED = 1 << 60


class Network:
    """A directed graph with integer capacities.

    Parameters
    ----------
    size
        Number of vertices, numbered from 0.
    """

    def __init__(self, size: int) -> None:
        self._heads: list[int] = []
        self._left: list[int] = []  # what each edge can still take; edge e ^ 1 is the way back
        self._edges: list[list[int]] = [[] for _ in range(size)]

    def connect(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge."""
        for at, to, left in ((tail, head, capacity), (head, tail, 0)):
            self._edges[at].append(len(self._heads))
            self._heads.append(to)
            self._left.append(left)

    def minimum_cut(self, source: int, sink: int) -> tuple[int, set[int]]:
        """Capacity of the minimum cut, and the smallest set of vertices on the source's side.

        The set is the same for every maximum flow, so it does not depend on the order of edges.
        """
        total = 0
        while True:
            levels = self._levels(source)
            if levels[sink] < 0:
                return total, {vertex for vertex, level in enumerate(levels) if level >= 0}
            total += self._blocking_flow(source, sink, levels)

    def _levels(self, source: int) -> list[int]:
        """Edges from the source to each vertex; -1 where no unsaturated path leads."""
        levels = [-1] * len(self._edges)
        levels[source] = 0
        queue = deque([source])
        while queue:
            vertex = queue.popleft()
            for edge in self._edges[vertex]:
                head = self._heads[edge]
                if self._left[edge] and levels[head] < 0:
                    levels[head] = levels[vertex] + 1
                    queue.append(head)
        return levels

    def _blocking_flow(self, source: int, sink: int, levels: list[int]) -> int:
        following = [0] * len(self._edges)  # edges before it lead nowhere any more
        path: list[int] = []
        vertex, total = source, 0
        while True:
            if vertex == sink:
                flow = min(self._left[edge] for edge in path)
                total += flow
                for edge in path:
                    self._left[edge] -= flow
                    self._left[edge ^ 1] += flow
                full = next(i for i, edge in enumerate(path) if not self._left[edge])
                vertex = self._heads[path[full] ^ 1]
                del path[full:]
                continue
            edges = self._edges[vertex]
            while following[vertex] < len(edges):
                edge = edges[following[vertex]]
                head = self._heads[edge]
                if self._left[edge] and levels[head] == levels[vertex] + 1:
                    path.append(edge)
                    vertex = head
                    break
                following[vertex] += 1
            else:
                if vertex == source:
                    return total
                edge = path.pop()
                vertex = self._heads[edge ^ 1]
                following[vertex] += 1
