"""Tuning ahead of time: each kernel is written in several ways, which are timed.

The arguments are random tensors made for one kernel, and freed before those of the next: of its
sizes (symbolic ones as they were when the program was captured), strides and types, indices within
their ranges. The program itself never runs, so that a side of a condition that no input takes is
tuned as well. What wins is the kernel that the next stages see; decisions are kept on disk
(`runtime.trials`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.ir.dtype import DType
from fusewright.ir.group import Group
from fusewright.ir.index import Index
from fusewright.ir.kernel import CpuFacts, Kernel
from fusewright.ir.program import Layout
from fusewright.ir.value import Cast, Indirect, Load, Value, postorder
from fusewright.kernels.analysis import stage_values
from fusewright.kernels.candidates import CandidateSet, KernelCandidate
from fusewright.kernels.language import KernelLanguage
from fusewright.runtime import trials
from fusewright.runtime.choices import Decision, keep_decision, known_decision
from fusewright.runtime.eager_kernels import why_eager
from fusewright.runtime.targets import source_of
from fusewright.runtime.trials import Timer, Tuned

SEED = 0x7E57
"""Of the random arguments: trials of two processes see the same."""


class CannotTry(Exception):
    """No arguments can be made up for a kernel; says why."""


class Tuner:
    """Tries candidates, each structure once, and chooses among them."""

    def __init__(self, hints: Mapping[str, int | float], timer: Timer | None = None) -> None:
        self.hints = hints
        """The values of symbolic sizes."""

        self.time = timer or trials.TIMER
        self.products: list[Tuned] = []
        """The trials of matrix products, by the library and by kernels (`product_trials`)."""

        self._done: dict[str, Trial] = {}
        """By what decides a trial."""

    def choose(
        self, several: Sequence[CandidateSet]
    ) -> tuple[list[KernelCandidate], tuple[Tuned, ...]]:
        """The candidate to take of each set; and all trials, for reports."""
        asked = self.trials(several)
        told = (trial.tuned() for trial in asked if len(trial.among.candidates) > 1)
        return [trial.winner for trial in asked], (*self.products, *told)

    def trials(self, several: Sequence[CandidateSet], *, always: bool = False) -> list[Trial]:
        """The trials of the sets, done now where they were not yet. Kernels are compiled together,
        and run one after the other. `always`: also where there is one candidate.
        """
        asked = [Trial(among, self.hints, always=always) for among in several]
        asked = [self._done.get(trial.key, trial) for trial in asked]
        unknown = [trial for trial in asked if trial.decision is None]
        functions = _load([trial.among for trial in unknown])
        for trial, own in zip(unknown, functions, strict=True):
            trial.run(own, self.time)
        self._done.update((trial.key, trial) for trial in asked if trial.key)
        return asked


class Trial:
    """The trial of one structure; what an earlier one found may be known."""

    def __init__(
        self, among: CandidateSet, hints: Mapping[str, int | float], *, always: bool
    ) -> None:
        self.among = among
        self.key = ""
        """Hash of all that decides it; empty where there is none."""

        self.decision: Decision | None = None
        self.reason = ""
        """Why there is no trial."""

        self.was_kept = False
        self.bytes = 0
        """The size of the arguments."""

        self._hints = hints
        self._device = torch.device(among.group.device)
        count = len(among.candidates)
        if count == 1 and not always:
            self.decision = Decision(seconds=(0.0,), winner=0)
            return
        try:
            self._limits = index_limits(among.group)
            self._numbers = self._evaluated()
        except CannotTry as reason:
            self.decision = Decision(seconds=(0.0,) * count, winner=0)
            self.reason = str(reason)
            return
        self.key = self._key()
        self.decision = known_decision(self.key, self._names)
        self.was_kept = self.decision is not None

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(candidate.name for candidate in self.among.candidates)

    @property
    def winner(self) -> KernelCandidate:
        assert self.decision is not None
        return self.among.candidates[self.decision.winner]

    def tuned(self) -> Tuned:
        """The trial, for reports."""
        assert self.decision is not None
        return Tuned(
            kernel=self.winner.kernel.name,
            candidates=self._names,
            decision=self.decision,
            argument_bytes=self.bytes,
            was_kept=self.was_kept,
            untried_because=self.reason,
        )

    def run(self, functions: Sequence[Callable[..., Any] | None], timer: Timer) -> None:
        """Time the candidates whose functions are there, on arguments that are freed with this
        call.
        """
        with torch_compat.without_modes(), torch.no_grad():
            tensors = self._tensors()
            self.bytes = sum(tensor.nbytes for tensor in tensors)
            sizes, units = self._numbers
            alternatives = {
                number: partial(function, *tensors, *sizes, *work)
                for number, (function, work) in enumerate(zip(functions, units, strict=True))
                if function is not None
            }
            times = timer(list(alternatives.values()), self._device)
        seconds = [float("inf")] * len(functions)
        for number, time in zip(alternatives, times, strict=True):
            seconds[number] = time
        self.decision = trials.decided(seconds)
        keep_decision(self.key, self._names, self.decision)

    def _evaluated(self) -> tuple[list[int | float], list[list[int]]]:
        """The sizes of a launch, and the work of each candidate's."""
        group, names = self.among.group, self.among.names
        known = {own.name: self._hints.get(own.name) for _, own in names.sizes}
        if None in known.values():
            raise CannotTry("a size is not known before the program runs")
        sizes = {canonical.name: self._hints[own.name] for canonical, own in names.sizes}
        units = [candidate.units.evaluate(sizes) for candidate in self.among.candidates]
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise CannotTry("a CUDA graph is being recorded")
        if not all(units) or any(_span(b.layout, self._hints) == 0 for b in group.writes):
            raise CannotTry("it has nothing to do")
        return list(sizes.values()), [
            [count, *_grain(candidate.kernel)]
            for count, candidate in zip(units, self.among.candidates, strict=True)
        ]

    def _tensors(self) -> list[torch.Tensor]:
        """Random arguments: the memory that each buffer spans, without its shape."""
        group = self.among.group
        generators: dict[str, torch.Generator] = {}
        layouts = {buffer.name: buffer.layout for buffer in (*group.reads, *group.writes)}
        read = {buffer.name for buffer in group.reads}
        tensors = []
        for name in self.among.names.buffers:
            layout = layouts[name]
            bound = 2
            if name in read:
                limits = self._limits.get(name, ())
                bound = min((size.evaluate(self._hints) for size in limits), default=bound)
            if layout.device not in generators:
                generators[layout.device] = torch.Generator(layout.device).manual_seed(SEED)
            tensor = random_memory(layout, self._hints, bound, generators[layout.device])
            is_number = layout.is_number_for(group.device)
            tensors.append(tensor.reshape(()) if is_number else tensor)
        return tensors

    def _key(self) -> str:
        """Hash of all that decides it."""
        sizes, units = self._numbers
        group = self.among.group
        spans = [_span(buffer.layout, self._hints) for buffer in (*group.reads, *group.writes)]
        return trials.trial_key(
            self._device,
            repr((sizes, units, spans)),
            *(candidate.kernel.key for candidate in self.among.candidates),
        )


def _grain(kernel: Kernel) -> list[int]:
    """The last argument of a launch on the CPU."""
    return [kernel.facts.grain] if isinstance(kernel.facts, CpuFacts) else []


def _span(layout: Layout, hints: Mapping[str, int | float]) -> int:
    return max(0, layout.span.evaluate(hints))


def random_memory(
    layout: Layout, hints: Mapping[str, int | float], bound: int, generator: torch.Generator
) -> torch.Tensor:
    """As many elements as a layout spans: normal numbers, integers below `bound`."""
    dtype: torch.dtype = getattr(torch, layout.dtype.torch_name)
    tensor = torch.empty(_span(layout, hints), dtype=dtype, device=layout.device)
    if layout.dtype.is_float:
        return tensor.normal_(generator=generator)
    most = 2 if layout.dtype is DType.BOOL else min(bound, 1 << (layout.dtype.bits - 1))
    return tensor.random_(0, most, generator=generator)


def index_limits(group: Group) -> dict[str, list[Index]]:
    """The sizes below which the integers in a buffer have to be, by buffer, since they are indices.
    CannotTry: an index is computed from what the group reads, so that random content may lead
    anywhere.
    """
    memory = {buffer.name for buffer in group.reads} - {buffer.name for buffer in group.writes}
    limits: dict[str, list[Index]] = {}
    for indirect in _indirects(group):
        loads = [node for node in postorder((indirect.value,)) if isinstance(node, Load)]
        if not loads:
            continue  # It is a number that follows from the loops.
        load = _load_behind(indirect.value)
        if load is None or load.buffer not in memory or not load.dtype.is_integer:
            raise CannotTry("it computes indices from what it reads")
        limits.setdefault(load.buffer, []).append(indirect.size)
    return limits


def _indirects(group: Group) -> Iterator[Indirect]:
    for stage in group.stages:
        yield from (value for value in stage_values(stage) if isinstance(value, Indirect))


def _load_behind(value: Value) -> Load | None:
    """The load that a value is, or is a cast of, at a place that was not loaded itself."""
    while isinstance(value, Cast):
        value = value.argument
    return value if isinstance(value, Load) and not value.indirect else None


def _load(several: Sequence[CandidateSet]) -> list[list[Callable[..., Any] | None]]:
    """The functions of all candidates, compiled together; None for one that cannot be compiled."""
    functions: dict[str, Callable[..., Any] | None] = {}
    for language in {id(among.language): among.language for among in several}.values():
        kernels = {
            candidate.kernel.name: candidate.kernel
            for among in several
            if among.language is language
            for candidate in among.candidates
        }
        functions |= _load_kernels(kernels, language)
    return [
        [functions[candidate.kernel.name] for candidate in among.candidates] for among in several
    ]


def _load_kernels(
    kernels: Mapping[str, Kernel], language: KernelLanguage
) -> Mapping[str, Callable[..., Any] | None]:
    """The function of each kernel by name: of all together, or of each that can be compiled."""
    sources = {name: source_of(kernel) for name, kernel in kernels.items()}
    try:
        functions = dict(zip(sources, language.load(sources), strict=True))
    except Exception:
        if len(kernels) == 1:
            return dict.fromkeys(kernels)
        return {
            name: function
            for name, kernel in kernels.items()
            for function in _load_kernels({name: kernel}, language).values()
        }
    return {
        name: None if why_eager(kernels[name].key) else function
        for name, function in functions.items()
    }
