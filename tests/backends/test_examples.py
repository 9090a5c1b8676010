"""The examples for authors of backends: short, right, and as the documentation shows them."""

from __future__ import annotations

import logging
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from examples.backends import counting, loop_operations, python_kernels
from fusewright.backends.torch_dynamo import kernel_backend
from fusewright.errors import BackendCompilerFailed
from fusewright.kernels import KernelLanguage
from fusewright.runtime.targets import load_kernels

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "backends"
PAGE = (ROOT / "docs" / "writing-a-backend.md").read_text()
MODEL = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Softmax(-1), torch.nn.Linear(8, 3))
X = torch.randn(5, 4)


@pytest.mark.parametrize("name", ["counting", "loop_operations", "python_kernels"])
def test_a_model(name: str) -> None:
    compiled = fusewright.compile(MODEL, backend=name, options={"strict": True})
    for x in (X, torch.randn(3, 4)):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), MODEL(x))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[a-z]*.py")), ids=lambda path: path.name)
def test_examples_are_short_and_documented(path: Path) -> None:
    assert path.read_text().count("\n") < 90
    assert path.name in PAGE


def test_counting_torch_calls() -> None:
    counting.calls.clear()
    compiled = fusewright.compile(lambda x: torch.relu(x + 1) + 2, backend="counting")
    compiled(X)
    compiled(X)
    assert counting.calls == {"add": 4, "relu": 2}


def test_counting_operations_of_loops() -> None:
    loop_operations.programs.clear()
    with torch.no_grad():
        fusewright.compile(lambda x: torch.relu(x) + 1, backend="loop_operations")(X)
    ((text, found),) = loop_operations.programs
    assert "maximum" in text and found == {"buf0": 2}


def test_what_an_emitter_refuses_runs_eagerly() -> None:
    def f(x: Any) -> Any:
        return torch.lgamma(x)

    with torch.no_grad(), pytest.warns(RuntimeWarning, match="Python kernels do not know"):
        assert torch.equal(fusewright.compile(f, backend="python_kernels")(X), torch.lgamma(X))
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match="Python kernels do not know"):
        fusewright.compile(f, backend="python_kernels", options={"strict": True})(X)


def test_the_kernel_on_the_page_is_what_its_emitter_writes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (shown,) = re.findall(r"```\n(kernel python_.*?)```", PAGE, flags=re.S)
    options = {"strict": True, "graph_cache": False}
    softmax = fusewright.compile(
        lambda x: (x + 1).softmax(-1), backend="python_kernels", options=options
    )
    with torch.no_grad(), caplog.at_level(logging.DEBUG, "fusewright.kernels"):
        softmax(torch.eye(4))
    (record,) = (each for each in caplog.records if each.name == "fusewright.kernels")
    assert shown.strip() == record.getMessage().strip()


def test_loaders_have_one_name_each() -> None:
    other = KernelLanguage(name="python", write=python_kernels.write, load=lambda sources: ())
    kernel_backend(python_kernels.language)  # the same again is no error
    with pytest.raises(ValueError, match="'python' have a loader"):
        kernel_backend(other)
    source = fusewright.runtime.cpu.KernelSource(
        language="no such", key="", tensors=0, sizes=0, text=""
    )
    with pytest.raises(RuntimeError, match="'no such' have no loader"):
        load_kernels({"k": source})


def test_the_programs_on_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})
    printed = capsys.readouterr().out
    assert "relu" in printed
    assert len(re.findall(r"^\d+ nodes$", printed, re.M)) == 2  # forward and backward
    assert re.search(r"^cpu_relu_softmax_\w+$", printed, re.M)


def test_the_examples_run_by_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("examples.backends", run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.count(": as eager to ") == 3
    assert "'linear': 2" in printed and "extern aten.addmm" in printed
