"""Momenta and frames of a channel: inference by conservation, nested boosts, angles."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lattice import events
from oracle import evaluate

from laddu_dask import Model, from_arrow
from laddu_dask.errors import ExpressionError
from laddu_dask.expr import Expr, parameter, scalar
from laddu_dask.physics import (
    Channel,
    Edge,
    MandelstamChannel,
    Vec3,
    Vec4,
    Vertex,
    adair_angles,
    canonical_angles,
    gottfried_jackson_angles,
    helicity_angles,
    mandelstam,
    to_rest_frame,
)

CASES = Path(__file__).resolve().parents[1] / "data" / "cases.json"
PRODUCTION = Vertex("production", incoming=["beam", "target"], outgoing=["X", "recoil"])
DECAY = Vertex("decay", incoming=["X"], outgoing=["ks1", "ks2"])
NAMES = ("beam", "target", "X", "recoil", "ks1", "ks2")


def pair(*known: str) -> Channel:
    """The two-vertex reaction, with the momenta of the named edges."""
    edges = [Edge(name, p4=name if name in known else None) for name in NAMES]
    return Channel("pair", edges=edges, vertices=[PRODUCTION, DECAY])


def same(a: Vec4, b: Vec4) -> bool:
    return a.as_expr().node is b.as_expr().node


BEAM, TARGET, X, RECOIL, KS1, KS2 = (Vec4.event(name) for name in NAMES)


def test_missing_momenta_follow_from_conservation() -> None:
    measured = pair("beam", "target", "recoil", "ks1", "ks2")
    assert same(measured.p4("X"), KS1 + KS2)
    assert measured.s("X").node is (KS1 + KS2).m2().node
    assert measured.mass("X").node is (KS1 + KS2).m().node
    assert same(pair("beam", "target", "ks1", "ks2").p4("recoil"), BEAM + TARGET - (KS1 + KS2))
    assert same(pair("target", "recoil", "ks1", "ks2").p4("beam"), KS1 + KS2 + RECOIL - TARGET)
    missing = pair("beam", "target", "recoil")
    assert same(missing.p4("X"), BEAM + TARGET - RECOIL)
    through_both = pair("beam", "target", "recoil", "ks2")
    assert same(through_both.p4("ks1"), BEAM + TARGET - RECOIL - KS2)


def test_a_given_momentum_is_never_replaced() -> None:
    assert same(pair(*NAMES).p4("X"), X)
    channel = Channel(
        "pair",
        edges=[Edge("X", p4=0.5 * KS1), Edge("ks1", p4="ks1"), Edge("ks2")],
        vertices=[DECAY],
    )
    assert same(channel.p4("X"), 0.5 * KS1)
    assert same(channel.p4("ks2"), 0.5 * KS1 - KS1)


def test_a_given_momentum_may_belong_to_no_vertex() -> None:
    assert same(Channel("alone", edges=[Edge("X", p4="X")], vertices=[]).p4("X"), X)


@pytest.mark.parametrize(
    ("known", "edge", "text"),
    [
        ((), "X", "vertex 'decay' also lacks 'ks1', 'ks2'; vertex 'production' also lacks 'beam'"),
        (("beam", "target", "recoil"), "ks1", "vertex 'decay' also lacks 'ks2'. Give p4= to all"),
        (("ks1", "ks2", "beam"), "target", "vertex 'production' also lacks 'recoil'"),
    ],
)
def test_too_little_is_known(known: tuple[str, ...], edge: str, text: str) -> None:
    channel = pair(*known)
    with pytest.raises(ExpressionError, match=f"edge '{edge}' has no p4 .* {text}"):
        channel.p4(edge)


def test_a_frame_needs_what_enters_it() -> None:
    with pytest.raises(
        ExpressionError, match="edge 'beam' has no p4 .* also lacks 'target', 'recoil'"
    ):
        pair("ks1", "ks2").vertex("decay")
    frame = pair("beam", "target", "recoil").vertex("decay")
    with pytest.raises(ExpressionError, match="edge 'ks1' has no p4"):
        frame.vec3("ks1")
    unused = Channel("c", edges=[Edge("a")], vertices=[])
    with pytest.raises(ExpressionError, match="no vertex has it"):
        unused.p4("a")


def test_the_order_of_the_lists_does_not_matter() -> None:
    """A four-step chain with unknown edges everywhere, its vertices in every order."""
    vertices = [
        PRODUCTION,
        Vertex("X", incoming=["X"], outgoing=["Y", "p"]),
        Vertex("Y", incoming=["Y"], outgoing=["Z", "q"]),
        Vertex("Z", incoming=["Z"], outgoing=["ks1", "ks2"]),
    ]
    names = ("beam", "target", "X", "recoil", "Y", "p", "Z", "q", "ks1", "ks2")
    edges = [
        Edge(name, p4=name if name in ("beam", "target", "recoil", "Z", "q", "ks1") else None)
        for name in names
    ]
    beam, target, recoil, z, q, ks1 = (
        Vec4.event(name) for name in ("beam", "target", "recoil", "Z", "q", "ks1")
    )
    for order in itertools.permutations(vertices):
        channel = Channel("chain", edges=edges[::-1], vertices=order)
        assert same(channel.p4("Y"), z + q)
        assert same(channel.p4("X"), beam + target - recoil)
        assert same(channel.p4("p"), beam + target - recoil - (z + q))
        assert same(channel.p4("ks2"), z - ks1)


def test_a_chain_of_ten_thousand_vertices() -> None:
    depth = 10_000
    edges = [Edge("0", p4="start")]
    vertices = []
    for i in range(depth):
        edges += [Edge(f"{i + 1}"), Edge(f"out{i}", p4="out")]
        vertices.append(Vertex(f"v{i}", incoming=[f"{i}"], outgoing=[f"{i + 1}", f"out{i}"]))
    channel = Channel("chain", edges=edges, vertices=vertices)
    columns = {
        f"{name}_{component}": np.array([value])
        for name, value in (("start", 1e5), ("out", 3.0))
        for component in ("e", "px", "py", "pz")
    }
    assert evaluate(channel.p4(str(depth)).e(), columns)[0] == 1e5 - 3.0 * depth


def test_angles_are_those_of_the_plain_functions() -> None:
    """Expressions of the same nodes, so that a model may mix both ways."""
    channel = pair("beam", "target", "recoil", "ks1", "ks2")
    frame = channel.vertex("decay")
    x = KS1 + KS2
    for method, function in (
        (frame.helicity_angles, helicity_angles),
        (frame.gottfried_jackson_angles, gottfried_jackson_angles),
        (frame.adair_angles, adair_angles),
        (frame.canonical_angles, canonical_angles),
    ):
        expected = function(BEAM, TARGET, x, KS1)
        found = method("ks1")
        assert found.costheta.node is expected.costheta.node
        assert found.phi.node is expected.phi.node
    production = channel.vertex("production")
    expected_s, expected_t, expected_u = mandelstam(BEAM, TARGET, x, RECOIL)
    assert production.s().node is expected_s.node
    assert production.t().node is expected_t.node
    assert production.u().node is expected_u.node
    assert production.mandelstam(MandelstamChannel.T).node is expected_t.node
    assert production.mandelstam("U").node is expected_u.node
    assert MandelstamChannel("S") is MandelstamChannel.S


def test_the_kinematics_case_by_frames_with_axes_written_out() -> None:
    case = json.loads(CASES.read_text())["kinematics"]
    columns = events(case["events"])
    channel = pair("beam", "target", "recoil", "ks1", "ks2")
    production, decay = channel.vertex("production"), channel.vertex("decay")
    resonance = production.vec3("X")
    normal = production.vec3("beam").cross(resonance)

    def check(expr: Expr, first: float, total: float) -> None:
        values = evaluate(expr, columns).real
        assert values[0] == pytest.approx(first, rel=1e-13)
        assert values.sum() == pytest.approx(total, rel=1e-12)

    quantities = [
        decay.costheta("ks1", z_axis=resonance),
        decay.phi("ks1", z_axis=resonance, y_hint=normal),
        channel.mass("X"),
        production.t(),
        production.s(),
        production.u(),
    ]
    for expr, first, total in zip(quantities, case["first"], case["sums"], strict=True):
        check(expr, first, total)
    costheta, phi = decay.angles("ks1", z_axis=decay.vec3("beam"), y_hint=normal)
    check(costheta, case["gottfried_jackson_first"][0], case["gottfried_jackson_sums"][0])
    check(phi, case["gottfried_jackson_first"][1], case["gottfried_jackson_sums"][1])
    theta = evaluate(decay.theta("ks1", z_axis=resonance, y_hint=normal), columns).real
    assert np.cos(theta[0]) == pytest.approx(case["first"][0], rel=1e-13)


def test_numbers_of_one_event_without_its_recoil() -> None:
    """The event of the conventions, its momenta given as numbers."""
    edges = [
        Edge("beam", p4=Vec4(5.0, 0.0, 0.0, 5.0)),
        Edge("target", p4=Vec4(0.938272, 0.0, 0.0, 0.0)),
        Edge("X"),
        Edge("recoil"),
        Edge("ks1", p4=Vec3(0.3, 0.4, 1.2).with_mass(0.497611)),
        Edge("ks2", p4=Vec3(-0.1, 0.2, 2.0).with_mass(0.497611)),
    ]
    channel = Channel("one event", edges=edges, vertices=[PRODUCTION, DECAY])
    production, decay = channel.vertex("production"), channel.vertex("decay")
    for expr, expected in (
        (channel.mass("X"), 1.1690116218334814),
        (production.s(), 10.263074345983995),
        (production.t(), -1.2839358817490236),
        (production.u(), -4.2553807830226695),
        (decay.helicity_angles("ks1").costheta, -0.032231755791712044),
        (decay.helicity_angles("ks1").phi, -0.5420526419994686),
    ):
        assert evaluate(expr)[0].real == pytest.approx(expected, rel=1e-11)
    for frame, edge, momentum in (
        (production, "X", (0.2, 0.6, 0.5235380901696485)),
        (production, "beam", (0.0, 0.0, 1.4644010213876704)),
        (decay, "ks1", (0.2005344748463586, 0.10160342453907578, -0.20854976431169753)),
    ):
        values = evaluate(frame.vec3(edge).as_expr())[:, 0].real
        np.testing.assert_allclose(values, momentum, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("lost", ["beam", "target", "recoil", "ks1", "ks2"])
def test_any_lost_momentum_comes_back(lost: str) -> None:
    """Conservation, with X known by nobody or measured as well."""
    columns = events(100)
    for resonance in ((), ("X",)):
        known = [name for name in NAMES if name not in (lost, "X")]
        if resonance:
            for component in ("e", "px", "py", "pz"):
                columns[f"X_{component}"] = (
                    columns[f"ks1_{component}"] + columns[f"ks2_{component}"]
                )
        found = evaluate(pair(*known, *resonance).p4(lost).as_expr(), columns).real
        for row, component in zip(found, ("e", "px", "py", "pz"), strict=True):
            np.testing.assert_allclose(row, columns[f"{lost}_{component}"], atol=1e-13)


def test_what_enters_and_leaves_a_vertex_is_at_rest_together() -> None:
    columns = events(200)
    channel = pair("beam", "target", "ks1", "ks2")
    for name, edges in (
        ("production", (("beam", "target"), ("X", "recoil"))),
        ("decay", (("X",), ("ks1", "ks2"))),
    ):
        frame = channel.vertex(name)
        for side in edges:
            total = sum((frame.vec3(edge) for edge in side), Vec3.zero())
            assert np.abs(evaluate(total.as_expr(), columns)).max() < 1e-13
    frame = channel.vertex("decay")
    for edge in ("X", "ks1", "recoil"):
        np.testing.assert_allclose(
            evaluate(frame.p4(edge).m2(), columns).real,
            evaluate(channel.s(edge), columns).real,
            rtol=1e-11,
        )


def test_angles_of_a_channel_in_compiled_kernels() -> None:
    """The kernels agree with the NumPy evaluator of the tests, all conventions in one number."""
    columns = events(64)
    frame = pair("beam", "target", "recoil", "ks1", "ks2").vertex("decay")
    total = scalar("u0")
    for angles in (
        frame.helicity_angles("ks1"),
        frame.gottfried_jackson_angles("ks1"),
        frame.adair_angles("ks1"),
        frame.canonical_angles("ks1"),
    ):
        total = parameter("a") * total + angles.costheta * angles.phi
    values = Model(total).evaluate(from_arrow(pa.table(columns)), {"a": 0.7}, real=True)
    np.testing.assert_allclose(values, evaluate(total, columns, {"a": 0.7}).real, rtol=1e-12)


def rotation(costheta: float, phi: float) -> np.ndarray:
    """``R(phi, theta, 0)``: columns are the axes of the daughter in those of its parent."""
    theta = np.arccos(costheta)
    about_y = [[np.cos(theta), 0, np.sin(theta)], [0, 1, 0], [-np.sin(theta), 0, np.cos(theta)]]
    about_z = [[np.cos(phi), -np.sin(phi), 0], [np.sin(phi), np.cos(phi), 0], [0, 0, 1]]
    return np.array(about_z) @ np.array(about_y)


def boost(p: np.ndarray, momentum: np.ndarray, mass: float) -> np.ndarray:
    """`p` from the rest frame of a particle to the frame where it has the given momentum."""
    energy = np.sqrt(mass**2 + momentum @ momentum)
    along = p[1:] @ momentum
    shift = along / (energy + mass) + p[0]
    return np.array([(energy * p[0] + along) / mass, *(p[1:] + momentum * shift / mass)])


def test_helicity_angles_of_a_longer_chain() -> None:
    """Angles of each step come back from an event built upwards by rotations and boosts.

    ``beam target -> X recoil``, ``X -> Y c``, ``Y -> a b``, with the beam along z.
    """
    angles = {"X": (0.4, 2.1), "Y": (-0.3, -1.2), "a": (0.65, 0.7)}
    masses = {"X": 1.6, "Y": 1.0}
    momenta = {"X": 1.1, "Y": 0.3, "a": 0.42}
    axes, towards_cm = np.eye(3), []
    for name, momentum in momenta.items():
        axes = axes @ rotation(*angles[name])
        direction = axes[:, 2]
        if name != "a":
            towards_cm.append((momentum * direction, masses[name]))
    a, b = (np.array([0.5, *(sign * 0.42 * direction)]) for sign in (1, -1))
    a, b = (boost(p, *towards_cm[1]) for p in (a, b))
    c = np.array([1.6 - np.sqrt(1.0 + 0.3**2), *-towards_cm[1][0]])
    a, b, c = (boost(p, *towards_cm[0]) for p in (a, b, c))
    to_laboratory = np.array([0.0, 0.0, 4.0]), 3.0
    event = {
        "beam": boost(np.array([1.5, 0, 0, 1.5]), *to_laboratory),
        "target": boost(np.array([1.5, 0, 0, -1.5]), *to_laboratory),
        "a": boost(a, *to_laboratory),
        "b": boost(b, *to_laboratory),
        "c": boost(c, *to_laboratory),
    }
    columns = {
        f"{name}_{component}": p[i : i + 1]
        for name, p in event.items()
        for i, component in enumerate(("e", "px", "py", "pz"))
    }
    channel = Channel(
        "cascade",
        edges=[*(Edge(n, p4=n) for n in event), *(Edge(n) for n in ("recoil", "X", "Y"))],
        vertices=[
            Vertex("production", incoming=["beam", "target"], outgoing=["X", "recoil"]),
            Vertex("X", incoming=["X"], outgoing=["Y", "c"]),
            Vertex("Y", incoming=["Y"], outgoing=["a", "b"]),
        ],
    )
    for vertex, edge in (("X", "Y"), ("Y", "a")):
        found = channel.vertex(vertex).helicity_angles(edge)
        values = [evaluate(expr, columns)[0].real for expr in found]
        np.testing.assert_allclose(values, angles[edge], rtol=1e-11)
    with pytest.raises(ExpressionError, match="Adair angles are those of"):
        channel.vertex("Y").adair_angles("a")


def test_a_decay_without_a_beam_has_canonical_angles() -> None:
    """One particle at the start: its rest frame, with the axes of the laboratory."""
    channel = Channel(
        "decay", edges=[Edge("X"), Edge("ks1", p4="ks1"), Edge("ks2", p4="ks2")], vertices=[DECAY]
    )
    columns = events(50)
    k = to_rest_frame(KS1, KS1 + KS2).momentum()
    costheta, phi = channel.vertex("decay").canonical_angles("ks1")
    np.testing.assert_allclose(evaluate(costheta, columns), evaluate(k.costheta(), columns))
    np.testing.assert_allclose(evaluate(phi, columns), evaluate(k.phi(), columns), rtol=1e-10)
    with pytest.raises(ExpressionError, match="helicity angles are those of"):
        channel.vertex("decay").helicity_angles("ks1")
