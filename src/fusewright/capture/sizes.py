"""The symbolic sizes of one capture: which sizes and numbers are symbols, where each is read, and
what has to hold of them when the captured code is used again.

A size becomes a symbol when it was seen to differ between calls (automatic dynamic), when all are
wanted (`dynamic=True`), or when the user has marked it. An integer or a float does in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

import torch

from fusewright.capture.dynamic_shapes import DynamicShapes, Rule, SizePolicy
from fusewright.capture.guards import Extents, Reading, ShapeGuard
from fusewright.capture.sources import (
    ConstantSource,
    DictItemSource,
    ExtentSource,
    ItemSource,
    LocalSource,
    Source,
)
from fusewright.config import NOTHING, OfData
from fusewright.errors import MarkedDimension, WrongShape
from fusewright.ir.index import SizeSymbol, Symbol, integer
from fusewright.ir.intervals import Bound
from fusewright.ir.relations import at_least, equal
from fusewright.records import field, record
from fusewright.symbolic.facts import Assumption, ShapeFacts
from fusewright.symbolic.nodes import Number, index_of, symbolic_float, symbolic_int

LARGEST: Final = 2**63 - 1
"""The bound below which integers that are symbols, and their negatives, lie."""

_ROOM: Final = 2**62
"""The bound below which integers computed from symbols lie: guards add to them in 64 bits."""

TEXTS: Final = (str, bytes)
NUMBERS: Final = (int, float, complex)

MARKS: Final = "_fusewright_dynamic"
"""The attribute of a tensor in which `mark_dynamic` leaves its `Mark`s, by dimension."""


@record
class Mark:
    """A dimension that the user says varies, between these inclusive bounds."""

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
    or 1 there is compiled for that size alone. Raises: TypeError for what is no tensor, or no
    number of a dimension; IndexError for a dimension that the tensor does not have; ValueError
    where its size is not between the bounds.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"mark_dynamic marks a dimension of a tensor, not of {tensor!r}")
    if min is not None and max is not None and min > max:
        raise ValueError(f"no size is between min={min} and max={max}")
    for dimension in dim if isinstance(dim, Sequence) else (dim,):
        size = tensor.size(dimension)
        if (min is not None and size < min) or (max is not None and size > max):
            bounds = f"between {min or 0} and {max}" if max is not None else f"at least {min}"
            raise ValueError(f"dimension {dimension} has size {size}, which is not {bounds}")
        marks = {**getattr(tensor, MARKS, {}), dimension % tensor.dim(): Mark(min, max)}
        setattr(tensor, MARKS, marks)


class SizeHistory:
    """The sizes and numbers that one code was called with, by where they were read.

    `dynamic`: None finds out what varies; True takes all to vary that may; False none. `of_data`:
    what may depend on data.
    """

    def __init__(self, dynamic: bool | None = None, of_data: OfData = NOTHING) -> None:
        self.dynamic = dynamic
        self.of_data = of_data
        self.dynamic_shapes: DynamicShapes | None = None
        """The user's words on the arguments' sizes: `dynamic_shapes`."""

        self.constant: set[Source] = set()
        """Numbers that are taken as they are, since an operator takes no symbol for them."""

        self.left_open: set[Source] = set()
        """Texts and numbers of which nothing may be known: so many were there already."""

        self.open_texts: set[Source] = set()
        """Texts of which nothing may be known; a number at such a place may be."""

        self._seen: dict[tuple[str, int], tuple[float | None, ...]] = {}
        """The numbers at a place, by how many they are: a tensor has other ones there than a tensor
        of another rank, or a number. None for one that varies.
        """

        self._states: dict[str, Hashable] = {}
        """The state of what is at a place; None for several."""

    def varying(self, place: str, numbers: tuple[float, ...], of_call: bool) -> set[int]:
        """Note what is found at a place; the positions of the numbers that vary. `of_call`: whether
        this belongs to the call's arguments.
        """
        if self.dynamic is False:
            return set()
        if self.dynamic and of_call:
            return set(range(len(numbers)))
        before = self._seen.get((place, len(numbers)), numbers)
        now = tuple(b if a == b else None for a, b in zip(before, numbers, strict=True))
        self._seen[place, len(numbers)] = now
        return {position for position, number in enumerate(now) if number is None}

    def is_left_open(self, object: Any, source: Source) -> bool:
        """Whether nothing may be known of an immutable object."""
        if type(object) in TEXTS and source in self.open_texts:
            return True
        return type(object) in (*TEXTS, *NUMBERS) and source in self.left_open

    def has_changed(self, place: str, state: Hashable) -> bool:
        """Note the state of something at a place, whatever `dynamic` is; whether it was ever in
        another.
        """
        before = self._states.setdefault(place, state)
        if before != state:
            self._states[place] = None
        return before != state

    def varies(self, place: str, number: float, of_call: bool) -> bool:
        """Whether a number at a place would be found to vary."""
        if self.dynamic and of_call:
            return True
        numbers = self._seen.get((place, 1))
        return numbers is not None and numbers != (number,)


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
    """Readings by the symbol's name."""

    _marked: list[tuple[str, Symbol]] = field(default_factory=list)
    _named: dict[str, tuple[str, Number]] = field(default_factory=dict)
    """The first place of a size, and the size, by the name that the user gave it."""

    _layout: list[Assumption] = field(default_factory=list)
    """Strides as products of sizes."""

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
        varying = self.history.varying(place, (*sizes, *strides), _of_call(source))
        rules = self._rules_of_tensor(tensor, source)
        if rules is not None:
            named = {dim for dim, rule in rules.items() if rule.kind is not SizePolicy.STATIC}
            varying = {dim for dim in varying if dim >= tensor.dim() or dim in named}
            marks = {
                dim: Mark(r.minimum, r.maximum)
                for dim, r in rules.items()
                if r.kind is SizePolicy.DYNAMIC
            } | dict(marks)
        varying |= set(marks)
        extents: list[Number] = list(sizes)
        for dim, size in enumerate(sizes):
            if dim in varying and size > 1:
                mark = marks.get(dim, Mark())
                extent = ExtentSource(source, dim)
                extents[dim] = self._symbol(size, extent, max(mark.minimum or 2, 2), mark.maximum)
                if dim in marks:
                    self._mark(extents[dim], extent)
        for dim, rule in (rules or {}).items():
            self._check_rule(rule, sizes[dim], extents[dim], ExtentSource(source, dim))
        if all(isinstance(size, int) for size in extents):
            return None
        rank = tensor.dim()
        open_strides = {dim - rank for dim in varying if dim >= rank}
        return SymbolicShape(
            tuple(extents), self._strides(extents, sizes, strides, source, open_strides)
        )

    def _rules_of_tensor(self, tensor: torch.Tensor, source: Source) -> dict[int, Rule] | None:
        """The user's rules for the sizes of an argument; None where there are none at all."""
        if self.history.dynamic_shapes is None or not _of_call(source):
            return None
        return self.history.dynamic_shapes.of_tensor(source, tensor.dim())

    def _rule_of_number(self, number: float, source: Source) -> Rule | None:
        """The user's rule for an integer among the arguments; None where there is none."""
        if self.history.dynamic_shapes is None or not _of_call(source) or type(number) is not int:
            return None
        return self.history.dynamic_shapes.of_number(source)

    def _mark(self, number: Number, source: Source) -> None:
        """Note that a number is to stay a symbol."""
        symbols = () if isinstance(number, int) else index_of(number).free()
        self._marked += [(source.expression(), symbol) for symbol in symbols]

    def _check_rule(self, rule: Rule, size: int, number: Number, source: Source) -> None:
        """Raises: WrongShape, where the user says another size, or that it is one of another."""
        place = source.expression()
        rule.check(size, place)
        if rule.name is None:
            return
        first, other = self._named.setdefault(rule.name, (place, number))
        if not bool(number == other):
            raise WrongShape(
                f"{place} is {size}, and {first} is another: dynamic_shapes calls both {rule.name}"
            )

    def _symbol(self, hint: int, source: Source, lower: Bound = 2, upper: Bound = None) -> Number:
        if source in self.history.constant:
            return hint
        if not self.readings:
            self.on_first()
        index = self.facts.size(hint, lower, upper)
        (symbol,) = index.free()
        self.readings[symbol.name] = Reading(symbol, source)
        return symbolic_int(self.facts, index)

    def _strides(
        self,
        sizes: Sequence[Number],
        hints: Sequence[int],
        strides: Sequence[int],
        source: Source,
        varying: set[int],
    ) -> tuple[Number, ...]:
        extents: list[Number] = list(strides)
        products: dict[int, Number] = {1: 1}
        """The product of sizes that each stride seen is."""
        for dim in sorted(range(len(sizes)), key=lambda dim: (strides[dim], hints[dim])):
            stride = strides[dim]
            if stride in products:
                extents[dim] = products[stride]
                if not isinstance(extents[dim], int):
                    self._require_stride(ExtentSource(source, dim, is_stride=True), extents[dim])
            elif dim in varying and stride > 1:
                extents[dim] = self._symbol(stride, ExtentSource(source, dim, is_stride=True))
            if hints[dim] > 1:
                products[stride * hints[dim]] = extents[dim] * sizes[dim]
        return tuple(extents)

    def _require_stride(self, source: ExtentSource, stride: Number) -> None:
        """Guard that a stride has the value computed from the sizes."""
        symbol = SizeSymbol(f"t{len(self.readings)}")
        self.readings[symbol.name] = Reading(symbol, source)
        self._layout.append(Assumption(equal(symbol.index, index_of(stride)), None))

    def number(self, number: float, source: Source) -> Number | torch.SymFloat | float:
        """An integer or float that was looked at: a symbol where it varies. Positive and
        negative integers are compiled apart.
        """
        if _of_a_constant(source):
            return number
        if isinstance(number, int):
            return self._integer(number, source)
        varies = self.history.varying(source.expression(), (number,), _of_call(source))
        if not (varies and _may_be_symbol(number)) or source in self.history.constant:
            return number
        if not self.readings:
            self.on_first()
        symbol = self.facts.real(number)
        self.readings[symbol.name] = Reading(symbol, source)
        return symbolic_float(self.facts, symbol)

    def _integer(self, number: int, source: Source) -> Number:
        varies = bool(self.history.varying(source.expression(), (number,), _of_call(source)))
        rule = self._rule_of_number(number, source)
        if rule is not None and rule.kind is not SizePolicy.AUTO:
            varies = rule.kind is SizePolicy.DYNAMIC
        bounds = (2, None) if number > 0 else (None, -1)
        symbolic: Number = number
        if varies and _may_be_symbol(number):
            symbolic = self._symbol(number, source, *bounds)
        if rule is not None and rule.kind is SizePolicy.DYNAMIC:
            self._mark(symbolic, source)
        if rule is not None:
            self._check_rule(rule, number, symbolic, source)
        return symbolic

    def keep_in_range(self, number: torch.SymInt) -> None:
        """Assume of what is computed from integers that it fits into 64 bits, in which a graph
        takes it; make it a constant where it does not.
        """
        index = index_of(number)
        symbols = index.free()
        is_read = len(symbols) == 1 and all(index == symbol.index for symbol in symbols)
        if is_read or not any(map(self._is_integer, symbols)):
            return
        least, most = at_least(index, -_ROOM), at_least(integer(_ROOM), index)
        if not (self.facts.decide(least) and self.facts.decide(most)):
            for symbol in symbols:
                self.facts.number(symbol.index)

    def _is_integer(self, symbol: Symbol) -> bool:
        """Whether a symbol is an integer that was read, and not a size."""
        reading = self.readings.get(symbol.name)
        return reading is not None and not isinstance(reading.source, ExtentSource)

    def may_vary(self, number: float, source: Source) -> bool:
        """Whether `number` may give a symbol."""
        if self.history.dynamic is False or not _may_be_symbol(number):
            return False
        if source in self.history.constant or _of_a_constant(source):
            return False
        rule = self._rule_of_number(number, source)
        if rule is not None and rule.kind is not SizePolicy.AUTO:
            return rule.kind is SizePolicy.DYNAMIC
        return self.history.varies(source.expression(), number, _of_call(source))

    def has_varying_number(self, items: tuple[Any, ...], source: Source) -> bool:
        """Whether one of the numbers in a tuple of constants, which else is guarded as a whole, may
        give a symbol.
        """
        numbers = [
            (item, ItemSource(source, place))
            for place, item in enumerate(items)
            if type(item) is float or (type(item) is int and type(items) is tuple)
        ]
        if any(self.may_vary(item, place) for item, place in numbers):
            return True
        for item, place in numbers:
            self.history.varying(place.expression(), (item,), _of_call(place))
        return False

    def release(self) -> None:
        """Drop the callbacks that give lines and are notified of symbols."""
        self.on_first = self.facts.where = lambda: None

    def take_as_constants(self, symbols: Iterable[Symbol]) -> bool:
        """Have the next captures take what these symbols stand for as it is, and what has turned
        out to be constant; whether any of it is new.
        """
        names = {symbol.name for symbol in symbols}
        return self._take(
            reading.source
            for name, reading in self.readings.items()
            if name in names or self.facts.is_known(reading.symbol)
        )

    def give_up_symbols(self) -> bool:
        """Have the next captures take all as it is that no user has marked; whether any of it is
        new.
        """
        marked = {symbol.name for _, symbol in self._marked}
        return self._take(r.source for name, r in self.readings.items() if name not in marked)

    def _take(self, sources: Iterable[Source]) -> bool:
        """Add constants; whether any is new. Capturing again only if so comes to an end."""
        before = len(self.history.constant)
        self.history.constant.update(sources)
        return len(self.history.constant) > before

    # -- what has to hold -------------------------------------------------------------------------

    def close(self) -> ShapeGuard | None:
        """The relations that must hold of the numbers read for the captured code to be right; None
        when none is a symbol. Nothing more may be assumed from here on.

        MarkedDimension: a dimension that the user has marked would have to keep its size.
        """
        self.facts.is_closed = True
        if not self.readings:
            return None
        for expression, symbol in self._marked:
            value = self.facts.resolve(symbol.index)
            if value.is_constant:
                concerned = (a for a in self.facts.assumptions if symbol in a.relation.free())
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
            if all(symbol.name in self.readings for symbol in assumption.relation.free()):
                yield assumption  # and not what the program promises of sizes that depend on data


def _may_be_symbol(number: float) -> bool:
    """Whether a number may be a symbol: an integer but 0 and 1, or a finite float."""
    if isinstance(number, int):
        return 1 < number <= LARGEST or -LARGEST <= number < 0
    return isfinite(number)


def _of_a_constant(source: Source) -> bool:
    """Whether something is found in an object that compiled code would hold, so as to read it."""
    return isinstance(source.root(), ConstantSource)


def _of_call(source: Source) -> bool:
    """Whether something belongs to the arguments of the call, and not to an object or a module."""
    while isinstance(source, ItemSource | DictItemSource):
        source = source.origin
    return isinstance(source, LocalSource)
