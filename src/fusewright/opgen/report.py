"""Variants that were made and that were not, in words: for one backend, and over all of torch's
operators.
"""

from __future__ import annotations

from fusewright.opgen.declarations import Declarations, Kind
from fusewright.opgen.plan import Inherited, Plan, Refused, describe_all, plan


def summary(backend: Plan) -> str:
    """How many kernels became how many operators, and each refusal with its reason."""
    kernels = len(backend.description.entries)
    inherited = sum(isinstance(row, Inherited) for row in backend.rows)
    lines = [
        f"operators: {kernels} with a kernel, {len(backend.made)} made from these, "
        f"{inherited} more by way of torch's own kernels"
    ]
    refused = [row for row in backend.rows if isinstance(row, Refused)]
    lines += [f"  {row.operator.name} falls back to the CPU: {row.reason}" for row in refused]
    return "\n".join(lines)


def survey(declarations: Declarations) -> str:
    """Totals over all declarations, for backends that give one kind of variant wherever it can be
    given.
    """
    operators = declarations.operators.values()
    derived = sum(operator.derived for operator in operators)
    composite = sum(operator.composite for operator in operators)
    lines = [
        f"{len(operators) - derived} operators declared, {derived} more that torch derives",
        f"{composite} of them are composite: torch decomposes them on any device",
        f"{len(declarations.groups)} groups",
    ]
    for kind in Kind:
        backend = plan(describe_all(declarations, kind), declarations)
        lines += ["", f"kernels for every {kind.value} variant:"]
        lines += [f"  {count:5} {label}" for label, count in sorted(backend.totals().items())]
    return "\n".join(lines)
