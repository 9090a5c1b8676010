"""Quotients, remainders, minima and maxima of index expressions, simplified as far as the prover
allows: `(768*i + r) // 768` is `i` where `0 <= r < 768`.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Final

from fusewright.ir.index import (
    SIMPLIFY,
    Compound,
    Index,
    IndexLike,
    Term,
    as_index,
    integer,
    monomial,
    sum_of,
)
from fusewright.ir.proof import is_nonnegative
from fusewright.ir.terms import ONE, shared, without

REMEMBERED: Final = 4096
"""How many quotients and remainders are remembered: one is simplified by way of simpler ones, most
of which come again. Without this, expressions with divisions inside of divisions take exponential
time.
"""


@lru_cache(maxsize=REMEMBERED)
def floor_divide(left: Index, right: Index) -> Index:
    """`left // right`, simplified; `right` is positive."""
    if right == 1 or left == 0:
        return left
    if left == right:
        return integer(1)
    if left.is_constant and right.is_constant:
        return integer(left.constant // right.constant)
    quotient, rest = _split(left, right)
    if quotient != 0:
        return quotient + floor_divide(rest, right)
    if _within(rest, right):
        return integer(0)
    simpler = _simpler_quotient(rest, right)
    return monomial(1, (Compound("//", rest, right),)) if simpler is None else simpler


@lru_cache(maxsize=REMEMBERED)
def remainder(left: Index, right: Index) -> Index:
    """`left % right`, simplified; `right` is positive, so the result is in `[0, right)`."""
    if right == 1 or left == 0 or left == right:
        return integer(0)
    if left.is_constant and right.is_constant:
        return integer(left.constant % right.constant)
    if right.is_constant and left.divisor % right.constant == 0:
        return integer(0)
    _, rest = _split(left, right)
    if rest == 0 or _within(rest, right):
        return rest
    simpler = _simpler_remainder(rest, right)
    return monomial(1, (Compound("%", rest, right),)) if simpler is None else simpler


def minimum(left: IndexLike, right: IndexLike) -> Index:
    """The lesser of two expressions."""
    left, right = as_index(left), as_index(right)
    if is_nonnegative(right - left):
        return left
    return right if is_nonnegative(left - right) else _extreme("min", left, right)


def maximum(left: IndexLike, right: IndexLike) -> Index:
    """The greater of two expressions."""
    left, right = as_index(left), as_index(right)
    if is_nonnegative(left - right):
        return left
    return right if is_nonnegative(right - left) else _extreme("max", left, right)


def _extreme(operator: str, left: Index, right: Index) -> Index:
    """A minimum or maximum, whose operands are ordered by their text."""
    first, second = (left, right) if left.text <= right.text else (right, left)
    return monomial(1, (Compound(operator, first, second),))


def _within(index: Index, limit: Index) -> bool:
    """True when `0 <= index < limit` is proved."""
    if not is_nonnegative(index):
        return False
    quotient = _single_compound(index, "//")
    return is_nonnegative(limit - index - 1) or (
        quotient is not None and is_nonnegative(limit * quotient.right - quotient.left - 1)
    )


def _split(left: Index, right: Index) -> tuple[Index, Index]:
    """`left = right * quotient + rest`, moving into the quotient each term that `right` divides
    exactly.
    """
    if len(right.all_terms()) != 1:
        return _split_polynomial(left, right)
    divisor, atoms = right.all_terms()[0]
    quotient: list[Term] = []
    rest: list[Term] = []
    for coefficient, factors in left.terms:
        remaining = without(factors, atoms)
        if remaining is None or coefficient % divisor:
            rest.append((coefficient, factors))
        else:
            quotient.append((coefficient // divisor, remaining))
    whole = left.constant // divisor if not atoms else 0
    return sum_of(quotient, whole), sum_of(rest, left.constant - whole * divisor)


def _split_polynomial(left: Index, right: Index) -> tuple[Index, Index]:
    """A divisor of several terms divides only its own multiples: `(2*s0 + 2) // (s0 + 1)`, `i*(s0 +
    1) // (s0 + 1)`.
    """
    coefficient, atoms = right.terms[0]
    quotient = integer(0)
    for factor, factors in left.terms:
        remaining = without(factors, atoms)
        if remaining is not None and factor % coefficient == 0:
            candidate = monomial(factor // coefficient, remaining)
            trial = left - right * (quotient + candidate)
            if len(trial.all_terms()) < len((left - right * quotient).all_terms()):
                quotient = quotient + candidate
    return quotient, left - right * quotient


def _single_compound(index: Index, operator: str) -> Compound | None:
    """The compound when `index` is just one `operator` atom."""
    if index.constant or len(index.terms) != 1:
        return None
    coefficient, atoms = index.terms[0]
    if coefficient != 1 or len(atoms) != 1:
        return None
    atom = atoms[0]
    return atom if isinstance(atom, Compound) and atom.operator == operator else None


def _simpler_quotient(left: Index, right: Index) -> Index | None:
    """`left // right` said more simply, for a divisor of one term; None where nothing is known."""
    if len(right.all_terms()) != 1:
        return None
    inner = _single_compound(left, "//")
    if inner is not None and len(inner.right.all_terms()) == 1:
        return floor_divide(inner.left, inner.right * right)
    modulo = _single_compound(left, "%")
    if modulo is not None:
        times, rest = _split(modulo.right, right)
        if rest == 0:
            return remainder(floor_divide(modulo.left, right), times)
    factor = _common_factor(left, right)
    if factor != ONE:
        # floor((f*x + c) / (f*k)) = floor((x + floor(c/f)) / k): flooring twice is flooring once.
        return floor_divide(_over(left, factor)[0], _over(right, factor)[0])
    grouped = _grouped(left, right)
    return None if grouped is None else floor_divide(grouped[0], right)


def _simpler_remainder(left: Index, right: Index) -> Index | None:
    """`left % right` said more simply, for a divisor of one term; None where nothing is known."""
    if len(right.all_terms()) != 1:
        return None
    modulo = _single_compound(left, "%")
    if modulo is not None and _split(modulo.right, right)[1] == 0:
        return remainder(modulo.left, right)
    factor = _common_factor(left, right)
    if factor != ONE:
        reduced, rest = _over(left, factor)
        return remainder(reduced, _over(right, factor)[0]) * monomial(*factor) + rest
    grouped = _grouped(left, right)
    return None if grouped is None else remainder(grouped[0], right) + grouped[1]


def _common_factor(left: Index, right: Index) -> Term:
    """The greatest product that divides `right` and every term of `left`; its constant may be left
    over, if it is below that product.
    """
    factor = reduce(shared, left.terms, right.all_terms()[0])
    if factor[1] and not _within(integer(left.constant), monomial(*factor)):
        return factor[0], ()
    return factor


def _over(index: Index, factor: Term) -> tuple[Index, int]:
    """`index` as a multiple of a factor of all its terms, and the constant that is left over."""
    divisor, atoms = factor
    whole, rest = (0, index.constant) if atoms else divmod(index.constant, divisor)
    terms = [(c // divisor, without(factors, atoms) or ()) for c, factors in index.terms]
    return sum_of(terms, whole), rest


def _grouped(left: Index, right: Index) -> tuple[Index, Index] | None:
    """`left` as large terms, which share a step with `right`, and a rest that is below that step
    and so never carries: for `(768*i + r) // 1536` with `0 <= r < 768` these are `768*i` and `r`.
    """
    divisor = right.all_terms()[0]
    steps = {shared(term, divisor) for term in left.terms} - {ONE}
    for step in sorted(steps, key=lambda step: (len(step[1]), step[0]), reverse=True):
        coefficient, atoms = step
        large: list[Term] = []
        small: list[Term] = []
        for term in left.terms:
            fits = term[0] % coefficient == 0 and without(term[1], atoms) is not None
            (large if fits else small).append(term)
        over = left.constant if atoms else left.constant % coefficient
        rest = sum_of(small, over)
        if small and _within(rest, monomial(*step)):
            return sum_of(large, left.constant - over), rest
    return None


SIMPLIFY.update({"//": floor_divide, "%": remainder, "min": minimum, "max": maximum})
