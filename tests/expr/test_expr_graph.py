"""The graph itself: one node per content, immutable, picklable, with digests that hold anywhere."""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import laddu_dask as ld
from laddu_dask.expr.node import Node, walk


def chain(depth: int) -> ld.Expr:
    x = ld.scalar("x")
    result = x
    for i in range(depth):
        result = result + x if i % 2 else result * 0.5
    return result


def size(expr: ld.Expr) -> int:
    return sum(1 for _ in walk(expr.node))


def model() -> ld.Expr:
    a, b = ld.parameter("a", bounds=(-1.0, 1.0), unit="GeV"), ld.parameter("b", fixed=0.1)
    x = ld.scalar("x")
    amplitude = ld.complex(a * x, b.exp()).sqrt().tagged("S", "wave") / (x * x + 1e-3 - 2j)
    m = ld.matrix([[a, x], [1.5, b]])
    return ld.where(
        (x < a) & ~(x == 0.25),
        (amplitude + ld.dot(m @ ld.vector([x, 1]), ld.vector([a, b]))).norm_sqr().named("I"),
        x**-3,
    )


def test_equal_contents_are_one_node() -> None:
    """AX-64: a thousand uses of sin(x) add one node each to the graph, not a thousand sines."""
    x = ld.scalar("x")
    assert (x.sin() + 1).node is (ld.scalar("x").sin() + 1.0).node
    assert model().node is model().node
    uses = [ld.scalar("x").sin() for _ in range(1000)]
    assert size(ld.vector(uses)) == 3


def test_contents_that_differ_are_different_nodes() -> None:
    x, y = ld.scalar("x"), ld.scalar("y")
    different = [
        x,
        y,
        ld.parameter("x"),
        ld.parameter("x", fixed=0.0),
        ld.parameter("x", unit="GeV"),
        x + y,
        y + x,
        x - y,
        x**2,
        x**3,
        x * x,
        x.named("x"),
        x.tagged("x"),
        ld.Expr(0.0),
        ld.Expr(-0.0),
        ld.Expr(complex(0.0, -0.0)),
        ld.Expr(1e-300),
        ld.Expr(math.nan),
        ld.Expr(1j),
        ld.vector([x, y]),
        ld.matrix([[x, y]]),
        ld.matrix([[x], [y]]),
        ld.vector([x, y])[0],
        ld.vector([x, y])[1],
    ]
    assert len({id(e.node) for e in different}) == len(different)
    assert len({e.node.digest for e in different}) == len(different)


def test_nodes_that_nobody_uses_are_released() -> None:
    """The table of known nodes holds none of them alive."""
    from laddu_dask.expr.node import _interned

    digests = [n.digest for n in walk((ld.scalar("only here") * 0.123).node)]
    gc.collect()
    assert digests[0] not in _interned
    assert digests[-1] not in _interned


def test_expressions_and_nodes_are_immutable() -> None:
    x = ld.scalar("x")
    with pytest.raises(AttributeError):
        x.node = ld.scalar("y").node  # type: ignore[misc]
    with pytest.raises(AttributeError):
        x.node.op = "const"
    with pytest.raises(AttributeError):
        (x < 1).node = x.node  # type: ignore[misc]
    with pytest.raises(AttributeError):
        x.other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        hash(x)
    before = x.node
    y = x
    y += 1
    assert x.node is before


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_expression_is_the_same_node(protocol: int) -> None:
    """EX-01: graphs travel to workers."""
    expr = model()
    assert pickle.loads(pickle.dumps(expr, protocol)).node is expr.node
    assert pickle.loads(pickle.dumps(expr.node, protocol)) is expr.node
    condition = ld.scalar("x") < 1
    assert pickle.loads(pickle.dumps(condition, protocol)).node is condition.node


def test_copies_are_the_same_node() -> None:
    expr = model()
    assert copy.copy(expr).node is expr.node
    assert copy.deepcopy(expr).node is expr.node
    assert copy.deepcopy({"a": expr.node})["a"] is expr.node


def test_deep_chain_builds_pickles_and_is_released() -> None:
    """AX-64: ten thousand operations in a row meet no recursion limit, nor does their release."""
    expr = chain(10_000)
    assert size(expr) == 10_002
    record = pickle.dumps(expr)
    digest = expr.node.digest
    del expr
    gc.collect()
    again = pickle.loads(record)
    assert again.node.digest == digest
    assert size(again) == 10_002
    assert copy.deepcopy(again).node is again.node


def test_hundred_thousand_nodes() -> None:
    expr = chain(100_000)
    again = pickle.loads(pickle.dumps(expr))
    assert again.node is expr.node
    assert size(again) == 100_002


def test_digest_is_the_same_in_every_process() -> None:
    """Cached work on workers is found again by digest, whatever the seed of Python's hash."""
    program = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from test_expr_graph import model; print(model().node.digest.hex())"
    )
    here = os.path.dirname(os.path.abspath(__file__))
    found = {
        subprocess.run(
            [sys.executable, "-c", program, here],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "4711")
    }
    assert found == {model().node.digest.hex()}


def test_dask_tokens_follow_the_content() -> None:
    from dask.tokenize import tokenize

    assert tokenize(model()) == tokenize(pickle.loads(pickle.dumps(model())))
    assert tokenize(ld.scalar("x")) != tokenize(ld.scalar("y"))
    assert tokenize(ld.scalar("x").node) != tokenize(ld.scalar("y").node)


def test_nodes_are_walked_operands_first_in_written_order() -> None:
    a, b = ld.parameter("a"), ld.parameter("b")
    order = [n.op if n.op != "parameter" else n.data.name for n in walk((b * a + b).node)]
    assert order == ["b", "a", "mul", "add"]


def test_node_kinds() -> None:
    """Real by construction, and provably not negative, as the language promises."""
    x, p = ld.scalar("x"), ld.parameter("p")
    z = ld.complex(x, p)
    for expr in (x, p, x + p, x * p, x / p, -x, x**3, x.sin(), x.cos(), x.exp(), z.real()):
        assert expr.is_real
    for expr in (z.imag(), z.norm_sqr(), ld.atan2(x, p), ld.acos(x), x.conj(), x.real()):
        assert expr.is_real
    for expr in (z, z + x, x * 1j, z.conj(), x.sqrt(), x.log(), (x - 1).sqrt(), z.exp(), p.sqrt()):
        assert not expr.is_real
    never_negative = (
        x * x,
        x**2,
        z.norm_sqr(),
        x.exp(),
        x**2 + p**4,
        x**2 * z.norm_sqr(),
        x.exp() / (1 + p**2),
        ld.Expr(2),
        ld.Expr(0),
        (x**2).sqrt(),
        ld.parameter("held", fixed=0.5),
        ld.where(x < 1, x**2, 3),
        (x**2).named("square").tagged("t"),
    )
    for expr in never_negative:
        assert expr.sqrt().is_real
        assert expr.log().is_real
    maybe_negative = (
        x**3,
        x * p,
        x**2 - 1,
        -(x**2),
        ld.Expr(-2),
        ld.Expr(-0.0),
        ld.Expr(math.nan),
        ld.parameter("held", fixed=-0.5),
        ld.where(x < 1, x**2, -3),
        (x**2).log(),
    )
    for expr in maybe_negative:
        assert not expr.sqrt().is_real
        assert not expr.log().is_real


def test_literals_keep_their_bits() -> None:
    """T-19: no constant loses the sign of a zero."""
    for number in (0.0, -0.0, 5e-324, math.inf, np.float32(0.1), np.int64(2**53 - 1), True):
        node = ld.Expr(number).node
        assert isinstance(node, Node)
        assert np.float64(node.data).tobytes() == np.float64(number).tobytes()
    kept = ld.Expr(complex(-4.0, -0.0)).node.data
    assert math.copysign(1.0, kept.imag) == -1
    assert ld.Expr(-4 + 0j).is_real
