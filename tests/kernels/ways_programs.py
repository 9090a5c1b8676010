"""Reductions for which there are several ways, and what each way's names are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.kernels import KernelLanguage
from fusewright.pipeline import compile_graph
from fusewright.runtime.compiled import CompiledGraph

Tensor = torch.Tensor

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "row sums": (lambda x: x.sum(-1) * 2 + 1, (3, 8192)),
    "one sum": (lambda x: (x * x).sum(), (3, 8192)),
    "column sums": (lambda x: x.sum(0), (8192, 6)),
    "softmax": (lambda x: torch.softmax(x, -1), (2, 8192)),
    "several": (lambda x: ((x + 1).sum(-1), (x + 1).amax(-1)), (2, 16384)),
    "centred": (lambda x: x - x.mean(-1, keepdim=True), (2, 8192)),
    "uneven": (lambda x: x.exp().sum(-1), (3, 8191)),
    "short rows": (lambda x: torch.log_softmax(x, -1), (5, 1100)),
}


def compiled(name: str, multi_kernel: str, language: KernelLanguage | None = None) -> CompiledGraph:
    function, size = PROGRAMS[name]
    options = Options(multi_kernel=multi_kernel, multi_kernel_cache=False, verify=True, strict=True)
    module = fx.symbolic_trace(lambda x: _as_tuple(function(x)))
    with torch.no_grad():
        return compile_graph(module, [torch.randn(size)], CompileContext(options=options), language)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def check(name: str, graph: CompiledGraph) -> None:
    """The results are those of double precision."""
    function, size = PROGRAMS[name]
    x = torch.randn(size)
    expected = _as_tuple(function(x.double()))
    for found, wanted in zip(graph(x), expected, strict=True):
        torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-4)
