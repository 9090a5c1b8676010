"""Checks one program: runs it eagerly and compiled, and compares."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final

from fusewright.api import compile
from fusewright.fuzz.comparison import Finding, compare, gravest
from fusewright.fuzz.eager_faults import EagerFaults
from fusewright.fuzz.execution import Outcome, Transform, run, told_fallbacks
from fusewright.fuzz.judge import Judge
from fusewright.fuzz.overlooked_writes import OverlookedWrites
from fusewright.fuzz.program import RandomProgram
from fusewright.fuzz.repeated_writes import RepeatedWrites
from fusewright.records import record
from fusewright.runtime.guard_pages import MemoryFault

NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?|\b(nan|inf|True|False)\b")
_VARIABLE: Final = re.compile(r"\b[a-z]{1,2}\d+\b")


NOTHING_TO_COMPARE: Final = ("to be on the same device", "device-side assert")
"""In messages about programs that were not written for a GPU, and those after which the process can
use it no more.
"""

DOCUMENTED: Final = ("`as_strided` shows memory beyond the elements of an input of the graph",)
"""In messages about code that runs eagerly as docs/differences.md says."""


@record
class CheckResult:
    """The outcome of a program."""

    kind: str
    seed: int
    outcome: str
    """"right", "same exception", "found", or "discarded" where eager itself cannot run it."""

    findings: tuple[Finding, ...] = ()
    signature: str = ""
    """Equal for findings that look like one cause."""

    seconds: float = 0.0

    @property
    def worst(self) -> Finding:
        """The finding of the gravest class."""
        return gravest(list(self.findings))


@record
class Way:
    """How programs are checked."""

    dynamic: bool | None = None
    """Goes before what a program says."""

    device: str = "cpu"

    def transform(self, function: Any, of_program: Any) -> Any:
        """The function compiled. On a GPU too it draws the numbers that eager draws."""
        dynamic = of_program if self.dynamic is None else self.dynamic
        return compile(function, dynamic=dynamic, options={"eager_random": self.device != "cpu"})


ON_CPU: Final = Way()


def check(
    program: RandomProgram,
    transform: Transform | None = None,
    before_compiled: Callable[[], None] = lambda: None,
    way: Way = ON_CPU,
) -> CheckResult:
    """Run a program both ways and compare. It returns for whatever the program does, short of
    ending the process; `before_compiled` is called when eager has got through.
    """
    start = time.perf_counter()
    findings: list[Finding] = []
    outcome = "discarded"
    if "\ndef verify(" in program.source:
        before_compiled()
        return _verified(program, program.load()["verify"], start)
    eager = _eager(program, way.device)
    if eager is not None:
        before_compiled()
        findings = _findings(program, eager, transform or way.transform, way.device)
        raised = any(call.raised for call in eager)
        outcome = "found" if findings else "same exception" if raised else "right"
    seconds = time.perf_counter() - start
    name = signature(program, gravest(findings)) if findings else ""
    return CheckResult(program.kind, program.seed, outcome, tuple(findings), name, seconds)


def _verified(
    program: RandomProgram, verify: Callable[[], str | None], start: float
) -> CheckResult:
    """The verdict of a program's own check."""
    wrong = verify()
    seconds = time.perf_counter() - start
    if wrong is None:
        return CheckResult(program.kind, program.seed, "right", seconds=seconds)
    raised = re.match(r"\w+: (\w+(?:Error|Program|Fault)): ", wrong)
    kind = "wrong_value" if raised is None else "extra_exception"
    if raised is not None and raised[1] == MemoryFault.__name__:
        kind = "crash"
    finding = Finding(kind, 0, "exception" if raised else "result", wrong)
    name = f"{kind}: {NUMBER.sub('#', wrong)[:100]}"
    return CheckResult(program.kind, program.seed, "found", (finding,), name, seconds)


def _eager(program: RandomProgram, device: str) -> list[Outcome] | None:
    """The outcomes of the calls as they are written; None where they tell nothing."""
    repeated, overlooked, faults = RepeatedWrites(), OverlookedWrites(), EagerFaults()
    try:
        with faults, overlooked, nullcontext() if device == "cpu" else repeated:
            outcomes = list(run(program, device=device))
    except Exception:
        return None
    if repeated.met or overlooked.met or faults.met:
        return None
    raised = [outcome.raised for outcome in outcomes if outcome.raised is not None]
    if any(observed.phase == "make" for observed in raised):
        return None
    if any(words in observed.message for observed in raised for words in NOTHING_TO_COMPARE):
        return None
    return outcomes


def _findings(
    program: RandomProgram, eager: list[Outcome], transform: Transform, device: str
) -> list[Finding]:
    with told_fallbacks() as messages:
        try:
            outcomes = list(run(program, transform, device=device))
        except Exception as error:  # Nothing but the compiler can raise it: eager ran through.
            return [Finding("extra_exception", 0, "exception", f"{type(error).__name__}: {error}")]
        fallbacks = [
            Finding("fallback", 0, "fallback", message)
            for message in messages
            if not any(outcome.raised for outcome in eager)
            and not any(reason in message for reason in DOCUMENTED)
        ]
    judge = Judge(program, on_gpu=device != "cpu")
    return [*compare(eager, outcomes, judge), *fallbacks]


def signature(program: RandomProgram, finding: Finding) -> str:
    """The part of a finding that it has in common with others of the same cause: its class, and the
    operator that made what differs, or the words of an exception.
    """
    if finding.path in ("exception", "fallback"):
        text = finding.detail
        if finding.kind == "fallback":
            stage = re.search(r"stage .*", text, re.DOTALL)
            text = stage[0] if stage else text.partition("\n")[2]
        text = _VARIABLE.sub("v", NUMBER.sub("#", text))
        return f"{finding.kind}: {' '.join(text.split())[:150]}"
    if finding.detail.startswith("eager ") and finding.kind != "strides":
        text = f"{re.split(r'[.[]', finding.path)[0]}: {finding.detail}"
        return f"{finding.kind}: {NUMBER.sub('#', text)[:80]}"
    return f"{finding.kind}: {finding.path.split('[')[0]} {_operator(program, finding.path)}"


def _operator(program: RandomProgram, path: str) -> str:
    """The operator that computed a result, where the program is straight-line code; else the names
    of some that the function calls.
    """
    functions = {
        node.name: node
        for node in ast.walk(ast.parse(program.source))
        if isinstance(node, ast.FunctionDef)
    }
    function = functions.get("f") or functions.get("drive")
    if function is None:
        return ""
    position = re.match(r"result\[(\d+)\]", path)
    last = function.body[-1]
    if position and isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple):
        results = last.value.elts
        at = int(position[1])
        return _name(results[at], function) if at < len(results) else ""
    names = {_name(node, function) for node in ast.walk(function) if isinstance(node, ast.Call)}
    return " ".join(sorted(names)[:3])


def _name(value: ast.expr, function: ast.FunctionDef) -> str:
    """The name of the operation that an expression does last."""
    match value:
        case ast.Name(id=variable):
            values = [
                node.value
                for node in function.body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == variable
            ]
            return _name(values[-1], function) if values else "argument"
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
        case ast.BinOp(op=operator) | ast.UnaryOp(op=operator):
            return type(operator).__name__
        case _:
            return type(value).__name__
