"""Triton kernels from source to launch, with a compiler that makes no machine code and a driver
that only tells what it was asked.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fusewright import torch_compat
from fusewright.records import replace
from fusewright.runtime import argument_tables, compile_pool, cuda, cuda_driver, eager_kernels
from fusewright.runtime.compile_pool import CompilationFailed
from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.cuda import CudaKernel, GpuKernelFailed, TritonSource
from fusewright.runtime.gpu_code import Cubin
from tests.native.driver import Driver


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """What is compiled, loaded and launched."""
    driver = Driver(parameters=4)
    seen = SimpleNamespace(
        compiled=[], loaded=[], driver=driver, refuses={}, scratch=0, shared=99, room=227 << 10
    )

    def compile_one(request: CompileRequest) -> Cubin:
        if request.name in seen.refuses:
            raise CompilationFailed(seen.refuses[request.name])
        seen.compiled.append(request)
        return Cubin(
            code=b"code",
            function="entry",
            warps=4,
            shared_bytes=seen.shared,
            parameters=4,
            scratch_bytes=seen.scratch,
        )

    def load(*arguments: Any) -> int:
        seen.loaded.append(arguments)
        return 0x44 if arguments[2].startswith("write_") else 0x22

    monkeypatch.setattr(compile_pool, "compile_one", compile_one)
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cuda_driver, "launch_functions", lambda: driver.functions)
    monkeypatch.setattr(cuda_driver, "context", lambda device: 0x11)
    monkeypatch.setattr(cuda_driver, "load", load)
    monkeypatch.setattr(torch_compat.cuda, "device", lambda: 0)
    monkeypatch.setattr(torch_compat.cuda, "stream", lambda device: 0x33)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(cuda_driver, "shared_bytes", lambda device: seen.room)
    monkeypatch.setattr(cuda, "_LOADED", {})
    monkeypatch.setattr(eager_kernels, "_REASONS", {})
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
    (request,) = machine.compiled
    assert request.source == "source"
    signature = {"in0": "*fp32", "out0": "*fp32", "s0": "i32", "XBLOCK": "constexpr"}
    assert request.signature == signature
    assert (request.architecture, request.name, request.aligned) == (90, "triton_add", 2)


def test_pointers_that_are_not_aligned_are_told_to_the_compiler(machine: SimpleNamespace) -> None:
    add = CudaKernel("triton_add", SOURCE).launcher()
    add(torch.ones(65)[1:], torch.ones(64), 64, 1)
    assert [request.aligned for request in machine.compiled] == [0]


def test_a_kernel_of_several_launches_finds_its_tensors_in_a_table(
    machine: SimpleNamespace,
) -> None:
    names = {"in0_0": "*fp32", "out0_0": "*fp32", "in0_1": "*fp32", "out0_1": "*fp32"}
    step = replace(
        SOURCE, tensors=5, signature={**names, "table": "*i64"}, launches=(64, 1025), key="step"
    )
    machine.driver.writers = {0x44}
    tensors = [torch.ones(64), torch.ones(64), torch.ones(1025), torch.ones(1025)]
    table = torch.zeros(6, dtype=torch.int64)
    argument_tables._writer.cache_clear()
    CudaKernel("triton_step_batch_1a", step).launcher()(*tensors, table, 3)
    argument_tables._writer.cache_clear()
    other = replace(step, launches=(64, 9), key="other")
    CudaKernel("triton_step_batch_2b", other).compiled(-1, True)
    (request,) = machine.compiled  # Its code does for the other, too.
    assert request.name == "triton_step_batch"
    assert request.signature == {"table": "*i64", "launches": "i32", "XBLOCK": "constexpr"}
    assert request.aligned == 1
    (_, code, entry, _), (_, assembly, writer, _) = machine.loaded
    assert (code, entry, writer) == (b"code", "entry", "write_480")
    assert assembly == argument_tables.assembly(480).encode() + b"\0"
    assert table.tolist() == [64, 1 << 32 | 1025, *(tensor.data_ptr() for tensor in tensors)]
    assert [launched.grid[0] for launched in machine.driver.launched] == [1, 3]
    assert machine.driver.launched[1].slots[:2] == [table.data_ptr(), 2]
    assert argument_tables.writer(-1, bytes(8 * 400), 82)[1] == 4000
    argument_tables._writer.cache_clear()


def test_a_driver_of_fewer_parameters_writes_tables_by_more_launches(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(device: int, code: bytes, name: str, shared_bytes: int) -> int:
        if b".version 8" in code:
            raise cuda_driver.DriverRefused("loading write_4000: unsupported PTX version")
        return 0x44

    monkeypatch.setattr(cuda_driver, "load", load)
    argument_tables._writer.cache_clear()
    assert argument_tables.writer(0, bytes(8 * 4000), 1001) == (0x44, 480)
    argument_tables._writer.cache_clear()


@pytest.mark.parametrize("values", argument_tables.VERSIONS)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_what_writes_tables_is_assembled(architecture: str, values: int, tmp_path: Path) -> None:
    """Without a stack, in which parameters would be copied to be counted off."""
    tools = Path(str(files("triton") / "backends" / "nvidia" / "bin"))
    source = tmp_path / "writer.ptx"
    source.write_text(argument_tables.assembly(values))
    command = [tools / "ptxas", f"-arch={architecture}", "-v", source, "-o", tmp_path / "code"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert told.count("0 bytes stack frame") == 1


def test_gpus_of_one_kind_share_what_is_compiled(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each loads the machine code for itself."""
    kinds = {0: (9, 0), 1: (9, 0), 2: (8, 6)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", kinds.get)
    add = CudaKernel("triton_add", SOURCE)
    for device in (0, 1, 2):
        add.prepare(device, True)
    assert [request.architecture for request in machine.compiled] == [90, 86]
    assert [device for device, *_ in machine.loaded] == [0, 1, 2]


LOOPS = """# group group [i0<s0]
#   size s0 in [0, 2147483647]
#   read in0: f32[]
#   write out0: f32[]
#   stage
#     t0 = load in0[i0]
#     t1 = add t0, f32(1.0)
#     store out0[i0] = t1
"""


def source(key: str) -> TritonSource:
    return replace(SOURCE, key=key, text=f"\n{LOOPS}source")


def test_what_does_not_compile_or_fit_is_named_and_runs_eagerly(machine: SimpleNamespace) -> None:
    machine.refuses = {"triton_add": "ValueError: no such type"}
    x, y = torch.ones(64), torch.zeros(64)
    add = CudaKernel("triton_add", source("refused")).launcher()
    with pytest.warns(RuntimeWarning, match="kernel triton_add eagerly"):
        add(x, y, 64, 1)
    assert torch.equal(y, x + 1)
    add(y, x, 64, 1)  # It is said once.
    assert torch.equal(x, y + 1)
    reason = "triton_add for sm_90: ValueError: no such type"
    assert eager_kernels.why_eager("refused") == reason
    machine.refuses, machine.scratch = {}, 128
    with pytest.warns(RuntimeWarning, match="triton_add needs memory"):
        CudaKernel("triton_add", source("scratch")).launcher()(x, y, 64, 1)
    machine.scratch, machine.shared = 0, machine.room + 1
    with pytest.warns(RuntimeWarning, match="bytes of shared memory of 232448 on GPU -1"):
        CudaKernel("triton_large", source("shared")).launcher()(x, y, 64, 1)
    assert machine.driver.launched == []


def test_what_the_driver_refuses_is_named_and_runs_eagerly(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any) -> int:
        raise cuda_driver.DriverRefused("out of memory (CUDA error 2)")

    x, y = torch.ones(64), torch.zeros(64)
    monkeypatch.setattr(cuda_driver, "load", refuses)
    with pytest.warns(RuntimeWarning, match="CUDA error 2"):
        CudaKernel("triton_add", source("load")).launcher()(x, y, 64, 1)
    assert torch.equal(y, x + 1)
    monkeypatch.setattr(cuda_driver, "shared_bytes", refuses)
    (add,) = cuda.load_kernels({"triton_add": source("room")})
    assert eager_kernels.why_eager("room") == "out of memory (CUDA error 2)"
    add(y, x, 64, 1)
    assert torch.equal(x, y + 1)
    assert machine.driver.launched == []


def test_kernels_are_compiled_together_when_they_are_loaded(machine: SimpleNamespace) -> None:
    sources = {f"k{number}": source(f"{number}") for number in range(5)}
    loaded = cuda.load_kernels(sources)
    assert len(machine.compiled) == 5 and machine.loaded == []
    assert cuda.load_kernels(sources) == loaded
    assert len(machine.compiled) == 5


@pytest.mark.filterwarnings("error")
def test_a_kernel_that_does_not_compile_leaves_the_others_as_they_are(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading tells of it by `why_eager`: whoever loads has the user's lines."""
    monkeypatch.setattr(torch_compat.cuda, "device", lambda: -1)  # where tensors of the CPU are
    machine.refuses = {"k1": "ValueError: no layout"}
    kernels = cuda.load_kernels({f"k{number}": source(f"own{number}") for number in range(3)})
    reasons = [eager_kernels.why_eager(f"own{number}") for number in range(3)]
    assert reasons == [None, "k1 for sm_90: ValueError: no layout", None]
    x, y = torch.ones(64), torch.zeros(64)
    for kernel in kernels:
        kernel(x, y, 64, 1)
    assert torch.equal(y, x + 1)
    assert len(machine.driver.launched) == 2


def test_without_a_gpu_loading_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(GpuKernelFailed, match="need a CUDA device"):
        cuda.load_kernels({"k": SOURCE})


def test_what_is_on_disk_is_not_compiled_again(machine: SimpleNamespace) -> None:
    CudaKernel("triton_add", SOURCE).prepare(0, True)
    again = CudaKernel("triton_add", SOURCE)
    assert again.prepare(0, True) == (0x11, 0x22, 128, 99, 1)
    assert len(machine.compiled) == 1
    again.prepare(0, False)
    CudaKernel("triton_sub", SOURCE).prepare(0, True)
    assert len(machine.compiled) == 3
