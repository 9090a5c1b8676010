"""Sizes of torch's front end as sizes of ours, and what was assumed of ours told to torch's.

Expressions of torch's `ShapeEnv` are sympy's. They are read here and nowhere else, told apart by
the names of their classes, so that nothing imports sympy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch

from fusewright.errors import Unsupported
from fusewright.fake import FakeMode, FakeTensor
from fusewright.ir.compounds import floor_divide, maximum, minimum, remainder
from fusewright.ir.index import Index, as_index, integer, product
from fusewright.ir.relations import Relation
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import symbolic_int

LARGEST = 2**31
"""Upper bounds above this are no information (torch writes 2**63 - 1 for unknown)."""


class EnvironmentSizes:
    """The symbols of one `ShapeEnv`, each with one of ours."""

    def __init__(self) -> None:
        self.facts = ShapeFacts()
        self.mode = FakeMode(self.facts)
        self._indices: dict[str, Index] = {}
        self._numbers: dict[str, Any] = {}
        """By name of a symbol of ours: the environment's own."""

        self._told = 0

    def example(self, value: Any) -> Any:
        """An input of a graph with its symbols replaced. Symbolic floats are taken as they are now.

        Raises: Unsupported, for a size that has no index form.
        """
        match value:
            case torch.Tensor():
                return self._fake(value)
            case torch.SymInt():
                return self._number(value)
            case torch.SymFloat():
                return float(value)
        return value

    def fix(self, fake: FakeTensor, value: torch.SymFloat) -> None:
        """Take a float that is passed as a tensor without dimensions as it is now, under a guard of
        the environment's.
        """
        fake.constant = torch.tensor(float(value), dtype=fake.dtype, device="cpu")

    def tell(self) -> None:
        """Let the environment guard what was assumed of our symbols."""
        for assumption in self.facts.assumptions[self._told :]:
            assert isinstance(assumption.relation, Relation)
            if not assumption.relation.holds(self._numbers):
                raise AssertionError(f"{assumption.relation} was assumed and does not hold")
        self._told = len(self.facts.assumptions)

    def _fake(self, tensor: torch.Tensor) -> FakeTensor:
        size = [self._number(number) for number in tensor.shape]
        stride = [self._number(number) for number in tensor.stride()]
        return self.mode.fake_input(tensor, size, stride)

    def _number(self, size: int | torch.SymInt) -> Any:
        if isinstance(size, int):
            return size
        return symbolic_int(self.facts, self._convert(size.node.expr, size.node.shape_env))

    def _convert(self, expression: Any, environment: Any) -> Index:
        if expression.is_Symbol:
            return self._symbol(expression, environment)
        if expression.is_Integer:
            return integer(int(expression))
        kind = type(expression).__name__
        rule = _RULES.get(kind)
        if rule is None:
            raise Unsupported(
                f"a size is computed as {expression}, and {kind} has no index form",
                remedy="mark the dimension static, or compute the size from integers outside",
            )
        return rule(*(self._convert(argument, environment) for argument in expression.args))

    def _symbol(self, symbol: Any, environment: Any) -> Index:
        size = self._indices.get(str(symbol))
        if size is None:
            bounds = environment.var_to_range.get(symbol)
            lower = 2 if bounds is None else _bound(bounds.lower)
            upper = None if bounds is None else _bound(bounds.upper)
            seen = environment.backed_var_to_val.get(symbol)
            hint = None if seen is None else int(seen)
            if hint is None:
                size = self.facts.unknown_size(lower, upper)
            else:
                size = self.facts.size(hint, 0 if lower is None else lower, upper)
            self._indices[str(symbol)] = size
            self._numbers[str(size)] = environment.create_symintnode(symbol, hint=hint)
        return size


def _bound(value: Any) -> int | None:
    """A finite bound as an int; None for infinities and for bounds too large to help."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return number if abs(number) < LARGEST else None


def _power(base: Index, exponent: Index) -> Index:
    return product([base] * int(exponent))


_RULES: dict[str, Callable[..., Index]] = {
    "Add": lambda *arguments: sum(arguments, integer(0)),
    "Mul": lambda *arguments: product(arguments),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": floor_divide,
    "CleanDiv": floor_divide,
    "Mod": remainder,
    "PythonMod": remainder,
    "ModularIndexing": lambda value, by, modulus: value // by % modulus,
    "Min": lambda *arguments: reduce(minimum, arguments),
    "Max": lambda *arguments: reduce(maximum, arguments),
    "Identity": as_index,
}
"""By class of a sympy expression."""
