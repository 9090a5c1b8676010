"""Numbers of a native plan: an expression over sizes is computed once, where it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.ir.index import Atom, Compound, Index, Symbol, integer
from fusewright.runtime.calling import SymbolSource


class Numbers:
    """The numbers that a plan's operations so far give; `write` adds an operation."""

    def __init__(self, write: Callable[..., None]) -> None:
        self.values: list[int] = []
        """Their values when a call begins."""

        self.operations = 0
        """How many operations compute numbers; constants take none."""

        self._add = write
        self._computed: dict[Index | Compound, int] = {}
        self._symbols: dict[str, int] = {}
        self._objects: dict[str, int] = {}
        """By symbol, the slot of the object that is its number."""

    def take_object(self, symbol: str, slot: int) -> None:
        """The number of a symbol is the object in a slot."""
        self._objects[symbol] = slot

    def compute(self, source: SymbolSource) -> None:
        """The number of a symbol is what an argument, or a size or stride of one, gives."""
        place = self._new(0)
        if source.dimension is None:
            self._write("read number", place, source.position)
        else:
            kind = "read stride" if source.is_stride else "read size"
            self._write(kind, place, source.position, source.dimension)
        if source.factor is not None and source.rest is not None:
            place = self._combine("add", [place, self.place(-source.rest)])
            place = self._combine("//", [place, self.place(source.factor)])
        self._symbols[source.symbol] = place

    def place(self, index: Index) -> int:
        """The place of an expression's number, which is computed where it is not yet known."""
        if index not in self._computed:
            self._computed[index] = self._sum(index) if index.terms else self._new(index.constant)
        return self._computed[index]

    def _sum(self, index: Index) -> int:
        parts = [self._product(coefficient, atoms) for coefficient, atoms in index.terms]
        if index.constant:
            parts.append(self.place(integer(index.constant)))
        return self._combine("add", parts)

    def _product(self, coefficient: int, atoms: Sequence[Atom]) -> int:
        factors = [self._atom(atom) for atom in atoms]
        if coefficient != 1:
            factors.append(self.place(integer(coefficient)))
        return self._combine("multiply", factors)

    def _atom(self, atom: Atom) -> int:
        if isinstance(atom, Symbol):
            return self._symbol(atom.name)
        if atom not in self._computed:
            parts = [self.place(atom.left), self.place(atom.right)]
            self._computed[atom] = self._combine(atom.operator, parts)
        return self._computed[atom]

    def _symbol(self, name: str) -> int:
        if name not in self._symbols:
            self._symbols[name] = self._new(0)
            self._write("read number", self._symbols[name], self._objects[name])
        return self._symbols[name]

    def _combine(self, operation: str, parts: Sequence[int]) -> int:
        """The sum or product of numbers, or what another operation makes of two."""
        total, *others = parts
        for part in others:
            place = self._new(0)
            self._write(operation, place, total, part)
            total = place
        return total

    def _write(self, *operation: object) -> None:
        self.operations += 1
        self._add(*operation)

    def _new(self, value: int) -> int:
        self.values.append(value)
        return len(self.values) - 1
