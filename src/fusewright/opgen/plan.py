"""Which variant of an operator is made from which: one row an operator, made or refused with a
reason.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping

from fusewright.opgen.declarations import (
    FACTORY_OPTIONS,
    Declarations,
    Group,
    Kind,
    Operator,
    Parameter,
)
from fusewright.opgen.description import Description, Entry
from fusewright.records import record
from fusewright.torch_compat import has_kernel


@record
class Given:
    """The backend's own kernel, registered as it is."""

    operator: Operator
    entry: Entry


@record
class Made:
    """A wrapper around another variant."""

    operator: Operator
    source: Operator
    """The variant that computes: given, or the functional one, made itself."""

    structured: bool = False
    """The source is a structured kernel: a computation without checks."""


@record
class Inherited:
    """An operator with nothing to generate: torch's own kernel does it through the backend's."""

    operator: Operator
    reason: str


@record
class Refused:
    """Cannot be made from what the backend gives; it falls back to the CPU."""

    operator: Operator
    reason: str


Row = Given | Made | Inherited | Refused


SOURCES: Mapping[Kind, tuple[Kind, ...]] = {
    Kind.FUNCTIONAL: (Kind.OUT, Kind.INPLACE, Kind.MUTABLE),
    Kind.INPLACE: (Kind.OUT, Kind.FUNCTIONAL),
    Kind.OUT: (Kind.FUNCTIONAL,),
    Kind.MUTABLE: (Kind.FUNCTIONAL,),
}
"""From what each kind is made, best first: a kernel that writes where it is told saves a copy. A
source is a given kernel, except that the functional variant may have been made itself; hence it is
planned before the others.
"""


@record(slots=False)  # which cached properties need
class Plan:
    """The way in which every variant is made, in the groups that the backend touches."""

    description: Description
    rows: tuple[Row, ...]
    groups: Mapping[str, Group]
    """By operator name; what emitters need to find a row's siblings."""

    @property
    def registered(self) -> tuple[Given | Made, ...]:
        """The rows for which a function is registered."""
        return tuple(row for row in self.rows if isinstance(row, Given | Made))

    @functools.cached_property
    def made(self) -> tuple[Made, ...]:
        """The rows for which a wrapper is written."""
        return tuple(row for row in self.rows if isinstance(row, Made))

    @functools.cached_property
    def given(self) -> tuple[Given, ...]:
        """The rows for which the backend has a kernel."""
        return tuple(row for row in self.rows if isinstance(row, Given))

    @functools.cached_property
    def given_operators(self) -> frozenset[str]:
        """The names of the operators that have a kernel."""
        return frozenset(row.operator.name for row in self.given)

    @functools.cached_property
    def made_operators(self) -> frozenset[str]:
        """The names of the operators for which a wrapper is written."""
        return frozenset(row.operator.name for row in self.made)

    def functional(self, operator: Operator) -> Operator | None:
        """The functional variant of an operator's group."""
        return self.groups[operator.name].members.get(Kind.FUNCTIONAL)

    def totals(self) -> Counter[str]:
        """How many rows there are of each sort, refusals and inheritance by their reason."""
        return Counter(_label(row) for row in self.rows)


def plan(description: Description, declarations: Declarations) -> Plan:
    """Decide on every variant of each group in which the backend has a kernel."""
    groups = {
        group.name: group for group in (declarations.group_of[name] for name in description.entries)
    }
    rows = tuple(row for group in groups.values() for row in _plan_group(group, description))
    by_name = {operator.name: group for group in groups.values() for operator in group}
    return Plan(description, rows, by_name)


def _plan_group(group: Group, description: Description) -> Iterator[Row]:
    """One row a member; the functional variant first, since others may be made from it."""
    rows: dict[Kind, Row] = {}
    for kind, operator in group.members.items():
        rows[kind] = _plan_operator(operator, group, rows, description)
    yield from rows.values()


def _plan_operator(
    operator: Operator, group: Group, rows: Mapping[Kind, Row], description: Description
) -> Row:
    entry = description.entries.get(operator.name)
    if entry is not None and not entry.structured:
        return Given(operator, entry)
    if operator.composite:
        return Inherited(operator, "torch decomposes it")
    if operator.name == "copy_":  # what wrappers copy by
        return Inherited(operator, "torch makes it from _copy_from")
    structured = group.members.get(Kind.OUT)
    if structured is not None:
        out_entry = description.entries.get(structured.name)
        if out_entry is not None and out_entry.structured:
            return Made(operator, structured, structured=True)
    reasons = []
    for kind in SOURCES[operator.kind]:
        source = group.members.get(kind)
        if source is None or not _available(source, rows.get(kind), description):
            continue
        if operator.derived and source.kind is not Kind.OUT:
            return Inherited(operator, f"torch makes it from the {source.kind.value} variant")
        reason = why_not(operator, source, group)
        if reason is None:
            return Made(operator, source)
        reasons.append(reason)
    if operator.universal:
        return Inherited(operator, "torch has a kernel for every device")
    return Refused(operator, reasons[0] if reasons else "no variant that it could be made from")


def _available(source: Operator, row: Row | None, description: Description) -> bool:
    """Whether a variant may serve as a source. One that torch has for every device may not: it may
    be written in terms of the very variant that is to be made.
    """
    if source.name in description.entries:
        return True
    if source.kind is not Kind.FUNCTIONAL:
        return False
    return isinstance(row, Made) or (isinstance(row, Inherited) and source.derived)


def why_not(target: Operator, source: Operator, group: Group) -> str | None:
    """Why `target` cannot be made from `source`, both of `group`; None if it can."""
    if target.is_view or source.is_view:
        return "it is a view: nothing is computed"
    if "inplace_view" in target.tags | source.tags:
        return "it changes the geometry of a tensor in place"
    if missing := missing_arguments(target, source):
        return f"no value for argument {missing[0]}"
    if not all(result.type.is_tensor for result in (*target.results, *source.results)):
        return "it returns values that are not tensors"
    if _count_values(target) != _count_values(source):
        return "the variants return different results"
    if target.kind is Kind.FUNCTIONAL and "dynamic_output_shape" in target.tags:
        return "the size of its result depends on data"
    if needs_geometry(target, source) and not has_kernel(group.name, "Meta"):
        return "torch has no meta function that says what its result is like"
    return None


def needs_geometry(target: Operator, source: Operator) -> bool:
    """Whether a wrapper asks torch what the functional variant would return before it computes."""
    return (target.kind, source.kind) in (
        (Kind.FUNCTIONAL, Kind.OUT),
        (Kind.FUNCTIONAL, Kind.INPLACE),
        (Kind.INPLACE, Kind.OUT),
    )


def _count_values(operator: Operator) -> int:
    """How many tensors an operator computes: new results, and what it writes to."""
    return sum(not result.written for result in operator.results) + len(operator.outputs)


def computes_in_dtype_of_out(operator: Operator, parameter: Parameter) -> bool:
    """Whether a parameter is the dtype to compute in, which sums and the like take from what they
    write to unless it is given.
    """
    return (
        parameter.name == "dtype"
        and parameter.type.is_optional
        and operator.kind in (Kind.INPLACE, Kind.OUT)
        and operator.name != "linalg_vector_norm.out"  # wants the two to be the same
    )


def missing_arguments(target: Operator, source: Operator) -> list[str]:
    """Arguments of `source` for which a caller of `target` gives no value."""
    names = {parameter.name for parameter in target.parameters}
    return [
        parameter.name
        for parameter in source.inputs
        if parameter.name not in names
        and parameter.default is None
        and parameter.name not in FACTORY_OPTIONS
        and not (source.kind is Kind.INPLACE and parameter.name == "self")
    ]


def _label(row: Row) -> str:
    match row:
        case Given():
            return f"{row.operator.kind.value}: given"
        case Made(structured=True):
            return f"{row.operator.kind.value}: made from the structured kernel"
        case Made():
            return f"{row.operator.kind.value}: made from {row.source.kind.value}"
        case Inherited():
            return f"{row.operator.kind.value}: inherited, {row.reason}"
        case Refused():
            return f"{row.operator.kind.value}: refused, {row.reason}"


def describe_all(declarations: Declarations, kind: Kind) -> Description:
    """The description of a backend that has a kernel of one kind in every group where that is
    possible: for surveys and tests.
    """
    operators = (group.members.get(kind) for group in declarations.groups)
    return Description(
        file=str(declarations.file),
        backend="everything",
        dispatch_key="PrivateUse1",
        namespace="everything",
        entries={
            operator.name: Entry(operator, operator.line)
            for operator in operators
            if operator is not None and not operator.composite
        },
    )
