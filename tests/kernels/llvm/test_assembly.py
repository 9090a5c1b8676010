"""The machine code of kernels for AVX2: vector arithmetic in every one, those of whole models
included; calls only where needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import fx, nn

from fusewright import api
from fusewright.aot import trace_inference
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.group import Group, Reduce
from fusewright.ir.value import Apply
from fusewright.kernels import define_kernels
from fusewright.kernels.analysis import stage_values
from fusewright.lower import lower
from fusewright.runtime.llvm_engine import MachineCodeCompiler, cpu_target
from fusewright.schedule import schedule
from tests.capture import transformers_models as models
from tests.kernels.llvm.harness import assembly
from tests.kernels.llvm.test_groups import EMBEDDING, reduce_columns, reduce_rows, softmax

ARITHMETIC = re.compile(
    r"\bv(add|sub|mul|div|max|min|cmp\w*|sqrt|fn?m(add|sub)\d+)p[sd]\s.*%ymm"
    r"|\bvp(add|max|min|cmpgt)[bwdq]\s.*%ymm"
)
MOVES = re.compile(r"\bvmov[au]p[sd]\s.*%ymm")
"""All that an embedding does."""


def pointwise(operation: str) -> str:
    return f"""group line [i0<1000]
  read x: f32[1000]
  write y: f32[1000]
  stage
    t0 = load x[i0]
    t1 = {operation} t0
    store y[i0] = t1
"""


KERNELS = {
    "softmax": softmax("128"),
    "softmax_any_size": softmax("s0", "\n  size s0 in [2, 100000]"),
    "sum_rows": reduce_rows("sum", 7, 500),
    "sum_short_rows": reduce_rows("sum", 7, 25),
    "sum_columns": reduce_columns("sum", 7, 500),
    "max_rows": reduce_rows("max", 7, 500),
    "argmax_rows": reduce_rows("argmax", 7, 500, "i64"),
    **{name: pointwise(name) for name in ("exp", "log", "tanh", "erf", "sin", "sqrt", "sigmoid")},
}


@pytest.mark.parametrize("name", KERNELS)
def test_arithmetic_is_on_vectors(name: str) -> None:
    text = assembly(KERNELS[name], cpu_target("avx2"))
    assert ARITHMETIC.search(text), text


def test_rows_are_copied_by_vectors() -> None:
    text = assembly(EMBEDDING, cpu_target("avx2"))
    assert MOVES.search(text), text


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid"])
def test_common_functions_are_inlined(name: str) -> None:
    """In whole vectors; the tail may call a function of the module."""
    text = assembly(KERNELS[name].replace("1000", "1024"), cpu_target("avx2"))
    assert "call" not in text, text


def test_wide_vectors_where_the_processor_has_them() -> None:
    assert "%zmm" in assembly(KERNELS["softmax"], cpu_target("avx512"))


@pytest.mark.parametrize("width", ["avx2", "avx512"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_half_types_need_no_function_of_the_c_compiler(dtype: str, width: str) -> None:
    """Where values of them live in one block of code and are used in another."""
    text = f"""group sum [i0<1000]
  read x: {dtype}[]
  read y: {dtype}[1000]
  write z: {dtype}[1000]
  write w: bool[1000]
  stage
    t0 = load x[0]
    t1 = cast t0: f32
    t2 = exp t1
    t3 = cast t2: {dtype}
    t4 = load y[i0]
    t5 = cast t4: bool
    t6 = where t5, t3, t4
    store z[i0] = t6
    store w[i0] = t5
"""
    assert not re.search(r"__\w+(hf|bf)", assembly(text, cpu_target(width)))


# Whole models ------------------------------------------------------------------------------------


def perceptron() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Blocks as in the benchmark, of a width that leaves a tail."""
    layers = (nn.Linear(36, 72), nn.GELU(), nn.Linear(72, 36), nn.LayerNorm(36))
    return nn.Sequential(*layers), {"input": torch.randn(12, 36)}


MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, torch.Tensor]]]] = {
    "perceptron": perceptron,
    "BertForMaskedLM": models.bert,
    "GPT2LMHeadModel": models.gpt2,
    "ResNetModel": models.resnet,
    "LlamaForCausalLM": models.llama,
    "T5ForConditionalGeneration": models.t5,
    "ViTModel": models.vit,
    "ConvNextModel": models.convnext,
}
"""Small versions of the models that are benchmarked."""


def kernels_of(module: nn.Module, inputs: dict[str, torch.Tensor]) -> Iterator[tuple[Group, str]]:
    """Each group of a model whose structure is new, and its LLVM IR for AVX2."""
    found: list[tuple[Group, str]] = []

    def backend(graph_module: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        context = CompileContext(options=Options(kernel_target="avx2"))
        plan = schedule(lower(trace_inference(graph_module, examples, context), context), context)
        kernels = define_kernels(plan, context)
        sources = {kernel.name: kernel.source for kernel in kernels.definitions}
        for position, launch in kernels.launches.items():
            group = plan.works[position]
            if isinstance(group, Group) and launch.kernel in sources:
                found.append((group, sources.pop(launch.kernel)))
        return graph_module.forward

    with torch.no_grad():
        api.compile(module.eval(), backend=backend, fullgraph=True)(**inputs)
    return iter(found)


def computes(group: Group) -> bool:
    """Whether a group does more than move elements."""
    return any(
        isinstance(value, Apply) for stage in group.stages for value in stage_values(stage)
    ) or any(isinstance(action, Reduce) for stage in group.stages for action in stage.actions)


@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_models_are_on_vectors(name: str) -> None:
    compiler = MachineCodeCompiler(cpu_target("avx2"))
    checked = 0
    for group, source in kernels_of(*MODELS[name]()):
        text = compiler.assembly({"kernel": source})
        wanted = ARITHMETIC if computes(group) else MOVES
        assert wanted.search(text), f"{group.name}\n{source}\n{text}"
        checked += 1
    assert checked
