"""The arena: buffers of known size that live and die in one call share one allocation, each at an
offset that is free while it lives.

before                     after
------                     -----
a: f32[4, 8] = allocate    arena: u8[192] = arena
launch k(x, a)             a: f32[4, 8] = place in arena at 0
b: f32[16] = allocate      launch k(x, a)
launch l(a, b)             b: f32[16] = place in arena at 128
release a                  launch l(a, b)
c: f32[8] = allocate       free a
launch m(b, c)             c: f32[8] = place in arena at 0
release b                  launch m(b, c)
...                        ...

Only buffers that nothing but kernels use are in it: kernels are given addresses, library calls
tensors, and an operator may count from the beginning of the memory that a tensor lies in
(`as_strided_scatter`), or keep it. What outlives the call is allocated by itself, too, or takes
over memory of its own kind that is dead: a result, or what a backward is to find, would keep the
whole arena. Allocated by itself is also what lies on a GPU, where torch's allocator keeps blocks of
every size, and frees them sooner than an arena could.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

from fusewright.ir.dtype import DType
from fusewright.ir.forms import buffers_defined, buffers_overwritten, buffers_read
from fusewright.ir.index import integer
from fusewright.ir.lines import (
    ALIGNMENT,
    Allocate,
    Arena,
    AssertLayout,
    CallChoice,
    CallKernel,
    CheckNan,
    DebugPrint,
    Free,
    FreeIfNotReused,
    Line,
    Place,
    Reuse,
)
from fusewright.ir.program import Buffer, Layout
from fusewright.records import record
from fusewright.wrapper.choices import choices_in, launches_kernels_only

FEWEST: Final = 3
"""Fewer buffers, beside those that take over each other's memory, are not worth an arena."""

TRIES: Final = 6
"""How often the largest buffers are left out, where the arena would cost too much memory."""


BY_ADDRESS: Final = (
    Allocate, Reuse, Free, FreeIfNotReused, CallKernel, DebugPrint, CheckNan, AssertLayout,
)  # fmt: skip
"""Lines that use memory by its address alone, or that are there to look at it."""


@record(frozen=False)
class Tenant:
    """Memory of the arena that a buffer holds, and those that take it over."""

    buffer: Buffer
    key: tuple[DType, int]
    """Type and span: buffers of one key can have each other's memory."""

    bytes: int
    """Without what it is rounded up by, so that the next one is aligned."""

    last: str
    """The buffer that holds it last."""

    begin: int
    """The line that allocates it."""

    is_tensor: bool
    """Whether something other than kernels uses a buffer that holds it."""

    end: int = -1
    """The line that releases it; -1: none does."""

    offset: int = 0
    limit: int = 0
    """The offset behind it, rounded up."""

    predecessor: Tenant | None = None
    """Whose memory it is exactly, where that died before and nobody had it since."""

    def put(self, offset: int) -> None:
        """Give it its place."""
        self.offset = offset
        self.limit = offset + -(-self.bytes // ALIGNMENT) * ALIGNMENT

    def overlaps(self, other: Tenant) -> bool:
        return self.offset < other.limit and other.offset < self.limit


def with_arena(lines: Sequence[Line], held: Sequence[int], limit: int) -> Sequence[Line]:
    """`lines` with an arena for those of the buffers that can be in one; without the largest, where
    more than `limit` bytes would be held at one time; or `lines` as they are, where that
    saves too few allocations. `held`: the bytes that buffers of their own hold behind each line.
    """
    tenants = _tenants(lines)
    for _ in range(TRIES):
        _place(tenants)
        if sum(tenant.predecessor is None for tenant in tenants) < FEWEST:
            break
        if _peak(tenants, held) <= limit:
            return _rewrite(lines, tenants)
        largest = max(tenant.bytes for tenant in tenants)
        tenants = [tenant for tenant in tenants if tenant.bytes <= largest // 2]
    return lines


def _peak(tenants: Sequence[Tenant], held: Sequence[int]) -> int:
    """The most bytes at one time, with the tenants in an arena."""
    changes = [0] * (len(held) + 1)
    for tenant in tenants:
        changes[tenant.begin] -= tenant.bytes
        changes[tenant.end] += tenant.bytes
    size = max(tenant.limit for tenant in tenants)
    changes[tenants[0].begin] += size
    changes[max(tenant.end for tenant in tenants)] -= size
    return max(own + change for own, change in zip(held, accumulate(changes), strict=False))


def _tenants(lines: Sequence[Line]) -> list[Tenant]:
    """The buffers that can be in an arena, in order; one that takes over another's memory is the
    same tenant.
    """
    tenants: list[Tenant] = []
    holders: dict[str, Tenant] = {}
    tensors = _used_as_tensors(lines)
    for position, line in enumerate(lines):
        match line:
            case Allocate(buffer=Buffer(name=name, layout=layout) as buffer):
                span = layout.span
                if layout.device == "cpu" and span.is_constant and span.constant > 0:
                    key, count = (layout.dtype, span.constant), span.constant * layout.dtype.bytes
                    is_tensor = name in tensors
                    holders[name] = Tenant(buffer, key, count, name, position, is_tensor)
                    tenants.append(holders[name])
            case Reuse(buffer=buffer, source=source) if source in holders:
                holders[buffer.name] = tenant = holders.pop(source)
                tenant.last = buffer.name
                tenant.is_tensor |= buffer.name in tensors
            case FreeIfNotReused(buffer=buffer) if buffer.name in holders:
                holders.pop(buffer.name).end = position
    return _without_inherited(tenants)


def _used_as_tensors(lines: Sequence[Line]) -> set[str]:
    """The buffers that something other than kernels reads or writes."""
    choices = choices_in(lines)

    def is_by_address(line: Line) -> bool:
        if isinstance(line, CallChoice):
            return launches_kernels_only(choices[line.choice])
        return isinstance(line, BY_ADDRESS)

    return {
        name
        for line in lines
        if not is_by_address(line)
        for name in (*buffers_read(line), *buffers_overwritten(line))
    }


def _without_inherited(tenants: Iterable[Tenant]) -> list[Tenant]:
    """The tenants that die within the call, without those whose memory a tenant that outlives it
    can take over: it needs no new memory then.
    """
    dying: dict[tuple[DType, int], list[Tenant]] = {}
    lasting: list[Tenant] = []
    for tenant in tenants:
        dies = tenant.end >= 0 and not tenant.is_tensor
        (dying.setdefault(tenant.key, []) if dies else lasting).append(tenant)
    for tenant in lasting:
        dead = [other for other in dying.get(tenant.key, []) if other.end < tenant.begin]
        if dead:
            dying[tenant.key].remove(max(dead, key=lambda other: other.end))
    return sorted(chain.from_iterable(dying.values()), key=lambda tenant: tenant.begin)


def _place(tenants: Iterable[Tenant]) -> None:
    """Give each tenant its offset: exactly the memory of a dead one of its key, else the smallest
    gap between those alive that holds it, or what is behind them all.
    """
    alive: list[Tenant] = []
    dead: list[Tenant] = []  # those whose memory nobody has had since, in the order of death
    for tenant in tenants:
        ended = [other for other in alive if other.end < tenant.begin]
        dead += sorted(ended, key=lambda other: other.end)
        alive = [other for other in alive if other.end > tenant.begin]
        predecessors = (other for other in reversed(dead) if other.key == tenant.key)
        tenant.predecessor = next(predecessors, None)
        if tenant.predecessor is None:
            tenant.put(_best_fit(tenant.bytes, sorted(alive, key=lambda other: other.offset)))
        else:
            tenant.put(tenant.predecessor.offset)
        dead = [other for other in dead if not other.overlaps(tenant)]
        alive.append(tenant)


def _best_fit(count: int, alive: Sequence[Tenant]) -> int:
    """The offset of the smallest gap of at least `count` bytes between tenants in order."""
    gaps: list[tuple[int, int]] = []
    offset = 0
    for tenant in alive:
        if tenant.offset - offset >= count:
            gaps.append((tenant.offset - offset, offset))
        offset = max(offset, tenant.limit)
    return min(gaps)[1] if gaps else offset


def _rewrite(lines: Sequence[Line], placed: Sequence[Tenant]) -> list[Line]:
    """`lines` with the tenants in an arena from the first line that has one to the last."""
    arena = _arena(lines, max(tenant.limit for tenant in placed))
    begins = {tenant.begin: tenant for tenant in placed}
    ends = {tenant.end: tenant for tenant in placed}
    inherited = {id(tenant.predecessor) for tenant in placed}
    result: list[Line] = []
    for position, line in enumerate(lines):
        if position == placed[0].begin:
            result.append(Arena(buffer=arena))
        if (tenant := begins.get(position)) is not None:
            result.append(_beginning(tenant, arena.name))
        elif (tenant := ends.get(position)) is None:
            result.append(line)
        elif id(tenant) not in inherited:
            result.append(Free(name=tenant.last))
        if position == max(ends):
            result.append(Free(name=arena.name))
    return result


def _arena(lines: Sequence[Line], count: int) -> Buffer:
    """So many bytes, under a name that no other buffer has."""
    taken = {name for line in lines for name in buffers_defined(line)}
    name = "arena"
    while name in taken:
        name += "_"
    layout = Layout(dtype=DType.U8, size=(integer(count),), stride=(integer(1),), device="cpu")
    return Buffer(name=name, layout=layout)


def _beginning(tenant: Tenant, arena: str) -> Line:
    if tenant.predecessor is not None:
        return Reuse(buffer=tenant.buffer, source=tenant.predecessor.last)
    return Place(buffer=tenant.buffer, arena=arena, offset=tenant.offset)
