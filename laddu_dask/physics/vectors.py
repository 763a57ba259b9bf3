"""Three-vectors and four-momenta of expressions, order (E, px, py, pz), metric (+, -, -, -)."""

from __future__ import annotations

import math

from laddu_dask.expr import Expr, as_expr, atan2, p4_component, where
from laddu_dask.physics.components import Components


class Vec3(Components):
    """An immutable three-vector.

    Parameters
    ----------
    x, y, z
        Cartesian components, numbers or scalar expressions; momenta in GeV by habit.
    """

    __slots__ = ()

    def __init__(self, x: Expr | float, y: Expr | float, z: Expr | float) -> None:
        super().__init__(x, y, z)

    @staticmethod
    def event(name: str) -> Vec3:
        """Momentum of the event's four-vector `name`: columns ``<name>_px``, ``_py``, ``_pz``."""
        return Vec3(*(p4_component(name, component) for component in ("px", "py", "pz")))

    @staticmethod
    def zero() -> Vec3:
        """The null vector."""
        return Vec3(0.0, 0.0, 0.0)

    @staticmethod
    def x_axis() -> Vec3:
        """Unit vector along x."""
        return Vec3(1.0, 0.0, 0.0)

    @staticmethod
    def y_axis() -> Vec3:
        """Unit vector along y."""
        return Vec3(0.0, 1.0, 0.0)

    @staticmethod
    def z_axis() -> Vec3:
        """Unit vector along z."""
        return Vec3(0.0, 0.0, 1.0)

    @property
    def x(self) -> Expr:
        """Component along x."""
        return self._components[0]

    @property
    def y(self) -> Expr:
        """Component along y."""
        return self._components[1]

    @property
    def z(self) -> Expr:
        """Component along z."""
        return self._components[2]

    def px(self) -> Expr:
        """Component along x."""
        return self.x

    def py(self) -> Expr:
        """Component along y."""
        return self.y

    def pz(self) -> Expr:
        """Component along z."""
        return self.z

    def __matmul__(self, other: object) -> Expr:
        return self.dot(other) if isinstance(other, Vec3) else NotImplemented

    def dot(self, other: Vec3) -> Expr:
        """Scalar product."""
        return self.x * other.x + self.y * other.y + self.z * other.z

    def cross(self, other: Vec3) -> Vec3:
        """Vector product ``self x other``, right-handed."""
        return Vec3(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )

    def mag2(self) -> Expr:
        """Squared length."""
        return self.dot(self)

    def mag(self) -> Expr:
        """Length."""
        return self.mag2().sqrt()

    def unit(self) -> Vec3:
        """The vector divided by its length; NaN for the null vector."""
        return self / self.mag()

    def costheta(self) -> Expr:
        """Cosine of the polar angle, z over length, in [-1, 1]; NaN for the null vector."""
        return self.z / self.mag()

    def phi(self) -> Expr:
        """Azimuth ``atan2(y, x)`` in [-pi, pi]; NaN for the null vector.

        A vector along z has the azimuth that atan2 gives its zeros: 0, or +-pi for a negative zero
        of x.
        """
        null = (self.x == 0) & (self.y == 0) & (self.z == 0)
        return where(null, math.nan, atan2(self.y, self.x))

    def with_energy(self, energy: Expr | float) -> Vec4:
        """Four-vector with this momentum and the given energy."""
        return Vec4(energy, self.x, self.y, self.z)

    def with_mass(self, mass: Expr | float) -> Vec4:
        """Four-vector with this momentum and the given mass, ``E = sqrt(m**2 + |p|**2)``."""
        return self.with_energy((as_expr(mass) ** 2 + self.mag2()).sqrt())


class Vec4(Components):
    """An immutable four-vector.

    Parameters
    ----------
    e, px, py, pz
        Components, numbers or scalar expressions, in GeV by habit (nothing checks units).
    """

    __slots__ = ()

    def __init__(
        self, e: Expr | float, px: Expr | float, py: Expr | float, pz: Expr | float
    ) -> None:
        super().__init__(e, px, py, pz)

    @staticmethod
    def event(name: str) -> Vec4:
        """The event's four-momentum `name`: columns ``<name>_e``, ``_px``, ``_py``, ``_pz``."""
        return Vec4(*(p4_component(name, component) for component in ("e", "px", "py", "pz")))

    def e(self) -> Expr:
        """Energy."""
        return self._components[0]

    def px(self) -> Expr:
        """Momentum along x."""
        return self._components[1]

    def py(self) -> Expr:
        """Momentum along y."""
        return self._components[2]

    def pz(self) -> Expr:
        """Momentum along z."""
        return self._components[3]

    def momentum(self) -> Vec3:
        """The three-momentum."""
        return Vec3(self.px(), self.py(), self.pz())

    vec3 = momentum

    def __matmul__(self, other: object) -> Expr:
        return self.dot(other) if isinstance(other, Vec4) else NotImplemented

    def dot(self, other: Vec4) -> Expr:
        """Lorentz product ``E E' - p . p'``."""
        return self.e() * other.e() - self.momentum().dot(other.momentum())

    def m2(self) -> Expr:
        """Squared invariant mass; negative when spacelike."""
        return self.dot(self)

    mag2 = m2

    def m(self) -> Expr:
        """Invariant mass, the principal root of `m2`: ``+i sqrt(-m2)`` when spacelike.

        The type of this expression is complex for that reason; where a model needs the squared
        mass, `m2` is real and cheaper.
        """
        return self.m2().sqrt()

    mass = m
    mag = m

    def beta(self) -> Vec3:
        """Velocity ``p / E`` in units of c."""
        return self.momentum() / self.e()

    def gamma(self) -> Expr:
        """Lorentz factor ``E / m``; not finite when massless, imaginary when spacelike."""
        return self.e() / self.m()

    def boost(self, beta: Vec3) -> Vec4:
        """This four-vector after an active boost by the velocity `beta`.

        A particle at rest boosted by ``+beta z`` moves along +z; ``p.boost(-P.beta())`` is `p` in
        the rest frame of `P`. A null velocity changes nothing, to the last bit.

        At ``|beta| >= 1`` there is no such frame and the result is not finite.
        """
        inverse_gamma = (1 - beta.mag2()).sqrt()
        if beta.mag2().is_real:
            # Zero beyond the speed of light, so that gamma is infinite there and spoils the result.
            inverse_gamma = inverse_gamma.real()
        gamma = 1 / inverse_gamma
        along = beta.dot(self.momentum())
        # gamma**2/(gamma + 1) equals (gamma - 1)/beta**2 without its 0/0 at rest.
        shift = gamma**2 / (gamma + 1) * along + gamma * self.e()
        return (self.momentum() + beta * shift).with_energy(gamma * (self.e() + along))
