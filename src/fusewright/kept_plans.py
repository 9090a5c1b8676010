"""Plans of graphs that processes keep on disk for later ones, by the key of the graph.

A file holds rows of records (`ir.stored`), from which the emitters make code anew: nothing in it is
executed. Lines of the user's program stand in it as the numbers that the key of the graph gives
them, so that it holds for the same program at another place. Beside them lie, by the place in the
program where graphs begin, the keys of those that were kept last, so that a miss can say what
differs.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from fusewright.aot import AtenGraph
from fusewright.context import CompileContext, Note
from fusewright.errors import Location
from fusewright.graph_key import GraphKey, NotKept, differences, key_of
from fusewright.ir.group import Schedule
from fusewright.ir.origin import Origin
from fusewright.ir.stored import MalformedRows, NotStored, RecordStorage, RowForm, records_of
from fusewright.logs import logger_of
from fusewright.plans import Plan
from fusewright.records import record, replace
from fusewright.runtime import calling, choices, compiled
from fusewright.runtime.compiled import Record
from fusewright.runtime.kept_files import KeptFiles
from fusewright.runtime.memory_checks import MemoryChecks
from fusewright.symbolic.facts import Assumption
from fusewright.symbolic.real import Real
from fusewright.symbolic.relations import RealRelation
from fusewright.wrapper import emit_module

PLANS: Final = KeptFiles("plans", ".plan")

KEYS: Final = KeptFiles("plan_keys", ".json")
"""Parts of keys, by a digest of where graphs begin."""

REMEMBERED: Final = 8
"""How many keys of graphs that begin at one place are remembered."""

CHANNELS: Final = ("aten", "loops", "kernels", "wrapper")
"""Logs of what the stages make: where one is read, they run."""

KEPT_FACTS: Final = (
    "kernels",
    "lines",
    "launches",
    "extern_calls",
    "peak_bytes",
    "least_bytes",
    "unrecorded_because",
    "notes",
    "choices",
)
"""The fields of a record of stages that are kept as they are."""

PLAN_FIELDS: Final = ("name", "order", "hints", "devices", "written")
"""The fields of a plan that are kept, beside its lines, which its record holds."""

FOUND: Final = "an earlier process has kept it"
"""The outcome of a search that has found a plan."""


@record(kw_only=True)
class KeptPlan:
    """A plan that was kept, and what is told of it."""

    plan: Plan
    record: Record
    """Its record, and those of its blocks, without what each compile has of its own."""

    assumptions: tuple[Assumption, ...]
    """What the stages took sizes that vary to be."""

    def record_of(self, context: CompileContext, in_python_because: str) -> Record:
        """The record of a compile that found it, whose notes are all those of the context."""
        began = context.began
        return replace(
            self.record,
            timings=dict(context.timings),
            began=began,
            in_python_because=in_python_because,
            notes=tuple(context.notes),
            subprograms=tuple(replace(block, began=began) for block in self.record.subprograms),
        )


@record(kw_only=True)
class Search:
    """Where the plan of a graph is, or will be, kept."""

    kept: KeptPlan | None = None
    key: GraphKey | None = None
    """None: it is not kept."""

    outcome: str
    """What `explain` says: that it was found, why it was not, or why it is not looked for."""

    notes_before: int = 0
    """How many notes there were ahead of the stages."""

    assumptions_before: int = 0
    """How many assumptions about sizes there were."""


@cache
def _storage() -> RecordStorage:
    records = records_of(calling, choices, compiled)
    others = (Assumption, Location, Note, Real, RealRelation)
    return RecordStorage({**records, **{cls.__name__: cls for cls in others}})


def _line_forms(locations: Sequence[Location]) -> Mapping[type, RowForm]:
    """Rows of what names a line of the user's program, which hold its number among `locations`."""
    numbers = {location: number for number, location in enumerate(locations)}
    texts = {str(location): number for location, number in numbers.items()}

    def number_of(line: Location | str) -> int | None:
        if not line or line == Location("", 0):
            return None
        number = texts.get(line) if isinstance(line, str) else numbers.get(line)
        if number is None:
            raise NotStored(f"a line that the graph does not come from: {line}")
        return number

    def location(number: int | None) -> Location:
        return Location("", 0) if number is None else locations[number]

    def origin(operator: str, number: int | None, module_path: str) -> Origin:
        line = location(number)
        return Origin(operator, line.file, line.line, line.text, module_path)

    def note(kind: str, message: str, number: int | None) -> Note:
        return Note(kind, message, "" if number is None else str(locations[number]))

    return {
        Location: RowForm(lambda item: [number_of(item)], location),
        Origin: RowForm(
            lambda item: (
                item.operator,
                number_of(Location(item.file, item.line, item.text)),
                item.module_path,
            ),
            origin,
        ),
        Note: RowForm(lambda item: (item.kind, item.message, number_of(item.location)), note),
    }


def look_up(graph: AtenGraph, context: CompileContext, *, half: str, has_language: bool) -> Search:
    """The plan of a graph, if an earlier process has kept it. `half`: as in `key_of`.
    `has_language`: its kernels are written in a language that a program brought along.
    """
    reason = _why_not_kept(context, has_language)
    if reason is not None:
        return Search(outcome=reason)
    with context.stage("key"):
        return _search(graph, context, half)


def _search(graph: AtenGraph, context: CompileContext, half: str) -> Search:
    try:
        key = key_of(graph, context, half=half)
    except NotKept as reason_in_graph:
        return Search(outcome=f"not kept: {reason_in_graph}")
    assumptions_before = 0 if key.facts is None else len(key.facts.assumptions)
    content = PLANS.read(key.digest)
    kept = None
    try:
        if content is None:
            outcome = f"new: {_why_missing(key)}"
        else:
            kept, outcome = _read(content, key), FOUND
    except MalformedRows as error:  # Made anew, and written over.
        outcome = f"new: the kept one is damaged: {error}"
    if kept is not None and key.facts is not None:
        key.facts.assume_again(kept.assumptions)
    return Search(
        kept=kept,
        key=key,
        outcome=outcome,
        notes_before=len(context.notes),
        assumptions_before=assumptions_before,
    )


def _why_not_kept(context: CompileContext, has_language: bool) -> str | None:
    """Why plans are not kept under these options, whatever the graph; empty where the user does not
    want any.
    """
    options = context.options
    if not options.graph_cache or options.verify:
        return ""
    if has_language or context.fused_backend is not None:
        return "not kept: a backend of the program's own has a part in it"
    if any(logger_of(channel).isEnabledFor(logging.DEBUG) for channel in CHANNELS):
        return "not kept: what the stages make is logged"
    if MemoryChecks.chosen() != MemoryChecks():
        return "not kept: checks of memory are on, which tell of a kernel's loops"
    for name, is_on in (
        ("tune", options.tune),
        ("multi_kernel_table", bool(options.multi_kernel_table)),
    ):
        if is_on:
            return f"not kept under the option {name}"
    return None


def keep(search: Search, plan: Plan, compiled_record: Record) -> str:
    """Keep a plan for later processes; what `explain` says of it."""
    if search.key is None:
        return search.outcome
    own = replace(compiled_record, notes=compiled_record.notes[search.notes_before :])
    records = (own, *own.subprograms)
    if any(not choice.decisions for record in records for choice in record.choices):
        return "not kept: measuring has yet to choose among kernels"
    facts = tuple({name: getattr(record, name) for name in KEPT_FACTS} for record in records)
    assumed: tuple[Assumption, ...] = ()
    if search.key.facts is not None:
        assumed = tuple(search.key.facts.assumptions[search.assumptions_before :])
    of_plan = {name: getattr(plan, name) for name in PLAN_FIELDS}
    content = (of_plan, facts, assumed)
    forms = _line_forms(search.key.locations)
    try:
        head = zlib.compress(_storage().text(content, forms).encode(), 1)
        schedules = tuple(record.schedule for record in records)
        rest = zlib.compress(_storage().text(schedules, forms).encode(), 1)
    except NotStored as reason:
        return f"not kept: it holds {reason}"
    PLANS.write(search.key.digest, len(head).to_bytes(8, "little") + head + rest)
    _remember(search.key, search.outcome)
    return search.outcome


def _read(content: bytes, key: GraphKey) -> KeptPlan:
    """The plan in a file, for the graph of this key. MalformedRows: it holds none."""
    forms = _line_forms(key.locations)
    length = int.from_bytes(content[:8], "little")
    head, rest = content[8 : 8 + length], content[8 + length :]
    try:
        text = zlib.decompress(head)
        of_plan, facts, assumed = _storage().read(text, forms)
    except (zlib.error, TypeError, ValueError) as error:
        raise MalformedRows(str(error)) from error

    @cache
    def schedules() -> tuple[Schedule, ...]:
        read: tuple[Schedule, ...] = _storage().read(zlib.decompress(rest), forms)
        return read

    def schedule_of(number: int) -> Schedule:
        return schedules()[number]

    own, *blocks = (
        Record(
            **each,
            scheduled=partial(schedule_of, number),
            timings={},
            began=0.0,
            in_python_because="",
        )
        for number, each in enumerate(facts)
    )
    emitted = emit_module(of_plan["name"], own.lines)
    return KeptPlan(
        plan=Plan(**of_plan, lines=own.lines, emitted=emitted),
        record=replace(own, subprograms=tuple(blocks), kept=FOUND),
        assumptions=assumed,
    )


# -- Why a plan is missing -------------------------------------------------------------------------


def _remembered(program: str, *, is_use: bool = True) -> dict[str, Any]:
    """The `keys` of graphs that begin at one place, the newest last; that `place`; and the
    `outcome` of the search for the newest. Another version may have written another form.
    """
    content = KEYS.read(program, is_use=is_use)
    told: Any = None if content is None else json.loads(content)
    if isinstance(told, dict) and told.keys() == {"keys", "place", "outcome"}:
        return told
    return {"keys": [], "place": "", "outcome": ""}


def _remember(key: GraphKey, outcome: str) -> None:
    others = [parts for parts in _remembered(key.program)["keys"] if parts != key.parts]
    keys = [*others, dict(key.parts)][-REMEMBERED:]
    told = {"place": key.place, "outcome": outcome, "keys": keys}
    KEYS.write(key.program, json.dumps(told, separators=(",", ":")).encode())


def last_misses(count: int) -> list[tuple[str, str]]:
    """The graphs whose plans were made and kept last, newest first: where each begins, and why an
    earlier plan did not do.
    """
    told = [_remembered(program, is_use=False) for program in KEYS.by_age()[-count:][::-1]]
    return [(entry["place"], entry["outcome"]) for entry in told if entry["keys"]]


def _why_missing(key: GraphKey) -> str:
    """What differs from the nearest kept graph of the same place."""
    several = [differences(key, parts) for parts in reversed(_remembered(key.program)["keys"])]
    if not several:
        return "no graph that begins here was kept"
    nearest = min(several, key=len)
    if not nearest:
        return "it was removed, to make room"
    return f"the nearest that was kept differs in {', '.join(nearest)}"
