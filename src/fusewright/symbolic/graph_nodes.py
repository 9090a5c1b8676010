"""Symbolic numbers in an fx graph: each becomes nodes that compute it from the graph's inputs.

view(x, [128*s0, 768])  ->  mul = operator.mul(128, s0); view(x, [mul, 768])
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import fx

from fusewright.errors import UnsupportedOperator
from fusewright.ir.index import Atom, Compound, Index, RealSymbol, Symbol
from fusewright.ir.relations import Relation, RelationKind
from fusewright.number_functions import NUMBER_FUNCTIONS
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.functions import FUNCTIONS
from fusewright.symbolic.nodes import (
    ConditionNode,
    IntegerNode,
    RealNode,
    symbolic_float,
    symbolic_int,
)
from fusewright.symbolic.real import Operand, Real, evaluate, free_in_real

COMPOUNDS: dict[str, Callable[..., Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "min": torch.sym_min,
    "max": torch.sym_max,
}

REALS: dict[str, Callable[..., Any]] = {
    **NUMBER_FUNCTIONS,
    **FUNCTIONS,
    "float": torch.sym_float,
    "min": torch.sym_min,
    "max": torch.sym_max,
}
"""By operator of a `Real`, the function that computes it when the graph runs."""


RELATIONS: dict[RelationKind, Callable[..., Any]] = {
    RelationKind.ZERO: operator.eq,
    RelationKind.NOT_ZERO: operator.ne,
    RelationKind.NOT_NEGATIVE: operator.ge,
}
"""By kind of a relation, how its difference compares with 0."""


class NumberNodes:
    """The nodes that compute symbolic numbers in one graph, each expression once."""

    def __init__(
        self, graph: fx.Graph, make_symbol: Callable[[Symbol], fx.Node | None] = lambda symbol: None
    ) -> None:
        self._graph = graph
        self._make_symbol = make_symbol
        """Makes the node of a symbol that nothing has defined; None: it cannot."""

        self._nodes: dict[Index | Real, fx.Node] = {}
        self._symbols: dict[str, fx.Node] = {}
        """Nodes of symbols, by name, since what is known of a symbol may grow."""

    def define(self, number: Operand, node: fx.Node) -> None:
        """`node` (a placeholder, say) holds this number."""
        match number:
            case RealSymbol(name=name):
                self._symbols.setdefault(name, node)
            case Real():
                self._nodes.setdefault(number, node)
            case Index(terms=terms, constant=constant):
                self._nodes.setdefault(number, node)
                match terms:
                    case ((1, (Symbol() as symbol,)),) if not constant:
                        self._symbols.setdefault(symbol.name, node)

    def node_for(self, number: Any) -> Any:
        """The node of a symbolic number; a plain number when it is known.

        UnsupportedOperator: it depends on a symbol that the graph has no input for.
        """
        match number.node:
            case IntegerNode() as node:
                return self._index(node.index, node.facts)
            case RealNode() as node:
                return self._real(node.number, node.facts)
            case ConditionNode(condition=Relation(kind, difference)) as node:
                if not any(map(node.facts.is_of_data, difference.free())):
                    return node.bool_()
                return self._call(RELATIONS[kind], self._index(difference, node.facts), 0)
            case ConditionNode() as node:
                return node.bool_()
        raise UnsupportedOperator(f"{number} is no size of this program's")

    def _index(self, index: Index, facts: ShapeFacts) -> Any:
        """The node of an integer; a plain one when it is known."""
        if index.is_constant:
            return index.constant
        node = self._nodes.get(index)
        if node is None:
            terms = [self._term(coefficient, atoms, facts) for coefficient, atoms in index.terms]
            constants = [index.constant] if index.constant else []
            node = reduce(functools.partial(self._call, operator.add), [*terms, *constants])
            node.meta.setdefault("val", symbolic_int(facts, index))
            self._nodes[index] = node
        return node

    def _term(self, coefficient: int, atoms: tuple[Atom, ...], facts: ShapeFacts) -> Any:
        factors = [self._atom(atom, facts) for atom in atoms]
        constants = [coefficient] if coefficient != 1 else []
        return reduce(functools.partial(self._call, operator.mul), [*factors, *constants])

    def _atom(self, atom: Atom, facts: ShapeFacts) -> fx.Node:
        index = Index(((1, (atom,)),), 0)
        node = self._nodes.get(index)
        if node is None:
            if isinstance(atom, Compound):
                left, right = self._index(atom.left, facts), self._index(atom.right, facts)
                node = self._call(COMPOUNDS[atom.operator], left, right)
            else:
                node = self._symbol(atom)
            node.meta.setdefault("val", symbolic_int(facts, index))
            self.define(index, node)
        return node

    def _real(self, number: Operand, facts: ShapeFacts) -> Any:
        match number:
            case float():
                return number
            case Index():
                return self._index(facts.resolve(number), facts)
            case RealSymbol():
                return self._symbol(number)
        node = self._nodes.get(number)
        if node is None:
            operands = [self._real(operand, facts) for operand in number.operands]
            node = self._nodes[number] = self._call(REALS[number.operator], *operands)
            node.meta["val"] = symbolic_float(facts, number)
        return node

    def _symbol(self, symbol: Symbol) -> fx.Node:
        node = self._symbols.get(symbol.name) or self._make_symbol(symbol)
        if node is None:
            raise UnsupportedOperator(f"the number {symbol} cannot be computed from the inputs")
        return node

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        node = self._graph.call_function(function, arguments)
        if all("val" in a.meta for a in arguments if isinstance(a, fx.Node)):
            values = [a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments]
            node.meta["val"] = function(*values)
        return node


def numeric_function(number: Any) -> tuple[Callable[..., Any], list[Symbol]]:
    """A function that computes a symbolic number from the numbers of these symbols."""
    node = number.node
    expression = node.index if isinstance(node, IntegerNode) else node.number
    symbols = sorted(free_in_real(expression), key=lambda symbol: symbol.name)
    names = [symbol.name for symbol in symbols]

    def compute(*values: int | float) -> int | float:
        return evaluate(expression, dict(zip(names, values, strict=True)))

    return compute, symbols
