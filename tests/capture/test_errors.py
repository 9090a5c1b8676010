"""What happens when a program raises, or does what cannot be captured."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from fusewright import api, capture
from fusewright.capture.handlers.registry import MEANINGS, Meaning
from fusewright.capture.values.base import Machine, Value
from fusewright.errors import BackendCompilerFailed, NothingRaised, Unsupported
from tests.capture.agreement import assert_same

X = torch.arange(3.0)


def branches(x: Any) -> Any:
    y = x + 1
    if y.sum() > 0:
        return y
    return -y


def reads_item(x: Any) -> Any:
    return x * x.sum().item()


def opens_a_file(x: Any) -> Any:
    open("/dev/null")  # noqa: SIM115
    return x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (branches, "branch-on-tensor"),
        (reads_item, "tensor-value"),
        (opens_a_file, "outside-world"),
    ],
)
def test_unsupported_names_the_line(function: Any, reason: str) -> None:
    with pytest.raises(Unsupported) as raised:
        api.compile(function, backend="eager", fullgraph=True)(X)
    assert raised.value.reason == reason
    assert raised.value.location.file == __file__
    first = function.__code__.co_firstlineno
    assert first < raised.value.location.line < first + 5
    assert raised.value.remedy


def calls_branches(x: Any) -> Any:
    return branches(x * 2)


def test_unsupported_names_the_line_that_called() -> None:
    with pytest.raises(Unsupported) as raised:
        api.compile(calls_branches, backend="eager", fullgraph=True)(X)
    _, calling, *_ = str(raised.value).splitlines()
    line = calls_branches.__code__.co_firstlineno + 1
    assert calling == f"  called from {__file__}:{line}  return branches(x * 2)"
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert not any("capture" in Path(frame.filename).parts[-3:-1] for frame in frames[1:])


def test_explain_names_the_line_that_called_where_the_called_one_has_the_larger_graph() -> None:
    text = str(api.explain(calls_branches, backend="eager")(X))
    assert "called from" in text and "  return branches(x * 2)\n" in text


def test_graph_breaks_are_not_warned_about() -> None:
    compiled = api.compile(branches, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(X), X + 1)
        assert torch.equal(compiled(-X - 5), X + 4)
    assert "1 break" in str(api.explain(compiled))


def test_strict_makes_it_an_error() -> None:
    with pytest.raises(Unsupported):
        api.compile(branches, backend="eager", options={"strict": True})(X)


def test_the_programs_exception_comes_from_its_own_line() -> None:
    class Custom(Exception):
        pass

    def f(x):
        x + 1
        raise Custom("mine", 3)

    compiled = api.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        with pytest.raises(Custom) as raised:
            compiled(X)
        assert raised.value.args == ("mine", 3)
        last = traceback.extract_tb(raised.value.__traceback__)[-1]
        assert last.lineno == f.__code__.co_firstlineno + 2


def test_torchs_exception_comes_through() -> None:
    compiled = api.compile(lambda x: x @ torch.ones(5, 2), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match=r"mat1|size"):
        compiled(X.reshape(1, 3))


def rounds(x: Any) -> Any:
    return x * divmod(7, 2)[0]


@pytest.fixture
def wrong_divmod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing `divmod` ends with an exception of the traced program, by mistake."""

    def raises(machine: Machine, *arguments: Value) -> Value:
        machine.raise_error(OverflowError, "too large")

    monkeypatch.setitem(MEANINGS, divmod, Meaning(handler=raises))


@pytest.mark.usefixtures("wrong_divmod")
@pytest.mark.parametrize("how", [{"fullgraph": True}, {"options": {"strict": True}}])
def test_a_traced_exception_that_does_not_happen_is_an_error(how: dict[str, Any]) -> None:
    compiled = api.compile(rounds, backend="eager", **how)
    for _ in range(2):
        with pytest.raises(NothingRaised, match=r"rounds, .*OverflowError.*'too large'") as raised:
            compiled(X)
        assert raised.value.location.line == rounds.__code__.co_firstlineno


@pytest.mark.usefixtures("wrong_divmod")
def test_a_traced_exception_that_does_not_happen_is_told_once() -> None:
    compiled = api.compile(rounds, backend="eager")
    with pytest.warns(RuntimeWarning, match="defect of fusewright") as warned:
        assert torch.equal(compiled(X), X * 3)
        assert torch.equal(compiled(X), X * 3)
    assert len(warned) == 1
    assert str(api.explain(compiled)).count("returned, though") == 1


def test_wrong_arguments_are_type_errors() -> None:
    compiled = api.compile(lambda x: x, backend="eager")
    with pytest.raises(TypeError):
        compiled()
    with pytest.raises(TypeError):
        api.compile(3)
    with pytest.raises(TypeError, match="there are"):
        api.compile(lambda x: x, options={"no_such": 1})
    with pytest.raises(ValueError, match="backend"):
        api.compile(lambda x: x, backend="nothing")


def test_a_backend_that_fails_is_named() -> None:
    def broken(graph_module, inputs):
        raise KeyError("oops")

    compiled = api.compile(lambda x: x + 1, backend=broken)
    with pytest.raises(BackendCompilerFailed, match="broken"):
        compiled(X)
    assert torch.is_grad_enabled()


def test_trace_gives_one_graph() -> None:
    graph_module = capture.trace(lambda x, n: x * n + 1, X, 3)
    assert [node.op for node in graph_module.graph.nodes] == [
        "placeholder",
        "call_function",
        "call_function",
        "output",
    ]
    node = list(graph_module.graph.nodes)[1]
    assert node.meta["location"][0] == __file__
    assert "test_errors.py" in node.meta["stack_trace"]
    assert node.meta["val"].shape == (3,)
    with pytest.raises(Unsupported):
        capture.trace(branches, X)


def test_decorator_forms() -> None:
    @api.compile(backend="eager", fullgraph=True)
    def f(x):
        "documented"
        return x + 1

    class Holder:
        scale = 3

        @api.compile(backend="eager")
        def method(self, x):
            return x * self.scale

    assert torch.equal(f(X), X + 1) and f.__doc__ == "documented" and f.__name__ == "f"
    assert torch.equal(Holder().method(X), X * 3)
    assert api.compile(f, disable=True) is f


def test_compilations_are_told() -> None:
    compiled = api.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(X)
    compiled(X.double())
    first, _ = api.compilations(compiled)
    assert (first.node_count, first.input_count) == (3, 1)
    assert "x" in first.guards.table() and first.capture_seconds > 0
    net = api.compile(torch.nn.Linear(3, 3), backend="eager")
    net(X)
    assert len(api.compilations(net)) == 1
    with pytest.raises(TypeError):
        api.compilations(torch.add)


def test_is_compiling_is_answered() -> None:
    assert api.compile(lambda x: torch.compiler.is_compiling(), backend="eager")(X) is True
    assert torch.compiler.is_compiling() is False


def test_nothing_heavy_is_imported() -> None:
    program = """
import sys, torch
from fusewright import api
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU(), torch.nn.LayerNorm(3)).eval()
with torch.no_grad():
    api.compile(net, backend="eager", fullgraph=True)(torch.ones(2, 3))
heavy = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
assert not heavy, heavy
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_a_caught_exception_has_a_traceback() -> None:
    def f(x):
        try:
            x.view(7)
        except RuntimeError as error:
            return x + (1 if error.__traceback__ is None else 2)

    assert torch.equal(api.compile(f, backend="eager", fullgraph=True)(X), X + 2)


class ThreeRows(torch.nn.Module):
    def forward(self, x):
        return x.view(7)


def looks_at_lines(x):
    try:
        raise ValueError("three rows, please")
    except ValueError as error:
        return x + error.__traceback__.tb_lineno


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (
            looks_at_lines,
            r"ValueError\('three rows, please'\), raised at .*py:\d+  raise ValueError",
        ),
        # torch.fx looks at the traceback of whatever leaves a module of its own.
        (torch.fx.symbolic_trace(ThreeRows()), r"RuntimeError\(.*, raised at .*view = x.view\(7\)"),
    ],
)
def test_what_cannot_be_captured_where_an_exception_is_handled_names_that(
    program: Any, told: str
) -> None:
    with pytest.raises(Unsupported, match=f"exception is being handled there: {told}"):
        api.compile(program, backend="eager", fullgraph=True)(X)


def test_what_the_callers_handle() -> None:
    def looks(x):
        try:
            raise ValueError("inside")
        except ValueError as error:
            inside = sys.exception() is error is sys.exc_info()[1]
            return x + inside, type(error.__context__), sys.exc_info()[0]

    def looks_outside(x):
        return x + 1, sys.exception(), sys.exc_info()[0]

    for function in (looks, looks_outside):
        compiled = api.compile(function, backend="eager")
        assert_same(api.compile(function, backend="eager", fullgraph=True)(X), function(X))
        for _ in range(2):
            assert_same(compiled(X), function(X))
            try:
                raise KeyError("outside")
            except KeyError:
                assert_same(compiled(X), function(X))
