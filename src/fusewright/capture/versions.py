"""The differences between the versions of one function, so that the last of them can be for
all.

for name in names:              The rest of the function after the break is one resume function,
    x = layers[name](x)         which is given `name`, another one in each round. Each version is
    fusewright.graph_break()    for one; the last breaks the graph before it looks at `name`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from fusewright.capture.guards import Check, GuardKind, GuardSet
from fusewright.capture.sizes import NUMBERS, TEXTS
from fusewright.capture.sources import LocalSource, Source


def varying_values(
    versions: Sequence[GuardSet], locals: dict[str, Any], function: FunctionType
) -> set[Source]:
    """The places of the immutable objects for which the versions do not hold, half of them at
    least.
    """
    failing = (version.failing(locals, function) for version in versions)
    sources = Counter(_value(check, locals) for check in failing if check is not None)
    return {
        source for source, count in sources.items() if source and 2 * count >= len(versions) > 1
    }


def _value(check: Check, locals: dict[str, Any]) -> Source | None:
    """The source that a test compares with a value, or of which it knows a relation."""
    subject = check.subject
    if isinstance(subject, str):
        return None
    if check.kind is GuardKind.EQUALS:
        return subject if type(check.expected) in (*TEXTS, *NUMBERS) else None
    is_number = isinstance(subject, LocalSource) and type(locals.get(subject.name)) in NUMBERS
    return subject if check.kind is GuardKind.SHAPES and is_number else None
