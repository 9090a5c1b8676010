"""Launches that hand memory on to each other piece by piece are one, and that memory is not made.

before                                 after
------                                 -----
scores: f32[2, 12, 64, 64] = allocate  out: f32[2, 12, 64, 32] = allocate
launch cpu_product_3f2a(q, k, scores)  launch cpu_chain_77e0(q, k, v, out)
launch cpu_softmax_90bc(scores)        release q: f32[2, 12, 64, 32]
release q: f32[2, 12, 64, 32]          …
out: f32[2, 12, 64, 32] = allocate
launch cpu_sums_5d11(scores, v, out)
release scores: f32[2, 12, 64, 64]
…
The kernel of the one launch holds a piece of that memory at a time, in its own frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol

from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.lines import (
    Allocate,
    CallKernel,
    DefineKernel,
    Free,
    FreeIfNotReused,
    Line,
    Reuse,
    View,
)
from fusewright.ir.program import Buffer
from fusewright.records import field, record
from fusewright.wrapper.choices import without_lost_kernels


class Chainer(Protocol):
    """The interface of `kernels.chaining` that this pass needs: floors below do not import it."""

    def pieces(self, uses: Sequence[MemoryUse], buffer: Buffer) -> Any:
        """The pieces in which launches, in order, hand on the memory that is made for a buffer;
        None: they do not.
        """
        ...

    def join(
        self,
        uses: Sequence[MemoryUse],
        own: Sequence[Buffer],
        others: Sequence[Buffer],
        pieces: Any,
    ) -> tuple[Kernel, Launch] | None:
        """One launch in place of several. `own`: buffers whose memory only they use; `others`: what
        is made for them beside. None where that is not possible, or not worth it.
        """
        ...


@record(kw_only=True)
class MemoryUse:
    """A launch, and the memory that its buffers are: the name of what was there first."""

    launch: Launch
    memory: tuple[str, ...]


@record(frozen=False, kw_only=True)
class _Run:
    """Lines, one after the other, that only launch kernels, make memory and free it."""

    uses: dict[int, MemoryUse] = field(default_factory=dict)
    """By place of the line."""

    made: dict[str, Buffer] = field(default_factory=dict)
    """By name of the memory, the buffer that it was made for."""

    freed: set[str] = field(default_factory=set)


@record(kw_only=True)
class Chain:
    """Launches that became one."""

    first: int
    last: int
    """Places of the first and the last of them among the lines."""

    own: frozenset[str]
    """Names of memory that is not made any more."""

    kernel: Kernel
    launch: Launch
    parts: tuple[Launch, ...]
    """The launches that it stands for."""


def chain_launches(lines: Sequence[Line], chainer: Chainer) -> tuple[tuple[Line, ...], list[Chain]]:
    """`lines` with chains of launches as one each, where memory is not planned yet; and these."""
    memory = _memory_of(lines)
    chains = [
        chain for run in _runs(lines, memory) for chain in _chains(run, lines, memory, chainer)
    ]
    if not chains:
        return tuple(lines), chains
    result: list[Line] = []
    place = 0
    for chain in chains:
        result += lines[place : chain.first]
        inside = [
            line
            for line in lines[chain.first : chain.last + 1]
            if not isinstance(line, CallKernel) and not _is_of(line, chain.own, memory)
        ]
        result += [line for line in inside if isinstance(line, Allocate)]
        result.append(CallKernel(launch=chain.launch))
        result += [line for line in inside if not isinstance(line, Allocate)]
        place = chain.last + 1
    result += lines[place:]
    own = {name for chain in chains for name in chain.own}
    result = [line for line in result if not _is_of(line, own, memory)]
    kernels = {chain.kernel.name: chain.kernel for chain in chains}
    last = max(number for number, line in enumerate(result) if isinstance(line, DefineKernel))
    defined = [DefineKernel(kernel=kernel) for kernel in kernels.values()]
    result[last + 1 : last + 1] = defined
    return without_lost_kernels(lines, result), chains


def buffers_allocated(lines: Sequence[Line]) -> set[str]:
    """The buffers that memory is made for."""
    return {line.buffer.name for line in lines if isinstance(line, Allocate)}


def _is_of(line: Line, names: frozenset[str] | set[str], memory: dict[str, str]) -> bool:
    """Whether a line makes or frees memory of these names."""
    match line:
        case Allocate(buffer=buffer) | Reuse(buffer=buffer) | FreeIfNotReused(buffer=buffer):
            return memory.get(buffer.name, buffer.name) in names
    return False


def _memory_of(lines: Sequence[Line]) -> dict[str, str]:
    """By buffer that came to be later, the buffer that was in its memory first."""
    memory: dict[str, str] = {}
    for line in lines:
        match line:
            case Reuse(buffer=buffer, source=source) | View(buffer=buffer, source=source):
                memory[buffer.name] = memory.get(source, source)
    return memory


def _runs(lines: Sequence[Line], memory: dict[str, str]) -> Iterator[_Run]:
    kinds = CallKernel | Allocate | Reuse | Free | FreeIfNotReused
    for is_run, numbered in groupby(enumerate(lines), key=lambda pair: isinstance(pair[1], kinds)):
        if not is_run:
            continue
        run = _Run()
        for place, line in numbered:
            match line:
                case CallKernel(launch=launch):
                    names = tuple(memory.get(name, name) for name in launch.buffers)
                    run.uses[place] = MemoryUse(launch=launch, memory=names)
                case Allocate(buffer=buffer):
                    run.made[buffer.name] = buffer
                case FreeIfNotReused(buffer=buffer):
                    run.freed.add(memory.get(buffer.name, buffer.name))
        yield run


def _chains(
    run: _Run, lines: Sequence[Line], memory: dict[str, str], chainer: Chainer
) -> Iterator[Chain]:
    """The chains in a run, in order."""
    viewed = {memory[line.buffer.name] for line in lines if isinstance(line, View)}
    links: list[tuple[int, int, str, Any]] = []
    for name, buffer in run.made.items():
        places = [place for place, use in run.uses.items() if name in use.memory]
        if name not in run.freed or name in viewed or len(places) < 2:
            continue
        pieces = chainer.pieces([run.uses[place] for place in places], buffer)
        if pieces is not None:
            links.append((places[0], places[-1], name, pieces))
    links.sort(key=lambda link: link[:2])
    end = -1
    while links:
        first, last, name, pieces = links.pop(0)
        if first <= end:
            continue
        own = [name]
        while links and links[0][0] < last and links[0][3] == pieces:
            _, other, name, _ = links.pop(0)
            last = max(last, other)
            own.append(name)
        chain = _chain(run, (first, last), own, lines, viewed, chainer, pieces)
        if chain is not None:
            end = last
            yield chain


def _chain(
    run: _Run,
    places: tuple[int, int],
    own: Sequence[str],
    lines: Sequence[Line],
    viewed: set[str],
    chainer: Chainer,
    pieces: Any,
) -> Chain | None:
    """The launches between two places as one; None where they cannot be."""
    first, last = places
    inside = lines[first : last + 1]
    taken = [line for line in inside if isinstance(line, Reuse)]
    uses = [use for place, use in run.uses.items() if first <= place <= last]
    buffers = {buffer.name: buffer for buffer in run.made.values()}
    memory = _memory_of(taken)
    if any(memory[line.buffer.name] not in own for line in taken):
        return None
    used = dict.fromkeys(name for use in uses for name in use.memory if name not in own)
    others = [buffers[name] for name in used if name in buffers and name not in viewed]
    joined = chainer.join(uses, [buffers[name] for name in own], others, pieces)
    if joined is None:
        return None
    kernel, launch = joined
    return Chain(
        first=first,
        last=last,
        own=frozenset(own),
        kernel=kernel,
        launch=launch,
        parts=tuple(use.launch for use in uses),
    )
