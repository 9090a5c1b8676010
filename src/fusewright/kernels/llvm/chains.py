"""Kernels that hand memory to each other piece by piece, as one: what lies between them stands in
the function's frame, and is there a piece at a time.

```
define i64 @kernel(ptr %arguments, i64 %begin, i64 %end)
  %scratch0 = alloca float, i64 4096           a piece of what lies between
  for each piece from %begin to %end
    %memory0 = %scratch0 - piece * 4096        where the piece's elements are what indices say
    call @part0(…, piece * 2, piece * 2 + 2)   the units of the piece
    call @part1(…, piece * 64, piece * 64 + 64)
    call @part2(…, piece, piece + 1)
```
So attention holds a block of scores at a time, in the cache that they were written to. A piece is a
part of the points of each kernel's outer loops, in the order of its units; of memory that one part
writes and another one uses, each piece has to touch its own part alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from math import prod

from fusewright.ir.canonical import hash_of
from fusewright.ir.group import Accumulate, Group, Reduce, action_roots
from fusewright.ir.index import Index, LoopSymbol, integer
from fusewright.ir.kernel import CpuFacts
from fusewright.ir.products import MatrixProduct, product_of_loads
from fusewright.ir.value import Load, postorder
from fusewright.kernels.language import Candidate, ChainPart, Handover, Pieces, Work
from fusewright.kernels.llvm.plan import make_plan
from fusewright.kernels.llvm.product_plan import ProductTiling, tiling_of
from fusewright.kernels.llvm.products import write_product
from fusewright.kernels.llvm.scope import SLOT_ALIGNMENT
from fusewright.kernels.llvm.storage import MEMORY
from fusewright.records import record, replace
from fusewright.runtime.llvm_engine import CpuTarget

MOST_SCRATCH = 1 << 20
"""Bytes of a thread's stack that may hold a piece."""

BLOCK_BYTES = 1 << 19
"""Bytes of a block of rows, about: with what the other operands need, it stays in the second cache.
"""

LEAST_ROWS = 48
"""Rows of a block at least: each packs the right operands anew."""

FEW_PIECES = 8
"""Pieces below which threads may be left without one, where there is work for `FEW_THREADS`."""

FEW_THREADS = 4

ARGUMENT = re.compile(r"%((?:in|out|inout)\d+)\b")
"""A tensor argument in a kernel's source."""


@record
class _Product:
    """A part that is a matrix product."""

    product: MatrixProduct
    tiling: ProductTiling

    @staticmethod
    def of(part: ChainPart, target: CpuTarget) -> _Product | None:
        product = product_of_loads(part.group)
        tiling = None if product is None else tiling_of(product, target)
        return None if product is None or tiling is None else _Product(product, tiling)

    @property
    def batches(self) -> int:
        """Its batches; 0 where their number is not known."""
        extents = [symbol.extent for symbol in self.product.batches]
        return prod(map(int, extents)) if all(size.is_constant for size in extents) else 0

    @property
    def rows(self) -> int:
        """Its rows; 0 where their number is not known."""
        rows = self.product.rows
        return 1 if rows is None else int(rows.extent) if rows.extent.is_constant else 0

    @property
    def columns(self) -> int:
        return int(self.product.columns.extent)

    def by_blocks(self, rows: int) -> ProductTiling:
        """The same with units of so many rows."""
        tiling = self.tiling
        plan = tiling.plan
        units = integer(self.batches * -(-self.rows // rows)) * plan.blocks
        return replace(tiling, block=rows, plan=replace(plan, block=integer(rows), units=units))


def ways_to_cut(first: ChainPart, last: ChainPart, target: CpuTarget) -> Sequence[Pieces]:
    """The ways to cut a chain that begins and ends with these kernels, which have to be products of
    as many batches: by blocks of rows where a batch has several, and by batches.
    """
    begin, end = _Product.of(first, target), _Product.of(last, target)
    if begin is None or end is None or begin.batches < 2 or begin.batches != end.batches:
        return ()
    if not begin.rows or not begin.product.columns.extent.is_constant:
        return ()
    whole = Pieces(batches=begin.batches, rows=begin.rows, block=begin.rows)
    tile = math.lcm(begin.tiling.rows, end.tiling.rows)
    fitting = BLOCK_BYTES // (begin.columns * begin.product.dtype.bytes)
    block = -(-max(fitting, LEAST_ROWS) // tile) * tile
    if block >= begin.rows:
        return (whole,)
    return replace(whole, block=block), whole


def keeps_to_pieces(
    part: ChainPart, memory: str, pieces: Pieces, size: int, target: CpuTarget
) -> bool:
    """Whether each piece of a part touches only its own part of a memory of so many elements."""
    loops = _loops_of_pieces(part, pieces, target)
    least = pieces.batches if pieces.is_of_batches else pieces.batches * pieces.rows
    if not loops or size % least:
        return False
    names = {name for name, own in zip(part.tensors, part.memory, strict=True) if own == memory}
    return all(
        _is_in_piece(index, loops, least, size // least) for index in _accesses(part.group, names)
    )


def _loops_of_pieces(part: ChainPart, pieces: Pieces, target: CpuTarget) -> Sequence[LoopSymbol]:
    """The outermost loops of a part's units whose points, in their order, the batches are equal
    parts of, or the rows where a piece has some of them; none where it cannot be cut so.
    """
    actions = [action for stage in part.group.stages for action in stage.actions]
    if any(isinstance(action, Accumulate) for action in actions):
        return ()  # It looks at all of its indices before it changes anything.
    own = _Product.of(part, target)
    least = pieces.batches if pieces.is_of_batches else pieces.batches * pieces.rows
    if own is None:
        points = make_plan(part.group, target).points
    elif pieces.is_of_batches:
        points = own.product.batches
    else:
        rows = own.product.rows
        if rows is None or pieces.block % own.tiling.rows or own.tiling.few is not None:
            return ()
        points = (*own.product.batches, rows)
    if not all(symbol.extent.is_constant for symbol in points):
        return ()
    count = 1
    for number, symbol in enumerate(points, 1):
        count *= int(symbol.extent)
        if count % least == 0:
            return points[:number] if own is None or count == least else ()
    return ()


def _is_in_piece(index: Index, loops: Sequence[LoopSymbol], pieces: int, size: int) -> bool:
    """Whether an element of each piece lies in a part of `size` elements that is its own."""
    turns = prod(int(symbol.extent) for symbol in loops) // pieces
    step, rest = divmod(size, turns)
    if rest:
        return False
    stride = step
    for symbol in reversed(loops):
        if symbol.extent != 1 and index.stride(symbol) != stride:
            return False
        stride *= int(symbol.extent)
    within = index.substitute({symbol: integer(0) for symbol in loops})
    if within.lower is None or within.upper is None:
        return False
    return within.lower >= 0 and within.upper + step * (turns - 1) < size


def _accesses(group: Group, names: set[str]) -> list[Index]:
    """The indices at which a group loads and stores buffers."""
    actions = [action for stage in group.stages for action in stage.actions]
    roots = action_roots(*actions)
    loads = [node for node in postorder(roots) if isinstance(node, Load)]
    stores = [action for action in actions if not isinstance(action, Reduce)]
    return [access.index for access in (*loads, *stores) if access.buffer in names]


@record
class _Share:
    """The units of a part, and its function."""

    name: str
    """Of the function, which kernels of a module may share."""

    source: str
    """What it needs, and itself."""

    batch: int
    """Units of a batch."""

    piece: int
    """Units of a piece: the last one of a batch may have fewer."""


def _share(part: ChainPart, pieces: Pieces, target: CpuTarget) -> _Share:
    """A part, cut into pieces: products by blocks of as many rows."""
    batch = part.units // pieces.batches
    own = None if pieces.is_of_batches else _Product.of(part, target)
    source, piece = (
        part.source,
        batch if pieces.is_of_batches else batch // pieces.rows * pieces.block,
    )
    if own is not None:
        tiling = own.by_blocks(pieces.block)
        source = write_product(part.group, own.product, part.tensors, (), tiling, target)
        piece = int(tiling.plan.blocks)
        batch = piece * pieces.blocks
    source = ARGUMENT.sub(r"%part_\1", source.rstrip())
    name = f"part_{hash_of(source)}"
    source = source.replace("define i64 @kernel(", f"define internal i64 @{name}(", 1)
    return _Share(name, source, batch, piece)


def join(
    parts: Sequence[ChainPart],
    tensors: Mapping[str, str],
    scratch: Sequence[Handover],
    pieces: Pieces,
    target: CpuTarget,
) -> Candidate | None:
    """The kernel that does the work of parts. `tensors`: the names of its arguments, by the memory
    that they are; `scratch`: the memory that is nobody else's. None where it is not worth it.
    """
    work = sum(part.units / part.grain for part in parts)
    grain = max(1, round(pieces.count / work))
    taken = sum(pieces.part(handover.size) * handover.dtype.bytes for handover in scratch)
    if taken > MOST_SCRATCH or FEW_THREADS * grain < pieces.count < FEW_PIECES:
        return None
    shares = [_share(part, pieces, target) for part in parts]
    writer = _ChainWriter(parts, shares, tensors, scratch, pieces)
    return Candidate("", writer.write(), Work(integer(pieces.count), CpuFacts(grain=grain)))


@record
class _ChainWriter:
    """Writes the kernel that does the work of parts."""

    parts: Sequence[ChainPart]
    shares: Sequence[_Share]
    tensors: Mapping[str, str]
    scratch: Sequence[Handover]
    pieces: Pieces

    def write(self) -> str:
        """The module text: what the parts need, the parts, and the loop over pieces."""
        definitions: dict[str, None] = {}
        for share in self.shares:
            definitions |= dict.fromkeys(share.source.split("\n\n"))
        last = f"%code{len(self.parts)}"
        lines = [
            "define i64 @kernel(ptr %arguments, i64 %begin, i64 %end) nounwind {",
            "entry:",
            *self._entry(),
            "  %some = icmp slt i64 %begin, %end",
            "  br i1 %some, label %loop, label %done",
            "loop:",
            "  %piece = phi i64 [ %begin, %entry ], [ %piece.n, %loop ]",
            f"  %code0 = phi i64 [ 0, %entry ], [ {last}, %loop ]",
            f"  %batch = udiv i64 %piece, {self.pieces.blocks}",
            f"  %block = urem i64 %piece, {self.pieces.blocks}",
            *self._memory(),
            *(line for number in range(len(self.parts)) for line in self._call(number)),
            "  %piece.n = add nsw i64 %piece, 1",
            "  %more = icmp slt i64 %piece.n, %end",
            "  br i1 %more, label %loop, label %done",
            "done:",
            f"  %result = phi i64 [ 0, %entry ], [ {last}, %loop ]",
            "  ret i64 %result",
            "}",
        ]
        return "\n\n".join((*definitions, "\n".join(lines))) + "\n"

    def _entry(self) -> list[str]:
        """Memory for a piece, the arguments, and a list of arguments for each part."""
        lines = [
            f"  %scratch{number} = alloca {MEMORY[handover.dtype]}, "
            f"i64 {self.pieces.part(handover.size)}, align {SLOT_ALIGNMENT}"
            for number, handover in enumerate(self.scratch)
        ]
        for number, name in enumerate(self.tensors.values()):
            lines += [
                f"  %slot{number} = getelementptr inbounds ptr, ptr %arguments, i64 {number}",
                f"  %{name} = load ptr, ptr %slot{number}, align 8",
            ]
        for number, part in enumerate(self.parts):
            lines.append(f"  %list{number} = alloca [{len(part.memory)} x ptr], align 8")
            for place, memory in enumerate(part.memory):
                slot = f"%slot{number}.{place}"
                lines.append(f"  {slot} = getelementptr ptr, ptr %list{number}, i64 {place}")
                if memory in self.tensors:
                    lines.append(f"  store ptr %{self.tensors[memory]}, ptr {slot}, align 8")
        return lines

    def _memory(self) -> list[str]:
        """Where memory would begin of which the piece's elements are in the frame."""
        lines = []
        for number, handover in enumerate(self.scratch):
            size = handover.size
            lines += [
                f"  %batches{number} = mul i64 %batch, -{size // self.pieces.batches}",
                f"  %blocks{number} = mul i64 %block, -{self.pieces.part(size)}",
                f"  %before{number} = add i64 %batches{number}, %blocks{number}",
                f"  %memory{number} = getelementptr {MEMORY[handover.dtype]}, "
                f"ptr %scratch{number}, i64 %before{number}",
            ]
            lines += [
                f"  store ptr %memory{number}, ptr %slot{part}.{place}, align 8"
                for part, own in enumerate(self.parts)
                for place, memory in enumerate(own.memory)
                if memory == handover.memory
            ]
        return lines

    def _call(self, number: int) -> list[str]:
        """The units of a piece of a part, and the first fault that there was so far."""
        share = self.shares[number]
        return [
            f"  %first{number} = mul i64 %batch, {share.batch}",
            f"  %done{number} = mul i64 %block, {share.piece}",
            f"  %to{number} = add i64 %done{number}, {share.piece}",
            f"  %last{number} = call i64 @llvm.smin.i64(i64 %to{number}, i64 {share.batch})",
            f"  %begin{number} = add i64 %first{number}, %done{number}",
            f"  %end{number} = add i64 %first{number}, %last{number}",
            f"  %own{number} = call i64 @{share.name}"
            f"(ptr %list{number}, i64 %begin{number}, i64 %end{number})",
            f"  %clear{number} = icmp eq i64 %code{number}, 0",
            f"  %code{number + 1} = select i1 %clear{number}, i64 %own{number}, i64 %code{number}",
        ]
