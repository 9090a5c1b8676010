"""Kernels that run eagerly, from the loops above their source: what they give is what programs
mean, and what whole functions give in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import fusewright
from fusewright.backends.torch_dynamo import kernel_backend
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import BackendCompilerFailed
from fusewright.ir.parse import parse_program
from fusewright.ir.program import CallOperator, Program
from fusewright.kernels import KernelLanguage, Languages, define_kernels
from fusewright.kernels.triton import LIMITS, write_work
from fusewright.runtime import eager_kernels
from fusewright.runtime.cuda import TritonSource
from fusewright.runtime.eager_kernels import eager_kernel
from fusewright.runtime.loader import load_module
from fusewright.schedule import schedule
from fusewright.wrapper import emit_python, generate_lines, plan_memory
from tests.golden import Case
from tests.gpu.programs import DIFFERENTIABLE, PROGRAMS
from tests.gpu.support import agree, gradients
from tests.kernels.triton import agreement
from tests.schedule.programs import programs

CPU = torch.device("cpu")
NAME = "eager_kernels"


def load(sources: Mapping[str, TritonSource]) -> tuple[Callable[..., Any], ...]:
    """Triton kernels, none of which is compiled."""
    return tuple(
        eager_kernel(source.text, tuple(source.signature), source.tensors, source.launches)
        for source in sources.values()
    )


LANGUAGE = KernelLanguage(name=NAME, write=write_work, load=load, limits=LIMITS)
fusewright.register_backend(kernel_backend(LANGUAGE), name=NAME)


def run(
    text: str,
    inputs: Sequence[torch.Tensor],
    folder: Path,
    *,
    sizes: dict[str, int] | None = None,
    persistent: bool | None = None,
) -> list[torch.Tensor]:
    """The outputs of a program, its groups evaluated; `folder` and `persistent` are for others."""
    context = CompileContext(options=Options(verify=True))
    program = parse_program(text)
    languages = Languages(context.options, LANGUAGE)
    planned = schedule(program, context, languages.limits_of)
    kernels = define_kernels(planned, context, languages)
    lines = generate_lines(planned, kernels.definitions, kernels.launches)
    module = load_module(emit_python(program.name, plan_memory(lines, program.hints)), {})
    results: Any = module.call([*(sizes or {}).values(), *inputs])
    return list(results)


ON_CPU = [case for case in agreement.RUN_CASES if "on cuda" not in case.input]


@pytest.mark.parametrize("case", ON_CPU, ids=lambda case: case.name)
def test_every_kind_of_body(case: Case, tmp_path: Path) -> None:
    agreement.check_case(run, case, tmp_path, None)


def test_an_index_out_of_range_raises(tmp_path: Path) -> None:
    with pytest.raises(IndexError, match="leaves"):
        agreement.embedding_out_of_range(run, tmp_path)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(st.booleans().flatmap(lambda symbolic: programs(symbolic=symbolic)))
def test_random_programs(tmp_path: Path, program: Program) -> None:
    assume(not any(isinstance(statement, CallOperator) for statement in program.statements))
    agreement.check_random_program(run, program, tmp_path, False)


SHORT = [name for name, case in PROGRAMS.items() if not case.long]


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_function(name: str, dynamic: bool) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    function = PROGRAMS[name].function
    compiled = fusewright.compile(
        function, backend=NAME, dynamic=dynamic, options={"strict": True, "verify": True}
    )
    with torch.no_grad():
        agree(compiled(*inputs), function(*inputs))


@pytest.mark.parametrize("name", [name for name in SHORT if name in DIFFERENTIABLE][::3])
def test_the_gradient_of_a_function(name: str) -> None:
    inputs = PROGRAMS[name].inputs(CPU)
    compiled = fusewright.compile(
        PROGRAMS[name].function, backend=NAME, fullgraph=True, options={"strict": True}
    )
    agree(gradients(compiled, inputs), gradients(PROGRAMS[name].function, inputs), factor=4)


def fails(sources: Mapping[str, TritonSource]) -> tuple[Callable[..., Any], ...]:
    """Kernels of which those with a sum do not compile."""
    for name, source in sources.items():
        if "sum" in name:
            eager_kernels.run_eagerly(source.key, f"{name}: there is no layout")
    return load(sources)


FAILING = KernelLanguage(name="refusing", write=write_work, load=fails, limits=LIMITS)
fusewright.register_backend(kernel_backend(FAILING), name=FAILING.name)


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x + 1).tanh() @ y).sum()


def test_a_kernel_that_does_not_compile_is_told_with_its_line() -> None:
    x, y = torch.randn(4, 8), torch.randn(8, 3)
    compiled = fusewright.compile(function, backend=FAILING.name)
    with pytest.warns(RuntimeWarning, match="eagerly, from aten.sum") as told:
        agree(compiled(x, y), function(x, y))
    (warning,) = told
    assert f"{Path(__file__).name}:{function.__code__.co_firstlineno + 1}" in str(warning.message)
    assert "there is no layout" in str(warning.message)


def test_under_strict_a_kernel_that_does_not_compile_is_an_error() -> None:
    compiled = fusewright.compile(function, backend=FAILING.name, options={"strict": True})
    with pytest.raises(BackendCompilerFailed, match=r"(?s)load.*there is no layout.*aten.sum"):
        compiled(torch.randn(4, 8), torch.randn(8, 3))
