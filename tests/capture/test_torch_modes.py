"""Torch's global modes under capture: gradients, autocast, defaults, random state, is_compiling."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright import api
from tests.capture.torch_cases import Cases

X = torch.arange(12.0).reshape(3, 4) / 5 - 1
G = X.clone().requires_grad_()
W = torch.eye(4)

cases = Cases()

# -- gradients ------------------------------------------------------------------------------------


@cases(G)
def no_grad_context(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
        inside = torch.is_grad_enabled()
        with torch.enable_grad():
            z = x * 3
    return y, z, inside, torch.is_grad_enabled(), x * 4


@cases(G)
def no_grad_decorator(x: Any) -> Any:
    @torch.no_grad()
    def frozen(v: Any) -> Any:
        return v * 2

    @torch.enable_grad()
    def live(v: Any) -> Any:
        return v * 2

    @torch.set_grad_enabled(False)
    def other(v: Any) -> Any:
        return v * 3

    return frozen(x), live(x), other(x), x + 1


@torch.no_grad()
def _frozen(x: Any) -> Any:
    return x * 2


@torch.no_grad
def _frozen_plainly(x: Any) -> Any:
    return x * 2


@cases(G)
def decorated_outside(x: Any) -> Any:
    return _frozen(x) + x, _frozen(x), _frozen_plainly(x)


@cases(G)
def set_grad_context(x: Any) -> Any:
    with torch.set_grad_enabled(False):
        y = x * 2
    with torch.set_grad_enabled(mode=True):
        z = x * 2
    return y, z


@cases(G)
def set_grad_call(x: Any) -> Any:
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


@cases(G)
def leave_grad_mode_changed(x: Any) -> Any:
    y = x * 2
    torch.set_grad_enabled(False)
    return y, x * 3


@cases(G)
def grad_mode_restored_by_exception(x: Any) -> Any:
    try:
        with torch.no_grad():
            y = x * 2
            raise ValueError("left early")
    except ValueError:
        return y, x * 3, torch.is_grad_enabled()


@cases(G)
def write_to_view_without_gradients(x: Any) -> Any:
    """Asking such a view for its history raises, also in eager."""
    with torch.no_grad():
        row = x[0]
        row.mul_(2)
        x.view(-1)[3:6].zero_()
        kept = row + 1
    return x * 3, kept


@cases(X)
def inference_mode(x: Any) -> Any:
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled()
    return y.sum(), inside, torch.is_inference_mode_enabled(), x.is_inference()


@cases(G)
def inference_mode_off(x: Any) -> Any:
    with torch.inference_mode(False):
        return x * 2


@cases(G, breaks="grad-required")
def backward(x: Any) -> Any:
    y = (x * 2).sum()
    y.backward()
    return y.detach(), x.grad * 2


@cases(G)
def autograd_grad(x: Any) -> Any:
    y = (x * x).sum()
    (g,) = torch.autograd.grad(y, x)
    return g * 2


@cases(G, breaks="grad-required")
def retain_gradient(x: Any) -> Any:
    y = x * 2
    y.retain_grad()
    return y * 3


@cases(G)
def tensor_hook(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 2)
    return y * 3


@cases(G, breaks="grad-required")
def tensor_hook_that_keeps(x: Any) -> Any:
    y, seen = x * 2, []
    y.register_hook(seen.append)
    return y * 3


@cases(lambda: (_with_gradient(),))
def read_gradient(x: Any) -> Any:
    return x.grad * 2 if x.grad is not None else x


@cases(lambda: (_with_gradient(),))
def clear_gradient(x: Any) -> Any:
    x.grad = None
    return x * 2, x.grad is None


def _with_gradient() -> Any:
    x = X.clone().requires_grad_()
    (x * x).sum().backward()
    return x


@cases(X)
def no_gradient_yet(x: Any) -> Any:
    return x.grad, x * 2


@cases(G)
def anomaly_queries(x: Any) -> Any:
    return x * 2, torch.is_anomaly_enabled(), torch.is_grad_enabled()


# -- autocast -------------------------------------------------------------------------------------


@cases(X, W)
def autocast_context(x: Any, w: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        inside = torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ w
    return y, z, inside, torch.is_autocast_enabled("cpu"), x @ w


@cases(X, W)
def autocast_for_another_device(x: Any, w: Any) -> Any:
    with torch.autocast("cuda", enabled=False):
        return x @ w


@cases(X, W)
def autocast_older_names(x: Any, w: Any) -> Any:
    with torch.amp.autocast("cpu", torch.float16):
        return x @ w, torch.get_autocast_dtype("cpu")


@cases(X, W)
def autocast_decorator(x: Any, w: Any) -> Any:
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(a: Any, b: Any) -> Any:
        return a @ b

    return product(x, w), x @ w


@cases(X, W)
def autocast_with_gradients(x: Any, w: Any) -> Any:
    w = w * 1
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        return torch.nn.functional.linear(x, w)


@cases(G, W.clone().requires_grad_())
def autocast_gradients(x: Any, w: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.linear(x, w).float().sum()


@cases(torch.tensor(1.0), X, W, breaks="branch-on-tensor")
def break_inside_autocast(s: Any, x: Any, w: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        if s > 0:
            y = y @ w
        return y @ w


@cases(torch.tensor(1.0), G, breaks="branch-on-tensor")
def break_inside_no_grad(s: Any, x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
        y = y + 1 if s > 0 else y - 1
        z = x * 3
    return y, z, x * 4


@cases(torch.tensor(1.0), X, breaks="branch-on-tensor")
def break_inside_inference_mode(s: Any, x: Any) -> Any:
    with torch.inference_mode():
        y = x * 2
        y = y + 1 if s > 0 else y - 1
        z = y * 3
    return z.clone(), torch.is_inference_mode_enabled()


@cases(torch.tensor(1.0), X, breaks="branch-on-tensor")
def break_inside_default_device(s: Any, x: Any) -> Any:
    with torch.device("meta"):
        y = torch.ones(3)
        if s > 0:
            y = torch.zeros(4)
        z = torch.ones(2)
        with torch.device("cpu"):
            if s < 5:
                w = torch.full((2,), 3.0)
    return y.device, z.device, y.shape, w, torch.ones(2), x * 2


@cases(torch.tensor(1.0), G, breaks="branch-on-tensor")
def break_inside_nested_modes(s: Any, x: Any) -> Any:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            z = x @ x.T
            if s > 0:
                z = z @ z
            w = z @ z
        v = x @ x.T
    return y, z, w, v, x @ x.T


@cases(torch.tensor(1.0), G, breaks="branch-on-tensor")
def break_after_a_mode_was_left_changed(s: Any, x: Any) -> Any:
    torch.set_grad_enabled(False)
    y = x * 2
    if s > 0:
        y = y + 1
    z = x * 3
    torch.set_grad_enabled(True)
    return y, z, x * 4


@cases(torch.tensor(1.0), G, breaks="branch-on-tensor")
def break_in_a_decorated_function(s: Any, x: Any) -> Any:
    @torch.no_grad()
    def part(v: Any) -> Any:
        return v * 2 if s > 0 else v

    return part(x), x * 3


@cases(torch.tensor(-1.0), G, breaks="tensor-value")
def exception_after_a_break_inside_no_grad(s: Any, x: Any) -> Any:
    try:
        with torch.no_grad():
            y = x * 2
            if s.item() < 0:
                raise ValueError("negative")
            y = y * 3
    except ValueError as error:
        return y, str(error), x * 4, torch.is_grad_enabled()


@cases(torch.tensor(3.0), G, breaks="branch-on-tensor")
def loop_with_breaks_and_modes(s: Any, x: Any) -> Any:
    total = x
    for step in range(4):
        with torch.set_grad_enabled(step % 2 == 0):
            if s > step:
                total = total + x * step
            else:
                break
    return total, torch.is_grad_enabled()


# -- defaults -------------------------------------------------------------------------------------


@cases(X)
def default_dtype(x: Any) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(4)
    torch.set_default_dtype(before)
    return x + y, y, torch.get_default_dtype(), torch.tensor(1.5)


@cases(X)
def leave_default_dtype_changed(x: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    return x + torch.ones(4), torch.tensor(0.5)


@cases(X)
def device_context(x: Any) -> Any:
    with torch.device("cpu"):
        y = torch.ones(4)
    with torch.device("meta"):
        z = torch.ones(4)
    return x + y, z.device


@cases(X)
def deterministic(x: Any) -> Any:
    return x * (2 if torch.are_deterministic_algorithms_enabled() else 3)


# -- random state ---------------------------------------------------------------------------------


@cases(X)
def draws(x: Any) -> Any:
    return (
        torch.rand(3), torch.randn_like(x), torch.randint(0, 5, (4,)), torch.randperm(5),
        torch.nn.functional.dropout(x, 0.5), torch.bernoulli(x.sigmoid()), torch.normal(x, 1.0),
        torch.empty(3).uniform_(), torch.empty(3).normal_(), torch.multinomial(x.sigmoid(), 2),
    )  # fmt: skip


@cases(X)
def seed_inside(x: Any) -> Any:
    torch.random.manual_seed(7)
    return x + torch.rand(4)


@cases(X, breaks="random-state")
def generator_of_caller(x: Any) -> Any:
    return x + torch.rand(4, generator=torch.default_generator)


@cases(X, breaks="random-state")
def generator_made_inside(x: Any) -> Any:
    generator = torch.Generator()
    generator.manual_seed(5)
    return x + torch.rand(4, generator=generator)


@cases(X)
def save_and_restore(x: Any) -> Any:
    state = torch.get_rng_state()
    a = torch.rand(4)
    torch.set_rng_state(state)
    return x + a, torch.rand(4)


@cases(X)
def forked_random_state(x: Any) -> Any:
    with torch.random.fork_rng():
        a = torch.rand(4)
    return x + a, torch.rand(4)


@cases(X, breaks="random-state")
def initial_seed(x: Any) -> Any:
    return x + (torch.initial_seed() % 3)


# -- what code asks about where it runs -----------------------------------------------------------


@cases(X)
def scripting_queries(x: Any) -> Any:
    return (
        torch.jit.is_scripting(), torch.jit.is_tracing(), torch.compiler.is_exporting(),
        torch.cuda.is_available(), torch.backends.mps.is_available(), x,
    )  # fmt: skip


def test_is_compiling_is_answered_truthfully() -> None:
    def ask(x: Any) -> Any:
        return x + 1, torch.compiler.is_compiling()

    assert ask(X)[1] is False
    assert api.compile(ask, backend="eager", fullgraph=True)(X)[1] is True
    assert torch.compiler.is_compiling() is False


def test_an_error_in_the_graph_leaves_the_modes_alone() -> None:
    def pick(x: Any, i: Any) -> Any:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            return x[i] @ W

    compiled = api.compile(pick, backend="eager", fullgraph=True)
    assert compiled(X, torch.tensor([0])).dtype is torch.bfloat16
    with pytest.raises(IndexError):
        compiled(X, torch.tensor([7]))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


test_program = cases.test()
