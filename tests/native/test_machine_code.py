"""Object code that is loaded without a linker: the same results as through LLVM's, and refusals of
files that are damaged.
"""

from __future__ import annotations

import gc
import random
import struct
from pathlib import Path

import pytest
import torch

import fusewright
from fusewright.native import CpuKernel, MachineCode, lacking_features
from fusewright.runtime.compiled import CompiledGraph
from fusewright.runtime.llvm_engine import MachineCodeCompiler, cpu_target
from fusewright.runtime.loader import load_module


def program(x: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """Tables of constants, functions of the C library, locals."""
    y = torch.softmax(torch.erf(x).tanh(), -1) + x.exp().log().sin().lgamma()
    return y.double() + torch.remainder(torch.pow(d, d), 2.0).cos()


@pytest.fixture(scope="module")
def graph() -> CompiledGraph:
    made = fusewright.compile(program, options={"strict": True})
    made(*inputs())
    (compilation,) = fusewright.compilations(made)
    assert isinstance(compilation.compiled, CompiledGraph)
    return compilation.compiled


@pytest.fixture(scope="module")
def file(graph: CompiledGraph) -> bytes:
    sources = {kernel.name: kernel.source for kernel in graph.record.kernels}
    return MachineCodeCompiler(cpu_target()).object_code(sources)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.rand(20, 30), torch.rand(30).double()


def test_it_computes_what_llvms_linker_gives(graph: CompiledGraph, file: bytes) -> None:
    module = load_module(graph.path.read_text(), {})
    (expected,) = module.call([*inputs()])
    code = MachineCode(file)
    for kernel in graph.record.kernels:
        counts = len(kernel.arguments), len(kernel.sizes)
        address = code.address(kernel.name)
        module.variables[kernel.name] = CpuKernel(address, *counts, kernel.name, code)
    del code
    gc.collect()  # the kernels keep the code
    (found,) = module.call([*inputs()])
    assert torch.equal(found, expected)  # type: ignore[arg-type]
    torch.testing.assert_close(found, program(*inputs()), rtol=1e-5, atol=1e-5)


def test_names_that_there_are_not(file: bytes) -> None:
    with pytest.raises(KeyError, match="other"):
        MachineCode(file).address("other")
    with pytest.raises(KeyError, match="fmod"):
        MachineCode(file).address("fmod")


def test_it_is_for_one_kind_of_processor(file: bytes) -> None:
    other = file[:18] + struct.pack("<H", 183) + file[20:]  # EM_AARCH64
    with pytest.raises(ValueError, match="for another processor"):
        MachineCode(other)


def test_what_it_calls_must_be_there(file: bytes) -> None:
    with pytest.raises(ValueError, match="calls fmoq, which this process lacks"):
        MachineCode(file.replace(b"fmod\0", b"fmoq\0"))


@pytest.mark.parametrize("size", [0, 3, 63, 64, 1000])
def test_a_truncated_file_is_refused(file: bytes, size: int) -> None:
    with pytest.raises(ValueError, match="damaged"):
        MachineCode(file[:size])


def test_damage_touches_no_memory_outside(file: bytes) -> None:
    """Whatever a header, symbol or relocation says: it is refused or loaded, and nothing is run."""
    generator = random.Random(0)
    sections = struct.unpack_from("<Q", file, 40)[0]
    refused = 0
    for _ in range(3000):
        damaged = bytearray(file)
        for _ in range(generator.choice([1, 1, 4])):
            near = generator.choice([(0, 64), (sections, len(file)), (0, len(file))])
            place = generator.randrange(*near)
            damaged[place] = generator.choice(
                [0, 255, damaged[place] ^ 1 << generator.randrange(8)]
            )
        try:
            MachineCode(bytes(damaged))
        except ValueError:
            refused += 1
    assert refused > 500


def test_features_of_processors() -> None:
    assert lacking_features(("no such feature",)) == ["no such feature"]
    flags = Path("/proc/cpuinfo").read_text()
    for name in ("avx2", "fma", "avx512f", "avx512vl"):
        assert (lacking_features((name,)) == []) == (f" {name} " in flags)
