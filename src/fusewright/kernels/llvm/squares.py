"""Loops that go in squares against the lanes: how they are written (`tiles` says which do)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewright.ir.group import Store
from fusewright.ir.index import LoopSymbol, known_multiple
from fusewright.ir.value import Load
from fusewright.kernels.llvm import indexing
from fusewright.kernels.llvm.builder import Register, VectorType
from fusewright.kernels.llvm.scope import POINTER, Scope
from fusewright.kernels.llvm.storage import MEMORY
from fusewright.kernels.llvm.tiles import Squares, call_transpose
from fusewright.records import record


@record
class SquarePlace:
    """Where a square lies in memory."""

    start: Register
    """Pointer to its first element."""

    step: Register
    """Elements from one of its rows in memory to the next."""

    element: str
    """LLVM's type of elements in memory."""


def in_squares(
    scope: Scope,
    squares: Squares,
    side: int,
    start: Register,
    stop: Register,
    body: Callable[[Sequence[SquarePlace], Register], None],
) -> Register:
    """The loop from `start` on by whole squares of `side` turns, as long as they fit before `stop`;
    returns where they end. The lanes being written are a multiple of `side`, all inside their loop.
    `body` writes one turn; it is given what squares were loaded from and the turn's number in one.
    """
    assert scope.lanes is not None and scope.lanes.mask is None
    is_whole = known_multiple(squares.symbol.extent, side)
    end = stop if is_whole else _end_of_squares(scope, side, start, stop)
    accesses: tuple[Load | Store, ...] = (*squares.loads, *squares.stores)
    kinds = {id(a): VectorType(_element(a), scope.lane_count) for a in accesses}
    slots = {id(a): scope.slot(str(kinds[id(a)]), side) for a in accesses}
    corner = LoopSymbol("corner", squares.symbol.extent)
    with scope.loop((corner,), start, end, side, runs=is_whole) as first:
        sources = []
        for load in squares.loads:
            sources.append(_place(scope, load, squares.symbol, corner))
            _load_square(scope, sources[-1], slots[id(load)], side)
        with scope.loop((squares.symbol,), first, first + side, 1, runs=True) as current:
            row = current - first
            for access in accesses:
                place = f"ptr {slots[id(access)].text}, i64 {row.text}"
                text = f"getelementptr {kinds[id(access)]}, {place}"
                scope.tiles[id(access)] = scope.b.emit(POINTER, text)
            body(sources, row)
            scope.tiles.clear()
        for store in squares.stores:
            target = _place(scope, store, squares.symbol, corner)
            _store_square(scope, target, slots[id(store)], side)
    return end


def _end_of_squares(scope: Scope, side: int, start: Register, stop: Register) -> Register:
    with scope.at(max(start.level, stop.level)):
        return start + ((stop - start) & -side)


def _element(access: Load | Store) -> str:
    return MEMORY[access.dtype if isinstance(access, Load) else access.value.dtype]


def _place(
    scope: Scope, access: Load | Store, symbol: LoopSymbol, corner: LoopSymbol
) -> SquarePlace:
    """Where the square of an access lies whose first turn of `symbol` is that of `corner`."""
    assert scope.lanes is not None
    dtype = access.dtype if isinstance(access, Load) else access.value.dtype
    stride = access.index.stride(scope.lanes.symbol)
    assert stride is not None
    index = access.index.substitute({symbol: corner.index})
    start = indexing.address(scope, access.buffer, index, dtype)
    return SquarePlace(start, indexing.scalar(scope, stride), MEMORY[dtype])


def _load_square(scope: Scope, source: SquarePlace, slot: Register, side: int) -> None:
    """Turn a square of memory into rows of vectors, in parts of `side` lanes."""
    for part in range(0, scope.lane_count, side):
        memory, rows, kind = _part(scope, source, slot, part, side)
        call_transpose(scope.b, memory, source.step, rows, scope.integer(scope.lane_count), kind)


def _store_square(scope: Scope, target: SquarePlace, slot: Register, side: int) -> None:
    """The reverse of `_load_square`."""
    for part in range(0, scope.lane_count, side):
        memory, rows, kind = _part(scope, target, slot, part, side)
        call_transpose(scope.b, rows, scope.integer(scope.lane_count), memory, target.step, kind)


def _part(
    scope: Scope, place: SquarePlace, slot: Register, part: int, side: int
) -> tuple[Register, Register, VectorType]:
    """Where the lanes from `part` on lie in memory and in the frame, and the type of a row."""
    if part == 0:
        return place.start, slot, VectorType(place.element, side)
    b, offset = scope.b, place.step * part
    text = f"getelementptr {place.element}, ptr"
    memory = b.emit(POINTER, f"{text} {place.start.text}, i64 {offset.text}")
    rows = b.emit(POINTER, f"{text} {slot.text}, i64 {part}")
    return memory, rows, VectorType(place.element, side)
