"""Programs with a graph break before each of their statements, made from programs without."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

from fusewright.capture.directives import graph_break

_BREAK = "_break_the_graph"


class _Breaks(ast.NodeTransformer):
    """Puts a break before each statement of the outermost function."""

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        broken: list[ast.stmt] = []
        for statement in statements:
            if not _is_declaration(statement):
                call = ast.Call(ast.Name(_BREAK, ast.Load()), [], [])
                broken.append(ast.copy_location(ast.Expr(call), statement))
            broken.append(self.visit(statement))
        return broken

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list) and statements:
                setattr(node, field, self.block(statements))
        for handler in getattr(node, "handlers", ()):
            handler.body = self.block(handler.body)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    visit_ClassDef = visit_Lambda = visit_FunctionDef  # type: ignore[assignment]


def _is_declaration(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom))


def with_breaks(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a break before each of its statements; it must have no closure."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    definition.body = _Breaks().block(definition.body)
    ast.fix_missing_locations(tree)
    text = ast.unparse(tree)
    name = f"<{function.__name__} with breaks>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    variables = function.__globals__
    variables[_BREAK] = graph_break
    made: dict[str, Any] = {}
    exec(compile(text, name, "exec"), variables, made)
    return made[function.__name__]  # type: ignore[no-any-return]
