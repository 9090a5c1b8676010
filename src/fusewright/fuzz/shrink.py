"""Makes a program smaller that shows a finding, by rewriting its text while the finding stays.

Each rewriting is a function from a syntax tree to smaller trees, the boldest first. The first one
of which the finding is of the same class replaces the program, and all begins again, until nothing
smaller shows it or time is up.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from fusewright.fuzz.checking import CheckResult
from fusewright.fuzz.inputs import LAYOUTS
from fusewright.fuzz.program import ENDING, RandomProgram

Tree = ast.Module
Check = Callable[[RandomProgram], CheckResult]

_BODIES: Final = ("body", "orelse", "finalbody")
_KEPT: Final = frozenset({"CALLS", "MODE", "DYNAMIC", "STATE"})
"""Assignments that tell how a program is run."""


def shrink(
    program: RandomProgram,
    verdict: CheckResult,
    check: Check,
    seconds: float,
    progress: Callable[[RandomProgram, CheckResult], None] = lambda program, verdict: None,
) -> tuple[RandomProgram, CheckResult]:
    """The smallest program found in that time, and its verdict; `progress` is told each one."""
    search = _Search(program, verdict, check, time.monotonic() + seconds, progress)
    while sum(search.apply(rewriting) for rewriting in REWRITINGS):
        pass
    return search.program, search.verdict


class _Search:
    """The smallest program so far."""

    def __init__(
        self,
        program: RandomProgram,
        verdict: CheckResult,
        check: Check,
        end: float,
        progress: Callable[[RandomProgram, CheckResult], None],
    ) -> None:
        self.program, self.verdict = program, verdict
        self._wanted = verdict
        self._check, self._end, self._progress = check, end, progress
        self._tried = {program.source}

    def apply(self, rewriting: Rewriting) -> bool:
        """Whether a rewriting made it smaller. After a success, it goes on from where it stands."""
        position, is_of_use, more = 0, False, True
        while more:
            more = False
            trees = rewriting(_without_end(self.program.source))
            for tree in itertools.islice(trees, position, None):
                if time.monotonic() > self._end:
                    return False
                if self._holds(ast.unparse(ast.fix_missing_locations(tree)) + ENDING):
                    is_of_use = more = True
                    break
                position += 1
        return is_of_use

    def _holds(self, source: str) -> bool:
        if source in self._tried:
            return False
        self._tried.add(source)
        smaller = self.program.with_source(source)
        answer = self._check(smaller)
        if not _same_finding(self._wanted, answer):
            return False
        self.program, self.verdict = smaller, answer
        self._progress(smaller, answer)
        return True


def _without_end(source: str) -> Tree:
    """The syntax tree, without the statement that runs a program as a file."""
    tree = ast.parse(source)
    match tree.body[-1]:
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            tree.body.pop()
    return tree


def _same_finding(wanted: CheckResult, answer: CheckResult) -> bool:
    """Whether another program shows what one did: the class, and of an exception the words too."""
    if answer.outcome != "found" or answer.worst.kind != wanted.worst.kind:
        return False
    if wanted.worst.path in ("exception", "fallback"):
        return answer.signature == wanted.signature
    return True


Rewriting = Callable[[Tree], Iterator[Tree]]


def _edited(tree: Tree, edit: Callable[[Tree], None]) -> Tree:
    changed = copy.deepcopy(tree)
    edit(changed)
    return changed


def _bodies(tree: ast.AST) -> list[tuple[ast.AST, str]]:
    """Where statements stand: nodes and the names of their lists."""
    return [
        (node, name)
        for node in ast.walk(tree)
        for name in _BODIES
        if isinstance(getattr(node, name, None), list)
    ]


def _can_go(statement: ast.stmt) -> bool:
    """Whether the program may do without a statement: its frame has to stay."""
    match statement:
        case ast.Return() | ast.Import() | ast.ImportFrom():
            return False
        case ast.FunctionDef(name=name):
            return name not in ("f", "make", "drive")
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name not in _KEPT
        case _:
            return True


def fewer_calls(tree: Tree) -> Iterator[Tree]:
    """Programs with each call alone, then without each call."""
    for number, statement in enumerate(tree.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id="CALLS")], value=ast.List(elts=calls)):
                pass
            case _:
                continue
        if len(calls) < 2:
            return

        def keep(chosen: list[ast.expr], place: int = number) -> Tree:
            return _edited(tree, lambda copied: setattr(copied.body[place].value, "elts", chosen))  # type: ignore[attr-defined]

        yield from (keep([call]) for call in calls)
        yield from (keep(calls[:at] + calls[at + 1 :]) for at in range(len(calls)))


def fewer_statements(tree: Tree) -> Iterator[Tree]:
    """Programs without half of the statements of a block, a quarter, ... and without each one."""
    for place in range(len(_bodies(tree))):
        node, name = _bodies(tree)[place]
        statements: list[ast.stmt] = getattr(node, name)
        width = max(1, len(statements) // 2)
        while width:
            for start in range(0, len(statements), width):
                dropped = [s for s in statements[start : start + width] if _can_go(s)]
                if not dropped:
                    continue
                kept = [s for s in statements if s not in dropped]
                if not kept and name == "body" and not isinstance(node, ast.Module):
                    kept = [ast.Pass()]
                    if isinstance(statements[0], ast.Pass):
                        continue
                yield _with_body(tree, place, kept)
            width //= 2


def _with_body(tree: Tree, place: int, statements: list[ast.stmt]) -> Tree:
    changed = copy.deepcopy(tree)
    node, name = _bodies(changed)[place]
    setattr(node, name, copy.deepcopy(statements))
    return changed


def unwrapped_blocks(tree: Tree) -> Iterator[Tree]:
    """The body of an `if`, a loop, a `with` or a `try` in its place."""
    for place, (node, name) in enumerate(_bodies(tree)):
        statements: list[ast.stmt] = getattr(node, name)
        for at, statement in enumerate(statements):
            if isinstance(statement, ast.FunctionDef | ast.ClassDef) or not _can_go(statement):
                continue
            for inner in _BODIES:
                lines = getattr(statement, inner, None)
                if lines:
                    yield _with_body(tree, place, statements[:at] + lines + statements[at + 1 :])


def shorter_variables(tree: Tree) -> Iterator[Tree]:
    """Programs without an assignment, its variable replaced by one that its right side mentions."""
    for place, (node, name) in enumerate(_bodies(tree)):
        statements: list[ast.stmt] = getattr(node, name)
        for at, statement in enumerate(statements):
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if _can_go(statement):
                    sources = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
                case _:
                    continue
            for source in sorted(s for s in sources if re.fullmatch(r"[a-z]+\d+\w*", s)):
                if source != target:
                    changed = _with_body(tree, place, statements[:at] + statements[at + 1 :])
                    yield _renamed(changed, target, source)


def _renamed(tree: Tree, old: str, new: str) -> Tree:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
    return tree


def fewer_elements(tree: Tree) -> Iterator[Tree]:
    """Programs without one element of a tuple or list, argument, operand or keyword."""
    places = [
        (number, name)
        for number, node in enumerate(ast.walk(tree))
        for name in ("elts", "keywords", "values", "defaults", "decorator_list", "args")
        if isinstance(getattr(node, name, None), list)
        and not isinstance(node, ast.arguments)
        and not isinstance(node, ast.Dict)
    ]
    for number, name in places:
        node = _node(tree, number)
        least = 1 if isinstance(node, ast.Tuple) else 2 if isinstance(node, ast.BoolOp) else 0
        parts = getattr(node, name)
        for at in range(len(parts) if len(parts) > least else 0):
            yield _edited(tree, functools.partial(_drop_part, number=number, name=name, at=at))


def _drop_part(tree: Tree, *, number: int, name: str, at: int) -> None:
    getattr(_node(tree, number), name).pop(at)


def _node(tree: Tree, number: int) -> Any:
    return next(node for at, node in enumerate(ast.walk(tree)) if at == number)


def fewer_inputs(tree: Tree) -> Iterator[Tree]:
    """Programs without a parameter of f that f does not mention, and what `make` makes for it."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "f" not in functions or "make" not in functions:
        return
    names = [parameter.arg for parameter in functions["f"].args.args]
    for name in names:
        body = ast.Module(functions["f"].body, [])
        if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(body)):
            continue
        if len(names) > 1:
            yield _edited(tree, functools.partial(_drop_input, name=name))


def _drop_input(tree: Tree, *, name: str) -> None:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name="f"):
                node.args.args = [argument for argument in node.args.args if argument.arg != name]
            case ast.FunctionDef(name="make", body=[*_, ast.Return(value=ast.List() as tensors)]):
                tensors.elts = [
                    n for n in tensors.elts if not (isinstance(n, ast.Name) and n.id == name)
                ]


def simpler_expressions(tree: Tree) -> Iterator[Tree]:
    """A part of an expression in its place."""
    for field_number, node in enumerate(list(ast.walk(tree))):
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for at, expression in enumerate(values):
                if isinstance(expression, ast.Call | ast.BinOp | ast.IfExp | ast.Subscript):
                    for part in _parts(expression):
                        yield _replaced(tree, field_number, name, at, part)


def _parts(expression: ast.expr) -> Iterator[ast.expr]:
    match expression:
        case ast.Call(func=ast.Attribute(value=owner), args=arguments):
            yield from ([owner] if not _is_library(owner) else [])
            yield from arguments
        case ast.Call(args=arguments):
            yield from arguments
        case ast.BinOp(left=left, right=right):
            yield from (left, right)
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.Subscript(value=owner):
            yield owner


def _is_library(owner: ast.expr) -> bool:
    return (isinstance(owner, ast.Name) and owner.id in ("torch", "F", "nn", "math")) or (
        isinstance(owner, ast.Attribute) and _is_library(owner.value)
    )


def _replaced(tree: Tree, number: int, name: str, at: int, part: ast.expr) -> Tree:
    def edit(copied: Tree) -> None:
        node = _node(copied, number)
        if isinstance(getattr(node, name), list):
            getattr(node, name)[at] = copy.deepcopy(part)
        else:
            setattr(node, name, copy.deepcopy(part))

    return _edited(tree, edit)


def simpler_constants(tree: Tree) -> Iterator[Tree]:
    """Smaller numbers, the usual mode, plain values and layouts of inputs."""
    simpler: dict[str, tuple[str, ...]] = {
        "special": ("normal",),
        "positive": ("normal",),
        "constant": ("normal",),
        "grad": ("plain",),
        "no_grad": ("plain",),
        "inference": ("plain",),
        **dict.fromkeys(LAYOUTS[1:], ("contiguous",)),
    }
    for number, node in enumerate(ast.walk(tree)):
        if not isinstance(node, ast.Constant):
            continue
        value = node.value
        options: tuple[Any, ...] = ()
        if isinstance(value, str):
            options = simpler.get(value, ())
        elif isinstance(value, bool):
            options = (False,) if value else ()
        elif isinstance(value, int):
            options = tuple(n for n in (0, 1, 2, value // 2, value - 1) if 0 <= n < value)
        for option in options:
            yield _edited(tree, functools.partial(_set_constant, number=number, value=option))


def _set_constant(tree: Tree, *, number: int, value: Any) -> None:
    _node(tree, number).value = value


REWRITINGS: Final[tuple[Rewriting, ...]] = (
    fewer_calls,
    fewer_statements,
    shorter_variables,
    fewer_elements,
    fewer_inputs,
    unwrapped_blocks,
    simpler_expressions,
    simpler_constants,
)
