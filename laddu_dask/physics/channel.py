"""A reaction: a topology whose edges have momenta and whose vertices have frames."""

from __future__ import annotations

from collections.abc import Iterable

from laddu_dask.expr import Expr
from laddu_dask.physics.checks import invalid
from laddu_dask.physics.conservation import infer_momenta, no_momentum
from laddu_dask.physics.particle import Particle
from laddu_dask.physics.topology import Edge, Topology, Vertex
from laddu_dask.physics.vectors import Vec4
from laddu_dask.physics.vertex_frame import VertexFrame


class Channel:
    """A reaction, for momenta, invariants and angles without writing boosts.

    Parameters
    ----------
    name
        For error texts.
    edges
        Particle lines with unique names.
    vertices
        Interactions and decays that join them. Incoming edges that no vertex produces are the
        initial state; of two, the first is the beam.

    Notes
    -----
    An edge without a momentum gets the one that conservation gives it: a resonance the sum of its
    decay products, a lost recoil what the others leave over, through any number of vertices. A
    given momentum is never replaced, and measured events need not balance: where an edge follows
    from both of its vertices, the one that it enters counts.

    Raises
    ------
    ExpressionError
        An empty name, a name used twice, an edge that no vertex may have (not listed, or leaving or
        entering two vertices), or edges that run in a circle.
    """

    def __init__(self, name: str, *, edges: Iterable[Edge], vertices: Iterable[Vertex]) -> None:
        if not name:
            raise invalid("Channel", "the name is empty")
        self._name = name
        self._topology = Topology(f"Channel {name!r}", edges, vertices)
        self._momenta = infer_momenta(self._topology)

    def __repr__(self) -> str:
        edges, vertices = len(self.edge_names), len(self.vertex_names)
        return f"Channel({self.name!r}, edges={edges}, vertices={vertices})"

    @property
    def name(self) -> str:
        """Name of the channel."""
        return self._name

    @property
    def edge_names(self) -> list[str]:
        """Names of the edges, as they were given."""
        return list(self._topology.edges)

    @property
    def vertex_names(self) -> list[str]:
        """Names of the vertices, as they were given."""
        return list(self._topology.vertices)

    def edge_p4(self, edge: str) -> str | Vec4 | None:
        """What was given as momentum of an edge: a name, a four-vector, or None."""
        return self._topology.edge(edge).p4

    def p4(self, edge: str) -> Vec4:
        """Four-momentum of an edge in the laboratory, given or inferred.

        Raises
        ------
        ExpressionError
            Unknown edge, or too little is known; the text says what is missing.
        """
        self._topology.edge(edge)
        if edge not in self._momenta:
            raise no_momentum(self._topology, self._momenta, edge)
        return self._momenta[edge]

    def s(self, edge: str) -> Expr:
        """Squared invariant mass of an edge; negative when spacelike. Errors as `p4`."""
        return self.p4(edge).m2()

    def mass(self, edge: str) -> Expr:
        """Invariant mass of an edge, as `Vec4.m`. Errors as `p4`."""
        return self.p4(edge).m()

    def particle(self, edge: str) -> Particle:
        """The particle of an edge; `ExpressionError` when the edge is unknown or has none."""
        particle = self._topology.edge(edge).particle
        if particle is None:
            raise invalid(
                self._topology.where, f"edge {edge!r} has no particle; give particle= to its Edge"
            )
        return particle

    def vertex(self, name: str) -> VertexFrame:
        """The rest frame of a vertex.

        Raises
        ------
        ExpressionError
            Unknown vertex, a momentum on the way to it that is not known, or a vertex that
            particles of two vertices enter.
        """
        return VertexFrame(self._topology, self._momenta, name)
