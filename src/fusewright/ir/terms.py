"""The terms that an `Index` is a sum of, each a coefficient and a product of atoms: how they print,
and how one divides another.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusewright.ir.index import Atom, Index, Term


class Printed:
    """Structural equality and order by the printed text, which is made once."""

    __slots__ = ("_hash", "text")
    text: str
    _hash: int

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


def text_of(atom: Atom) -> str:
    """What atoms are sorted by."""
    return atom.text


def printed(terms: tuple[Term, ...], constant: int) -> str:
    """The text of a sum: larger coefficients first, as a person writes an address."""
    pieces: list[str] = []
    for coefficient, atoms in sorted(terms, key=lambda term: -abs(term[0])):
        body = "*".join(atom.text for atom in atoms)
        size = abs(coefficient)
        piece = body if size == 1 else f"{size}*{body}"
        sign = "-" if coefficient < 0 else "+"
        pieces.append(f" {sign} {piece}" if pieces else (f"-{piece}" if coefficient < 0 else piece))
    if constant or not pieces:
        sign = "-" if constant < 0 else "+"
        pieces.append(f" {sign} {abs(constant)}" if pieces else str(constant))
    return "".join(pieces)


def operand_text(index: Index) -> str:
    """`index` as an operand: a sum in parentheses."""
    alone = not index.terms or (
        len(index.terms) == 1
        and not index.constant
        and index.terms[0][0] == 1
        and len(index.terms[0][1]) == 1
    )
    return index.text if alone and not index.text.startswith("-") else f"({index.text})"


def without(factors: tuple[Atom, ...], atoms: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    """`factors` without `atoms`, or None when they do not all occur."""
    remaining = list(factors)
    for atom in atoms:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


ONE: Term = (1, ())
"""The empty product, which divides all others."""


def shared(left: Term, right: Term) -> Term:
    """The greatest product known to divide both terms and to be positive."""
    remaining = list(right[1])
    atoms = []
    for atom in left[1]:
        if atom in remaining and (atom.bounds()[0] or 0) > 0:
            remaining.remove(atom)
            atoms.append(atom)
    return gcd(left[0], right[0]), tuple(atoms)
