"""The dotted names that a Python program mentions."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def dotted_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every dotted name that the program imports or mentions, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute) and (name := dotted(node)):
            yield node.lineno, name


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` for an attribute access of that form."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return None
