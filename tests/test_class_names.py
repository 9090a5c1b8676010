"""Each public class has a name of its own, so that a name in code or in a log means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fusewright"

ALLOWED = {
    "Accumulate": "an action of kernels; and itertools.accumulate, written as a class",
}
"""Names that several classes have, and why."""


def public_classes() -> dict[str, list[str]]:
    """The files that define a class, by its name. `opgen` stands apart: it is not imported, and has
    names of torch's declarations.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] == "opgen":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(place))
    return files


def test_names_stand_once() -> None:
    shared = {name: places for name, places in public_classes().items() if len(places) > 1}
    assert {name: places for name, places in shared.items() if name not in ALLOWED} == {}
    assert shared.keys() == ALLOWED.keys(), "no longer shared"
