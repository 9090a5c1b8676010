"""What `explain` says: as text, in golden cases, and as an object with fields."""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import BackendCompilerFailed, Location, Unsupported
from fusewright.events import (
    BackwardCompiled,
    CaptureFinished,
    CaptureStarted,
    EventLog,
    GraphBreak,
    Recompiled,
)
from tests.golden import golden

pytestmark = pytest.mark.dynamic(None)  # texts tell what is found out in the first calls

X = torch.arange(6.0).reshape(2, 3)


@contextlib.contextmanager
def program_file(text: str) -> Iterator[dict[str, Any]]:
    """The variables of a program that stands in a file `program.py` of the working directory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        path = Path(folder).resolve() / "program.py"
        path.write_text(text)
        variables: dict[str, Any] = {"torch": torch, "fusewright": fusewright, "x": X}
        exec(compile(text, str(path), "exec"), variables)
        yield variables


def mask(text: str) -> str:
    """Without what differs from one run, or one version, to the next."""
    text = re.sub(r"\d+\.\d+ (s|ms|µs|MiB)", r"#", text)
    text = re.sub(r"_from_\d+", "_from_#", text)
    return re.sub(r"^guards \d+(, #| #)?.*", r"guards #\1: …", text, flags=re.M)


@golden("cases/explain.txt")
def test_text(program: str) -> str:
    """A case is a program that leaves in `text` what is to be shown."""
    with program_file(program) as variables:
        return mask(str(variables["text"]))


# -- fields ---------------------------------------------------------------------------------------


def scaled(x: torch.Tensor, factor: int) -> torch.Tensor:
    x = x * factor
    if x.sum() > 0:
        x = torch.relu(x)
    return x + 1


def test_fields() -> None:
    explained = fusewright.explain(scaled, backend="eager")
    first = explained(X, 2)
    assert torch.equal(first.result, scaled(X, 2))
    assert first.function == "scaled" and first.recompiles == ()
    assert dict(first.graphs[0].operators) == {"mul": 1, "sum": 1, "gt": 1}
    assert [graph.operator_count for graph in first.graphs] == [3, 2]
    line = scaled.__code__.co_firstlineno
    assert [graph.place.line for graph in first.graphs] == [line, line + 3]
    (found,) = first.breaks
    assert found.reason == "branch-on-tensor" and found.operators_before == 3
    assert found.location == Location(__file__, line + 2, "if x.sum() > 0:")
    assert "in scaled" in found.stack
    groups = {guard.group for guard in first.guards}
    assert {"tensors", "modes", "globals", "objects"} <= groups
    modes = [guard.expression for guard in first.guards if guard.group == "modes"]
    assert "grad mode" in modes and not any("Tensor" in mode for mode in modes)
    (factor,) = [guard for guard in first.guards if guard.expression == "factor"]
    assert (factor.kind, factor.expected) == ("equals", "2")
    assert factor.location is not None and factor.location.line == line + 1
    assert first.guard_seconds is not None and 0 < first.guard_seconds < 1e-3
    assert set(first.stage_seconds) == {"capture", "backend", "guards"}

    second = explained(X, 3)
    (recompiled,) = second.recompiles
    (failure,) = recompiled.failures
    assert (failure.expression, failure.expected, failure.found) == ("factor", "2", "3")
    assert len(second.graphs) == 3, "the rest of the function is the same"


def test_a_break_that_is_met_twice_is_told_with_the_larger_graph() -> None:
    """A module's call is captured first, with its `forward` inside, then `forward` by itself."""

    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2 + 1
            return y if y.sum() > 0 else -y

    explanation = fusewright.explain(Branching())(X)
    assert [graph_break.operators_before for graph_break in explanation.breaks] == [0, 4]
    assert "graph before: 4 operators" in str(explanation)


def test_what_the_compiler_did_by_stage() -> None:
    with torch.no_grad():
        found = fusewright.explain(torch.nn.Linear(3, 3))(X)
    assert list(found.stage_seconds) == [
        "capture", "aot", "lower", "schedule", "kernels", "wrapper", "load", "guards",
    ]  # fmt: skip
    assert found.function == "Linear" and found.graphs[0].inputs == 3
    assert found.peak_bytes is not None
    assert (found.graphs[0].launches, found.graphs[0].library_calls) == (1, 0)


def test_the_memory_kept_for_backward() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sin().sum()

    explained = fusewright.explain(f, options={"memory_budget": 0.5})
    first = explained(X, torch.ones(3, 5, requires_grad=True))
    waiting = first.graphs[0].backward
    assert (
        waiting is not None and waiting.launches is None and "backward" not in first.stage_seconds
    )
    assert waiting.saved_bytes == waiting.measured_bytes and waiting.memory_budget == 0.5
    first.result.backward()
    found = explained.so_far
    ran = found.graphs[0].backward
    assert ran is not None and ran.launches and ran.library_calls is not None
    assert found.stage_seconds["backward"] == ran.seconds > 0
    with torch.no_grad():
        assert fusewright.explain(f)(X, torch.ones(3, 5)).graphs[0].backward is None


def test_why_no_native_plan_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told of the backward half as well as of the forward, once."""

    def reasons(target: str) -> tuple[str, str]:
        compiled = fusewright.compile(torch.nn.GELU(), options={"target": target, "strict": True})
        compiled(X.clone().requires_grad_()).sum().backward()
        explanation = fusewright.explain(compiled)(X.clone().requires_grad_())
        return explanation.graphs[0].in_python_because, str(explanation)

    for target in ("native", "python"):
        reason, text = reasons(target)
        assert reason == "" and "in Python" not in text
    monkeypatch.setenv("FUSEWRIGHT_GARBAGE", "1")
    reason, text = reasons("native")
    assert reason == "checks of memory are on"
    assert "(in Python: checks of memory are on)" in text


def test_what_the_target_has_compiled_stays() -> None:
    compiled = fusewright.compile(scaled, backend="eager")
    compiled(X, 2)
    before = fusewright.compilations(compiled)
    explained = fusewright.explain(compiled)
    assert explained.history is not None and len(explained.history.graphs) == 2
    assert explained.history.guard_seconds is None
    assert "2 graphs, 1 break" in str(explained)
    assert len(explained(X, 5).graphs) == 2, "compiled anew"
    assert fusewright.compilations(compiled) == before
    assert fusewright.explain(scaled).history is None


def test_the_program_raises_what_it_raises() -> None:
    explained = fusewright.explain(lambda x: x / (1 // 0), backend="eager")
    with pytest.raises(ZeroDivisionError):
        explained(X)
    assert "the program raises ZeroDivisionError" in str(explained.so_far)
    failing = fusewright.explain(scaled, backend=lambda graph, inputs: 1 / 0)
    with pytest.raises(BackendCompilerFailed):
        failing(X, 2)
    assert "ZeroDivisionError" in str(failing.so_far)


def test_settings_are_those_of_compile() -> None:
    with pytest.raises(BackendCompilerFailed):
        fusewright.explain(scaled, backend=lambda graph, inputs: 3)(X, 2)
    with pytest.raises(Unsupported):
        fusewright.explain(fusewright.compile(scaled, fullgraph=True))(X, 2)


def test_names_for_reports() -> None:
    found = fusewright.explain(scaled, backend="eager", name="the loss")(X, 2)
    assert str(found).startswith("the loss ") and found.graphs[0].function == "the loss"
    net = fusewright.compile(torch.nn.Linear(3, 3), backend="eager", name="head")
    assert fusewright.explain(net)(X).graphs[0].function == "head"


# -- events ---------------------------------------------------------------------------------------


def test_events_reach_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "fusewright"):
        compiled = fusewright.compile(scaled, backend="eager")
        compiled(X, 2)
        compiled(X, 3)
    names = [record.name.removeprefix("fusewright.") for record in caplog.records]
    assert list(dict.fromkeys(names))[:3] == ["capture", "graphs", "functions"]
    assert list(dict.fromkeys(names))[3:5] == ["guards", "graph_breaks"]
    assert "recompiles" in names
    assert any("factor: was 2, is 3" in message for message in caplog.messages)
    kinds = [type(event) for event in compiled.compiler.events]
    assert kinds[:2] == [CaptureStarted, CaptureFinished]
    assert kinds.count(GraphBreak) == 2 and kinds.count(Recompiled) == 1


def test_the_backward_half_is_told_when_it_is_compiled(caplog: pytest.LogCaptureFixture) -> None:
    @fusewright.compile
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x @ w).sum()

    loss = product(X, torch.ones(3, 5, requires_grad=True))
    with caplog.at_level(logging.INFO, "fusewright"):
        loss.backward()
    (told,) = (event for event in product.compiler.events if isinstance(event, BackwardCompiled))
    assert told.saved_bytes == 2 * 5 * 4 and "lower" in told.stages
    assert any("compiled the backward of" in message for message in caplog.messages)


def test_events_are_bounded() -> None:
    log = EventLog(limit=3)
    event = CaptureStarted(function="f", place=Location("f.py", 1))
    for _ in range(5):
        log.add(event)
    assert list(log) == [event] * 3
