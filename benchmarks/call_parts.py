"""Where the time of a call goes: generated modules, run with a clock after each statement."""

from __future__ import annotations

import ast
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median

from fusewright import pipeline
from fusewright.runtime.loader import LoadedModule, load_module

PARTS = ("arguments", "memory", "views", "launches", "layouts", "library calls", "return")
"""What the statements of a generated module are for, as `part_of` tells."""

VIEWS = ("runtime.reinterpret", "torch.as_strided")
LEDGER = "ledger"


class Ledger:
    """Nanoseconds by part, with how many statements were timed."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.statements: Counter[str] = Counter()

    def note(self, part: str, nanoseconds: int) -> None:
        """Called by a timed module after each of its statements."""
        self.spent[part] += nanoseconds
        self.statements[part] += 1

    def microseconds(self, calls: int, clock: float) -> dict[str, float]:
        """By part, of one call, without the `clock` nanoseconds that a measurement takes itself."""
        return {
            part: max(0.0, self.spent[part] - clock * self.statements[part]) / calls / 1e3
            for part in PARTS
        }


def parts_of_a_call(make: Callable[[], Callable[[], object]], rounds: int) -> dict[str, float]:
    """Microseconds by part that generated code takes in a call of what `make` compiles: the median
    of `rounds`.
    """
    ledger = Ledger()
    clock = _clock_nanoseconds()
    found = []
    with _modules_timed_by(ledger):
        call = make()
        call()
        call()
        for _ in range(rounds):
            ledger.spent.clear()
            ledger.statements.clear()
            call()
            found.append(ledger.microseconds(1, clock))
    return {part: median(one[part] for one in found) for part in PARTS}


def timed(text: str) -> str:
    """A generated module's text with a clock after each statement of `call`.

    before                           after
    ------                           -----
    z = torch.mm(view(x), y)         v0 = view(x)
                                     (note the time as that of views)
                                     z = torch.mm(v0, y)
                                     (note the time as that of library calls)
    """
    module = ast.parse(text)
    kernels = _kernel_names(module)
    (function,) = (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "call")
    body: list[ast.stmt] = _statements("then = clock()")
    for statement in _without_nested_views(function.body):
        part = part_of(statement, kernels)
        if isinstance(statement, ast.Return):
            assert statement.value is not None
            body += _statements(f"returned = {ast.unparse(statement.value)}")
        else:
            body.append(statement)
        body += _statements(f"note({part!r}, clock() - then); then = clock()")
    function.body = [*body, *_statements("return returned")]
    head = ["from time import perf_counter_ns as clock", "from fusewright.runtime import generated"]
    head += [f"note = generated.constant(globals(), {LEDGER!r}).note"]
    return "\n".join([*head, ast.unparse(ast.fix_missing_locations(module))])


def part_of(statement: ast.stmt, kernels: frozenset[str]) -> str:
    """Which of `PARTS` a statement of a generated module belongs to."""
    match statement:
        case ast.Return():
            return "return"
        case ast.Delete():
            return "memory"
        case ast.Assert():
            return "arguments"
        case ast.Assign(value=ast.Name(id="inputs")):
            return "arguments"
        case ast.Assign(value=ast.Name()):
            return "memory"  # Another name for memory that is used again.
        case ast.Assign(value=ast.Call() as call) | ast.Expr(value=ast.Call() as call):
            return _part_of_call(ast.unparse(call.func), kernels)
        case _:
            raise ValueError(f"no part of a call: {ast.unparse(statement)}")


def _part_of_call(function: str, kernels: frozenset[str]) -> str:
    if function in kernels:
        return "launches"
    if function in VIEWS:
        return "views"
    known = {
        "empty_strided": "memory",
        "inputs.clear": "arguments",
        "runtime.with_layout": "layouts",
    }
    return known.get(function, "library calls")


def _kernel_names(module: ast.Module) -> frozenset[str]:
    """The names that a generated module gives its kernels."""
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Call(func=function)):
                if ast.unparse(function) == "runtime.load_kernels":
                    return frozenset(ast.unparse(name) for name in names)
    return frozenset()


def _without_nested_views(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with views that are made among arguments as statements of their own."""
    hoist = _HoistViews()
    for statement in body:
        if isinstance(statement, ast.Assign) and _is_view(statement.value):
            yield statement
            continue
        without = hoist.visit(statement)
        yield from hoist.made
        hoist.made = []
        yield without


class _HoistViews(ast.NodeTransformer):
    """Replaces each view by a name, and keeps the statements that define the names."""

    def __init__(self) -> None:
        self.count = 0
        self.made: list[ast.stmt] = []

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not _is_view(node):
            return node
        name = f"hoisted_{self.count}"
        self.count += 1
        self.made += _statements(f"{name} = {ast.unparse(node)}")
        return ast.Name(id=name, ctx=ast.Load())


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in VIEWS


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _clock_nanoseconds() -> float:
    """What reading the clock adds to each measurement."""
    times = []
    for _ in range(1000):
        start = time.perf_counter_ns()
        times.append(time.perf_counter_ns() - start)
    return median(times)


@contextmanager
def _modules_timed_by(ledger: Ledger) -> Iterator[None]:
    """While it lasts, modules are loaded as `timed` writes them."""

    def load_timed(text: str, constants: Mapping[str, object]) -> LoadedModule:
        return load_module(timed(text), {**constants, LEDGER: ledger})

    before, pipeline.load_module = pipeline.load_module, load_timed
    try:
        yield
    finally:
        pipeline.load_module = before
