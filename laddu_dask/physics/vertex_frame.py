"""The rest frame of a vertex, reached by nested boosts, and directions in it."""

from __future__ import annotations

from enum import StrEnum

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr
from laddu_dask.physics.checks import invalid
from laddu_dask.physics.conservation import incoming_total, no_momentum
from laddu_dask.physics.frames import (
    Angles,
    Mandelstam,
    angles,
    mandelstam,
    moving,
    production_normal,
    to_rest_frame,
)
from laddu_dask.physics.topology import Topology
from laddu_dask.physics.vectors import Vec3, Vec4


class MandelstamChannel(StrEnum):
    """One of the invariants of a reaction; ``MandelstamChannel("t")`` reads either case."""

    S = "s"
    T = "t"
    U = "u"

    @classmethod
    def _missing_(cls, value: object) -> MandelstamChannel | None:
        for member in cls:
            if isinstance(value, str) and member.value == value.lower():
                return member
        return None


class VertexFrame:
    """The frame in which the particles that enter a vertex have no momentum in total.

    It is reached from the laboratory by nested pure boosts: into the frame of the first vertex of
    the reaction, and from each frame on the path into the next. Axes stay parallel to those of the
    laboratory. Made by `Channel.vertex`.

    Directions follow `frames.angles`: cosines in [-1, 1], azimuths in [-pi, pi], and NaN where an
    event has no direction or no axis (a particle at rest, a resonance along the beam).
    """

    def __init__(self, topology: Topology, momenta: dict[str, Vec4], name: str) -> None:
        self._topology = topology
        self._momenta = momenta
        self._path = topology.path(name)
        #: Momentum entering each vertex of the path, in the frame of the vertex before.
        self._parents: list[Vec4] = []
        for vertex in self._path:
            for edge in vertex.incoming:
                if edge not in momenta:
                    raise no_momentum(topology, momenta, edge)
            total = incoming_total(vertex, momenta)
            self._parents.append(_through(total, self._parents))

    def __repr__(self) -> str:
        return f"VertexFrame({self.name!r})"

    @property
    def name(self) -> str:
        """Name of the vertex."""
        return self._path[-1].name

    def p4(self, edge: str) -> Vec4:
        """Four-momentum of any edge of the channel in this frame."""
        return _through(self._laboratory(edge), self._parents)

    def vec3(self, edge: str) -> Vec3:
        """Three-momentum of any edge of the channel in this frame."""
        return self.p4(edge).momentum()

    def angles(self, edge: str, *, z_axis: Vec3, y_hint: Vec3) -> Angles:
        """Direction of an edge in this frame, with axes as `frames.angles` takes them."""
        return angles(moving(self.p4(edge)), z_axis=z_axis, y_hint=y_hint)

    def costheta(self, edge: str, *, z_axis: Vec3, y_hint: Vec3 | None = None) -> Expr:
        """Cosine of the polar angle; `y_hint` plays no part in it."""
        any_hint = Vec3.y_axis() if y_hint is None else y_hint
        return self.angles(edge, z_axis=z_axis, y_hint=any_hint).costheta

    def theta(self, edge: str, *, z_axis: Vec3, y_hint: Vec3 | None = None) -> Expr:
        """Polar angle in [0, pi]; `y_hint` plays no part in it."""
        return self.costheta(edge, z_axis=z_axis, y_hint=y_hint).acos()

    def phi(self, edge: str, *, z_axis: Vec3, y_hint: Vec3) -> Expr:
        """Azimuth in [-pi, pi]."""
        return self.angles(edge, z_axis=z_axis, y_hint=y_hint).phi

    def helicity_angles(self, edge: str) -> Angles:
        """Direction in the helicity frame of the particle that decays here.

        z is its direction in the frame before, y the direction of ``z' x z``, where z' is the z
        axis of the frame before: the beam for a resonance from the first vertex (this is
        `frames.helicity_angles`), the helicity axis of the parent in a longer chain, so that a
        decay is rotated by ``R(phi, theta, 0)`` from its parent's axes.
        """
        if len(self._path) > 2:
            before = self._parents[-2].momentum()
        else:
            before = self._beam("helicity").momentum()
        parent = self._parents[-1]
        normal = production_normal(before, parent.momentum())
        return self.angles(edge, z_axis=moving(parent), y_hint=normal)

    def gottfried_jackson_angles(self, edge: str) -> Angles:
        """Direction with z along the beam in this frame, `frames.gottfried_jackson_angles`."""
        beam = self._beam("Gottfried-Jackson")
        resonance = self._parents[-1]
        return self.angles(
            edge,
            z_axis=moving(to_rest_frame(beam, resonance)),
            y_hint=production_normal(beam.momentum(), resonance.momentum()),
        )

    def adair_angles(self, edge: str) -> Angles:
        """Direction with z along the beam of the first frame, `frames.adair_angles`."""
        beam = self._beam("Adair")
        normal = production_normal(beam.momentum(), self._parents[-1].momentum())
        return self.angles(edge, z_axis=moving(beam), y_hint=normal)

    def canonical_angles(self, edge: str) -> Angles:
        """Direction with the axes of the laboratory, `frames.canonical_angles`; of any vertex."""
        return self.angles(edge, z_axis=Vec3.z_axis(), y_hint=Vec3.y_axis())

    def mandelstam(self, channel: MandelstamChannel | str) -> Expr:
        """One of s, t, u of a vertex of two edges in and two out, each side in its order."""
        try:
            wanted = MandelstamChannel(channel)
        except ValueError:
            raise invalid(
                repr(self), f"no Mandelstam variable {channel!r}; it is s, t or u"
            ) from None
        value: Expr = getattr(self._invariants(), wanted.value)
        return value

    def s(self) -> Expr:
        """``(p1 + p2)**2``."""
        return self._invariants().s

    def t(self) -> Expr:
        """``(p1 - p3)**2``, first incoming less first outgoing."""
        return self._invariants().t

    def u(self) -> Expr:
        """``(p1 - p4)**2``, first incoming less second outgoing."""
        return self._invariants().u

    def _invariants(self) -> Mandelstam:
        vertex = self._path[-1]
        if len(vertex.incoming) != 2 or len(vertex.outgoing) != 2:
            raise self._refusal(
                "Mandelstam variables need two edges in and two out, and it has "
                f"{len(vertex.incoming)} in and {len(vertex.outgoing)} out"
            )
        return mandelstam(*(self._laboratory(edge) for edge in vertex.edges))

    def _laboratory(self, edge: str) -> Vec4:
        self._topology.edge(edge)
        if edge not in self._momenta:
            raise no_momentum(self._topology, self._momenta, edge)
        return self._momenta[edge]

    def _beam(self, kind: str) -> Vec4:
        """The beam in the frame of the first vertex, where the particle of this one comes from."""
        first = self._path[0]
        if len(self._path) != 2 or len(first.incoming) != 2:
            raise self._refusal(
                f"{kind} angles are those of a particle from a first vertex that beam and target "
                "enter; give the axes of your choice to angles(edge, z_axis=..., y_hint=...)"
            )
        return to_rest_frame(self._momenta[first.incoming[0]], self._parents[0])

    def _refusal(self, problem: str) -> ExpressionError:
        return invalid(self._topology.where, f"vertex {self.name!r}: {problem}")


def _through(p: Vec4, parents: list[Vec4]) -> Vec4:
    """`p` of the laboratory after the boosts to the rest frames of `parents`, one by one."""
    for parent in parents:
        p = to_rest_frame(p, parent)
    return p
