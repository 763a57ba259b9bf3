"""What `from_laddu` refuses, with the place in the text; and what it warns of."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import warnings
from typing import Any

import pytest
from laddu_samples import sample

import laddu_dask as ld


def table(*nodes: Any, root: int | None = None) -> dict[str, Any]:
    label = {"source": "Const", "name": None, "tags": []}
    root = len(nodes) - 1 if root is None else root
    return {"root": root, "nodes": list(nodes), "metadata": [dict(label) for _ in nodes]}


X = {"EventScalar": "x"}
TWO = {"RealConst": 2.0}
I = {"ComplexConst": [0.0, 1.0]}


def unary(op: Any, of: Any = 0) -> dict[str, Any]:
    return {"Unary": {"op": op, "input": of}}


def scalar_parameter(**changes: Any) -> dict[str, Any]:
    definition = {"name": "a", "state": "Free", "initial": "Default", "periodic": False}
    definition |= {"bounds": {"min": None, "max": None}}
    definition |= dict.fromkeys(("scale", "unit", "latex", "description"))
    return {"ScalarParam": definition | changes}


@pytest.mark.parametrize(
    ("source", "path", "word"),
    [
        ("{", "$", "no JSON"),
        ("", "$", "no JSON"),
        ("[" * 100_000, "$", "nested too deeply"),
        ("[1]", "$", "needs an object"),
        ('{"root": NaN}', "$", "NaN is no number"),
        ("{}", "$", "there is no 'metadata'"),
        ({**table(X), "version": 2}, "$.version", "not known"),
        ({"format": "laddu-dask expression 1"}, "$.format", "from_json"),
        ({"e": 1, "px": 2, "py": 3, "pz": 4}, "$", "one by one"),
        (table(X, root=1), "$.root", "1 is none of 1 nodes"),
        (table(), "$.nodes", "needs a list of nodes"),
        ({**table(X), "metadata": []}, "$.metadata", "a list of 1"),
        (table({"Foo": 1}), "$.nodes[0].Foo", "unknown kind"),
        (table({"Foo": 1, "Bar": 2}), "$.nodes[0]", "one field"),
        (table({"EventScalar": ""}), "$.nodes[0].EventScalar", "needs a name"),
        (table({"RealConst": None}), "$.nodes[0].RealConst", "as null"),
        (table({"RealConst": 10**400}), "$.nodes[0].RealConst", "range of doubles"),
        (table({"ComplexConst": [1.0, None]}), "$.nodes[0].ComplexConst[1]", "as null"),
        (table({"ComplexConst": [1.0]}), "$.nodes[0].ComplexConst", "a pair"),
        (
            table({"EventP4Component": {"name": "p", "component": "M"}}),
            "$.nodes[0].EventP4Component.component",
            "one of E, Px, Py, Pz",
        ),
        (table(X, unary("Tan")), "$.nodes[1].Unary.op", "unknown operation 'Tan'"),
        (table(X, unary({"PowI": 0.5})), "$.nodes[1].Unary.op.PowI", "needs an integer"),
        (table(X, unary({"PowI": 2**40})), "$.nodes[1].Unary", "does not fit 32 bits"),
        (table(unary("Neg", 1), X, root=0), "$.nodes[0].Unary.input", "no earlier node"),
        (table(X, {"NaryAdd": {"terms": []}}), "$.nodes[1].NaryAdd.terms", "a list of operands"),
        (table(X, {"Vector": {"elements": [0, 7]}}), "$.nodes[1].Vector.elements[1]", "7 is no"),
        (
            table(X, {"Matrix": {"rows": 2, "cols": 2, "elements": [0]}}),
            "$.nodes[1].Matrix",
            "1 elements do not fill 2 rows of 2",
        ),
        (table(X, {"Component": {"input": 0, "index": 0}}), "$.nodes[1].Component", "does not fit"),
        (table(X, {"Dot": {"lhs": 0}}), "$.nodes[1].Dot", "there is no 'rhs'"),
        (table(X, {"Dot": {"lhs": 0, "rhs": 0, "by": 1}}), "$.nodes[1].Dot.by", "unknown field"),
        (table(I, {"Complex": {"re": 0, "im": 0}}), "$.nodes[1].Complex", "real operands"),
        (
            table(I, {"Binary": {"op": "Atan2", "lhs": 0, "rhs": 0}}),
            "$.nodes[1].Binary",
            "real operands",
        ),
        (table(scalar_parameter(name="")), "$.nodes[0].ScalarParam.name", "needs a name"),
        (table(scalar_parameter(state="Held")), "$.nodes[0].ScalarParam.state", "an object"),
        (table(scalar_parameter(initial="Low")), "$.nodes[0].ScalarParam.initial", "'Default'"),
        (
            table(scalar_parameter(initial={"Value": "1"})),
            "$.nodes[0].ScalarParam.initial.Value",
            "needs a number",
        ),
        (
            table(scalar_parameter(bounds={"min": 1.0, "max": 2.0})),
            "$.nodes[0].ScalarParam",
            "outside its bounds",
        ),
        (table(scalar_parameter(periodic=1)), "$.nodes[0].ScalarParam.periodic", "true or false"),
        (table(scalar_parameter(unit=3)), "$.nodes[0].ScalarParam.unit", "text or null"),
    ],
)
def test_refusals_say_where(source: Any, path: str, word: str) -> None:
    with pytest.raises(ld.ExpressionError, match=".") as caught:
        ld.from_laddu(source)
    assert caught.value.json_path == path
    assert word in str(caught.value)
    assert str(caught.value).startswith(f"from_laddu: {path}: ")


def test_labels_are_checked() -> None:
    for changes, path in (
        ({"name": 3}, "$.metadata[0].name"),
        ({"tags": "A"}, "$.metadata[0].tags"),
        ({"tags": [""]}, "$.metadata[0].tags[0]"),
    ):
        source = table(X)
        source["metadata"][0] |= changes
        with pytest.raises(ld.ExpressionError) as caught:
            ld.from_laddu(source)
        assert caught.value.json_path == path


def test_what_is_no_source_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="laddu 0.21.2 or later, got int"):
        ld.from_laddu(3)
    with pytest.raises(TypeError, match="already"):
        ld.from_laddu(ld.scalar("x"))
    with pytest.raises(FileNotFoundError):
        ld.from_laddu("no_such_file.json")


def test_damaged_tables_never_crash() -> None:
    text = json.dumps(sample("functions").table)
    random.seed(4)
    for _ in range(150):
        place = random.randrange(len(text))
        damaged = text[:place] + random.choice('0-9"{}[],:xN') + text[place + 1 :]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ld.LadduDefectWarning)
            with contextlib.suppress(ld.ExpressionError):
                assert isinstance(ld.from_laddu(damaged), ld.Expr)


def test_deep_and_wide_tables_need_no_recursion() -> None:
    chain = [X, *(unary("Sin", place) for place in range(20_000))]
    chain.append({"NaryAdd": {"terms": list(range(len(chain)))}})
    expr = ld.from_laddu(table(*chain))
    assert expr.node.op == "add"


def defects(source: Any) -> dict[str, tuple[str, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ld.from_laddu(source)
    assert all(entry.filename == __file__ for entry in caught)
    return {entry.message.defect: entry.message.paths for entry in caught}


def test_defects_are_named_where_they_are() -> None:
    assert defects(sample("defect_d3").table) == {"D3": ("$.nodes[29]",)}
    assert defects(sample("defect_d8").table) == {"D8": ("$.nodes[7]",)}
    assert defects(sample("defect_d13").table) == {"D13": ("$.nodes[180]",)}
    assert set(defects(sample("defect_d1").table)) == {"D1"}
    a = scalar_parameter()
    product = {"Binary": {"op": "Mul", "lhs": 1, "rhs": 2}}
    assert defects(table(X, unary("Log"), a, product)) == {"D1": ("$.nodes[1]",)}
    assert defects(table(X, unary("Log"))) == {"D1": ("$.nodes[1]",)}  # the real root of D1b
    for name in ("functions", "rotations", "model_a", "tagged", "projected"):
        assert defects(sample(name).table) == {}


@pytest.mark.parametrize(
    ("op", "left", "right", "simplified"),
    [
        ("Div", 0, 0, True),
        ("Div", 1, 0, False),
        ("Div", 2, 0, True),
        ("Sub", 0, 0, False),  # 0 for every finite column
        ("Sub", 3, 3, True),
        ("Mul", 2, 0, False),
        ("Mul", 2, 3, True),
        ("Div", 0, 1, False),
    ],
)
def test_rewriting_that_hides_nan_is_told(op: str, left: int, right: int, simplified: bool) -> None:
    nodes = [X, TWO, {"RealConst": 0.0}, unary({"PowI": -1})]
    nodes.append({"Binary": {"op": op, "lhs": left, "rhs": right}})
    assert ("D8" in defects(table(*nodes))) == simplified


def test_one_warning_tells_many_places_and_pickles() -> None:
    with pytest.warns(ld.LadduDefectWarning, match=r"D1 at .*\$.nodes\[\d+\] and \d+ more") as seen:
        ld.from_laddu(sample("line_shapes").table)
    first = seen[0].message
    again = pickle.loads(pickle.dumps(first))
    assert (again.defect, again.paths, str(again)) == (first.defect, first.paths, str(first))
