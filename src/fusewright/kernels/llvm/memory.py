"""Loads and stores: one element, a run of lanes, or lane by lane, masked where needed.

| index from lane to lane | load | store |
| --- | --- | --- |
| the same | one element | one element (scalars only) |
| next element | vector, masked in tails | vector, masked in tails |
| a pattern, such as every second | vectors, of which lanes are picked | scatter |
| anything else | gather | scatter |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index
from fusewright.ir.limits import CACHE_LINE
from fusewright.kernels.analysis import lane_offsets
from fusewright.kernels.llvm import indexing
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.plan import MOST_RUNS, runs_of
from fusewright.kernels.llvm.scope import POINTER, SLOT_ALIGNMENT, Scope, any_lane
from fusewright.kernels.llvm.storage import MEMORY, REGISTER, from_memory, to_memory

BYTES_OF_AVX512: Final = 64
"""The width of vectors of processors that have registers for masks."""

LANES_OF_MASKS: Final = (8, 16, 32, 64)
"""Lanes of masks that have such a register to themselves."""

STEPS_AHEAD: Final = 8
"""Turns of a loop by which memory is asked for before it is loaded. Sums of the columns of 1,024 x
2,048 elements that lie in no cache take a quarter less time so, and not less with 4 or 16 (an AMD
EPYC).
"""

FAR_STEP: Final = 1024
"""Bytes from one load of a loop to its next from which processors do not ask ahead themselves."""


def load(
    scope: Scope, buffer: str, index: Index, dtype: DType, active: Register | None, varies: bool
) -> Register:
    """The element(s) at `index`. `active` (i1 scalar or vector) holds where the element may be
    touched."""
    if not varies:
        return _load_scalar(scope, buffer, index, dtype, active)
    step = indexing.lane_stride(scope, index)
    if step == 1:
        loaded = _load_run(scope, buffer, index, dtype, active)
    else:
        loaded = _gather(scope, buffer, index, dtype, active)
    return from_memory(scope.b, loaded, dtype)


def _load_scalar(
    scope: Scope, buffer: str, index: Index, dtype: DType, active: Register | None
) -> Register:
    b = scope.b
    pointer = indexing.address(scope, buffer, index, dtype)
    if active is not None:
        allowed = any_lane(b, active)
        pointer = b.emit(
            POINTER,
            f"select i1 {allowed.text}, ptr {pointer.text}, ptr {scope.nowhere().text}",
        )
    kind = VectorType(MEMORY[dtype])
    loaded = b.emit(kind, f"load {kind}, ptr {pointer.text}, align {dtype.bytes}")
    return from_memory(b, loaded, dtype)


def _load_run(
    scope: Scope, buffer: str, index: Index, dtype: DType, active: Register | None
) -> Register:
    b = scope.b
    pointer = indexing.address(scope, buffer, index, dtype)
    kind = VectorType(MEMORY[dtype], scope.lane_count)
    if active is None:
        _prefetch_steps_ahead(scope, index, pointer, dtype)
        return b.emit(kind, f"load {kind}, ptr {pointer.text}, align {dtype.bytes}")
    mask, kind = _of_lanes_inside(scope, _mask(scope, active), kind)
    return _widened(scope, _masked_load(scope, kind, pointer, dtype.bytes, mask))


def _prefetch_steps_ahead(scope: Scope, index: Index, pointer: Register, dtype: DType) -> None:
    """Ask for what a loop loads some turns later, where it goes down columns: each turn is in
    another page, of which processors know nothing ahead. Where lanes of a whole row are gone
    through in each turn, those of the next row are far enough ahead.
    """
    if scope.lanes is None:
        return
    is_by_rows = scope.block is not None and scope.block.symbol is scope.lanes.symbol
    turning = (
        scope.turning(index, scope.depth - 1) if is_by_rows else scope.levels[scope.depth].symbols
    )
    turning = turning & index.free()
    if len(turning) != 1 or scope.lanes.symbol in turning:
        return
    step = index.stride(*turning)
    if step is not None and step.is_constant and abs(int(step)) * dtype.bytes >= FAR_STEP:
        ahead = (1 if is_by_rows else STEPS_AHEAD) * int(step) * dtype.bytes
        prefetch(scope.b, pointer, ahead, scope.lane_count * dtype.bytes)


def prefetch(
    b: IRBuilder,
    pointer: Register,
    start: int,
    count: int,
    *,
    cache: int = 1,
    writes: bool = False,
) -> None:
    """Ask for `count` bytes from `start` behind a pointer: there is no harm where none are. They
    come to the first cache, the second, …, and may be written to at once where one `writes`.
    """
    for place in range(start, start + count, CACHE_LINE):
        line = b.emit(POINTER, f"getelementptr i8, ptr {pointer.text}, i64 {place}")
        how = f"i32 {int(writes)}, i32 {4 - cache}, i32 1"
        b.line(f"call void @llvm.prefetch.p0(ptr {line.text}, {how})")


def _masked_load(
    scope: Scope, kind: VectorType, pointer: Register, align: int, mask: Register
) -> Register:
    """The vector at `pointer`; zeros where the mask does not hold, whose memory is not touched."""
    return scope.b.emit(
        kind,
        f"call {kind} @llvm.masked.load.{kind.suffix}.p0(ptr align {align} {pointer.text}, "
        f"{mask.type} {mask.text}, {kind} zeroinitializer)",
    )


def _gather(
    scope: Scope, buffer: str, index: Index, dtype: DType, active: Register | None
) -> Register:
    b = scope.b
    pointers = indexing.lane_addresses(scope, buffer, index, dtype)
    kind = VectorType(MEMORY[dtype], scope.lane_count)
    mask, kind = _of_lanes_inside(scope, _mask(scope, active), kind)
    if kind.lanes < scope.lane_count:
        pointers = b.shuffle(pointers, None, range(kind.lanes))
    loaded = b.emit(
        kind,
        f"call {kind} @llvm.masked.gather.{kind.suffix}.{pointers.type.suffix}("
        f"{pointers.type} align {dtype.bytes} {pointers.text}, {mask.type} {mask.text}, "
        f"{kind} zeroinitializer)",
    )
    return _widened(scope, loaded)


def picked_offsets(scope: Scope, index: Index) -> tuple[int, ...] | None:
    """How far each lane is from the first, where lanes are picked from whole vectors."""
    lanes = scope.lanes
    if lanes is None or indexing.has_vectors(scope, index):
        return None
    offsets = lane_offsets(index, lanes.symbol, lanes.count)
    if offsets is None or runs_of(offsets) > MOST_RUNS:
        return None
    return None if offsets == tuple(range(lanes.count)) else offsets


def load_picked(
    scope: Scope,
    buffer: str,
    index: Index,
    dtype: DType,
    offsets: Sequence[int],
    active: Sequence[bool],
    all_active: Register | None,
) -> Register:
    """Elements at `offsets` from that of the first lane, from vectors that hold nothing before the
    least or behind the greatest: `active` says which lanes may be touched, and `all_active` whether
    any may.

        lanes of 4, offsets 0, 2, 4, 6:   a = x[0:4], b = x[3:7]   ->   a[0], a[2], b[1], b[3]
    """
    b, lanes = scope.b, scope.lane_count
    base = indexing.address(scope, buffer, index, dtype)
    least, span = min(offsets), 1 + max(offsets) - min(offsets)
    kind = VectorType(MEMORY[dtype], min(lanes, 1 << (span.bit_length() - 1)))
    apart = [offset - least for offset in offsets]
    touched = [place for place, is_active in zip(apart, active, strict=True) if is_active]
    result: Register | None = None
    for number in range(-(-span // kind.lanes)):
        start = min(number * kind.lanes, span - kind.lanes)
        wanted = {
            lane: place - start for lane, place in enumerate(apart) if place // kind.lanes == number
        }
        places = {place for lane, place in wanted.items() if active[lane]}
        if places and min(touched) <= start and start + kind.lanes <= max(touched) + 1:
            places = set(range(kind.lanes))
        run = _load_places(scope, base, kind, least + start, places, all_active)
        picks = [wanted.get(lane, 0) for lane in range(lanes)]
        run = b.splat(run, lanes) if kind.lanes == 1 else b.shuffle(run, None, picks)
        if result is not None:
            sides = [lanes + lane if lane in wanted else lane for lane in range(lanes)]
            run = b.shuffle(result, run, sides)
        result = run
    assert result is not None
    return from_memory(b, result, dtype)


def _load_places(
    scope: Scope,
    base: Register,
    kind: VectorType,
    start: int,
    places: set[int],
    all_active: Register | None,
) -> Register:
    """These places of the vector that begins `start` elements past `base`, and zeros; anything
    where none may be touched.
    """
    b = scope.b
    if not places:
        return b.constant(kind, 0)
    pointer = b.emit(POINTER, f"getelementptr {kind.element}, ptr {base.text}, i64 {start}")
    align = max(1, kind.bits // 8)
    if all_active is not None:
        # Not by a mask: LLVM 22 joins a load under one with the picking of lanes, and the
        # instruction (vpermilps) touches memory whatever its mask is. See also `_of_lanes_inside`.
        pointer = b.select(all_active, pointer, scope.nowhere(kind.lanes * align))
    if len(places) == kind.lanes:
        return b.emit(kind, f"load {kind}, ptr {pointer.text}, align {align}")
    mask = b.vector("i1", [place in places for place in range(kind.lanes)])
    return _masked_load(scope, kind, pointer, align, mask)


def _of_lanes_inside(scope: Scope, mask: Register, kind: VectorType) -> tuple[Register, VectorType]:
    """A mask and what is loaded under it, cut to a power of two lanes among which all are that are
    inside the loop, where their number is a constant.

    Half of a mask that lies past the end, and is false whatever the other operand of its `and` is,
    is lost by LLVM 22, which loads that half without a mask (AVX2, `sitofp <8 x i64>`).
    """
    assert scope.lanes is not None
    inside = scope.lanes.inside
    if inside is None or not mask.text.startswith("%"):
        return mask, kind
    lanes = min(kind.lanes, 1 << max(inside - 1, 1).bit_length())
    if lanes == kind.lanes:
        return mask, kind
    if scope.target.vector_bytes == BYTES_OF_AVX512 and mask.type.lanes in LANES_OF_MASKS:
        mask = _unlike_any(scope, mask)
    return scope.b.shuffle(mask, None, range(lanes)), VectorType(kind.element, lanes)


def _unlike_any(scope: Scope, mask: Register) -> Register:
    """`mask` as a register that LLVM takes for another one.

    Where a result is selected by the very mask that it was loaded under, LLVM 22 makes the load an
    operand of the instruction before the selection, `vinserti32x8` once the lanes are widened. That
    reads all of its operand, whatever the mask says.
    """
    return scope.b.emit(mask.type, f'call {mask.type} asm "", "=^Yk,0"({mask.type} {mask.text})')


def _widened(scope: Scope, loaded: Register) -> Register:
    """Zeros in the lanes that `loaded` lacks."""
    lanes = loaded.type.lanes
    if lanes == scope.lane_count:
        return loaded
    rest = scope.b.constant(loaded.type, 0)
    return scope.b.shuffle(loaded, rest, [min(lane, lanes) for lane in range(scope.lane_count)])


def _mask(scope: Scope, active: Register | None) -> Register:
    """`active` as an i1 a lane; all lanes where it is None."""
    if active is None:
        return scope.b.constant(VectorType("i1", scope.lane_count), True)
    return scope.spread(active)


def store(scope: Scope, buffer: str, index: Index, dtype: DType, value: Register) -> None:
    """Write `value` at `index`, in the lanes that are inside the loop."""
    b = scope.b
    value = to_memory(b, value, dtype)
    if scope.lane_count == 1:
        pointer = indexing.address(scope, buffer, index, dtype)
        b.line(f"store {value.type} {value.text}, ptr {pointer.text}, align {dtype.bytes}")
        return
    assert scope.lanes is not None
    value = scope.spread(value)
    active = scope.lanes.mask
    kind = value.type
    if indexing.lane_stride(scope, index) == 1:
        pointer = indexing.address(scope, buffer, index, dtype)
        if scope.lanes.inside == 1:
            # Under a constant mask of one lane LLVM 22 writes narrowed elements in their wide type
            # (AVX-512: 4 bytes for a u8 made of an i32), so the lane is stored by itself.
            value, active = b.extract(value, 0), None
        if active is None:
            b.line(f"store {value.type} {value.text}, ptr {pointer.text}, align {dtype.bytes}")
            return
        b.line(
            f"call void @llvm.masked.store.{kind.suffix}.p0({kind} {value.text}, "
            f"ptr align {dtype.bytes} {pointer.text}, {active.type} {active.text})"
        )
        return
    pointers = indexing.lane_addresses(scope, buffer, index, dtype)
    mask = _mask(scope, active)
    b.line(
        f"call void @llvm.masked.scatter.{kind.suffix}.{pointers.type.suffix}({kind} {value.text}, "
        f"{pointers.type} align {dtype.bytes} {pointers.text}, {mask.type} {mask.text})"
    )


def load_tile_row(scope: Scope, row: Register, dtype: DType) -> Register:
    """A whole vector from the frame."""
    kind = VectorType(MEMORY[dtype], scope.lane_count)
    text = f"load {kind}, ptr {row.text}, align {_alignment_of_rows(kind)}"
    return from_memory(scope.b, scope.b.emit(kind, text), dtype)


def store_tile_row(scope: Scope, row: Register, dtype: DType, value: Register) -> None:
    """The reverse of `load_tile_row`."""
    value = scope.spread(to_memory(scope.b, value, dtype))
    align = _alignment_of_rows(value.type)
    scope.b.line(f"store {value.type} {value.text}, ptr {row.text}, align {align}")


def _alignment_of_rows(kind: VectorType) -> int:
    """Bytes that divide the places of rows of tiles in the frame."""
    return min(SLOT_ALIGNMENT, kind.lanes * max(1, kind.bits // 8))


# Locals
# ----------------------------------------------------------------------------------------------


def local_type(dtype: DType, lanes: int) -> VectorType:
    """The register of a scalar local: one element a lane where outer loops are the lanes."""
    return VectorType(REGISTER[dtype], lanes)


def load_local(scope: Scope, name: str, dtype: DType, lanes: int) -> Register:
    """A scalar local of the current point."""
    kind = local_type(dtype, lanes)
    pointer = scope.at_lanes(scope.pointers[name], kind.element)
    return scope.b.emit(kind, f"load {kind}, ptr {pointer.text}")


def store_local(scope: Scope, name: str, value: Register) -> None:
    pointer = scope.at_lanes(scope.pointers[name], value.type.element)
    scope.b.line(f"store {value.type} {value.text}, ptr {pointer.text}")


def load_row_element(scope: Scope, name: str, index: Index, dtype: DType) -> Register:
    """An element of a row local whose elements are vectors, since outer loops are the lanes."""
    kind = VectorType(MEMORY[dtype], scope.local_lanes)
    pointer = indexing.address_from(scope, scope.pointers[name], index, str(kind))
    return from_memory(scope.b, scope.b.emit(kind, f"load {kind}, ptr {pointer.text}"), dtype)


def store_row_element(scope: Scope, name: str, index: Index, dtype: DType, value: Register) -> None:
    """The reverse of `load_row_element`."""
    value = to_memory(scope.b, scope.spread(value), dtype)
    pointer = indexing.address_from(scope, scope.pointers[name], index, str(value.type))
    scope.b.line(f"store {value.type} {value.text}, ptr {pointer.text}")
