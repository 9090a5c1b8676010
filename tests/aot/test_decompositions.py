"""Decompositions give what eager gives, on torch's own samples of each operator."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import fx
from torch.testing._internal.common_methods_invocations import op_db

import fusewright
from fusewright.aot import interpreter, trace_inference, with_results
from fusewright.context import CompileContext

SAMPLED = [
    "split",
    "split_with_sizes",
    "unbind",
    "nn.functional.logsigmoid",
    "logaddexp2",
    "nan_to_num",
    "heaviside",
    "logit",
    "sinc",
    "special.entr",
    "nn.functional.rrelu",
    "aminmax",
    "count_nonzero",
    "nn.functional.mse_loss",
    "nn.functional.smooth_l1_loss",
    "nn.functional.huber_loss",
    "nn.functional.binary_cross_entropy",
    "nn.functional.soft_margin_loss",
    "nn.functional.nll_loss",
    "nn.functional.batch_norm",
    "index_fill",
    "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle",
    "arange",
    "nn.functional.cross_entropy",
]
SAMPLES_EACH = 12

DIFFERENCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Relative, and absolute near 1: some eager kernels round to bfloat16 in the middle, a
decomposition only at the end.
"""

UNCONDITIONAL = frozenset(
    {
        torch.ops.aten.split.Tensor,
        torch.ops.aten.unbind.int,
        torch.ops.aten.log_sigmoid_forward.default,
    }
)
"""Operators that never stay."""


def _leaves(value: Any) -> list[torch.Tensor]:
    flat = value if isinstance(value, (tuple, list)) else (value,)
    return [one for one in flat if isinstance(one, torch.Tensor)]


def _module_calling(function: Any, sample: Any) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """A graph of one call, each tensor argument an input."""
    graph = fx.Graph()
    tensors: list[torch.Tensor] = []

    def argument(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return graph.placeholder(f"x{len(tensors)}")
        if isinstance(value, (tuple, list)):
            return type(value)(argument(one) for one in value)
        return value

    args = argument((sample.input, *sample.args))
    kwargs = {name: argument(value) for name, value in sample.kwargs.items()}
    graph.output(graph.call_function(function, args, kwargs))
    return fx.GraphModule({}, graph), tensors


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SAMPLED)
def test_equals_eager(name: str, dtype: torch.dtype) -> None:
    operator = next(op for op in op_db if op.name == name and not op.variant_test_name)
    if dtype not in operator.dtypes:
        pytest.skip(f"eager {name} does not take {dtype} on the CPU")
    checked = 0
    for sample in itertools.islice(operator.sample_inputs("cpu", dtype), SAMPLES_EACH):
        if sample.kwargs.get("training"):
            continue  # rrelu is random then; training batch norm has a test of its own
        module, tensors = _module_calling(operator.op, sample)
        expected = _leaves(operator.op(sample.input, *sample.args, **sample.kwargs))
        graph = trace_inference(module, tensors, CompileContext())
        given = with_results(graph, interpreter(graph))(list(tensors))
        assert not {node.target for node in graph.graph.nodes} & UNCONDITIONAL
        for one, other in zip(_leaves(given), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=DIFFERENCE[dtype], atol=DIFFERENCE[dtype])
            assert one.stride() == other.stride()
        checked += 1
    assert checked


def test_a_number_that_batching_converts() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(lambda row: row[1] - 0.1 * row.sum())(x)

    x = torch.randn(4, 3)
    found = fusewright.compile(program, options={"strict": True})(x)
    torch.testing.assert_close(found, program(x))
