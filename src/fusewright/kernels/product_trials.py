"""Which matrix products are kernels and which are library calls, found out by trials.

A kernel's gain is not its own alone: bias, activation and residual go with it, and a pass over
memory is saved. So whole schedules are compared. A program is scheduled with the products of some
size left to the library, and with kernels for them; the two differ in some groups and calls, each
of which is tried by itself, on arguments of its own, and what these take together decides. The
sizes of products are gone through one after the other, the largest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.ir.canonical import canonical_names, structural_key
from fusewright.ir.group import Group, Schedule
from fusewright.ir.limits import Limits, LimitsOf, ProductSizes
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallOperator,
    Layout,
    Operand,
    ViewReference,
)
from fusewright.kernels import candidates_of
from fusewright.kernels.candidates import CandidateSet
from fusewright.kernels.random_arguments import MOST_INDICES, generator_on, random_memory
from fusewright.kernels.targets import Languages
from fusewright.kernels.tuning import Tuner
from fusewright.records import replace
from fusewright.runtime import trials
from fusewright.runtime.choices import Decision, keep_decision, known_decision
from fusewright.runtime.trials import GAIN, Tuned

Reschedule = Callable[[LimitsOf], Schedule]
"""Schedules the program anew, with limits that say which products are kernels."""

LIBRARY: Final = "the library"

ANSWERS: Final = (LIBRARY, "kernels")


def limits_by_trials(
    languages: Languages, hints: Mapping[str, int | float], reschedule: Reschedule
) -> LimitsOf:
    """The limits of devices, which say of each product what trials found out."""
    languages.tuner = Tuner(hints)
    return _Search(languages, languages.tuner, reschedule).run()


class _Search:
    """The search for what is fastest."""

    def __init__(self, languages: Languages, tuner: Tuner, reschedule: Reschedule) -> None:
        self.languages = languages
        self.reschedule = reschedule
        self.decisions: dict[ProductSizes, bool] = {}
        """Whether kernels compute a product, by its sizes; in order of first use."""

        self.times = _Times(languages, tuner)
        self.tuner = tuner

    def run(self) -> LimitsOf:
        """Go through all products that there are kernels for."""
        schedule = self.reschedule(self.limits_of)
        products = sorted(self.decisions, key=_operations, reverse=True)
        others = {product: self._with_other_answer(product) for product in products}
        self.times.try_together(schedule, list(others.values()))
        for product in products:
            other = others.get(product) or self._with_other_answer(product)
            seconds = self.times.of_differences(schedule, other)
            if seconds is None:
                continue
            by_rule = self.decisions[product]
            if seconds[1] < (1 - GAIN) * seconds[0]:
                self.decisions[product] = not by_rule
                schedule = other
                others = {}  # They have the rule's answer to this one.
            self.tuner.products.append(self._told(product, by_rule, seconds))
        return self.limits_of

    def _with_other_answer(self, product: ProductSizes) -> Schedule:
        """The schedule where the decision about one product is the other one."""
        before = self.decisions[product]
        self.decisions[product] = not before
        try:
            return self.reschedule(self.limits_of)
        finally:
            self.decisions[product] = before

    def limits_of(self, device: str) -> Limits:
        """The limits of a device under today's decisions; products not met before are left to the
        rule.
        """
        limits = self.languages.limits_of(device)

        def multiplies(product: ProductSizes) -> bool:
            by_rule = limits.multiplies(product)
            if product.dtype not in self.languages.of(device).products:
                return by_rule
            return self.decisions.setdefault(product, by_rule)

        return replace(limits, multiplies=multiplies)

    def _told(self, product: ProductSizes, before: bool, seconds: tuple[float, float]) -> Tuned:
        """The trial, for reports: the rule's answer is the first."""
        answers = (ANSWERS[before], ANSWERS[not before])
        won = self.decisions[product] != before
        return Tuned(
            kind="product",
            kernel=_words(product),
            candidates=answers,
            decision=Decision(winner=int(won), seconds=seconds),
            was_kept=False,
            argument_bytes=0,
            untried_because="",
        )


def _operations(product: ProductSizes) -> int:
    return product.batches * product.rows * product.columns * product.depth


def _words(product: ProductSizes) -> str:
    batches = f"{product.batches} x " if product.batches > 1 else ""
    sizes = f"{product.rows} x {product.depth} by {product.depth} x {product.columns}"
    return f"products {batches}{sizes} of {product.dtype}"


class _Times:
    """The times of what schedules consist of, each tried once."""

    def __init__(self, languages: Languages, tuner: Tuner) -> None:
        self.languages = languages
        self.tuner = tuner
        self.known: dict[str, float | None] = {}
        """By group or call; None where it cannot be tried."""

    def try_together(self, schedule: Schedule, others: Sequence[Schedule]) -> None:
        """Try the groups in which some schedules differ from one, whose candidates are compiled
        together.
        """
        counts, parts = self._count(schedule)
        differing: dict[str, Group] = {}
        for other in others:
            own_counts, own_parts = self._count(other)
            keys = [*(counts - own_counts), *(own_counts - counts)]
            all_parts = {**own_parts, **parts}
            differing |= {key: part for key in keys if isinstance(part := all_parts[key], Group)}
        self.tuner.trials([self._candidates(group) for group in differing.values()], always=True)

    def of_differences(self, one: Schedule, other: Schedule) -> tuple[float, float] | None:
        """The seconds of what only one schedule has, and of what only the other has. None: nothing
        differs, or something cannot be tried.
        """
        counts = [self._count(schedule) for schedule in (one, other)]
        totals = []
        for own, others in (counts, reversed(counts)):
            seconds = [self._seconds(part, own[1]) for part in (own[0] - others[0]).elements()]
            known = [number for number in seconds if number is not None]
            if len(known) < len(seconds):
                return None
            totals.append(sum(known))
        return None if not any(totals) else (totals[0], totals[1])

    def _count(self, schedule: Schedule) -> tuple[Counter[str], Mapping[str, Any]]:
        """How often a schedule has each group and call, and one of each."""
        counts: Counter[str] = Counter()
        parts: dict[str, Any] = {}
        buffers = schedule.program.buffers()
        for work in schedule.works:
            if isinstance(work, Group):
                target = self.languages.of(work.device).target
                key = structural_key(work, canonical_names(work), target)
                parts[key] = work
            elif isinstance(work, CallOperator):
                layouts = [_layout(operand, buffers) for operand in work.arguments]
                described = [
                    a if b is None else b for a, b in zip(work.arguments, layouts, strict=True)
                ]
                key = f"{work.operator} {described}"
                parts[key] = work, buffers
            else:
                continue
            counts[key] += 1
        return counts, parts

    def _seconds(self, key: str, parts: Mapping[str, Any]) -> float | None:
        if key not in self.known:
            part = parts[key]
            if isinstance(part, Group):
                self.known[key] = self._seconds_of_group(part)
            else:
                self.known[key] = self._seconds_of_call(key, *part)
        return self.known[key]

    def _seconds_of_group(self, group: Group) -> float | None:
        (trial,) = self.tuner.trials([self._candidates(group)], always=True)
        if trial.reason or trial.decision is None:
            return None
        return trial.decision.seconds[trial.decision.winner]

    def _candidates(self, group: Group) -> CandidateSet:
        language = self.languages.of(group.device)
        names = canonical_names(group)
        key = structural_key(group, names, language.target)
        return candidates_of(group, names, key, language, self.languages.options)

    def _seconds_of_call(
        self, key: str, call: CallOperator, buffers: Mapping[str, Buffer]
    ) -> float | None:
        """The time of a library call on random arguments, whose results lie in memory that is there
        already if the operator takes such.
        """
        layouts = [_layout(operand, buffers) for operand in call.arguments]
        if call.keywords or len(call.outputs) != 1 or None in layouts:
            return None
        device = torch.device(call.outputs[0].layout.device)
        hints = self.tuner.hints
        precision = torch_compat.states.matmul_precision(device.type)
        kept = trials.trial_key(device, key, repr(hints), precision)
        known = known_decision(kept, (LIBRARY,))
        if known is not None:
            return known.seconds[0]
        with torch_compat.without_modes(), torch.no_grad():
            try:
                tensors = [_tensor(layout, hints) for layout in layouts if layout is not None]
            except (KeyError, RuntimeError):  # A size is not known yet, or memory does not suffice.
                return None
            if call.out_operator:
                function = _operator(call.out_operator)
                keywords = {"out": _tensor(call.outputs[0].layout, hints)}
            else:
                function, keywords = _operator(call.operator), {}
            with trials.TRYING:
                times = self.tuner.time([lambda: function(*tensors, **keywords)], device)
        decision = trials.decided(times)
        keep_decision(kept, (LIBRARY,), decision)
        return decision.seconds[0]


def _layout(operand: Operand, buffers: Mapping[str, Buffer]) -> Layout | None:
    """The layout of a tensor; None for what is none."""
    match operand:
        case BufferReference(name=name):
            return buffers[name].layout
        case ViewReference(layout=layout):
            return layout
    return None


def _tensor(layout: Layout, hints: Mapping[str, int | float]) -> torch.Tensor:
    """A random tensor that lies so."""
    memory = random_memory(layout, hints, MOST_INDICES, generator_on(layout.device))
    size, stride = ([n.evaluate(hints) for n in part] for part in (layout.size, layout.stride))
    return memory.as_strided(size, stride, layout.offset.evaluate(hints))


def _operator(name: str) -> Callable[..., Any]:
    namespace, operator, overload = name.split(".")
    function: Callable[..., Any] = getattr(
        getattr(getattr(torch.ops, namespace), operator), overload
    )
    return function
