"""`fusewright bisect` and `minify`: what they are given, what they write, what they tell."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fusewright
from fusewright.bisection.differences import Expected, difference
from fusewright.bisection.double import InDouble
from fusewright.bisection.graph_text import tensor, tensor_text
from fusewright.bisection.outside import Outside
from fusewright.cli import app
from fusewright.lower.rules import RULES

PROGRAM = """\
import sys
import torch
import fusewright

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Sigmoid(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@fusewright.compile
def step(x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


compiled = fusewright.compile(model)
for _ in range(3):
    print(f"{step(torch.randn(4, 8)).item():.6f}")
print(f"{compiled(input=torch.ones(4, 8)).sum().item():.6f}")
if sys.argv[1:] == ["three"]:
    raise SystemExit(3)
"""


@pytest.fixture
def wrong_sigmoid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "aten.sigmoid.default", RULES["aten.tanh.default"])


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def printed_by(program: Path, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(program), run_name="__main__")
    return capsys.readouterr().out


def test_a_program_runs_as_ever(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = printed_by(program, capsys)
    result = CliRunner().invoke(app, ["bisect", str(program)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith(plain), "the state is what it was before each look"
    assert "\nstep\nnothing differs" in result.output
    assert "\nSequential\nnothing differs" in result.output
    assert CliRunner().invoke(app, ["bisect", str(program), "three"]).exit_code == 3


def test_a_program_that_goes_wrong(program: Path, wrong_sigmoid: None) -> None:
    folder = program.parent / "found"
    command = ["bisect", "--folder", str(folder), "--seconds", "2", str(program)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "lowering" in result.output and "runs alone" in result.output
    (written, *_) = folder.iterdir()
    assert "sigmoid" in written.read_text()
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(str(written), run_name="__main__")


def test_a_program_that_compiles_nothing(program: Path) -> None:
    program.write_text("import fusewright\n")
    result = CliRunner().invoke(app, ["bisect", str(program)])
    assert result.exit_code == 0 and "nothing was compiled" in result.output


def long(x: Any, w: Any) -> Any:
    y = torch.relu(x @ w).cos()
    z = torch.softmax(y, -1) + torch.layer_norm(x, (12,))
    return torch.sigmoid(z * 2).sum(0), z.exp(), x.abs()


def test_a_wrong_number_shrinks_to_one_operator(tmp_path: Path, wrong_sigmoid: None) -> None:
    inputs = (torch.randn(10, 12), torch.randn(12, 12))
    found = fusewright.minify(long, inputs, folder=tmp_path)
    assert found is not None
    assert found.operators_before >= 8 and found.operators == 1
    assert found.program is not None and found.why.startswith("stage lowering: result 0 differs")
    assert "operators became 1" in str(found) and "runs alone" in str(found)
    assert sum(value.numel() for value in found.inputs) <= 4
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(str(found.program), run_name="__main__")


def test_a_crash_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*given: Any, **named: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(RULES, "aten.cos.default", crash)
    inputs = (torch.randn(10, 12), torch.randn(12, 12, requires_grad=True))
    found = fusewright.minify(long, inputs, folder=tmp_path)
    assert found is not None and found.operators == 1
    assert "raises ZeroDivisionError: planted" in found.why


def test_a_slow_compile_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RULES["aten.exp.default"]

    def slow(*given: Any, **named: Any) -> Any:
        __import__("time").sleep(0.5)
        return real(*given, **named)

    monkeypatch.setitem(RULES, "aten.exp.default", slow)
    inputs = (torch.randn(10, 12), torch.randn(12, 12))
    found = fusewright.minify(long, inputs, slower_than=0.4, folder=tmp_path, seconds=20)
    assert found is not None and found.operators == 1
    assert found.program is not None
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(str(found.program), run_name="__main__")


def test_nothing_to_shrink(tmp_path: Path) -> None:
    inputs = (torch.randn(10, 12), torch.randn(12, 12))
    assert fusewright.minify(long, inputs, folder=tmp_path) is None
    assert fusewright.minify(long, inputs, folder=tmp_path, slower_than=100.0) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4),
        torch.randn(3, 4, requires_grad=True),
        torch.randn(20, 30).t(),
        torch.randn(5).bfloat16(),
        torch.tensor([float("nan"), float("inf"), -0.0]),
        torch.randint(0, 5, (40,)),
        torch.tensor([True, False]),
        torch.randn(1, 5).expand(4, 5),
        torch.empty(0, 3),
        torch.tensor(2.5),
        torch.randn(4, dtype=torch.complex64),
    ],
)
def test_tensors_are_read_back(value: torch.Tensor) -> None:
    again = eval(tensor_text(value), {"tensor": tensor, "torch": torch})
    assert (again.dtype, again.shape) == (value.dtype, value.shape)
    assert again.stride() == value.stride() and again.requires_grad == value.requires_grad
    torch.testing.assert_close(again, value, rtol=0, atol=0, equal_nan=True)


def test_what_differs() -> None:
    exact = torch.linspace(-1, 1, 101, dtype=torch.float64)
    eager = exact.float()
    expected = Expected(eager=eager, exact=exact)
    assert difference(eager.clone(), expected) is None
    assert difference(eager * (1 + 3e-7), expected) is None
    found = difference(eager * 1.001, expected)
    assert found is not None and found.kind == "value" and found.elements == 101
    assert difference(eager.half(), expected).kind == "dtype"
    assert difference(eager[1:], expected).kind == "shape"
    nan = eager.clone()
    nan[7] = float("nan")
    assert difference(nan, expected).kind == "NaN"
    nan[7] = float("inf")
    assert difference(nan, expected).kind == "infinite"
    # Cancellation: noise says that no digit is right.
    noisy = (exact + 0.1, exact - 0.1)
    assert difference(eager * 1.001, Expected(eager=eager, exact=exact, noisy=noisy)) is None
    assert difference(torch.tensor([3]), Expected(eager=torch.tensor([2]), exact=None))
    assert difference(1, Expected(eager=True, exact=None)).kind == "type"
    assert difference(1, Expected(eager=1, exact=None)) is None


def test_programs_in_double_name_other_types() -> None:
    x = torch.rand(100, dtype=torch.float64)
    with InDouble():
        y = x.to(torch.float32).half().sum(dtype=torch.float32) + torch.ones(1)
    assert y.dtype is torch.float64 and y.item() == x.sum().item() + 1
    torch.manual_seed(0)
    drawn = torch.rand(5)
    torch.manual_seed(0)
    with InDouble():
        assert torch.equal(torch.rand(5), drawn.double())


def test_state_outside_is_brought_back() -> None:
    weight = torch.ones(3)

    def program(x: Any) -> Any:
        weight.add_(x)
        return weight.sum()

    state = Outside.of(program)
    program(torch.ones(3))
    assert dict(state.values())["weight after the call"].tolist() == [2, 2, 2]
    state.restore()
    assert weight.tolist() == [1, 1, 1]
    assert fusewright.bisect(program, torch.ones(3)).finding is None
    assert weight.tolist() == [1, 1, 1]


def test_what_the_call_raises_is_raised() -> None:
    def program(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fusewright.bisect(program, torch.ones(3))
