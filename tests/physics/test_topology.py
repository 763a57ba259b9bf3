"""The drawing of a reaction: what fits together, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from laddu_dask.errors import LadduError
from laddu_dask.physics import Channel, Edge, Particle, Vec4, Vertex

PRODUCTION = Vertex("production", incoming=["beam", "target"], outgoing=["X", "recoil"])
DECAY = Vertex("decay", incoming=["X"], outgoing=["k1", "k2"])
NAMES = ("beam", "target", "X", "recoil", "k1", "k2")


def lines(*names: str) -> list[Edge]:
    return [Edge(name) for name in names]


def test_edges_and_vertices_say_what_they_were_given() -> None:
    kaon = Particle(name="K_S", spin=0)
    edge = Edge("k1", p4="ks1", particle=kaon)
    assert (edge.name, edge.p4, edge.particle) == ("k1", "ks1", kaon)
    assert (DECAY.name, DECAY.incoming, DECAY.outgoing) == ("decay", ("X",), ("k1", "k2"))
    k2 = Vec4.event("ks2")
    channel = Channel("KK", edges=[*lines("X"), edge, Edge("k2", p4=k2)], vertices=[DECAY])
    assert channel.name == "KK"
    assert channel.edge_names == ["X", "k1", "k2"]
    assert channel.vertex_names == ["decay"]
    assert channel.particle("k1") is kaon
    assert channel.edge_p4("X") is None
    assert channel.edge_p4("k1") == "ks1"
    assert channel.edge_p4("k2") is k2
    assert repr(channel) == "Channel('KK', edges=3, vertices=1)"
    assert repr(channel.vertex("decay")) == "VertexFrame('decay')"
    with pytest.raises(AttributeError):
        edge.p4 = "other"


def test_channels_travel() -> None:
    channel = Channel(
        "KK", edges=[Edge("X"), Edge("k1", p4="a"), Edge("k2", p4="b")], vertices=[DECAY]
    )
    copy = pickle.loads(pickle.dumps(channel))
    assert copy.s("X").node is channel.s("X").node


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: Edge(""), "Edge: the name is empty"),
        (lambda: Edge("a", p4=""), "Edge 'a': p4 is an empty name"),
        (lambda: Vertex("", incoming=["a"], outgoing=["b"]), "Vertex: the name is empty"),
        (lambda: Vertex("v", incoming=[], outgoing=["b"]), "at least one incoming edge"),
        (lambda: Vertex("v", incoming=["a"], outgoing=[]), "at least one outgoing edge"),
        (lambda: Vertex("v", incoming=["a"], outgoing=[""]), "'v': edge: the name is empty"),
        (lambda: Vertex("v", incoming=["a", "a"], outgoing=["b"]), "'a' appears more than once"),
        (lambda: Vertex("v", incoming=["a"], outgoing=["a"]), "'a' appears more than once"),
        (lambda: Channel("", edges=[], vertices=[]), "Channel: the name is empty"),
        (lambda: Channel("c", edges=lines("a", "a"), vertices=[]), "two edges have the name 'a'"),
        (
            lambda: Channel("c", edges=lines(*NAMES), vertices=[DECAY, DECAY]),
            "Channel 'c': two vertices have the name 'decay'",
        ),
        (
            lambda: Channel("c", edges=lines("X", "k1"), vertices=[DECAY]),
            "Channel 'c', vertex 'decay': no edge 'k2'; it has 'X', 'k1'",
        ),
        (
            lambda: Channel(
                "c",
                edges=lines(*NAMES),
                vertices=[DECAY, Vertex("again", incoming=["X"], outgoing=["recoil"])],
            ),
            "edge 'X' enters the vertices 'decay' and 'again'; a particle enters one vertex only",
        ),
        (
            lambda: Channel(
                "c",
                edges=lines(*NAMES),
                vertices=[DECAY, Vertex("again", incoming=["beam"], outgoing=["k1"])],
            ),
            "edge 'k1' leaves the vertices 'decay' and 'again'",
        ),
        (
            lambda: Channel(
                "c",
                edges=lines("a", "b", "c", "d"),
                vertices=[
                    Vertex("first", incoming=["d"], outgoing=["a"]),
                    Vertex("one", incoming=["a", "c"], outgoing=["b"]),
                    Vertex("two", incoming=["b"], outgoing=["c"]),
                ],
            ),
            "the edges run in a circle through the vertices 'one', 'two'",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text) as raised:
        wrong()
    assert isinstance(raised.value, LadduError)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: Edge(3), "Edge: a name is a string, got int"),
        (
            lambda: Edge("a", p4=1.0),
            "p4 is the name of a four-momentum in the data, a Vec4 or None",
        ),
        (lambda: Edge("a", particle="proton"), "particle must be a Particle, got str"),
        (
            lambda: Vertex("v", incoming="beam", outgoing=["b"]),
            r"incoming is a list of names; write incoming=\['beam'\]",
        ),
    ],
)
def test_wrong_types_are_refused(wrong: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        wrong()


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda c: c.p4("Y"), "no edge 'Y'; it has 'beam', 'target', 'X'"),
        (lambda c: c.edge_p4("Y"), "no edge 'Y'"),
        (lambda c: c.particle("Y"), "no edge 'Y'"),
        (lambda c: c.particle("X"), "edge 'X' has no particle; give particle= to its Edge"),
        (lambda c: c.vertex("d"), "no vertex 'd'; it has 'production', 'decay'"),
        (lambda c: c.vertex("decay").vec3("Y"), "no edge 'Y'"),
        (lambda c: c.vertex("decay").s(), "two edges in and two out, and it has 1 in and 2 out"),
        (lambda c: c.vertex("production").mandelstam("x"), "no Mandelstam variable 'x'"),
        (lambda c: c.vertex("production").helicity_angles("X"), "helicity angles are those of"),
        (lambda c: c.vertex("production").adair_angles("X"), "Adair angles are those of"),
        (
            lambda c: c.vertex("production").gottfried_jackson_angles("X"),
            "'production': Gottfried-Jackson angles are those of",
        ),
    ],
)
def test_questions_without_an_answer(ask: Any, text: str) -> None:
    edges = [Edge(name, p4=None if name == "X" else name) for name in NAMES]
    channel = Channel("pair", edges=edges, vertices=[PRODUCTION, DECAY])
    with pytest.raises(LadduError, match=text):
        ask(channel)


def test_a_vertex_with_two_histories_has_momenta_but_no_frame() -> None:
    channel = Channel(
        "rescattering",
        edges=[Edge(name, p4=name) for name in ("a", "b", "c", "d", "e", "f")] + [Edge("g")],
        vertices=[
            Vertex("left", incoming=["a"], outgoing=["c", "e"]),
            Vertex("right", incoming=["b"], outgoing=["d", "f"]),
            Vertex("meeting", incoming=["c", "d"], outgoing=["g"]),
        ],
    )
    assert channel.s("g").node is (Vec4.event("c") + Vec4.event("d")).m2().node
    with pytest.raises(LadduError, match="entered from the vertices 'left', 'right'"):
        channel.vertex("meeting")
