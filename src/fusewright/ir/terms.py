"""The terms that an `Index` is a sum of, each a coefficient and a product of atoms: how they print,
and how one divides another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Final, Protocol, TypeVar


class Factor(Protocol):
    """An atom, as far as its terms ask: `ir.index` has the classes."""

    text: str

    def bounds(self) -> tuple[int | None, int | None]: ...


AnyFactor = TypeVar("AnyFactor", bound=Factor)
Product = tuple[int, tuple[AnyFactor, ...]]
"""A coefficient, and the atoms that it multiplies."""


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


def text_of(atom: Factor) -> str:
    """The text of an atom, by which atoms are sorted."""
    return atom.text


def printed(terms: Sequence[Product[AnyFactor]], constant: int) -> str:
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


def without(
    factors: Sequence[AnyFactor], atoms: Sequence[AnyFactor]
) -> tuple[AnyFactor, ...] | None:
    """`factors` without `atoms`, or None when they do not all occur."""
    remaining = list(factors)
    for atom in atoms:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


ONE: Final[tuple[int, tuple[()]]] = (1, ())
"""The empty product, which divides all others."""


def shared(left: Product[AnyFactor], right: Product[AnyFactor]) -> Product[AnyFactor]:
    """The greatest product known to divide both terms and to be positive."""
    remaining = list(right[1])
    atoms = []
    for atom in left[1]:
        if atom in remaining and (atom.bounds()[0] or 0) > 0:
            remaining.remove(atom)
            atoms.append(atom)
    return gcd(left[0], right[0]), tuple(atoms)
