"""What profilers are told of compiled code."""

from __future__ import annotations

import inspect
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright import native
from fusewright.runtime import profiling
from fusewright.runtime.profiling import Label, label_of, recording

STRICT = {"strict": True}
X = torch.linspace(-1, 1, 24).reshape(4, 6)


def program(x: Any) -> Any:
    y = torch.softmax(x, -1)
    return torch.linalg.inv(y[:, :4] + torch.eye(4)) * 2


def picks(x: Any, index: Any) -> Any:
    return x[index] + 1


LINE = inspect.getsourcelines(program)[1]


def events_of(call: Any) -> list[str]:
    with torch.profiler.profile() as profile:
        call()
    return [event.key for event in profile.key_averages()]


@pytest.mark.parametrize("target", ["native", "python"])
def test_kernels_stand_in_traces_under_their_names(target: str) -> None:
    compiled = fusewright.compile(program, options={**STRICT, "target": target})
    compiled(X)
    (compilation,) = compiled.compiler.compilations
    found = events_of(lambda: compiled(X))
    for kernel in compilation.record.kernels:
        (event,) = [one for one in found if one.startswith(kernel.name)]
        if target == "native":
            assert "test_profiling.py:" in event
    if target == "native":
        assert any(one.endswith(f"test_profiling.py:{LINE + 1}") for one in found)
        (call,) = [one for one in found if one.startswith("aten.linalg_inv")]
        assert call.endswith(f"test_profiling.py:{LINE + 2}")
    assert "aten::linalg_inv_ex" in found, "what a library call does is below it"


def test_traces_are_written(tmp_path: Path) -> None:
    compiled = fusewright.compile(program, options=STRICT)
    compiled(X)
    with torch.profiler.profile() as profile:
        compiled(X)
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    names = {
        event.get("name")
        for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    }
    assert any(name and name.startswith("cpu_") and ".py:" in name for name in names)


def test_nobody_is_told_where_no_profiler_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    native.set_profiler(lambda *given: told.append(given), False)
    try:
        compiled = fusewright.compile(program, options=STRICT)
        compiled(X)
        assert told == []
        with torch.profiler.profile():
            compiled(X)
        assert len(told) >= 2
    finally:
        native.set_profiler(profiling.begin, False)


def test_a_profiler_that_fails_harms_nothing() -> None:
    def fails(*given: Any) -> Any:
        raise ValueError("mine")

    class Fails:
        def __exit__(self, *exception: object) -> None:
            raise ValueError("mine")

    compiled = fusewright.compile(program, options=STRICT)
    for begin in (fails, lambda *given: Fails(), lambda *given: object()):
        native.set_profiler(begin, True)
        try:
            torch.testing.assert_close(compiled(X), program(X))
        finally:
            native.set_profiler(profiling.begin, False)


def test_exceptions_of_kernels_stay() -> None:
    compiled = fusewright.compile(picks, options=STRICT)
    compiled(X, torch.tensor([0]))
    with torch.profiler.profile(), pytest.raises(IndexError):
        compiled(X, torch.tensor([7]))
    with recording() as spent, pytest.raises(IndexError):
        compiled(X, torch.tensor([7]))
    assert sum(one.count for one in spent.values()) >= 1


class PretendedNvtx:
    """NVTX as torch calls it, for torch without CUDA."""

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = {}
        self.ended: list[str] = []

    def markA(self, text: str) -> None:
        pass

    def rangePushA(self, text: str) -> int:
        ranges = self.open.setdefault(threading.get_ident(), [])
        ranges.append(text)
        return len(ranges)

    def rangePop(self) -> int:
        ranges = self.open[threading.get_ident()]
        self.ended.append(ranges.pop())
        return len(ranges)


def test_ranges_of_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    nvtx = PretendedNvtx()
    monkeypatch.setattr(torch.cuda.nvtx, "_nvtx", nvtx)
    monkeypatch.setenv("FUSEWRIGHT_NVTX", "1")
    compiled = fusewright.compile(program, options=STRICT)
    fails = fusewright.compile(picks, options=STRICT)
    fails(X, torch.tensor([0]))
    compiled(X)
    assert nvtx.ended == []
    profiling.tell_profilers()
    try:
        thread = threading.Thread(target=lambda: compiled(X))
        thread.start()
        thread.join()
        shown = events_of(lambda: compiled(X))
        with recording() as spent:
            compiled(X)
        with pytest.raises(IndexError):
            fails(X, torch.tensor([7]))
    finally:
        monkeypatch.delenv("FUSEWRIGHT_NVTX")
        profiling.tell_profilers()
    compiled(X)
    labels = [label.text for label in spent]
    assert nvtx.ended[: 2 * len(labels)] == labels * 2, "not while times are added up"
    assert len(nvtx.ended) == 2 * len(labels) + 1, "the kernel that raised has an end"
    assert len(nvtx.open) == 2 and not any(nvtx.open.values()), "two threads, nothing left open"
    assert set(labels) <= set(shown), "torch's profiler is told, too"
    assert any(f"test_profiling.py:{LINE + 1}" in label for label in labels)


def test_torch_without_nvtx_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_mark(text: str) -> None:
        raise RuntimeError("NVTX functions not installed")

    monkeypatch.setattr(torch.cuda.nvtx, "mark", no_mark)
    monkeypatch.setenv("FUSEWRIGHT_NVTX", "1")
    with pytest.warns(RuntimeWarning, match="FUSEWRIGHT_NVTX=1 makes no ranges here"):
        profiling.tell_profilers()
    compiled = fusewright.compile(program, options=STRICT)
    torch.testing.assert_close(compiled(X), program(X))


def test_times_are_added_up() -> None:
    compiled = fusewright.compile(program, options=STRICT)
    compiled(X)
    with recording() as spent:
        for _ in range(3):
            compiled(X)
        thread = threading.Thread(target=lambda: compiled(X))
        thread.start()
        thread.join()
    assert all(one.count == 4 and one.seconds > 0 for one in spent.values())
    kernels = {label.kernel for label in spent if label.kernel}
    assert kernels == {one.name for one in compiled.compiler.compilations[0].record.kernels}
    before = len(spent)
    compiled(X)
    assert len(spent) == before and all(one.count == 4 for one in spent.values())


def many(x: Any) -> Any:
    return torch.sqrt(torch.abs(torch.sin(torch.cos(torch.exp(torch.tanh(x * 2) + 1) - 3)) / 4))


def test_a_kernel_of_many_operators_has_lines() -> None:
    compiled = fusewright.compile(many, options=STRICT)
    compiled(X)
    (kernel,) = compiled.compiler.compilations[0].record.kernels
    line = inspect.getsourcelines(many)[1] + 1
    assert f"{kernel.name} test_profiling.py:{line}" in events_of(lambda: compiled(X))


def test_labels(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "def call(inputs):\n"
        "    # aten.exp.default at /home/me/model.py:12\n"
        "    # aten.mul.Tensor at /home/me/model.py:12\n"
        "    # aten.sum.default at /home/me/other.py:3\n"
        "    cpu_exp_mul_sum_0123(buf0, buf1)\n"
        "    del buf0\n"
        "    # aten.mm.default\n"
        "    aten_mm(buf1)\n"
    )
    label = label_of(str(file), 5, "cpu_exp_mul_sum_0123")
    assert label is not None
    assert label.text == "cpu_exp_mul_sum_0123 model.py:12, other.py:3"
    assert label.operators == ("aten.exp.default", "aten.mul.Tensor", "aten.sum.default")
    assert label_of(str(file), 6, "") is None
    assert label_of(str(file), 8, "").text == "aten.mm.default"
    assert label_of(None, 0, "cpu_relu_45").text == "cpu_relu_45"
    assert label_of("/nowhere.py", 3, "") is None
    many = Label(kernel="k", operators=(), places=tuple(("f.py", n) for n in range(9)))
    assert many.text == "k f.py:0, f.py:1, f.py:2, …"
