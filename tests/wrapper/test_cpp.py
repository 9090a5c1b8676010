"""Generated C++: its text, what it does beside the Python module, and of what it has no form."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import fusewright
from fusewright import native
from fusewright.cli import app
from fusewright.errors import Unsupported
from fusewright.runtime import cpp_library
from fusewright.runtime.compiled import CompiledGraph
from fusewright.wrapper.cpp import NoCpp, emit_cpp
from fusewright.wrapper.cpp_text import identifier

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def graph_of(made: Any) -> CompiledGraph:
    """What the one version of a compiled function runs."""
    (compilation,) = fusewright.api.compilations(made)
    assert isinstance(compilation.compiled, CompiledGraph)
    return compilation.compiled


def compiled(function: Callable[..., Any]) -> Any:
    """A function whose graphs run as C++."""
    return fusewright.compile(function, options={"strict": True, "target": "cpp"})


def text_of(function: Callable[..., Any], *inputs: Any, **options: Any) -> str:
    """The C++ of a function's graph."""
    made = fusewright.compile(function, options={"strict": True, **options}, dynamic=True)
    made(*inputs)
    return emit_cpp("graph", graph_of(made).record.lines).text


def program(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.relu(x @ w.t()) + 1
    return torch.softmax(y[1:] @ w, -1).t(), y.sort(-1)[0], x.shape[0] * 2


def test_the_text_says_what_is_done() -> None:
    """Each statement beside the user's line."""
    text = text_of(program, torch.randn(4, 6), torch.randn(5, 6))
    for words in (
        "//   0: number s0\n",
        "//   3: tensor arg0: f32[s0, s1]\n",
        "    int64_t s0 = inputs.integer(0);\n",
        "    Tensor arg0 = inputs.tensor(3);\n",
        "    arg0.reset();\n",
        'call("aten::sort", "", 2, {given(buf1), integer(-1), boolean(false)});\n',
        "y = torch.relu(x @ w.t()) + 1\n",
        "{&arg1, &arg0, &buf1}, {s2, s0, s1}, floor_divide(",
    ):
        assert words in text
    assert "debug" not in text


def test_no_buffer_takes_a_name_of_the_headers() -> None:
    definition = re.compile(
        r"^(?! )(?:inline |template <.*> |static |const |enum |struct |class |using )*"
        r"(?:[\w:<>*&, ]+[ *&])?(\w+)(?:\(| = | : | \{|$)"
    )
    names = {
        match[1]
        for header in cpp_library.SOURCES.glob("fusewright_[md]*.h")
        for line in header.read_text().partition("namespace fusewright {")[2].splitlines()
        if (match := definition.match(line)) and not line.startswith("template")
    }
    assert {"Tensor", "floor_divide", "debug_print", "host", "empty"} <= names
    assert {name for name in names if identifier(name) == name} == set()
    assert identifier("xor_eq") == "xor_eq_" and identifier("buf0") == "buf0"


def test_lists_of_numbers_are_arguments() -> None:
    convolve = torch.nn.functional.conv2d
    text = text_of(
        lambda x, w: convolve(x, w, stride=2), torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
    )
    assert "integers({2, 2}), integers({0, 0})" in text


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.histc(x, 3) + 1, "histc.* takes .* as "),
    ],
)
def test_what_has_no_form(function: Callable[..., Any], words: str) -> None:
    """It is told, and the Python module runs."""
    x = torch.rand(6)
    with pytest.raises(NoCpp, match=words):
        text_of(function, x)


@needs_compiler
def test_errors_are_pythons() -> None:
    made = compiled(lambda x, i: torch.relu(x)[i] * 2 + 1)
    x = torch.eye(4)
    torch.testing.assert_close(made(x, torch.tensor([1, 2])), torch.relu(x)[[1, 2]] * 2 + 1)
    with pytest.raises(IndexError, match=r"index 9 is out of bounds|out of range"):
        made(x, torch.tensor([1, 9]))
    assert graph_of(made).record.in_python_because == ""


@needs_compiler
def test_loops_and_conditions() -> None:
    """With constants of their own; as eager's, also a loop that runs no step."""

    def loops(x: torch.Tensor, steps: torch.Tensor) -> Any:
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * torch.tensor([1.0, 2.0])

        x = torch.cond(x.sum() > 0, double, lambda x: x.sin(), (x,))
        count, y = torch._higher_order_ops.while_loop(
            lambda count, y: count < steps,
            lambda count, y: (count + 1, y * 2 + count),
            (torch.zeros((), dtype=torch.int64), x),
        )
        last, all = torch._higher_order_ops.scan(
            lambda carry, x: (carry + x, carry * x), torch.zeros(2), y
        )
        return count, y, last, all

    made = compiled(loops)
    for x, steps in ((torch.rand(3, 2), 2), (-torch.rand(3, 2), 0), (torch.rand(3, 2), 5)):
        with torch.no_grad():
            found, wanted = made(x, torch.tensor(steps)), loops(x, torch.tensor(steps))
        torch.testing.assert_close(found, wanted)
    assert graph_of(made).record.in_python_because == ""


@needs_compiler
def test_a_product_with_a_bias() -> None:
    """By the library, whose function takes numbers of either type."""
    made = compiled(torch.addmm)
    inputs = torch.rand(5, dtype=torch.float64), *torch.rand(2, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(made(*inputs), torch.addmm(*inputs))
    record = graph_of(made).record
    assert record.in_python_because == ""
    assert "    addmm(buf0, arg0, arg1, arg2);\n" in emit_cpp("graph", record.lines).text


@needs_compiler
def test_sizes_are_taken_in_inference_mode() -> None:
    """By kernels of the CPU that take integers where the operator's declaration has symbolic ones;
    the thread's dispatch state is as before, also where the operator refuses.
    """

    def resize(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x + 1, size=(5, 5), mode="bilinear", antialias=True)

    made = compiled(resize)
    with torch.inference_mode():
        made_there = torch.rand(2, 3, 8, 8)
    for inference in (True, False):
        for x in (torch.rand(2, 3, 8, 8), made_there):
            with torch.inference_mode(inference):
                before = native.dispatch_state()
                result, expected = made(x), resize(x)
                assert native.dispatch_state() == before
            torch.testing.assert_close(result, expected)
            assert result.is_inference() == expected.is_inference()
    refused = compiled(lambda x, i: torch.nn.functional.max_unpool2d(x + 1, i, 2))
    with torch.inference_mode():
        before = native.dispatch_state()
        with pytest.raises(RuntimeError, match="invalid max index"):
            refused(torch.zeros(1, 2, 2), torch.full((1, 2, 2), 99))
        assert native.dispatch_state() == before
    assert graph_of(refused).record.in_python_because == ""


@needs_compiler
def test_nothing_is_left_behind() -> None:
    """Handles of tensors are deleted, also where a call raises."""
    made = compiled(lambda x, i: ((x @ x)[i] * 2, x))
    x, index, wrong = torch.eye(4), torch.tensor([1, 2]), torch.tensor([1, 9])
    made(x, index)

    def uses() -> list[int]:
        return [tensor._use_count() for tensor in (x, index, wrong)]

    before = uses()
    for _ in range(5):
        made(x, index)
        with pytest.raises(IndexError):
            made(x, wrong)
    assert uses() == before


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(cpp_library.CppNotCompiled, match="there is no 'no-such-compiler'"):
        cpp_library.load_cpp("", b"", [], 0)


PROGRAM = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()
args = (torch.ones(3, 8),)
dynamic_shapes = {"input": {0: torch.export.Dim("rows", max=64)}}
"""


@needs_compiler
def test_source_of_a_model_is_written(tmp_path: Path) -> None:
    """Names of arguments and weights stand in it; it is compiled with the C files alone."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["package", str(tmp_path / "program.py"), str(tmp_path / "p"), "--cpp"]
    done = CliRunner().invoke(app, [*command, str(tmp_path / "source")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "source" / "forward.cpp").read_text()
    assert "number s0, size(0) of argument input" in text
    assert ", weight 0.weight" in text and ", argument input" in text
    objects = (tmp_path / "source" / "forward.o").read_bytes()
    run = cpp_library.load_cpp(text, objects, [], 1)
    namespace: dict[str, Any] = {}
    exec(PROGRAM, namespace)
    model, x = namespace["model"], torch.randn(5, 8)
    given = {"argument input": x, **{f"weight {n}": w for n, w in model.state_dict().items()}}
    inputs: list[Any] = []
    for line in text.splitlines():
        if line.startswith("//   "):
            inputs.append(given[line.split(", ")[-1]] if ": tensor" in line else 5)
    torch.testing.assert_close(run(inputs)[0], model(x).detach())


def test_what_has_no_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"the program has no form in C.*histc"):
        fusewright.aot_compile(
            lambda x: torch.histc(x, 3), (torch.rand(4),), None, tmp_path / "p", cpp=tmp_path
        )


@needs_compiler
def test_the_header_has_no_warnings(tmp_path: Path) -> None:
    text = text_of(program, torch.randn(4, 6), torch.randn(5, 6), debug_printer="print")
    (tmp_path / "module.cpp").write_text(text)
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wno-unused", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *flags, f"-I{cpp_library.SOURCES}", tmp_path / "module.cpp"], check=True)
