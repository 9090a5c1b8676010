"""Transforms of torch.func: one graph, with a graph of its own for the function given; through
capture alone, and through the whole compiler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from torch.nn import functional

import fusewright
from fusewright.errors import Unsupported

torch.manual_seed(0)
LINEAR = torch.nn.Linear(4, 3)
PARAMETERS = dict(LINEAR.named_parameters())
X, Y, W, V = torch.randn(5, 4), torch.randn(5, 3), torch.randn(4, 3), torch.randn(4)
TABLE = {"weights": [W, 2.0]}


def loss(parameters: Any, x: Any, y: Any) -> Any:
    return functional.mse_loss(functional_call(LINEAR, parameters, (x,)), y)


def cube(v: Any) -> Any:
    return (v**3).sum()


DOUBLED = vmap(torch.mul, in_dims=(0, None))
SLOPES = vmap(grad(cube))
CURVATURE = hessian(cube)

PROGRAMS: dict[str, Callable[[], Any]] = {
    "functional call": lambda: functional_call(LINEAR, {"weight": W.T * 2}, (X,)),
    "a global tensor": lambda: vmap(lambda row: (row @ W).sin())(X),
    "dimensions": lambda: vmap(lambda a, b: a * b, in_dims=(1, 0), out_dims=1)(X, V),
    "different random draws": lambda: vmap(lambda a: functional.dropout(a), randomness="different")(
        X
    ),
    "the same random draws": lambda: vmap(lambda a: functional.dropout(a), randomness="same")(X),
    "chunks": lambda: vmap(lambda row: row.cumsum(0) * V, chunk_size=2)(X),
    "vmap of vmap": lambda: vmap(vmap(torch.mul, in_dims=(0, None)), in_dims=(None, 0))(V, V),
    "vmap inside of vmap": lambda: vmap(lambda a: vmap(lambda b: a * b + V)(X))(X[:, 0]),
    "a module": lambda: vmap(LINEAR)(X),
    "made outside": lambda: DOUBLED(X, 2 * X[0]),
    "made outside of one another": lambda: SLOPES(X) @ CURVATURE(V),
    "constants inside of transforms of transforms": lambda: hessian(
        lambda v: v.roll(1)[torch.tensor([0, 1, 1])].square().sum()
    )(V),
    "made outside, used inside of another": lambda: vmap(CURVATURE)(X),
    "a method": lambda: vmap(LINEAR.forward)(X),
    "a partial": lambda: vmap(functools.partial(torch.mul, V))(X),
    "containers": lambda: vmap(lambda row: row @ TABLE["weights"][0] * TABLE["weights"][1])(X),
    "results in containers": lambda: vmap(lambda row: {"a": row, "b": (row * 2, [row.sum()])})(X),
    "control flow by shape": lambda: vmap(lambda row: row * 2 if row.dim() == 1 else row)(X),
    "gradient": lambda: grad(lambda v: (v.sin() * V).sum())(V),
    "gradient and value": lambda: grad_and_value(cube)(V),
    "auxiliary results": lambda: grad(lambda v: (cube(v), {"v": v * 2}), has_aux=True)(V),
    "two arguments": lambda: grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(V, V + 1),
    "gradient of a gradient": lambda: grad(lambda v: grad(cube)(v).sum())(V),
    "gradients of parameters": lambda: grad(lambda p: loss(p, X, Y))(PARAMETERS),
    "gradients by sample": lambda: vmap(grad(loss), in_dims=(None, 0, 0))(PARAMETERS, X, Y),
    "in place inside": lambda: grad(lambda v: v.clone().mul_(V).sum())(V),
    "no gradient inside": lambda: grad(lambda v: cube(v) + _detached(v))(V),
    "vjp": lambda: _pulled(vjp(lambda v: v.sin() * v, V)),
    "vjp with auxiliary results": lambda: _pulled(
        vjp(lambda v: (v.sin() * V, v + 1), V, has_aux=True)
    ),
    "jvp": lambda: jvp(lambda a, b: a.sin() * b, (V, V), (torch.ones(4), V)),
    "jacrev": lambda: jacrev(lambda v: v.sin() @ W)(V),
    "jacfwd": lambda: jacfwd(lambda v: v.sin() @ W)(V),
    "jacobians by sample": lambda: vmap(jacrev(lambda v: v.sin() @ W))(X),
    "hessian": lambda: hessian(lambda v: (v.sin() @ W).sum())(V),
}


def _detached(v: Any) -> Any:
    with torch.no_grad():
        return cube(v)


def _pulled(made: Any) -> Any:
    result, pull, *rest = made
    return result, pull(torch.ones(4)), pull(V), rest


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    options = {"strict": True} if backend == "fusewright" else {}
    compiled = fusewright.compile(program, fullgraph=True, backend=backend, options=options)
    for seed in range(2):
        torch.manual_seed(seed)
        expected = program()
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(), expected)
    assert len(fusewright.compilations(compiled)) == 1


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
def test_gradients_pass_through_transforms(backend: str) -> None:
    def penalty(model: Any, x: Any) -> Any:
        slope = vmap(jacrev(lambda row: model(row)))(x)
        return model(x).square().mean() + slope.square().sum()

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    expected = torch.autograd.grad(penalty(model, X), list(model.parameters()))
    compiled = fusewright.compile(penalty, fullgraph=True, backend=backend)
    found = torch.autograd.grad(compiled(model, X), list(model.parameters()))
    torch.testing.assert_close(found, expected)


def test_what_a_function_reads_is_guarded() -> None:
    scale = 2.0
    compiled = fusewright.compile(
        lambda x: vmap(lambda row: row * scale)(x), fullgraph=True, backend="eager"
    )
    assert torch.equal(compiled(X), X * 2)
    scale = 3.0
    assert torch.equal(compiled(X), X * 3)


def test_weights_are_inputs() -> None:
    compiled = fusewright.compile(
        lambda m, x: vmap(lambda row: m(row))(x), fullgraph=True, backend="eager"
    )
    for _ in range(3):
        model = torch.nn.Linear(4, 4)
        torch.testing.assert_close(compiled(model, X), model(X))
    assert len(fusewright.compilations(compiled)) == 1


def test_effects_on_python_objects_happen() -> None:
    calls: list[int] = []

    def program(x: Any) -> Any:
        def function(row: Any) -> Any:
            calls.append(row.shape[0])
            return row * len(calls)

        return vmap(function)(x)

    compiled = fusewright.compile(program, backend="eager")
    assert torch.equal(compiled(X), X)
    assert torch.equal(compiled(X), X * 2)
    assert calls == [4, 4]


def test_errors_are_the_program_s_own() -> None:
    def program(x: Any) -> Any:
        try:
            return vmap(lambda row: row @ W.T)(x)
        except RuntimeError:
            return x * 2

    compiled = fusewright.compile(program, fullgraph=True, backend="eager")
    assert torch.equal(compiled(X), X * 2)


@pytest.mark.parametrize("backend", ["eager", "fusewright"])
def test_what_a_transform_returned_is_compiled_itself(backend: str) -> None:
    compiled = fusewright.compile(vmap(grad(cube)), backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(X), 3 * X**2)
    assert len(fusewright.compilations(compiled)) == 1


def test_compiled_functions_inside_of_transforms_run_as_they_are() -> None:
    compiled = fusewright.compile(lambda row: row.sin() * row.sum(), backend="eager")
    with pytest.warns(RuntimeWarning, match="a transform of torch.func calls the compiled"):
        torch.testing.assert_close(vmap(compiled)(X), X.sin() * X.sum(1, keepdim=True))
    torch.testing.assert_close(compiled(V), V.sin() * V.sum())
    assert len(fusewright.compilations(compiled)) == 1
    strict = fusewright.compile(cube, backend="eager", fullgraph=True)
    with pytest.raises(Unsupported, match="compile the function that applies the transform"):
        grad(strict)(V)


def test_code_that_fx_generates_in_each_call_is_not_compiled_each_time() -> None:
    def function(x: torch.Tensor, t: torch.Tensor) -> Any:
        out, linear = torch.func.linearize(lambda x: x.exp().sum(-1), x)
        return out, linear(t), linear(2 * t)

    compiled = fusewright.compile(function)
    x, t = torch.randn(4, 3), torch.randn(4, 3)
    for _ in range(6):
        for mine, theirs in zip(compiled(x, t), function(x, t), strict=True):
            torch.testing.assert_close(mine, theirs)
    assert not any("eval_with_key" in str(event) for event in compiled.compiler.events)


def test_a_module_of_fx_behind_a_break_is_compiled() -> None:
    generated = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        fusewright.graph_break()
        return hidden(y)

    @fusewright.disable(recursive=False)
    def hidden(y: torch.Tensor) -> torch.Tensor:
        return generated(y)

    compiled = fusewright.compile(function)
    x = torch.randn(2, 3)
    for _ in range(8):
        torch.testing.assert_close(compiled(x), function(x))
    events = [str(event) for event in compiled.compiler.events]
    assert any("compiled" in event and "eval_with_key" in event for event in events)
