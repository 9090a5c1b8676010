"""The guard of symbolic numbers: relations between the sizes, strides, integers and floats that are
read at several sources, as one small program that the native floor runs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fusewright.capture.guards.kinds import Guard, GuardKind
from fusewright.capture.sources import ExtentSource, Source
from fusewright.errors import Location
from fusewright.events import FailedGuard
from fusewright.ir.index import Compound, Index, RealSymbol, Symbol
from fusewright.ir.relations import Relation, RelationKind
from fusewright.number_functions import FUNCTIONS_OF_ONE
from fusewright.records import record
from fusewright.symbolic.facts import Assumption
from fusewright.symbolic.real import Operand, Real, renamed
from fusewright.symbolic.relations import RealRelation


@record
class Reading:
    """A symbol and where its number is read."""

    symbol: Symbol
    source: Source
    """The place of the number: an integer or float, or an `ExtentSource`."""


INTEGER_ITSELF: Final = 1 << 20
REAL_ITSELF: Final = INTEGER_ITSELF + 1
"""The dimensions that stand for an integer or a float itself, and not for a size of a tensor."""

_OPERATIONS: Final = {
    name: code
    for code, name in enumerate(
        (
            "slot", "number", "+", "*", "//", "%", "min", "max",
            "float", "function", "add", "sub", "mul", "truediv", "pow", "floordiv", "real %",
            "atan2", "copysign", "fmod", "real min", "real max",
            "<", "<=", "==", "is",
            RelationKind.ZERO, RelationKind.NOT_ZERO, RelationKind.NOT_NEGATIVE,
        )
    )
}  # fmt: skip
"""Operations that the native guard program computes; see native/guard_sizes.c."""

_REAL_OPERATIONS: Final = {"min": "real min", "max": "real max", "mod": "real %"}
"""The operation of each operator of a `Real` that has another name there."""

Code = list[tuple[int, int]]


@record
class ShapeGuard:
    """Relations between numbers that are read at several sources."""

    readings: tuple[Reading, ...]
    relations: tuple[Assumption, ...]

    @property
    def guard(self) -> Guard:
        """The guard that they hold."""
        return Guard(GuardKind.SHAPES, None, self)

    def subjects(self) -> list[tuple[Source, SizesExpected]]:
        """The tensors and numbers that are read, each with what is read of it."""
        reads: dict[Source, list[tuple[int, int]]] = {}
        for slot, reading in enumerate(self.readings):
            match reading.source:
                case ExtentSource(origin=origin, dim=dim, is_stride=is_stride):
                    reads.setdefault(origin, []).append((slot, -1 - dim if is_stride else dim))
                case source:
                    what = REAL_ITSELF if isinstance(reading.symbol, RealSymbol) else INTEGER_ITSELF
                    reads.setdefault(source, []).append((slot, what))
        code = self.code()
        return [
            (source, SizesExpected(self, tuple(slots), len(reads), code))
            for source, slots in reads.items()
        ]

    def code(self) -> tuple[tuple[int, int], ...]:
        """All relations as a program of the native floor's, in postfix order."""
        slots = {reading.symbol.name: slot for slot, reading in enumerate(self.readings)}
        code: Code = []
        for assumption in self.relations:
            match assumption.relation:
                case Relation(kind, difference):
                    code += [*_index_code(difference, slots), (_OPERATIONS[kind], 0)]
                case RealRelation(comparison, left, right, outcome):
                    kind = RelationKind.NOT_ZERO if outcome else RelationKind.ZERO
                    code += _real_code(left, slots) + _real_code(right, slots)
                    code += [(_OPERATIONS[comparison], 0), (_OPERATIONS[kind], 0)]
        return tuple(code)

    def failure(self, words: Sequence[int]) -> FailedGuard:
        """The first relation that does not hold for the numbers read, or what in them is too large
        for the native floor to tell; floats are given by their 64 bits.
        """
        symbols = [reading.symbol for reading in self.readings]
        values = {
            symbol.name: struct.unpack("d", struct.pack("q", word))[0]
            if isinstance(symbol, RealSymbol)
            else word
            for symbol, word in zip(symbols, words, strict=True)
        }
        false = (
            assumption for assumption in self.relations if not assumption.relation.holds(values)
        )
        failed = next(false, None)
        if failed is None:
            places = self._places()
            numbers = ", ".join(f"{places[name]} == {value}" for name, value in values.items())
            return FailedGuard("arithmetic on sizes", "within 64 bits", f"beyond: {numbers}", None)
        concerned = sorted(symbol.name for symbol in failed.relation.free())
        numbers = ", ".join(f"{self._places()[name]} == {values[name]}" for name in concerned)
        return FailedGuard(
            self._text(failed.relation), "true", f"false: {numbers}", failed.location
        )

    def texts(self) -> Iterator[tuple[str, Location | None]]:
        """Each relation as the user would write it, and the line that made it matter."""
        for assumption in self.relations:
            yield self._text(assumption.relation), assumption.location

    def _places(self) -> dict[str, str]:
        """The place where each symbol's number is read, as the user would write it."""
        return {reading.symbol.name: reading.source.expression() for reading in self.readings}

    def _text(self, relation: Relation | RealRelation) -> str:
        places = self._places()
        names = {s: s.renamed(places[s.name]) for s in relation.free()}
        match relation:
            case Relation(kind, difference):
                own = {symbol: name.index for symbol, name in names.items()}
                return str(Relation(kind, difference.substitute(own)))
            case RealRelation(comparison, left, right, outcome):
                sides = renamed(left, names), renamed(right, names)
                return str(RealRelation(comparison, *sides, outcome))


@record
class SizesExpected:
    """The numbers read of one object for the relations between sizes of several."""

    guard: ShapeGuard
    reads: tuple[tuple[int, int], ...]
    """Into which slots the object's numbers go, and what they are, as the native floor numbers
    them.
    """

    objects: int
    """The number of objects read in all."""

    code: tuple[tuple[int, int], ...]
    """The relations, as the native floor runs them."""

    @property
    def metadata(self) -> tuple[int, int, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
        """The test's operand."""
        return len(self.guard.readings), self.objects, self.reads, self.code

    @property
    def _is_float(self) -> bool:
        """Whether the object is a float, and no integer or tensor."""
        return any(what == REAL_ITSELF for _, what in self.reads)

    @property
    def why_unread(self) -> str:
        """Words added to an object whose numbers cannot be read."""
        return "" if self._is_float else ", which has no such sizes"

    def __str__(self) -> str:
        return "a finite number" if self._is_float else "sizes that fit together"


def _index_code(index: Index, slots: Mapping[str, int]) -> Code:
    code = [(_OPERATIONS["number"], index.constant)]
    for coefficient, atoms in index.terms:
        code.append((_OPERATIONS["number"], coefficient))
        for atom in atoms:
            if isinstance(atom, Compound):
                code += _index_code(atom.left, slots) + _index_code(atom.right, slots)
                code.append((_OPERATIONS[atom.operator], 0))
            else:
                code.append((_OPERATIONS["slot"], slots[atom.name]))
            code.append((_OPERATIONS["*"], 0))
        code.append((_OPERATIONS["+"], 0))
    return code


def _real_code(number: Operand, slots: Mapping[str, int]) -> Code:
    """A real number, on the stack by the 64 bits of its double."""
    match number:
        case float():
            return [(_OPERATIONS["number"], struct.unpack("q", struct.pack("d", number))[0])]
        case RealSymbol(name=name):
            return [(_OPERATIONS["slot"], slots[name])]
        case Index():
            return [*_index_code(number, slots), (_OPERATIONS["float"], 0)]
        case Real("float", (operand,)):
            return _real_code(operand, slots)
        case Real("neg", (operand,)):
            return _real_code(Real("mul", (-1.0, operand)), slots)
        case Real(operator, (operand,)):
            function = FUNCTIONS_OF_ONE.index(operator)
            return [*_real_code(operand, slots), (_OPERATIONS["function"], function)]
        case Real(operator, operands):
            code = [pair for operand in operands for pair in _real_code(operand, slots)]
            return [*code, (_OPERATIONS[_REAL_OPERATIONS.get(operator, operator)], 0)]
