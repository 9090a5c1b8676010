"""Bisection, profilers and the report on a GPU."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright import native
from fusewright.inspect.costs import profile_of
from fusewright.inspect.report import page
from fusewright.kernels import targets
from fusewright.runtime import profiling
from tests.gpu.support import CUDA, agree, needs_gpu

pytestmark = needs_gpu

STRICT = {"strict": True}


def computes(x: Any, w: Any) -> Any:
    y = torch.nn.functional.gelu(x @ w)
    z = torch.exp(y)
    return z / z.sum(0)


def trains(x: Any, w: Any) -> Any:
    y = torch.tanh(x @ w)
    return torch.exp(y) * y


def inputs_of(program: Any) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    weight = torch.randn(48, 48, device=CUDA, requires_grad=program is trains)
    return torch.randn(32, 48, device=CUDA), weight


def plant(patch: pytest.MonkeyPatch, pattern: str, wrong: str) -> None:
    """Change the text of Triton kernels."""
    real = targets.triton.write_work

    def write_work(*given: Any) -> Any:
        source, work = real(*given)
        return re.sub(pattern, wrong, source), work

    patch.setattr(targets.triton, "write_work", write_work)


@pytest.mark.parametrize("program", [computes, trains])
def test_nothing_is_wrong(program: Any, tmp_path: Path) -> None:
    bisection = fusewright.bisect(program, inputs_of(program), folder=tmp_path, seconds=2)
    assert bisection.finding is None, bisection


@pytest.mark.parametrize(
    ("program", "pattern", "wrong", "line"),
    [
        (computes, r"functions\.divide\((\w+), (\w+)\)", r"(\1 * \2)", "z / z.sum(0)"),
        (trains, r"(?m)= (t\d+) \* (t\d+)$", r"= \1 - \2", "torch.exp(y) * y"),
    ],
)
def test_a_bug_in_a_kernel_is_named(
    program: Any,
    pattern: str,
    wrong: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, pattern, wrong)
    finding = fusewright.bisect(program, inputs_of(program), folder=tmp_path, seconds=2).finding
    assert finding is not None and finding.stage == "kernels", finding
    assert finding.kernel is not None and finding.kernel.startswith("triton_")
    assert line in "".join(origin.text for origin in finding.lines), finding
    assert finding.program is not None, finding.why_no_program
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(finding.program), run_name="__main__")
    assert ended.value.code == 1, "the program that was written shows it"


def test_kernels_stand_in_traces() -> None:
    compiled = fusewright.compile(computes, options=STRICT)
    inputs = inputs_of(computes)
    compiled(*inputs)
    with torch.profiler.profile() as profile:
        compiled(*inputs)
        torch.cuda.synchronize()
    names = [event.key for event in profile.key_averages()]
    for kernel in compiled.compiler.compilations[0].record.kernels:
        assert any(name.startswith(f"{kernel.name} test_insight.py:") for name in names), names
        assert kernel.name in names, "what the GPU did has the kernel's name, too"


@pytest.mark.parametrize("switch", [False, True])
def test_ranges_of_nvtx(switch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = fusewright.compile(computes, options=STRICT)
    inputs = inputs_of(computes)
    expected = compiled(*inputs)
    pushed: list[str] = []
    if switch:
        real = torch.cuda.nvtx.range_push
        monkeypatch.setattr(
            torch.cuda.nvtx, "range_push", lambda text: (pushed.append(text), real(text))
        )
        monkeypatch.setenv("FUSEWRIGHT_NVTX", "1")
        profiling.tell_profilers()
        try:
            result = compiled(*inputs)
        finally:
            monkeypatch.delenv("FUSEWRIGHT_NVTX")
            profiling.tell_profilers()
    else:

        def begin(*place: Any) -> Any:
            guard = profiling.begin(*place)
            pushed.append(profiling.label_of(*place[:2], getattr(place[2], "name", "")).text)
            return guard

        native.set_profiler(begin, False)
        try:
            with torch.autograd.profiler.emit_nvtx():
                result = compiled(*inputs)
        finally:
            profiling.tell_profilers()
    agree(result, expected)
    kernels = compiled.compiler.compilations[0].record.kernels
    assert {kernel.name for kernel in kernels} <= {text.split()[0] for text in pushed}


def test_products_and_copies_have_shares_of_the_best() -> None:
    def program(x: Any, w: Any) -> Any:
        return torch.relu(x.bfloat16() @ w.bfloat16()) * 2

    x = torch.randn(2048, 2048, device=CUDA)
    explained = fusewright.explain(program)
    explained(x, x)
    with profiling.recording() as spent:
        explained(x, x)
    profile = profile_of(spent, [explained.so_far], 1e9)
    (product,) = [cost for cost in profile.costs if cost.operations is not None]
    assert product.operations.count == 2 * 2048**3
    assert 0.02 < profile.machine.share_of_product(product) < 1.5, str(profile)
    assert "GFLOP/s in bfloat16" in str(profile)
    text = page([explained.so_far], time=True)
    assert "% of a copy" in text and "could not be timed" not in text
