"""Values as registers: each node of an expression graph once, as far out as it can be known.

A value that is the same in all lanes is computed once as a scalar and spread where a vector is
wanted. What stands under a mask is computed apart from what does not, since its loads are allowed
only where the mask holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

from fusewright.errors import FusewrightError
from fusewright.ir.dtype import DType
from fusewright.ir.index import RealSymbol
from fusewright.ir.value import (
    Apply,
    Cast,
    Constant,
    IndexValue,
    Indirect,
    Load,
    Masked,
    Random,
    Value,
    children,
)
from fusewright.kernels.llvm import indexing, memory
from fusewright.kernels.llvm.builder import Register, VectorType
from fusewright.kernels.llvm.conditions import known_truths
from fusewright.kernels.llvm.operations import Operands, apply
from fusewright.kernels.llvm.scope import Guard, Scope
from fusewright.kernels.llvm.storage import constant, convert

OUT_OF_BOUNDS = 1
DIVISION_BY_ZERO = 2
"""Codes of faults, as the launcher reads them (`native/cpu_kernel.c`)."""


def evaluate(scope: Scope, root: Value, guard: Guard = ()) -> Register:
    """The register of `root` in the current lanes: a scalar where it is the same in all of them."""
    register = _recall(scope, root, guard)
    if register is not None:
        return register
    stack = [root]
    while stack:
        node = stack[-1]
        if _recall(scope, node, guard) is not None:
            stack.pop()
            continue
        if (register := _known_condition(scope, node)) is not None:
            stack.pop()
            with scope.at(scope.level_of_symbols(scope.dependences.of(node))):
                scope.remember(_key(node, guard), register)
            continue
        waiting = [c for c in _operands(node) if _recall(scope, c, guard) is None]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        register = _write(scope, node, guard)
    assert register is not None
    return register


def evaluate_lanes(scope: Scope, root: Value) -> Register:
    """The value of `root` as `evaluate` gives it, spread over the lanes."""
    return scope.spread(evaluate(scope, root))


def _operands(node: Value) -> tuple[Value, ...]:
    """The values that must be known before `node`, under the same guard."""
    return (node.mask,) if isinstance(node, Masked) else children(node)


def _key(node: Value, guard: Guard) -> object:
    return ("value", id(node), tuple(id(mask) for mask in guard))


def _recall(scope: Scope, node: Value, guard: Guard) -> Register | None:
    if isinstance(node, Constant):
        return constant(scope.b, node.value, node.dtype)
    return scope.recall(_key(node, guard))


def _known_condition(scope: Scope, node: Value) -> Register | None:
    """A condition on the loop over lanes, where it is known: a scalar if it is one for all."""
    truths = _known_truths(scope, node)
    if truths is None:
        return None
    if len(set(truths)) == 1:
        return scope.b.constant(VectorType("i1"), truths[0])
    return scope.b.vector("i1", truths)


def _known_truths(scope: Scope, node: Value) -> Sequence[bool] | None:
    """A condition on the loop over lanes, where it is known: for each lane, or once for all."""
    lanes = scope.lanes
    return None if lanes is None else known_truths(node, lanes.symbol, lanes.count, lanes.ends)


def _write(scope: Scope, node: Value, guard: Guard) -> Register:
    level = _level(scope, node, guard)
    if isinstance(node, Masked):
        # Its loads have levels of their own; only the last selection is written here.
        inner = evaluate(scope, node.value, (*guard, node.mask))
        level = max(level, inner.level)
    with scope.at(level):
        return scope.remember(_key(node, guard), _node(scope, node, guard))


def _level(scope: Scope, node: Value, guard: Guard) -> int:
    """The level of a node: where its loops, the memory it reads and its guard are known."""
    symbols = scope.dependences.of(node).union(*(scope.dependences.of(mask) for mask in guard))
    level = scope.level_of_symbols(symbols)
    for operand in _operands(node):
        register = _recall(scope, operand, guard)
        assert register is not None, "operands are written first"
        level = max(level, register.level)
    for mask in _masks(scope, guard):
        level = max(level, mask.level)
    if isinstance(node, Load):
        if node.buffer in scope.row_locals or node.buffer in scope.written:
            level = max(level, scope.stage_level)
        if node.buffer in scope.row_locals and scope.block is not None:
            level = max(level, scope.level_of_symbols({scope.block.symbol}))
        if node.buffer in scope.stored_here:
            level = scope.depth
    return level


def _node(scope: Scope, node: Value, guard: Guard) -> Register:
    match node:
        case Load():
            return _load(scope, node, guard)
        case IndexValue(dtype=dtype):
            return _index_value(scope, node, dtype, guard)
        case Apply(operation=operation, arguments=arguments):
            return _apply(scope, operation, arguments, guard)
        case Cast(argument=argument, dtype=dtype):
            value = evaluate(scope, argument, guard)
            return convert(scope.b, value, argument.dtype, dtype)
        case Masked():
            return _masked(scope, node, guard)
        case Indirect():
            return _indirect(scope, node, guard)
        case Random():
            raise FusewrightError("the CPU target has no random draws yet")
        case Constant(value=value, dtype=dtype):
            return constant(scope.b, value, dtype)


def active_lanes(scope: Scope, guard: Guard, *, vector: bool) -> Register | None:
    """The lanes in which a guarded value may be touched: the guard's masks and, for vectors, the
    loop's own end.
    """
    active = scope.lanes.mask if vector and scope.lanes is not None else None
    for register in _masks(scope, guard):
        if register.is_true:
            continue
        if active is None:
            active = register
        elif active.type.lanes == register.type.lanes:
            active = active & register
        else:
            active = scope.spread(active) & scope.spread(register)
    return active


def _masks(scope: Scope, guard: Guard) -> list[Register]:
    """The registers of a guard's masks, each computed under those around it."""
    return [evaluate(scope, mask, guard[:place]) for place, mask in enumerate(guard)]


def set_loaded(scope: Scope, indirect: Sequence[Value], guard: Guard = ()) -> None:
    """Let the symbols of loaded indices stand for what they are under `guard`. To be done right
    before the expression over them is written: any value between may set them under another mask.
    """
    for value in indirect:
        assert isinstance(value, Indirect)
        scope.set_loaded(value.symbol, evaluate(scope, value, guard))


def _load(scope: Scope, node: Load, guard: Guard) -> Register:
    is_row = scope.row_locals.get(node.buffer)
    if is_row is not None:
        return _load_local(scope, node, guard, is_row)
    if id(node) in scope.tiles and not guard:
        return memory.load_tile_row(scope, scope.tiles[id(node)], node.dtype)
    varies = _varies(scope, node, guard)
    offsets = memory.picked_offsets(scope, node.index) if varies and not node.indirect else None
    truths = None if offsets is None else _active_truths(scope, guard)
    if offsets is not None and truths is not None:
        return memory.load_picked(scope, node.buffer, node.index, node.dtype, offsets, *truths)
    active = active_lanes(scope, guard, vector=varies)
    set_loaded(scope, node.indirect, guard)
    return memory.load(scope, node.buffer, node.index, node.dtype, active, varies)


def _active_truths(scope: Scope, guard: Guard) -> tuple[list[bool], Register | None] | None:
    """`active_lanes` in two parts: what is known of each lane, and an i1 for all of them. None
    where lanes differ in something that is not known.
    """
    lanes = scope.lanes
    assert lanes is not None
    if lanes.mask is not None and lanes.inside is None:
        return None
    known = [lanes.inside is None or lane < lanes.inside for lane in range(lanes.count)]
    unknown: Register | None = None
    for place, mask in enumerate(guard):
        for part in _conjuncts(mask):
            truths = _known_truths(scope, part)
            if truths is not None:
                known = [left and right for left, right in zip(known, cycle(truths), strict=False)]
                continue
            register = evaluate(scope, part, guard[:place])
            if register.type.lanes > 1:
                return None
            unknown = register if unknown is None else unknown & register
    return known, unknown


def _conjuncts(mask: Value) -> Iterator[Value]:
    """The conditions that a mask is the logical and of."""
    match mask:
        case Apply(operation="bitwise_and", arguments=arguments, dtype=DType.BOOL):
            for argument in arguments:
                yield from _conjuncts(argument)
        case _:
            yield mask


def _varies(scope: Scope, node: Load | IndexValue, guard: Guard) -> bool:
    """Whether the index of `node` differs from lane to lane."""
    if scope.lanes is None:
        return False
    return scope.lanes.symbol in node.index.free() or any(
        evaluate(scope, loaded, guard).type.lanes > 1 for loaded in node.indirect
    )


def _load_local(scope: Scope, node: Load, guard: Guard, is_row: bool) -> Register:
    lanes = scope.local_lanes
    if not is_row:
        return memory.load_local(scope, node.buffer, node.dtype, lanes)
    if lanes == 1:
        varies = _varies(scope, node, guard)
        active = active_lanes(scope, guard, vector=varies)
        set_loaded(scope, node.indirect, guard)
        return memory.load(scope, node.buffer, node.index, node.dtype, active, varies)
    set_loaded(scope, node.indirect, guard)
    return memory.load_row_element(scope, node.buffer, node.index, node.dtype)


def _index_value(scope: Scope, node: IndexValue, dtype: DType, guard: Guard) -> Register:
    varies = _varies(scope, node, guard)
    set_loaded(scope, node.indirect, guard)
    if any(isinstance(s, RealSymbol) for s in node.index.free()):
        return scope.b.cast("bitcast", indexing.scalar(scope, node.index), "double")
    if not varies:
        return convert(scope.b, indexing.scalar(scope, node.index), DType.I64, dtype)
    narrow = dtype is DType.I32 or dtype.is_float
    if narrow and indexing.fits_in_32_bits(node.index):
        return convert(scope.b, indexing.vector(scope, node.index, "i32"), DType.I32, dtype)
    return convert(scope.b, indexing.vector(scope, node.index), DType.I64, dtype)


def _apply(scope: Scope, operation: str, arguments: tuple[Value, ...], guard: Guard) -> Register:
    values = [evaluate(scope, argument, guard) for argument in arguments]
    if operation == "bitwise_and" and any(value.is_true for value in values):
        return min(values, key=lambda value: value.is_true)
    if any(value.type.lanes > 1 for value in values):
        values = [scope.spread(value) for value in values]

    def divided_by_zero(lanes: Register) -> None:
        active = active_lanes(scope, guard, vector=lanes.type.lanes > 1)
        scope.fault(lanes, DIVISION_BY_ZERO, active)

    return apply(
        operation,
        Operands(
            b=scope.b,
            dtype=arguments[-1].dtype,
            values=tuple(values),
            constants=tuple(a.value if isinstance(a, Constant) else None for a in arguments),
            divided_by_zero=divided_by_zero,
        ),
    )


def _masked(scope: Scope, node: Masked, guard: Guard) -> Register:
    mask = evaluate(scope, node.mask, guard)
    inner = evaluate(scope, node.value, (*guard, node.mask))
    if mask.is_true:
        return inner
    lanes = max(mask.type.lanes, inner.type.lanes)
    if lanes > 1:
        mask, inner = scope.spread(mask), scope.spread(inner)
    other = constant(scope.b, node.otherwise.value, node.dtype, lanes)
    return scope.b.select(mask, inner, other)


def _indirect(scope: Scope, node: Indirect, guard: Guard) -> Register:
    """A loaded index, counted from the end if negative, checked, and made safe to use."""
    b = scope.b
    value = convert(b, evaluate(scope, node.value, guard), node.value.dtype, DType.I64)
    size = indexing.scalar(scope, node.size)
    if value.type.lanes > 1:
        size = scope.spread(size)
    if node.wrap:
        value = b.select(value < 0, value + size, value)
    if node.check:
        outside = b.compare("ge", value, size, unsigned=True)
        active = active_lanes(scope, guard, vector=outside.type.lanes > 1)
        scope.fault(outside, OUT_OF_BOUNDS, active)
        value = b.select(outside, value.like(0), value)
    return value
