"""The geometry of tensors in memory, and the layout that torch gives to elementwise results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from fusewright.ir.index import Index, contiguous_strides
from fusewright.records import record
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import index_of, symbolic_int

aten = torch.ops.aten


@record
class Geometry:
    """The geometry of a fresh result; strides are in elements."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def is_symbolic(self) -> bool:
        """Whether a size is no plain number."""
        return any(not isinstance(extent, int) for extent in self.size)

    def allocate(self) -> Tensor:
        """A meta tensor of this geometry in a storage of its own."""
        return torch.empty_strided(self.size, self.stride, dtype=self.dtype, device="meta")


Rule = Callable[..., "Geometry | tuple[Geometry | None, ...] | None"]
"""Takes the arguments of an operator; None leaves the call to torch's own meta kernel. A result
that is left out has no geometry.
"""


def require(condition: Any) -> None:
    """State a condition on sizes without which an operator's kernel raises. Raises Required where
    that depends on data, and nobody promised it.
    """
    if isinstance(condition, torch.SymBool) and condition.node.depends_on_data():
        condition.node.expect_true()


def are_sizes(extents: Iterable[Any]) -> bool:
    """Whether none is negative, which is guarded; of one that depends on data that is not asked."""
    conditions = [extent >= 0 for extent in extents]
    return all(
        condition
        for condition in conditions
        if not (isinstance(condition, torch.SymBool) and condition.node.depends_on_data())
    )


def contiguous(dtype: torch.dtype, size: Sequence[int]) -> Geometry:
    """Row-major geometry; a dimension of size 0 counts as 1 in the strides, as in torch."""
    facts = facts_of(size)
    if facts is not None:
        indices = contiguous_strides([index_of(extent) for extent in size])
        return Geometry(dtype, tuple(size), numbers(facts, indices))
    strides = []
    step = 1
    for extent in reversed(size):
        strides.append(step)
        step *= max(extent, 1)
    return Geometry(dtype, tuple(size), tuple(reversed(strides)))


def facts_of(sizes: Iterable[Any]) -> ShapeFacts | None:
    """The facts known of the symbols in `sizes`; None where all are plain numbers."""
    for size in sizes:
        if not isinstance(size, int):
            return size.node.facts  # type: ignore[no-any-return]
    return None


def numbers(facts: ShapeFacts, indices: Iterable[Index]) -> tuple[Any, ...]:
    """Index expressions as sizes."""
    return tuple([symbolic_int(facts, index) for index in indices])


def at_least_one(size: int) -> int:
    """A size, or 1 for 0: the factor by which a dimension multiplies outer strides."""
    if isinstance(size, int):
        return max(size, 1)
    return torch.sym_max(size, 1)


def extent(size: Sequence[int], stride: Sequence[int], offset: Any = 0) -> int:
    """The number of elements a storage must have to hold a tensor of this geometry."""
    facts = facts_of((*size, *stride, offset))
    reach: Any = (offset if facts is None else index_of(offset)) + 1
    for count, step in zip(size, stride, strict=True):
        if isinstance(count, int) and count == 0:
            return offset  # type: ignore[no-any-return]
        if facts is None:
            reach += (count - 1) * step
        else:
            reach = reach + (index_of(count) - 1) * index_of(step)
    return reach if facts is None else symbolic_int(facts, reach)  # type: ignore[return-value]


def channels_last(dtype: torch.dtype, size: Sequence[int]) -> Geometry:
    """Dense geometry with the second dimension innermost."""
    n, c, *spatial = size
    inner = contiguous(dtype, (n, *spatial, c)).stride
    return Geometry(dtype, tuple(size), (inner[0], inner[-1], *inner[1:-1]))


def is_channels_last(x: Tensor) -> bool:
    """A dense batch of images or volumes whose channels are innermost."""
    innermost = _CHANNELS_LAST.get(x.dim())
    return innermost is not None and x.is_contiguous(memory_format=innermost)


_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The memory format of each rank."""


def suggests_channels_last(x: Tensor) -> bool:
    """Whether torch takes the strides of a batch of images or volumes for channels-last ones where
    an operator asks which memory format its result should have.

    Source: the published behaviour of `suggest_memory_format`: strides grow from the channels over
    width, height and depth to the batch; of dimensions with one element the stride decides as well.
    """
    if x.dim() not in (4, 5) or x.stride(1) == 0:
        return False
    least = 0
    for dim in (1, *range(x.dim() - 1, 1, -1), 0):
        size, stride = x.shape[dim], x.stride(dim)
        if size == 0 or stride < least or (dim == 0 and least == x.stride(1)):
            return False
        least = stride * size if size > 1 else stride
    return True


def has_memory_format(x: Tensor) -> bool:
    """Dense, and either row-major or with the channels of images or volumes innermost."""
    return x.is_contiguous() or is_channels_last(x)


def known_equal(a: int, b: int) -> bool:
    """Whether two sizes are equal; of symbolic ones, whether they are the same expression: nothing
    is assumed.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return index_of(a) == index_of(b)


def same_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether sizes are `known_equal` one by one."""
    return len(a) == len(b) and all(map(known_equal, a, b))


def copied_row_major(x: Tensor) -> Geometry | None:
    """The geometry of a copy of a row-major tensor; None where it is not known to be one."""
    result = contiguous(x.dtype, x.shape)
    return result if same_sizes(result.stride, x.stride()) else None


def is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the elements are known to fill their memory without overlap, in any order of
    dimensions.
    """
    step = 1
    for extent, jump in sorted(zip(size, stride, strict=True), key=lambda pair: rough(pair[1])):
        if known_equal(extent, 1):
            continue
        if not known_equal(jump, step):
            return False
        step = step * extent
    return True


def rough(number: int) -> int:
    """A number to sort by: a symbolic size as it was seen when compiling."""
    if isinstance(number, int):
        return number
    hint: int | None = number.node.hint
    return 0 if hint is None else hint


def broadcast_sizes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The common size that all shapes expand to, or None."""
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    for shape in shapes:
        for dim, extent in enumerate(shape, rank - len(shape)):
            if known_equal(extent, result[dim]) or extent == 1 or extent == result[dim]:
                continue
            if result[dim] != 1:
                return None
            result[dim] = extent
    return tuple(result)


def elementwise(
    dtype: torch.dtype, operands: Sequence[Tensor], common: torch.dtype | None = None
) -> Geometry | None:
    """The geometry that torch's TensorIterator gives a fresh output; None when the sizes do not
    broadcast.

    `common`: the type that operands of other types are converted to first.

    Source: the published behaviour of TensorIterator. Operands of one dense layout hand that layout
    on; else dimensions are ordered by the operands' strides, the first operand that tells two
    dimensions apart deciding.
    """
    if common is not None:
        operands = [
            operand if operand.dtype == common else converted(operand) for operand in operands
        ]
    first = operands[0]
    size = tuple(first.shape)
    stride = first.stride()
    if all(same_sizes(other.shape, size) for other in operands[1:]):
        if all(other.is_contiguous() for other in operands):
            return contiguous(dtype, size)
        if len(size) == 4 and all(
            other.is_contiguous(memory_format=torch.channels_last) for other in operands
        ):
            return channels_last(dtype, size)
        same = all(same_sizes(other.stride(), stride) for other in operands[1:])
        if same and is_dense(size, stride):
            return Geometry(dtype, size, stride)
    else:
        broadcast = broadcast_sizes([tuple(operand.shape) for operand in operands])
        if broadcast is None:
            return None
        size = broadcast
    rank = len(size)
    strides = [
        [0] * (rank - operand.dim())
        + [
            0 if extent == 1 and size[rank - operand.dim() + dim] != 1 else operand.stride(dim)
            for dim, extent in enumerate(operand.shape)
        ]
        for operand in operands
        if operand.dim()
    ]
    return ordered_by_strides(dtype, size, strides)


def converted(x: Tensor) -> Tensor:
    """A tensor with the layout that `x` has after it was converted to another type: on the CPU,
    operands are converted before anything else is done with them.
    """
    if x.device.type not in ("cpu", "meta") or is_dense(x.shape, x.stride()):
        return x
    copy = ordered_by_strides(x.dtype, tuple(x.shape), [x.stride()])
    return torch.empty(0, dtype=x.dtype, device="meta").as_strided(copy.size, copy.stride)


def ordered_by_strides(
    dtype: torch.dtype, size: tuple[int, ...], operands: Sequence[Sequence[int]]
) -> Geometry:
    """A dense geometry whose dimensions are in the order in which operands of these strides visit
    memory.
    """
    rank = len(size)

    def comes_later(a: int, b: int) -> int:
        """Whether dimension `a` is outside dimension `b`: 1 yes, -1 no, 0 undecided."""
        for strides in operands:
            if strides[a] == 0 or strides[b] == 0:
                continue
            if strides[a] != strides[b]:
                return 1 if strides[a] > strides[b] else -1
            if size[a] > size[b]:
                return 1
        return 0

    order = list(range(rank - 1, -1, -1))  # innermost first
    for start in range(1, rank):
        position = start
        for other in range(start - 1, -1, -1):
            verdict = comes_later(order[other], order[position])
            if verdict > 0:
                order[other], order[position] = order[position], order[other]
                position = other
            elif verdict < 0:
                break
    strides = [0] * rank
    step = 1
    for dim in order:
        strides[dim] = step
        step = step * at_least_one(size[dim])
    return Geometry(dtype, size, tuple(strides))


def is_number(value: object) -> bool:
    return isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat))


AnyRule = TypeVar("AnyRule")


def named(rule: AnyRule, names: str) -> dict[Any, AnyRule]:
    """`rule` for each operator in `names`, written `name` or `name.overload`."""
    rows = {}
    for name in names.split():
        packet, _, overload = name.partition(".")
        rows[getattr(getattr(aten, packet), overload or "default")] = rule
    return rows
