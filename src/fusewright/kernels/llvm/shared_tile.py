"""A tile of a product's results, as a function that the kernels of products share: LLVM compiles it
once for all kernels of a graph.

    for the depth, one by one
      tile[r] += left[r, k] * panel[k]          all in registers
    block[r] += tile[r]
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.dtype import DType
from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.kernels.llvm.mathematics.registry import GENERATORS, Definition
from fusewright.kernels.llvm.pairs import LANES, multiply_pairs
from fusewright.kernels.llvm.scope import I64, POINTER
from fusewright.kernels.llvm.storage import MEMORY, convert, from_memory

MOST_ROWS = 8
"""Rows of a tile up to which their addresses stay in registers."""


PAIRS = "PAIRS"
"""Stands in a function's name for the type of a product of pairs."""


def call_tile(
    b: IRBuilder,
    kind: VectorType,
    types: tuple[DType, DType],
    *,
    block: Register,
    panel: Register,
    steps: Register,
    left_step: Register,
    left: Sequence[Register],
    adds: bool,
    pairs: bool,
) -> None:
    """Store a tile of results at `block`, or add it: rows of type `kind`, which follow each other.
    `types`: the left operand's in memory, and the product's. `left`: where its rows begin, whose
    elements are `left_step` apart. `pairs`: elements of both operands are pairs of bfloat16.
    """
    own, computed = (dtype.name for dtype in types)
    computed = PAIRS if pairs else computed
    name = f"product_tile-{len(left)}-{own}-{computed}-{'adds' if adds else 'sets'}.{kind.suffix}"
    b.required.setdefault(name)
    operands = (block, panel, steps, left_step, *left)
    b.line(f"call void @{name}({', '.join(f'{o.type} {o.text}' for o in operands)})")


def _tile(kind: VectorType, rows: str, own: str, computed: str, how: str) -> Definition:
    """The function that computes a tile: at each step, a row of the panel times an element of each
    row of the left operand.
    """
    if computed == PAIRS:
        return _tile_of_pairs(kind, int(rows), how)
    b = IRBuilder()
    source, target = DType[own], DType[computed]
    names = [f"%left{row}" for row in range(int(rows))]
    totals = [Register(b, f"%total{row}", kind) for row in range(int(rows))]
    element = VectorType(MEMORY[source])
    across = _load(b, kind, _row(b, kind, "%panel", "%step"))
    sums: list[Register] = []
    for name, total in zip(names, totals, strict=True):
        pointer = b.emit(POINTER, f"getelementptr {element}, ptr {name}, i64 %place")
        loaded = b.emit(element, f"load {element}, ptr {pointer.text}, align {source.bytes}")
        number = convert(b, from_memory(b, loaded, source), source, target)
        sums.append(b.fused(b.splat(number, kind.lanes), across, total))
    body, b.lines = b.lines, []
    for row, total in enumerate(sums):
        pointer = _row(b, kind, "%block", row)
        result = _load(b, kind, pointer) + total if how == "adds" else total
        b.line(f"store {kind} {result.text}, ptr {pointer.text}, align {_alignment(kind)}")
    parameters = ("ptr %block", "ptr %panel", "i64 %steps", "i64 %left_step")
    return _loop(
        f"product_tile-{rows}-{own}-{computed}-{how}.{kind.suffix}",
        (*parameters, *(f"ptr {name}" for name in names)),
        carried=(
            (I64, "%place", "0", "%place.n"),
            *(
                (kind, t.text, kind.constant(0.0), s.text)
                for t, s in zip(totals, sums, strict=True)
            ),
        ),
        body=(*body, "  %place.n = add i64 %place, %left_step"),
        end=b.lines,
    )


def _tile_of_pairs(kind: VectorType, rows: int, how: str) -> Definition:
    """The same of pairs, whose instruction takes a register: rows of several are taken apart."""
    b = IRBuilder()
    register = VectorType(kind.element, LANES)
    count = kind.lanes // LANES
    names = [f"%left{row}" for row in range(rows)]
    totals = [
        [Register(b, f"%total{row}.{part}", register) for part in range(count)]
        for row in range(rows)
    ]
    first = _row(b, kind, "%panel", "%step")
    across = [_load(b, register, _row(b, register, first.text, part)) for part in range(count)]
    element = VectorType(kind.element)
    sums = []
    for name, own in zip(names, totals, strict=True):
        pointer = b.emit(POINTER, f"getelementptr {element}, ptr {name}, i64 %place")
        pair = b.splat(b.emit(element, f"load {element}, ptr {pointer.text}, align 2"), LANES)
        sums.append(
            [multiply_pairs(b, pair, part, total) for part, total in zip(across, own, strict=True)]
        )
    body, b.lines = b.lines, []
    for row, own in enumerate(sums):
        for part, total in enumerate(own):
            pointer = _row(b, register, "%block", row * count + part)
            result = _load(b, register, pointer) + total if how == "adds" else total
            b.line(
                f"store {register} {result.text}, ptr {pointer.text}, align {_alignment(register)}"
            )
    parameters = ("ptr %block", "ptr %panel", "i64 %steps", "i64 %left_step")
    return _loop(
        f"product_tile-{rows}-F32-{PAIRS}-{how}.{kind.suffix}",
        (*parameters, *(f"ptr {name}" for name in names)),
        carried=(
            (I64, "%place", "0", "%place.n"),
            *(
                (register, total.text, register.constant(0.0), new.text)
                for own, other in zip(totals, sums, strict=True)
                for total, new in zip(own, other, strict=True)
            ),
        ),
        body=(*body, "  %place.n = add i64 %place, %left_step"),
        end=b.lines,
    )


def _loop(
    name: str,
    parameters: Sequence[str],
    *,
    carried: Sequence[tuple[VectorType, str, str, str]],
    body: Sequence[str],
    end: Sequence[str],
) -> Definition:
    """The function that runs a body for each `%step` below `%steps`, of which there is one at
    least. `carried`: registers that change from step to step, each with its type, what it begins
    with and what it is next.
    """
    lines = [
        f"define internal void @{name}({', '.join(parameters)}) nounwind {{",
        "entry:",
        "  br label %loop",
        "loop:",
        *(
            f"  {own} = phi {kind} [ {first}, %entry ], [ {following}, %loop ]"
            for kind, own, first, following in ((I64, "%step", "0", "%step.n"), *carried)
        ),
        *body,
        "  %step.n = add nuw nsw i64 %step, 1",
        "  %more = icmp slt i64 %step.n, %steps",
        "  br i1 %more, label %loop, label %done",
        "done:",
        *end,
        "  ret void",
        "}",
    ]
    return Definition("\n".join(lines), ())


def _row(b: IRBuilder, kind: VectorType, base: str, number: int | str) -> Register:
    """Pointer to a row of memory whose rows follow each other."""
    return b.emit(POINTER, f"getelementptr {kind}, ptr {base}, i64 {number}")


def _load(b: IRBuilder, kind: VectorType, pointer: Register) -> Register:
    return b.emit(kind, f"load {kind}, ptr {pointer.text}, align {_alignment(kind)}")


def _alignment(kind: VectorType) -> int:
    """Bytes at whose multiples rows begin, in memory that begins at a multiple of 64."""
    size = kind.lanes * kind.bits // 8
    return min(size & -size, 64)


GENERATORS["product_tile"] = _tile
