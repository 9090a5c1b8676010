"""What is built on tensors: functions with gradients of their own, custom operators, overrides,
torch.func, checkpointing, distributions, library code in plain Python.
"""

from __future__ import annotations

import copy
import functools
import os
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from fusewright import api, torch_compat
from tests.capture.agreement import assert_same
from tests.capture.torch_cases import Cases

X = torch.arange(12.0).reshape(3, 4) / 5 - 1
G = X.clone().requires_grad_()

cases = Cases()

# -- functions with gradients of their own --------------------------------------------------------


class Scaled(torch.autograd.Function):
    """Doubles, with a gradient that is three times as large as it should be."""

    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * ctx.scale * 3 + x * 0, None


class WithSetup(torch.autograd.Function):
    """The newer form: context apart from the computation; two results, one without gradient."""

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y, (x > 0).long()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, gradient: Any, unused: Any) -> Any:
        x, y = ctx.saved_tensors
        return gradient * y, gradient * x + 1


class RoundThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class ReadsValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * x.sum().item()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


@cases(G)
def autograd_function(x: Any) -> Any:
    return Scaled.apply(x * 2, 2.0) + 1


@cases(X)
def autograd_function_without_gradient(x: Any) -> Any:
    return Scaled.apply(x, 0.5), RoundThrough.apply(x)


@cases(G, X)
def autograd_function_with_setup(x: Any, y: Any) -> Any:
    product, positive = WithSetup.apply(x, y)
    return product * positive, positive


@cases(G)
def autograd_function_in_no_grad(x: Any) -> Any:
    with torch.no_grad():
        y = RoundThrough.apply(x)
    return y, RoundThrough.apply(x) * 2


@cases(X, breaks="fake-execution")
def autograd_function_reads_value(x: Any) -> Any:
    return ReadsValue.apply(x) + 1


class Straight(nn.Module):
    def forward(self, x: Any) -> Any:
        function = RoundThrough.apply
        return function(x) + x


@cases(lambda: (Straight(), G.detach().clone().requires_grad_()))
def autograd_function_in_module(m: Any, x: Any) -> Any:
    return m(x)


def test_autograd_function_guards_what_it_reads() -> None:
    scale = 2.0

    class Local(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * scale

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * scale

    def program(x: Any) -> Any:
        return Local.apply(x)

    compiled = api.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    scale = 5.0
    assert torch.equal(compiled(X), X * 5)
    assert compiled.compiler.capture_count == 2


# -- custom operators -----------------------------------------------------------------------------


@torch.library.custom_op("fusewright_capture::shift", mutates_args=())
def shift(x: torch.Tensor, amount: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() + np.float32(amount))


@shift.register_fake
def _(x: Any, amount: float) -> Any:
    return torch.empty_like(x)


shift.register_autograd(lambda ctx, gradient: (gradient * 2, None))


@torch.library.custom_op("fusewright_capture::bare", mutates_args=())
def bare(x: torch.Tensor) -> torch.Tensor:
    return x.clone() * 2


@torch.library.custom_op("fusewright_capture::fill", mutates_args=("x",))
def fill(x: torch.Tensor, value: float) -> None:
    x.fill_(value)


@fill.register_fake
def _(x: Any, value: float) -> None:
    return None


_LIBRARY = torch.library.Library("fusewright_capture", "FRAGMENT")
_LIBRARY.define("triple(Tensor x) -> Tensor")
_LIBRARY.impl("triple", lambda x: x * 3, "CompositeExplicitAutograd")
_LIBRARY.define("apart(Tensor x, int[] sizes) -> Tensor[]")
_LIBRARY.impl("apart", lambda x, sizes: [p.clone() for p in x.split(sizes)], "CPU")
torch.library.register_fake(
    "fusewright_capture::apart",
    lambda x, sizes: [torch.empty((size, *x.shape[1:])) for size in sizes],
    lib=_LIBRARY,
)


@cases(X)
def custom_operator(x: Any) -> Any:
    return shift(x * 2, 1.0) + 1


@cases(G)
def custom_operator_with_gradient(x: Any) -> Any:
    return shift(x * 2, amount=1.0) * 3


@cases(X, breaks="fake-execution")
def custom_operator_without_fake(x: Any) -> Any:
    return bare(x) + 1


@cases(X)
def custom_operator_that_writes(x: Any) -> Any:
    y = x.clone()
    fill(y, 3.0)
    return y + x


@cases(X)
def library_operators(x: Any) -> Any:
    parts = torch.ops.fusewright_capture.apart(x, [1, 2])
    return torch.ops.fusewright_capture.triple(x), parts[0] + 1, len(parts), parts[1]


@cases(X)
def aten_operators(x: Any) -> Any:
    return torch.ops.aten.add(x, 1), torch.ops.aten.mul.Tensor(x, x), torch.ops.aten.relu.default(x)


# -- overrides ------------------------------------------------------------------------------------


class Tagged(torch.Tensor):
    """A subclass with nothing of its own."""


class Logging(torch.Tensor):
    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result + 1 if function is torch.Tensor.mul else result


class Wrapper:
    """No tensor, but torch's functions take it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        plain = [a.value if isinstance(a, Wrapper) else a for a in args]
        return Wrapper(function(*plain, **(kwargs or {})))


@cases(lambda: (X.as_subclass(Tagged),), breaks="tensor-kind")
def subclass(x: Any) -> Any:
    return x * 2 + 1


@cases(lambda: (X.as_subclass(Logging), X), breaks="tensor-to-unknown")
def subclass_with_override(x: Any, y: Any) -> Any:
    return y * 2, x * y


@cases(X)
def override_without_tensor(x: Any) -> Any:
    wrapped = torch.add(Wrapper(x), 1)
    return torch.sum(wrapped, dim=0).value, torch.cat([x, x])


@cases(X, breaks="unknown-callable")
def function_mode_inside(x: Any) -> Any:
    class Doubling(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            result = function(*args, **(kwargs or {}))
            return result * 2 if function is torch.add else result

    with Doubling():
        return torch.add(x, 1)


@torch.jit.script
def scripted(x: torch.Tensor, scale: int) -> torch.Tensor:
    return torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * scale)


@cases(X)
def a_scripted_function(x: Any) -> Any:
    called = type(scripted).__call__(scripted, x, 2)
    return scripted(x + 1, 3) * x, scripted(x, scale=2), called


SLOPE = 1.0


def _slope() -> float:
    return SLOPE


class Sloped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * _slope()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def test_autograd_function_guards_what_its_helpers_read() -> None:
    global SLOPE
    compiled = api.compile(lambda x: Sloped.apply(x), backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X)
    try:
        SLOPE = 4.0
        assert torch.equal(compiled(X), X * 4)
    finally:
        SLOPE = 1.0
    assert compiled.compiler.capture_count == 2


def test_modes_of_the_caller_see_every_call() -> None:
    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            Counting.calls += function is torch.add
            return function(*args, **(kwargs or {}))

    class Dispatching(TorchDispatchMode):
        calls = 0

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # torch would import its own front end

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            Dispatching.calls += function is torch.ops.aten.add.Tensor
            return function(*args, **(kwargs or {}))

    def program(x: Any) -> Any:
        return torch.add(x, 1) * 2

    compiled = api.compile(program, backend="eager")
    for mode in (Counting, Dispatching):
        for _ in range(2):
            with mode():
                assert torch.equal(compiled(X), program(X))
        assert mode.calls == 4
    assert torch.equal(compiled(X), program(X))


def test_masks_of_attention_made_element_by_element() -> None:
    """The mode in which such functions run makes an item by a single number a read."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    def program(padding: Any, ids: Any, broken: bool) -> Any:
        def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
            same = ids[batch, query] == ids[batch, key]
            return (query >= key) & padding[batch, key] & (same | (ids[0, key] > 1))

        function: Any = mask
        for moved in range(3, -1, -1):
            axes = tuple([0 if axis == moved else None for axis in range(4)])
            function = torch.vmap(function, in_dims=axes)
        length = torch.arange(padding.shape[1])
        with TransformGetItemToIndex():
            if broken:
                print(end="")
            found = function(torch.arange(padding.shape[0]), torch.arange(1), length, length)
        return found, ids[0], ids[torch.tensor(1)]

    padding = torch.ones(2, 5, dtype=torch.bool)
    padding[1, 3:] = False
    ids = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    compiled = api.compile(program, fullgraph=True, backend="eager")
    assert all(map(torch.equal, compiled(padding, ids, False), program(padding, ids, False)))
    with pytest.warns(RuntimeWarning, match="a torch function or dispatch mode is active"):
        found = api.compile(program, backend="eager")(padding, ids, True)
    assert all(map(torch.equal, found, program(padding, ids, True)))


# -- torch.func, checkpointing, distributions -----------------------------------------------------


@cases(X, X > 0)
def masked_reductions(x: Any, mask: Any) -> Any:
    """They define an autograd function in each call, for masked tensors alone."""
    masked = torch.masked
    return (
        masked.sum(x, 1, mask=mask), masked.mean(x, 1, mask=mask), masked.amax(x, 0, mask=mask),
        masked.softmax(x, 1, mask=mask), masked.std(x, 1, mask=mask), masked.prod(x, 1, mask=mask),
        masked.logsumexp(x, 1, mask=mask), masked.argmax(x, 1, mask=mask),
        masked.norm(x, 2.0, 1, mask=mask), masked.cumsum(x, 1, mask=mask), masked.median(x, 1),
    )  # fmt: skip


@cases(G, breaks="class-made")
def autograd_function_made_inside(x: Any) -> Any:
    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 3

    return Tripled.apply(x * 1)


@cases(X)
def autograd_function_made_and_left(x: Any) -> Any:
    class Unused(torch.autograd.Function):
        pass

    return x + 1, issubclass(Unused, torch.autograd.Function)


@cases(X)
def vmap(x: Any) -> Any:
    return torch.func.vmap(lambda row: row.sin().sum())(x) * 2


@cases(G, torch.eye(4))
def vmap_with_captured_tensor(x: Any, w: Any) -> Any:
    scale, doubled = 3.0, w * 2
    batched = torch.vmap(lambda row, v: {"a": row @ doubled * scale, "b": (v, row)}, in_dims=(0, 1))
    return batched(x, x.T)


@cases(X)
def annotations_within(x: Any) -> Any:
    found = torch.jit.annotate(typing.List[torch.Tensor], [])  # noqa: UP006
    forms = typing.Optional[torch.Tensor], dict[str, int], typing.Tuple[int, ...]  # noqa: UP006, UP045
    found.append(x + 1)
    return found, typing.cast(typing.Union[int, str], 3), forms[0] == (torch.Tensor | None)  # noqa: UP007


@cases(X)
def func_grad(x: Any) -> Any:
    return torch.func.grad(lambda v: (v**2).sum())(x) + 1, torch.func.grad_and_value(_energy)(x)


def _energy(v: Any) -> Any:
    return _square(v).sum() * POWER


def _square(v: Any) -> Any:
    return v**2


POWER = 2


@cases(X)
def per_sample_gradients(x: Any) -> Any:
    def loss(row: Any, target: Any) -> Any:
        return nn.functional.mse_loss(row * 2, target)

    return torch.vmap(torch.func.grad(loss), in_dims=(0, None))(x, x[0])


@cases(X[0])
def jacobians(x: Any) -> Any:
    square = lambda v: v * v * x  # noqa: E731
    return (
        torch.func.jacrev(square)(x),
        torch.func.jacfwd(square)(x),
        torch.func.hessian(_energy)(x),
    )


@cases(X)
def jacobian_vector_product(x: Any) -> Any:
    return torch.func.jvp(lambda v, w: (v * w * x).sin(), (x, x + 1), (x, x))


@cases(X)
def vector_jacobian_product(x: Any) -> Any:
    result, pull = torch.func.vjp(torch.sin, x)
    return result + 1, pull(x)


@cases(lambda: (nn.Linear(4, 4), X))
def transform_of_a_function_with_a_module(m: Any, x: Any) -> Any:
    return torch.func.vmap(lambda row: m(row))(x) * 2


@pytest.mark.parametrize(
    "program", [vmap, func_grad, per_sample_gradients, jacobian_vector_product]
)
def test_transforms_are_compiled(program: Any) -> None:
    """By the whole compiler. Forward differentiation makes zeros that have no memory."""
    compiled = api.compile(program, fullgraph=True, options={"strict": True})
    torch.testing.assert_close(compiled(X), program(X))


@cases(lambda: (torch._efficientzerotensor(3, 4), X), breaks="tensor-kind")
def zeros_without_memory(zeros: Any, x: Any) -> Any:
    return zeros.sum() + x


def test_transforms_guard_what_they_read() -> None:
    global POWER
    compiled = api.compile(lambda x: torch.func.grad(_energy)(x), backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 4)
    try:
        POWER = 3
        assert torch.equal(compiled(X), X * 6)
    finally:
        POWER = 2
    assert compiled.compiler.capture_count == 2


@cases(lambda: (nn.Linear(4, 4), X))
def functional_call(m: Any, x: Any) -> Any:
    weights = {name: p * 2 for name, p in m.named_parameters()}
    return torch.func.functional_call(m, weights, (x,)) + 1


@cases(lambda: (nn.Sequential(nn.Linear(4, 4), nn.Tanh()), G.detach().clone().requires_grad_()))
def checkpointed(m: Any, x: Any) -> Any:
    return checkpoint(m, x, use_reentrant=False) * 2


@cases(lambda: (nn.Dropout(0.5), G.detach().clone().requires_grad_()))
def checkpointed_dropout(m: Any, x: Any) -> Any:
    return checkpoint(m, x * 2, use_reentrant=False) + x


@cases(lambda: (nn.Linear(4, 4), G.detach().clone().requires_grad_()))
def checkpointed_function(m: Any, x: Any) -> Any:
    def block(v: Any, scale: float) -> Any:
        return torch.relu(m(v)) * scale

    return checkpoint(block, x, 2.0, use_reentrant=False, preserve_rng_state=False)


@cases(X)
def validated_distribution(x: Any) -> Any:
    return torch.distributions.Normal(x, x.exp(), validate_args=True).log_prob(x + 1) * 2


@cases(lambda: (nn.Linear(4, 4), G.detach().clone().requires_grad_()), breaks="grad-required")
def checkpointed_by_a_function_of_its_own(m: Any, x: Any) -> Any:
    return checkpoint(m, x * 2, use_reentrant=True) + x


@cases(X)
def distributions(x: Any) -> Any:
    normal = torch.distributions.Normal(x, x.exp(), validate_args=False)
    categorical = torch.distributions.Categorical(logits=x, validate_args=False)
    return normal.log_prob(x + 1), normal.entropy(), categorical.entropy(), normal.rsample()


@cases(X)
def divergence(x: Any) -> Any:
    one = torch.distributions.Normal(x, 1.0, validate_args=False)
    other = torch.distributions.Normal(0.0, 2.0, validate_args=False)
    return torch.distributions.kl_divergence(one, other)


# -- library code in Python -----------------------------------------------------------------------


def rearrange(x: Any, pattern: str, **sizes: int) -> Any:
    """What einops does, for patterns of plain names and one level of brackets."""
    left, right = (side.strip() for side in pattern.split("->"))
    axes: list[Any] = []
    group: list[str] | None = None
    for token in left.replace("(", " ( ").replace(")", " ) ").split():
        if token == "(":
            group = []
        elif token == ")":
            axes.append(tuple(group or ()))
            group = None
        elif group is not None:
            group.append(token)
        else:
            axes.append((token,))
    shape = []
    for size, names in zip(x.shape, axes, strict=True):
        known = {name: sizes[name] for name in names if name in sizes}
        rest = size
        for value in known.values():
            rest //= value
        shape += [known.get(name, rest) for name in names]
    flat = [name for names in axes for name in names]
    return x.reshape(shape).permute([flat.index(name) for name in right.split()])


@cases(X)
def einops_like(x: Any) -> Any:
    return rearrange(x, "a (b c) -> c a b", b=2), rearrange(x, "a b -> b a")


@cases(X)
def pytrees(x: Any) -> Any:
    tree = {"a": [x, x * 2], "b": (x + 1, None, 3)}
    doubled = pytree.tree_map(lambda leaf: leaf * 2 if torch.is_tensor(leaf) else leaf, tree)
    leaves, spec = pytree.tree_flatten(doubled)
    return doubled, len(leaves), pytree.tree_unflatten(leaves, spec)["a"][1]


@contextmanager
def scaled_by(factor: float) -> Iterator[Any]:
    with torch.no_grad():
        yield lambda v: v * factor


@cases(G)
def generator_context(x: Any) -> Any:
    with scaled_by(3.0) as scale:
        y = scale(x)
    return y, x * 2


@cases(torch.randn(2, 2, 5, 4), torch.ones(5, 5, dtype=torch.bool).tril())
def scaled_dot_product_attention(q: Any, mask: Any) -> Any:
    attend = nn.functional.scaled_dot_product_attention
    bias = torch.zeros(5, 5).masked_fill(~mask, float("-inf"))
    return (
        attend(q, q, q), attend(q, q, q, is_causal=True), attend(q, q, q, attn_mask=mask),
        attend(q, q, q, attn_mask=bias, scale=0.5),
    )  # fmt: skip


@functools.lru_cache(maxsize=4)
def _table(length: int, scale: float = 1.0) -> torch.Tensor:
    return torch.arange(length).float().numpy().astype(np.float32).sum() + torch.arange(length)


@functools.cache
def _has_feature() -> bool:
    return os.path.exists(os.path.dirname(__file__))


@cases(X)
def cached_functions(x: Any) -> Any:
    table = _table(4, scale=2.0)
    return (x + table if _has_feature() else x), _table(4, scale=2.0) is table


@cases(X)
def numpy_scalars(x: Any) -> Any:
    return x * np.float32(2.0), x + np.pi, x.reshape(np.prod([3, 4])), x[np.int64(1)]


@cases(np.arange(6.0), breaks="tensor-to-unknown")
def numpy_array(a: Any) -> Any:
    return torch.from_numpy(a) * 2, torch.as_tensor(a.reshape(2, 3)) + 1


@cases(X)
def numpy_constants(x: Any) -> Any:
    return x * float(np.sqrt(4.0)), x + int(np.floor(2.5))


class Router(nn.Module):
    """A mixture of experts that skips an expert without work: a branch on data."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 2)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Any) -> Any:
        choice = self.gate(x).argmax(-1)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            mine = choice == index
            if mine.any():
                result = result + expert(x) * mine[:, None]
        return result


@cases(X)
def profiled_region(x: Any) -> Any:
    with torch.profiler.record_function("a part"):
        y = x * 2

    @torch.profiler.record_function("another")
    def part(v: Any) -> Any:
        return v + 1

    return part(y)


@cases(lambda: (Router(), X), breaks="branch-on-tensor")
def mixture_of_experts(m: Any, x: Any) -> Any:
    return m(x) * 2


@cases(lambda: (nn.Linear(4, 4), X), breaks="grad-required")
def training_step(m: Any, x: Any) -> Any:
    loss = m(x).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None
    return loss.detach()


def _with_optimizer() -> tuple[Any, ...]:
    m = nn.Linear(4, 4)
    return m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), X


@cases(_with_optimizer, breaks="grad-required")
def optimizer_step(m: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = m(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


OPTIMIZERS: dict[str, Any] = {
    "descent": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw in one pass": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps(name: str) -> None:
    """Three steps change weights as in eager; the state, looked up by parameter, is the same."""
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    theirs = copy.deepcopy(mine)
    optimizers = [OPTIMIZERS[name](m.parameters()) for m in (mine, theirs)]
    compiled = api.compile(lambda: optimizers[0].step(), backend="eager")
    for _ in range(3):
        for model, step in ((mine, compiled), (theirs, optimizers[1].step)):
            model(X).pow(2).mean().backward()
            step()
            model.zero_grad()
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
    states = [optimizer.state_dict()["state"] for optimizer in optimizers]
    assert [list(state) for state in states[0].values()] == [list(s) for s in states[1].values()]


test_program = cases.test()


@pytest.mark.skipif(not torch_compat.SIZE_INFERENCE, reason="this torch has no such function")
def test_sizes_that_are_broadcast() -> None:
    (infer_size,) = torch_compat.SIZE_INFERENCE

    def program(x: Any, y: Any) -> Any:
        try:
            return x.new_zeros(infer_size(x.shape, y.shape))
        except RuntimeError as error:
            return str(error)

    compiled = api.compile(program, backend="eager", fullgraph=True, dynamic=True)
    for one, other in (
        ((3, 1), (2,)),
        ((4, 1), (5,)),
        ((6,), (7, 1)),
        ((), (2, 1)),
        ((2, 3), (4,)),
    ):
        x, y = torch.ones(one), torch.ones(other)
        assert_same(compiled(x, y), program(x, y))
    before = compiled.compiler.capture_count
    compiled(torch.ones(8, 1), torch.ones(9))
    assert compiled.compiler.capture_count == before, "sizes are symbols"


def test_whether_a_transform_is_running() -> None:
    def program(x: Any) -> Any:
        return x + sum(ask() for ask in torch_compat.TRANSFORM_QUERIES)

    compiled = api.compile(program, backend="eager", fullgraph=True)
    assert_same(compiled(X), program(X))
    inside = api.compile(torch.func.vmap(program), backend="eager", fullgraph=True)
    assert_same(inside(X), torch.func.vmap(program)(X))
