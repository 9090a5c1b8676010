"""Rules of operators that rearrange, join or pick elements: each new element is one old element, or
a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fusewright.ir import relations
from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, IndexLike, as_index, integer
from fusewright.ir.proof import proves
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call
from fusewright.lower.rules import rule
from fusewright.lower.scalar import Scalar
from fusewright.lower.views import dimension, dimensions, reshaped, strided
from fusewright.records import record
from fusewright.symbolic.real import Real

CAT_LIMIT = 4
"""The most tensors that a loop joins. The eager operator joins more: a branch for each tensor would
cost more than its copies.
"""


def all_of(call: Call, conditions: Sequence[Scalar]) -> Scalar:
    """Logical and; true for none."""
    if not conditions:
        return call.number(True, DType.BOOL)
    total = conditions[0]
    for condition in conditions[1:]:
        total = total & condition
    return total


def at_least(call: Call, index: Index, bound: IndexLike) -> Scalar | None:
    """`index >= bound`, None when that is known."""
    if proves(relations.at_least(index, bound)):
        return None
    return call.index(index) >= call.index(as_index(bound))


def below(call: Call, index: Index, bound: IndexLike) -> Scalar | None:
    """`index < bound`, None when that is known."""
    if proves(relations.below(index, bound)):
        return None
    return call.index(index) < call.index(as_index(bound))


def within(call: Call, index: Index, lowest: IndexLike, bound: IndexLike) -> list[Scalar]:
    """The conditions, as far as they are not known, for `lowest <= index < bound`."""
    conditions = (at_least(call, index, lowest), below(call, index, bound))
    return [condition for condition in conditions if condition is not None]


# Rearranging --------------------------------------------------------------------------------------


def moved(call: Call, x: Box, move: Callable[[Position], Position]) -> Box:
    """A new tensor whose element at a position is that of `x` at `move(position)`."""
    return call.elementwise(lambda at: call.raw(x, move(at)))


@rule("aten.flip.default")
def flip(call: Call, x: Box, dims: Sequence[int]) -> Box:
    chosen = dimensions(dims, x.rank) if dims else ()
    return moved(
        call,
        x,
        lambda at: tuple(x.size[d] - 1 - i if d in chosen else i for d, i in enumerate(at)),
    )


@rule("aten.roll.default")
def roll(call: Call, x: Box, shifts: Any, dims: Any = ()) -> Any:
    shift_list = [shifts] if isinstance(shifts, (int, Index)) else list(shifts)
    chosen = [dims] if isinstance(dims, int) else list(dims)
    if any(extent.lower == 0 for extent in x.size):
        return NotImplemented
    if not chosen:
        flat = reshaped(call, x, (x.elements,))
        rolled = call.lazy(
            flat.size,
            x.dtype,
            lambda at: call.raw(flat, ((at[0] - shift_list[0]) % flat.size[0],)),
        )
        return moved(call, reshaped(call, rolled, x.size), lambda at: at)
    by: dict[int, Any] = {}
    for amount, dim in zip(shift_list, chosen, strict=True):
        place = dimension(dim, x.rank)
        by[place] = by.get(place, 0) + amount
    return moved(
        call,
        x,
        lambda at: tuple((i - by[d]) % x.size[d] if d in by else i for d, i in enumerate(at)),
    )


@rule("aten.repeat.default")
def repeat(call: Call, x: Box, repeats: Sequence[IndexLike]) -> Any:
    if any(extent == 0 for extent in call.result.size):
        return call.elementwise(lambda at: call.number(0, x.dtype))
    return moved(
        call,
        x,
        lambda at: tuple(
            index % extent for index, extent in zip(at[len(at) - x.rank :], x.size, strict=True)
        ),
    )


@rule("aten.tril.default", "aten.triu.default")
def triangle(call: Call, x: Box, diagonal: IndexLike = 0) -> Box:
    lower = call.operator == "aten.tril.default"

    def element(at: Position) -> Scalar:
        offset = call.index(at[-1] - at[-2])
        bound = call.index(as_index(diagonal))
        kept = offset <= bound if lower else offset >= bound
        x_at = call.raw(x, at)
        return kept.where(x_at, False if x_at.dtype is DType.BOOL else 0)

    return call.elementwise(element)


@rule("aten.diag_embed.default")
def diag_embed(call: Call, x: Box, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Box:
    """`x` along a diagonal of zeros."""
    rank = x.rank + 1
    row, column = dimension(dim1, rank), dimension(dim2, rank)

    def element(at: Position) -> Scalar:
        along = at[row] + min(offset, 0)
        on_diagonal = call.index(at[column] - at[row]).apply("eq", offset)
        rest = tuple(index for d, index in enumerate(at) if d not in (row, column))
        inside = all_of(call, [*within(call, along, 0, x.size[-1]), on_diagonal])
        return call.raw(x, (*rest, along)).masked(inside, 0)

    return call.elementwise(element)


@rule("aten.diagonal_scatter.default")
def diagonal_scatter(
    call: Call, x: Box, source: Box, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Box:
    """`x` with a diagonal replaced."""
    row, column = dimension(dim1, x.rank), dimension(dim2, x.rank)

    def element(at: Position) -> Scalar:
        along = at[row] + min(offset, 0)
        on_diagonal = call.index(at[column] - at[row]).apply("eq", offset)
        rest = tuple(index for d, index in enumerate(at) if d not in (row, column))
        inside = all_of(call, [*within(call, along, 0, source.size[-1]), on_diagonal])
        new = call.read(source, (*rest, along), x.dtype.compute).masked(inside, 0)
        return inside.where(new, call.read(x, at))

    return call.elementwise(element)


# Joining ------------------------------------------------------------------------------------------


@rule("aten.cat.default")
def cat(call: Call, tensors: Sequence[Box], dim: int = 0) -> Any:
    result = call.result
    place = dimension(dim, len(result.size))
    parts = [x for x in tensors if x.rank == len(result.size)]
    parts = [x for x in parts if x.size[place] != 0]
    if len(parts) > CAT_LIMIT:
        return NotImplemented
    return join(call, parts, place)


@rule("aten.stack.default")
def stack(call: Call, tensors: Sequence[Box], dim: int = 0) -> Any:
    if len(tensors) > CAT_LIMIT:
        return NotImplemented
    place = dim % len(call.result.size)
    builder = call.builder
    parts = []
    for x in tensors:
        size = (*x.size[:place], integer(1), *x.size[place:])
        at = builder.position(size)
        parts.append(builder.view(x, size, (*at[:place], *at[place + 1 :])))
    return join(call, parts, place)


def join(call: Call, parts: Sequence[Box], place: int) -> Box:
    """One after the other along dimension `place`; each is read only where it lies."""
    result = call.result

    def element(at: Position) -> Scalar:
        pieces: list[tuple[Index, Scalar]] = []
        first = integer(0)
        for x in parts:
            shifted = (*at[:place], at[place] - first, *at[place + 1 :])
            end = first + x.size[place]
            inside = all_of(call, within(call, at[place], first, end))
            piece = call.read(x, shifted, result.dtype.compute)
            pieces.append((end, piece.masked(inside, 0)))
            first = end
        if not pieces:
            return call.number(0, result.dtype.compute)
        total = pieces[-1][1]
        for end, piece in reversed(pieces[:-1]):
            total = (call.index(at[place]) < call.index(end)).where(piece, total)
        return total

    return call.elementwise(element)


# Padding ------------------------------------------------------------------------------------------


@rule("aten.constant_pad_nd.default")
def constant_pad(call: Call, x: Box, padding: Sequence[IndexLike], value: Any = 0) -> Box:
    """`padding` holds (before, after) from the last dimension on; negative amounts cut off."""
    before = dict.fromkeys(range(x.rank), integer(0))
    for number in range(len(padding) // 2):
        before[x.rank - 1 - number] = as_index(padding[2 * number])

    def element(at: Position) -> Scalar:
        old = tuple(index - before[d] for d, index in enumerate(at))
        conditions: list[Scalar] = []
        for index, extent in zip(old, x.size, strict=True):
            conditions += within(call, index, 0, extent)
        inside, raw = all_of(call, conditions), call.raw(x, old)
        if not isinstance(value, Real):
            return raw.masked(inside, value)
        return inside.where(raw.masked(inside, 0), call.real(value, raw.dtype))

    return call.elementwise(element)


@rule(
    *(f"aten.{kind}_pad{n}d.default" for kind in ("reflection", "replication") for n in (1, 2, 3))
)
def edge_pad(call: Call, x: Box, padding: Sequence[IndexLike]) -> Box:
    """Positions outside are reflected at the edges, or moved to them."""
    reflect = "reflection" in call.operator
    from_last = [as_index(padding[2 * k]) for k in range(len(padding) // 2)]

    def element(at: Position) -> Scalar:
        position = list(at)
        for number, before in enumerate(from_last):
            place = x.rank - 1 - number
            last = x.size[place] - 1
            index = call.index(at[place] - before)
            bound = call.index(last)
            if reflect:
                index = bound - (bound - index.apply("abs")).apply("abs")
            else:
                index = index.apply("maximum", 0).apply("minimum", bound)
            position[place] = call.builder.expressions.indirect(
                index.value, x.size[place], wrap=False, check=False
            )
        return call.raw(x, tuple(position))

    return call.elementwise(element)


# Picking by indices that are data -----------------------------------------------------------------


def picked(call: Call, indices: Box, at: Position, extent: Index, *, wrap: bool) -> Index:
    """The element of `indices` at `at` as an index below `extent`, checked at run time."""
    value = call.read(indices, at, DType.I64)
    return call.builder.expressions.indirect(value.value, extent, wrap=wrap, check=True)


def may_be_empty(x: Box) -> bool:
    """Whether there may be nothing to pick, so that no index is safe to read."""
    return any((extent.lower or 0) < 1 for extent in x.size)


def realise_unless_cheap(call: Call, x: Box) -> None:
    """Realise what would be computed anew for each index, unless that is as good as a load."""
    value = x.storage.value
    if value is not None and not call.builder.costs.cost(value).is_cheap:
        call.builder.realise(x)


@rule("aten.embedding.default")
def embedding(
    call: Call,
    weight: Box,
    indices: Box,
    padding_index: int = -1,
    scale_by_frequency: bool = False,
    sparse: bool = False,
) -> Any:
    if may_be_empty(weight):
        return NotImplemented
    realise_unless_cheap(call, weight)

    def element(at: Position) -> Scalar:
        row = picked(call, indices, at[:-1], weight.size[0], wrap=False)
        return call.raw(weight, (row, at[-1]))

    return call.elementwise(element)


@rule("aten.index_select.default")
def index_select(call: Call, x: Box, dim: int, indices: Box) -> Any:
    if x.rank == 0 or indices.rank > 1 or may_be_empty(x):
        return NotImplemented
    realise_unless_cheap(call, x)
    place = dimension(dim, x.rank)

    def element(at: Position) -> Scalar:
        where = (at[place],) if indices.rank else ()
        chosen = picked(call, indices, where, x.size[place], wrap=False)
        return call.raw(x, (*at[:place], chosen, *at[place + 1 :]))

    return call.elementwise(element)


@rule("aten.gather.default")
def gather(call: Call, x: Box, dim: int, indices: Box, *, sparse_grad: bool = False) -> Any:
    if x.rank == 0 or indices.rank == 0 or may_be_empty(x):
        return NotImplemented
    realise_unless_cheap(call, x)
    place = dimension(dim, x.rank)

    def element(at: Position) -> Scalar:
        chosen = picked(call, indices, at, x.size[place], wrap=False)
        return call.raw(x, (*at[:place], chosen, *at[place + 1 :]))

    return call.elementwise(element)


@rule("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(call: Call, x: Box, indices: Sequence[Box | None]) -> Any:
    """Advanced indexing by integer tensors, which broadcast; masks are left to eager, whose sizes
    depend on data.
    """
    picks = Picks.of(x, indices)
    if picks is None:
        return NotImplemented
    realise_unless_cheap(call, x)
    return call.elementwise(lambda at: call.raw(x, picks.position(call, at)))


@record(eq=False)
class Picks:
    """Elements of `x` that integer tensors pick.

    The broadcast dimensions stand where the first index tensor stood, or first when None separates
    index tensors.
    """

    x: Box
    tensors: dict[int, Box]
    """Index tensors by dimension of `x`."""

    @staticmethod
    def of(x: Box, indices: Sequence[Box | None]) -> Picks | None:
        """The picks of an index; None where eager is to pick: by masks, by bytes, from nothing."""
        tensors = {d: tensor for d, tensor in enumerate(indices) if tensor is not None}
        if not tensors or any(t.dtype in (DType.BOOL, DType.U8) for t in tensors.values()):
            return None
        return None if may_be_empty(x) else Picks(x, tensors)

    @property
    def spread(self) -> tuple[Index, ...]:
        """The size of the index tensors together."""
        ranks = range(max(tensor.rank for tensor in self.tensors.values()), 0, -1)
        extents = [
            [t.size[-k] for t in self.tensors.values() if t.rank >= k and t.size[-k] != 1]
            for k in ranks
        ]
        return tuple(sizes[0] if sizes else integer(1) for sizes in extents)

    @property
    def start(self) -> int:
        """The position of the dimensions of `spread` among those of the result."""
        first, *_, last = *self.tensors, *self.tensors
        return first if list(self.tensors) == list(range(first, last + 1)) else 0

    @property
    def size(self) -> tuple[Index, ...]:
        """The size of what is picked."""
        rest = [extent for d, extent in enumerate(self.x.size) if d not in self.tensors]
        return (*rest[: self.start], *self.spread, *rest[self.start :])

    def position(self, call: Call, at: Position) -> Position:
        """The position in `x` of the element picked at `at`; checked at run time."""
        end = self.start + len(self.spread)
        shared, rest = at[self.start : end], iter((*at[: self.start], *at[end:]))
        position = []
        for d, extent in enumerate(self.x.size):
            tensor = self.tensors.get(d)
            if tensor is None:
                position.append(next(rest))
            else:
                own = shared[len(shared) - tensor.rank :]
                position.append(picked(call, tensor, own, extent, wrap=True))
        return tuple(position)


@rule("aten.glu.default")
def glu(call: Call, x: Box, dim: int = -1) -> Box:
    """The first half times the sigmoid of the second."""
    place = dimension(dim, x.rank)
    half = x.size[place] // 2
    first = strided(call, x, place, integer(0), integer(1), half)
    second = strided(call, x, place, half, integer(1), half)
    return call.elementwise(
        lambda at: call.read(first, at) * call.read(second, at).apply("sigmoid")
    )
