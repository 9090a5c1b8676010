"""What is saved for backward and what is computed again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch import fx
from torch.nn import functional as F

from fusewright.aot import (
    JointGraph,
    Partition,
    default_partition,
    interpreter,
    min_cut_rematerialization_partition,
    trace_training,
    with_gradients,
)
from fusewright.aot.minimum_cut import UNLIMITED, FlowNetwork
from fusewright.context import CompileContext

aten = torch.ops.aten


def joint_of(program: Any, *inputs: Any) -> JointGraph:
    return trace_training(fx.symbolic_trace(program), list(inputs), CompileContext())


def operators(graph: fx.Graph) -> list[str]:
    return [
        str(node.target).split(".")[1]
        for node in graph.nodes
        if node.op == "call_function" and str(node.target).startswith("aten.")
    ]


def leaf(*size: int) -> torch.Tensor:
    return torch.randn(size, dtype=torch.float64).requires_grad_()


def check_gradients(program: Any, partition: Partition, *inputs: torch.Tensor) -> None:
    run = with_gradients(partition, interpreter(partition.forward), interpreter)
    torch.manual_seed(0)
    given = torch.autograd.grad(run(list(inputs)).sum(), inputs)
    torch.manual_seed(0)
    wanted = torch.autograd.grad(program(*inputs).sum(), inputs)
    torch.testing.assert_close(given, wanted)


# -- the cut --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_is_as_cheap_as_the_flow_of_another_solver(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randint(2, 30)
    capacities: dict[tuple[int, int], int] = {}
    for _ in range(draw.randint(0, 120)):
        tail, head = draw.randrange(count), draw.randrange(count)
        if tail != head:
            capacities[tail, head] = draw.choice([0, 1, 3, 10, 100])
    network = FlowNetwork()
    for _ in range(count):
        network.vertex()
    for (tail, head), capacity in capacities.items():
        network.edge(tail, head, capacity)
    near = network.source_side(0, count - 1)
    assert 0 in near and count - 1 not in near
    cut = sum(c for (tail, head), c in capacities.items() if tail in near and head not in near)
    rows, columns = zip(*capacities, strict=True) if capacities else ((), ())
    matrix = csr_array(
        (list(capacities.values()), (rows, columns)), shape=(count, count), dtype="int32"
    )
    assert cut == maximum_flow(matrix, 0, count - 1).flow_value


def test_there_may_be_no_cut() -> None:
    network = FlowNetwork()
    a, b = network.vertex(), network.vertex()
    network.edge(a, b, UNLIMITED)
    with pytest.raises(ValueError, match="no cut"):
        network.source_side(a, b)


def test_long_paths_need_no_recursion() -> None:
    network = FlowNetwork()
    vertices = [network.vertex() for _ in range(5000)]
    for tail, head in itertools.pairwise(vertices):
        network.edge(tail, head, 7 if tail != 4000 else 2)
    assert network.source_side(0, 4999) == set(range(4001))


# -- partitions -----------------------------------------------------------------------------------


def pointwise_chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin().exp().cos()


def test_the_default_saves_what_backward_reads() -> None:
    joint = joint_of(pointwise_chain, leaf(4, 4), leaf(4, 4))
    partition = default_partition(joint)
    assert partition.saved_bytes == 2 * 4 * 4 * 8  # mm and exp; x and w are inputs
    assert "exp" not in operators(partition.backward.graph)


def test_pointwise_values_are_computed_again() -> None:
    inputs = leaf(4, 4), leaf(4, 4)
    partition = min_cut_rematerialization_partition(joint_of(pointwise_chain, *inputs))
    assert partition.saved_bytes == 4 * 4 * 8  # mm
    assert "exp" in operators(partition.backward.graph)
    assert "mm" in operators(partition.forward.graph)
    check_gradients(pointwise_chain, partition, *inputs)


def test_what_a_library_call_reads_is_not_written_twice() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ w) @ v

    inputs = leaf(4, 5), leaf(5, 6), leaf(6, 7)
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    assert partition.saved_bytes == 2 * 4 * 6 * 8  # before and after gelu
    smaller = min_cut_rematerialization_partition(joint_of(program, *inputs), 0.5)
    assert smaller.saved_bytes == 4 * 6 * 8
    check_gradients(program, smaller, *inputs)


def test_checkpointed_regions_are_computed_again_from_what_enters_them() -> None:
    def program(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = F.dropout((x @ v).sin(), 0.5) @ w
        return x.exp()

    inputs = leaf(4, 4), leaf(4, 8), leaf(8, 4)
    module = fx.symbolic_trace(program)
    region_of = iter([1, 1, 1, 1, 2, 2, 2, 2])
    for node in list(module.graph.nodes)[3:-2]:
        node.meta["checkpoint"] = next(region_of)
    joint = trace_training(module, list(inputs), CompileContext())
    partition = min_cut_rematerialization_partition(joint)
    between, mask = 4 * 4 * 8, 4 * 8
    assert partition.saved_bytes == 2 * between + 2 * mask  # what leaves the regions, and the draws
    assert operators(partition.backward.graph).count("mm") == 2 * 4 + 2  # gradients; one a region
    check_gradients(program, partition, *inputs)


@pytest.mark.parametrize("rows", [3, 0])
def test_a_view_leaves_a_checkpointed_region_as_what_it_shows(rows: int) -> None:
    def program(x: torch.Tensor, v: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> Any:
        return F.linear(F.linear(x, v, b), w)

    inputs = leaf(rows, rows, 4), leaf(4, 4), leaf(4), leaf(0, 4)
    module = fx.symbolic_trace(program)
    list(module.graph.nodes)[4].meta["checkpoint"] = 1
    joint = trace_training(module, list(inputs), CompileContext())
    partition = min_cut_rematerialization_partition(joint)
    check_gradients(program, partition, *inputs)


@pytest.mark.parametrize("budget", [0.75, 0.5, 0.25, 0.0])
def test_budgets_are_kept_and_gradients_with_them(budget: float) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = F.layer_norm(F.gelu(x @ w), (6,)) + x
        return x

    inputs = leaf(4, 6), leaf(6, 6)
    joint = joint_of(program, *inputs)
    whole = min_cut_rematerialization_partition(joint)
    partition = min_cut_rematerialization_partition(joint, budget)
    assert partition.saved_bytes <= budget * whole.saved_bytes
    check_gradients(program, partition, *inputs)


def test_random_values_are_never_computed_again() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x.sin(), 0.5, True).exp()

    x = leaf(64)
    partition = min_cut_rematerialization_partition(joint_of(program, x), 0.0)
    assert "bernoulli" in operators(partition.forward.graph)
    assert "bernoulli" not in operators(partition.backward.graph)
    check_gradients(program, partition, x)


def test_a_budget_is_a_share() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        min_cut_rematerialization_partition(joint_of(lambda x: x.sin(), leaf(2)), 2.0)


def test_what_is_computed_again_stands_where_it_is_read() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return pointwise_chain(pointwise_chain(x, w), w)

    partition = min_cut_rematerialization_partition(joint_of(program, leaf(4, 4), leaf(4, 4)))
    names = operators(partition.backward.graph)
    assert names.count("exp") == 2
    last = len(names) - 1 - names[::-1].index("exp")
    assert "mm" in names[:last]  # the second layer's gradient comes first


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_pooling_saves_bytes_in_place_of_indices(format: torch.memory_format) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d((x * 2).sin(), 3, 2, 1)

    x = torch.randn(2, 3, 9, 10, dtype=torch.float64).to(memory_format=format).requires_grad_()
    joint = joint_of(program, x)
    partition = min_cut_rematerialization_partition(joint)
    assert partition.saved_bytes == 2 * 3 * 5 * 5
    check_gradients(program, partition, x)


def test_thresholds_save_truth_values() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.relu(x @ w), 0.5)

    inputs = (leaf(8, 8), leaf(8, 8))
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    assert partition.saved_bytes == 2 * 64  # where relu let through, and what was dropped
    check_gradients(program, partition, *inputs)


def test_outer_products_and_joined_tensors_are_computed_again() -> None:
    def program(x: torch.Tensor, frequencies: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        angles = torch.matmul(places[:, None], frequencies[None, :])
        return x * torch.cat((angles, angles), 1).cos()

    inputs = (leaf(4, 6), torch.randn(3, dtype=torch.float64), torch.arange(4.0).double())
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    assert partition.saved_bytes == 0


def test_normalising_by_fixed_statistics_is_computed_again() -> None:
    def program(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu(F.batch_norm(x, mean, variance)), 2)

    inputs = (leaf(2, 3, 4, 4), torch.randn(3).double(), torch.rand(3).double())
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    assert partition.saved_bytes == 2 * 3 * 2 * 2
    run = with_gradients(partition, interpreter(partition.forward), interpreter)
    (given,) = torch.autograd.grad(run(list(inputs)).sum(), inputs[:1])
    (wanted,) = torch.autograd.grad(program(*inputs).sum(), inputs[:1])
    torch.testing.assert_close(given, wanted)


def test_what_is_in_memory_anyway_is_saved_with_two_numbers_a_row() -> None:
    """In place of a value of the same size that is written for backward alone."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        shifted = y - y.detach().amax(-1, keepdim=True)
        return (shifted - shifted.exp().sum(-1, keepdim=True).log()).square().sum()

    inputs = (leaf(4, 8), leaf(8, 4096))
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    check_gradients(program, partition, *inputs)
    assert partition.saved_bytes == 8 * (4 * 4096 + 2 * 4)
    saved = [node.name for node in partition.backward.graph.find_nodes(op="placeholder")]
    assert "mm" in saved


# -- sizes that depend on data ---------------------------------------------------------------------


def chosen_by_sign(x: torch.Tensor) -> torch.Tensor:
    y = x.sin().tan()
    return y[y > 0] * 2


def chosen_in_order(x: torch.Tensor) -> torch.Tensor:
    y = x.sin().tan()
    return y.flatten()[(y > 0).flatten().nonzero().squeeze(-1)] * 2


@pytest.mark.parametrize("program", [chosen_by_sign, chosen_in_order])
@pytest.mark.parametrize("budget", [1.0, 0.0])
def test_what_sizes_depend_on_is_computed_once(program: Any, budget: float) -> None:
    """Rounded otherwise, it would choose more elements than there are gradients."""
    inputs = (leaf(8, 5),)
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs), budget)
    assert "gt" not in operators(partition.backward.graph)
    check_gradients(program, partition, *inputs)


# -- what is at hand ------------------------------------------------------------------------------


def normalized(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def of_itself(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return normalized(x, w, b).relu()


def of_a_convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.conv2d(normalized(x, w, b).relu(), x[:1] * 0.01)


def of_another(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (normalized(x, w, b) + x.cumsum(0)).relu()


@pytest.mark.parametrize(
    ("program", "reads_again"),
    [(of_itself, True), (of_a_convolution, True), (of_another, False)],
)
def test_a_cheap_operand_is_computed_where_its_own_are_read(
    program: Any, reads_again: bool
) -> None:
    """The gradient of a batch norm reads its input, of which the sign behind it is made; not where
    something else is in it. A library call reads the operand from memory all the same.
    """
    inputs = leaf(4, 16, 64, 64), leaf(16), leaf(16)
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    check_gradients(program, partition, *inputs)
    assert ("relu" in operators(partition.backward.graph)) == reads_again
    saved = [node.name for node in partition.backward.graph.find_nodes(op="placeholder")]
    assert ("relu" in saved) == (program is not of_itself)


# -- norms ----------------------------------------------------------------------------------------


NORMS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "layer norm and gelu": (
        lambda x, w, b: F.gelu(F.layer_norm(x.sin(), (12,), w, b)) @ torch.ones(12, 5).double(),
        (8, 6, 12),
        0,
    ),
    "group norm and silu": (
        lambda x, w, b: F.conv1d(
            F.silu(F.group_norm(x.sin(), 4, w, b)), w.expand(2, 12)[..., None]
        ),
        (8, 12, 6),
        1,
    ),
    "without weights": (
        lambda x, w, b: F.silu(F.layer_norm(x.sin() * w, (12,))) + b,
        (8, 6, 12),
        0,
    ),
    "a norm behind a norm": (
        lambda x, w, b: F.gelu(F.layer_norm(F.layer_norm(x.sin(), (12,), w, b), (12,), b)),
        (8, 6, 12),
        0,
    ),
    "a product reads it": (
        lambda x, w, b: F.layer_norm(x.sin(), (12,), w, b) @ w[:, None] + b.sum(),
        (8, 6, 12),
        1,
    ),
    "its greatest are sought": (
        lambda x, w, b: F.layer_norm(x.sin(), (12,), w, b).amax(0).sin(),
        (8, 6, 12),
        0,
    ),
}  # fmt: skip
"""Programs of a tensor, a weight and a bias; the tensor's size, and how many of that size are saved
beside it.
"""


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_computed_again_from_its_deviations(name: str) -> None:
    program, size, count = NORMS[name]
    inputs = leaf(*size), leaf(12), leaf(12)
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    assert partition.saved_bytes // inputs[0].nbytes == count
    check_gradients(program, partition, *inputs)


def statistics_too(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    norm, mean, inverse = torch.native_group_norm(x.sin(), w, b, 8, 12, 6, 4, 1e-5)
    return F.silu(norm) + (mean.detach() + inverse.detach()).sum()


HALF_NORMS: dict[str, Any] = {
    "layer norm": lambda x, w, b: F.gelu(F.layer_norm(x.sin(), (6,), w[:6], b[:6])),
    "group norm": lambda x, w, b: F.silu(F.group_norm(x.sin(), 4, w, b)),
    "without weights": lambda x, w, b: F.silu(F.group_norm(x.sin(), 4)) + (w + b).sum(),
    "group norm, and its statistics": statistics_too,
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", HALF_NORMS)
def test_a_norm_of_half_type_is_computed_again_from_float32_statistics(
    name: str, dtype: torch.dtype
) -> None:
    """On a CPU eager's own are of half type. Gradients are no farther from exact than eager's."""
    program = HALF_NORMS[name]
    exact = leaf(8, 12, 6), leaf(12), leaf(12)
    inputs = [value.detach().to(dtype).requires_grad_() for value in exact]
    exact = [value.detach().double().requires_grad_() for value in inputs]
    partition = min_cut_rematerialization_partition(joint_of(program, *inputs))
    assert partition.saved_bytes < inputs[0].nbytes
    sizes = {
        tuple(node.meta["val"].shape): node.meta["val"].dtype
        for node in partition.backward.graph.find_nodes(op="placeholder")
    }
    assert torch.float32 in sizes.values()
    run = with_gradients(partition, interpreter(partition.forward), interpreter)
    wanted = gradients(program(*exact), exact)
    ours, usual = gradients(run(list(inputs)), inputs), gradients(program(*inputs), inputs)
    for mine, eager, right in zip(ours, usual, wanted, strict=True):
        assert distance(mine, right) <= 1.2 * distance(eager, right) + 1e-3


def gradients(result: torch.Tensor, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(result.sum(), inputs)


def distance(value: torch.Tensor, exact: torch.Tensor) -> float:
    return float((value.double() - exact).norm() / exact.norm())
