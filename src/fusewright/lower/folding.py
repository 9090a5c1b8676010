"""Identities applied while expressions are built: arithmetic on indices stays an index, and known
conditions disappear.

before                          after
------                          -----
t0 = index i1: i64              t0 = index i1 + 1: i64
t1 = add t0, 1

t0 = index i1 + 1: i64          True
t1 = ge t0, 1

Only identities that hold for every number are here: `x * 1.0` is x; `x + 0.0` is not (for -0.0).
"""

from __future__ import annotations

from collections.abc import Callable

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, as_index
from fusewright.ir.proof import decide
from fusewright.ir.relations import COMPARISONS
from fusewright.ir.value import Constant, Expressions, IndexValue, Value

Fold = Callable[[Expressions, tuple[Value, ...]], Value | None]
"""The simpler value that an operation on these arguments is, or None."""


def fold(expressions: Expressions, operation: str, arguments: tuple[Value, ...]) -> Value | None:
    """The simpler value that `operation` on `arguments` is, or None."""
    rule = _RULES.get(operation)
    return None if rule is None else rule(expressions, arguments)


def as_known_index(value: Value) -> Index | None:
    """The index expression that an i64 value is, when it is one."""
    if value.dtype is not DType.I64:
        return None
    match value:
        case IndexValue(index=index):
            return index
        case Constant(value=number):
            return as_index(int(number))
    return None


def _is(value: Value, number: int) -> bool:
    return isinstance(value, Constant) and value.value == number


def _on_indices(
    expressions: Expressions,
    arguments: tuple[Value, ...],
    compute: Callable[[Index, Index], Index | None],
) -> Value | None:
    """`compute` on two indices; None where one of the values is something else."""
    left, right = map(as_known_index, arguments)
    if left is None or right is None:
        return None
    result = compute(left, right)
    return None if result is None else expressions.index(result)


def _add(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    left, right = arguments
    if left.dtype.is_integer:
        if _is(right, 0):
            return left
        if _is(left, 0):
            return right
    return _on_indices(expressions, arguments, lambda a, b: a + b)


def _sub(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    left, right = arguments
    if left.dtype.is_integer and _is(right, 0):
        return left
    return _on_indices(expressions, arguments, lambda a, b: a - b)


def _mul(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    left, right = arguments
    if _is(right, 1):
        return left
    if _is(left, 1):
        return right
    return _on_indices(
        expressions, arguments, lambda a, b: a * b if a.is_constant or b.is_constant else None
    )


def _floor_div(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    return _on_indices(
        expressions, arguments, lambda a, b: a // b if b.is_constant and int(b) > 0 else None
    )


def _remainder(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    return _on_indices(
        expressions, arguments, lambda a, b: a % b if b.is_constant and int(b) > 0 else None
    )


def _bitwise_and(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    return _with_neutral(arguments, neutral=True)


def _bitwise_or(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    return _with_neutral(arguments, neutral=False)


def _with_neutral(arguments: tuple[Value, ...], neutral: bool) -> Value | None:
    """`and` or `or` where one of two bools is known: the other argument if the known one is
    `neutral`, else the known one.
    """
    left, right = arguments
    for argument, other in ((left, right), (right, left)):
        if isinstance(argument, Constant) and argument.dtype is DType.BOOL:
            return other if argument.value == neutral else argument
    return None


def _bitwise_not(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    (argument,) = arguments
    if isinstance(argument, Constant) and argument.dtype is DType.BOOL:
        return expressions.constant(not argument.value, DType.BOOL)
    return None


def _where(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
    condition, chosen, otherwise = arguments
    if isinstance(condition, Constant):
        return chosen if condition.value else otherwise
    return chosen if chosen is otherwise else None


def _comparison(operation: str) -> Fold:
    """The fold of a comparison of indices, where its outcome is proved."""

    def folded(expressions: Expressions, arguments: tuple[Value, ...]) -> Value | None:
        left, right = map(as_known_index, arguments)
        if left is None or right is None:
            return None
        holds = decide(COMPARISONS[operation](left, right))
        return None if holds is None else expressions.constant(holds, DType.BOOL)

    return folded


_RULES: dict[str, Fold] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "floor_div": _floor_div,
    "remainder": _remainder,
    "bitwise_and": _bitwise_and,
    "bitwise_or": _bitwise_or,
    "bitwise_not": _bitwise_not,
    "where": _where,
    **{operation: _comparison(operation) for operation in COMPARISONS},
}
"""Rules by operation of `ir.ops`."""
