"""Debug prints and checks in whole compiled programs, in each target."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._higher_order_ops import scan

import fusewright
from fusewright.capture.directives import disable
from fusewright.config import TARGETS
from fusewright.errors import NanFound
from fusewright.runtime.compiled import CompiledGraph
from tests.threads import with_threads

targets = pytest.mark.parametrize("target", TARGETS)


def program(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.relu(x @ w.t()) + 1
    z = y.log() / x.shape[0]
    return torch.softmax(z, -1).sum(0), z.sort(-1)[0], y


def compiled(function: Any, target: str, **options: Any) -> Any:
    return fusewright.compile(function, options={"strict": True, "target": target, **options})


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 40).double(), torch.randn(50, 40).double()


def graph_of(function: Any) -> CompiledGraph:
    (compilation,) = fusewright.compilations(function)
    assert isinstance(compilation.compiled, CompiledGraph)
    return compilation.compiled


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@targets
def test_nothing_is_emitted_when_off(target: str) -> None:
    """Neither in the module nor in the plan, whose text the module's lines give."""
    plain, off = compiled(program, target), compiled(program, target, debug_kernels="cpu_*")
    same(plain(*inputs()), off(*inputs()))
    assert graph_of(plain).path == graph_of(off).path  # named by the hash of its text
    assert graph_of(plain).record.lines == graph_of(off).record.lines
    text = graph_of(plain).path.read_text()
    assert "debug_print" not in text and "check_nan" not in text and "assert_layout" not in text


@targets
def test_values_are_printed_beside_the_users_lines(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = compiled(program, target, debug_printer="print")
    same(made(*inputs()), program(*inputs()))
    printed = capsys.readouterr().out
    assert printed.startswith("graph inputs\n")
    assert "count 2000, mean " in printed and "NaN 0" in printed
    assert "before aten.mm.out\n" in printed and "after aten.mm.out\n" in printed
    assert "after aten.sort.default\n" in printed
    assert f"  {__file__}:" in printed and "z = y.log() / x.shape[0]" in printed
    names = {kernel.name for kernel in graph_of(made).record.kernels}
    assert names and all(f"before {name}\n" in printed for name in names)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_targets_print_the_same(dtype: torch.dtype, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    arguments = [tensor.to(dtype) for tensor in inputs()]
    for target in TARGETS:
        compiled(program, target, debug_printer="print", debug_kernels="cpu_*")(*arguments)
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1 and "cpu_" in texts[0]


@targets
def test_sizes_are_numbers_and_filters_hold(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"debug_printer": "print", "debug_kernels": " ATEN.* , cpu_nothing"}
    made = fusewright.compile(
        lambda x: torch.cat([x + 1, x]).sort()[0] * x.shape[0],
        dynamic=True,
        options={"strict": True, "target": target, **options},
    )
    made(torch.randn(5))
    printed = capsys.readouterr().out
    assert "aten.sort.default" in printed and "cpu_" not in printed and "inputs" not in printed
    options = {"debug_printer": "print", "debug_kernels": "cpu_*"}
    made = fusewright.compile(
        lambda x: x * x.shape[0], dynamic=True, options={"target": target, **options}
    )
    made(torch.randn(70))
    assert "  s0: 70\n" in capsys.readouterr().out


@targets
def test_backward_and_conditions_are_told_of(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def conditional(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda v: v.exp(), lambda v: v.sin(), (x,))

    made = compiled(conditional, target, debug_printer="kernel_names")
    made(torch.ones(3))
    printed = capsys.readouterr().out
    assert "launch cpu_exp" in printed and "launch cpu_sin" not in printed
    made = compiled(lambda x: (x.tanh() * 2).sum(), target, debug_printer="kernel_names")
    x = torch.ones(3, requires_grad=True)
    result = made(x)
    capsys.readouterr()
    result.backward()
    assert "launch cpu_" in capsys.readouterr().out


@targets
def test_files_are_kept(target: str, tmp_path: Path) -> None:
    made = compiled(program, target, debug_printer="save", debug_folder=str(tmp_path))
    x, w = inputs()
    made(x, w)
    files = {path.name: path for path in tmp_path.iterdir()}
    (product,) = (path for name, path in files.items() if name.startswith("after_launch_aten.mm"))
    torch.testing.assert_close(torch.load(product, weights_only=True), x @ w.t())
    assert any(name.startswith("before_launch_cpu_") for name in files)
    assert sum(name.startswith("graph_input_") for name in files) == 2


@targets
def test_a_planted_nan_is_named_with_the_line(target: str) -> None:
    def planted(x: torch.Tensor) -> Any:
        y = torch.relu(x) @ x.t()
        z = y - y.max()
        bad = (z / z).sort()[0]  # the row of the greatest is 0 / 0
        return bad * 2

    made = compiled(planted, target, check_nan=True)
    with pytest.raises(NanFound) as raised:
        made(torch.randn(4, 4))
    text = str(raised.value)
    assert "cpu_" in text and "with NaN: 1 of 16 elements" in text
    assert "bad = (z / z)" in text and f"{__file__}:" in text
    with pytest.raises(NanFound, match="the graph's input"):
        made(torch.full((4, 4), float("nan")))


@targets
def test_checks_let_right_programs_be(target: str) -> None:
    made = compiled(program, target, check_nan=True, check_layouts=True)
    for _ in range(2):
        same(made(*inputs()), program(*inputs()))
    assert "assert_layout" in graph_of(made).path.read_text()


OUT_OF_BOUNDS = """
import torch, fusewright
from fusewright import generation
from fusewright.records import replace

define = generation.define_kernels

def planted(*arguments, **keywords):
    kernels = define(*arguments, **keywords)
    def changed(kernel):
        if "exp" not in kernel.name:
            return kernel
        head = next(line for line in kernel.source.splitlines() if "@kernel(" in line)
        pointer = head[head.index("%"):].split(",")[0].strip(" )")
        begin = kernel.source.index(head) + len(head)
        first = kernel.source.index("\\n", kernel.source.index(":", begin)) + 1
        bad = (
            f"  %planted = load ptr, ptr {pointer}\\n"
            "  %planted.far = getelementptr i8, ptr %planted, i64 -140737488355328\\n"
            "  %planted.value = load volatile float, ptr %planted.far\\n"
        )
        return replace(kernel, source=kernel.source[:first] + bad + kernel.source[first:])
    return replace(kernels, definitions=tuple(map(changed, kernels.definitions)))

generation.define_kernels = planted

def f(x):
    y = (x + 1) @ x.t()
    z = y.exp().sum(-1)
    return z.sort()[0]

fusewright.compile(f)(torch.randn(8, 8))
print("it lived")
"""


@targets
def test_the_kernel_that_died_is_the_last_one_named(target: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_BOUNDS],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={
            **os.environ,
            "FUSEWRIGHT_DEBUG_PRINTER": "kernel_names",
            "FUSEWRIGHT_TARGET": target,
            "FUSEWRIGHT_STRICT": "1",
        },
    )
    assert done.returncode < 0, done.stdout + done.stderr  # a signal ended it
    named = [line for line in done.stdout.splitlines() if line.startswith("launch ")]
    assert "exp" in named[-1] and len(named) == 3


def test_options_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from fusewright.config import Options

    monkeypatch.setenv("FUSEWRIGHT_DEBUG_PRINTER", "print")
    monkeypatch.setenv("FUSEWRIGHT_DEBUG_KERNELS", "a, b")
    monkeypatch.setenv("FUSEWRIGHT_CHECK_NAN", "1")
    monkeypatch.setenv("FUSEWRIGHT_CHECK_LAYOUTS", "0")
    options = Options.from_user({"debug_kernels": "c"})
    assert (options.debug_printer, options.debug_kernels) == ("print", "c")
    assert options.check_nan and not options.check_layouts
    monkeypatch.setenv("FUSEWRIGHT_DEBUG_PRINTER", "loud")
    with pytest.raises(ValueError, match=r"DEBUG_PRINTER.*one of off, save"):
        Options.from_user({})


def test_an_eager_part_is_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    eager = disable(lambda x: x.cos())
    made = fusewright.compile(lambda x: eager(x + 1), options={"debug_printer": "kernel_names"})
    made(torch.ones(3))
    printed = capsys.readouterr().out
    assert "cos" not in printed and "add" in printed


@targets
@pytest.mark.parametrize("way", ["on", "0", "1"])
def test_choices_are_told_of(target: str, way: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A choice by its own name, whichever alternative runs; once it is made, or forced, the kernels
    of the alternative.
    """
    options = {"debug_printer": "print", "multi_kernel": way, "multi_kernel_cache": False}
    made = compiled(lambda x: x.sum(-1) * 2, target, **options)
    x = torch.randn(3, 8192)
    for _ in range(2):
        with with_threads(2):  # With one there is nothing to choose.
            torch.testing.assert_close(made(x), x.sum(-1) * 2, rtol=1e-4, atol=1e-4)
        printed = capsys.readouterr().out
        record = graph_of(made).record
        launched = [launch.kernel for launch in record.launches]
        names = [choice.name for choice in record.choices] if way == "on" else launched
        assert names, record
        for name in names:
            assert f"before {name}\n" in printed and f"after {name}\n" in printed
        assert "float32, 3, on cpu" in printed
    assert (way == "1") == any("split" in name for name in names)


def stepping(x: torch.Tensor, w: torch.Tensor) -> Any:
    return scan(lambda c, a: (torch.tanh(c @ w + a), c.sum()), x.new_zeros(x.shape[1:]), x)


@targets
def test_each_step_of_a_loop_is_told_of(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = compiled(stepping, target, debug_printer="kernel_names")
    x, w = torch.randn(3, 4), torch.randn(4, 4)
    with torch.no_grad():
        same(made(x, w), stepping(x, w))
    printed = capsys.readouterr().out
    assert "launch scan_step\n" in printed
    assert printed.count("launch cpu_mm_add_tanh") == 3


def test_packages_tell_of_their_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = torch.cond(x.sum() > 0, lambda v: v.exp(), lambda v: v.sin(), (x,))
        return program(y, w)

    path = fusewright.aot_compile(
        function, inputs(), None, tmp_path / "p", options={"debug_printer": "print"}
    )
    package = fusewright.load(path)
    capsys.readouterr()
    same(package(*inputs()), function(*inputs()))
    printed = capsys.readouterr().out
    assert printed.startswith("graph inputs\n") and "after aten.sort.default\n" in printed
    assert "before cpu_exp" in printed or "before cpu_sin" in printed
    assert f"  {__file__}:" in printed and "z = y.log() / x.shape[0]" in printed


def test_packages_find_nan(tmp_path: Path) -> None:
    path = fusewright.aot_compile(
        lambda x: x.log().sum(), (torch.ones(3),), None, tmp_path / "p", options={"check_nan": True}
    )
    package = fusewright.load(path)
    assert package(torch.ones(3)) == 0
    with pytest.raises(NanFound, match=r"x\.log\(\)"):
        package(-torch.ones(3))
