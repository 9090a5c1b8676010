"""Decompositions give what eager gives where no sample of torch's asks: statistics of batch norm,
their types and layouts.
"""

from __future__ import annotations

import pytest
import torch
from torch import fx

import fusewright
from fusewright.aot import interpreter, trace_inference, with_results
from fusewright.context import CompileContext


@pytest.mark.parametrize("parameters", [torch.float32, torch.float16], ids=str)
def test_statistics_saved_by_batch_norm_have_the_type_of_eager(parameters: torch.dtype) -> None:
    x = torch.randn(4, 3, 5).half()
    weight, bias, mean = (torch.randn(3).to(parameters) for _ in range(3))
    graph = fx.Graph()
    inputs = [graph.placeholder(name) for name in ("x", "weight", "bias", "mean", "variance")]
    graph.output(graph.call_function(torch.native_batch_norm, (*inputs, True, 0.1, 1e-5)))
    module = fx.GraphModule({}, graph)
    given = [x, weight, bias, mean, mean.abs() + 1]
    traced = trace_inference(module, given, CompileContext())
    found = with_results(traced, interpreter(traced))([one.clone() for one in given])
    torch.testing.assert_close(found, module(*given), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("order", [(1, 0), (0, 2, 1), (0, 3, 2, 1), (0, 3, 1, 2), (0, 4, 1, 2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_batch_norm_lays_out_its_result_as_eager(
    dtype: torch.dtype, order: tuple[int, ...], training: bool
) -> None:
    x = torch.randn(4, 5, 6, 7, 3)[(0,) * (5 - len(order))].permute(order).to(dtype)
    statistics = [torch.zeros(x.shape[1]), torch.ones(x.shape[1])]

    def normalised(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, mean, variance, training=training)

    graph = trace_inference(fx.symbolic_trace(normalised), [x, *statistics], CompileContext())
    found = with_results(graph, interpreter(graph))([x, *statistics])
    assert found.stride() == normalised(x, *statistics).stride()


def test_a_number_that_batching_converts() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda row: row[1] - 0.1 * row.sum())(x)

    x = torch.randn(4, 3)
    found = fusewright.compile(program, options={"strict": True})(x)
    torch.testing.assert_close(found, program(x))
