"""Rules of the source tree that no linter knows: forbidden imports, private names, sizes."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

from tests.source_names import dotted_names

SOURCE = Path(__file__).parents[1] / "src" / "fusewright"
FILES = sorted(SOURCE.rglob("*.py"))

MOST_LINES_OF_A_FILE = 700
MOST_LINES_OF_A_FUNCTION = 80

FORBIDDEN = ("torch._dynamo", "torch._functorch", "torch._inductor", "torchgen", "torch.compile")
"""The peer: fusewright neither imports nor calls it."""

DECLARATIONS = "opgen/declarations.py"
"""The one file that may use torchgen: it parses torch's operator declarations, and no more."""

PRIVATE_NAMES_ALLOWED = SOURCE / "torch_compat"
"""The one folder that private torch names may stand in."""


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def is_private(name: str) -> bool:
    """Whether a dotted name goes through a private part of torch."""
    first, *rest = name.split(".")
    return first == "torch" and any(
        part.startswith("_") and not part.startswith("__") for part in rest
    )


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What the rules look at in a file."""

    docstring: str | None
    lines: int
    names: tuple[tuple[int, str], ...]
    """The dotted names that it mentions, with their lines."""

    functions: tuple[tuple[int, int, str], ...]
    """First and last lines of functions, and their names."""


@functools.cache
def contents_of(path: Path) -> Contents:
    """Kept, since each rule asks for it."""
    text = path.read_text()
    tree = ast.parse(text)
    return Contents(
        docstring=ast.get_docstring(tree),
        lines=text.count("\n"),
        names=tuple(dotted_names(tree)),
        functions=tuple(
            (node.lineno, node.end_lineno or node.lineno, node.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    )


def test_the_peer_is_not_used() -> None:
    assert [
        f"{name_of(path)}:{line} {name}"
        for path in FILES
        for line, name in contents_of(path).names
        if any(name == banned or name.startswith(f"{banned}.") for banned in FORBIDDEN)
        and not (name_of(path) == DECLARATIONS and name.startswith("torchgen"))
    ] == []


def test_private_torch_names_stand_in_one_place() -> None:
    assert [
        f"{name_of(path)}:{line} {name}"
        for path in FILES
        if path.parent != PRIVATE_NAMES_ALLOWED
        for line, name in contents_of(path).names
        if is_private(name)
    ] == []


def test_files_stay_small() -> None:
    assert [name_of(p) for p in FILES if contents_of(p).lines > MOST_LINES_OF_A_FILE] == []


def test_functions_stay_small() -> None:
    assert [
        f"{name_of(path)}:{first} {name}"
        for path in FILES
        for first, last, name in contents_of(path).functions
        if last - first >= MOST_LINES_OF_A_FUNCTION
    ] == []


def test_every_file_says_what_it_is_for() -> None:
    assert [name_of(path) for path in FILES if not contents_of(path).docstring] == []


def test_these_rules_find_what_they_forbid() -> None:
    program = ast.parse("from torch import _dynamo\nimport torch\ntorch._C.f()\ntorch.compile(g)\n")
    names = [name for _, name in dotted_names(program)]
    assert "torch._dynamo" in names
    assert "torch.compile" in names
    assert is_private("torch._C.f")
    assert not is_private("torch.Tensor.__torch_function__")
