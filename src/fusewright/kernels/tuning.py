"""Tuning ahead of time: each kernel is written in several ways, which are timed.

The arguments are random tensors made for one kernel, and freed before those of the next: of its
sizes (symbolic ones as they were when the program was captured), strides and types, indices within
their ranges. The program itself never runs, so that a side of a condition that no input takes is
tuned as well. What wins is the kernel that the next stages see; decisions are kept on disk
(`runtime.trials`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from fusewright import torch_compat
from fusewright.interrupts import INTERRUPTS
from fusewright.ir.kernel import CpuFacts, Kernel
from fusewright.ir.program import Program
from fusewright.kernels.candidates import CandidateSet, KernelCandidate
from fusewright.kernels.language import KernelLanguage
from fusewright.kernels.random_arguments import CannotTry, RandomArguments
from fusewright.progress import DOING
from fusewright.runtime import trials
from fusewright.runtime.choices import FILES, Decision, keep_decision, known_decision
from fusewright.runtime.eager_kernels import why_eager
from fusewright.runtime.targets import source_of
from fusewright.runtime.trials import Tuned

Functions = Mapping[str, Callable[..., Any] | None]
"""By name of a kernel, what launches it; None where it cannot be compiled."""


class Tuner:
    """Tries candidates, each structure once, and chooses among them."""

    def __init__(self, program: Program, done: dict[str, Trial]) -> None:
        """`done`: by key, the trials that this compile has made; more are added to it."""
        self.hints = program.hints
        """The values of symbolic sizes."""

        self.inputs = frozenset(buffer.name for buffer in program.inputs)
        """Its weights are among them."""

        self.most_bytes = 0
        """The size of the largest arguments that were asked about."""

        self.time = trials.TIMER
        self.products: list[Tuned] = []
        """The trials of matrix products, by the library and by kernels (`product_trials`)."""

        self._done = done

    def choose(
        self, several: Sequence[CandidateSet]
    ) -> tuple[list[KernelCandidate], tuple[Tuned, ...]]:
        """The candidate to take of each set; and all trials, for reports."""
        asked = self.trials(several)
        told = (trial.tuned() for trial in asked if len(trial.among.candidates) > 1)
        return [trial.winner for trial in asked], (*self.products, *told)

    def trials(
        self, several: Sequence[CandidateSet], *, always: bool = False, turn: int = 0
    ) -> list[Trial]:
        """The trials of the sets, done now where they were not yet. Kernels are compiled together,
        and run one after the other. `always`: also where there is one candidate. Trials of another
        `turn` are other ones.
        """
        asked = [Trial(among, self, always=always, turn=turn) for among in several]
        self.most_bytes = max([self.most_bytes, *(trial.least_bytes for trial in asked)])
        for trial in asked:
            trial.look_up(self.most_bytes)
        asked = [self._done.get(trial.key, trial) for trial in asked]
        unknown = [trial for trial in asked if trial.decision is None]
        functions = _load([trial.among for trial in unknown])
        DOING.done, DOING.all = 0, len(unknown)
        for trial, own in zip(unknown, functions, strict=True):
            if INTERRUPTS.is_pending:
                INTERRUPTS.deliver()
            with trials.TRYING, FILES.making(trial.key):  # Of several processes, one tries it.
                if not trial.is_known():
                    trial.run(own, self)
            DOING.done += 1
        DOING.all = 0
        self._done.update((trial.key, trial) for trial in asked if trial.key)
        return asked


class Trial:
    """The trial of one structure; what an earlier one found may be known."""

    def __init__(self, among: CandidateSet, tuner: Tuner, *, always: bool, turn: int) -> None:
        self.among = among
        self.key = ""
        """Hash of all that decides it; empty where there is none."""

        self.decision: Decision | None = None
        self.reason = ""
        """Why there is no trial."""

        self.was_kept = False
        self.bytes = 0
        """The size of the arguments that it was run on."""

        self.least_bytes = 0
        """The size of one set of arguments."""

        if len(among.candidates) == 1 and not always:
            self._leave_to_rule("")
            return
        try:
            self._arguments = RandomArguments(among.group, among.names, tuner.hints, tuner.inputs)
        except CannotTry as reason:
            self._leave_to_rule(str(reason))
            return
        self.least_bytes = self._arguments.bytes
        self._turn = turn
        self._sets = 1
        """How many sets of arguments calls go through."""

        self._work = [
            [candidate.units.evaluate(self._arguments.sizes), *grain_of(candidate.kernel)]
            for candidate in among.candidates
        ]

    def look_up(self, most_bytes: int) -> None:
        """Find out its key, and whether it was decided before. `most_bytes`: what its sets of
        arguments may take, where one takes less.
        """
        if self.decision is not None:
            return
        arguments = self._arguments
        device, of_inputs = arguments.device, arguments.input_bytes()
        self._sets = trials.cold_sets(device, of_inputs, most_bytes - self.least_bytes)
        are_cold = trials.are_cold(device, of_inputs, self._sets)
        sizes = tuple(arguments.sizes.values()), arguments.spans
        decides = sizes, self._work, arguments.are_inputs, self._turn, are_cold
        keys = (candidate.kernel.key for candidate in self.among.candidates)
        self.key = trials.trial_key(device, repr(decides), *keys)
        self.is_known()

    def is_known(self) -> bool:
        """Whether it was decided before, in this process or another."""
        self.decision = known_decision(self.key, self._names)
        self.was_kept = self.decision is not None
        return self.was_kept

    def _leave_to_rule(self, reason: str) -> None:
        self.reason = reason
        self.decision = Decision(seconds=(None,) * len(self.among.candidates), winner=0)

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

    def run(self, functions: Sequence[Callable[..., Any] | None], tuner: Tuner) -> None:
        """Time the candidates whose functions are there, on arguments that are freed with this
        call. Where memory does not suffice for them, the rule's choice stays.
        """
        if reason := trials.why_not_now():
            self._leave_to_rule(reason)
            return
        with torch_compat.without_modes(), torch.no_grad():
            try:
                sets = self._arguments.sets(self._sets)
            except RuntimeError as error:
                self._leave_to_rule(f"its arguments cannot be made: {error}".partition("\n")[0])
                return
            each = {id(tensor): tensor.nbytes for tensors in sets for tensor in tensors}
            self.bytes = sum(each.values())
            sizes = self._arguments.sizes.values()
            alternatives = {
                number: trials.in_turn(
                    [partial(function, *tensors, *sizes, *work) for tensors in sets]
                )
                for number, (function, work) in enumerate(zip(functions, self._work, strict=True))
                if function is not None
            }
            times = tuner.time(list(alternatives.values()), self._arguments.device)
        seconds = [float("inf")] * len(functions)
        for number, time in zip(alternatives, times, strict=True):
            seconds[number] = time
        self.decision = trials.decided(seconds)
        keep_decision(self.key, self._names, self.decision)


def grain_of(kernel: Kernel) -> list[int]:
    """The last argument of a launch on the CPU."""
    return [kernel.facts.grain] if isinstance(kernel.facts, CpuFacts) else []


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
        functions |= load_kernels(kernels, language)
    return [
        [functions[candidate.kernel.name] for candidate in among.candidates] for among in several
    ]


def load_kernels(kernels: Mapping[str, Kernel], language: KernelLanguage) -> Functions:
    """The function of each kernel by name, all compiled together."""
    sources = {name: source_of(kernel) for name, kernel in kernels.items()}
    try:
        functions = dict(zip(sources, language.load(sources), strict=True))
    except Exception:
        if len(kernels) == 1:
            return dict.fromkeys(kernels)
        return {
            name: function
            for name, kernel in kernels.items()
            for function in load_kernels({name: kernel}, language).values()
        }
    return {
        name: None if why_eager(kernels[name].key) else function
        for name, function in functions.items()
    }
