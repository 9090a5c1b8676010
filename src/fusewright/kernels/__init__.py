"""From fused groups to kernels: one definition for each structure, one launch for each group.

What a group is written in follows from the device that it runs on (`targets`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.canonical import (
    CanonicalNames,
    canonical_group,
    canonical_names,
    hash_of,
    structural_key,
    structural_text,
)
from fusewright.ir.group import Group, Schedule
from fusewright.ir.index import Index
from fusewright.ir.kernel import Kernel, Launch
from fusewright.ir.limits import LimitsOf
from fusewright.ir.lines import CallChoice, DefineChoice
from fusewright.ir.program import Program
from fusewright.ir.verify import verify_renamed_group
from fusewright.kernels.analysis import SizeHints
from fusewright.kernels.candidates import CandidateSet, KernelCandidate
from fusewright.kernels.language import Candidate, Implementation, KernelLanguage, Work
from fusewright.kernels.targets import TARGETS, Languages, Target
from fusewright.kernels.ways import (
    call_choice,
    define_choice,
    is_left_open,
    names_of_canonical,
)
from fusewright.records import field, record
from fusewright.runtime.guard_pages import STRUCTURES
from fusewright.runtime.memory_checks import MemoryChecks

if TYPE_CHECKING:  # Few programs are tuned.
    from fusewright.runtime.trials import Tuned

__all__ = [
    "TARGETS",
    "KernelLanguage",
    "KernelSet",
    "Languages",
    "Target",
    "Work",
    "candidates_of",
    "define_kernels",
    "tuned_limits",
]


@record(kw_only=True)
class KernelSet:
    """The kernels of one schedule."""

    definitions: tuple[Kernel, ...]
    """The kernels, in order of first use."""

    launches: Mapping[int, Launch | CallChoice]
    """The launches, by the place of the group among the schedule's steps; calls of choices, where
    there are several ways to do a group's work.
    """

    written: Mapping[str, CandidateSet] = field(default_factory=dict)
    """By name of a kernel that was taken untried, what it was chosen from."""

    choices: tuple[DefineChoice, ...] = ()
    lacks_choices: bool = False
    """Whether scheduling left a reduction to a choice which there is none of: it has to decide
    itself.
    """

    tuned: tuple[Tuned, ...] = ()
    """The trials that chose among candidates, where kernels are tuned."""

    def launch(self, position: int) -> Launch:
        """The launch of a group, where there are no choices."""
        launch = self.launches[position]
        assert isinstance(launch, Launch)
        return launch


def tuned_limits(
    languages: Languages,
    program: Program,
    reschedule: Callable[[LimitsOf], Schedule],
) -> LimitsOf:
    """The limits of devices, where kernels are tuned: they say of each matrix product whether
    trials found kernels faster than the library, for which `reschedule` schedules the program.
    """
    product_trials = importlib.import_module("fusewright.kernels.product_trials")  # Few ask for it.
    limits: LimitsOf = product_trials.limits_by_trials(languages, program, reschedule)
    return limits


def define_kernels(
    schedule: Schedule,
    context: CompileContext,
    languages: Languages | None = None,
    *,
    has_choices: bool = False,
) -> KernelSet:
    """Write each structure of group once, and say how each group launches it. `languages`: by
    default that of each group's device. `has_choices`: in all ways that may be the fastest.
    """
    languages = languages or Languages(context.options)
    languages.require(schedule.program.devices)
    structures: dict[str, CandidateSet] = {}
    uses: dict[int, tuple[Group, CanonicalNames, str]] = {}
    for position, step in enumerate(schedule.steps):
        group = step.work
        if not isinstance(group, Group) or step.does_nothing:
            continue
        own = languages.of(group.device)
        names = canonical_names(group)
        structure = structural_key(group, names, own.target)
        uses[position] = group, names, structure
        if structure not in structures:
            structures[structure] = candidates_of(group, names, structure, own, context.options)
    several = list(structures.values())
    chosen = [among.candidates[0] for among in several]
    tuned: tuple[Tuned, ...] = ()
    if context.options.tune:
        tuning = importlib.import_module("fusewright.kernels.tuning")  # Few ask for it.
        with context.stage("tune"):
            tuner = languages.tuner or tuning.Tuner(schedule.program, languages.trials)
            chosen, tuned = tuner.choose(several)
    by_structure = dict(zip(structures, chosen, strict=True))
    alternatives = _Alternatives()
    if has_choices:
        hints = schedule.program.hints
        asked = dict.fromkeys(  # Uses of one structure may be of other sizes.
            (
                structure,
                tuple((new.name, hints[own.name]) for new, own in names.sizes if own.name in hints),
            )
            for _, names, structure in uses.values()
        )
        for structure, sizes in asked:
            among, first = structures[structure], by_structure[structure]
            alternatives.add(structure, among, first, dict(sizes))
    if alternatives.choices and context.options.tune:
        choice_trials = importlib.import_module("fusewright.kernels.choice_trials")
        kernels = {candidate.kernel.name: candidate.kernel for candidate in chosen}
        kernels |= alternatives.kernels
        with context.stage("tune"):
            tuned += choice_trials.decide_choices(alternatives.choices, structures, kernels, tuner)
    launches: dict[int, Launch | CallChoice] = {}
    for position, (group, names, structure) in uses.items():
        choice = alternatives.choices.get(structure)
        if choice is not None:
            launches[position] = call_choice(choice, group, names)
        else:
            launches[position] = _launch(by_structure[structure], group, names)
    definitions = [*(candidate.kernel for candidate in chosen), *alternatives.kernels.values()]
    return KernelSet(
        definitions=tuple({kernel.name: kernel for kernel in definitions}.values()),
        launches=launches,
        written={among.candidates[0].kernel.name: among for among in several},
        choices=tuple(alternatives.choices.values()),
        lacks_choices=alternatives.are_lacking,
        tuned=tuned,
    )


class _Alternatives:
    """The ways to do the work of groups, where there are several."""

    def __init__(self) -> None:
        self.choices: dict[str, DefineChoice] = {}
        """By structure of the groups."""

        self.kernels: dict[str, Kernel] = {}
        self.are_lacking = False
        """Whether a group was left to a choice which there is none of."""

    def add(
        self, structure: str, among: CandidateSet, first: KernelCandidate, hints: SizeHints
    ) -> None:
        """The ways to do the work of a structure, that of the kernel `first` foremost, where a use
        of it has these sizes.
        """
        if structure in self.choices:
            return
        language, names = among.language, among.names
        group = canonical_group(among.group, names)
        ways = language.ways(group, hints)
        self.are_lacking |= is_left_open(group, ways, language.limits, hints)
        if len(ways) < 2:
            return
        name = f"{language.name}_{among.group.name}"

        def define(part: Group, way: Implementation) -> tuple[Kernel, Launch]:
            is_whole = part is group
            part_names = names_of_canonical(names) if is_whole else canonical_names(part)
            if is_whole and way is ways[0]:
                return first.kernel, _launch(first, part, part_names)
            text = structural_text(part, part_names)
            sizes = tuple(canonical for canonical, _ in part_names.sizes)
            tensors = [argument.name for argument in part_names.arguments]
            inner = part if is_whole else canonical_group(part, part_names)
            own = f"{name}_{way.name}_{hash_of(text, language.target, way.name)[:8]}"
            candidate = Candidate(way.name, *way.write(inner, tensors, sizes))
            written = _kernel_of(candidate, own, part_names, language)
            if MemoryChecks.chosen().guard_pages:
                STRUCTURES[own] = text
            return written.kernel, _launch(written, part, part_names)

        result = define_choice(f"{name}_choice_{structure[:8]}", names, ways, define)
        if result is not None:
            self.choices[structure], kernels = result
            self.kernels |= kernels


def candidates_of(
    group: Group,
    names: CanonicalNames,
    structure: str,
    language: KernelLanguage,
    options: Options,
) -> CandidateSet:
    """The kernels of a structure first met in `group`: the one that a rule chooses, and others
    where kernels are tuned.
    """
    sizes = tuple(canonical for canonical, _ in names.sizes)
    tensors = [argument.name for argument in names.arguments]
    canonical = canonical_group(group, names)
    if options.verify:
        verify_renamed_group(group, names)
    candidates: Sequence[Candidate] = ()
    if options.tune:
        candidates = language.candidates(canonical, tensors, sizes)
    if not candidates:
        candidates = (Candidate("", *language.write(canonical, tensors, sizes)),)
    written = []
    for number, candidate in enumerate(candidates):
        key = hash_of(structure, str(number)) if number else structure
        name = f"{language.name}_{group.name}_{key[:8]}"
        written.append(_kernel_of(candidate, name, names, language))
    if MemoryChecks.chosen().guard_pages:
        text = structural_text(group, names)
        STRUCTURES.update((candidate.kernel.name, text) for candidate in written)
    return CandidateSet(group=group, names=names, language=language, candidates=tuple(written))


def _kernel_of(
    candidate: Candidate, name: str, names: CanonicalNames, language: KernelLanguage
) -> KernelCandidate:
    """The kernel of this name that a candidate is."""
    facts = candidate.work.facts
    kernel = Kernel(
        name=name,
        key=hash_of(language.name, language.target, candidate.source, facts.identity),
        language=language.name,
        source=candidate.source,
        arguments=names.arguments,
        sizes=tuple(str(canonical) for canonical, _ in names.sizes),
        facts=facts,
    )
    return KernelCandidate(name=candidate.name, kernel=kernel, units=candidate.work.units)


def _launch(candidate: KernelCandidate, group: Group, names: CanonicalNames) -> Launch:
    """One call, with this group's buffers, sizes and origins."""
    own: dict[object, Index] = {canonical: symbol.index for canonical, symbol in names.sizes}
    return Launch(
        kernel=candidate.kernel.name,
        buffers=names.buffers,
        sizes=tuple(symbol.index for _, symbol in names.sizes),
        units=candidate.units.substitute(own),  # type: ignore[arg-type]
        device=group.device,
        origins=group.origins,
    )
