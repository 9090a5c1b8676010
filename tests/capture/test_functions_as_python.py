"""The Python text of the functions that run in place of captured ones: run in place of their
bytecode, it computes the same. How it reads is in the golden cases of tests/inspect.
"""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch

from fusewright import api
from fusewright.capture import Capture, frame_capture
from fusewright.capture.bytecode import Instruction, assemble, disassemble
from fusewright.capture.bytecode.as_python import as_python, function_name
from fusewright.capture.bytecode.versions import VERSION
from fusewright.capture.directives import graph_break
from fusewright.records import replace
from tests.capture.agreement import assert_same

pytestmark = [
    pytest.mark.dynamic(None),
    pytest.mark.skipif(
        VERSION.null_above_callable, reason="texts are put into code of 3.11 and 3.12"
    ),
]

X = torch.arange(6.0).reshape(2, 3) - 2
COUNTS = {"calls": 0}
NAMES: list[str] = []


class Record:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Record and assert_same(self.value, other.value) is None

    __hash__ = None  # type: ignore[assignment]


def results_of_every_kind(x: torch.Tensor) -> Any:
    y = x * 2
    record = Record(y)
    record.rows = [y.sum(), (1, "two", None, -3.5), {"x": x, 4: y}]  # type: ignore[attr-defined]
    return record.rows, {"a", "b"}, frozenset({1}), [[], {}], slice(1, 2), y[:1]  # type: ignore


def one_object_twice(x: torch.Tensor) -> Any:
    rows = [x + 1]
    return rows, rows, {"rows": rows}


def a_cycle(x: torch.Tensor) -> Any:
    rows: list[Any] = [x.exp()]
    rows.append(rows)
    return rows[1][1][0], len(rows)


def changes_what_was_there(x: torch.Tensor) -> Any:
    COUNTS["calls"] += 1
    NAMES.append(f"call {COUNTS['calls']}")
    NAMES[:] = NAMES[-2:]
    return x - 1, COUNTS["calls"], list(NAMES)


def signature(x: torch.Tensor, /, *rest: Any, scale: float = 2.0, **more: Any) -> Any:
    return x * scale, rest, more


def breaks_in_a_loop(x: torch.Tensor) -> Any:
    for number in range(3):
        x = x + number
        graph_break()
        x = x.cos()
    return x


def branches_on_data(x: torch.Tensor) -> Any:
    if x.sum() > 100:
        return x
    while x.sum() < 10:
        x = x + 1
    return x, bool(x.max() > 2) and "large"


def handles_what_a_break_raises(x: torch.Tensor) -> Any:
    try:
        y = x * 3
        int.from_bytes(open("/nowhere/to/be/found", "rb").read())  # noqa: SIM115
        return y
    except OSError as error:
        return x + 1, str(error)
    finally:
        x = x + 2


def operands_before_a_break(x: torch.Tensor) -> Any:
    return [x + 1, x.sum().item(), x - 1]


PROGRAMS: list[Callable[..., Any]] = [
    results_of_every_kind,
    one_object_twice,
    a_cycle,
    changes_what_was_there,
    signature,
    breaks_in_a_loop,
    branches_on_data,
    handles_what_a_break_raises,
    operands_before_a_break,
]


def function_of_text(function: FunctionType, captured: CodeType) -> FunctionType:
    """The function that the text of `function` defines. What it names stands in its code, since the
    hook runs it with the variables of the captured function.
    """
    python = as_python(function.__code__, captured)
    variables: dict[str, Any] = {}
    exec(compile(python.text, "<text>", "exec"), variables)
    (name,) = re.findall(r"^def (\w+)", python.text)
    objects = objects_by_name(python.constants, function.__globals__)
    unit = disassemble(variables[name].__code__)
    instructions = list(unit.instructions)
    for place, instruction in reversed([*enumerate(instructions)]):
        if instruction.name in ("LOAD_GLOBAL", "LOAD_GLOBAL_NULL"):
            if instruction.argument not in objects:
                continue
            load = Instruction(
                "LOAD_CONST", objects[instruction.argument], region=instruction.region
            )
            if instruction.name == "LOAD_GLOBAL":
                instruction.name, instruction.argument = load.name, load.argument
                continue
            assert not VERSION.null_above_callable, "not written for this version of Python"
            instruction.name, instruction.argument = "PUSH_NULL", None
            instructions.insert(place + 1, load)
    count = unit.parameter_count
    own = dict(zip(unit.local_names[:count], function.__code__.co_varnames[:count], strict=True))
    for instruction in instructions:
        if instruction.name.endswith("_FAST"):
            instruction.argument = own.get(instruction.argument, instruction.argument)
    names = tuple(own.get(name, name) for name in unit.local_names)
    code = assemble(replace(unit, instructions=instructions, local_names=names))
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__)


def objects_by_name(constants: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
    """What the first part of each name stands for."""
    objects: dict[str, Any] = {}
    for name, value in constants.items():
        owner, dot, attribute = name.rpartition(".")
        if isinstance(value, CodeType):
            objects[name] = FunctionType(value, variables)
        elif not dot:
            objects[name] = value
        elif not hasattr(builtins, owner) and owner not in constants:
            setattr(objects.setdefault(owner, SimpleNamespace()), attribute, value)
    return objects


@contextlib.contextmanager
def running_texts() -> Iterator[list[str]]:
    """Functions that capture writes run as their texts say; the names of these."""
    names: list[str] = []
    finish = Capture.finish

    def finish_as_text(self: Capture, *given: Any) -> FunctionType:
        function = function_of_text(finish(self, *given), self.root.code)
        names.append(function_name(self.root.code))
        return function

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_capture.Capture, "finish", finish_as_text)
        yield names


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_texts_run_in_place_of_bytecode(program: Callable[..., Any]) -> None:
    more: dict[str, Any] = {} if program is not signature else {"scale": 3.0, "other": 4}
    with running_texts() as names:
        compiled = api.compile(program, backend="eager")
        for _ in range(2):
            results = []
            for function in (program, compiled):
                COUNTS["calls"], NAMES[:] = 0, ["before"]
                results.append((function(X.clone(), **more), dict(COUNTS), list(NAMES)))
            assert_same(results[1], results[0])
    assert (len(names) > 1) == ("break" in program.__name__ or program is branches_on_data)


def test_what_a_graph_raises_is_handled_as_the_text_says() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        def fails(*inputs: Any) -> Any:
            raise ArithmeticError("in the graph")

        return fails

    with (
        running_texts() as names,
        pytest.warns(RuntimeWarning, match="as written the call returned"),
    ):
        result = api.compile(one_object_twice, backend=backend)(X)
    assert_same(result, one_object_twice(X))
    assert names == ["one_object_twice"]


def made_with_variables() -> Callable[[torch.Tensor], Any]:
    count = 0

    def counts(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count = count + 1
        return x + count

    return counts


def test_variables_of_outer_functions() -> None:
    compiled = api.compile(made_with_variables(), backend="eager")
    compiled(X)
    (compilation,) = compiled.compiler.compilations
    assert re.fullmatch(
        r"""def counts\(x\):
    nonlocal count
    try:
        \(graph0,\) = \S+\(x\)
    except BaseException as raised:
        value0 = run_as_written\(raised, counts, \(x,\)\)
        if value0 is None:
            raise
        return value0
    count = 1
    return graph0
""",
        compilation.python,
    )
    assert "STORE_ATTR 'cell_contents'" in compilation.bytecode
