"""Three-vectors and four-momenta of expressions, order (E, px, py, pz), metric (+, -, -, -)."""

from __future__ import annotations

from typing import Any

from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr, as_expr, atan2, p4_component, vector


def _scalar(kind: str, component: Expr | float) -> Expr:
    expr = as_expr(component)
    if expr.shape:
        raise ExpressionError(
            f"{kind}: components must be scalars, got shape {expr.shape}",
            operation=kind,
            shapes=[expr.shape],
        )
    return expr


class Vec3:
    """An immutable three-vector.

    Parameters
    ----------
    x, y, z
        Cartesian components, numbers or scalar expressions; momenta in GeV by habit.
    """

    __slots__ = ("_components",)
    _components: tuple[Expr, Expr, Expr]

    def __init__(self, x: Expr | float, y: Expr | float, z: Expr | float) -> None:
        self._components = (_scalar("Vec3", x), _scalar("Vec3", y), _scalar("Vec3", z))

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

    def as_expr(self) -> Expr:
        """The components as one vector expression of shape ``(3,)``."""
        return vector(self._components)

    def __repr__(self) -> str:
        return f"Vec3({self.x!r}, {self.y!r}, {self.z!r})"

    def __add__(self, other: object) -> Vec3:
        if not isinstance(other, Vec3):
            return NotImplemented
        return Vec3(self.x + other.x, self.y + other.y, self.z + other.z)

    def __radd__(self, other: object) -> Vec3:
        """``0 + v``, so that ``sum([v, w])`` works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: object) -> Vec3:
        if not isinstance(other, Vec3):
            return NotImplemented
        return Vec3(self.x - other.x, self.y - other.y, self.z - other.z)

    def __neg__(self) -> Vec3:
        return Vec3(-self.x, -self.y, -self.z)

    def __mul__(self, factor: Any) -> Vec3:
        if isinstance(factor, Vec3):
            raise TypeError("Vec3 * Vec3 is ambiguous; use dot() or cross()")
        return Vec3(self.x * factor, self.y * factor, self.z * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Expr | float) -> Vec3:
        return Vec3(self.x / divisor, self.y / divisor, self.z / divisor)

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
        """Azimuth ``atan2(y, x)`` in [-pi, pi]."""
        return atan2(self.y, self.x)

    def with_energy(self, energy: Expr | float) -> Vec4:
        """Four-vector with this momentum and the given energy."""
        return Vec4(energy, self.x, self.y, self.z)

    def with_mass(self, mass: Expr | float) -> Vec4:
        """Four-vector with this momentum and the given mass, ``E = sqrt(m**2 + |p|**2)``."""
        return self.with_energy((as_expr(mass) ** 2 + self.mag2()).sqrt())


class Vec4:
    """An immutable four-vector.

    Parameters
    ----------
    e, px, py, pz
        Components, numbers or scalar expressions, in GeV by habit (nothing checks units).
    """

    __slots__ = ("_energy", "_momentum")
    _energy: Expr
    _momentum: Vec3

    def __init__(
        self, e: Expr | float, px: Expr | float, py: Expr | float, pz: Expr | float
    ) -> None:
        self._energy = _scalar("Vec4", e)
        self._momentum = Vec3(px, py, pz)

    @staticmethod
    def event(name: str) -> Vec4:
        """The event's four-momentum `name`: columns ``<name>_e``, ``_px``, ``_py``, ``_pz``."""
        return Vec4(*(p4_component(name, component) for component in ("e", "px", "py", "pz")))

    def e(self) -> Expr:
        """Energy."""
        return self._energy

    def px(self) -> Expr:
        """Momentum along x."""
        return self._momentum.x

    def py(self) -> Expr:
        """Momentum along y."""
        return self._momentum.y

    def pz(self) -> Expr:
        """Momentum along z."""
        return self._momentum.z

    def momentum(self) -> Vec3:
        """The three-momentum."""
        return self._momentum

    def vec3(self) -> Vec3:
        """The three-momentum."""
        return self._momentum

    def as_expr(self) -> Expr:
        """The components as one vector expression of shape ``(4,)``, energy first."""
        return vector((self.e(), self.px(), self.py(), self.pz()))

    def __repr__(self) -> str:
        return f"Vec4({self.e()!r}, {self.px()!r}, {self.py()!r}, {self.pz()!r})"

    def __add__(self, other: object) -> Vec4:
        if not isinstance(other, Vec4):
            return NotImplemented
        return (self._momentum + other._momentum).with_energy(self._energy + other._energy)

    def __radd__(self, other: object) -> Vec4:
        """``0 + p``, so that ``sum([p, k])`` works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __sub__(self, other: object) -> Vec4:
        if not isinstance(other, Vec4):
            return NotImplemented
        return (self._momentum - other._momentum).with_energy(self._energy - other._energy)

    def __neg__(self) -> Vec4:
        return (-self._momentum).with_energy(-self._energy)

    def __mul__(self, factor: Any) -> Vec4:
        if isinstance(factor, (Vec3, Vec4)):
            raise TypeError("Vec4 * vector is ambiguous; use dot()")
        return Vec4(
            self._energy * factor, self.px() * factor, self.py() * factor, self.pz() * factor
        )

    __rmul__ = __mul__

    def __truediv__(self, divisor: Expr | float) -> Vec4:
        return (self._momentum / divisor).with_energy(self._energy / divisor)

    def __matmul__(self, other: object) -> Expr:
        return self.dot(other) if isinstance(other, Vec4) else NotImplemented

    def dot(self, other: Vec4) -> Expr:
        """Lorentz product ``E E' - p . p'``."""
        return self._energy * other._energy - self._momentum.dot(other._momentum)

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
        return self._momentum / self._energy

    def gamma(self) -> Expr:
        """Lorentz factor ``E / m``."""
        return self._energy / self.m()

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
        along = beta.dot(self._momentum)
        # gamma**2/(gamma + 1) equals (gamma - 1)/beta**2 without its 0/0 at rest.
        shift = gamma**2 / (gamma + 1) * along + gamma * self._energy
        return (self._momentum + beta * shift).with_energy(gamma * (self._energy + along))
