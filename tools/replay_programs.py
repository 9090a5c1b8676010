"""The programs whose generated code `tools.replay` keeps, and how that code is generated without
loading or running a kernel.

`CORPORA` has three kinds of program: the models of the benchmark, for inference and training; the
operators of torch's sample database, with their gradients; and the programs of golden cases.
"""

from __future__ import annotations

import functools
import logging
import random
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy
import torch
from torch import fx

import fusewright
from benchmarks.models import MODELS, build
from benchmarks.training import build_with_loss
from fusewright.aot import (
    min_cut_rematerialization_partition,
    needs_gradients,
    trace_inference,
    trace_training,
)
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import FusewrightError
from fusewright.ir.forms import print_lines
from fusewright.ir.parse import parse_program
from fusewright.ir.text import print_schedule
from fusewright.ir.text_kernels import print_kernel
from fusewright.kernels import KernelLanguage, Languages, define_kernels, llvm, triton
from fusewright.logs import logger_of
from fusewright.pipeline import compile_aten
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.targets import register_loader
from fusewright.schedule import schedule
from fusewright.wrapper import generate_lines, plan_memory
from tests.golden import Case, read_cases
from tests.lower.support import graph_of
from tests.operators.samples import database, name_of, samples

Generate = Callable[[KernelLanguage], str]
"""Generates a program's code, with kernels in a language."""

TARGET: Final = "avx2"
"""The processor that kernels are written for, whatever this machine's is."""

OPTIONS: Final = Options(kernel_target=TARGET, multi_kernel="off", graph_cache=False)
CHANNELS: Final = ("loops", "wrapper")
"""Channels of the log on which the compiler tells what it generates; sources of kernels stand in
the wrapper.
"""

TESTS: Final = Path(__file__).parents[1] / "tests"
CASES: Final = (
    *sorted((TESTS / "schedule" / "cases").glob("*.txt")),
    TESTS / "kernels" / "triton" / "cases" / "sources.txt",
)
"""Files of golden cases whose inputs are programs."""

DTYPES: Final = (torch.float32, torch.int64, torch.bool, torch.complex64)
"""Operators are tried in the first of these that they take."""

REFUSALS: Final = (FusewrightError, RuntimeError)
"""How the compiler, and torch where it traces, refuse a program; anything else is a defect."""

SAMPLES: Final = 3
"""How many samples of an operator are tried."""


def _load_nothing(sources: Mapping[str, Any]) -> tuple[Callable[..., Any], ...]:
    """Kernels that do nothing, one a source."""
    return tuple(lambda *arguments: None for _ in sources)


LANGUAGES: Final = {
    "cpu": KernelLanguage(
        name="replay",
        write=functools.partial(llvm.write, target=cpu_target(TARGET)),
        load=_load_nothing,
        target=TARGET,
    ),
    "triton": KernelLanguage(
        name="replay", write=triton.write_work, load=_load_nothing, limits=triton.LIMITS
    ),
}
"""What kernels may be written in. None is ever loaded."""

register_loader("replay", _load_nothing)


# -- generating code ------------------------------------------------------------------------------


def code_of_graph(
    module: fx.GraphModule, inputs: Sequence[Any], language: KernelLanguage
) -> Iterator[str]:
    """What is generated for a captured graph, and for its gradient where an input requires one."""
    context = CompileContext(OPTIONS)
    if not needs_gradients(module, inputs):
        yield code_of(
            lambda: compile_aten(trace_inference(module, inputs, context), context, language)
        )
        return
    joint = trace_training(module, inputs, context)
    partition = min_cut_rematerialization_partition(joint, OPTIONS.memory_budget)
    for half in (partition.forward, partition.backward):
        yield code_of(functools.partial(compile_aten, half, CompileContext(OPTIONS), language))


def code_of(compile_something: Callable[[], object]) -> str:
    """What the compiler generates while `compile_something` runs."""
    with collected(CHANNELS) as texts:
        compile_something()
    return "\n".join(texts)


@contextmanager
def collected(channels: Sequence[str]) -> Iterator[list[str]]:
    """The texts that are logged on these channels in the `with` block."""
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logger_of(channel) for channel in channels]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield texts
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def code_of_program(text: str, language: KernelLanguage) -> str:
    """What is generated for a `Program` given by its text."""
    context = CompileContext(OPTIONS)
    languages = Languages(OPTIONS, language)
    program = parse_program(text)
    planned = schedule(program, context, languages.limits_of)
    kernels = define_kernels(planned, context, languages)
    lines = generate_lines(planned, kernels.definitions, kernels.launches)
    parts = [print_schedule(planned), *map(print_kernel, kernels.definitions)]
    return "\n".join([*parts, print_lines(plan_memory(lines, program.hints))])


def without_places(text: str) -> str:
    """`text` without the folders of files, numbers of lines, and addresses of objects."""
    text = re.sub(r"(?<![\w/])(?:/[\w.+-]+)+/([\w.+-]+\.py)(?::\d+)?", r"\1", text)
    return re.sub(r"(?<= at )0x[0-9a-f]+", "0x…", text)


# -- the programs ---------------------------------------------------------------------------------


def models() -> dict[str, Generate]:
    """The models of the benchmark, for inference, and for training with dropout."""
    return {
        f"{name}.{mode}": functools.partial(_code_of_model, name, mode)
        for name in MODELS
        for mode in ("inference", "training")
    }


def _code_of_model(name: str, mode: str, language: KernelLanguage) -> str:
    is_training = mode == "training"
    module, inputs = build_with_loss(name, "on") if is_training else build(name)
    texts: list[str] = []

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        texts.extend(code_of_graph(graph, examples, language))
        return graph.forward

    compiled = fusewright.compile(module, backend=backend, fullgraph=True)
    with torch.set_grad_enabled(is_training):
        compiled(**inputs)
    return "\n".join(texts)


def operators() -> dict[str, Generate]:
    """The operators of torch's sample database, each with its gradient where it has one."""
    return {
        name_of(info): functools.partial(_code_of_operator, info)
        for info in database()
        if any(dtype in info.dtypes for dtype in DTYPES)
        and not info.name.startswith("jiterator")  # functions in C++, for a GPU alone
    }


def _code_of_operator(info: Any, language: KernelLanguage) -> str:
    dtype = next(dtype for dtype in DTYPES if dtype in info.dtypes)
    random.seed(0)
    numpy.random.seed(0)
    texts: list[str] = []
    for arguments, keywords in samples(info, dtype, SAMPLES):
        module, tensors = graph_of(info.op, arguments, keywords)
        for requires_grad in (False, True) if dtype in _gradients(info) else (False,):
            texts.append(f"sample with gradient {requires_grad}")
            texts.append(_code_or_refusal(module, tensors, requires_grad, language))
    return "\n".join(texts)


def _gradients(info: Any) -> set[torch.dtype]:
    """In which types eager differentiates an operator."""
    return info.supported_backward_dtypes("cpu") if info.supports_autograd else set()


def _code_or_refusal(
    module: fx.GraphModule,
    tensors: Sequence[torch.Tensor],
    requires_grad: bool,
    language: KernelLanguage,
) -> str:
    """What is generated for one sample, or why nothing is."""
    inputs = [
        tensor.detach().requires_grad_(requires_grad and tensor.is_floating_point())
        for tensor in tensors
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "\n".join(code_of_graph(module, inputs, language))
    except REFUSALS as error:
        return f"{type(error).__name__}: {error}"


def goldens() -> dict[str, Generate]:
    """The programs of golden cases."""
    return {
        f"{path.stem}/{case.name.replace('/', ' over ')}": functools.partial(_code_of_case, case)
        for path in CASES
        for case in read_cases(path)
    }


def _code_of_case(case: Case, language: KernelLanguage) -> str:
    return code_of_program(case.input, language)


CORPORA: Final[dict[str, Callable[[], dict[str, Generate]]]] = {
    "models": models,
    "samples": operators,
    "goldens": goldens,
}
"""Programs by name, of each kind."""
