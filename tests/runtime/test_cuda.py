"""Launches of Triton kernels, with a compiler that makes no machine code and GPUs that there are
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fusewright.runtime import cuda
from fusewright.runtime.cuda import CudaKernel, GpuKernelFailed, TritonSource

HERE, STREAM = -1, 77
"""The device that tensors on the CPU are on, and its stream."""


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What is compiled and launched."""
    seen = SimpleNamespace(compiled=[], launched=[], refuses=None)

    def compile_kernel(source: str, signature: Any, *_: Any, **options: Any) -> str:
        if seen.refuses is not None:
            raise seen.refuses
        seen.compiled.append((source, signature, options))
        return f"code {options['aligned']}"

    def launcher(code: str, blocks: Sequence[int]) -> Any:
        return lambda *arguments: seen.launched.append((code, blocks, *arguments))

    fake = SimpleNamespace(compile_kernel=compile_kernel, launcher=launcher)
    monkeypatch.setattr(cuda, "_compiler", lambda: fake)
    monkeypatch.setattr(cuda.cuda, "device", lambda: HERE)
    monkeypatch.setattr(cuda.cuda, "stream", lambda device: STREAM)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    yield seen


def kernel() -> CudaKernel:
    return CudaKernel(
        "triton_add",
        TritonSource(
            language="triton",
            key="",
            tensors=2,
            signature={"in0": "*fp32", "out0": "*fp32", "s0": "i32"},
            blocks={"XBLOCK": 1024},
            warps=4,
            checks_bounds=False,
            text="\nsource",
        ),
    )


def test_a_launch_passes_pointers_sizes_and_the_stream(compiler: SimpleNamespace) -> None:
    x, y = torch.ones(64), torch.ones(64)
    add = kernel()
    add(x, y, 64, 3)
    add(x, y, 32, 2)
    pointers = (x.data_ptr(), y.data_ptr())
    assert compiler.launched == [
        ("code 2", (1024,), 3, STREAM, (*pointers, 64)),
        ("code 2", (1024,), 2, STREAM, (*pointers, 32)),
    ]
    ((source, signature, options),) = compiler.compiled
    assert source == "source"
    assert signature == {"in0": "*fp32", "out0": "*fp32", "s0": "i32", "XBLOCK": "constexpr"}
    assert options["architecture"] == 90 and options["name"] == "triton_add"


def test_pointers_that_are_not_aligned_have_a_variant(compiler: SimpleNamespace) -> None:
    x, y = torch.ones(65), torch.ones(64)
    add = kernel()
    add(x[1:], y, 64, 1)
    add(x[:64], y, 64, 1)
    add(x[1:], y, 64, 1)
    assert [code for code, *_ in compiler.launched] == ["code 0", "code 2", "code 0"]
    assert len(compiler.compiled) == 2


def test_nothing_is_launched_for_no_work(compiler: SimpleNamespace) -> None:
    kernel()(torch.ones(0), torch.ones(0), 0, 0)
    assert compiler.launched == compiler.compiled == []


def test_another_device_is_made_the_current_one(
    compiler: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = []

    class Guard:
        def __init__(self, device: int) -> None:
            self.device = device

        def __enter__(self) -> None:
            entered.append(self.device)

        def __exit__(self, *_: object) -> None:
            entered.append("out")

    monkeypatch.setattr(cuda.cuda, "device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device", Guard)
    kernel()(torch.ones(4), torch.ones(4), 4, 1)
    assert entered == [HERE, "out"] and len(compiler.launched) == 1


def test_what_does_not_compile_or_fit_is_named(compiler: SimpleNamespace) -> None:
    x = torch.ones(4)
    with pytest.raises(GpuKernelFailed, match="triton_add would need 2147483648 programs"):
        kernel()(x, x, 4, 1 << 31)
    compiler.refuses = ValueError("no such type")
    with pytest.raises(GpuKernelFailed, match="triton_add for sm_90: ValueError: no such type"):
        kernel()(x, x, 4, 1)


def test_kernels_are_compiled_together_when_they_are_loaded(
    compiler: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "_LOADED", {})
    sources = {f"k{number}": kernel().source for number in range(5)}
    loaded = cuda.load_kernels(sources)
    assert len(compiler.compiled) == 5
    assert cuda.load_kernels(sources) == loaded
    assert len(compiler.compiled) == 5


def test_without_a_gpu_loading_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(GpuKernelFailed, match="need a CUDA device"):
        cuda.load_kernels({"k": kernel().source})
