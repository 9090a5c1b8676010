"""Symbolic sizes in a traced graph: each `torch.SymInt` that an operator takes becomes a node over
the graph's inputs.

    view(x, [s0*128, 768])  ->  mul = operator.mul(s0, 128); view(x, [mul, 768])

where `s0` is the placeholder of that size, or `sym_size(x, 0)` for a size that no placeholder
names.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

from fusewright import own_operators
from fusewright.containers import mapped
from fusewright.ir.index import Index, RealSymbol, Symbol
from fusewright.ir.relations import Relation, RelationKind, equal
from fusewright.operators import facts
from fusewright.symbolic.graph_nodes import NumberNodes
from fusewright.symbolic.nodes import free_symbols, index_of, symbolic_float, symbolic_int
from fusewright.symbolic.relations import indicator_index
from fusewright.torch_compat import OpOverload

aten = torch.ops.aten

PROMISED: Final = "promised"
"""In the `meta` of a node: whether the program promises something of a number that it finds in
data. Reading that number checks the promise, so that the node stays where nobody reads its results.
"""

READ_AGAIN: Final = "read_again"
"""In the `meta` of a node: whether it reads, to compare them, a number of which something is known
that another node finds: they are two calls.
"""

Place = tuple[fx.Node, int | None]
"""A node that finds a number in data, and the dimension of its result that it is, if it is one."""


def takes_reals(op: OpOverload) -> bool:
    """Whether an operator takes a real number as it is when it runs: in its kernel, or as an
    argument of a library call.
    """
    return facts(op).takes_reals or op.namespace == own_operators.NAMESPACE


def with_known_reals(value: Any) -> Any:
    """Arguments of an operator with the real numbers that vary as they are now, which is assumed to
    stay so.
    """
    return mapped(float, value, torch.SymFloat)


def symbols_as_numbers(value: Any) -> list[Any]:
    """Each symbol in the sizes and strides of tensors in containers, and in numbers there, once, as
    a symbolic number.
    """
    numbers: dict[str, Any] = {}

    def visit(value: Any) -> None:
        match value:
            case torch.Tensor():
                visit((*value.shape, *value.stride()))
            case list() | tuple():
                for item in value:
                    visit(item)
            case torch.SymInt() | torch.SymFloat():
                for symbol in free_symbols(value):
                    facts = value.node.facts
                    numbers[symbol.name] = (
                        symbolic_float(facts, symbol)
                        if isinstance(symbol, RealSymbol)
                        else symbolic_int(facts, symbol.index)
                    )

    visit(value)
    return [numbers[name] for name in sorted(numbers)]


class SymbolNodes:
    """The nodes of one graph that give symbolic numbers."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._numbers = NumberNodes(graph, self._node_of_symbol)
        self._inputs: list[tuple[Any, fx.Node]] = []

    def define(self, value: Any, node: fx.Node) -> None:
        """`node` is the placeholder of `value`, a symbolic number or a tensor."""
        self._inputs.append((value, node))
        match value:
            case torch.SymInt():
                self._numbers.define(index_of(value), node)
            case torch.SymFloat():
                self._numbers.define(value.node.number, node)

    def place_of(self, symbol: Symbol) -> Place | None:
        """The node that finds a number in data, and the dimension of its result that has it; None
        where no operator of the graph does.
        """
        for value, node in self._inputs:
            is_tensor = isinstance(value, torch.Tensor)
            for dim, number in enumerate(node.meta["val"].shape if is_tensor else (value,)):
                is_it = isinstance(number, torch.SymInt) and index_of(number) == symbol.index
                if is_it and node.op == "call_function":
                    return node, dim if is_tensor else None
        return None

    def read_again(self, place: Place, number: Any) -> None:
        """Let `number` be what is found in a place, of which nothing is known."""
        node, dim = place
        read: Any = node.target if dim is None else aten.sym_size.int
        with self._graph.inserting_after(node):  # what it reads may be written to since
            again = self._graph.call_function(read, node.args if dim is None else (node, dim))
        again.meta.update(val=number, **{READ_AGAIN: True})
        self.define(number, again)

    def node_for(self, value: Any) -> Any:
        """The node of a symbolic number; a plain number when the expression is one.

        UnsupportedOperator: the inputs do not tell it.
        """
        return self._numbers.node_for(value)

    def _node_of_symbol(self, symbol: Symbol) -> fx.Node | None:
        """The node of a symbol that an input holds, or the size of one, alone or in an expression
        that can be solved for it.
        """
        for value, node in self._inputs:
            if isinstance(value, torch.SymInt):
                solved = self._solved(index_of(value), node, symbol)
                if solved is not None:
                    return solved
        for value, node in self._inputs:
            # As the node gives it: the program may have changed the sizes of the value since.
            is_tensor = isinstance(value, torch.Tensor)
            for dim, size in enumerate(node.meta["val"].shape if is_tensor else ()):
                if symbol in index_of(size).free() and solution(index_of(size), symbol):
                    read = self._graph.call_function(aten.sym_size.int, (node, dim))
                    read.meta["val"] = size
                    return self._solved(index_of(size), read, symbol)
        return None

    def _solved(self, index: Index, node: fx.Node, symbol: Symbol) -> fx.Node | None:
        """The node of `symbol`, given that of an expression of it."""
        solved = solution(index, symbol)
        if solved is None:
            return None
        factor, summand = solved
        value = node.meta["val"]
        if summand:
            node = self._graph.call_function(operator.sub, (node, summand))
            node.meta["val"] = value = value - summand
        if factor != 1:
            node = self._graph.call_function(operator.floordiv, (node, factor))
            node.meta["val"] = value // factor
        return node


def solution(index: Index, symbol: Symbol) -> tuple[int, int] | None:
    """`factor` and `summand` where `index` is `factor * symbol + summand`."""
    match index.terms:
        case ((factor, (only,)),) if only == symbol:
            return factor, index.constant
    return None


def promise(
    record_call: Callable[..., Any], symbols: SymbolNodes, condition: torch.SymBool
) -> None:
    """Use a `torch._check`: bounds of one number are checked where it is found out, others by a
    call, which `record_call` notes, and so is what the number is known to be from there on.
    """
    node = condition.node
    facts, found = node.facts, {}
    if isinstance(node.condition, Relation) and not facts.prove(node.condition):
        of_data = filter(facts.is_of_data, node.condition.rewritten(facts.resolve).free())
        found = {symbol: place for symbol in of_data if (place := symbols.place_of(symbol))}
    match node.condition:
        case Relation(
            RelationKind.NOT_NEGATIVE, Index(terms=((1 | -1, (Symbol() as symbol,)),))
        ) if facts.is_of_data(symbol):
            facts.assume(node.condition)
        case Relation() as relation:
            # Twice: what is assumed to be 1 is 1 wherever it is met, also in the check of that.
            holds = symbolic_int(facts, 2 * indicator_index(relation))
            message = f"{relation} does not hold"
            record_call(aten._assert_scalar.default, (holds, message), {}, None)
            facts.assume(relation)
        case _:
            node.expect_true()
    for symbol, place in found.items():
        place[0].meta[PROMISED] = True
        known = facts.resolve(symbol.index)
        if all(free.name != symbol.name for free in known.free()):
            number = facts.unknown_size(lower=None if place[1] is None else 0)
            symbols.read_again(place, symbolic_int(facts, number))
            holds = symbolic_int(facts, 2 * indicator_index(equal(number, known)))
            message = f"a number found in data is not {known}, as the program promised"
            record_call(aten._assert_scalar.default, (holds, message), {}, None)
