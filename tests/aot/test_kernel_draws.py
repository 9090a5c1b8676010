"""The operator of which kernels on a GPU make their draws: where it runs as it is, it gives the
same numbers. What graphs on a GPU do with it: `tests.gpu.pretended.dropout`.
"""

from __future__ import annotations

import pytest
import torch

import fusewright
from fusewright import philox
from fusewright.aot import trace_inference
from fusewright.aot.kernel_draws import uniform_operator
from fusewright.context import CompileContext


def test_the_operator_gives_philox_of_places_in_row_major_order() -> None:
    seed = torch.tensor(-(1 << 60))
    drawn = uniform_operator()(seed, (3, 5))
    assert drawn.is_contiguous() and drawn.dtype is torch.float32
    assert torch.equal(drawn.flatten(), philox.uniform(seed, torch.arange(15)))
    assert uniform_operator()(seed, (2, 0)).shape == (2, 0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_for_the_cpu_it_is_a_call(dynamic: bool) -> None:
    draw = uniform_operator()

    def f(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return (draw(seed, x.shape) >= 0.5) * x

    compiled = fusewright.compile(f, dynamic=dynamic, options={"strict": True})
    for size in (7, 4):
        x, seed = torch.randn(3, size), torch.tensor(size)
        with torch.no_grad():
            assert torch.equal(compiled(x, seed), f(x, seed))


@pytest.mark.parametrize("train", [True, None])
def test_the_cpus_dropout_is_left_alone(train: bool | None) -> None:
    class Dropout(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.native_dropout(x, 0.5, train)[0]

    module = torch.fx.symbolic_trace(Dropout())
    graph = trace_inference(module, [torch.randn(3)], CompileContext())
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.native_dropout.default in targets
