"""Expressions as text, for error messages and for reading."""

from __future__ import annotations

from laddu_dask.expr.node import Node, walk

_INFIX = {
    "add": " + ",
    "sub": " - ",
    "mul": " * ",
    "div": " / ",
    "power": "**",
    "lt": " < ",
    "le": " <= ",
    "eq": " == ",
    "ne": " != ",
    "and": " & ",
    "or": " | ",
    "matmul": " @ ",
    "matvec": " @ ",
    "dot": " . ",
}
_ATOMS = {"const", "parameter", "column", "named"}
#: Levels that `tree` shows by indentation; deeper ones show their number, or a chain of n
#: operations would take n**2 characters.
_INDENTED = 40


def leaf_name(node: Node) -> str:
    """Text of a node without operands, or of a named one."""
    if node.op == "parameter":
        return str(getattr(node.data, "name", node.data))
    if node.op == "const":
        return repr(node.data)
    return str(node.data)


def equation(root: Node, limit: int = 400) -> str:
    """One line, cut in the middle beyond `limit` characters."""
    texts: dict[int, str] = {}
    for node in walk(root):
        texts[id(node)] = _clip(_join(node, texts), limit)
    return texts[id(root)]


def _clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def _join(node: Node, texts: dict[int, str]) -> str:
    if node.op in _ATOMS:
        return leaf_name(node)
    args = [texts[id(arg)] for arg in node.args]
    if node.op == "tagged":
        return args[0]
    if node.op in _INFIX:
        return _INFIX[node.op].join(_wrapped(node, args))
    if node.op in {"neg", "not"}:
        return ("-" if node.op == "neg" else "~") + _wrapped(node, args)[0]
    if node.op == "pow":
        return f"{_wrapped(node, args)[0]}**{node.data}"
    if node.op == "element":
        return f"{_wrapped(node, args)[0]}[{node.data}]"
    return f"{node.op}({', '.join(args)})"


def _wrapped(node: Node, texts: list[str]) -> list[str]:
    """Operand texts, those that are not a unit in parentheses."""
    return [
        f"({text})" if _is_compound(arg) else text
        for arg, text in zip(node.args, texts, strict=True)
    ]


def _is_compound(node: Node) -> bool:
    while node.op == "tagged":  # tags do not print
        (node,) = node.args
    return node.op in _INFIX or node.op in {"neg", "not", "pow"} or leaf_name(node).startswith("-")


def tree(root: Node) -> str:
    """Indented listing; a shared part is written out once and referred to by number."""
    uses: dict[int, int] = {}
    for node in walk(root):
        for arg in node.args:
            uses[id(arg)] = uses.get(id(arg), 0) + 1
    numbers: dict[int, int] = {}
    lines: list[str] = []
    stack: list[tuple[Node, int]] = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        indent = "  " * depth if depth <= _INDENTED else "  " * _INDENTED + f"[{depth}] "
        text = node.op if node.args else leaf_name(node)
        if node.data is not None and node.args:
            text = f"{node.op} {node.data}"
        if node.args and uses.get(id(node), 0) > 1:
            if id(node) in numbers:
                lines.append(f"{indent}#{numbers[id(node)]} (above)")
                continue
            numbers[id(node)] = len(numbers) + 1
            text = f"#{numbers[id(node)]} {text}"
        lines.append(indent + text)
        stack.extend((arg, depth + 1) for arg in reversed(node.args))
    return "\n".join(lines)
