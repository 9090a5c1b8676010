"""Programs traced to ATen compute what eager computes, and leave memory as eager leaves it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.nn import functional as F

from fusewright.aot import (
    AtenGraph,
    interpreter,
    trace_inference,
    trace_training,
    with_results,
)
from fusewright.backends.shape_environment import EnvironmentSizes
from fusewright.context import CompileContext
from fusewright.errors import Location, Unsupported
from fusewright.fake import FakeMode

aten = torch.ops.aten


def graph_of(function: Callable[..., Any], *examples: Any) -> AtenGraph:
    return trace_inference(fx.symbolic_trace(function), list(examples), CompileContext())


def operators(graph: AtenGraph) -> list[str]:
    return [
        node.target.overloadpacket.__name__
        for node in graph.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "overloadpacket")
    ]


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [leaf for one in value for leaf in tensors(one)] if isinstance(value, (tuple, list)) else []
    )


def memory(values: list[torch.Tensor]) -> list[tuple[int, int]]:
    """For each tensor the first of the list that shares its storage, and where in it the tensor
    begins.
    """
    keys = [value.untyped_storage()._cdata for value in values]
    return [
        (keys.index(key), value.storage_offset()) for key, value in zip(keys, values, strict=True)
    ]


def check(
    function: Callable[..., Any], *examples: Any, views: Any = None, tolerance: float = 0
) -> AtenGraph:
    """Trace on `examples`, run on copies, compare values, strides, written inputs, and who shares
    memory with whom.

    `views` makes further inputs from the copies, so that inputs can alias.
    """

    def inputs() -> list[Any]:
        copies = copy.deepcopy(list(examples))
        return copies if views is None else copies + list(views(*copies))

    eager, compiled = inputs(), inputs()
    module = fx.symbolic_trace(function)
    graph = trace_inference(module, inputs(), CompileContext())
    call = with_results(graph, interpreter(graph))
    for _ in range(2):  # written inputs carry over
        expected = module(*eager)
        given = call(list(compiled))
        for one, other in zip(tensors(given), tensors(expected), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance, equal_nan=True)
            assert one.stride() == other.stride()
        for one, other in zip(tensors(compiled), tensors(eager), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=tolerance, equal_nan=True)
        assert memory(tensors(compiled) + tensors(given)) == memory(
            tensors(eager) + tensors(expected)
        )
    for node in graph.graph.nodes:
        assert node.target is not aten.copy_.default
    graph.graph.lint()
    return graph


# -- no mutation ----------------------------------------------------------------------------------


def test_composite_operators_are_taken_apart() -> None:
    graph = check(
        lambda x, w, b: (F.gelu(F.linear(x, w, b)),),
        torch.randn(4, 3),
        torch.randn(5, 3),
        torch.randn(5),
    )
    assert operators(graph) == ["t", "addmm", "gelu"]


def test_nothing_to_do_around_the_compiled_graph_costs_nothing() -> None:
    graph = graph_of(lambda x, y: (x + y, x * y), torch.randn(3), torch.randn(3))

    def compiled(inputs: list[Any]) -> tuple[Any, ...]:
        return ()

    assert with_results(graph, compiled) is compiled


def test_nested_results() -> None:
    check(lambda x: {"a": [x + 1, (x * 2, 3)], "b": None}, torch.randn(2))


def test_a_single_result() -> None:
    check(lambda x: x.exp(), torch.randn(2))


@pytest.mark.parametrize("size", [(), (0,), (2, 0, 3), (1, 1)])
def test_small_and_empty(size: tuple[int, ...]) -> None:
    check(lambda x: (x + 1, x.sum(), x.reshape(-1), (x * 2).unsqueeze(0)), torch.randn(size))


def test_a_scalar_constant_is_a_filled_tensor() -> None:
    captured = fx.Graph()
    x = captured.placeholder("x")
    captured.output(
        captured.call_function(torch.add, (x, captured.call_function(torch.tensor, (2.5,))))
    )
    graph = trace_inference(fx.GraphModule({}, captured), [torch.randn(3)], CompileContext())
    assert operators(graph) == ["full", "add"] and not graph.constants
    (result,) = interpreter(graph)([torch.zeros(3)])
    assert result.tolist() == [2.5] * 3


def test_an_array_constant_is_kept() -> None:
    graph = check(lambda x: x + ARRAY, torch.randn(3))
    assert [tensor is ARRAY for tensor in graph.constants.values()] == [True]


ARRAY = torch.tensor([1.0, 2.0, 3.0])


def test_the_same_computation_is_done_once() -> None:
    graph = check(lambda x: (x.exp() + x.exp(),), torch.randn(3))
    assert operators(graph) == ["exp", "add"]


def test_equal_results_have_memory_of_their_own() -> None:
    check(lambda x: (x.exp(), x.exp()), torch.randn(3))


def test_random_numbers_are_drawn_each_time_they_are_asked_for() -> None:
    graph = graph_of(lambda x: torch.rand_like(x) - torch.rand_like(x), torch.randn(3))
    assert operators(graph).count("rand_like") == 2


def test_unread_work_is_dropped() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.exp()
        return x + 1

    assert operators(check(program, torch.randn(3))) == ["add"]


def test_views_of_equal_results_have_memory_of_their_own() -> None:
    check(lambda x: (x.exp().view(-1), x.exp()), torch.randn(3, 2))


# -- results that alias ---------------------------------------------------------------------------


def test_results_that_are_inputs_or_views_of_them() -> None:
    graph = check(
        lambda x, y: (x, x.t(), y[1:], x[0, 1], y.view(-1)), torch.randn(3, 3), torch.randn(4, 2)
    )
    assert not graph.outputs


def test_results_that_show_an_input_as_another_type() -> None:
    check(lambda x: (x.real, x[1:].imag, torch.view_as_real(x)), torch.randn(3, 2) + 1j)
    check(lambda x: (x[1:].view(torch.int32), torch.view_as_complex(x[1:])), torch.randn(3, 2))


def test_results_that_view_one_another() -> None:
    check(lambda x: (x + 1).chunk(2), torch.randn(4, 2))


def test_one_view_of_an_intermediate() -> None:
    check(lambda x: ((x + 1).t(),), torch.randn(2, 3))


def test_the_same_tensor_twice() -> None:
    graph = graph_of(lambda x: (lambda y: (y, y))(x + 1), torch.randn(3))
    one, other = with_results(graph, interpreter(graph))([torch.randn(3)])
    assert one is other


def test_a_view_of_an_input_that_begins_elsewhere() -> None:
    """Where an input begins in its storage is not guarded; views are made relative to it."""
    base = torch.randn(10)
    graph = graph_of(lambda x: x[1:], base[:4])
    given = base[3:7]
    (result,) = tensors(with_results(graph, interpreter(graph))([given]))
    assert torch.equal(result, given[1:]) and result.storage_offset() == 4


# -- mutation -------------------------------------------------------------------------------------


def write_rows(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0].zero_()
    y[1:].add_(1)
    return y.sum(0)


def write_through_many_views(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.t()[1].view(-1)[::2].mul_(3)
    y.unsqueeze(0).transpose(0, 1).squeeze().diagonal().fill_(7)
    y.permute(1, 0)[0].add_(y.expand(4, 4)[1])
    return y


def read_an_old_view(x: torch.Tensor) -> Any:
    y = x + 0
    first = y[0]
    before = first * 1
    y.add_(1)
    return before, first + 0, first


def write_twice(x: torch.Tensor) -> Any:
    x.add_(1)
    y = x * 2
    x.mul_(y)
    return y, x


def swap(x: torch.Tensor, y: torch.Tensor) -> None:
    kept = y.clone()
    y.copy_(x)
    x.copy_(kept)


def convert_and_broadcast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(y > 0)
    x[1:].copy_(y[0])
    return x + y


def fill(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    y.copy_(x)
    y.clamp_(0, 1).neg_()
    return y


def write_with_out(x: torch.Tensor) -> torch.Tensor:
    result = torch.empty(4, 4)
    torch.add(x, x, out=result)
    return result * 2


def accumulate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.index_put_((torch.arange(2),), y[:2], accumulate=True)
    x.masked_fill_(x > 0.5, 0.0)
    return x.relu_().sum()


@pytest.mark.parametrize(
    "program",
    [write_rows, write_through_many_views, read_an_old_view, write_twice, fill, write_with_out],
)
def test_mutation(program: Callable[..., Any]) -> None:
    check(program, torch.randn(4, 4))


@pytest.mark.parametrize("program", [swap, convert_and_broadcast, accumulate])
def test_mutation_of_two_inputs(program: Callable[..., Any]) -> None:
    check(program, torch.randn(4, 4), torch.randn(4, 4))


def test_a_written_input_is_an_output() -> None:
    graph = check(lambda x, y: (y.add_(x),), torch.randn(2), torch.randn(2))
    assert graph.mutated_inputs == (1,)


def test_changing_sizes_in_place() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.t_()
        y[0].zero_()
        return y.unsqueeze_(0) * 2

    check(program, torch.randn(2, 3))


def test_inputs_that_alias() -> None:
    def program(x: torch.Tensor, row: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
        row.add_(1)
        x.mul_(2)
        return row + same[2]

    check(program, torch.randn(4, 4), views=lambda x: (x[1], x))


def test_inputs_that_alias_and_are_only_read() -> None:
    graph = check(lambda x, y: (x + y,), torch.randn(4), views=lambda x: (x,))
    assert not graph.bases


def test_training_batch_norm_updates_its_statistics() -> None:
    check(
        lambda x, m, v: F.batch_norm(x, m, v, training=True),
        torch.randn(4, 3, 5),
        torch.zeros(3),
        torch.ones(3),
        tolerance=1e-6,
    )


def test_a_sequence_of_writes_to_unrelated_tensors_keeps_values_apart() -> None:
    def program(x: torch.Tensor) -> Any:
        y = torch.zeros(3)
        y.copy_(x)
        z = y.clone()
        y.add_(1)
        return y, z, x

    check(program, torch.randn(3))


# -- errors ---------------------------------------------------------------------------------------


def test_what_cannot_be_traced_names_the_line() -> None:
    module = fx.symbolic_trace(lambda x: x.clone().resize_(2))
    for node in module.graph.nodes:
        node.meta["location"] = Location("model.py", 12, "x.clone().resize_(2)")
    with pytest.raises(Unsupported, match=r"model\.py:12"):
        trace_inference(module, [torch.randn(3)], CompileContext())


@pytest.mark.parametrize(
    ("program", "examples"),
    [
        (lambda x, y: x * y, [torch.eye(2).to_sparse(), torch.eye(2)]),
        (lambda x: x.mul(2), [torch.eye(2).to_sparse_csr()]),
        (lambda x, y: x.tensor_split(y), [torch.arange(6.0), torch.tensor([2, 4])]),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_sparse_inputs_and_sections_in_a_tensor_are_refused(
    program: Callable[..., Any], examples: list[Any], grad: bool
) -> None:
    leaves = [one.requires_grad_(grad and one.is_floating_point()) for one in examples]
    trace = trace_training if grad else trace_inference
    with pytest.raises(Unsupported, match=r"layout|reads the values"):
        trace(fx.symbolic_trace(program), leaves, CompileContext())


def test_errors_of_the_program_come_through() -> None:
    with pytest.raises(RuntimeError, match=r"size|broadcast"):
        graph_of(lambda x, y: x + y, torch.randn(2), torch.randn(3))


def test_gradients_are_off_and_stay_as_they_were() -> None:
    graph = graph_of(lambda x: x * 2, torch.randn(2, requires_grad=True))
    assert torch.is_grad_enabled() and operators(graph) == ["mul"]


def test_fakes_as_examples() -> None:
    mode = FakeMode()
    graph = graph_of(lambda x: x.exp(), mode.fake(torch.randn(3)))
    assert operators(graph) == ["exp"]


# -- dynamic sizes --------------------------------------------------------------------------------


def test_symbolic_sizes_are_computed_from_size_inputs() -> None:
    graphs: list[AtenGraph] = []

    def backend(module: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        sizes = EnvironmentSizes()
        fakes = [node.meta["example_value"] for node in module.graph.find_nodes(op="placeholder")]
        graph = trace_inference(module, [*map(sizes.example, fakes)], CompileContext())
        graphs.append(graph)
        run = with_results(graph, interpreter(graph))
        return lambda *inputs: run(list(inputs))

    @torch.compile(backend=backend, dynamic=True, fullgraph=True)
    def program(x: torch.Tensor) -> Any:
        rows, columns = x.shape
        half = rows // 2
        grid = torch.zeros(rows * columns, half + 1)
        return x.reshape(-1) * columns, grid + half, x[:half] @ x.t(), rows

    with torch.no_grad():
        for size in ((4, 6), (5, 7), (8, 3)):
            x = torch.randn(size)
            flat, grid, product, rows = program(x)
            assert rows == size[0] and grid.shape == (x.numel(), size[0] // 2 + 1)
            torch.testing.assert_close(flat, x.reshape(-1) * size[1])
            torch.testing.assert_close(product, x[: size[0] // 2] @ x.t())
    assert len(graphs) == 1
    placeholders = graphs[0].placeholders
    assert any(isinstance(node.meta["val"], torch.SymInt) for node in placeholders)
