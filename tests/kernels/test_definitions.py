"""Kernels are shared by structure, and their machine code by all that decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import UnsupportedOperator
from fusewright.ir.group import Group
from fusewright.ir.index import Index
from fusewright.ir.kernel import CpuFacts, Kernel, TritonFacts
from fusewright.ir.lines import CallKernel, DefineKernel, Return
from fusewright.ir.origin import Origin
from fusewright.ir.parse import parse_program
from fusewright.kernels import KernelLanguage, Languages, Work, define_kernels
from fusewright.records import replace
from fusewright.runtime.cpu import KernelSource, load_kernels
from fusewright.runtime.targets import load_kernels as load_any_kernels
from fusewright.runtime.targets import register_loader
from fusewright.schedule import schedule
from fusewright.wrapper import emit_python

PROGRAM = """
program twice(x: f32[100])
  a: f32[100] = pointwise [i0<100]
    t0 = load x[i0]
    t1 = exp t0
    yield t1
  b: f32[100] = extern aten.frac.default(a)
  c: f32[100] = pointwise [i0<100]
    t0 = load b[i0]
    t1 = exp t0
    yield t1
  return b, c
"""


def definitions(target: str) -> tuple[Kernel, ...]:
    context = CompileContext(options=Options(kernel_target=target))
    return define_kernels(schedule(parse_program(PROGRAM), context), context).definitions


def source_of(kernel: Kernel) -> KernelSource:
    return KernelSource(
        language=kernel.language, key=kernel.key, tensors=2, sizes=0, text=kernel.source
    )


def test_groups_of_one_structure_are_one_kernel() -> None:
    context = CompileContext(options=Options(kernel_target="avx2"))
    kernels = define_kernels(schedule(parse_program(PROGRAM), context), context)
    assert (len(kernels.definitions), len(kernels.launches)) == (1, 2)


TWO_DEVICES = """
program both(x: f32[100], y: f32[100] on cuda:0, z: f32[100] on cuda:1)
  a: f32[100] = pointwise [i0<100]
    t0 = load x[i0]
    t1 = exp t0
    yield t1
  b: f32[100] on cuda:0 = pointwise [i0<100]
    t0 = load y[i0]
    t1 = exp t0
    yield t1
  c: f32[100] on cuda:1 = pointwise [i0<100]
    t0 = load z[i0]
    t1 = exp t0
    yield t1
  return a, b, c
"""


def test_each_group_is_written_for_its_device() -> None:
    context = CompileContext(options=Options(kernel_target="avx2", verify=True))
    kernels = define_kernels(schedule(parse_program(TWO_DEVICES), context), context)
    assert [kernel.language for kernel in kernels.definitions] == ["cpu", "triton"]
    assert [type(kernel.facts) for kernel in kernels.definitions] == [CpuFacts, TritonFacts]
    on_cpu, on_gpu = (kernel.name for kernel in kernels.definitions)
    assert [launch.kernel for launch in kernels.launches.values()] == [on_cpu, on_gpu, on_gpu]
    source = kernels.definitions[1].source
    assert source.startswith("# group ") and "\nimport triton\n" in source


def test_a_device_without_a_target_is_named() -> None:
    context = CompileContext()
    planned = schedule(parse_program(TWO_DEVICES.replace("cuda:1", "tpu:1")), context)
    with pytest.raises(UnsupportedOperator, match="tensors on tpu:1"):
        define_kernels(planned, context)


def test_machine_code_for_one_target_is_not_taken_for_another() -> None:
    targets = ("scalar", "avx2")
    kernels = [definitions(target)[0] for target in targets]
    assert len({kernel.name for kernel in kernels}) == 2
    assert len({kernel.source for kernel in kernels}) == len({k.key for k in kernels}) == 2
    assert definitions("avx2")[0].key == kernels[1].key
    loaded = [load_kernels({kernel.name: source_of(kernel)})[0] for kernel in kernels]
    assert loaded[0] is not loaded[1]
    assert load_kernels({kernels[1].name: source_of(kernels[1])}) == (loaded[1],)


def test_every_launch_tells_its_own_origins() -> None:
    context = CompileContext(options=Options())
    planned = schedule(parse_program(PROGRAM), context)

    def origin(line: int) -> Origin:
        return Origin("aten.exp.default", "model.py", line)

    steps = tuple(
        replace(step, work=replace(step.work, origins=(origin(number),)))
        if isinstance(step.work, Group)
        else step
        for number, step in enumerate(planned.steps)
    )
    kernels = define_kernels(replace(planned, steps=steps), context)
    assert len(kernels.definitions) == 1
    assert [launch.origins[0].line for launch in kernels.launches.values()] == [0, 2]
    lines = [
        *(DefineKernel(kernel=kernel) for kernel in kernels.definitions),
        *(CallKernel(launch=launch) for launch in kernels.launches.values()),
    ]
    body = emit_python("graph", (*lines, Return(outputs=()))).partition("def call")[2]
    rows = [row.strip() for row in body.splitlines()]
    for number in (0, 2):
        place = rows.index(f"# aten.exp.default at model.py:{number}")
        assert rows[place + 1].startswith(kernels.definitions[0].name)


def test_the_key_of_a_kernel_covers_its_facts() -> None:
    def written(grain: int) -> Kernel:
        def write(*_: object) -> tuple[str, Work]:
            return "source", Work(Index((), 100), CpuFacts(grain=grain))

        language = KernelLanguage(name="test", write=write, load=lambda sources: ())
        context = CompileContext(options=Options())
        planned = schedule(parse_program(PROGRAM), context)
        return define_kernels(planned, context, Languages(context.options, language)).definitions[0]

    assert [written(grain).facts for grain in (1, 64)] == [CpuFacts(grain=g) for g in (1, 64)]
    assert written(1).key != written(64).key
    assert written(1).key == written(1).key


def test_a_module_may_hold_kernels_of_several_languages() -> None:
    def load(sources: Mapping[str, KernelSource]) -> tuple[Callable[..., Any], ...]:
        asked.append(list(sources))
        return tuple(source.text.upper for source in sources.values())

    asked: list[list[str]] = []
    register_loader("letters", load)
    own = definitions("scalar")[0]
    letters = [KernelSource(language="letters", key="", tensors=0, sizes=0, text=t) for t in "ab"]
    sources = {"first": letters[0], own.name: source_of(own), "last": letters[1]}
    first, kernel, last = load_any_kernels(sources)
    assert (first(), last()) == ("A", "B")
    assert kernel is load_kernels({own.name: source_of(own)})[0]
    assert asked == [["first", "last"]]
