"""The operations of a laddu table, each as the same operation of our graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from laddu_dask.expr import build
from laddu_dask.expr.functions import P4_COMPONENTS
from laddu_dask.expr.node import Node, make
from laddu_dask.importers.laddu_fields import Fields, real, text
from laddu_dask.importers.laddu_parameters import parameter_of
from laddu_dask.importers.laddu_source import malformed

Operands = tuple[int, ...]
Read = tuple[Operands, Callable[[tuple[Node, ...]], Node]]

_UNARY: dict[str, Callable[[Node], Node]] = {
    "Neg": build.neg,
    "Real": lambda a: build.part("real", a),
    "Imag": lambda a: build.part("imag", a),
    "Conj": lambda a: build.part("conj", a),
    "NormSqr": lambda a: build.unary("norm_sqr", a),
    "Sqrt": lambda a: build.unary("sqrt", a),
    "Exp": lambda a: build.unary("exp", a),
    "Sin": lambda a: build.unary("sin", a),
    "Cos": lambda a: build.unary("cos", a),
    "Log": lambda a: build.unary("log", a),
}
_BINARY: dict[str, Callable[[Node, Node], Node]] = {
    "Add": build.add,
    "Sub": build.sub,
    "Mul": build.mul,
    "Div": build.div,
    "Atan2": lambda y, x: build.binary_real("atan2", y, x),
}
#: Nodes of two operands that have names of their own.
_PAIRS: dict[str, tuple[str, str, Callable[[Node, Node], Node]]] = {
    "Complex": ("re", "im", lambda re, im: build.binary_real("complex", re, im)),
    "MatMul": ("lhs", "rhs", build.matmul),
    "MatVec": ("matrix", "vector", build.matmul),
    "Dot": ("lhs", "rhs", build.matmul),
    "Solve": ("matrix", "rhs", build.solve),
}
_COMPONENTS = {name.capitalize(): name for name in P4_COMPONENTS}


def kind_of(place: int, row: object) -> tuple[str, str, object]:
    """Name of a node's kind, JSON path and value of its content."""
    path = f"$.nodes[{place}]"
    if not isinstance(row, dict) or len(row) != 1:
        raise malformed(path, f"needs an object with one field, the kind, got {row!r:.60}")
    ((kind, content),) = row.items()
    return str(kind), f"{path}.{kind}", content


def read_node(kind: str, path: str, content: object, place: int) -> Read:
    """Operands of a node, and how to make it from theirs.

    Raises
    ------
    ExpressionError
        A kind or an operation that laddu 0.21.2 to 0.28 do not have, or a field with a wrong value.
    """
    if kind in _LEAVES:
        leaf = _LEAVES[kind](path, content, place)
        return (), lambda _: leaf
    if kind in {"Unary", "Binary"}:
        return _operation(kind, path, content, place)
    if kind in _PAIRS:
        first, second, join = _PAIRS[kind]
        fields = Fields(path, content, place, {first, second})
        return (fields.operand(first), fields.operand(second)), lambda args: join(*args)
    if kind in _LISTS:
        return _LISTS[kind](path, content, place)
    known = sorted({"Unary", "Binary", *_LEAVES, *_PAIRS, *_LISTS})
    raise malformed(path, f"unknown kind of node; known are {', '.join(known)}")


def _operation(kind: str, path: str, content: object, place: int) -> Read:
    operands = ("input",) if kind == "Unary" else ("lhs", "rhs")
    fields = Fields(path, content, place, {"op", *operands})
    op, args = fields.content["op"], tuple(fields.operand(name) for name in operands)
    if kind == "Unary" and isinstance(op, dict):
        exponent = Fields(f"{path}.op", op, place, {"PowI"}).content["PowI"]
        if type(exponent) is not int:
            raise malformed(f"{path}.op.PowI", f"needs an integer, got {exponent!r:.60}")
        return args, lambda nodes: build.power(nodes[0], exponent)
    table = _UNARY if kind == "Unary" else _BINARY
    if not isinstance(op, str) or op not in table:
        raise malformed(f"{path}.op", f"unknown operation {op!r:.60}; known are {sorted(table)}")
    function: Callable[..., Node] = table[op]
    return args, lambda nodes: function(*nodes)


def _component_of_event(path: str, content: object, place: int) -> Node:
    fields = Fields(path, content, place, {"name", "component"})
    component = fields.text("component")
    if component not in _COMPONENTS:
        known = ", ".join(_COMPONENTS)
        raise malformed(f"{path}.component", f"needs one of {known}, got {component!r}")
    return _column(f"{fields.text('name')}_{_COMPONENTS[component]}")


def _column(name: str) -> Node:
    return make("column", data=name, is_real=True)


def _complex_constant(path: str, content: object, place: int) -> Node:
    if not isinstance(content, Sequence) or isinstance(content, str) or len(content) != 2:
        raise malformed(path, f"needs a pair of numbers, got {content!r:.60}")
    return build.constant(complex(real(f"{path}[0]", content[0]), real(f"{path}[1]", content[1])))


_LEAVES: dict[str, Callable[[str, object, int], Node]] = {
    "RealConst": lambda path, content, _: build.constant(real(path, content)),
    "ComplexConst": _complex_constant,
    "ScalarParam": lambda path, content, place: build.parameter(parameter_of(path, content, place)),
    "EventScalar": lambda path, content, _: _column(text(path, content)),
    "EventP4Component": _component_of_event,
}


def _nary(field: str, step: Callable[[Node, Node], Node]) -> Callable[[str, object, int], Read]:
    def read(path: str, content: object, place: int) -> Read:
        operands = Fields(path, content, place, {field}).operands(field)
        return tuple(operands), lambda nodes: build.fold(field, step, nodes)

    return read


def _vector(path: str, content: object, place: int) -> Read:
    return tuple(Fields(path, content, place, {"elements"}).operands("elements")), build.vector


def _matrix(path: str, content: object, place: int) -> Read:
    fields = Fields(path, content, place, {"rows", "cols", "elements"})
    rows, columns = fields.count("rows"), fields.count("cols")
    elements = fields.operands("elements")
    if rows * columns != len(elements):
        raise malformed(path, f"{len(elements)} elements do not fill {rows} rows of {columns}")
    starts = range(0, len(elements), columns)
    return tuple(elements), lambda nodes: build.matrix(
        tuple(nodes[start : start + columns] for start in starts)
    )


def _element(*names: str) -> Callable[[str, object, int], Read]:
    def read(path: str, content: object, place: int) -> Read:
        fields = Fields(path, content, place, {"input", *names})
        index = [fields.count(name) for name in names]
        return (fields.operand("input"),), lambda nodes: build.element(nodes[0], *index)

    return read


_LISTS: dict[str, Callable[[str, object, int], Read]] = {
    "NaryAdd": _nary("terms", build.add),
    "NaryMul": _nary("factors", build.mul),
    "Vector": _vector,
    "Matrix": _matrix,
    "Component": _element("index"),
    "MatrixElement": _element("row", "col"),
}
