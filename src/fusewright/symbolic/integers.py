"""Integers as torch's symbolic sizes compute with them: the sides of a comparison, division as
Python's, and what guards can compute in 64 bits.
"""

from __future__ import annotations

from typing import Final

from fusewright.ir.index import Compound, Index
from fusewright.ir.proof import is_nonnegative
from fusewright.ir.relations import at_least, equal
from fusewright.symbolic.facts import ShapeFacts


def is_too_large(index: Index) -> bool:
    """Whether a number in an expression is beyond what guards compute with, in 64 bits."""
    if abs(index.constant) >= _LARGEST:
        return True
    for coefficient, atoms in index.terms:
        if abs(coefficient) >= _LARGEST:
            return True
        for atom in atoms:
            if isinstance(atom, Compound) and (is_too_large(atom.left) or is_too_large(atom.right)):
                return True
    return False


_LARGEST: Final = 2**63


def sides(left: Index, right: Index) -> tuple[Index, Index]:
    """The sides of `left < right` or `left >= right`. Two equal ones where the answer is known
    without a guard: `left` is what torch's slices say for "to the end", which no size is above. An
    integer of the program may be: Python's have no end.
    """
    is_largest = left.is_constant and left.constant == _LARGEST - 1
    return (left, left) if is_largest and is_nonnegative(right) else (left, right)


def nonzero(facts: ShapeFacts, index: Index, message: str) -> Index:
    """A divisor. Raises ZeroDivisionError where it is 0."""
    if facts.decide(equal(index, 0)):
        raise ZeroDivisionError(message)
    return index


def with_positive_divisor(facts: ShapeFacts, left: Index, right: Index) -> tuple[Index, Index]:
    """The sides of the quotient `left // right`, with a positive divisor."""
    if facts.decide(at_least(right, 1)):
        return left, right
    return -left, -nonzero(facts, right, "integer division or modulo by zero")


def rough(facts: ShapeFacts, index: Index) -> int:
    """A number to sort strides by."""
    hint = facts.hint(index)
    return index.lower or 0 if hint is None else hint
