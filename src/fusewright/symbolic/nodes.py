"""Symbolic numbers as torch knows them: what stands inside of a `torch.SymInt`, `torch.SymBool` or
`torch.SymFloat`.

Torch asks any object that has the methods below, and so takes sizes that are index expressions of
our own wherever it takes symbolic sizes at all. Nothing here loads sympy. A number that torch must
know (`guard_int`, `guard_bool`, …) is asked of the facts, which prove it or assume it.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import torch

from fusewright.errors import DataDependent
from fusewright.ir.compounds import maximum, minimum
from fusewright.ir.index import Index, IndexLike, Symbol, integer, product
from fusewright.ir.relations import Relation, at_least, at_most, below, equal, not_equal
from fusewright.symbolic.facts import Required, ShapeFacts
from fusewright.symbolic.integers import (
    is_too_large,
    nonzero,
    rough,
    sides,
    with_positive_divisor,
)
from fusewright.symbolic.real import Operand, Real, free_in_real, quotient_by_zero
from fusewright.symbolic.relations import (
    All,
    Any,
    Condition,
    RealRelation,
    free_in,
    indicator_index,
    negation,
)

Number = int | torch.SymInt

EXACT_FACTOR: Final = 2**20
"""A product of a size below 2**32 and of a fraction of numbers below this is a double exactly."""

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""Classes of symbolic numbers."""


class SymbolicNode:
    """The base of the three kinds of node: the questions that torch asks of each."""

    __slots__ = ("facts",)

    @property
    def shape_env(self) -> object:
        """Where torch looks for its own environment; where there is none it asks the node."""
        return None

    def __init__(self, facts: ShapeFacts) -> None:
        self.facts = facts

    def is_int(self) -> bool:
        return False

    def is_bool(self) -> bool:
        return False

    def is_float(self) -> bool:
        return False

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def is_symbolic(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return False

    def maybe_as_int(self) -> int | None:
        return None

    def clone(self) -> SymbolicNode:
        return self

    def wrap_int(self, number: int) -> IntegerNode:
        return IntegerNode(self.facts, integer(number))

    def wrap_bool(self, value: bool) -> ConditionNode:
        return ConditionNode(self.facts, value)

    def wrap_float(self, number: float) -> RealNode:
        return RealNode(self.facts, number)

    def _graph_repr(self) -> builtins.str:
        return self.str()

    def str(self) -> builtins.str:
        raise NotImplementedError

    def __str__(self) -> builtins.str:
        return self.str()


class IntegerNode(SymbolicNode):
    """An index expression."""

    __slots__ = ("_index", "_version")

    def __init__(self, facts: ShapeFacts, index: Index) -> None:
        super().__init__(facts)
        self._index = index
        self._version = -1

    @property
    def index(self) -> Index:
        """The expression, with all that has been assumed meanwhile made use of."""
        if self._version != self.facts.version:
            self._index = self.facts.resolve(self._index)
            self._version = self.facts.version
        return self._index

    def is_int(self) -> bool:
        return True

    @property
    def expr(self) -> IntegerNode:
        """The expression in which torch's Python kernels look for sympy symbols; there are none."""
        return self

    free_symbols: frozenset[object] = frozenset()

    def is_constant(self) -> bool:
        return self.index.is_constant

    def maybe_as_int(self) -> int | None:
        index = self.index
        return index.constant if index.is_constant else None

    def has_hint(self) -> bool:
        return self.facts.hint(self.index) is not None

    @property
    def hint(self) -> int | None:
        return self.facts.hint(self.index)

    _hint = hint

    def str(self) -> builtins.str:
        return str(self.index)

    def int_(self) -> int:
        return self.facts.number(self.index)

    def guard_int(self, file: object = None, line: object = None) -> int:
        return self.facts.number(self.index)

    def guard_float(self, file: object = None, line: object = None) -> float:
        return float(self.facts.number(self.index))

    def _make(self, index: Index) -> IntegerNode:
        self._keep_small(index)
        return IntegerNode(self.facts, index)

    def _keep_small(self, index: Index) -> None:
        """Assume that an expression stays as it is which no guard could compute."""
        if is_too_large(index):
            for symbol in index.free():
                self.facts.number(symbol.index)

    def _compare(self, condition: Condition) -> ConditionNode:
        if isinstance(condition, Relation) and self.facts.prove(condition) is None:
            self._keep_small(condition.difference)
        return ConditionNode(self.facts, condition)

    def add(self, other: IntegerNode) -> IntegerNode:
        return self._make(self.index + other.index)

    def sub(self, other: IntegerNode) -> IntegerNode:
        return self._make(self.index - other.index)

    def mul(self, other: IntegerNode) -> IntegerNode:
        return self._make(self.index * other.index)

    def sym_sum(self, others: Sequence[IntegerNode]) -> IntegerNode:
        return self._make(sum((other.index for other in others), integer(0)))

    def neg(self) -> IntegerNode:
        return self._make(-self.index)

    def pos(self) -> IntegerNode:
        return self

    def floor(self) -> IntegerNode:
        return self

    ceil = trunc = floor

    def abs(self) -> IntegerNode:
        return self if self.facts.decide(at_least(self.index, 0)) else self.neg()

    def int_floordiv(self, other: IntegerNode) -> IntegerNode:
        left, right = with_positive_divisor(self.facts, self.index, other.index)
        return self._make(left // right)

    floordiv = int_floordiv

    def mod(self, other: IntegerNode) -> IntegerNode:
        if self.facts.decide(at_least(other.index, 1)):
            return self._make(self.index % other.index)
        divisor = -nonzero(self.facts, other.index, "integer modulo by zero")
        return self._make(-((-self.index) % divisor))

    def pow(self, other: IntegerNode) -> IntegerNode:
        exponent = self.facts.number(other.index)
        return self._make(product([self.index] * exponent))

    pow_by_natural = pow

    def int_truediv(self, other: IntegerNode) -> RealNode:
        divisor = nonzero(self.facts, other.index, "division by zero")
        return RealNode(self.facts, Real("truediv", (self.index, divisor)))

    truediv = int_truediv

    def sym_float(self) -> RealNode:
        return RealNode(self.facts, Real("float", (self.index,)))

    def sym_min(self, other: IntegerNode) -> IntegerNode:
        return self._extreme(minimum, other)

    def sym_max(self, other: IntegerNode) -> IntegerNode:
        return self._extreme(maximum, other)

    def _extreme(
        self, function: Callable[[IndexLike, IndexLike], Index], other: IntegerNode
    ) -> IntegerNode:
        left, right = self.index, other.index
        proved = self.facts.prove(at_least(left, right))
        if proved is None and self.facts.prove(at_least(right, left)):
            proved = False  # or they are equal
        if proved is None:
            return self._make(function(left, right))
        return self if proved == (function is maximum) else other

    def lshift(self, other: IntegerNode) -> IntegerNode:
        return self._make(self.index * 2 ** self.facts.number(other.index))

    def rshift(self, other: IntegerNode) -> IntegerNode:
        return self._make(self.index // 2 ** self.facts.number(other.index))

    def bitwise_and(self, other: IntegerNode) -> IntegerNode:
        return self._make(integer(self.int_() & other.int_()))

    def bitwise_or(self, other: IntegerNode) -> IntegerNode:
        return self._make(integer(self.int_() | other.int_()))

    def bitwise_xor(self, other: IntegerNode) -> IntegerNode:
        return self._make(integer(self.int_() ^ other.int_()))

    and_, or_, xor = bitwise_and, bitwise_or, bitwise_xor

    def eq(self, other: IntegerNode) -> ConditionNode:
        return self._compare(equal(self.index, other.index))

    def ne(self, other: IntegerNode) -> ConditionNode:
        return self._compare(not_equal(self.index, other.index))

    def lt(self, other: IntegerNode) -> ConditionNode:
        return self._compare(below(*sides(self.index, other.index)))

    def gt(self, other: IntegerNode) -> ConditionNode:
        return self._compare(below(*sides(other.index, self.index)))

    def le(self, other: IntegerNode) -> ConditionNode:
        return self._compare(at_least(*sides(other.index, self.index)))

    def ge(self, other: IntegerNode) -> ConditionNode:
        return self._compare(at_least(*sides(self.index, other.index)))

    # Torch asks one size of a tensor about the layout of all.

    def is_contiguous(
        self, sizes: Sequence[IntegerNode], strides: Sequence[IntegerNode]
    ) -> ConditionNode:
        return self._dense(sizes, strides, list(range(len(sizes)))[::-1])

    def is_channels_last_contiguous_2d(
        self, sizes: Sequence[IntegerNode], strides: Sequence[IntegerNode]
    ) -> ConditionNode:
        return self._dense(sizes, strides, [1, 3, 2, 0] if len(sizes) == 4 else None)

    def is_channels_last_contiguous_3d(
        self, sizes: Sequence[IntegerNode], strides: Sequence[IntegerNode]
    ) -> ConditionNode:
        return self._dense(sizes, strides, [1, 4, 3, 2, 0] if len(sizes) == 5 else None)

    def is_channels_last_strides_2d(
        self, sizes: Sequence[IntegerNode], strides: Sequence[IntegerNode]
    ) -> ConditionNode:
        return self._ordered(sizes, strides, [1, 3, 2, 0] if len(sizes) == 4 else None)

    def is_channels_last_strides_3d(
        self, sizes: Sequence[IntegerNode], strides: Sequence[IntegerNode]
    ) -> ConditionNode:
        return self._ordered(sizes, strides, [1, 4, 3, 2, 0] if len(sizes) == 5 else None)

    def is_non_overlapping_and_dense(
        self, sizes: Sequence[IntegerNode], strides: Sequence[IntegerNode]
    ) -> ConditionNode:
        order = sorted(range(len(sizes)), key=lambda dim: rough(self.facts, strides[dim].index))
        return self._dense(sizes, strides, order)

    def _dense(
        self,
        sizes: Sequence[IntegerNode],
        strides: Sequence[IntegerNode],
        order: Sequence[int] | None,
    ) -> ConditionNode:
        """Whether the elements fill their memory, the dimensions in `order` from the inside."""
        if order is None:
            return self.wrap_bool(False)
        step = integer(1)
        for dim in order:
            size = sizes[dim].index
            if size != 1 and not self._proved(equal(strides[dim].index, step)):
                return self.wrap_bool(False)
            step = step * size
        return self.wrap_bool(True)

    def _ordered(
        self,
        sizes: Sequence[IntegerNode],
        strides: Sequence[IntegerNode],
        order: Sequence[int] | None,
    ) -> ConditionNode:
        """Whether strides grow along `order`, the innermost dimension first, as torch asks."""
        if order is None or strides[1].index == 0:
            return self.wrap_bool(False)
        least = integer(0)
        for dim in order:
            size, stride = sizes[dim].index, strides[dim].index
            if size == 0 or not self._proved(at_least(stride, least)):
                return self.wrap_bool(False)
            if dim == 0 and least == strides[1].index:
                return self.wrap_bool(False)
            least = stride * size if size != 1 else stride
        return self.wrap_bool(True)

    def _proved(self, condition: Condition) -> bool:
        return self.facts.prove(condition) is True


class ConditionNode(SymbolicNode):
    """A condition on sizes."""

    __slots__ = ("condition",)

    def __init__(self, facts: ShapeFacts, condition: Condition) -> None:
        super().__init__(facts)
        proved = facts.prove(condition)
        self.condition: Condition = condition if proved is None else proved

    def is_bool(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.condition, bool)

    def has_hint(self) -> bool:
        return True

    def str(self) -> builtins.str:
        return str(self.condition)

    @property
    def index(self) -> Index:
        """1 or 0, for arithmetic with integers, to which torch 2.11 passes conditions: decided."""
        return integer(int(self.bool_()))

    @property
    def number(self) -> float:
        """1.0 or 0.0, for arithmetic with real numbers: the condition is decided."""
        return float(self.bool_())

    @property
    def expr(self) -> Condition:
        """The condition, which torch looks at before it asks whether the condition is known."""
        return self.condition

    _hint = None

    @property
    def shape_env(self) -> object:
        """Whom torch's Python asks about a condition that it has an answer for if it is unknown."""
        return self

    def evaluate_sym_node(
        self, node: ConditionNode, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> bool:
        """`node`, or `fallback_value` where it depends on data."""
        if fallback_value is None:
            return node.bool_()
        return self.facts.decide_or(node.condition, fallback_value)

    def _maybe_evaluate_static(self, condition: Condition) -> bool | None:
        return self.facts.prove(condition)

    def bool_(self) -> bool:
        return self.facts.decide(self.condition)

    def guard_bool(self, file: object = None, line: object = None) -> bool:
        return self.facts.decide(self.condition)

    def guard_size_oblivious(self, file: object = None, line: object = None) -> bool:
        return self.facts.decide(self.condition)

    def guard_or_false(self, file: object = None, line: object = None) -> bool:
        return self.facts.decide_or(self.condition, False)

    def guard_or_true(self, file: object = None, line: object = None) -> bool:
        return self.facts.decide_or(self.condition, True)

    def statically_known_true(self, file: object = None, line: object = None) -> bool:
        return self.facts.prove(self.condition) is True

    def depends_on_data(self) -> bool:
        """Whether this is one relation, not decided yet, of a number that depends on data."""
        match self.condition:
            case Relation(_, difference):
                is_decided = self.facts.prove(self.condition) is not None
                return not is_decided and any(map(self.facts.is_of_data, difference.free()))
        return False

    def expect_true(self, file: object = None, line: object = None) -> bool:
        """`torch._check`: where the data decides, the program promises that it holds.

        Required: it is an operator that asks, and nobody promised.
        """
        if isinstance(self.condition, All):
            nodes = [ConditionNode(self.facts, term) for term in self.condition.terms]
            return all(node.expect_true() for node in nodes)
        if (self.facts.of_layout or self.facts.of_call) and self.depends_on_data():
            raise Required(torch.SymBool(self))
        holds: bool | None
        try:
            holds = self.facts.decide(self.condition)
        except DataDependent:
            holds = None
        if holds is None:
            self.facts.assume(self.condition)
        return holds is not False

    def expect_size(self, file: object = None, line: object = None) -> bool:
        return self.expect_true(file, line)

    def sym_not(self) -> ConditionNode:
        return ConditionNode(self.facts, negation(self.condition))

    def and_(self, other: ConditionNode) -> ConditionNode:
        return ConditionNode(self.facts, All((self.condition, other.condition)))

    def or_(self, other: ConditionNode) -> ConditionNode:
        return ConditionNode(self.facts, Any((self.condition, other.condition)))

    sym_and, sym_or = and_, or_

    def sym_ite(self, then: SymbolicNode, otherwise: SymbolicNode) -> SymbolicNode:
        return then if self.bool_() else otherwise


class RealNode(SymbolicNode):
    """A real number that varies, or is computed from numbers that do."""

    __slots__ = ("number",)

    def __init__(self, facts: ShapeFacts, number: Operand) -> None:
        super().__init__(facts)
        self.number = number

    def is_float(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.number, float)

    def has_hint(self) -> bool:
        return True

    def str(self) -> builtins.str:
        return str(self.number)

    def value(self) -> float:
        """The number; what it is computed from is assumed to stay as it is."""
        return self.facts.real_number(self.number)

    def guard_float(self, file: object = None, line: object = None) -> float:
        return self.value()

    def sym_float(self) -> RealNode:
        return self

    def _compute(self, operator: builtins.str, *others: RealNode) -> RealNode:
        return RealNode(self.facts, Real(operator, (self.number, *(o.number for o in others))))

    def add(self, other: RealNode) -> RealNode:
        return self._compute("add", other)

    def sub(self, other: RealNode) -> RealNode:
        return self._compute("sub", other)

    def mul(self, other: RealNode) -> RealNode:
        return self._compute("mul", other)

    def truediv(self, other: RealNode) -> RealNode:
        """The quotient as C++ has it, in whose formulas of gradients a divisor may be 0."""
        if other.eq(self.wrap_float(0.0)).bool_():
            return self.wrap_float(quotient_by_zero(self.value(), other.value()))
        return self._compute("truediv", other)

    def float_truediv(self, other: RealNode) -> RealNode:
        if other.eq(self.wrap_float(0.0)).bool_():
            raise ZeroDivisionError("float division by zero")
        return self._compute("truediv", other)

    def pow(self, other: RealNode) -> RealNode:
        exponent = other.number
        whole = isinstance(exponent, float) and exponent.is_integer() and exponent >= 0
        if not whole and not self.gt(self.wrap_float(0.0)).bool_():
            return self.wrap_float(self.value() ** other.value())
        return self._compute("pow", other)

    float_pow = pow

    def mod(self, other: RealNode) -> RealNode:
        return self._compute("mod", other)

    def neg(self) -> RealNode:
        return self._compute("neg")

    def floordiv(self, other: RealNode) -> RealNode:
        return self._compute("floordiv", other)

    float_floordiv = floordiv

    def abs(self) -> RealNode:
        return self._compute("fabs")

    def sym_sqrt(self) -> RealNode:
        return self._compute("sqrt")

    def sym_min(self, other: RealNode) -> RealNode:
        return self._compute("min", other)

    def sym_max(self, other: RealNode) -> RealNode:
        return self._compute("max", other)

    def floor(self) -> IntegerNode:
        ratio = self._ratio()
        if ratio is None:
            return self._as_seen("floor")
        numerator, denominator = (IntegerNode(self.facts, index) for index in ratio)
        return numerator.int_floordiv(denominator)

    def ceil(self) -> IntegerNode:
        return self.neg().floor().neg()

    def trunc(self) -> IntegerNode:
        ratio = self._ratio()
        if ratio is None or not all(self.facts.prove(at_least(index, 0)) for index in ratio):
            return self._as_seen("trunc")
        return self.floor()

    def _as_seen(self, function: builtins.str) -> IntegerNode:
        """The integer that a function gives of the number, which is assumed to stay so."""
        whole = Real(function, (self.number,))
        seen = self.facts.hint_of_real(whole)
        self.facts.assume(RealRelation("==", whole, seen))
        return self.wrap_int(int(seen))

    def _ratio(self) -> tuple[Index, Index] | None:
        """Integers of which this number is the quotient, exactly or as Python rounds it; None where
        there are none.
        """
        match self.number:
            case Real("truediv", (Index() as left, Index() as right)):
                return left, right
            case Real("float", (Index() as exact,)):
                return exact, integer(1)
            case Real("neg", (inner,)):
                ratio = RealNode(self.facts, inner)._ratio()
                return None if ratio is None else (-ratio[0], ratio[1])
            case Real("mul", (Real("float", (Index() as size,)), float(factor))) | Real(
                "mul", (float(factor), Real("float", (Index() as size,)))
            ) if math.isfinite(factor):
                numerator, denominator = factor.as_integer_ratio()
                is_exact = max(abs(numerator), denominator) < EXACT_FACTOR
                return (size * numerator, integer(denominator)) if is_exact else None
        return None

    def round(self, digits: int | None = None) -> IntegerNode | RealNode:
        if digits is not None:
            return self.wrap_float(round(self.value(), digits))
        return self._as_seen("rint")

    def eq(self, other: RealNode) -> ConditionNode:
        return self._compare(equal, other, "==")

    def ne(self, other: RealNode) -> ConditionNode:
        return self._compare(not_equal, other, "==", outcome=False)

    def lt(self, other: RealNode) -> ConditionNode:
        return self._compare(below, other, "<")

    def gt(self, other: RealNode) -> ConditionNode:
        return other.lt(self)

    def le(self, other: RealNode) -> ConditionNode:
        return self._compare(at_most, other, "<=")

    def ge(self, other: RealNode) -> ConditionNode:
        return other.le(self)

    def _compare(
        self,
        relation: Callable[[Index, Index], Condition],
        other: RealNode,
        comparison: builtins.str,
        *,
        outcome: bool = True,
    ) -> ConditionNode:
        """A comparison: of whole numbers as such."""
        left, right = self._whole(), other._whole()
        if left is not None and right is not None:
            return ConditionNode(self.facts, relation(left, right))
        return ConditionNode(
            self.facts, RealRelation(comparison, self.number, other.number, outcome)
        )

    def _whole(self) -> Index | None:
        """The integer that this number is for all sizes; None where it is none."""
        match self.number:
            case Real("float", (Index() as exact,)):
                return exact
            case float(number) if number.is_integer():
                return integer(int(number))
        return None


def symbolic_int(facts: ShapeFacts, index: Index) -> torch.SymInt | int:
    """`index` as torch takes it: a plain int where it is known."""
    index = facts.resolve(index)
    return index.constant if index.is_constant else torch.SymInt(IntegerNode(facts, index))


def indicator(condition: torch.SymBool) -> torch.SymInt | int:
    """1 where a condition holds, else 0; it is decided if it is more than one relation."""
    node = condition.node
    if not isinstance(node.condition, Relation):
        return int(node.bool_())
    return symbolic_int(node.facts, indicator_index(node.condition))


def index_of(number: int | torch.SymInt) -> Index:
    """The expression of a size. TypeError: a symbolic number of another front end's."""
    if isinstance(number, int):
        return integer(number)
    node = number.node
    if not isinstance(node, IntegerNode):
        raise TypeError(f"{number} is no size of fusewright's")
    return node.index


def free_symbols(number: torch.SymInt | torch.SymFloat | torch.SymBool) -> frozenset[Symbol]:
    """The symbols that a number or condition depends on."""
    node = number.node
    if isinstance(node, ConditionNode):
        return free_in(node.condition)
    if isinstance(node, IntegerNode):
        return node.index.free()
    return free_in_real(node.number)


def symbolic_float(facts: ShapeFacts, number: Operand) -> torch.SymFloat:
    """`number` as torch takes it."""
    return torch.SymFloat(RealNode(facts, number))


def known_numbers(numbers: Iterable[Number]) -> tuple[Number, ...]:
    """Sizes with those as plain ints that have turned out to be known."""
    return tuple(
        number if isinstance(number, int) else symbolic_int(number.node.facts, number.node.index)
        for number in numbers
    )
