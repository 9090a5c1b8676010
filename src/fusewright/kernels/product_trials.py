"""Which matrix products are kernels and which are library calls, found out by trials.

A kernel's gain is not its own alone: bias, activation and residual go with it, what its operands
are made from may too, and passes over memory are saved; or it is faster with less to do. So whole
schedules are compared. A program is scheduled with the products of some size left to the library,
and with kernels for them in each form that the language has; these differ in some groups and calls,
each of which is tried by itself, on arguments of its own, and what they take together decides. The
sizes of products are gone through one after the other, the largest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from math import inf, isfinite
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.ir.canonical import canonical_names, structural_key
from fusewright.ir.group import Group, Schedule
from fusewright.ir.limits import PLAIN_PRODUCT, Limits, LimitsOf, ProductForm, ProductSizes
from fusewright.ir.program import (
    Buffer,
    BufferReference,
    CallOperator,
    Layout,
    Operand,
    Program,
    ViewReference,
)
from fusewright.kernels import candidates_of
from fusewright.kernels.candidates import CandidateSet
from fusewright.kernels.random_arguments import (
    MOST_INDICES,
    generator_on,
    random_memory,
    span_of,
)
from fusewright.kernels.targets import Languages
from fusewright.kernels.tuning import Tuner
from fusewright.records import record, replace
from fusewright.runtime import trials
from fusewright.runtime.choices import keep_decision, known_decision
from fusewright.runtime.trials import GAIN, Tuned, decided

Reschedule = Callable[[LimitsOf], Schedule]
"""Schedules the program anew, with limits that say which products are kernels."""

LIBRARY: Final = "the library"

WORDS: Final[Mapping[ProductForm | None, str]] = {
    None: LIBRARY,
    PLAIN_PRODUCT: "kernels",
    ProductForm(computes_operands=True): "kernels that compute their operands",
    ProductForm(has_followers=False): "kernels of the product alone",
    ProductForm(is_sum=True): "kernels of sums",
}
"""The answers to how a product is computed, in words."""


_Call = tuple[CallOperator, Mapping[str, Buffer]]
"""A library call, and the program's buffers."""


@record(eq=False)
class _Parts:
    """What a schedule consists of."""

    counts: Counter[str]
    """How often it has each group and library call, by the key of these."""

    examples: Mapping[str, Group | _Call]
    """One of each."""


_Answer = tuple[ProductForm | None, _Parts]
"""How kernels compute a product, if they do; and what the schedule consists of where they do so."""


def limits_by_trials(languages: Languages, program: Program, reschedule: Reschedule) -> LimitsOf:
    """The limits of devices, which say of each product what trials found out."""
    languages.tuner = Tuner(program, languages.trials)
    return _Search(languages, languages.tuner, reschedule).run()


class _Search:
    """The search for what is fastest."""

    def __init__(self, languages: Languages, tuner: Tuner, reschedule: Reschedule) -> None:
        self.languages = languages
        self.reschedule = reschedule
        self.decisions: dict[ProductSizes, ProductForm | None] = {}
        """How kernels compute a product, if they do, by its sizes; in order of first use."""

        self.forms: dict[ProductSizes, tuple[ProductForm | None, ...]] = {}
        """The possible decisions."""

        self.times = _Times(languages, tuner)
        self.tuner = tuner

    def run(self) -> LimitsOf:
        """Go through all products that there are kernels for."""
        taken = self._scheduled()
        products = sorted(self.decisions, key=_operations, reverse=True)
        others = {product: self._others(taken, product) for product in products}
        self.times.try_together(taken, [other for own in others.values() for _, other in own])
        for product in products:
            answers = others.get(product)
            if answers is None:
                answers = self._others(taken, product)
                self.times.try_together(taken, [other for _, other in answers])
            winner = self._decide(product, taken, answers)
            if winner:
                self.decisions[product], taken = answers[winner - 1]
                others = {}  # They have the rule's answer to this one.
        return self.limits_of

    def _scheduled(self) -> _Parts:
        """What the schedule consists of under today's decisions."""
        return self.times.parts(self.reschedule(self.limits_of))

    def _others(self, taken: _Parts, product: ProductSizes) -> list[_Answer]:
        """The other answers to how a product is computed that give another schedule than the one
        that is taken.
        """
        before = self.decisions[product]
        known = [taken.counts]
        answers: list[_Answer] = []
        for form in self.forms[product]:
            if form == before:
                continue
            self.decisions[product] = form
            try:
                other = self._scheduled()
            finally:
                self.decisions[product] = before
            if other.counts not in known:
                known.append(other.counts)
                answers.append((form, other))
        return answers

    def _decide(self, product: ProductSizes, taken: _Parts, answers: Sequence[_Answer]) -> int:
        """The answer to take: 0 is the rule's. Another one has to be faster twice: it is the best
        of several, of parts that were timed one by one.
        """
        several = [taken, *(other for _, other in answers)]
        seconds = self.times.of_differences(several)
        if not any(0 < number < inf for number in seconds):
            return 0
        decision = decided(seconds)
        if decision.winner:
            first, second = self.times.of_differences([taken, several[decision.winner]], turn=1)
            if second >= (1 - GAIN) * first:
                decision = replace(decision, winner=0)
        forms = (self.decisions[product], *(form for form, _ in answers))
        self.tuner.products.append(
            Tuned(
                kind="product",
                kernel=_words(product),
                candidates=tuple(WORDS[form] for form in forms),
                decision=decision,
                was_kept=False,
                argument_bytes=0,
                untried_because="",
            )
        )
        return decision.winner

    def limits_of(self, device: str) -> Limits:
        """The limits of a device under today's decisions; products not met before are left to the
        rule.
        """
        limits = self.languages.limits_of(device)
        language = self.languages.of(device)

        def form_of(product: ProductSizes) -> ProductForm | None:
            by_rule = limits.product_form(product) if limits.multiplies(product) else None
            if product.dtype not in language.products:
                return by_rule
            forms = (form for form in language.product_forms if form.suits(product))
            self.forms.setdefault(product, (None, *forms))
            return self.decisions.setdefault(product, by_rule)

        return replace(
            limits,
            multiplies=lambda product: form_of(product) is not None,
            product_form=lambda product: form_of(product) or PLAIN_PRODUCT,
        )


def _operations(product: ProductSizes) -> int:
    return product.batches * product.rows * product.columns * product.depth


def _words(product: ProductSizes) -> str:
    batches = f"{product.batches} x " if product.batches > 1 else ""
    sizes = f"{product.rows} x {product.depth} by {product.depth} x {product.columns}"
    return f"products {batches}{sizes} of {product.dtype}"


class _Times:
    """The times of what schedules consist of, each tried once a turn."""

    def __init__(self, languages: Languages, tuner: Tuner) -> None:
        self.languages = languages
        self.tuner = tuner
        self.known: dict[tuple[str, int], float] = {}
        """By group or call, and turn; infinity where it cannot be tried."""

    def try_together(self, taken: _Parts, others: Sequence[_Parts]) -> None:
        """Try the groups in which some schedules differ from one, whose candidates are compiled
        together.
        """
        differing: dict[str, Group] = {}
        for other in others:
            keys = [*(taken.counts - other.counts), *(other.counts - taken.counts)]
            examples = {**other.examples, **taken.examples}
            differing |= {key: part for key in keys if isinstance(part := examples[key], Group)}
        self.tuner.trials([self._candidates(group) for group in differing.values()], always=True)

    def of_differences(self, several: Sequence[_Parts], turn: int = 0) -> list[float]:
        """The seconds of each schedule, without what all have in common. Infinity: something that
        is not in the first, or is only there, cannot be tried.
        """
        first = several[0].counts
        examples = {key: part for parts in several for key, part in parts.examples.items()}

        def seconds(counts: Counter[str]) -> float:
            return sum(self._seconds(key, examples[key], turn) for key in counts.elements())

        tried = [
            isfinite(seconds(first - parts.counts) + seconds(parts.counts - first))
            for parts in several
        ]
        common = first
        for parts in compress(several, tried):
            common = common & parts.counts
        return [
            seconds(parts.counts - common) if can else inf
            for parts, can in zip(several, tried, strict=True)
        ]

    def parts(self, schedule: Schedule) -> _Parts:
        """What a schedule consists of."""
        counts: Counter[str] = Counter()
        examples: dict[str, Group | _Call] = {}
        buffers = schedule.program.buffers()
        for work in schedule.works:
            if isinstance(work, Group):
                target = self.languages.of(work.device).target
                names = canonical_names(work)
                are_inputs = [name in self.tuner.inputs for name in names.buffers]
                key = f"{structural_key(work, names, target)} {are_inputs}"
                examples[key] = work
            elif isinstance(work, CallOperator):
                layouts = [_layout(operand, buffers) for operand in work.arguments]
                described = [
                    a if b is None else b for a, b in zip(work.arguments, layouts, strict=True)
                ]
                key = f"{work.operator} {described} {self._are_inputs(work)}"
                examples[key] = work, buffers
            else:
                continue
            counts[key] += 1
        return _Parts(counts, examples)

    def _seconds(self, key: str, part: Group | _Call, turn: int) -> float:
        if (key, turn) not in self.known:
            if isinstance(part, Group):
                found = self._seconds_of_group(part, turn)
            else:
                found = self._seconds_of_call(key, *part, turn)
            self.known[key, turn] = inf if found is None else found
        return self.known[key, turn]

    def _seconds_of_group(self, group: Group, turn: int) -> float | None:
        """The time of a group's fastest kernel; in a later turn, of that one anew."""
        among = self._candidates(group)
        (trial,) = self.tuner.trials([among], always=True)
        if turn and not trial.reason:
            among = replace(among, candidates=(trial.winner,))
            (trial,) = self.tuner.trials([among], always=True, turn=turn)
        if trial.reason or trial.decision is None:
            return None
        return trial.decision.seconds[trial.decision.winner]

    def _candidates(self, group: Group) -> CandidateSet:
        language = self.languages.of(group.device)
        names = canonical_names(group)
        key = structural_key(group, names, language.target)
        return candidates_of(group, names, key, language, self.languages.options)

    def _seconds_of_call(
        self, key: str, call: CallOperator, buffers: Mapping[str, Buffer], turn: int
    ) -> float | None:
        """The time of a library call on random arguments, whose results lie in memory that is there
        already if the operator takes such.
        """
        found = [_layout(operand, buffers) for operand in call.arguments]
        layouts = [layout for layout in found if layout is not None]
        if call.keywords or len(call.outputs) != 1 or len(layouts) < len(found):
            return None
        device = torch.device(call.outputs[0].layout.device)
        hints = self.tuner.hints
        try:
            count, are_cold = self._set_count(call, layouts, device)
        except KeyError:  # A size is not known yet.
            return None
        precision = torch_compat.states.matmul_precision(device.type)
        kept = trials.trial_key(device, key, repr((hints, turn, are_cold)), precision)
        known = known_decision(kept, (LIBRARY,))
        if known is not None:
            return known.seconds[0]
        if trials.why_not_now():
            return None
        with torch_compat.without_modes(), torch.no_grad():
            try:
                sets = self._sets(call, layouts, count)
            except (KeyError, RuntimeError):  # A size is not known yet, or memory does not suffice.
                return None
            if call.out_operator:
                function = _operator(call.out_operator)
                keywords = {"out": _tensor(call.outputs[0].layout, hints)}
            else:
                function, keywords = _operator(call.operator), {}
            run = trials.in_turn([partial(function, *tensors, **keywords) for tensors in sets])
            with trials.TRYING:
                times = self.tuner.time([run], device)
        decision = trials.decided(times)
        keep_decision(kept, (LIBRARY,), decision)
        return decision.seconds[0]

    def _are_inputs(self, call: CallOperator) -> list[bool]:
        """Which arguments are inputs of the program."""
        return [getattr(operand, "name", "") in self.tuner.inputs for operand in call.arguments]

    def _set_count(
        self, call: CallOperator, layouts: Sequence[Layout], device: torch.device
    ) -> tuple[int, bool]:
        """How many sets of arguments a library call goes through, and whether they are cold."""
        hints = self.tuner.hints
        sizes = [layout.dtype.bytes * span_of(layout, hints) for layout in layouts]
        of_inputs = sum(compress(sizes, self._are_inputs(call)))
        count = trials.cold_sets(device, of_inputs, self.tuner.most_bytes - sum(sizes))
        return count, trials.are_cold(device, of_inputs, count)

    def _sets(
        self, call: CallOperator, layouts: Sequence[Layout], count: int
    ) -> list[list[torch.Tensor]]:
        """The arguments of a library call, and others that differ in inputs of the program, as a
        group's are (`RandomArguments.sets`).
        """
        hints = self.tuner.hints
        first = [_tensor(layout, hints) for layout in layouts]
        are_inputs = self._are_inputs(call)
        return [first] + [
            [
                _tensor(layout, hints) if own else tensor
                for layout, own, tensor in zip(layouts, are_inputs, first, strict=True)
            ]
            for _ in range(count - 1)
        ]


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
