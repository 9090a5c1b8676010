"""Kernels are shared by structure, and their machine code by all that decides it."""

from __future__ import annotations

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.kernel import Kernel
from fusewright.ir.parse import parse_program
from fusewright.kernels import define_kernels
from fusewright.runtime.cpu import KernelSource, load_kernels
from fusewright.schedule import schedule

PROGRAM = """
program twice(x: f32[100], y: f32[100])
  a: f32[100] = pointwise [i0<100]
    t0 = load x[i0]
    t1 = exp t0
    yield t1
  b: f32[10] = extern aten.slice.Tensor(a, 0, 0, 10)
  c: f32[100] = pointwise [i0<100]
    t0 = load y[i0]
    t1 = exp t0
    yield t1
  return b, c
"""


def definitions(target: str) -> tuple[Kernel, ...]:
    context = CompileContext(options=Options(kernel_target=target))
    return define_kernels(schedule(parse_program(PROGRAM), context), context).definitions


def source_of(kernel: Kernel) -> KernelSource:
    return KernelSource(
        device=kernel.device, key=kernel.key, tensors=2, sizes=0, text=kernel.source
    )


def test_groups_of_one_structure_are_one_kernel() -> None:
    assert len(definitions("avx2")) == 1


def test_machine_code_for_one_target_is_not_taken_for_another() -> None:
    targets = ("scalar", "avx2")
    kernels = [definitions(target)[0] for target in targets]
    assert len({kernel.name for kernel in kernels}) == 2
    assert len({kernel.source for kernel in kernels}) == len({k.key for k in kernels}) == 2
    assert definitions("avx2")[0].key == kernels[1].key
    loaded = [load_kernels({kernel.name: source_of(kernel)})[0] for kernel in kernels]
    assert loaded[0] is not loaded[1]
    assert load_kernels({kernels[1].name: source_of(kernels[1])}) == (loaded[1],)
