"""The objects that rules handle in place of tensors: boxes, which are views of storages, which are
bodies or buffers.

A `Storage` holds the elements of one tensor: first as an expression that nobody has computed
(lazy), then, once something needs it in memory, as a buffer (realised). A `Box` maps positions of a
tensor to positions of a storage; permuting, slicing, expanding and reshaping only change the map.
Realising a storage thereby realises every box on it.

When a storage is realised
--------------------------
At once, if it is a reduction, or the result or an operand of a library call, or the body of a
scatter, or if it may raise: all of it is computed then, whatever is read. Otherwise it stays lazy,
and readers repeat its expression, as long as that is cheaper than memory:

* *free* (at most one load and two operations: a cast, a scaled load, a mask, a constant): always
  lazy;
* *cheap* (at most two loads and eight operations, none of them transcendental): lazy for up to two
  readers;
* anything else: lazy for one reader only;
* never past `Options.expression_limit` operations or `LOAD_LIMIT` different loads;
* never when one of several readers needs it in memory anyway (a library call, or the graph's
  results).

A reader that runs over its operand several times (softmax, a normalisation) counts as many, and so
does one that reads an operand of fewer elements again and again (a broadcast), if its expression is
transcendental. Readers are counted through views. Realising early costs little, because the
scheduler fuses producers into their readers and drops memory that nobody else reads; repeating a
transcendental function in several kernels costs for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, LoopSymbol, contiguous_strides, integer, product
from fusewright.ir.ops import OPERATIONS
from fusewright.ir.origin import Origin
from fusewright.ir.program import Buffer, Layout
from fusewright.ir.proof import is_nonnegative
from fusewright.ir.raising import value_may_raise
from fusewright.ir.value import Apply, Constant, Indirect, Load, Random, Value, children, postorder
from fusewright.records import field, record

Position = tuple[Index, ...]
"""One index a dimension."""

LOAD_LIMIT = 16

LIGHT_COST = 2
"""An operation that costs more than this counts as transcendental."""


@record(frozen=False, eq=False, kw_only=True)
class Storage:
    """The elements of one tensor, either `value` or `buffer`."""

    size: tuple[Index, ...]
    dtype: DType
    device: str
    stride: tuple[Index, ...]
    """The strides that the elements have, or will have, in memory: as eager would have them."""

    value: Value | None
    """Over the loops i0, i1, … of `size`; of type `dtype`, or of the type it is computed in, not
    rounded yet.
    """

    is_fixed: bool = False
    """Whether it has to lie so: a copy that somebody asked for."""

    buffer: Buffer | None = None
    """May be larger than this storage, which then is `layout` in it."""

    layout: Layout | None = None
    origins: tuple[Origin, ...] = ()

    @property
    def is_lazy(self) -> bool:
        return self.buffer is None

    def layout_in_memory(self, stride: tuple[Index, ...] | None = None) -> Layout:
        """The layout of a buffer for it: of these strides, or of its own."""
        return Layout(
            dtype=self.dtype,
            size=self.size,
            stride=memory_strides(self.size, stride or self.stride),
            device=self.device,
        )


@record(eq=False)
class Box:
    """A tensor: for each position in `size`, the position of the storage's element."""

    storage: Storage
    size: tuple[Index, ...]
    position: Position | None = None
    """Over the loops i0, i1, … of `size` (0 in place of a loop of extent 1); None where it is the
    storage itself.
    """

    @property
    def dtype(self) -> DType:
        return self.storage.dtype

    @property
    def device(self) -> str:
        return self.storage.device

    @property
    def rank(self) -> int:
        return len(self.size)

    @property
    def elements(self) -> Index:
        return product(self.size)


# Costs --------------------------------------------------------------------------------------------


@record
class ElementCost:
    """The cost of computing one element."""

    operations: int = 0
    transcendental: int = 0
    loads: frozenset[int] = frozenset()
    """Identities of the different loads."""

    may_raise: bool = False
    """Whether it does, for some values."""

    @property
    def is_free(self) -> bool:
        return not self.transcendental and len(self.loads) <= 1 and self.operations <= 2

    @property
    def is_cheap(self) -> bool:
        return not self.transcendental and len(self.loads) <= 2 and self.operations <= 8


@record(frozen=False)
class CostTable:
    """Costs of values, each found once."""

    known: dict[int, ElementCost] = field(default_factory=dict)

    def cost(self, value: Value) -> ElementCost:
        cost = self.known.get(id(value))
        if cost is None:
            for node in postorder((value,)):
                if id(node) not in self.known:
                    self.known[id(node)] = self._node(node)
            cost = self.known[id(value)]
        return cost

    def _node(self, node: Value) -> ElementCost:
        below = [self.known[id(child)] for child in children(node)]
        operations = sum(cost.operations for cost in below)
        transcendental = sum(cost.transcendental for cost in below)
        loads = frozenset[int]().union(*(cost.loads for cost in below))
        may_raise = value_may_raise(node) or any(cost.may_raise for cost in below)
        match node:
            case Constant() | Indirect():
                pass
            case Load():
                loads |= {id(node)}
            case Apply(operation=operation):
                operations += 1
                transcendental += OPERATIONS[operation].cost > LIGHT_COST
            case Random():
                transcendental += 1
            case _:
                operations += 1
        return ElementCost(operations, transcendental, loads, may_raise)


def must_realise(cost: ElementCost, readers: int, needed_in_memory: bool, limit: int) -> bool:
    """The policy in this file's docstring, for a fresh storage with that many readers."""
    if cost.may_raise or cost.operations > limit or len(cost.loads) > LOAD_LIMIT:
        return True
    if readers < 2 or not cost.loads:
        return False
    if needed_in_memory:
        return True
    return not (cost.is_free or (cost.is_cheap and readers == 2))


# Layouts ------------------------------------------------------------------------------------------


def memory_strides(size: Sequence[Index], stride: Sequence[Index]) -> tuple[Index, ...]:
    """`stride` if it is dense (a permutation of row-major without gaps), else row-major strides."""
    left = [(s, e) for s, e in zip(stride, size, strict=True) if e != 1]
    expected = integer(1)
    while left:
        match = next((pair for pair in left if pair[0] == expected), None)
        if match is None:
            return contiguous_strides(size)
        left.remove(match)
        expected = expected * match[1]
    return tuple(stride)


def channels_last(size: tuple[Index, ...]) -> tuple[Index, ...]:
    """Strides of images whose channels lie together."""
    _, channels, height, width = size
    return (height * width * channels, integer(1), width * channels, channels)


def strided_layout(
    element: Index, loops: Sequence[LoopSymbol], size: tuple[Index, ...], dtype: DType, device: str
) -> Layout | None:
    """The layout in which position `loops` is element `element`; None if no size-and-stride layout
    is that.
    """
    if any(extent == 0 for extent in size):
        return Layout(dtype=dtype, size=size, stride=contiguous_strides(size), device=device)
    strides: list[Index | None] = []
    offset = element
    for loop, extent in zip(loops, size, strict=True):
        if extent == 1:
            strides.append(None)
            continue
        step = element.stride(loop)
        if step is None or not is_nonnegative(step):
            return None
        strides.append(step)
        offset = offset - step * loop
    if any(loop in offset.free() for loop in loops):
        return None
    return Layout(dtype=dtype, size=size, stride=_fill(size, strides), offset=offset, device=device)


def has_gaps(layout: Layout) -> bool:
    """Whether elements of `layout` share memory, or leave some unused."""
    return memory_strides(layout.size, layout.stride) != layout.stride


def same_strides(size: Iterable[Index], left: Iterable[Index], right: Iterable[Index]) -> bool:
    """True when both strides lay out `size` alike; dimensions of one element do not count."""
    triples = list(zip(size, left, right, strict=True))
    return any(extent == 0 for extent, _, _ in triples) or all(
        extent == 1 or a == b for extent, a, b in triples
    )


def _fill(size: tuple[Index, ...], strides: list[Index | None]) -> tuple[Index, ...]:
    """Strides for dimensions of one element, which may be anything: what row-major would have
    there.
    """
    filled: list[Index] = []
    following = integer(1)
    for extent, stride in zip(reversed(size), reversed(strides), strict=True):
        filled.append(following if stride is None else stride)
        following = filled[-1] * extent
    return tuple(reversed(filled))
