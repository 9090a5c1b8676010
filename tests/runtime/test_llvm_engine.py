"""The engine: joining sources, objects compiled once, errors that show the text, threads."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest

from fusewright.runtime.llvm_engine import (
    KernelCompilationFailed,
    MachineCodeCompiler,
    cpu_target,
    join_modules,
)

HELPER = "define internal i64 @twice(i64 %x) {\n  %y = add i64 %x, %x\n  ret i64 %y\n}"


def source(number: int) -> str:
    """A kernel that stores twice a number through its argument pointer."""
    return (
        f"{HELPER}\n\ndefine i64 @kernel(ptr %a, i64 %b, i64 %e) {{\n"
        f"  %y = call i64 @twice(i64 {number})\n  store i64 %y, ptr %a\n  ret i64 0\n}}\n"
    )


def run(address: int) -> int:
    """What the kernel stores."""
    cell = ctypes.c_int64()
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    signature(address)(ctypes.addressof(cell), 0, 1)
    return cell.value


def test_kernels_of_one_batch_share_what_is_equal() -> None:
    text = join_modules({"a": source(1), "b": source(2)})
    assert text.count("define internal i64 @twice") == 1
    library = MachineCodeCompiler(cpu_target()).library({"a": source(1), "b": source(2)})
    assert (run(library.addresses["a"]), run(library.addresses["b"])) == (2, 4)


def test_equal_text_is_compiled_once() -> None:
    compiler = MachineCodeCompiler(cpu_target())
    assert compiler.object_code({"a": source(1)}) is compiler.object_code({"a": source(1)})
    assert compiler.object_code({"a": source(1)}) is not compiler.object_code({"a": source(2)})


def test_an_error_shows_the_line() -> None:
    with pytest.raises(KernelCompilationFailed, match=r"(?s)expected.*1 nonsense"):
        MachineCodeCompiler(cpu_target()).library({"a": "nonsense"})


def test_threads_may_compile_at_once() -> None:
    def one(number: int) -> int:
        library = MachineCodeCompiler(cpu_target()).library({"kernel_of_a_thread": source(number)})
        return run(library.addresses["kernel_of_a_thread"])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(16))) == [2 * number for number in range(16)]
