"""Kernel launch: data pointers, sizes, shares of the iterations, threads, errors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import llvmlite.binding as llvm
import pytest
import torch

from fusewright.native import CpuKernel
from tests.threads import in_threads, with_threads

ADD_SCALED = """
define i64 @add_scaled(i8** %arguments, i64 %begin, i64 %end) {
entry:
  %slots = bitcast i8** %arguments to i64*
  %x_slot = getelementptr i64, i64* %slots, i64 0
  %y_slot = getelementptr i64, i64* %slots, i64 1
  %size_slot = getelementptr i64, i64* %slots, i64 2
  %x_address = load i64, i64* %x_slot
  %y_address = load i64, i64* %y_slot
  %size = load i64, i64* %size_slot
  %x = inttoptr i64 %x_address to float*
  %y = inttoptr i64 %y_address to float*
  %scale = sitofp i64 %size to float
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %x_pointer = getelementptr float, float* %x, i64 %i
  %y_pointer = getelementptr float, float* %y, i64 %i
  %x_value = load float, float* %x_pointer
  %y_value = load float, float* %y_pointer
  %scaled = fmul float %x_value, %scale
  %sum = fadd float %scaled, %y_value
  store float %sum, float* %y_pointer
  %next = add i64 %i, 1
  %done = icmp sge i64 %next, %end
  br i1 %done, label %exit, label %loop
exit:
  ret i64 0
}
"""
"""y[i] += size * x[i], one iteration an element."""


KERNEL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
"""The type of a kernel's function."""


@pytest.fixture(scope="module")
def add_scaled() -> Iterator[CpuKernel]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(ADD_SCALED), machine)
    engine.finalize_object()
    yield CpuKernel(engine.get_function_address("add_scaled"), 2, 1, "add_scaled")
    del engine


class Shares:
    """A kernel whose code is a Python callback that records the (begin, end) of each call."""

    def __init__(self, size_count: int = 0) -> None:
        self.calls: list[tuple[int, int]] = []
        self.code = KERNEL(lambda _, begin, end: self.calls.append((begin, end)) or 0)
        address = ctypes.cast(self.code, ctypes.c_void_p).value
        assert address is not None
        self.kernel = CpuKernel(address, 0, size_count, "shares")


@pytest.mark.parametrize("count", [1, 7, 1000, 100_003])
def test_reads_pointers_and_sizes(add_scaled: CpuKernel, count: int) -> None:
    x, y = torch.randn(count), torch.randn(count)
    expected = y + 3 * x
    assert add_scaled(x, y, 3, count, 1024) is None
    torch.testing.assert_close(y, expected)


def test_storage_offset_counts(add_scaled: CpuKernel) -> None:
    x, y = torch.arange(10.0), torch.zeros(10)
    add_scaled(x[4:], y[7:], -1, 3, 1024)
    assert y.tolist() == [0.0] * 7 + [-4.0, -5.0, -6.0]


def test_parameters_and_subclasses_are_tensors(add_scaled: CpuKernel) -> None:
    x, y = torch.nn.Parameter(torch.ones(3)), torch.zeros(3)
    add_scaled(x, y, 2, 3, 8)
    assert y.tolist() == [2.0, 2.0, 2.0]


def test_no_iterations_calls_nothing() -> None:
    shares = Shares()
    shares.kernel(0, 16)
    shares.kernel(-1, 16)
    assert shares.calls == []


def test_one_grain_is_one_call() -> None:
    shares = Shares()
    shares.kernel(16, 16)
    assert shares.calls == [(0, 16)]


@pytest.mark.parametrize(
    ("threads", "iterations", "grain", "calls"),
    [
        (2, 17, 16, [(0, 9), (9, 17)]),
        (2, 100, 60, [(0, 50), (50, 100)]),
        (1, 100, 10, [(0, 100)]),
        (3, 100, 1, [(0, 34), (34, 68), (68, 100)]),
        (4, 5, 1, [(0, 2), (2, 4), (4, 5)]),
    ],
)
def test_shares_cover_the_iterations(
    threads: int, iterations: int, grain: int, calls: list[tuple[int, int]]
) -> None:
    with with_threads(threads):
        shares = Shares()
        shares.kernel(iterations, grain)
    assert sorted(shares.calls) == calls


def test_sizes_fill_whole_slots() -> None:
    seen: list[int] = []

    def read(arguments: int, begin: int, end: int) -> int:
        seen.extend((ctypes.c_int64 * 100).from_address(arguments))
        return 0

    code = KERNEL(read)
    address = ctypes.cast(code, ctypes.c_void_p).value
    assert address is not None
    sizes = [(-1) ** i * (2**63 - 1 - i) for i in range(100)]
    CpuKernel(address, 0, 100, "many")(*sizes, 1, 1)
    assert seen == sizes


def test_runs_from_other_threads(add_scaled: CpuKernel) -> None:
    def work(_: int) -> torch.Tensor:
        y = torch.zeros(100_000)
        for _ in range(20):
            add_scaled(torch.ones(100_000), y, 1, 100_000, 1000)
        return y

    results = in_threads(work, 4)
    assert len(results) == 4 and all((y == 20).all() for y in results)


def test_errors_name_the_kernel(add_scaled: CpuKernel) -> None:
    x = torch.ones(3)
    with pytest.raises(TypeError, match=r"add_scaled takes 5 positional arguments.*; 4 given"):
        add_scaled(x, x, 1, 3)
    with pytest.raises(TypeError, match="add_scaled: argument 1 must be a tensor, not list"):
        add_scaled(x, [1.0], 1, 3, 8)
    with pytest.raises(TypeError):
        add_scaled(x, x, "1", 3, 8)
    with pytest.raises(TypeError):
        add_scaled(x, x, 1, 3, grain=8)
    with pytest.raises(OverflowError):
        add_scaled(x, x, 2**63, 3, 8)
    with pytest.raises(ValueError, match="grain must be at least 1"):
        add_scaled(x, x, 1, 3, 0)
    with pytest.raises(ValueError, match="code address"):
        CpuKernel(0, 1, 1, "null")


def test_describes_itself(add_scaled: CpuKernel) -> None:
    assert repr(add_scaled) == "CpuKernel('add_scaled', 2 tensors, 1 sizes)"
    assert (add_scaled.name, add_scaled.tensor_count, add_scaled.size_count) == ("add_scaled", 2, 1)


@pytest.mark.parametrize(
    ("code", "exception", "words"),
    [
        (1, IndexError, "index out of range in compiled kernel faulty"),
        (2, RuntimeError, "ZeroDivisionError in compiled kernel faulty"),
        (3, SystemError, "faulty returned 3, which is no code of a fault"),
    ],
)
def test_a_fault_is_raised(code: int, exception: type[Exception], words: str) -> None:
    function = KERNEL(lambda arguments, begin, end: code)
    kernel = CpuKernel(ctypes.cast(function, ctypes.c_void_p).value or 0, 0, 0, "faulty")
    with pytest.raises(exception, match=words):
        kernel(1, 1)


def test_a_fault_of_any_share_is_raised_by_its_own_launch() -> None:
    """In one launch the last share of three fails; in another, of the same code, none does."""
    function = KERNEL(lambda arguments, begin, end: int(end == 30))
    kernel = CpuKernel(ctypes.cast(function, ctypes.c_void_p).value or 0, 0, 0, "faulty")
    with with_threads(3):
        for _ in range(20):
            with pytest.raises(IndexError):
                kernel(30, 1)
            assert kernel(29, 1) is None
