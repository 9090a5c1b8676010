"""Tensors on meta, which have no memory, beside others; and a default device where memory is
another's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

import fusewright


def strict(program: Callable[..., Any]) -> Callable[..., Any]:
    options = {"strict": True, "verify": True}
    return fusewright.compile(program, fullgraph=True, options=options)  # type: ignore[no-any-return]


def description(value: Any) -> Any:
    """What there is to see of a result; of a tensor on meta, all but values."""
    if isinstance(value, (tuple, list)):
        return [description(one) for one in value]
    if not isinstance(value, Tensor):
        return value
    values = None if value.is_meta else value.tolist()
    return values, value.device, value.dtype, value.shape, value.stride(), value.storage_offset()


def make_module(x: Tensor) -> Tensor:
    with torch.device("meta"):
        weight = torch.empty(4, 3).uniform_(-1, 1)
    return x * weight.shape[0]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "sizes": lambda x, m: (x + 1, m.shape[0]),
    "itself": lambda x, m: (x + 1, m),
    "pointwise": lambda x, m: (x + 1, m * 2),
    "product": lambda x, m: (x @ x.t(), m @ m.t()),
    "reduction": lambda x, m: ((m * 2).sum(0), m.t(), m.max(1)),
    "nothing": lambda x, m: (m[:0] * 2, m[:0].sum(0)),
    "views and copies": lambda x, m: (m[:, 1:].t().contiguous().view(-1), torch.cat([m, m])),
    "expanded": lambda x, m: (m.new_zeros(3).expand(2, 3), m.flip(0)),
    "to meta": lambda x, m: x.to("meta") + m,
    "from its sizes": lambda x, m: torch.zeros_like(m, device="cpu") + x,
    "written": lambda x, m: (m.add_(x.shape[0]), m.shape),
    "made inside": lambda x, m: (torch.zeros(3, device="meta") + 1, x * 2),
    "a module made inside": lambda x, m: make_module(x),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_tensors_on_meta(program: Callable[..., Any]) -> None:
    x, m = torch.arange(12.0).view(3, 4), torch.empty(3, 4, device="meta")
    found = strict(program)(x.clone(), m.clone())
    assert description(found) == description(program(x.clone(), m.clone()))


def test_an_ensemble_called_by_way_of_a_module_on_meta() -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(3)]
    base = copy.deepcopy(models[0]).to("meta")
    x = torch.randn(5, 4)

    def ensemble(params: Any, buffers: Any, x: Tensor) -> Any:
        return vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), (0, 0, None))(
            params, buffers, x
        )

    def gradients(program: Callable[..., Any]) -> Any:
        params, buffers = stack_module_state(models)  # type: ignore[arg-type]
        result = program(params, buffers, x)
        result.square().sum().backward()
        return result, [one.grad for one in params.values()]

    torch.testing.assert_close(gradients(strict(ensemble)), gradients(ensemble))


def train(x: Tensor) -> Any:
    """A loss and gradients, with constants to fold on the way."""
    w = torch.ones(3, 3, device="cpu", requires_grad=True)
    loss = ((x @ w).sin() * torch.full((), 2.0, device="cpu").mul(3)).sum()
    (gradient,) = torch.autograd.grad(loss, w)
    return loss.detach(), gradient


@pytest.mark.parametrize("first", ["cpu", "meta"])
def test_a_default_device_is_not_where_compiled_code_has_its_memory(first: str) -> None:
    """A kernel wrote to memory on meta, which is none."""
    compiled = strict(train)
    x = torch.randn(3, 3)
    expected = train(x)
    with torch.device(first):
        torch.testing.assert_close(compiled(x), expected)
    with torch.device("meta"):
        torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(compiled(x), expected)


def test_steps_of_an_optimizer_under_a_default_device() -> None:
    def trained(call: Callable[..., Any]) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(3, 3, device="cpu")
        optimizer = torch.optim.Adam(model.parameters())
        step = call(optimizer.step)
        with torch.device("meta"):
            for _ in range(3):
                optimizer.zero_grad()
                call(model)(torch.ones(2, 3, device="cpu")).square().sum().backward()
                step()
        return list(model.parameters())

    torch.testing.assert_close(trained(strict), trained(lambda program: program))
