"""Where torch's sizes become index expressions: ints as they are, SymInts by walking their symbolic
expression.

Nothing here imports sympy: expressions are told apart by the names of their classes, so that a
static graph never pays for it and a dynamic one has it loaded already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import torch

from fusewright.errors import Unsupported
from fusewright.ir import index as ir
from fusewright.ir.index import Index, SizeFact, as_index, integer, size_symbol

Size = int | torch.SymInt

LARGEST = 2**31
"""Upper bounds above this are no information (torch writes 2**63 - 1 for unknown)."""


class SizeTable:
    """The symbolic sizes of one graph, each made once, with its range and the size seen when
    compiling.
    """

    def __init__(self) -> None:
        self.facts: dict[str, SizeFact] = {}

    def index(self, size: Size) -> Index:
        """`size` as an index expression.

        Raises: Unsupported, for an expression that has no integer form here.
        """
        if isinstance(size, int):
            return integer(int(size))
        return self._convert(size.node.expr, size.node.shape_env)

    def indices(self, sizes: Iterable[Size]) -> tuple[Index, ...]:
        return tuple(self.index(size) for size in sizes)

    def _convert(self, expression: Any, environment: Any) -> Index:
        kind = type(expression).__name__
        if getattr(expression, "is_Symbol", False):
            return self._symbol(expression, environment)
        if getattr(expression, "is_Integer", False):
            return integer(int(expression))
        arguments = [self._convert(argument, environment) for argument in expression.args]
        rule = _RULES.get(kind)
        if rule is None:
            raise Unsupported(
                f"a size is computed as {expression}, and {kind} has no index form",
                remedy="mark the dimension static, or compute the size from integers outside",
            )
        return rule(*arguments)

    def _symbol(self, symbol: Any, environment: Any) -> Index:
        name = str(symbol)
        fact = self.facts.get(name)
        if fact is None:
            bounds = environment.var_to_range.get(symbol)
            lower = 2 if bounds is None else _bound(bounds.lower)
            upper = None if bounds is None else _bound(bounds.upper)
            hint = environment.backed_var_to_val.get(symbol)
            fact = SizeFact(
                size_symbol(name, lower=0 if lower is None else lower, upper=upper),
                hint=int(hint) if hint is not None else max(lower or 0, 2),
            )
            self.facts[name] = fact
        return fact.symbol.index


def hint(index: Index, facts: dict[str, SizeFact]) -> int:
    """The value of a size for the sizes seen when compiling; for profitability only."""
    if index.is_constant:
        return index.constant
    return index.evaluate({name: fact.hint for name, fact in facts.items()})


def _bound(value: Any) -> int | None:
    """A finite bound as an int; None for infinities and for bounds too large to help."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return number if abs(number) < LARGEST else None


def _power(base: Index, exponent: Index) -> Index:
    return reduce(lambda total, _: total * base, range(int(exponent)), integer(1))


_RULES: dict[str, Callable[..., Index]] = {
    "Add": lambda *arguments: sum(arguments, integer(0)),
    "Mul": lambda *arguments: ir.product(arguments),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": ir.floor_divide,
    "CleanDiv": ir.floor_divide,
    "Mod": ir.remainder,
    "PythonMod": ir.remainder,
    "ModularIndexing": lambda value, by, modulus: value // by % modulus,
    "Min": lambda *arguments: reduce(ir.minimum, arguments),
    "Max": lambda *arguments: reduce(ir.maximum, arguments),
    "Identity": as_index,
}
