"""Symbolic sizes in a traced graph: each `torch.SymInt` that an operator takes becomes a node over
size inputs.

    view(x, [s0*128, 768])  ->  mul = operator.mul(s0, 128); view(x, [mul, 768])

where `s0` is the placeholder of that size, or `sym_size(x, 0)` for a size that no placeholder
names. Only this file reads the expressions inside symbolic numbers, which are sympy's; sympy is
never imported for static shapes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fusewright.errors import UnsupportedOperator

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "PythonMod": operator.mod,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": torch.sym_float,
}
"""By the name of the expression's class, the function that computes it on numbers."""


class SymbolNodes:
    """The nodes that compute symbolic numbers in one graph, each expression once."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._nodes: dict[Any, fx.Node] = {}

    def define(self, value: Any, node: fx.Node) -> None:
        """`node` (a placeholder, say) holds the symbolic number `value`."""
        self._nodes.setdefault(value.node.expr, node)

    def define_sizes(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """Where a size of an input is a symbol that nothing defines yet, read it from the input."""
        for dim, size in enumerate(tensor.shape):
            if not isinstance(size, torch.SymInt) or size.node.expr in self._nodes:
                continue
            if size.node.expr.is_Symbol:
                read = self._graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                read.meta["val"] = size
                self._nodes[size.node.expr] = read

    def node_for(self, value: Any) -> Any:
        """The node of a symbolic number; a plain number when the expression is one.

        Only sizes stay symbolic: a symbolic float or truth value is taken as it is now, under a
        guard of the front end's.
        """
        if isinstance(value, torch.SymFloat):
            return float(value)
        if isinstance(value, torch.SymBool):
            return bool(value)
        return self._build(value.node.expr, value)

    def _build(self, expression: Any, value: Any = None) -> Any:
        known = self._nodes.get(expression)
        if known is not None:
            return known
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float or expression.is_Rational:
            return float(expression)
        function = OPERATORS.get(type(expression).__name__)
        if function is None or not expression.args:
            raise UnsupportedOperator(
                f"the symbolic size {expression} cannot be computed from the inputs"
            )
        operands = [self._build(argument) for argument in expression.args]
        node = functools.reduce(lambda a, b: self._call(function, a, b), operands[1:], operands[0])
        if len(operands) == 1:
            node = self._graph.call_function(function, (operands[0],))
        if value is not None:
            node.meta["val"] = value
        self._nodes[expression] = node
        return node

    def _call(self, function: Callable[..., Any], a: Any, b: Any) -> Any:
        node = self._graph.call_function(function, (a, b))
        node.meta["val"] = function(
            *(x.meta["val"] if isinstance(x, fx.Node) else x for x in (a, b))
        )
        return node
