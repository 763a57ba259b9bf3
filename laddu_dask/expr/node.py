"""The node of the expression graph: immutable, hash-consed, with a stable content digest.

Structurally equal nodes are one object, so sharing in a user's formula is sharing in the graph, and
a graph's digest names it in every process. All walks are iterative: a chain of any depth builds,
prints, pickles and compiles without touching Python's recursion limit.
"""

from __future__ import annotations

import hashlib
import struct
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

Shape = tuple[int, ...]

#: Predicates are nodes too; they can only be combined with each other or used in `where`.
PREDICATES = frozenset({"lt", "le", "eq", "ne", "and", "or", "not"})


class Node:
    """One operation of the graph.

    Attributes
    ----------
    op
        Name of the operation, for example ``"mul"``.
    args
        Operand nodes.
    data
        What distinguishes nodes of one operation besides the operands: a literal, a parameter's
        definition, a column name, an exponent, an index.
    shape
        ``()`` for scalars, ``(n,)`` for vectors, ``(rows, columns)`` for matrices (row-major).
    is_real
        The value is real by construction. Square roots and logarithms of something that may be
        negative are not.
    is_nonnegative
        Real and provably not negative (NaN aside), whatever parameters and events are.
    digest
        16 bytes that depend on the content only, equal in every process.
    """

    __slots__ = (
        "__weakref__",
        "args",
        "data",
        "digest",
        "is_nonnegative",
        "is_real",
        "op",
        "shape",
    )

    op: str
    args: tuple[Node, ...]
    data: Hashable
    shape: Shape
    is_real: bool
    is_nonnegative: bool
    digest: bytes

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("expression nodes are immutable")

    def __reduce__(self) -> tuple[Callable[..., Node], tuple[Any, ...]]:
        return restore, (flatten(self),)

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        return self  # nothing in it ever changes

    def __repr__(self) -> str:
        return f"<Node {self.op} {self.digest.hex()[:8]}>"

    def __dask_tokenize__(self) -> tuple[str, str]:
        return ("laddu-dask-node", self.digest.hex())


_interned: weakref.WeakValueDictionary[bytes, Node] = weakref.WeakValueDictionary()


def make(
    op: str,
    args: tuple[Node, ...] = (),
    data: Hashable = None,
    *,
    shape: Shape = (),
    is_real: bool = False,
    is_nonnegative: bool = False,
) -> Node:
    """Return the unique node with this content."""
    digest = _digest(op, args, data)
    known = _interned.get(digest)
    if known is not None:
        return known
    node = Node.__new__(Node)
    for name, value in (
        ("op", op),
        ("args", args),
        ("data", data),
        ("shape", shape),
        ("is_real", is_real),
        ("is_nonnegative", is_nonnegative),
        ("digest", digest),
    ):
        object.__setattr__(node, name, value)
    return _interned.setdefault(digest, node)


def _digest(op: str, args: tuple[Node, ...], data: Hashable) -> bytes:
    # A length before each part keeps different contents from spelling the same bytes.
    state = hashlib.blake2b(f"{len(op)}:{op}:{len(args)}:".encode(), digest_size=16)
    for arg in args:
        state.update(arg.digest)
    state.update(_data_bytes(data))
    return state.digest()


def _data_bytes(data: Hashable) -> bytes:
    """Content of a payload; literals by their bits, so that NaN and -0.0 keep their identity."""
    if data is None:
        return b""
    if isinstance(data, float):
        return b"f" + struct.pack("<d", data)
    if isinstance(data, complex):
        return b"c" + struct.pack("<dd", data.real, data.imag)
    return repr(data).encode()


def walk(*roots: Node) -> Iterator[Node]:
    """Yield every node below one of `roots` once, operands first, first operand first."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        stack.extend((arg, False) for arg in reversed(node.args))


Table = list[tuple[str, tuple[int, ...], Hashable, Shape, bool, bool]]


def flatten(root: Node) -> Table:
    """The graph as a list in topological order, root last."""
    index: dict[int, int] = {}
    table: Table = []
    for node in walk(root):
        index[id(node)] = len(table)
        table.append(
            (
                node.op,
                tuple(index[id(arg)] for arg in node.args),
                node.data,
                node.shape,
                node.is_real,
                node.is_nonnegative,
            )
        )
    return table


def restore(table: Table) -> Node:
    """Inverse of `flatten`."""
    nodes: list[Node] = []
    for op, args, data, shape, is_real, is_nonnegative in table:
        nodes.append(
            make(
                op,
                tuple(nodes[i] for i in args),
                data,
                shape=shape,
                is_real=is_real,
                is_nonnegative=is_nonnegative,
            )
        )
    return nodes[-1]
