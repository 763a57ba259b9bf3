"""Four-momenta that nobody measured, by conservation at the vertices of a reaction."""

from __future__ import annotations

from collections.abc import Iterable

from laddu_dask.errors import ExpressionError
from laddu_dask.physics.checks import invalid
from laddu_dask.physics.topology import Topology, Vertex
from laddu_dask.physics.vectors import Vec4


def infer_momenta(topology: Topology) -> dict[str, Vec4]:
    """Momenta of edges, given or inferred; edges that cannot be inferred are left out.

    A given momentum is taken as it is. A vertex with one unknown edge gives its momentum: that of
    an incoming edge is the sum of the outgoing ones less the other incoming ones, and the other way
    round. Where an edge could follow from both of its vertices, the one that it enters counts: a
    resonance is the sum of its decay products, whatever the rest of the event says. The order of
    edges and vertices does not matter, beyond the order of summands.
    """
    momenta: dict[str, Vec4] = {}
    for edge in topology.edges.values():
        if edge.p4 is not None:
            momenta[edge.name] = Vec4.event(edge.p4) if isinstance(edge.p4, str) else edge.p4
    unknown = {
        vertex.name: sum(edge not in momenta for edge in vertex.edges)
        for vertex in topology.vertices.values()
    }
    fresh = list(topology.vertices.values())
    downwards: dict[str, Vertex] = {}
    while fresh or downwards:
        while fresh:
            vertex = fresh.pop()
            if unknown[vertex.name] != 1:
                continue
            (missing,) = (edge for edge in vertex.edges if edge not in momenta)
            if missing in vertex.incoming:
                fresh += _settle(topology, momenta, unknown, missing, vertex)
            else:
                downwards[missing] = vertex
        # One whole generation at a time, so that no vertex profits from being listed first.
        found = [(name, vertex) for name, vertex in downwards.items() if name not in momenta]
        downwards.clear()
        for name, vertex in found:
            fresh += _settle(topology, momenta, unknown, name, vertex)
    return momenta


def _settle(
    topology: Topology,
    momenta: dict[str, Vec4],
    unknown: dict[str, int],
    edge: str,
    vertex: Vertex,
) -> list[Vertex]:
    """Write down the momentum of the one unknown edge of a vertex; returns the edge's vertices."""
    same, other = vertex.incoming, vertex.outgoing
    if edge in other:
        same, other = other, same
    momentum = _total(momenta[name] for name in other)
    for name in same:
        if name != edge:
            momentum = momentum - momenta[name]
    momenta[edge] = momentum
    ends = [end[edge] for end in (topology.producer, topology.consumer) if edge in end]
    for end in ends:
        unknown[end.name] -= 1
    return ends


def _total(momenta: Iterable[Vec4]) -> Vec4:
    first, *rest = momenta
    for momentum in rest:
        first = first + momentum
    return first


def incoming_total(vertex: Vertex, momenta: dict[str, Vec4]) -> Vec4:
    """Four-momentum that enters a vertex."""
    return _total(momenta[name] for name in vertex.incoming)


def no_momentum(topology: Topology, momenta: dict[str, Vec4], edge: str) -> ExpressionError:
    """The error of an edge whose momentum is neither given nor follows from others."""
    reasons = []
    for ends in (topology.consumer, topology.producer):
        if edge in ends:
            vertex = ends[edge]
            missing = [repr(e) for e in vertex.edges if e not in momenta and e != edge]
            reasons.append(f"vertex {vertex.name!r} also lacks {', '.join(missing)}")
    because = "; ".join(reasons) or "no vertex has it"
    return invalid(
        topology.where,
        f"edge {edge!r} has no p4 and conservation does not give it: {because}. Give p4= to all "
        "edges of a vertex but one",
    )
