"""Triton kernels from source to launch, with a compiler that makes no machine code and a driver
that only tells what it was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fusewright import torch_compat
from fusewright.runtime import cuda, cuda_driver
from fusewright.runtime.cuda import CudaKernel, GpuKernelFailed, TritonSource
from tests.native.driver import Driver

PTX = """.visible .entry triton_add(
\t.param .u64 .ptr .global .align 1 triton_add_param_0,
\t.param .u64 .ptr .global .align 1 triton_add_param_1,
\t.param .u32 triton_add_param_2,
\t.param .u64 .ptr .global .align 1 triton_add_param_3
)
.reqntid 128
{ ld.param.b64 %rd1, [triton_add_param_0]; }
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What is compiled, loaded and launched."""
    driver = Driver(parameters=4)
    seen = SimpleNamespace(compiled=[], loaded=[], driver=driver, refuses=None, scratch=0)

    def compile_kernel(source: str, signature: Any, *_: Any, **options: Any) -> SimpleNamespace:
        if seen.refuses is not None:
            raise seen.refuses
        seen.compiled.append((source, signature, options))
        metadata = SimpleNamespace(
            name="entry", num_warps=4, shared=99, global_scratch_size=seen.scratch
        )
        return SimpleNamespace(metadata=metadata, asm={"ptx": PTX, "cubin": b"code"})

    def load(*arguments: Any) -> int:
        seen.loaded.append(arguments)
        return 0x22

    monkeypatch.setattr(cuda, "_compiler", lambda: SimpleNamespace(compile_kernel=compile_kernel))
    monkeypatch.setattr(cuda_driver, "launch_functions", lambda: driver.functions)
    monkeypatch.setattr(cuda_driver, "context", lambda device: 0x11)
    monkeypatch.setattr(cuda_driver, "load", load)
    monkeypatch.setattr(torch_compat.cuda, "device", lambda: 0)
    monkeypatch.setattr(torch_compat.cuda, "stream", lambda device: 0x33)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    yield seen


SOURCE = TritonSource(
    language="triton",
    key="",
    tensors=2,
    signature={"in0": "*fp32", "out0": "*fp32", "s0": "i32"},
    blocks={"XBLOCK": 1024},
    warps=4,
    checks_bounds=False,
    text="\nsource",
)


def test_a_launch(machine: SimpleNamespace) -> None:
    x, y = torch.ones(64), torch.ones(64)
    add = CudaKernel("triton_add", SOURCE).launcher()
    add(x, y, 64, 3)
    add(x, y, 32, 2)
    assert [one.slots for one in machine.driver.launched] == [
        [x.data_ptr(), y.data_ptr(), 64, 0],
        [x.data_ptr(), y.data_ptr(), 32, 0],
    ]
    last = machine.driver.launched[1]
    assert (last.function, last.grid, last.block) == (0x22, (2, 1, 1), (128, 1, 1))
    assert (last.shared_bytes, last.stream) == (99, 0x33)
    assert machine.loaded == [(-1, b"code", "entry", 99)]
    ((source, signature, options),) = machine.compiled
    assert source == "source"
    assert signature == {"in0": "*fp32", "out0": "*fp32", "s0": "i32", "XBLOCK": "constexpr"}
    assert (options["architecture"], options["name"], options["aligned"]) == (90, "triton_add", 2)


def test_pointers_that_are_not_aligned_are_told_to_the_compiler(machine: SimpleNamespace) -> None:
    add = CudaKernel("triton_add", SOURCE).launcher()
    add(torch.ones(65)[1:], torch.ones(64), 64, 1)
    assert [options["aligned"] for _, _, options in machine.compiled] == [0]


def test_what_does_not_compile_or_fit_is_named(machine: SimpleNamespace) -> None:
    x = torch.ones(4)
    machine.scratch = 128
    with pytest.raises(GpuKernelFailed, match="triton_add needs memory"):
        CudaKernel("triton_add", SOURCE).launcher()(x, x, 4, 1)
    machine.refuses = ValueError("no such type")
    with pytest.raises(GpuKernelFailed, match="triton_add for sm_90: ValueError: no such type"):
        CudaKernel("triton_add", SOURCE).launcher()(x, x, 4, 1)


def test_kernels_are_compiled_together_when_they_are_loaded(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "_LOADED", {})
    sources = {f"k{number}": SOURCE for number in range(5)}
    loaded = cuda.load_kernels(sources)
    assert len(machine.compiled) == 5 and machine.loaded == []
    assert cuda.load_kernels(sources) == loaded
    assert len(machine.compiled) == 5


def test_without_a_gpu_loading_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(GpuKernelFailed, match="need a CUDA device"):
        cuda.load_kernels({"k": SOURCE})


def test_parameters_are_counted_in_the_assembly() -> None:
    assert cuda.parameter_count(PTX) == 4
