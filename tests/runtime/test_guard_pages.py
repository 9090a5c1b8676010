"""Guard pages: what lies outside is named, what lies inside is copied, and handlers stay."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys

import pytest
import torch

import fusewright
from fusewright.native import CpuKernel
from fusewright.runtime import guard_pages
from fusewright.runtime.guard_pages import STATISTICS, GuardedKernel, MemoryFault
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.memory_checks import MemoryChecks
from tests.kernels.llvm.harness import BuiltKernel, build
from tests.threads import with_threads

SIDES = ["end", "begin", "both"]


def copying(index: str, place: str, count: int = 8, dtype: str = "f32") -> str:
    """A group that reads x[index] and writes y[place], whatever their sizes are."""
    return f"""group copy [i0<{count}]
  read x: {dtype}[{count}]
  write y: {dtype}[{count}]
  stage
    t0 = load x[{index}]
    t1 = add t0, 1
    store y[{place}] = t1
"""


def guarded(text: str, side: str, width: str = "auto") -> BuiltKernel:
    return build(text, cpu_target(width), MemoryChecks(guard_pages=side))


@pytest.mark.parametrize("width", ["auto", "scalar"])
@pytest.mark.parametrize("side", SIDES)
def test_results_are_copied_back(side: str, width: str) -> None:
    x, y = torch.arange(8.0), torch.zeros(8)
    before = STATISTICS.launches, STATISTICS.checked_bytes
    guarded(copying("i0", "i0"), side, width)({"x": x, "y": y})
    assert y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    runs = 2 if side == "both" else 1
    after = (before[0] + runs, before[1] + 64 * runs)
    assert (STATISTICS.launches, STATISTICS.checked_bytes) == after


@pytest.mark.parametrize("width", ["auto", "scalar"])
@pytest.mark.parametrize(
    ("index", "place", "side", "words"),
    [
        ("i0 + 1", "i0", "end", "touched byte 32 of in0 .*, 1 past its last"),
        # A processor may tell any byte of a store that reaches a page, the last one too.
        ("i0", "i0 + 1", "end", "touched byte 3[2-5] of out0 .*, [1-4] past its last"),
        ("i0 - 1", "i0", "begin", "touched byte -4 of in0 .*, before its beginning"),
        ("i0", "i0 - 1", "begin", "touched byte -4 of out0 .*, before its beginning"),
        # What does not reach a page is seen afterwards, where it was written.
        ("i0", "i0 + 1", "begin", "wrote byte 32 of out0 .*, 1 past its last"),
        ("i0", "i0 - 1", "end", "wrote byte -4 of out0 .*, before its beginning"),
        ("i0 + 1", "i0", "both", "touched byte 32 of in0 .*, 1 past its last"),
        ("i0 - 1", "i0", "both", "touched byte -4 of in0 .*, before its beginning"),
        ("i0 + 10000000", "i0", "end", "touched byte 40000000 of in0 .*, 39999969 past its last"),
        (f"i0 + {2**46}", "i0", "end", "touched an address that .* not tell, far from its .*,"),
    ],
)
def test_an_access_outside_is_named(
    index: str, place: str, side: str, words: str, width: str
) -> None:
    kernel = guarded(copying(index, place), side, width)
    x, y = torch.arange(8.0), torch.zeros(8)
    with pytest.raises(MemoryFault, match=rf"^kernel kernel {words} doing units \d to \d"):
        kernel({"x": x, "y": y})
    assert not y.any()


@pytest.mark.parametrize("dtype", ["u8", "f16", "f64"])
def test_every_byte_counts(dtype: str) -> None:
    kernel = guarded(copying("i0", "i0", 17, dtype), "end")
    x, y = (torch.zeros(n, dtype=DTYPES[dtype]) for n in (17, 16))
    with pytest.raises(MemoryFault, match=r"out0 .*, 1 past its last"):
        kernel({"x": x, "y": y})


DTYPES = {"u8": torch.uint8, "f16": torch.float16, "f64": torch.float64}


def test_strides_and_offsets_say_what_may_be_touched() -> None:
    base = torch.arange(30.0)
    y = torch.zeros(8)
    kernel = guarded(copying("3*i0", "i0"), "end")
    kernel({"x": base[4::3][:8], "y": y})
    assert y.tolist() == [5, 8, 11, 14, 17, 20, 23, 26]
    with pytest.raises(MemoryFault, match=re.escape("in0 (float32, size (7,), strides (3,), 76")):
        kernel({"x": base[4::3][:7], "y": y})


def test_arguments_that_overlap_share_their_copy() -> None:
    memory = torch.arange(12.0)
    guarded(copying("i0", "i0"), "both", "auto")({"x": memory[:8], "y": memory[4:]})
    assert memory.tolist() == [0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 7, 8]


def test_what_is_only_read_may_not_be_written() -> None:
    kernel = build(copying("i0", "i0"), checks=MemoryChecks()).kernel
    assert isinstance(kernel, CpuKernel)
    names = "%in0 = load ptr, ptr %a\n%in1 = load ptr, ptr %b"
    with pytest.raises(MemoryFault, match=r"touched byte 0 of in1 .*, which it may not write,"):
        GuardedKernel(kernel, names, "end")(torch.zeros(8), torch.zeros(8), 1, 1)


def test_tensors_without_elements() -> None:
    kernel = guarded(copying("i0", "i0"), "end")
    with pytest.raises(MemoryFault, match=r"in0 .* 0 bytes"):
        kernel({"x": torch.zeros(0), "y": torch.zeros(8)})


@pytest.mark.parametrize("width", ["auto", "scalar"])
@pytest.mark.parametrize(("shift", "side"), [(1, "end"), (-1, "begin")])
def test_rows_lie_between_pages_too(shift: int, side: str, width: str) -> None:
    text = f"""group rows [i0<3]
  read x: f32[3, 100]
  write y: f32[3, 100]
  local e: f32[100]
  local s: f32
  stage over [r0<100]
    t0 = load x[100*i0 + r0]
    store e[r0 + {shift}] = t0
    reduce s = sum t0
  stage over [r0<100]
    t0 = load e[r0]
    t1 = load s[0]
    t2 = add t0, t1
    store y[100*i0 + r0] = t2
"""
    x, y = torch.ones(3, 100), torch.zeros(3, 100)
    with pytest.raises(MemoryFault, match=r"of its row 0 \(400 bytes\)"):
        guarded(text, side, width)({"x": x, "y": y})
    guarded(text.replace(f"r0 + {shift}]", "r0]"), side, width)({"x": x, "y": y})
    assert torch.equal(y, x + 100)


def test_work_is_divided_as_among_threads() -> None:
    shares: list[tuple[int, int]] = []

    def record(arguments: int, begin: int, end: int) -> int:
        shares.append((begin, end))
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        record
    )
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    kernel = GuardedKernel(CpuKernel(address, 0, 0, "shares"), "", "end")
    with with_threads(3):
        for iterations in (0, 16, 17, 100):
            kernel(iterations, 16)
    assert shares == [(0, 16), (0, 9), (9, 17), (0, 34), (34, 68), (68, 100)]


def test_faults_of_checks_are_raised() -> None:
    text = copying("i0", "i0", dtype="i64").replace("add t0, 1", "floor_div t0, t0")
    with pytest.raises(RuntimeError, match="ZeroDivisionError in compiled kernel"):
        guarded(text, "end")({"x": torch.arange(8), "y": torch.zeros(8, dtype=torch.int64)})


def test_handlers_of_signals_stay() -> None:
    script = """
import faulthandler, signal, ctypes
from tests.runtime.test_guard_pages import *
faulthandler.enable()
for index in ("i0", "i0 + 1"):
    try:
        guarded(copying(index, "i0"), "end")({"x": torch.zeros(8), "y": torch.zeros(8)})
    except MemoryFault:
        print("named", flush=True)
ctypes.string_at(8)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, env=environment
    )
    assert ended.stdout == "named\n"
    assert ended.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in ended.stderr


def test_whole_programs_run_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_GUARD_PAGES", "end")

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.softmax(-1) * 100).to(torch.uint8)

    before = STATISTICS.launches
    x = torch.randn(7, 273)
    found = fusewright.compile(program, options={"strict": True})(x)
    assert STATISTICS.launches == before + 1
    assert int((found.int() - program(x).int()).abs().max()) <= 1
    assert any("store out0[273*i0 + r0]" in text for text in guard_pages.STRUCTURES.values())
