"""Integer expressions over loop variables and size symbols, kept canonical: sizes, strides,
offsets, accesses.

An `Index` is a sum of integer coefficient x product of atoms, plus a constant. An atom is a
`Symbol`, or a floor division, remainder, minimum or maximum of two expressions that could not be
simplified away. Division is floor division and divisors are positive. Every constructor simplifies,
so equal expressions are usually equal objects in structure; equality is structural, with the hash
computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from math import gcd, prod
from typing import Any, ClassVar

from fusewright.ir import intervals
from fusewright.ir.intervals import Bound, Interval
from fusewright.ir.terms import Printed, printed, text_of


class Symbol(Printed):
    """A named number, of one of three kinds, its subclasses. `lower` and `upper` are inclusive
    bounds, which `multiple` divides.
    """

    __slots__ = ("_key", "lower", "multiple", "name", "upper")
    letter: ClassVar[str]
    """The first letter of canonical names of the kind."""

    def __init__(
        self, name: str, lower: Bound = None, upper: Bound = None, multiple: int = 1
    ) -> None:
        self.name = name
        self.lower = lower
        self.upper = upper
        self.multiple = multiple
        self.text = name
        self._set_key(name, lower, upper, multiple)

    def _set_key(self, *key: object) -> None:
        """Set the key by which symbols of one kind are compared, and its hash."""
        self._key = key
        self._hash = hash(key)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Symbol)
            and self._hash == other._hash
            and type(self) is type(other)
            and self._key == other._key
        )

    __hash__ = Printed.__hash__

    def bounds(self) -> Interval:
        return self.lower, self.upper

    @property
    def index(self) -> Index:
        """The expression that is this symbol alone."""
        return Index(((1, (self,)),), 0)

    def renamed(self, name: str) -> Symbol:
        """A symbol of this kind, of which the same is known."""
        return type(self)(name, self.lower, self.upper, self.multiple)


class SizeSymbol(Symbol):
    """A size (`s0`) or another integer: one that data decides (`u0`), an index that was loaded
    (`k0`).
    """

    __slots__ = ()
    letter = "s"


class RealSymbol(Symbol):
    """A real number that varies (`f0`). It takes part in no index arithmetic: as a value it has
    type f64, and machine code is passed the 64 bits of its double.
    """

    __slots__ = ()
    letter = "f"

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def renamed(self, name: str) -> RealSymbol:
        return RealSymbol(name)


class LoopSymbol(Symbol):
    """A loop variable (`i0`, `r0`), which runs over `0 <= symbol < extent`. The extent may be
    symbolic.
    """

    __slots__ = ("extent",)

    def __init__(self, name: str, extent: IndexLike) -> None:
        self.extent = as_index(extent)
        last = self.extent.upper
        super().__init__(name, 0, None if last is None else last - 1)
        self._set_key(name, self.extent)

    def renamed(self, name: str) -> LoopSymbol:
        return LoopSymbol(name, self.extent)


def _operand_text(index: Index) -> str:
    """An operand of a compound: a sum in parentheses."""
    alone = not index.terms or (
        len(index.terms) == 1
        and not index.constant
        and index.terms[0][0] == 1
        and len(index.terms[0][1]) == 1
    )
    return index.text if alone and not index.text.startswith("-") else f"({index.text})"


class Compound(Printed):
    """`left // right`, `left % right`, `min(left, right)` or `max(left, right)`, irreducible."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: str, left: Index, right: Index) -> None:
        self.operator = operator
        self.left = left
        self.right = right
        if operator in ("min", "max"):
            self.text = f"{operator}({left}, {right})"
        else:
            self.text = f"({_operand_text(left)} {operator} {_operand_text(right)})"
        self._hash = hash((operator, left, right))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Compound)
            and self._hash == other._hash
            and self.operator == other.operator
            and self.left == other.left
            and self.right == other.right
        )

    __hash__ = Printed.__hash__

    def bounds(self) -> Interval:
        return intervals.OF_COMPOUNDS[self.operator](self.left.bounds(), self.right.bounds())

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur in it."""
        return self.left.free() | self.right.free()


Atom = Symbol | Compound
Term = tuple[int, tuple[Atom, ...]]
"""A non-zero coefficient and a non-empty product of atoms, sorted by text."""


class Index(Printed):
    """A canonical sum: `terms` sorted by their atoms' text, plus `constant`."""

    __slots__ = ("_bounds", "_free", "_printed", "constant", "terms")

    def __init__(self, terms: tuple[Term, ...], constant: int) -> None:
        """Private to this module: others use `integer`, `Symbol.index`, the operators and the
        functions below.
        """
        self.terms = terms
        self.constant = constant
        self._hash = hash((terms, constant))
        self._bounds: Interval | None = None
        self._free: frozenset[Symbol] | None = None
        self._printed: str | None = None

    @property
    def text(self) -> str:  # type: ignore[override]
        """How it prints; made when first asked for, because most expressions never are."""
        if self._printed is None:
            self._printed = printed(self.terms, self.constant)
        return self._printed

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return not self.terms and self.constant == other
        return (
            isinstance(other, Index)
            and self._hash == other._hash
            and self.constant == other.constant
            and self.terms == other.terms
        )

    __hash__ = Printed.__hash__

    # Arithmetic ----------------------------------------------------------------------------------

    def __add__(self, other: IndexLike) -> Index:
        other = as_index(other)
        if not other.terms:
            return Index(self.terms, self.constant + other.constant) if other.constant else self
        if not self.terms and not self.constant:
            return other
        return sum_of((*self.terms, *other.terms), self.constant + other.constant)

    def __mul__(self, other: IndexLike) -> Index:
        other = as_index(other)
        if other == 1:
            return self
        if self == 1:
            return other
        if not other.terms or not self.terms:
            return (
                _scaled(self, other.constant) if not other.terms else _scaled(other, self.constant)
            )
        terms = [
            (a * b, tuple(sorted((*left, *right), key=text_of)))
            for a, left in self.all_terms()
            for b, right in other.all_terms()
        ]
        return sum_of(terms)

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: IndexLike) -> Index:
        return self + as_index(other) * -1

    def __floordiv__(self, other: IndexLike) -> Index:
        return SIMPLIFY["//"](self, as_index(other))

    def __mod__(self, other: IndexLike) -> Index:
        return SIMPLIFY["%"](self, as_index(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: IndexLike) -> Index:
        return as_index(other) - self

    def __rfloordiv__(self, other: IndexLike) -> Index:
        return SIMPLIFY["//"](as_index(other), self)

    def __rmod__(self, other: IndexLike) -> Index:
        return SIMPLIFY["%"](as_index(other), self)

    def all_terms(self) -> tuple[Term, ...]:
        """The terms, and the constant as one without atoms unless it is 0."""
        return (*self.terms, (self.constant, ())) if self.constant else self.terms

    # Questions -----------------------------------------------------------------------------------

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def __int__(self) -> int:
        if self.terms:
            raise TypeError(f"the size {self} is symbolic")
        return self.constant

    def bounds(self) -> Interval:
        """Inclusive bounds that hold for all values of the symbols."""
        if self._bounds is None:
            self._bounds = self._interval()
        return self._bounds

    def _interval(self) -> Interval:
        total: Interval = (self.constant, self.constant)
        for coefficient, atoms in self.terms:
            term: Interval = (coefficient, coefficient)
            for atom in atoms:
                term = intervals.multiply(term, atom.bounds())
            total = intervals.add(total, term)
        return total

    @property
    def lower(self) -> Bound:
        return self.bounds()[0]

    @property
    def upper(self) -> Bound:
        return self.bounds()[1]

    @property
    def divisor(self) -> int:
        """The greatest integer known to divide this expression; 0 for the constant 0."""
        return reduce(
            gcd, (abs(c) * prod(map(_multiple, a)) for c, a in self.terms), abs(self.constant)
        )

    def free(self) -> frozenset[Symbol]:
        """The symbols that occur here, also inside divisions; not those of their extents."""
        if self._free is None:
            symbols: set[Symbol] = set()
            for _, atoms in self.terms:
                for atom in atoms:
                    if isinstance(atom, Symbol):
                        symbols.add(atom)
                    else:
                        symbols |= atom.left.free() | atom.right.free()
            self._free = frozenset(symbols)
        return self._free

    def stride(self, symbol: Symbol) -> Index | None:
        """The step of this expression when `symbol` grows by one, if it is the same everywhere,
        else None.

        `(128*i + r).stride(i) == 128`; `(i // 4).stride(i) is None`; a symbol that does not occur
        has stride 0.
        """
        if symbol not in self.free():
            return integer(0)
        taken: list[Term] = []
        for coefficient, atoms in self.terms:
            count = sum(atom == symbol for atom in atoms)
            rest = tuple(atom for atom in atoms if atom != symbol)
            if count > 1 or any(isinstance(a, Compound) and symbol in a.free() for a in rest):
                return None
            if count:
                taken.append((coefficient, rest))
        return sum_of(taken)

    def substitute(self, replacements: Mapping[Symbol, Index]) -> Index:
        """Replace symbols by expressions, simplifying again."""
        if not self.free() & replacements.keys():
            return self
        total = integer(self.constant)
        for coefficient, atoms in self.terms:
            product = integer(coefficient)
            for atom in atoms:
                product = product * _substitute_atom(atom, replacements)
            total = total + product
        return total

    def evaluate(self, values: Mapping[str, Any]) -> int:
        """The integer for given values of all its symbols, by name."""
        return self.constant + sum(
            coefficient * prod(_evaluate_atom(atom, values) for atom in atoms)
            for coefficient, atoms in self.terms
        )


IndexLike = Index | Symbol | int

SIMPLIFY: dict[str, Callable[[Index, Index], Index]] = {}
"""How quotients, remainders, minima and maxima are made, by operator. `ir/compounds.py` enters its
functions here: they prove what they simplify, and proofs compute with sums, of which divisions are
a part.
"""


def integer(value: int) -> Index:
    """The constant expression `value`."""
    return _SMALL[value] if 0 <= value < len(_SMALL) else Index((), value)


def as_index(value: IndexLike) -> Index:
    if isinstance(value, Index):
        return value
    return integer(value) if isinstance(value, int) else value.index


def extent(loop: LoopSymbol) -> Index:
    """How often a loop runs."""
    return loop.extent


def product(factors: Iterable[IndexLike]) -> Index:
    """The product of all factors; 1 for none."""
    return reduce(lambda total, factor: total * as_index(factor), factors, integer(1))


def contiguous_strides(size: Iterable[IndexLike]) -> tuple[Index, ...]:
    """Row-major strides of `size`, as torch makes them (an extent of 0 counts as 1)."""
    strides: list[Index] = []
    step = integer(1)
    for extent in reversed([as_index(s) for s in size]):
        strides.append(step)
        if extent != 0:
            step = step * extent
    return tuple(reversed(strides))


def known_multiple(index: IndexLike, factor: int) -> bool:
    """True when `factor` is proved to divide `index`."""
    divisor = as_index(index).divisor
    return divisor % factor == 0


# Construction -------------------------------------------------------------------------------------


def _scaled(index: Index, factor: int) -> Index:
    """`index * factor`: the order of terms stays, and no two cancel."""
    if factor == 0:
        return integer(0)
    terms = tuple((coefficient * factor, atoms) for coefficient, atoms in index.terms)
    rejoined = _rejoin(terms, index.constant * factor)
    return Index(terms, index.constant * factor) if rejoined is None else rejoined


def monomial(coefficient: int, atoms: tuple[Atom, ...]) -> Index:
    """A coefficient that is not 0 times a product of atoms, which are sorted, or none."""
    return Index(((coefficient, atoms),), 0) if atoms else integer(coefficient)


def sum_of(terms: Iterable[Term], constant: int = 0) -> Index:
    """The sum of terms, which may have no atoms, and a constant.

    Equal products are collected, zeros dropped, and divisions undone: `b*(x//b) + x%b = x`.
    """
    collected: dict[tuple[Atom, ...], int] = {}
    for coefficient, atoms in terms:
        collected[atoms] = collected.get(atoms, 0) + coefficient
    constant += collected.pop((), 0)
    kept = tuple(
        sorted(
            ((coefficient, atoms) for atoms, coefficient in collected.items() if coefficient),
            key=lambda term: [atom.text for atom in term[1]],
        )
    )
    rejoined = _rejoin(kept, constant)
    return Index(kept, constant) if rejoined is None else rejoined


def _rejoin(terms: tuple[Term, ...], constant: int) -> Index | None:
    """`c*x%b` beside `c*b*(x//b)` is `c*x`; so is `c*b*(x//b)` alone where `b` divides `x`. None
    where the sum has no such terms.
    """
    if not any(
        isinstance(a, Compound) and a.operator in ("%", "//") for _, atoms in terms for a in atoms
    ):
        return None
    by_atoms = {atoms: coefficient for coefficient, atoms in terms}
    for coefficient, atoms in terms:
        for position, atom in enumerate(atoms):
            if not isinstance(atom, Compound):
                continue
            others = atoms[:position] + atoms[position + 1 :]
            outer = monomial(coefficient, others)
            taken = [atoms]
            if atom.operator == "//" and _is_exact(atom, coefficient):
                outer = monomial(coefficient // atom.right.constant, others)
            elif atom.operator == "%":
                partner = outer * atom.right * (atom.left // atom.right)
                if partner.is_constant or partner.constant:
                    continue
                if any(by_atoms.get(term[1]) != term[0] for term in partner.terms):
                    continue
                taken += [term[1] for term in partner.terms]
            else:
                continue
            rest = tuple(term for term in terms if term[1] not in taken)
            joined = outer * atom.left
            return sum_of((*rest, *joined.terms), constant + joined.constant)
    return None


def _is_exact(quotient: Compound, coefficient: int) -> bool:
    """Whether `coefficient * quotient` is a multiple of what is divided: nothing was cut off."""
    divisor = quotient.right.constant
    return (
        quotient.right.is_constant
        and coefficient % divisor == 0
        and quotient.left.divisor % divisor == 0
    )


def _substitute_atom(atom: Atom, replacements: Mapping[Symbol, Index]) -> Index:
    if isinstance(atom, Symbol):
        return replacements.get(atom, atom.index)
    left = atom.left.substitute(replacements)
    right = atom.right.substitute(replacements)
    return SIMPLIFY[atom.operator](left, right)


def _evaluate_atom(atom: Atom, values: Mapping[str, Any]) -> int:
    if isinstance(atom, Symbol):
        return values[atom.name]  # type: ignore[no-any-return]
    return _EVALUATE[atom.operator](atom.left.evaluate(values), atom.right.evaluate(values))


# Bounds and divisibility --------------------------------------------------------------------------


def _multiple(atom: Atom) -> int:
    if isinstance(atom, Symbol):
        return atom.multiple
    if atom.operator == "//":
        return 1
    return gcd(atom.left.divisor, atom.right.divisor)


_EVALUATE: dict[str, Callable[[int, int], int]] = {
    "//": lambda left, right: left // right,
    "%": lambda left, right: left % right,
    "min": min,
    "max": max,
}
_SMALL = [Index((), value) for value in range(1025)]
