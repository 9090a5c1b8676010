"""Launches that differ in their tensors and sizes alone, and do not wait for each other, are one.

before                                 after
------                                 -----
kernel triton_add_3f2a …               kernel triton_add_batch_77e0 …
kernel triton_add_90bc …               a: f32[64] = reuse x
a: f32[64] = reuse x                   b: f32[4096] = reuse y
launch triton_add_3f2a(g, a)           table0: i64[6] = allocate
release g: f32[64]                     launch triton_add_batch_77e0(g, a, h, b, table0)
b: f32[4096] = reuse y                 release table0: i64[6]
launch triton_add_90bc(h, b)           release g: f32[64]

The launch writes the addresses of its tensors to `table0`, where its kernel finds them. So a step
of an optimiser is a few launches, however many parameters it moves. A launch waits for the last one
of its batch, as long as nothing needs its results or changes what it reads. Memory that would be
freed meanwhile waits, too, unless more would be alive at one time than the most that was without
batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, Protocol

from fusewright.ir.dtype import DType
from fusewright.ir.forms import blocks_of, buffers_defined, buffers_overwritten, buffers_read
from fusewright.ir.index import integer
from fusewright.ir.kernel import BatchedKernel, Kernel, Launch
from fusewright.ir.lines import (
    Allocate,
    CallKernel,
    DefineKernel,
    EnsureLayout,
    Free,
    FreeIfNotReused,
    Line,
    Reuse,
    TakeInput,
    View,
)
from fusewright.ir.program import Buffer, Layout
from fusewright.records import field, record, replace
from fusewright.wrapper.choices import without_lost_kernels

SMALL: Final = 1 << 16
"""Bytes of memory that may be freed later than it could be."""


class Batching(Protocol):
    """The interface of `kernels.batching` that this pass needs: floors below do not import it."""

    def structure(self, kernel: Kernel) -> str | None: ...

    def most(self, arguments: int) -> int: ...

    def is_worth(self, launches: int, arguments: int) -> bool: ...

    def batch(self, kernels: Sequence[Kernel], places: Sequence[int]) -> BatchedKernel: ...


_Key = tuple[str, str, tuple[int, ...]]
"""What launches of a batch have in common: structure, device, and which arguments are the same."""


@record(frozen=False)
class _Batch:
    """Launches that become one at the place of the last."""

    members: list[int] = field(default_factory=list)
    reads: set[str] = field(default_factory=set)
    """Memory that they read, by the buffer that was there first."""

    writes: set[str] = field(default_factory=set)

    def conflicts(self, reads: Iterable[str], writes: Iterable[str]) -> bool:
        """Whether what reads and writes this memory must keep its place beside the batch."""
        return (
            not self.writes.isdisjoint(reads)
            or not self.writes.isdisjoint(writes)
            or not self.reads.isdisjoint(writes)
        )


@record
class _MemoryUse:
    """The memory that lines hold, as far as its size can be told: what they allocate, results of
    the library whose layout they ensure, and inputs that are released.
    """

    bytes: Mapping[str, int]
    """Of the memory that goes with a buffer."""

    held: Sequence[int]
    """Bytes that are held behind each line."""

    @staticmethod
    def of(
        lines: Sequence[Line], hints: Mapping[str, int | float], released: frozenset[str]
    ) -> _MemoryUse:
        sizes: dict[str, int] = {}
        held = []
        total = 0
        for line in lines:
            match line:
                case Free(name=name) | FreeIfNotReused(name=name):
                    total -= sizes.get(name, 0)
                case Reuse(buffer=buffer, source=source) if source in sizes:
                    sizes[buffer.name] = sizes[source]
                case Allocate(buffer=buffer) | EnsureLayout(buffer=buffer) | Reuse(buffer=buffer):
                    total += _note(sizes, buffer, hints)
                case TakeInput(buffer=buffer) if buffer.name in released:
                    total += _note(sizes, buffer, hints)
            held.append(total)
        return _MemoryUse(sizes, held)


def _note(sizes: dict[str, int], buffer: Buffer, hints: Mapping[str, int | float]) -> int:
    """The bytes of a buffer's memory, which are its in `sizes` from now on; 0 where they are."""
    if buffer.name in sizes:
        return 0
    sizes[buffer.name] = buffer.layout.span.evaluate(hints) * buffer.layout.dtype.bytes
    return sizes[buffer.name]


def batch_launches(
    lines: Sequence[Line],
    batching: Batching,
    hints: Mapping[str, int | float],
    released: frozenset[str] = frozenset(),
) -> tuple[Line, ...]:
    """`lines` with batches of launches as one each, where memory is not planned yet. `released`:
    inputs that go when nobody reads them any more.
    """
    kernels = {line.kernel.name: line.kernel for line in lines if isinstance(line, DefineKernel)}
    search = _Search(kernels, batching, released, _MemoryUse.of(lines, hints, released))
    batches = search.batches(lines)
    if not batches:
        return tuple(lines)
    new: dict[str, DefineKernel] = {}
    launches: dict[int, tuple[Line, ...]] = {}
    replaced: set[int] = set()
    names = _new_names(lines)
    for batch in batches:
        calls = [line.launch for n in batch.members if isinstance(line := lines[n], CallKernel)]
        places = _places(calls[0].buffers)
        together = batching.batch([kernels[launch.kernel] for launch in calls], places)
        new[together.kernel.name] = DefineKernel(kernel=together.kernel)
        launches[batch.members[-1]] = _joined(calls, together, names)
        replaced.update(batch.members)
    waiting = search.waiting(lines, batches)
    moved = {number for numbers in waiting.values() for number in numbers}
    result: list[Line] = []
    for number, line in enumerate(lines):
        if number in launches:
            result += launches[number]
        elif number not in replaced and number not in moved:
            result.append(line)
        result += (lines[other] for other in waiting.get(number, ()))
    return without_lost_kernels(lines, _behind_kernels(result, new.values()))


def _places(buffers: Sequence[str]) -> tuple[int, ...]:
    """For each argument of a launch, the place of the first that is the same buffer."""
    return tuple(map(buffers.index, buffers))


def _new_names(lines: Sequence[Line]) -> Iterator[str]:
    """Names that no buffer of the lines has."""
    taken = {name for line in lines for name in buffers_defined(line)}
    names = (f"table{number}" for number in count())
    return (name for name in names if name not in taken)


def _joined(
    calls: Sequence[Launch], together: BatchedKernel, names: Iterator[str]
) -> tuple[Line, ...]:
    """The lines that do what `calls` do, with a buffer for the table of their arguments, if there
    is one; its name is the next of `names`.
    """
    origins = dict.fromkeys(origin for launch in calls for origin in launch.origins)
    launch = Launch(
        kernel=together.kernel.name,
        buffers=tuple(name for launch in calls for name in dict.fromkeys(launch.buffers)),
        sizes=together.sizes,
        units=together.programs,
        device=calls[0].device,
        origins=tuple(origins),
    )
    if not together.values:
        return (CallKernel(launch=launch),)
    size, stride = (integer(together.values),), (integer(1),)
    layout = Layout(dtype=DType.I64, size=size, stride=stride, device=launch.device)
    table = Buffer(name=next(names), layout=layout)
    launch = replace(launch, buffers=(*launch.buffers, table.name))
    return Allocate(buffer=table), CallKernel(launch=launch), FreeIfNotReused(buffer=table)


def _behind_kernels(lines: Sequence[Line], new: Iterable[DefineKernel]) -> list[Line]:
    """`lines` with new kernels behind the others."""
    last = max(number for number, line in enumerate(lines) if isinstance(line, DefineKernel))
    return [*lines[: last + 1], *new, *lines[last + 1 :]]


class _Search:
    """Finds the batches of lines, one line after the other."""

    def __init__(
        self,
        kernels: Mapping[str, Kernel],
        batching: Batching,
        released: frozenset[str],
        memory: _MemoryUse,
    ) -> None:
        self._kernels = kernels
        self._batching = batching
        self._released = released
        self._use = memory
        self._most = max(memory.held, default=0)
        self._inputs: set[str] = set()
        self._memory: dict[str, str] = {}
        """The buffer that was first in the memory of each that came later."""

        self._open: dict[_Key, _Batch] = {}
        """Batches that may go on."""

        self._late: dict[str, int] = {}
        """Bytes of memory that would be free by now but for open batches, by the buffer that was
        there first.
        """

        self._found: list[_Batch] = []

    def batches(self, lines: Sequence[Line]) -> list[_Batch]:
        """Batches of as many launches as are worth a kernel of their own."""
        for number, line in enumerate(lines):
            self._pass(number, line)
        self._close(self._open.copy())
        return self._found

    def waiting(self, lines: Sequence[Line], batches: Sequence[_Batch]) -> dict[int, list[int]]:
        """Frees that wait, by the last launch of the batches that use what they free."""
        waiting: dict[int, list[int]] = {}
        for number, line in enumerate(lines):
            if not isinstance(line, Free | FreeIfNotReused):
                continue
            owner = self._owner(line.name)
            ends = [
                batch.members[-1]
                for batch in batches
                if batch.members[0] < number < batch.members[-1] and batch.conflicts((), [owner])
            ]
            if ends:
                waiting.setdefault(max(ends), []).append(number)
        return waiting

    def _pass(self, number: int, line: Line) -> None:
        if self._late and self._is_full(number):
            self._end((), self._late)
        match line:
            case CallKernel(launch=launch):
                self._launch(number, launch)
            case TakeInput(buffer=buffer):
                self._inputs.add(buffer.name)
            case DefineKernel() | Allocate():
                pass
            case View(buffer=buffer, source=source):
                self._memory[buffer.name] = self._owner(source)
            case Reuse(buffer=buffer, source=source):
                self._end((), [self._owner(source)])
                self._memory[buffer.name] = self._owner(source)
            case Free() | FreeIfNotReused():
                self._free(number, line)
            case _ if blocks_of(line):
                self._close(self._open.copy())
            case _:
                named = (*buffers_read(line), *buffers_overwritten(line), *buffers_defined(line))
                self._end((), map(self._owner, named))

    def _owner(self, name: str) -> str:
        return self._memory.get(name, name)

    def _free(self, number: int, line: Free | FreeIfNotReused) -> None:
        """Memory of others, and a little of our own, may wait; more may where there is room."""
        name = line.name
        if name in self._inputs and name not in self._released:
            return
        if isinstance(line, FreeIfNotReused):
            layout = line.buffer.layout
            size = layout.span * layout.dtype.bytes
            if size.is_constant and int(size) <= SMALL:
                return
        owner, late = self._owner(name), self._use.bytes.get(name)
        if late is None or self._is_full(number, late):
            self._end((), [owner])
        elif self._is_used(owner):
            self._late[owner] = late

    def _is_full(self, number: int, more: int = 0) -> bool:
        """Whether more memory would be alive behind a line, with so many bytes more that are free
        late, than the most that was without batches.
        """
        return self._use.held[number] + sum(self._late.values()) + more > self._most

    def _is_used(self, owner: str) -> bool:
        """Whether an open batch uses memory."""
        return any(batch.conflicts((), [owner]) for batch in self._open.values())

    def _launch(self, number: int, launch: Launch) -> None:
        kernel = self._kernels[launch.kernel]
        pairs = list(zip(launch.buffers, kernel.arguments, strict=True))
        reads = {self._owner(name) for name, argument in pairs if argument.is_read}
        writes = {self._owner(name) for name, argument in pairs if argument.is_written}
        self._end(reads, writes)
        structure = self._batching.structure(kernel)
        if structure is None:
            return
        places = _places(launch.buffers)
        key = structure, launch.device, places
        batch = self._open.setdefault(key, _Batch())
        if len(batch.members) == self._batching.most(len(set(places))):
            self._close({key: batch})
            batch = self._open[key] = _Batch()
        batch.members.append(number)
        batch.reads |= reads
        batch.writes |= writes

    def _end(self, reads: Iterable[str], writes: Iterable[str]) -> None:
        """End the batches that may not wait for what reads and writes this memory."""
        reads, writes = set(reads), set(writes)
        self._close(
            {key: batch for key, batch in self._open.items() if batch.conflicts(reads, writes)}
        )

    def _close(self, batches: Mapping[_Key, _Batch]) -> None:
        for key, batch in batches.items():
            *_, places = key
            if self._batching.is_worth(len(batch.members), len(set(places))):
                self._found.append(batch)
            del self._open[key]
        self._late = {owner: size for owner, size in self._late.items() if self._is_used(owner)}
