"""Programs compiled with their gradients behave as in eager: results, gradients, histories, writes,
aliasing.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.two_tensor import TwoTensor

import fusewright
from fusewright import torch_compat
from fusewright.aot import (
    COMPILER_DECOMPOSITIONS,
    Partition,
    aot_module,
    default_partition,
)
from fusewright.backends.eager import eager
from fusewright.context import CompileContext
from fusewright.errors import FusewrightError, Unsupported
from fusewright.ir.group import Group
from fusewright.pipeline import compile_graph
from tests.aot.beside_eager import Program, check, compiled, leaf

# -- plain programs -------------------------------------------------------------------------------


def test_two_layers() -> None:
    check(
        lambda x, w, b: F.gelu(F.linear(x, w, b)).sin(),
        lambda: [leaf(3, 4), leaf(5, 4, seed=1), leaf(5, seed=2)],
    )


@pytest.mark.parametrize("size", [(), (0,), (2, 0), (1, 1)])
def test_small_and_empty(size: tuple[int, ...]) -> None:
    check(lambda x: (x.exp(), (x * 2).sum()), lambda: [leaf(*size)])


def test_an_input_that_requires_no_grad_gets_none() -> None:
    check(lambda x, y: x * y, lambda: [leaf(3), leaf(3).detach()])


def test_an_input_that_nothing_reads_gets_none() -> None:
    check(lambda x, y: x * 2, lambda: [leaf(3), leaf(3)])


def test_the_gradient_of_a_layout_that_is_not_contiguous() -> None:
    check(lambda x: (x.t() * 2, x + 1), lambda: [leaf(3, 4).detach().t().requires_grad_()])
    check(lambda x: x * 2, lambda: [leaf(1, 4).detach().expand(3, 4).requires_grad_()])


def test_inputs_with_a_history() -> None:
    check(lambda x, y: x * y.cos(), lambda: [(a := leaf(3)), a * 2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128])
def test_other_types(dtype: torch.dtype) -> None:
    def make() -> list[Any]:
        return [leaf(4, 4).detach().to(dtype).requires_grad_()]

    check(lambda x: (x @ x * 2).abs().float().sum(), make)


def test_nested_results_and_keywords() -> None:
    ours = compiled(lambda x, *, scale: {"a": [x * scale, 3], "b": (x.sum(), None)})
    x = leaf(3)
    result = ours(x, scale=2.0)
    (result["a"][0].sum() + result["b"][0]).backward()
    assert result["a"][1] == 3 and result["b"][1] is None
    torch.testing.assert_close(x.grad, torch.full_like(x, 3))


# -- which results have a gradient ----------------------------------------------------------------


def test_a_check_reads_what_nothing_else_does() -> None:
    solve = check(torch.linalg.solve, lambda: [leaf(3, 3), leaf(3, seed=1)])
    with pytest.raises(RuntimeError, match="singular"):
        solve(torch.zeros(3, 3, dtype=torch.float64, requires_grad=True), leaf(3))


def test_integer_and_boolean_results() -> None:
    check(lambda x: (x.argmax(), x > 0, x * 2), lambda: [leaf(5)])


def test_a_detached_result_beside_the_same_attached() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        return y.detach(), y, x.detach()

    ours = check(program, lambda: [leaf(3)])
    detached, y, _ = ours(leaf(3))
    assert detached.data_ptr() == y.data_ptr()


def test_no_grad_regions() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.no_grad():
            scale = w.abs().sum()
        return x * scale + w, scale

    check(program, lambda: [leaf(3), leaf(3, seed=1)])


def test_enable_grad_inside_no_grad() -> None:
    def program(x: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x * 2
            with torch.enable_grad():
                z = x * 3
        return y, z

    check(program, lambda: [leaf(3)])


def test_undefined_gradients_give_none_not_zero() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x.exp(), y.exp(), x * y

    ours = compiled(program)
    x, y = leaf(3), leaf(3, seed=1)
    ours(x, y)[0].sum().backward()
    assert y.grad is None
    torch.testing.assert_close(x.grad, x.exp())
    ours(x, y)[2].sum().backward()
    torch.testing.assert_close(y.grad, x)


def test_a_loss_that_only_reads_an_output_without_gradient_has_none() -> None:
    ours = compiled(lambda x: (x.detach() * 2, x * 2))
    assert not ours(leaf(3))[0].requires_grad


# -- aliasing -------------------------------------------------------------------------------------


def test_one_tensor_given_twice() -> None:
    ours = compiled(lambda x, y: x * y.sin())
    x, y = leaf(3), leaf(3, seed=1)
    ours(x, x).sum().backward()
    torch.testing.assert_close(x.grad, x.sin() + x * x.cos())
    x.grad = None
    ours(x, y).sum().backward()
    torch.testing.assert_close(x.grad, y.sin())
    torch.testing.assert_close(y.grad, x * y.cos())


def test_results_that_are_inputs_and_views_of_inputs() -> None:
    def program(x: torch.Tensor) -> Any:
        return x, x.view(-1), x[0], x * 1

    ours = check(program, lambda: [leaf(2, 3)])
    x = leaf(2, 3)
    same, flat, row, _ = ours(x)
    assert same is x and flat.data_ptr() == row.data_ptr() == x.data_ptr()


def test_results_that_are_views_of_each_other() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y.t(), y[0]

    ours = check(program, lambda: [leaf(2, 3)])
    y, turned, row = ours(leaf(2, 3))
    assert y.data_ptr() == turned.data_ptr() == row.data_ptr()


def test_writing_to_a_result_afterwards() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y[0]

    def use(compute: Program) -> list[Any]:
        x = leaf(2, 3)
        y, row = compute(x)
        row.mul_(3)
        y.sum().backward()
        return [y, row, x.grad]

    torch.testing.assert_close(use(compiled(program)), use(program))


# -- writes ---------------------------------------------------------------------------------------


def test_writes_to_intermediate_values_and_views_of_them() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = x * 2
        y[0].mul_(w[0])
        y[:, 1:].add_(w[:, 1:].exp())
        y.t().mul_(3)
        return y.sin()

    check(program, lambda: [leaf(3, 4), leaf(3, 4, seed=1)])


def test_an_input_without_gradient_is_written_to() -> None:
    def program(x: torch.Tensor, counter: torch.Tensor) -> Any:
        counter.add_(1)
        return x * counter

    check(program, lambda: [leaf(3), torch.zeros(3)])


def test_a_buffer_takes_a_history() -> None:
    def program(x: torch.Tensor, buffer: torch.Tensor) -> Any:
        buffer.mul_(x)
        return buffer + x

    check(program, lambda: [leaf(3), torch.ones(3, dtype=torch.float64)])


def test_an_input_with_a_history_is_written_to() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.mul_(x)
        return y.sin(), y.view(-1)

    check(program, lambda: [(a := leaf(2, 3)), a * 2])


def test_a_parameter_is_written_to_under_no_grad() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.no_grad():
            w.mul_(0.5)
        return x * w

    check(program, lambda: [leaf(3), leaf(3, seed=1)])


def test_writing_to_a_leaf_is_refused_as_in_eager() -> None:
    with pytest.raises(RuntimeError, match="leaf Variable"):
        compiled(lambda x: x.mul_(2))(leaf(3))


def test_a_saved_input_that_is_written_to_afterwards_keeps_its_value() -> None:
    def program(x: torch.Tensor, buffer: torch.Tensor) -> Any:
        y = x * buffer.clone()
        buffer.add_(1)
        return y

    check(program, lambda: [leaf(3), torch.ones(3, dtype=torch.float64)])


def test_inputs_that_share_memory_are_only_read() -> None:
    check(lambda x, y: x * y, lambda: [(a := leaf(3)), a[:]])


def test_inputs_share_memory_and_something_else_is_written_to() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
        z = torch.zeros_like(w)
        z.add_(w)
        return z * x + y

    check(program, lambda: [(a := torch.arange(4.0, dtype=torch.float64))[1:], a[:-1], leaf(3)])


# -- autograd's own rules -------------------------------------------------------------------------


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return -gradient


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * x * x * 3


def test_custom_functions() -> None:
    check(lambda x: Cube.apply(x * 2).sin(), lambda: [leaf(3)])
    check(lambda x: Reversed.apply(x * 2) * 3, lambda: [leaf(3)])


def test_a_custom_function_that_gives_its_input_back_keeps_its_own_gradient() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        return Reversed.apply(x), Reversed.apply(y), y

    ours = compiled(program)
    x = leaf(3)
    reversed_x, reversed_y, y = ours(x)
    (reversed_x + reversed_y * 2 + y * 5).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, -1 - 4 + 10))


@pytest.mark.skipif(
    not torch_compat.autograd.UNPACKS_ONE_BY_ONE,
    reason="this torch unpacks all saved tensors or none",
)
@pytest.mark.parametrize("reads", [False, True])
def test_what_absent_gradients_need_may_be_written_to(reads: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        return x * 3, x.sin()

    ours = compiled(program)
    x = leaf(3)
    argument = x * 1
    tripled, sine = ours(argument)
    argument.add_(1)
    if reads:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (tripled + sine).sum().backward()
    else:
        tripled.sum().backward()
        torch.testing.assert_close(x.grad, torch.full_like(x, 3))


def test_hooks_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x.sin()
        y.register_hook(lambda gradient: gradient * 2)
        return y * 3

    check(program, lambda: [leaf(3)])


def test_hooks_on_inputs_and_results() -> None:
    def use(compute: Program) -> list[Any]:
        x = leaf(3)
        seen: list[torch.Tensor] = []
        x.register_hook(seen.append)
        y = compute(x)
        y.register_hook(lambda gradient: gradient * 2)
        y.retain_grad()
        y.sum().backward()
        return [*seen, y.grad, x.grad]

    torch.testing.assert_close(use(compiled(torch.sin)), use(torch.sin))


def test_retain_graph_and_its_absence() -> None:
    x = leaf(3)
    y = compiled(lambda x: x.sin().exp())(x)
    y.sum().backward(retain_graph=True)
    first = x.grad.clone()  # type: ignore[union-attr]
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_gradients_are_accumulated() -> None:
    x, ours = leaf(3), compiled(torch.sin)
    for _ in range(3):
        ours(x).sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.cos())


def test_a_saved_value_that_was_written_to_is_an_error() -> None:
    x = leaf(3)
    y = compiled(lambda x: x.exp())(x)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_second_derivative_is_refused_in_words() -> None:
    x = leaf(3)
    y = compiled(lambda x: x.sin())(x)
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(gradient, x.cos())
    with pytest.raises(FusewrightError, match="second derivatives"):
        gradient.sum().backward()


def test_create_graph_is_fine_where_nothing_is_differentiated_again() -> None:
    x = leaf(3)
    compiled(lambda x: x.sin())(x).sum().backward(create_graph=True)
    torch.testing.assert_close(x.grad, x.cos())


def test_saved_tensor_hooks_see_what_is_saved() -> None:
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor.clone()

    x = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = compiled(lambda x: x.sin().exp())(x)
    y.sum().backward()
    assert packed
    torch.testing.assert_close(x.grad, x.sin().exp() * x.cos())


def test_gradients_with_gaps_are_laid_out_as_traced() -> None:
    x, w = leaf(3, 4), leaf(4, 5, seed=1)
    y = compiled(lambda x, w: (x @ w).relu())(x, w)
    y.backward(torch.ones(1, 1, dtype=torch.float64).expand(3, 5))
    given = x.grad
    (wanted,) = torch.autograd.grad((x @ w).relu().sum(), x)
    torch.testing.assert_close(given, wanted)


def test_calls_under_no_grad_after_a_call_with_gradients() -> None:
    ours = compiled(lambda x: x.sin())
    assert ours(leaf(3)).requires_grad
    with torch.no_grad():
        assert not ours(leaf(3)).requires_grad


def test_a_tensor_held_by_the_program_that_requires_grad_is_refused() -> None:
    held = leaf(3)
    with pytest.raises(Unsupported, match="gets no gradient"):
        compiled(lambda x: x * held)(leaf(3))


# -- randomness, modes ----------------------------------------------------------------------------


def test_dropout_draws_as_eager_does_and_backward_uses_the_same_draw() -> None:
    check(lambda x: F.dropout(x * 2, 0.5).sin(), lambda: [leaf(32)])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.dropout((x * 2).t(), 0.5),
        lambda x: F.dropout(x.view(4, 2, 4).permute(2, 0, 1), 0.5),
        lambda x: F.dropout(x[:, ::2], 0.5),
        lambda x: F.alpha_dropout((x * 2).t(), 0.5, training=True),
        lambda x: x * torch.empty_like(x.t()).bernoulli_(0.3).t(),
    ],
)
def test_dropout_draws_in_the_order_of_memory_as_eager_does(program: Program) -> None:
    check(program, lambda: [leaf(8, 4)])


def test_autocast_inside() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = F.linear(x, w)
        return y.float().sin()

    def make() -> list[Any]:
        return [leaf(3, 4, dtype=torch.float32), leaf(5, 4, seed=1, dtype=torch.float32)]

    check(program, make)


def test_autocast_around() -> None:
    def use(compute: Program) -> list[Any]:
        x, w = leaf(3, 4, dtype=torch.float32), leaf(5, 4, seed=1, dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            y = compute(x, w)
        y.float().sum().backward()
        return [y, x.grad, w.grad]

    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        return F.linear(x, w) + (x.float() @ w.float().t()).sin()

    torch.testing.assert_close(use(compiled(program)), use(program))


# -- modules --------------------------------------------------------------------------------------


def test_modules_with_buffers_and_tied_weights() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(11, 8)
            self.norm = torch.nn.BatchNorm1d(8)
            self.head = torch.nn.Linear(8, 11)
            self.head.weight = self.embedding.weight

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(self.head(self.norm(self.embedding(index))), index)

    torch.manual_seed(0)
    module = Tied()
    other = copy.deepcopy(module)
    other.norm.bias.requires_grad_(False)
    module.norm.bias.requires_grad_(False)
    ours = aot_module(module, fw_compiler=eager, decompositions=COMPILER_DECOMPOSITIONS)
    index = torch.tensor([1, 2, 3, 5, 5])
    for _ in range(2):
        torch.testing.assert_close(ours(index), other(index))
        ours(index).backward()
        other(index).backward()
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, two.grad)
    torch.testing.assert_close(dict(module.named_buffers()), dict(other.named_buffers()))
    assert module.norm.num_batches_tracked == 4


# -- what is saved --------------------------------------------------------------------------------


def partition_of(program: Program, *inputs: Any, **options: Any) -> Partition:
    found: list[Partition] = []

    def keep(joint: Any) -> Partition:
        found.append(default_partition(joint))
        return found[-1]

    compiled(program, partition_fn=keep, **options)(*inputs)
    return found[0]


def measured_bytes(program: Program, *inputs: torch.Tensor) -> int:
    """Bytes in the storages that a call keeps, beside its inputs'."""
    known = {one.untyped_storage().data_ptr() for one in inputs}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ours = compiled(program)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = ours(*inputs)
    assert result is not None
    return sum(kept.values())


def test_saved_bytes_are_what_was_predicted() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.gelu(x @ w).t().exp()
        return (y[:2] * y.sum()).log_softmax(-1)

    x, w = leaf(6, 4), leaf(4, 5, seed=1)
    predicted = partition_of(program, x, w).saved_bytes
    assert predicted > 0
    assert measured_bytes(program, x, w) == predicted


def test_a_program_without_gradient_saves_nothing() -> None:
    partition = partition_of(lambda x: x * 2, leaf(3))
    assert partition.saved == () and partition.saved_bytes == 0


def test_a_view_is_saved_as_what_it_is_a_view_of() -> None:
    partition = partition_of(lambda x, w: x @ w.t(), leaf(3, 4), leaf(5, 4))
    assert partition.saved_bytes == 0 and len(partition.saved) == 2


# -- what is refused ------------------------------------------------------------------------------


class Marked(torch.Tensor):
    """A subclass that does nothing; others may change what every operator means."""


@pytest.mark.parametrize("kind", [Marked, TwoTensor])
@pytest.mark.parametrize("tracked", [False, True])
def test_tensor_subclasses_are_refused_in_words(kind: Any, tracked: bool) -> None:
    plain = torch.ones(3)
    given = TwoTensor(plain, plain) if kind is TwoTensor else plain.as_subclass(Marked)
    with pytest.raises(Unsupported, match=f"a {kind.__name__}, a subclass of torch.Tensor"):
        compiled(lambda x, w: x * w)(given, torch.ones(3, requires_grad=tracked))


def test_a_parameter_of_a_subclass_is_refused() -> None:
    module = torch.nn.Linear(3, 3)
    module.weight = torch.nn.Parameter(TwoTensor(torch.ones(3, 3), torch.ones(3, 3)))
    with pytest.raises(Unsupported, match="TwoTensor"):
        aot_module(module, fw_compiler=eager)(torch.ones(2, 3))


def test_a_gradient_of_a_subclass_is_refused() -> None:
    y = compiled(torch.sin)(leaf(3))
    with pytest.raises(FusewrightError, match="a gradient of type Marked"):
        y.backward(torch.ones(3, dtype=torch.float64).as_subclass(Marked))


def test_batches_of_gradients_are_refused_in_words() -> None:
    """Eager operators have rules for them; kernels have none."""
    x, tangents = leaf(3), torch.eye(3, dtype=torch.float64)
    for compile, what in ((compiled, None), (fusewright.compile, "is_grads_batched")):
        y = compile(torch.sin)(x)
        refused = pytest.raises(FusewrightError, match=what) if what else nullcontext()
        with refused:
            (given,) = torch.autograd.grad(y, x, tangents, is_grads_batched=True)
            torch.testing.assert_close(given, tangents * x.cos())


def test_sparse_gradients_are_refused_in_words() -> None:
    table, rows = leaf(5, 3), torch.tensor([1, 2, 2])
    with pytest.raises(Unsupported, match="sparse_coo cannot be traced"):
        compiled(lambda t, i: F.embedding(i, t, sparse=True).sin())(table, rows)


# -- results without a gradient -------------------------------------------------------------------


def test_a_result_that_goes_nowhere_adds_no_zeros_to_gradients() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, torch.sqrt(x)  # the derivative of the second is infinite at 0

    def gradient(function: Any) -> torch.Tensor:
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        function(x)[0].sum().backward()
        assert x.grad is not None
        return x.grad

    compiled = fusewright.compile(program, options={"strict": True})
    torch.testing.assert_close(gradient(compiled), gradient(program))


@pytest.mark.parametrize("chosen", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_any_results_may_be_differentiated(chosen: tuple[int, ...]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = (x @ y).tanh()
        return product * z, product.softmax(0).exp(), torch.cat([z * 2, y.exp()])

    def gradients(function: Any) -> list[torch.Tensor | None]:
        torch.manual_seed(0)
        inputs = [torch.randn(4, 4, dtype=torch.float64).requires_grad_() for _ in range(3)]
        results = function(*inputs)
        total = sum((results[number] * (number + 2)).sum() for number in chosen)
        return list(torch.autograd.grad(total, inputs, allow_unused=True))

    compiled = fusewright.compile(program, options={"strict": True})
    for found, wanted in zip(gradients(compiled), gradients(program), strict=True):
        assert (found is None) == (wanted is None)
        if wanted is not None:
            torch.testing.assert_close(found, wanted)


def test_backward_is_compiled_for_the_results_that_have_a_gradient() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x * 2).sum(), torch.sort(x.exp())[0]

    x = torch.randn(8, requires_grad=True)
    run = compile_graph(torch.fx.symbolic_trace(program), [x], CompileContext())
    loss, _ = run(x)
    loss.backward()
    assert run.training is not None and run.training.backward is not None
    backward = run.training.backward.record
    (group,) = backward.schedule.works
    assert isinstance(group, Group)
    assert len(group.reads) == 1  # the gradient of the loss


# -- the search for NaN ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.filterwarnings("ignore:Error detected in")
def test_what_is_compiled_while_anomalies_are_detected() -> None:
    weight = torch.randn(3, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * weight).sqrt().sum()

    with torch.autograd.detect_anomaly():
        loss = fusewright.compile(program, options={"strict": True})
        loss(weight.detach()).backward()
        with pytest.raises(RuntimeError, match=r"CompiledFunctionBackward.*nan values"):
            loss(-weight.detach()).backward()
        assert torch.is_anomaly_enabled()
