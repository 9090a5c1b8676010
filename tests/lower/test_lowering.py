"""What lowering decides: what becomes memory, how results lie, and what is left to eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.ir.program import (
    BufferReference,
    CallOperator,
    ComputedBuffer,
    Reduction,
    Scatter,
    ViewReference,
)
from fusewright.ir.reference import evaluate
from fusewright.ir.text import print_program
from fusewright.lower import lower
from tests.lower.support import check, graph_of, lowered, program_on_gpu


def rows(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


# What becomes memory ------------------------------------------------------------------------------


def test_pointwise_chain_is_one_statement() -> None:
    result = check(lambda x: F.gelu(x * 2 + 1).relu() - 3, torch.randn(4, 5))
    assert result.computed == 1


def test_transcendental_value_with_two_readers_is_computed_once() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y / y.sum(-1, keepdim=True)

    result = check(function, torch.randn(4, 5))
    assert print_program(result.program).count("exp ") == 1


def test_cheap_value_with_two_readers_is_not_stored() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + w
        return y * 2, y.tanh()

    result = check(function, torch.randn(4), torch.randn(4))
    assert result.computed == 2


def test_value_needed_in_memory_anyway_is_computed_once() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y @ y, y * 2

    result = check(function, torch.randn(4, 4), externs=1)
    assert rows(print_program(result.program))[1].startswith("buf0: f32[4, 4] = pointwise")
    assert result.computed == 2


def test_broadcast_does_not_repeat_a_transcendental_function() -> None:
    result = check(lambda x, w: x * w.exp(), torch.randn(64, 8), torch.randn(8))
    first = result.program.statements[0]
    assert isinstance(first, ComputedBuffer)
    assert len(first.outputs[0].layout.size) == 1


def test_expression_limit() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = x * 1.5 + 1
        return x

    module, tensors = graph_of(function, (torch.randn(3),), {})
    from fusewright.aot import trace_inference

    context = CompileContext(options=Options(expression_limit=20))
    program = lower(trace_inference(module, tensors, context), context)
    assert len(program.statements) == 4


def test_unused_statistics_are_not_computed() -> None:
    result = check(lambda x: F.layer_norm(x, (8,)), torch.randn(4, 8))
    assert [type(s.body).__name__ for s in result.program.statements] == [
        "Reduction",
        "Reduction",
        "Pointwise",
        "Pointwise",
    ]


def test_half_types_are_not_rounded_between_operators() -> None:
    x = torch.randn(1000).bfloat16()
    result = lowered(lambda x: x * 1.01 * 1.01 * 1.01 * 1.01, x)
    assert print_program(result.program).count("cast") == 2
    exact = x.double() * 1.01**4
    assert (result.run().double() - exact).abs().max() <= exact.abs().max() * 2**-8


def test_written_conversion_to_a_half_type_rounds() -> None:
    check(lambda x: x.bfloat16().float() * 3, torch.randn(100))


# Results ------------------------------------------------------------------------------------------


def test_channels_last_stays_channels_last() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    result = check(lambda x: x.relu() + 1, x)
    assert result.run().is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1).t(),
        lambda x: (x + 1)[1:, ::2],
        lambda x: (x + 1).expand(2, 4, 6),
        lambda x: (x + 1).reshape(3, 8).t(),
        lambda x: (x + 1).t().reshape(-1),
        lambda x: (x + 1).diagonal(1),
        lambda x: (x + 1).unfold(1, 3, 2),
        lambda x: (x + 1).flip(0),
        lambda x: (x + 1).t().contiguous(),
    ],
)
def test_views_of_results_have_the_strides_of_eager(function: object) -> None:
    check(function, torch.randn(4, 6))


def test_results_never_share_memory_with_inputs() -> None:
    x = torch.randn(3, 4)
    result = check(lambda x: x.repeat(1, 1), x)
    (output,) = result.program.outputs
    assert isinstance(output, (BufferReference, ViewReference))
    assert output.name not in {buffer.name for buffer in result.program.inputs}


def test_input_views_are_free_for_library_calls() -> None:
    result = check(lambda x, w: x[1:].t() @ w.t(), torch.randn(5, 4), torch.randn(6, 4), externs=1)
    assert result.computed == 0


def test_numbers_and_several_results() -> None:
    check(lambda x: (x.shape[0], x + 1, [x * 2, None]), torch.randn(3))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1)])
def test_empty_and_scalar_tensors(shape: tuple[int, ...]) -> None:
    check(lambda x: (x * 2 + 1, x.sum(), x.exp().reshape(-1)), torch.randn(shape))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x, 1),
        lambda x: x.amax(0),
        lambda x: x.max(0),
        lambda x: x @ x.t(),
        lambda x: x.t().cumsum(0),
        lambda x: x.unsqueeze(0).roll(1, 1),
    ],
)
def test_operators_on_nothing(function: object) -> None:
    check(function, torch.randn(5, 0), externs=1)


def test_input_with_offset_and_gaps() -> None:
    base = torch.randn(10, 12)
    check(lambda x: (x.exp(), x.as_strided((2, 3), (5, 2), 7) + 1), base[2:8:2, 1:9:2], externs=1)


def test_inputs_that_the_program_writes_to() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        x.add_(y)
        return z + x

    x, y = torch.randn(4), torch.randn(4)
    expected_x = x.clone()
    expected = function(expected_x, y)
    result = lowered(function, x, y)
    torch.testing.assert_close(result.run(), expected)
    torch.testing.assert_close(x, expected_x)


# Numbers ------------------------------------------------------------------------------------------

SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.5])


@pytest.mark.parametrize(
    "function",
    [
        torch.relu,
        F.relu6,
        F.hardtanh,
        F.leaky_relu,
        F.elu,
        F.hardswish,
        F.hardsigmoid,
        F.softshrink,
        F.hardshrink,
        lambda x: x.clamp(-1, 1),
        pytest.param(
            lambda x: x.clamp(min=math.nan),
            marks=pytest.mark.skipif(
                not torch.ones(1).clamp(min=math.nan).isnan().item(),
                reason="eager ignores a NaN among the limits, as torch 2.11 does",
            ),
        ),
        lambda x: torch.maximum(x, x.flip(0)),
        lambda x: torch.fmax(x, x.flip(0)),
        lambda x: x.max(),
        lambda x: x.argmax(),
        lambda x: x.sign(),
        lambda x: x == x,
        lambda x: x.isnan() | x.isinf(),
        lambda x: torch.logaddexp(x, x.flip(0)),
        lambda x: torch.softmax(x[3:], 0),
        lambda x: torch.where(x > 0, x, -x),
        lambda x: x.bool(),
        lambda x: x.square().sqrt().reciprocal(),
    ],
)
def test_special_values(function: object) -> None:
    check(function, SPECIAL)


@pytest.mark.parametrize("order", [0, 1, 2, math.inf, -math.inf])
def test_the_norm_of_one_element_is_its_magnitude(order: float) -> None:
    x = torch.cat((SPECIAL, torch.tensor([1e30, -1e-30])))[None]
    check(lambda x: torch.linalg.vector_norm(x, order, dim=0), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda i: i / 2,
        lambda i: i // 3,
        lambda i: i % 3,
        lambda i: torch.fmod(i, 3),
        lambda i: i.div(4, rounding_mode="trunc"),
        lambda i: i + 1.5,
        lambda i: i > 1.5,
        lambda i: i.to(torch.int8) + 100,
        lambda i: i.to(torch.uint8) - 10,
        lambda i: i.bool() + i.bool(),
        lambda i: i.bool() * i.bool(),
        lambda i: ~i.bool(),
        lambda i: i.abs().sqrt(),
        lambda i: i << 2,
        lambda i: i * torch.tensor(2, dtype=torch.int8),
        lambda i: i.bool().sum(),
        lambda i: i.float().to(torch.int32),
        lambda i: i.sum(0, dtype=torch.float64),
    ],
)
def test_integers(function: object) -> None:
    check(function, torch.tensor([-7, -3, -1, 0, 2, 5, 11]))


def test_division_that_may_raise_stays_with_eager() -> None:
    result = lowered(lambda i, j: i // j, torch.tensor([4]), torch.tensor([0]))
    assert result.externs
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        result.run()


def test_index_out_of_range_is_an_error() -> None:
    result = lowered(F.embedding, torch.tensor([3]), torch.randn(3, 2))
    with pytest.raises(IndexError):
        result.run()


@pytest.mark.parametrize(("width", "strides"), [(8, " stride [11, 1, 99]"), (64, "")])
def test_short_rows_that_are_looked_up_lie_as_their_reader_goes(width: int, strides: str) -> None:
    """On a GPU, where threads beside each other read what lies beside each other."""

    def function(
        table: torch.Tensor, places: torch.Tensor, scores: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        bias = F.embedding(places, table).permute(2, 0, 1)
        return scores + bias, bias

    torch.manual_seed(0)
    tensors = torch.randn(5, width), torch.randint(0, 5, (9, 11)), torch.randn(2, width, 9, 11)
    program = program_on_gpu(function, *tensors)
    assert f": f32[9, 11, {width}]{strides} = " in print_program(program)
    for found, wanted in zip(evaluate(program, list(tensors)), function(*tensors), strict=True):
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()


def test_negative_indices_count_from_the_end() -> None:
    check(lambda x, i: x[i, 1:], torch.randn(4, 5), torch.tensor([[0, -1], [-4, 2]]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[:, i],
        lambda x, i: x[i, :, i],
        lambda x, i: x[:, i, i],
        lambda x, i: x[i[:, None], :, i],
        lambda x, i: x[None, i],
    ],
)
def test_where_the_indexed_dimensions_go(function: object) -> None:
    check(function, torch.randn(4, 5, 6), torch.tensor([1, 3, 0]))


def _put(x: torch.Tensor, indices: list[torch.Tensor | None], v: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.index_put(x, indices, v, True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, v: _put(x * 2, [i], v),
        lambda x, i, v: _put(x, [None, i], v[0, 0].sin()),
        lambda x, i, v: _put(x.t(), [i[:, None], i], v[:1, :1]),
        lambda x, i, v: _put(x.exp(), [i], x.exp()[:4]),
        lambda x, i, v: (_put(x + 1, [i], x[:4] + 1), x + 1),
        lambda x, i, v: _put(x[:, :2], [i, None], v[:, :2]),
        lambda x, i, v: _put(x.new_zeros(6), [i], v[0, :4]),
        lambda x, i, v: (lambda y: (_put(y, [i], v), _put(y.t(), [i], v), y[0]))(x @ x),
    ],
)
def test_rows_are_added_in_place(function: object) -> None:
    indices = torch.tensor([0, 3, 3, -1])
    result = check(function, torch.randn(6, 6), indices, torch.randn(4, 6), externs=1)
    scatters = [one for one in result.program.statements if isinstance(one, ComputedBuffer)]
    assert any(isinstance(one.body, Scatter) for one in scatters)


@pytest.mark.parametrize("scale", [2, 3.0, (1, 2)])
def test_repeating_neighbours(scale: object) -> None:
    check(lambda x: F.interpolate(x, scale_factor=scale, mode="nearest"), torch.randn(1, 2, 3, 4))


@pytest.mark.parametrize("size", [1, (2, 3), (4, 6)])
def test_means_of_windows(size: object) -> None:
    check(lambda x: F.adaptive_avg_pool2d(x, size), torch.randn(2, 3, 4, 6))


# Library calls ------------------------------------------------------------------------------------


def test_matrix_product_writes_into_planned_memory() -> None:
    result = check(
        lambda x, w, b: F.linear(x, w, b), *map(torch.randn, [(2, 3, 4), (5, 4), (5,)]), externs=1
    )
    (call,) = result.program.statements
    assert isinstance(call, CallOperator)
    assert call.out_operator == "aten.addmm.out"


def test_results_that_nobody_reads_have_no_buffer() -> None:
    result = check(lambda x: x.sort()[1], torch.randn(5), externs=1)
    (call,) = result.program.statements
    assert isinstance(call, CallOperator)
    assert call.results == (None, 0)


def test_view_operators_of_eager_alias_their_argument() -> None:
    result = check(lambda x: torch.view_as_complex(x + 1).abs(), torch.randn(3, 2), externs=2)
    view = next(
        s
        for s in result.program.statements
        if isinstance(s, CallOperator) and "view_as_complex" in s.operator
    )
    assert view.aliases == ((view.outputs[0].name, "buf0"),)


def test_complex_results_do_not_share_memory_with_inputs() -> None:
    check(lambda x: x.unsafe_split(2)[1], torch.randn(4, 3, dtype=torch.complex64), externs=1)


def test_complex_reshape_that_is_no_view() -> None:
    x = torch.randn(4, 3, dtype=torch.complex64)
    check(lambda x: x.t().reshape(2, 6), x, externs=None)


def test_library_calls_are_reported() -> None:
    module, tensors = graph_of(torch.linalg.inv, (torch.eye(3),), {})
    from fusewright.aot import trace_inference

    context = CompileContext()
    lower(trace_inference(module, tensors, context), context)
    assert ("extern", "aten.linalg_inv_ex.default") in {(e.kind, e.message) for e in context.notes}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_single_numbers_from_the_cpu_are_read_where_they_are_or_copied_once(
    dtype: torch.dtype,
) -> None:
    """Kernels of a GPU are given those of some types by value."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from fusewright.aot.graph import AtenGraph

    graph = torch.fx.Graph()
    with FakeTensorMode():
        values = torch.empty(4, device="cuda"), torch.empty((), dtype=dtype)
    x, scale = graph.placeholder("x"), graph.placeholder("scale")
    first = graph.call_function(torch.ops.aten.mul.Tensor, (x, scale))
    second = graph.call_function(torch.ops.aten.add.Tensor, (first, scale))
    graph.output((second,))
    for node, value in zip((x, scale, first, second), (*values, values[0], values[0]), strict=True):
        node.meta["val"] = value
    program = lower(AtenGraph(graph), CompileContext())
    *copies, body = program.statements
    operators = [copy.operator for copy in copies if isinstance(copy, CallOperator)]
    assert operators == ([] if dtype is torch.float32 else ["aten._to_copy.default"])
    assert isinstance(body, ComputedBuffer)
    assert body.outputs[0].layout.device.startswith("cuda")


def test_origins_name_every_operator_of_a_statement() -> None:
    result = lowered(lambda x: F.gelu(x + 1), torch.randn(3))
    (origins,) = result.program.origins.values()
    assert [origin.operator for origin in origins] == ["aten.add.Tensor", "aten.gelu.default"]


def test_every_reduction_is_a_statement_of_its_own() -> None:
    """Of a variance: the sum, and the squares and the sum of what is left of each element."""
    result = check(lambda x: x.var(0), torch.randn(5, 3))
    kinds = [s.body.kind for s in result.program.statements if isinstance(s.body, Reduction)]
    assert kinds == ["sum", "sum", "sum"]


def test_complex_results_are_laid_out_as_in_eager() -> None:
    x = torch.randn(5, 10, 5, dtype=torch.complex64)
    check(lambda x: torch.unsafe_chunk(x, 2, 1), x, externs=None)
    check(lambda x: (x * 2).transpose(0, 2)[:, 1:].contiguous(), x, externs=None)


def test_results_with_gaps_are_laid_out_as_in_eager() -> None:
    check(lambda x: torch.unsafe_chunk(x * 2, 2, 1), torch.randn(5, 10, 5), externs=2)
    check(lambda x: torch.unsafe_chunk(x.t() * 2, 2, 1)[0], torch.randn(6, 4), externs=1)
