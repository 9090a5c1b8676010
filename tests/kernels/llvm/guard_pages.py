"""Generated kernels between guard pages, in memory full of garbage: whether one touches what lies
outside of its buffers, or reads what was never written.

    python -m tests.kernels.llvm.guard_pages [sizes] [operators] [models] [--all] [--part K/N]
        [--targets auto,avx2,neon,scalar] [--only NAME]

`sizes`: small programs on rows of every length up to two vectors and one element, of every dtype,
lengths known and symbolic; `operators`: torch's operator samples; `models`: those that are
benchmarked, trained too. Each for the vectors of every kind of processor. Without `--all` a sample
of each. Prints each fault and each result that is not eager's, then what ran. Each kernel runs
twice, once up to each guard page.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F

import fusewright
import fusewright.generation  # Else a first compilation imports it, and keeps a replaced function.
from benchmarks import models
from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import FusewrightError, Unsupported
from fusewright.pipeline import compile_graph
from fusewright.runtime import llvm_engine
from fusewright.runtime.guard_pages import STATISTICS, MemoryFault
from fusewright.runtime.memory_checks import GARBAGE, GUARD_PAGES
from tests.lower.support import graph_of
from tests.operators.samples import compare, database, examples, name_of

Tensor = torch.Tensor

TARGETS = ("auto", "avx2", "neon", "scalar")
"""`auto` is this machine: 16 lanes of 32 bits where it has AVX-512, 8 with AVX2."""

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)


# Programs of a row length -------------------------------------------------------------------------


def indices(x: Tensor) -> Tensor:
    """Places in the rows of x, last first."""
    return torch.arange(x.shape[-1] - 1, -1, -1)


def narrow(x: Tensor) -> Tensor:
    """x in the range of every type."""
    return x.clamp(0, 90)


def normalized(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)).clamp(0, 90).to(torch.uint8)


def scattered(x: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(1, indices(x).expand(x.shape), x)


def written_in_part(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1:] = x[:, :-1]
    y[-1] = 3
    return y


def pooled_gradients(x: Tensor) -> tuple[Tensor, ...]:
    aten, window = torch.ops.aten, ([3, 3], [2, 2], [1, 1])
    largest, places = F.max_pool2d(x[None], 3, 2, 1, return_indices=True)
    mean = F.avg_pool2d(x[None], 3, 2, 1)
    return (
        aten.max_pool2d_with_indices_backward(largest, x[None], *window, [1, 1], False, places),
        aten.avg_pool2d_backward(mean, x[None], *window, False, True, None),
    )


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "conversions": lambda x: tuple(narrow(x + x).to(dtype) for dtype in DTYPES),
    "narrow conversions": lambda x: (narrow(x + x).to(torch.uint8), narrow(x).to(torch.int16)),
    "comparisons": lambda x: (x > 1, x == x.flip(1), x.to(torch.bool)),
    "exp": lambda x: x.exp() + x.tanh(),
    "integer exp": lambda x: torch.exp(x.to(torch.int64)),
    "softmax": lambda x: x.softmax(-1),
    "softmax to bytes": lambda x: (x.float().softmax(-1) * 100).to(torch.uint8),
    "normalized to bytes": normalized,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "batch statistics": lambda x: (x - x.mean(0)) / (x.var(0) + 1).sqrt(),
    "var and mean": lambda x: (*torch.var_mean(x, 1), x.sum(), x.sum(1).to(torch.int8)),
    "sum of columns": lambda x: (x.sum(0), x.amax(0), x.t().sum(1)),
    "extremes": lambda x: (x.amax(1), x.argmax(1), x.argmin(0), x.amin()),
    "any and all": lambda x: ((x > 1).any(1), (x > 1).all(0), (x != 0).sum(1)),
    "prod": lambda x: narrow(x).prod(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "cumsum": lambda x: (x.cumsum(1), x.cumsum(0)),
    "turned": lambda x: (x.t().contiguous(), x.t() + x.t().flip(0), x.t().to(torch.int8)),
    "turned square": lambda x: x[:, None, :].expand(-1, x.shape[1], -1).transpose(1, 2) + 1,
    "flip": lambda x: (x.flip(1), x.roll(1, 1), x.flip(0).to(torch.float16)),
    "cat": lambda x: torch.cat([x, x + 1, x[:, :1]], 1),
    "stack": lambda x: torch.stack([x, x * 2], -1),
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 3), value=1) + 1),
    "select": lambda x: (x[:, indices(x)], x.index_select(1, indices(x)) + 1),
    "gather": lambda x: x.gather(1, indices(x).expand(x.shape)) + 1,
    "embedding": lambda x: F.embedding(indices(x), torch.ones(4096, 5)) * 2,
    "scatter_add": scattered,
    "written in part": written_in_part,
    "strided": lambda x: (x[:, ::2] + 1, x[:, 1:] + x[:, :-1], x[1:, -1:] + 1),
    "triangles": lambda x: (x.tril() + 1, x.triu(1).to(torch.uint8)),
    "where": lambda x: torch.where(x > 1, x, x[:, :1]),
    "outer": lambda x: (x[0][:, None] * x[1][None, :], x[0][:, None] + x[1]),
    "kron": lambda x: torch.kron(x, x[:, :2]),
    "max_pool": lambda x: F.max_pool1d(x[None], 2, 1, 1)[0] + 1,
    "avg_pool": lambda x: F.avg_pool1d(x[None], 3, 1, 1)[0] + 1,
    "pooled": lambda x: (F.max_pool2d(x[None], (2, 3), 2, 1), F.avg_pool2d(x[None], 3, 3, 1)),
    "pooled with places": lambda x: F.max_pool2d(x[None], 3, 2, 1, return_indices=True),
    "pooled gradients": pooled_gradients,
    "every few": lambda x: (x[:, ::3] + 1, x[:, 1::4] * 2, x[:, ::2] + x[:, -1:]),
    "upsampled": lambda x: F.interpolate(x[None], scale_factor=2)[0] + 1,
    "resampled": lambda x: F.interpolate(x[None], scale_factor=1.7, mode="linear") + 1,
    "resampled both ways": lambda x: F.interpolate(x[None, None], size=(9, 40), mode="bilinear"),
    "unfold": lambda x: x.unfold(1, 1, 1).sum(-1) + x,
    "diff": lambda x: x.diff(dim=1) * 2,
    "cosine": lambda x: F.cosine_similarity(x, x.flip(1), dim=1),
    "repeated": lambda x: (x.repeat(2, 2) + 1, x.repeat_interleave(2, 1)),
    "products": lambda x: (x @ x.t(), x.t() @ x, x[:1] @ x.t(), x.repeat(7, 1) @ x.t().relu()),
    "batched products": lambda x: torch.bmm(x.expand(2, -1, -1), x.t().expand(2, -1, -1)),
    "one row": lambda x: (x[0] + 1, narrow(x[0]).to(torch.int8), x[0].sum()),
    "in place": lambda x: x.mul_(2).add_(1),
}
"""Functions of x[3, n]."""


# What runs ----------------------------------------------------------------------------------------


@dataclass
class Case:
    """Something to compile and run for one target."""

    name: str
    target: str
    run: Callable[[], None]
    """Raises MemoryFault; AssertionError where the results differ from eager's; Refused."""


class Refused(Exception):
    """Eager does not run this case, or nothing is compiled."""


OUTCOMES: tuple[tuple[type[Exception], str], ...] = (
    (MemoryFault, "faults"),
    (AssertionError, "results that differ"),
    (Refused, "refused"),
    (Unsupported, "refused"),
    (Exception, "failures"),
)


@dataclass
class Report:
    """What ran, and what came of it."""

    launches: int = 0
    checked_bytes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def add(self, case: Case) -> None:
        """Run a case."""
        launches, checked_bytes = STATISTICS.launches, STATISTICS.checked_bytes
        outcome = "cases that pass"
        try:
            with guarded(case.target):
                case.run()
        except Exception as error:
            outcome = next(name for kind, name in OUTCOMES if isinstance(error, kind))
            if outcome != "refused":
                text = str(error) if outcome == "faults" else " ".join(str(error).split())[:200]
                self.complaints.append(
                    f"{outcome}: {case.name} for {case.target}: {type(error).__name__}: {text}"
                )
        self.outcomes[outcome] += 1
        self.launches += STATISTICS.launches - launches
        self.checked_bytes += STATISTICS.checked_bytes - checked_bytes

    def __str__(self) -> str:
        counts = dict.fromkeys(("cases that pass", *(name for _, name in OUTCOMES)), 0)
        rows = ", ".join(f"{n} {name}" for name, n in (counts | self.outcomes).items())
        return f"{self.launches} kernels run, {self.checked_bytes} bytes checked, {rows}"


@contextmanager
def guarded(target: str) -> Iterator[None]:
    """Kernels that are loaded meanwhile run between guard pages; AVX2's without the instructions of
    this machine that go beyond it.
    """
    machine = llvm_engine.cpu_target("avx2" if target == "avx2" else "auto")
    variables = {GUARD_PAGES: "both", GARBAGE: "1"}
    with (
        mock.patch.dict(os.environ, variables),
        mock.patch.object(llvm_engine, "cpu_target", lambda name="auto": machine),
    ):
        yield


def operand(dtype: torch.dtype, *size: int) -> Tensor:
    """Small numbers of all kinds, without special values."""
    generator = torch.Generator().manual_seed(sum(size))
    if dtype.is_floating_point:
        return torch.randn(size, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 5, size, generator=generator).to(dtype)


def eager(program: Callable[[Tensor], Any], x: Tensor) -> Any:
    """What eager gives. Refused: it raises."""
    try:
        return program(x.clone())
    except Exception as error:
        raise Refused from error


def run_program(program: Callable[[Tensor], Any], x: Tensor, target: str) -> None:
    """Compiled for x alone, against eager."""
    wanted = eager(program, x)
    module, tensors = graph_of(program, (x.clone(),), {})
    context = CompileContext(Options(kernel_target=target))
    found = compile_graph(module, tensors, context)(*tensors)
    compare(found, wanted, program, (x,), {}, x.dtype)


def run_symbolic(program: Callable[[Tensor], Any], inputs: Sequence[Tensor], target: str) -> None:
    """Compiled for rows of any length, as far as its guards allow."""
    wanted = [eager(program, x) for x in inputs]
    options = {"kernel_target": target, "strict": True, "recompile_limit": 100}
    compiled = fusewright.compile(program, dynamic=True, fullgraph=True, options=options)
    for x, result in zip(inputs, wanted, strict=True):
        compare(compiled(x.clone()), result, program, (x,), {}, x.dtype)


def run_samples(info: Any, dtype: torch.dtype, target: str, count: int) -> None:
    """Samples of one operator, each a graph of its own."""
    for args, kwargs, wanted in examples(info, dtype, count):
        module, tensors = graph_of(info.op, args, kwargs)
        try:
            compiled = compile_graph(module, tensors, CompileContext(Options(kernel_target=target)))
        except FusewrightError:  # The sweep of operators tells why.
            continue
        compare(compiled(*tensors), wanted, info.op, args, kwargs, dtype)


def run_model(name: str, target: str, trains: bool) -> None:
    """One of the models that are benchmarked, forward and back."""
    module, inputs = models.build(name)
    options = {"kernel_target": target, "strict": True}
    compiled = fusewright.compile(module, options=options)
    with torch.set_grad_enabled(trains):
        results = models.tensors_of(compiled(**inputs))
    assert all(bool(result.isfinite().all()) for result in results)
    if trains:
        sum(result.float().square().mean() for result in results).backward()
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        assert gradients and all(bool(gradient.isfinite().all()) for gradient in gradients)


def size_cases(targets: Sequence[str], everything: bool) -> Iterator[Case]:
    """Rows of every length, for each program and dtype."""
    dtypes = DTYPES if everything else (torch.float32, torch.uint8)
    for target, (name, program), dtype in itertools.product(targets, PROGRAMS.items(), dtypes):
        lanes = llvm_engine.cpu_target(target).lanes(32)
        lengths = {1, lanes + 1, 17 * lanes + 1}
        if everything:
            lengths |= {*range(1, 2 * lanes + 2), 4 * lanes + 1, 8 * lanes - 1}
        inputs = [operand(dtype, 3, length) for length in sorted(lengths)]
        for x in inputs:
            run = partial(run_program, program, x, target)
            yield Case(f"{name} of {dtype} [3, {x.shape[1]}]", target, run)
        run = partial(run_symbolic, program, inputs[1:], target)
        yield Case(f"{name} of {dtype} [3, n]", target, run)


def operator_cases(targets: Sequence[str], everything: bool) -> Iterator[Case]:
    """Samples of torch's operators."""
    for number, info in enumerate(database()):
        dtypes = [dtype for dtype in DTYPES if dtype in info.dtypes]
        if not everything:
            dtypes = dtypes[number % 40 :][:1]
        for dtype, target in itertools.product(dtypes, targets):
            run = partial(run_samples, info, dtype, target, 6 if everything else 2)
            yield Case(f"{name_of(info)} of {dtype}", target, run)


def model_cases(targets: Sequence[str], everything: bool) -> Iterator[Case]:
    names = [*models.MODELS] if everything else ["perceptron", "BertForMaskedLM"]
    for name, target, trains in itertools.product(names, targets, (False, True)):
        title = f"{name}, {'trained' if trains else 'inference'}"
        yield Case(title, target, partial(run_model, name, target, trains))


KINDS: dict[str, Callable[[Sequence[str], bool], Iterator[Case]]] = {
    "sizes": size_cases,
    "operators": operator_cases,
    "models": model_cases,
}


def cases(kinds: Sequence[str], targets: Sequence[str], everything: bool = False) -> Iterator[Case]:
    for kind in kinds:
        yield from KINDS[kind](targets, everything)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[*KINDS])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--part", default="1/1", help="every N-th case, from the K-th")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--only", default="", help="cases whose names hold this")
    options = parser.parse_args()
    first, parts = map(int, options.part.split("/"))
    warnings.simplefilter("ignore")
    torch.set_num_threads(3)
    report, start, told = Report(), time.monotonic(), 0
    every = cases(options.kinds, options.targets.split(","), options.all)
    for case in itertools.islice(every, first - 1, None, parts):
        if options.only in case.name:
            report.add(case)
            for complaint in report.complaints[told:]:
                print(complaint, flush=True)
            told = len(report.complaints)
    print(f"{report}; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
