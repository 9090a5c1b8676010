"""Kernels for GPUs as packages hold them, with a driver that only tells what it was asked."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fusewright import torch_compat
from fusewright.errors import PackageRefused
from fusewright.ir.dtype import DType
from fusewright.ir.kernel import Kernel, KernelArgument, TritonFacts
from fusewright.packages.building import _kernel_row
from fusewright.packages.gpu_kernels import PackagedKernel, section_of
from fusewright.runtime import argument_tables, cuda_driver
from fusewright.runtime.gpu_code import Cubin
from tests.native.driver import Driver

WRITER = 0x44


def kernel(names: tuple[str, ...], launches: tuple[int, ...]) -> Kernel:
    """A kernel of these arguments, whose names tell which are addresses of 64-bit integers."""
    types = tuple("*i64" if name == "table" else "*fp32" for name in names)
    return Kernel(
        name="triton_step",
        key="step",
        language="triton",
        source="source",
        arguments=tuple(
            KernelArgument(name=name, dtype=DType.F32, is_written=True) for name in names
        ),
        sizes=(),
        facts=TritonFacts(
            types=types,
            blocks=(("XBLOCK", 1024),),
            warps=4,
            checks_bounds=False,
            launches=launches,
        ),
    )


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver(parameters=3, writers={WRITER})

    def load(device: int, code: bytes, name: str, shared_bytes: int) -> int:
        return WRITER if name.startswith("write_") else 0x22

    argument_tables._writer.cache_clear()
    monkeypatch.setattr(cuda_driver, "launch_functions", lambda: driver.functions)
    monkeypatch.setattr(cuda_driver, "context", lambda device: 0x11)
    monkeypatch.setattr(cuda_driver, "load", load)
    monkeypatch.setattr(cuda_driver, "shared_bytes", lambda device: 1 << 16)
    monkeypatch.setattr(torch_compat.cuda, "stream", lambda device: 0x33)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    return driver


def packaged(own: Kernel, gpus: list[int]) -> PackagedKernel:
    """The kernel as a package for these kinds of GPUs has it."""
    cubin = Cubin(
        code=b"code", function="entry", warps=4, shared_bytes=0, parameters=3, scratch_bytes=0
    )
    sections = {
        section_of("main", own.name, gpu, aligned): cubin.to_bytes()
        for gpu in gpus
        for aligned in (False, True)
    }
    file: Any = SimpleNamespace(manifest={"gpus": gpus}, path="a.fw", section=sections.get)
    row = json.loads(json.dumps(_kernel_row(own)))
    return PackagedKernel(file, "main", row)


def test_a_kernel_is_given_addresses(driver: Driver) -> None:
    x, y = torch.ones(64), torch.ones(64)
    packaged(kernel(("in0", "out0"), ()), [80, 90]).launcher()(x, y, 1)
    (launched,) = driver.launched
    assert (launched.function, launched.slots) == (0x22, [x.data_ptr(), y.data_ptr(), 0])


def test_a_kernel_of_several_launches_has_a_table(driver: Driver) -> None:
    step = kernel(("in0_0", "in0_1", "table"), (64, 1025))
    x, y, table = torch.ones(64), torch.ones(1025), torch.zeros(4, dtype=torch.int64)
    packaged(step, [90]).launcher()(x, y, table, 3)
    assert table.tolist() == [64, 1 << 32 | 1025, x.data_ptr(), y.data_ptr()]
    assert [launched.function for launched in driver.launched] == [WRITER, 0x22]
    assert driver.launched[1].slots == [table.data_ptr(), 2, 0]


def test_another_kind_of_gpu_is_refused(driver: Driver) -> None:
    with pytest.raises(PackageRefused, match="triton_step was not compiled for sm_90"):
        packaged(kernel(("in0", "out0"), ()), [80]).launcher()(torch.ones(4), torch.ones(4), 1)
