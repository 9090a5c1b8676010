"""Enough bytes on their way from memory: how many elements a thread has, and how many blocks a loop
loads ahead.

What is read takes about a microsecond to arrive, in which a multiprocessor of an H200 can move some
40 KiB. A program that waits for a block, works on it, and only then asks for the next one has
nothing on its way while it works. The numbers here are from trials on an H200 of the kernels of
`benchmarks.patterns`, each in 12 to 40 tiles; shares are of the bandwidth of a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from fusewright.ir.group import Action, Gather, Group, Reduce, action_roots
from fusewright.ir.index import Index
from fusewright.ir.value import Indirect, Load, Masked, Value, postorder
from fusewright.kernels.analysis import (
    Dependences,
    Traits,
    elements_at_once,
    extent_hint,
    stage_values,
)
from fusewright.kernels.triton.axis_form import AxisStage
from fusewright.kernels.triton.early_ends import BLOCK, elements_at_once_across, ends_early
from fusewright.kernels.triton.memory_along import copies_rows, loaded_rows, row_loads, stored_rows
from fusewright.kernels.triton.tiling import (
    MANY_PROGRAMS,
    TILE,
    WIDEST_ACROSS,
    TileAxis,
    Tiling,
    contiguous_along_outer,
    has_rows_of_threads,
    share_a_row,
    shared_columns,
)
from fusewright.runtime.multiprocessors import MOST_REGISTERS, REGISTERS, WARP

ACROSS_HELD: Final = 64
"""Elements of a thread where a tile holds rows that lie across memory, half as many for each
further load, which it has no registers for: its own are added up without asking others. A layer
norm over channels took 76 us with 64 elements a thread, and 210 with 16.
"""

WALKED: Final = 32
"""The same, where it walks over them, or over stripes of them, or along rows of one tensor: the
statistics of a batch norm took 38 us, and 55 with sixteen.
"""

WALKED_COST: Final = 32
"""The work on a point, in additions, up to which a thread walks over so many: what is computed on
the way takes registers, too. The gradient of a bias and GELU, at 38, has 103 instructions an
element by 32, with spilled registers among them, and 62 by 16.
"""

MOST_GATHERED: Final = 96
"""Registers of a thread that hold what it gathers, of 255, at most."""

TWO_ROWS: Final = 16
"""Elements of a thread in a flat tile of two rows of shared columns: eight of each row, so that it
loads what they share once (the last kernel of a batch norm's backward: 95 us, and 116 with eight).
"""

READ_ONLY: Final = 64
"""Elements of a thread where rows are held and nothing is stored along them, half as many for each
further load: of rows of 2,048 a warp has one, which it reduces without waiting for others (argmax:
39 us, and 52 with four warps).
"""

THREADS_OF_VECTOR: Final = 128
"""Threads of a program that multiplies held rows by one that they share: of rows of 2,816 numbers
of bfloat16, 1,024 took 3.1 us, and with half as many or twice 3.9 and 3.6.
"""

LONG_HELD, HELD = 4096, 32
"""Elements of a tile of one load of a half type along its rows, and of each of its threads: with
half as many threads, which wait for each other, more such programs share a multiprocessor (group
norm: 69 us, and 79 with 16 elements a thread).
"""

STRIPE_WORDS: Final = 80
"""Registers of a thread for what it loads of a row and gathers, up to which four programs of four
warps that walk over stripes share a multiprocessor, so that an H200 runs 512 of them at once: with
80, a thread has 128 registers (the gradient of an embedding of places and a norm: 382 us, and 476
with eight warps, of which three share one). Beyond, two programs do, of twice as many warps, each
of half as many elements: a gradient with a bias and GELU took 754 us, and 857 with four warps.
"""

WARPS_OF_CROWDED: Final = 8
"""Warps of such a program at most: with 16, one alone fits a multiprocessor (a gradient of rotary
positions and norms of heads: 519 us, and 468 by half the rows and threads).
"""

HELD_AHEAD: Final = 96
"""Bytes of a thread's elements, 24 registers, that a tile of held rows loads for its later stages
before the first one adds up: all its threads wait there for each other, and what is loaded behind
it is only asked for then.
"""

OPERANDS: Final = 112
"""Registers of a thread that what it adds up is made of, about: beside eleven sums of sixteen
elements it kept 300 bytes in memory, beside nine, made of ten loads each, 8 bytes.
"""

PLACES: Final = 24
"""Registers of a thread that walks over stripes of rows for where it is, about."""

AHEAD_BYTES: Final = 56 << 10
"""Shared memory that a program may have for the blocks that it loads ahead: a gradient of rotary
positions and norms of heads loads 24 KiB a block, and took 108 us with two of them ahead, 132 with
one.
"""

AHEAD_STRIPES, AHEAD_CROWDED, AHEAD_ACROSS, AHEAD_ALONG = 2, 3, 3, 1
"""Blocks that are loaded ahead by what walks over stripes of rows (0.79 of a copy without, 0.93
with), over stripes where two programs share a multiprocessor (426 us, and 468 with two blocks),
over rows that lie across memory (0.63, 0.96), and over rows along it (0.92, 1.00).
"""

NEXT_ACROSS: Final = 128
"""Bytes of a thread's elements, 32 registers, that it loads of the next rows of a stripe that lies
across memory before it works on those that it has: a gradient of a layer norm over channels took
147 us, and 172 where it waited for each block.
"""


def elements_a_thread(group: Group, tiling: Tiling) -> int:
    """Elements of a tile that each thread has, about: eight of a small one, sixteen of larger ones,
    so that more loads are on their way at a time, and reductions meet in fewer threads. Where a
    point writes several elements of a buffer, eight points have enough to load.
    """
    at_once = elements_at_once(group)
    usual = usual_elements(group, tiling)
    if any(tiling.inner) and not tiling.persistent and ends_early(group):
        return BLOCK * elements_at_once_across(group)
    if not any(tiling.inner):
        return TWO_ROWS if len(tiling.outer) == 1 and shared_columns(group) else usual
    (x, *_) = tiling.outer
    is_across = contiguous_along_outer(group)
    walked = _walked_elements(group, tiling, usual, at_once)
    if tiling.walks_outer:
        return walked if is_across else usual // 2 if _is_crowded(group, tiling) else usual
    if extent_hint(x.symbol) < MANY_PROGRAMS * x.block:
        return usual
    further = max(0, len(loaded_rows(group)) - 1)
    if is_across:
        if tiling.persistent:
            rows = max(axis.block for axis in tiling.inner if axis is not None)
            is_whole = x.block == WIDEST_ACROSS and has_rows_of_threads(group, rows)
            return max(usual, rows if is_whole else ACROSS_HELD >> further)
        return walked if x.block == WIDEST_ACROSS else usual
    if not tiling.persistent:
        return usual if further else walked
    if share_a_row(group) and sum(map(bool, tiling.inner)) == 1:
        return max(usual, tiling.elements // THREADS_OF_VECTOR)
    if not stored_rows(group):
        return max(usual, READ_ONLY >> further)
    return max(usual, _held_elements(group, tiling))


def _held_elements(group: Group, tiling: Tiling) -> int:
    """Elements of a thread of a tile of one row to load and one to store, of a half type, that are
    held; 0: as many as usual.
    """
    return HELD if tiling.elements == LONG_HELD and copies_rows(group) else 0


def _is_crowded(group: Group, tiling: Tiling) -> bool:
    """Whether threads that walk over stripes of rows along memory would hold so many words of the
    usual elements that fewer than four programs of four warps share a multiprocessor.
    """
    if tiling.batch is None or extent_hint(tiling.batch) < MANY_PROGRAMS:
        return False
    words = usual_elements(group, tiling) * _stripe_words(group)
    return not contiguous_along_outer(group) and words > STRIPE_WORDS


def _stripe_words(group: Group) -> int:
    """Registers of a thread for what each row of a stripe has of its own at one element, and for
    what is gathered there.
    """
    return len(loaded_rows(group)) + _gathered_words(group, Gather)


def usual_elements(group: Group, tiling: Tiling) -> int:
    """Elements of a thread where nothing else is known of a group."""
    return 8 if tiling.elements <= TILE or elements_at_once(group) > 1 else 16


def _walked_elements(group: Group, tiling: Tiling, usual: int, at_once: int) -> int:
    """Elements of a thread that walks over rows, or over stripes of rows: as many as it has
    registers for, beside what it gathers on the way. `at_once`: elements that a point writes.
    """
    work = max(Traits.of(stage, Dependences()).cost for stage in group.stages if stage.inner)
    if work > WALKED_COST:
        return usual
    words = _gathered_words(group, Gather if tiling.walks_outer else Reduce)
    count = WALKED // at_once
    while count > usual and count * words > MOST_GATHERED:
        count //= 2
    return max(usual, count)


def crowded_axis(group: Group, tiling: Tiling, warps: int) -> TileAxis | None:
    """The axis whose block is to be halved, since threads lack registers for what they hold of
    their elements; None where they do not. It is a forecast, of what a group holds for sure: a
    source has its blocks before anybody compiles it. Where machine code needs more registers still,
    it is compiled with more warps (`runtime.triton_compiler.compile_request`), as far as there are
    any.

    Threads that walk over stripes of rows hold what each row has of its own, and what they gather:
    two kernels of a vision transformer's gradient kept 300 to 500 bytes a thread in memory by tiles
    of 16 rows of 1,024, of which one load lies across memory, and none by tiles of 4. Threads that
    walk over rows hold sums, beside what those are made of.
    """
    threads = WARP * warps
    room = min(MOST_REGISTERS, REGISTERS // threads)
    if tiling.walks_outer:
        (axis, *_) = tiling.outer
        words, room = _stripe_words(group), room - PLACES
        if warps > WARPS_OF_CROWDED and axis.block > 1 and _is_crowded(group, tiling):
            return axis
    else:
        walked = [axis for axis in tiling.inner if axis is not None and not tiling.persistent]
        if not walked:
            return None
        axis, room = walked[0], room - OPERANDS
        words = _gathered_words(group, Reduce)
    is_crowded = axis.block > 1 and tiling.elements // threads * words > room
    return axis if is_crowded else None


def _gathered_words(group: Group, gathering: type[Gather | Reduce]) -> int:
    """Registers that hold what all actions of this kind gather of one element."""
    actions = [action for stage in group.stages for action in stage.actions]
    return sum(_words(action) for action in actions if isinstance(action, gathering))


def blocks_ahead(group: Group, tiling: Tiling) -> int:
    """Blocks that a loop loads ahead of the one that it works on, by copies to shared memory; 0:
    as the assembler orders its loads. Never where loaded indices are looked up: what lies behind
    one may not be read before it is checked.
    """
    if not any(tiling.inner) or (tiling.persistent and not tiling.walks_outer):
        return 0
    values = [value for stage in group.stages for value in stage_values(stage)]
    if any(isinstance(value, Indirect) for value in values):
        return 0
    is_across = contiguous_along_outer(group)
    if tiling.walks_outer:
        along = AHEAD_CROWDED if _is_crowded(group, tiling) else AHEAD_STRIPES
        wanted = 0 if is_across else along
    elif is_across:
        wanted = AHEAD_ACROSS if tiling.outer[0].block == WIDEST_ACROSS else 0
    else:
        wanted = AHEAD_ALONG
    types = {buffer.name: buffer.layout.dtype.bytes for buffer in group.reads}
    largest = max(
        sum(types[name] for name, _ in dict.fromkeys(row_loads(stage, group)))
        for stage in group.stages
    )
    return min(wanted, AHEAD_BYTES // max(1, largest * tiling.elements))


def loads_ahead(
    stages: Sequence[AxisStage], tiling: Tiling, memory: Collection[str], elements: int
) -> list[Load]:
    """What later stages of a tile of held rows load of elements that each row has its own of, so
    that it is on its way while the first one waits for all threads of a program; none where a
    thread, which has so many elements, has no registers for it. `memory`: buffers that are no
    locals.
    """
    outer = {axis.symbol for axis in tiling.outer}
    loads: dict[int, Load] = {}
    held = 0
    written: set[str] = set()
    for place, stage in enumerate(stages):
        for value in postorder(action_roots(*stage.actions) if place else ()):
            if not isinstance(value, Load) or value.buffer in written or value.indirect:
                continue
            along = 0 if stage.inner is None else value.index.stride(stage.inner.symbol)
            is_own = value.buffer in memory and outer & value.index.free()
            if is_own and along is not None and id(value) not in loads:
                loads[id(value)] = value
                held += elements * value.dtype.bytes if along != 0 else 0
        written |= {a.buffer for a in stage.actions if not isinstance(a, Reduce)}
    return list(loads.values()) if held <= HELD_AHEAD else []


def loads_of_next_block(
    group: Group, stages: Sequence[AxisStage], tiling: Tiling, elements: int
) -> list[Load]:
    """What threads load of the next block of a stripe of rows that lie across memory before they
    work on this one; none where they have no registers for it, or there is one block alone. A
    thread has so many elements.
    """
    if not tiling.walks_outer or not contiguous_along_outer(group):
        return []
    (axis,) = tiling.outer
    if not axis.extent.is_constant or int(axis.extent) <= axis.block:
        return []
    memory = {buffer.name for buffer in group.reads} - {buffer.name for buffer in group.writes}
    loads: dict[tuple[str, Index], Load] = {}
    for stage in stages:
        order = list(postorder(action_roots(*stage.actions)))
        if any(isinstance(value, Masked | Indirect) for value in order):
            return []
        for value in order:
            if not isinstance(value, Load) or stage.inner is None or value.buffer not in memory:
                continue
            if {axis.symbol, stage.inner.symbol} <= value.index.free():
                loads.setdefault((value.buffer, value.index), value)
    held = elements * sum(load.dtype.bytes for load in loads.values())
    return list(loads.values()) if held <= NEXT_ACROSS else []


def _words(action: Action) -> int:
    """Registers that hold what an action gathers of one element of a tile that it walks through."""
    match action:
        case Reduce(targets=targets, value=value):
            return len(targets) * _registers(value)
        case Gather(value=value):
            return _registers(value)
        case _:
            return 0


def _registers(value: Value) -> int:
    return -(-value.dtype.compute.bytes // 4)
