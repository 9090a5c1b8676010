"""One kernel in place of several launches that hand memory on to each other piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from fusewright.ir.canonical import canonical_group, hash_of
from fusewright.ir.kernel import CpuFacts, Kernel, KernelArgument, Launch
from fusewright.ir.program import Buffer
from fusewright.kernels import KernelSet
from fusewright.kernels.language import Chaining, ChainPart, Handover, Pieces
from fusewright.records import replace


class Use(Protocol):
    """A launch, and the memory that its buffers are."""

    @property
    def launch(self) -> Launch: ...

    @property
    def memory(self) -> tuple[str, ...]: ...


class Joined(Protocol):
    """Launches that became one."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def launch(self) -> Launch: ...

    @property
    def parts(self) -> tuple[Launch, ...]: ...


def with_chains(kernels: KernelSet, chains: Iterable[Joined]) -> KernelSet:
    """The kernels with those of chains, and as the launch of each group in a chain the chain's;
    without kernels that only groups in chains had.
    """
    launches = dict(kernels.launches)
    new: dict[str, Kernel] = {}
    known = {kernel.name: kernel for kernel in kernels.definitions}
    for chain in chains:
        new[chain.kernel.name] = chain.kernel
        written = set().union(*(_written(known[part.kernel], part) for part in chain.parts))
        for position, launch in kernels.launches.items():
            if not isinstance(launch, Launch):
                continue
            if not written.isdisjoint(_written(known[launch.kernel], launch)):
                launches[position] = chain.launch
    if not new:
        return kernels
    before = {launch.kernel for launch in kernels.launches.values() if isinstance(launch, Launch)}
    after = {launch.kernel for launch in launches.values() if isinstance(launch, Launch)}
    lost = before - after
    kept = (kernel for kernel in kernels.definitions if kernel.name not in lost)
    return replace(kernels, definitions=(*kept, *new.values()), launches=launches)


def _written(kernel: Kernel, launch: Launch) -> set[str]:
    """The buffers that a launch writes. Those that it reads may be called by what lies there."""
    arguments = zip(kernel.arguments, launch.buffers, strict=True)
    return {buffer for argument, buffer in arguments if argument.is_written}


class KernelChainer:
    """Tells which launches hand memory on piece by piece, and writes kernels for chains of them."""

    def __init__(self, kernels: KernelSet) -> None:
        self._kernels = kernels
        self._known: dict[str, tuple[ChainPart, Chaining, Kernel] | None] = {}
        """By name of a kernel, without the memory that its arguments are."""

    def pieces(self, uses: Sequence[Use], buffer: Buffer) -> Pieces | None:
        """The pieces in which launches hand on the memory that is made for a buffer, from one
        matrix product to another; None: they do not.
        """
        span = buffer.layout.span
        parts = self._parts(uses)
        if parts is None or not span.is_constant:
            return None
        first, chaining, _ = parts[0]
        last, *_ = parts[-1]
        for pieces in chaining.ways_to_cut(first, last):
            if all(chaining.keeps_to_pieces(p, buffer.name, pieces, int(span)) for p, *_ in parts):
                return pieces
        return None

    def join(
        self, uses: Sequence[Use], own: Sequence[Buffer], others: Sequence[Buffer], pieces: Pieces
    ) -> tuple[Kernel, Launch] | None:
        """One launch in place of several. `own`: buffers whose memory only they use; `others`: what
        is made for them beside. None where that is not possible, or not worth it.
        """
        known = self._parts(uses)
        if known is None:
            return None
        parts = [part for part, *_ in known]
        _, chaining, first = known[0]
        kernels = [kernel for *_, kernel in known]
        sizes = {
            buffer.name: int(buffer.layout.span)
            for buffer in (*own, *others)
            if buffer.layout.span.is_constant
        }
        arguments = _arguments(parts, kernels)
        for memory in _handed_on(parts, kernels):
            if memory not in sizes:
                return None
            users = [part for part in parts if memory in part.memory]
            if not all(
                chaining.keeps_to_pieces(part, memory, pieces, sizes[memory]) for part in users
            ):
                return None
        handed = [
            Handover(memory=buffer.name, dtype=buffer.layout.dtype, size=sizes[buffer.name])
            for buffer in own
        ]
        for buffer in own:
            del arguments[buffer.name]
        kinds = ("in", "inout", "out")
        ordered = sorted(arguments.items(), key=lambda pair: kinds.index(pair[1].name))
        counts = dict.fromkeys(kinds, 0)
        named: dict[str, KernelArgument] = {}
        for memory, argument in ordered:
            named[memory] = replace(argument, name=f"{argument.name}{counts[argument.name]}")
            counts[argument.name] += 1
        names = {memory: argument.name for memory, argument in named.items()}
        candidate = chaining.join(parts, names, handed, pieces)
        if candidate is None:
            return None
        facts = candidate.work.facts
        key = hash_of(first.language, candidate.source, facts.identity)
        kernel = Kernel(
            name=f"{first.name.rpartition('_')[0]}_chain_{key[:8]}",
            key=key,
            language=first.language,
            source=candidate.source,
            arguments=tuple(named.values()),
            sizes=(),
            facts=facts,
        )
        buffers = {
            memory: name
            for use in uses
            for memory, name in zip(use.memory, use.launch.buffers, strict=True)
        }
        origins = dict.fromkeys(origin for use in uses for origin in use.launch.origins)
        launch = Launch(
            kernel=kernel.name,
            buffers=tuple(buffers[memory] for memory in named),
            sizes=(),
            units=candidate.work.units,
            device=uses[0].launch.device,
            origins=tuple(origins),
        )
        return kernel, launch

    def _parts(self, uses: Sequence[Use]) -> list[tuple[ChainPart, Chaining, Kernel]] | None:
        """The parts that launches are; None where any of them can be none."""
        parts = []
        for use in uses:
            name = use.launch.kernel
            if name not in self._known:
                self._known[name] = self._part(use.launch)
            known = self._known[name]
            if known is None:
                return None
            part, chaining, kernel = known
            part = replace(part, memory=use.memory, units=int(use.launch.units))
            parts.append((part, chaining, kernel))
        return parts

    def _part(self, launch: Launch) -> tuple[ChainPart, Chaining, Kernel] | None:
        among = self._kernels.written.get(launch.kernel)
        if among is None or among.language.chaining is None:
            return None
        kernel = among.candidates[0].kernel
        if kernel.sizes or not launch.units.is_constant or not isinstance(kernel.facts, CpuFacts):
            return None
        part = ChainPart(
            group=canonical_group(among.group, among.names),
            source=kernel.source,
            tensors=tuple(argument.name for argument in kernel.arguments),
            memory=(),
            units=0,
            grain=kernel.facts.grain,
        )
        return part, among.language.chaining, kernel


def _handed_on(parts: Sequence[ChainPart], kernels: Sequence[Kernel]) -> list[str]:
    """Memory that a part writes and another one uses."""
    written = {
        memory
        for part, kernel in zip(parts, kernels, strict=True)
        for memory, argument in zip(part.memory, kernel.arguments, strict=True)
        if argument.is_written
    }
    used = dict.fromkeys(memory for part in parts for memory in part.memory)
    return [
        memory
        for memory in used
        if memory in written and sum(memory in part.memory for part in parts) > 1
    ]


def _arguments(parts: Sequence[ChainPart], kernels: Sequence[Kernel]) -> dict[str, KernelArgument]:
    """The memory that parts use, as arguments of one kernel: `in` where it is only read, `out`
    where it is only written, else `inout`.
    """
    arguments: dict[str, KernelArgument] = {}
    for part, kernel in zip(parts, kernels, strict=True):
        for memory, argument in zip(part.memory, kernel.arguments, strict=True):
            known = arguments.get(memory)
            kind = "inout" if argument.is_in_place else "out" if argument.is_written else "in"
            if known is not None and known.name != kind:
                kind = "inout"
            written = argument.is_written or (known is not None and known.is_written)
            arguments[memory] = replace(argument, name=kind, is_written=written)
    return arguments
