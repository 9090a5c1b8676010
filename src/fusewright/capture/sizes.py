"""The symbolic sizes of one capture: which sizes and integers are symbols, where each is read, and
what has to hold of them when the captured code is used again.

A size becomes a symbol when it was seen to differ between calls (automatic dynamic), when all are
wanted (`dynamic=True`), or when the user has marked it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import torch

from fusewright.capture.guards import Guard, GuardKind
from fusewright.capture.sources import ExtentSource, Source
from fusewright.capture.tensor_pattern import Extents
from fusewright.errors import Location, MarkedDimension
from fusewright.events import FailedGuard
from fusewright.ir.index import Compound, Index, Symbol, integer
from fusewright.records import field, record
from fusewright.symbolic.facts import Assumption, ShapeFacts
from fusewright.symbolic.nodes import Number, index_of, symbolic_int
from fusewright.symbolic.relations import Kind, Relation, at_least, equal

LARGEST: Final = 2**63 - 1

MARKS: Final = "_fusewright_dynamic"
"""The attribute of a tensor in which `mark_dynamic` leaves its `Mark`s, by dimension."""


@record
class Mark:
    """What the user says of a dimension: that it varies, between these inclusive bounds."""

    minimum: int | None = None
    maximum: int | None = None


def mark_dynamic(
    tensor: torch.Tensor,
    dim: int | Sequence[int],
    *,
    min: int | None = None,
    max: int | None = None,
) -> None:
    """Say that a dimension of `tensor` (or each of several) varies from call to call: the first
    compile takes it for any size already, and where the program needs one size that is an error.

    `min`, `max`: the sizes that occur, inclusive; None: any from 2 on. A tensor that has the size 0
    or 1 there is compiled for that size alone. Raises: IndexError for a dimension that the tensor
    does not have; ValueError where its size is not between the bounds.
    """
    for each in (dim,) if isinstance(dim, int) else dim:
        size = tensor.size(each)
        if (min is not None and size < min) or (max is not None and size > max):
            raise ValueError(
                f"dimension {each} has size {size}, which is not between the bounds {min} and {max}"
            )
        marks = {**getattr(tensor, MARKS, {}), each % tensor.dim(): Mark(min, max)}
        setattr(tensor, MARKS, marks)


class SizeHistory:
    """What sizes and integers one code was called with, by where they were read.

    `dynamic`: None finds out what varies; True takes all to vary that may; False none. `of_data`:
    whether sizes may depend on data.
    """

    def __init__(self, dynamic: bool | None = None, of_data: bool = False) -> None:
        self.dynamic = dynamic
        self.of_data = of_data
        self.constant: set[Source] = set()
        """What has to be taken as it is, since an operator takes no symbol for it."""

        self._seen: dict[str, tuple[int | None, ...]] = {}
        """The numbers at a place; None for one that varies."""

    def varying(self, place: str, numbers: tuple[int, ...], of_call: bool) -> set[int]:
        """Note what is found at a place; the positions of the numbers that vary. `of_call`: whether
        this belongs to the call's arguments.
        """
        if self.dynamic is False:
            return set()
        if self.dynamic and of_call:
            return set(range(len(numbers)))
        before = self._seen.get(place, numbers)
        if len(before) != len(numbers):
            before = numbers
        now = tuple(b if a == b else None for a, b in zip(before, numbers, strict=True))
        self._seen[place] = now
        return {position for position, number in enumerate(now) if number is None}

    def varies(self, place: str, number: int, of_call: bool) -> bool:
        """Whether an integer at a place would be found to vary."""
        if self.dynamic and of_call:
            return True
        seen = self._seen.get(place)
        return seen is not None and seen != (number,)


@record
class Reading:
    """A symbol and where its number is read."""

    symbol: Symbol
    source: Source
    """What names the number: an integer, or an `ExtentSource`."""


@record
class SymbolicShape:
    """The sizes and strides of an input, some of them symbols."""

    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]

    @property
    def open(self) -> tuple[Extents, Extents]:
        """The sizes and strides as guards compare them: None for those that are relations'."""
        return _open(self.sizes), _open(self.strides)


def _open(extents: tuple[Number, ...]) -> Extents:
    return tuple(extent if isinstance(extent, int) else None for extent in extents)


@record(frozen=False)
class Sizes:
    """The symbols of one capture."""

    history: SizeHistory
    facts: ShapeFacts
    on_first: Callable[[], None]
    """Called before the first symbol is made."""

    readings: dict[str, Reading] = field(default_factory=dict)
    """By the symbol's name."""

    _marked: list[tuple[str, Symbol]] = field(default_factory=list)
    _layout: list[Assumption] = field(default_factory=list)
    """How strides follow from sizes."""

    # -- what becomes a symbol --------------------------------------------------------------------

    def tensor(self, tensor: torch.Tensor, source: Source) -> SymbolicShape | None:
        """The shape of an input with its symbols; None when it has none.

        Parameters keep their sizes. Sizes 0 and 1 are taken as they are. A stride is what follows
        from the sizes inside of it, where the tensor is so laid out; else a number, or a symbol of
        its own where it varies.
        """
        if isinstance(tensor, torch.nn.Parameter) or not tensor.dim():
            return None
        marks: Mapping[int, Mark] = getattr(tensor, MARKS, {})
        sizes, strides = tuple(tensor.shape), tensor.stride()
        place = source.expression()
        varying = self.history.varying(place, (*sizes, *strides), _of_call(source)) | set(marks)
        found: list[Number] = list(sizes)
        for dim, size in enumerate(sizes):
            if dim in varying and size > 1:
                found[dim] = self._symbol(size, ExtentSource(source, dim), marks.get(dim))
        if all(isinstance(size, int) for size in found):
            return None
        rank = tensor.dim()
        open_strides = {dim - rank for dim in varying if dim >= rank}
        return SymbolicShape(
            tuple(found), self._strides(found, sizes, strides, source, open_strides)
        )

    def _symbol(self, hint: int, source: Source, mark: Mark | None = None) -> Number:
        if source in self.history.constant:
            return hint
        is_marked, mark = mark is not None, mark or Mark()
        if not self.readings:
            self.on_first()
        index = self.facts.size(hint, max(mark.minimum or 2, 2), mark.maximum)
        (symbol,) = index.free()
        self.readings[symbol.name] = Reading(symbol, source)
        if is_marked:
            self._marked.append((source.expression(), symbol))
        return symbolic_int(self.facts, index)

    def _strides(
        self,
        sizes: Sequence[Number],
        hints: Sequence[int],
        strides: Sequence[int],
        source: Source,
        varying: set[int],
    ) -> tuple[Number, ...]:
        found: list[Number] = list(strides)
        known: dict[int, Number] = {1: 1}
        """By the stride seen: what it is made of."""
        for dim in sorted(range(len(sizes)), key=lambda dim: (strides[dim], hints[dim])):
            stride = strides[dim]
            if stride in known:
                found[dim] = known[stride]
                if not isinstance(found[dim], int):
                    self._require_stride(ExtentSource(source, dim, is_stride=True), found[dim])
            elif dim in varying and stride > 1:
                found[dim] = self._symbol(stride, ExtentSource(source, dim, is_stride=True))
            if hints[dim] > 1:
                known[stride * hints[dim]] = found[dim] * sizes[dim]
        return tuple(found)

    def _require_stride(self, source: ExtentSource, stride: Number) -> None:
        """Guard that a stride is what follows from the sizes."""
        symbol = Symbol(f"t{len(self.readings)}")
        self.readings[symbol.name] = Reading(symbol, source)
        self._layout.append(Assumption(equal(symbol.index, index_of(stride)), None))

    def integer(self, number: int, source: Source) -> Number:
        """An integer that was looked at: a symbol where it varies."""
        if _of_a_constant(source):
            return number
        varies = self.history.varying(source.expression(), (number,), _of_call(source))
        if not varies or not 1 < number <= LARGEST:
            return number
        return self._symbol(number, source)

    def may_vary(self, number: int, source: Source) -> bool:
        """Whether `integer` may give a symbol."""
        if self.history.dynamic is False or not 1 < number <= LARGEST:
            return False
        if source in self.history.constant or _of_a_constant(source):
            return False
        return self.history.varies(source.expression(), number, _of_call(source))

    def release(self) -> None:
        """Let go of whoever is asked for lines and told of symbols."""
        self.on_first = self.facts.where = lambda: None

    def take_as_constants(self, symbols: Iterable[Symbol]) -> None:
        """Have the next captures take what these symbols stand for as it is, and what has turned
        out to be constant.
        """
        names = {symbol.name for symbol in symbols}
        for name, reading in self.readings.items():
            if name in names or self.facts.resolve(reading.symbol.index).is_constant:
                self.history.constant.add(reading.source)

    # -- what has to hold -------------------------------------------------------------------------

    def close(self) -> ShapeGuard | None:
        """What has to hold of the numbers read for the captured code to be right; None when none is
        a symbol. Nothing more may be assumed from here on.

        MarkedDimension: a dimension that the user has marked would have to keep its size.
        """
        self.facts.is_closed = True
        if not self.readings:
            return None
        for expression, symbol in self._marked:
            value = self.facts.resolve(symbol.index)
            if value.is_constant:
                concerned = (a for a in self.facts.assumptions if symbol in _free(a.relation))
                location = next((assumption.location for assumption in concerned), None)
                raise MarkedDimension(expression, value.constant, location)
        return ShapeGuard(tuple(self.readings.values()), tuple(self._relations()))

    def _relations(self) -> Iterator[Assumption]:
        for reading in self.readings.values():
            symbol = reading.symbol
            if symbol.lower is not None:
                yield Assumption(at_least(symbol.index, symbol.lower), None)
            if symbol.upper is not None:
                yield Assumption(at_least(integer(symbol.upper), symbol.index), None)
        yield from self._layout
        for assumption in self.facts.assumptions:
            if all(symbol.name in self.readings for symbol in _free(assumption.relation)):
                yield assumption  # and not what the program promises of sizes that depend on data


def _free(relation: Relation) -> frozenset[Symbol]:
    return relation.difference.free()


def _of_a_constant(source: Source) -> bool:
    """Whether something is found in an object that compiled code would hold, so as to read it."""
    while source.base is not None:
        source = source.base
    return source.step[0] == "constant"


def _of_call(source: Source) -> bool:
    """Whether something belongs to the arguments of the call, and not to an object or a module."""
    step: Source | None = source
    while step is not None:
        if step.step[0] not in ("local", "item", "dict_item", "own_item", "own_dict_item"):
            return False
        step = step.base
    return True


# -- the guard ------------------------------------------------------------------------------------

INTEGER_ITSELF: Final = 1 << 20
"""How the native floor is told to read an integer, and not a size of a tensor."""

_OPERATIONS: Final = {
    "slot": 0,
    "number": 1,
    "+": 2,
    "*": 3,
    "//": 4,
    "%": 5,
    "min": 6,
    "max": 7,
    Kind.ZERO: 8,
    Kind.NOT_ZERO: 9,
    Kind.NOT_NEGATIVE: 10,
}
"""What the native floor computes; see native/guard_sizes.c."""


@record
class ShapeGuard:
    """Relations between numbers that are read at several sources."""

    readings: tuple[Reading, ...]
    relations: tuple[Assumption, ...]

    @property
    def guard(self) -> Guard:
        """The guard that they hold."""
        return Guard(GuardKind.SHAPES, None, self)

    def objects(self) -> dict[Source, list[tuple[int, int]]]:
        """By the source of a tensor or integer: into which slots its numbers go, and what they are,
        as the native floor numbers them.
        """
        found: dict[Source, list[tuple[int, int]]] = {}
        for slot, reading in enumerate(self.readings):
            match reading.source:
                case ExtentSource(origin=origin, dim=dim, is_stride=is_stride):
                    found.setdefault(origin, []).append((slot, -1 - dim if is_stride else dim))
                case source:
                    found.setdefault(source, []).append((slot, INTEGER_ITSELF))
        return found

    def code(self) -> tuple[tuple[int, int], ...]:
        """All relations as a program of the native floor's, in postfix order."""
        slots = {reading.symbol.name: slot for slot, reading in enumerate(self.readings)}
        code: list[tuple[int, int]] = []
        for assumption in self.relations:
            code += _index_code(assumption.relation.difference, slots)
            code.append((_OPERATIONS[assumption.relation.kind], 0))
        return tuple(code)

    def failure(self, numbers: Sequence[int]) -> FailedGuard:
        """The first relation that does not hold for the numbers read, one of which does not."""
        names = [reading.symbol.name for reading in self.readings]
        values = dict(zip(names, numbers, strict=True))
        failed = next(each for each in self.relations if not each.relation.holds(values))
        concerned = sorted(symbol.name for symbol in _free(failed.relation))
        found = ", ".join(f"{self._places()[name]} == {values[name]}" for name in concerned)
        return FailedGuard(self._words(failed.relation), "true", f"false: {found}", failed.location)

    def in_words(self) -> Iterator[tuple[str, Location | None]]:
        """Each relation as the user would write it, and the line that made it matter."""
        for assumption in self.relations:
            yield self._words(assumption.relation), assumption.location

    def _places(self) -> dict[str, str]:
        """By symbol: where its number is read, as the user would write it."""
        return {reading.symbol.name: reading.source.expression() for reading in self.readings}

    def _words(self, relation: Relation) -> str:
        places = self._places()
        difference = relation.difference
        names = {symbol: Symbol(places[symbol.name]).index for symbol in difference.free()}
        return str(Relation(relation.kind, difference.substitute(names)))


def _index_code(index: Index, slots: Mapping[str, int]) -> list[tuple[int, int]]:
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
