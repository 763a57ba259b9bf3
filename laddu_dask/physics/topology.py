"""Who decays to whom: edges (particles) that join the vertices (interactions) of a reaction.

Only the drawing and its rules; momenta and frames are built on it elsewhere. An edge leaves at most
one vertex and enters at most one, and nothing is its own ancestor. Then every edge has one place in
the reaction, and no momentum or frame can mean two things.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from laddu_dask.errors import ExpressionError
from laddu_dask.physics.checks import invalid
from laddu_dask.physics.particle import Particle
from laddu_dask.physics.vectors import Vec4


@dataclass(frozen=True, eq=False)
class Edge:
    """A particle line of a reaction.

    Parameters
    ----------
    name
        Unique in a channel.
    p4
        Where the four-momentum of an event comes from: the prefix of columns as `Vec4.event` takes
        it, a four-vector of expressions, or None to infer it by conservation (see `Channel`).
    particle
        Mass and quantum numbers, for who asks for them; kinematics do not use them.

    Raises
    ------
    ExpressionError
        An empty name.
    TypeError
        A momentum or a particle of another type.
    """

    name: str
    p4: str | Vec4 | None = None
    particle: Particle | None = None

    def __init__(
        self, name: str, *, p4: str | Vec4 | None = None, particle: Particle | None = None
    ) -> None:
        _check_name("Edge", name)
        if not (p4 is None or isinstance(p4, (str, Vec4))):
            raise TypeError(
                f"Edge {name!r}: p4 is the name of a four-momentum in the data, a Vec4 or None, "
                f"got {type(p4).__name__}"
            )
        if p4 == "":
            raise invalid(f"Edge {name!r}", "p4 is an empty name; leave it out to infer it")
        if not (particle is None or isinstance(particle, Particle)):
            raise TypeError(
                f"Edge {name!r}: particle must be a Particle, got {type(particle).__name__}"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "p4", p4)
        object.__setattr__(self, "particle", particle)


@dataclass(frozen=True)
class Vertex:
    """An interaction or a decay: edges in, edges out.

    Parameters
    ----------
    name
        Unique in a channel.
    incoming, outgoing
        Names of edges, at least one on each side and none twice. Of two incoming edges the first is
        the beam, the second the target, and ``t`` is the transfer to the first outgoing edge.

    Raises
    ------
    ExpressionError
        An empty name, an empty side, or an edge named twice.
    TypeError
        One string instead of a sequence of names.
    """

    name: str
    incoming: tuple[str, ...]
    outgoing: tuple[str, ...]

    def __init__(self, name: str, *, incoming: Sequence[str], outgoing: Sequence[str]) -> None:
        _check_name("Vertex", name)
        for side, names in (("incoming", incoming), ("outgoing", outgoing)):
            if isinstance(names, str):
                raise TypeError(
                    f"Vertex {name!r}: {side} is a list of names; write {side}=[{names!r}]"
                )
            if not names:
                raise invalid(f"Vertex {name!r}", f"needs at least one {side} edge")
        seen: set[str] = set()
        for edge in (*incoming, *outgoing):
            _check_name(f"Vertex {name!r}: edge", edge)
            if edge in seen:
                raise invalid(f"Vertex {name!r}", f"edge {edge!r} appears more than once")
            seen.add(edge)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "incoming", tuple(incoming))
        object.__setattr__(self, "outgoing", tuple(outgoing))

    @property
    def edges(self) -> tuple[str, ...]:
        """Every edge of the vertex, incoming ones first."""
        return self.incoming + self.outgoing


class Topology:
    """Edges and vertices that fit together.

    Parameters
    ----------
    where
        Whose topology this is, for error texts.
    edges, vertices
        With unique names each.

    Attributes
    ----------
    edges, vertices
        By name, in the order given.
    producer, consumer
        The vertex that an edge leaves, and the one that it enters; edges without are left out.

    Raises
    ------
    ExpressionError
        A name used twice, an edge that is not listed, an edge that leaves or enters two vertices,
        or a vertex that is its own ancestor.
    """

    def __init__(self, where: str, edges: Iterable[Edge], vertices: Iterable[Vertex]) -> None:
        self.where = where
        self.edges: dict[str, Edge] = {}
        self.vertices: dict[str, Vertex] = {}
        self.producer: dict[str, Vertex] = {}
        self.consumer: dict[str, Vertex] = {}
        for edge in edges:
            if edge.name in self.edges:
                raise invalid(where, f"two edges have the name {edge.name!r}")
            self.edges[edge.name] = edge
        for vertex in vertices:
            if vertex.name in self.vertices:
                raise invalid(where, f"two vertices have the name {vertex.name!r}")
            self.vertices[vertex.name] = vertex
            self._connect(vertex)
        self._check_order()

    def _connect(self, vertex: Vertex) -> None:
        for ends, names, verb in (
            (self.consumer, vertex.incoming, "enters"),
            (self.producer, vertex.outgoing, "leaves"),
        ):
            for name in names:
                if name not in self.edges:
                    raise self.unknown("edge", name, f"vertex {vertex.name!r}")
                if name in ends:
                    raise invalid(
                        self.where,
                        f"edge {name!r} {verb} the vertices {ends[name].name!r} and "
                        f"{vertex.name!r}; a particle {verb} one vertex only, so give each "
                        "particle an edge of its own",
                    )
                ends[name] = vertex

    def _check_order(self) -> None:
        """Take away vertices whose incoming edges are all there; what stays lies on a circle."""
        waiting = {
            vertex.name: sum(edge in self.producer for edge in vertex.incoming)
            for vertex in self.vertices.values()
        }
        ready = [name for name, count in waiting.items() if not count]
        for name in ready:
            for edge in self.vertices[name].outgoing:
                if edge in self.consumer:
                    following = self.consumer[edge].name
                    waiting[following] -= 1
                    if not waiting[following]:
                        ready.append(following)
        if len(ready) < len(waiting):
            stuck = [name for name, count in waiting.items() if count]
            raise invalid(
                self.where, f"the edges run in a circle through the vertices {_names(stuck)}"
            )

    def edge(self, name: str) -> Edge:
        """An edge by name; `ExpressionError` when unknown."""
        if name not in self.edges:
            raise self.unknown("edge", name)
        return self.edges[name]

    def vertex(self, name: str) -> Vertex:
        """A vertex by name; `ExpressionError` when unknown."""
        if name not in self.vertices:
            raise self.unknown("vertex", name)
        return self.vertices[name]

    def path(self, name: str) -> tuple[Vertex, ...]:
        """Vertices from the first of the reaction to the named one.

        Raises
        ------
        ExpressionError
            Unknown vertex, or one that particles of two vertices enter, so that two paths lead to
            it and its frame depends on which is taken.
        """
        path = [self.vertex(name)]
        while True:
            above = {
                self.producer[edge].name: self.producer[edge]
                for edge in path[-1].incoming
                if edge in self.producer
            }
            if not above:
                return tuple(reversed(path))
            if len(above) > 1:
                raise invalid(
                    self.where,
                    f"vertex {path[-1].name!r} is entered from the vertices {_names(above)}: "
                    "nested boosts along one or the other give different axes, so it has no "
                    "frame; boost its momenta with to_rest_frame",
                )
            path.extend(above.values())

    def unknown(self, kind: str, name: object, where: str | None = None) -> ExpressionError:
        """The error of a name that is not there."""
        known = self.edges if kind == "edge" else self.vertices
        place = self.where if where is None else f"{self.where}, {where}"
        return invalid(place, f"no {kind} {name!r}; it has {_names(known) or 'none'}")


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{kind}: a name is a string, got {type(name).__name__}")
    if not name:
        raise invalid(kind, "the name is empty")


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
