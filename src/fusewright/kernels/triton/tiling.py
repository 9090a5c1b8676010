"""The axes of a tile made of a group's loops: which loops make an axis, how large its block
is.

A program computes one tile. Loops that follow each other are flattened into one axis: `x` is the
innermost of the outer loops, then `y` and `z`; each stage's inner loops make one axis `r`. Index
expressions simplify when the flattened variable stands for its loops:

    x[768*i0 + i1]    with i0 = x // 768, i1 = x % 768    is    x[x]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from fusewright.ir.contiguity import rows_lie_across
from fusewright.ir.group import Group, Reduce, Stage
from fusewright.ir.index import (
    Index,
    LoopSymbol,
    RealSymbol,
    Symbol,
    integer,
    known_multiple,
    product,
)
from fusewright.ir.value import IndexValue, Indirect, Load, Random
from fusewright.kernels.analysis import (
    Dependences,
    MemoryAccess,
    Traits,
    extent_hint,
    stage_values,
)
from fusewright.kernels.triton.early_ends import BLOCK, block_across, end_together, ends_early
from fusewright.kernels.triton.memory_along import copies_rows, is_half, loaded_rows, stored_rows
from fusewright.kernels.triton.reductions import ARGUMENT
from fusewright.records import record
from fusewright.runtime.multiprocessors import MOST_WARPS, WARP

MOST_ARGUMENTS = 480
"""Arguments that fit a kernel's parameters, 4096 bytes, beside hidden ones."""

OUTER_NAMES = ("x", "y", "z")

PERSISTENT_LIMIT = 4096
"""The longest row that is held in registers as a whole."""

LONGEST_HELD = 32 * WARP * MOST_WARPS
"""The longest row that can be: each thread has 32 elements then."""

TILE = 1024
"""Elements of a tile, about."""

WALKED_TILE = 4096
"""Elements of a tile that walks over its rows: more of them are on their way at a time."""

SHARED_TILE = 2048
"""The same, where there are so many programs that several share a multiprocessor; also of a tile
that holds rows of one stage that lie across memory, and of one along rows that read something of
their own.
"""

ACROSS_TILE = 4096
"""Elements of a tile that holds rows that lie across memory for several stages."""

HELD_ACROSS_ONCE, HELD_ACROSS = 64, 512
"""The longest rows that are held though they lie across memory: where they are walked over once,
and where holding them saves reading them again.
"""

WIDEST_ACROSS, NARROWEST_ACROSS = 64, 16
"""Rows beside each other in a tile that walks over rows that lie across memory: as many as leave
programs for the whole device, since few of them wait for one block after the other. Partial sums of
512 rows in tiles of 64 took 7 us on an H100, and those of 86 rows 2 us.
"""

LONGEST_OF_THREAD = 128
"""The longest row of a half type lying across memory that one thread holds whole, so that it asks
no other one: a layer norm over 128 channels took 71 us in tiles of 64 rows and threads, and 79 by
32 rows of two threads each.
"""

LOOKED_UP_TILE = 4096
"""Elements of a tile of rows of a half type that are looked up: they are on their way at a time
once their numbers have arrived, and what all rows share is loaded once (embedding and layer norm:
202 us, and 218 with one row of 2,048).
"""

FLAT_WORK = 18
"""The work on a point, in additions, from which on a flat tile that reads one element of a half
type and writes one has `SHARED_TILE` elements: what is computed of one hides behind that of others
(GELU, at 18: 67 us, and 73 with half as many elements; dropout of it: 675 and 742).
"""

BUSY_PROGRAMS = 128
"""Programs that are enough to keep a GPU of some 130 multiprocessors busy."""

MANY_PROGRAMS = 4 * BUSY_PROGRAMS
"""Programs from which on several share each multiprocessor: each may have few threads."""

PROGRAMS_AT_ONCE = 16 * BUSY_PROGRAMS
"""Programs of four warps that run on such a GPU at a time."""

ACROSS_SHARE = 4
"""Rows count as lying across memory where more than one in so many elements of loads does."""

LINE_BYTES = 128
"""The unit in which memory is read and written: a square tile has lines of it in both
directions.
"""

LONGEST_SHARED = 2048
"""Elements of the longest row of which a flat tile has two, for what rows share."""

SHORTEST_ROW = 128
"""Elements of a row of a pointwise tile that has an axis for its rows, at least."""

ROW_MULTIPLE = 8
"""Rows whose lengths are multiples of it are read in vectors as well as flat memory is."""


@record
class TileAxis:
    """One dimension of the tile."""

    symbol: LoopSymbol
    """Its variable, which runs over the product of its loops' extents."""

    block: int
    """Elements of it in one tile: a power of two."""

    position: int
    """The dimension of the tile that it is."""

    like: str = ""
    """The name of the axis whose block it has, where that is another."""

    @property
    def name(self) -> str:
        return self.symbol.name

    @property
    def block_name(self) -> str:
        return f"{(self.like or self.name).upper()}BLOCK"

    @property
    def start_name(self) -> str:
        """The variable of a tile's first point."""
        return f"{self.name}start"

    @property
    def extent(self) -> Index:
        return self.symbol.extent

    @property
    def is_masked(self) -> bool:
        """Whether the last tile may reach past the end."""
        return not known_multiple(self.extent, self.block)


@record
class Tiling:
    """The axes of a group, and what its loop variables are in terms of theirs."""

    outer: tuple[TileAxis, ...]
    """Outermost first."""

    inner: tuple[TileAxis | None, ...]
    """One a stage: its inner loops as one axis, or None."""

    loops: tuple[Mapping[Symbol, Index], ...]
    """One a stage: outer and inner loop variables in terms of the axes."""

    persistent: bool
    """Whether a tile holds its rows whole; else it walks over them in blocks."""

    wide: bool
    """Whether indices need 64 bits."""

    batch: LoopSymbol | None = None
    """A variable that no axis has: a program is for one point of it."""

    walks_outer: bool = False
    """Whether a program goes over the outer axis, too, in blocks."""

    mirrored: bool = False
    """Whether the rows are counted from their ends."""

    @property
    def rank(self) -> int:
        """Dimensions of the tile."""
        return len(self.outer) + any(axis is not None for axis in self.inner)

    @property
    def elements(self) -> int:
        """Elements of the tile, in the stage that has most."""
        inside = max((axis.block for axis in self.inner if axis is not None), default=1)
        return prod(axis.block for axis in self.outer) * inside

    @property
    def axes(self) -> tuple[TileAxis, ...]:
        """Every axis once, outer ones first."""
        inner = dict.fromkeys(axis for axis in self.inner if axis is not None)
        return (*self.outer, *inner)


@record(kw_only=True)
class Configuration:
    """All that may be chosen freely of a Triton kernel."""

    tiling: Tiling
    warps: int
    stages: int
    rounds: bool = False
    """Whether factors of float32 are rounded to TF32, which tensor cores multiply."""

    @property
    def words(self) -> str:
        """A few words that tell it from other configurations."""
        blocks = " x ".join(str(axis.block) for axis in self.tiling.axes)
        rows = any(axis is not None for axis in self.tiling.inner) and len(self.tiling.outer) == 1
        kind = "" if not rows else "rows held, " if self.tiling.persistent else "rows walked, "
        rounded = ", TF32" if self.rounds else ""
        return f"{kind}{blocks}, {self.warps} warps, {self.stages} stages{rounded}"


def warps_for(elements: int, elements_a_thread: int) -> int:
    """The warps that leave a thread so many elements, as far as a program may have them."""
    return max(1, min(MOST_WARPS, elements // (WARP * elements_a_thread)))


def tile(group: Group, persistent: bool | None = None) -> Tiling:
    """Choose the axes and blocks of a group. `persistent` overrides the choice where it can. Rows
    that are scanned into are held: they cannot be computed again.
    """
    longest = LONGEST_HELD if persistent else PERSISTENT_LIMIT
    if group.scanned_rows:
        persistent = True
    if any(stage.inner for stage in group.stages):
        return _tile_rows(group, persistent, longest)
    segments, blocks = _segments(group)
    names = OUTER_NAMES[: len(segments)][::-1]
    loops: dict[Symbol, Index] = {}
    axes = []
    for position, (segment, name, block) in enumerate(zip(segments, names, blocks, strict=True)):
        symbol, inside = flatten(segment, name)
        axes.append(TileAxis(symbol, _fitting(symbol, block), position))
        loops |= inside
    stages = group.stages
    return Tiling(
        outer=tuple(axes),
        inner=tuple(None for _ in stages),
        loops=tuple(loops for _ in stages),
        persistent=False,
        wide=is_wide(group),
    )


def flatten(loops: tuple[LoopSymbol, ...], name: str) -> tuple[LoopSymbol, dict[Symbol, Index]]:
    """One variable for nested loops, and each loop's own variable in terms of it.

    `[i0<2, i1<3]` is `x<6` with `i0 = x // 3` and `i1 = x % 3`.
    """
    axis = LoopSymbol(name, product(symbol.extent for symbol in loops))
    if len(loops) == 1:
        return axis, {loops[0]: axis.index}
    rest = axis.index
    inside: dict[Symbol, Index] = {}
    for symbol in reversed(loops[1:]):
        count = symbol.extent if symbol.extent != 0 else integer(1)
        inside[symbol] = rest % count
        rest = rest // count
    if loops:
        inside[loops[0]] = rest
    return axis, inside


def _tile_rows(group: Group, persistent: bool | None, limit: int) -> Tiling:
    """One axis for the outer loops, one a stage for its inner loops. `limit`: the longest row that
    may be held.
    """
    walked = group.walked
    is_early = not persistent and ends_early(group)
    along = walked or (group.outer[-1:] if is_early and end_together(group) else group.outer)
    x, outside = flatten(along, "x")
    stripe: LoopSymbol | None = None
    if along is not group.outer:
        stripe, apart = flatten(group.outer[: -len(along)], "stripe")
        outside |= apart
    if walked:
        persistent, limit = True, LONGEST_HELD
    elif is_early:
        persistent = False
    rows = {}
    loops = []
    extents: dict[Index, str] = {}
    for stage in group.stages:
        inside: dict[Symbol, Index] = {}
        if stage.inner:
            count = product(symbol.extent for symbol in stage.inner)
            name = extents.setdefault(count, f"r{len(extents) or ''}")
            rows[name], inside = flatten(stage.inner, name)
        loops.append({**outside, **inside})
    fits = all(count.is_constant and 0 < int(count) <= limit for count in extents)
    longest = max(_hint(row) for row in rows.values())
    outer_is_contiguous = contiguous_along_outer(group)
    walks_once = sum(bool(stage.inner) for stage in group.stages) == 1
    across_limit = HELD_ACROSS_ONCE if walks_once else HELD_ACROSS
    holds = fits and (not outer_is_contiguous or longest <= across_limit or bool(persistent))
    holds = holds if persistent is None else holds and persistent
    x_block, r_block = _row_blocks(_hint(x), longest, outer_is_contiguous, holds)
    if holds and walks_once and _hint(x) > PROGRAMS_AT_ONCE and share_a_row(group):
        x_block = max(1, 2 * TILE // _power_of_two(longest))
    elif holds and _hint(x) > PROGRAMS_AT_ONCE and _looks_up_rows(group):
        x_block = max(1, LOOKED_UP_TILE // _power_of_two(longest))
    if holds and outer_is_contiguous and _hint(x) >= MANY_PROGRAMS * WIDEST_ACROSS:
        x_block = WIDEST_ACROSS if has_rows_of_threads(group, longest) else x_block
    if is_early:
        x_block, r_block = block_across(group), BLOCK
    if walked:
        assert stripe is not None and holds, "columns are gathered beside rows that fit a tile"
        x_block = _walked_block(x, longest, _hint(stripe), outer_is_contiguous)
    mirrored = holds and not walked and _run_from_their_ends(group)
    if mirrored:
        pairs = zip(group.stages, loops, strict=True)
        loops = [_from_the_end(stage.inner, places) for stage, places in pairs]
    x_axis = TileAxis(x, _fitting(x, x_block), 0)
    axes = {
        name: TileAxis(row, _power_of_two(_hint(row)) if holds else _fitting(row, r_block), 1)
        for name, row in rows.items()
    }
    inner = tuple(
        axes[extents[product(symbol.extent for symbol in stage.inner)]] if stage.inner else None
        for stage in group.stages
    )
    return Tiling(
        (x_axis,),
        inner,
        tuple(loops),
        persistent=holds,
        wide=is_wide(group),
        batch=stripe,
        walks_outer=bool(walked),
        mirrored=mirrored,
    )


def _run_from_their_ends(group: Group) -> bool:
    """Whether most of what stages touch along their rows lies in memory the other way round:
    threads that count from the ends of rows then load elements that lie beside each other at once.
    """
    if any(len(stage.inner) > 1 for stage in group.stages):
        return False
    actions = [action for stage in group.stages for action in stage.actions]
    if any(isinstance(action, Reduce) and action.kind in ARGUMENT for action in actions):
        return False  # The first place of several is that of the least number.
    if any(isinstance(value, Random) for stage in group.stages for value in stage_values(stage)):
        return False  # They are drawn by four, forwards.
    memory = {buffer.name for buffer in (*group.reads, *group.writes)}
    strides = [
        access.index.stride(loop)
        for stage in group.stages
        for access in _accesses(stage)
        for loop in stage.inner
        if access.buffer in memory
    ]
    return strides.count(integer(-1)) > strides.count(integer(1))


def _from_the_end(
    inner: Sequence[LoopSymbol], places: Mapping[Symbol, Index]
) -> dict[Symbol, Index]:
    """The loops of a stage in terms of the axes, its row counted from the end."""
    turned: dict[Symbol, Index] = {loop: loop.extent - 1 - places[loop] for loop in inner}
    return {**places, **turned}


def share_a_row(group: Group) -> bool:
    """Whether a stage loads a row that is the same for all rows, as a matrix times a vector does: a
    program of two loads it once. 50,257 sums of 768 products of bfloat16 take 22 us then on an
    H200, and 34 by programs of one.
    """
    outer = frozenset(group.outer)
    return any(
        outer.isdisjoint(index.free()) and not index.free().isdisjoint(stage.inner)
        for stage in group.stages
        for index in _indices(stage)
    )


def has_rows_of_threads(group: Group, longest: int) -> bool:
    """Whether one thread holds each row, which lies across memory and is loaded once. Its elements
    are `longest`; shorter ones fit a thread in the usual tiles, too.
    """
    if not HELD_ACROSS_ONCE < longest <= LONGEST_OF_THREAD:
        return False
    return len(loaded_rows(group)) == 1 and len(stored_rows(group)) <= 1 and is_half(group)


def _looks_up_rows(group: Group) -> bool:
    """Whether rows are held of which one is stored, and another is read whose number was loaded."""
    values = (value for stage in group.stages for value in stage_values(stage))
    return copies_rows(group) and any(isinstance(value, Indirect) for value in values)


def _walked_block(x: LoopSymbol, longest: int, stripes: int, outer_is_contiguous: bool) -> int:
    """The rows of a tile that walks over a stripe of them: as many as divide it, up to a tile of
    twice the usual size, since each of its turns waits for what it loads; two long ones where
    stripes are few.
    """
    length = _power_of_two(longest)
    block = max(1, 2 * TILE // length)
    if outer_is_contiguous:
        block = max(NARROWEST_ACROSS, ACROSS_TILE // length)
    elif block == 1 and stripes < MANY_PROGRAMS and length <= 2 * TILE:
        block = 2
    while not known_multiple(x.extent, block):
        block //= 2
    return block


def _row_blocks(
    count: int, longest: int, outer_is_contiguous: bool, holds: bool
) -> tuple[int, int]:
    """Blocks along x and r of `count` rows. Threads should lie along what is contiguous in
    memory.
    """
    length = _power_of_two(longest)
    if outer_is_contiguous and holds:
        is_short = length <= HELD_ACROSS_ONCE
        width = max(NARROWEST_ACROSS, (SHARED_TILE if is_short else ACROSS_TILE) // length)
        if count < MANY_PROGRAMS * width:
            width = max(1, (SHARED_TILE if is_short else 2 * WALKED_TILE) // length)
        return width, 0
    if outer_is_contiguous:
        width = WIDEST_ACROSS
        while width > NARROWEST_ACROSS and count < BUSY_PROGRAMS * width:
            width //= 2
        return width, (SHARED_TILE if width == WIDEST_ACROSS else WALKED_TILE) // width
    if holds:
        return max(1, TILE // length), 0
    return 1, SHARED_TILE if count >= MANY_PROGRAMS else WALKED_TILE


def _segments(group: Group) -> tuple[list[tuple[LoopSymbol, ...]], tuple[int, ...]]:
    """The outer loops of each axis of a pointwise tile, and the blocks of the axes: split where
    some access is contiguous along a loop, or where loads are the same all along a row.
    """
    units = _unit_loops(group)
    if len(units) < 2:
        return _rows_apart(group) or ([group.outer], (_flat_block(group),))
    segments: list[tuple[LoopSymbol, ...]] = []
    current: list[LoopSymbol] = []
    for symbol in group.outer:
        current.append(symbol)
        if symbol in units:
            segments.append(tuple(current))
            current = []
    if current:
        segments.append(tuple(current))
    while len(segments) > len(OUTER_NAMES):
        segments[:2] = [segments[0] + segments[1]]
    if len(segments) == 3:
        return segments, (4, 16, 16)
    narrowest = min(b.layout.dtype.bytes for b in (*group.reads, *group.writes))
    side = min(64, max(32, LINE_BYTES // narrowest))
    return segments, (side,) * len(segments)


def _flat_block(group: Group) -> int:
    """The elements of a flat tile of one axis."""
    columns = shared_columns(group)
    (stage, *others) = group.stages
    if columns or others or not is_half(group) or len(stage.actions) > 1:
        return max(TILE, 2 * columns)
    if prod(map(extent_hint, group.outer)) < PROGRAMS_AT_ONCE * SHARED_TILE:
        return TILE
    moving = {symbol for symbol in group.outer if symbol.extent != 1}
    loads = {
        (value.buffer, value.index)
        for value in stage_values(stage)
        if isinstance(value, Load) and moving <= value.index.free()
    }
    has_work = Traits.of(stage, Dependences()).cost >= FLAT_WORK
    return SHARED_TILE if has_work and len(loads) == 1 else TILE


def _rows_apart(group: Group) -> tuple[list[tuple[LoopSymbol, ...]], tuple[int, ...]] | None:
    """Rows as an axis of their own, where some load is the same all along one: it is loaded once
    a row, and not for each element. None: no load is, or rows are short, or fit no block well.
    """
    moving = [symbol for symbol in group.outer if symbol.extent != 1]
    indices = {index for stage in group.stages for index in _indices(stage)}
    splits = {
        next((n for n, s in enumerate(reversed(moving)) if s in index.free()), len(moving))
        for index in indices
    } - {0, len(moving)}
    for count in sorted(splits, reverse=True):
        first = group.outer.index(moving[-count])
        block = _row_block(product(symbol.extent for symbol in group.outer[first:]))
        if block:
            return [group.outer[:first], group.outer[first:]], (max(1, TILE // block), block)
    return None


def shared_columns(group: Group) -> int:
    """The length of rows, a power of two, where several loads are the same for all rows, such as
    those of statistics of channels that lie last: a thread that has elements of two rows loads them
    once. 0: there are none, or rows are too long for two in a tile.
    """
    moving = [symbol for symbol in group.outer if symbol.extent != 1]
    found: Counter[int] = Counter()
    accesses = {(a.buffer, a.index) for stage in group.stages for a in _accesses(stage)}
    for _, index in accesses:
        free = index.free()
        first = next((n for n, symbol in enumerate(moving) if symbol in free), 0)
        length = product(symbol.extent for symbol in moving[first:])
        if first and length.is_constant:
            found[int(length)] += 1
    lengths = [n for n, count in found.items() if count > 1 and n == _power_of_two(n)]
    return max((n for n in lengths if n <= LONGEST_SHARED), default=0)


def _row_block(length: Index) -> int:
    """The block for rows of a length, of which at most an eighth is idle; 0: there is none. The
    longer it is, the less often what all of a row reads is loaded.
    """
    if not length.is_constant or not known_multiple(length, ROW_MULTIPLE):
        return 0
    count, block = int(length), SHARED_TILE
    while block >= SHORTEST_ROW:
        if 8 * (-count % block) <= count:
            return block
        block //= 2
    return 0


def _unit_loops(group: Group) -> set[Symbol]:
    """The loops along which some access over several loops is contiguous."""
    symbols: set[Symbol] = set()
    for stage in group.stages:
        for index in _indices(stage):
            moving = [s for s in group.outer if index.stride(s) != 0 and extent_hint(s) > 1]
            units = [symbol for symbol in moving if index.stride(symbol) == 1]
            if len(moving) > 1 and len(units) == 1 and extent_hint(units[0]) >= 16:
                symbols.add(units[0])
    return symbols


def contiguous_along_outer(group: Group) -> bool:
    """Whether a tile should be as wide along an outer loop as along the rows: it reads the elements
    that lie along the rows well, too, so that an `ACROSS_SHARE`th of them is enough.
    """
    accesses = [(index, stage.inner) for stage in group.stages for index in _indices(stage)]
    return rows_lie_across(accesses, group.outer, extent_hint, ACROSS_SHARE)


def is_wide(group: Group) -> bool:
    """Whether some index or count cannot be proved to fit 32 bits."""
    counts = [product(symbol.extent for symbol in group.outer)]
    for stage in group.stages:
        counts.append(product(symbol.extent for symbol in stage.inner))
        counts += [*_indices(stage), *_computed(stage)]
    limit = (1 << 31) - PERSISTENT_LIMIT
    return any(
        high is None or low is None or high >= limit or low < -limit
        for low, high in (count.bounds() for count in counts)
    )


def _indices(stage: Stage) -> list[Index]:
    """The indices at which a stage touches memory and locals."""
    return [access.index for access in _accesses(stage)]


def _accesses(stage: Stage) -> Sequence[MemoryAccess]:
    """Where a stage touches memory and locals."""
    return Traits.of(stage, Dependences()).accesses


def _computed(stage: Stage) -> Iterator[Index]:
    """Index expressions that a stage computes with."""
    for value in stage_values(stage):
        match value:
            case IndexValue(index=index) | Random(position=index):
                if not any(isinstance(s, RealSymbol) for s in index.free()):
                    yield index


def programs(tiling: Tiling) -> Index:
    """The number of programs that cover the outer loops: one for each tile, or stripe of tiles."""
    if tiling.walks_outer:
        assert tiling.batch is not None, "a stripe has a number"
        return tiling.batch.extent
    tiles = product((axis.extent + (axis.block - 1)) // axis.block for axis in tiling.outer)
    return tiles if tiling.batch is None else tiles * tiling.batch.extent


def _hint(symbol: LoopSymbol) -> int:
    count = symbol.extent
    return int(count) if count.is_constant else extent_hint(symbol)


def _fitting(symbol: LoopSymbol, block: int) -> int:
    """`block`, or less where the whole extent is less."""
    count = symbol.extent
    return min(block, _power_of_two(int(count))) if count.is_constant else block


def _power_of_two(count: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(count - 1, 0).bit_length()
