"""What a function gives is its argument itself, shares its memory or is a copy, as in eager; and a
write to the one is seen in the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fusewright

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "dropout, evaluating": lambda x: F.dropout(x, 0.5, training=False),
    "dropout of nothing": lambda x: F.dropout(x, 0.0),
    "torch.dropout": lambda x: torch.dropout(x, 0.5, False),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, training=False),
    "alpha dropout of nothing": lambda x: F.alpha_dropout(x, 0.0, training=True),
    "feature dropout": lambda x: torch.feature_dropout(x, 0.0, True),
    "feature alpha dropout": lambda x: F.feature_alpha_dropout(x, 0.5, training=False),
    "native dropout": lambda x: torch.native_dropout(x, 0.5, False)[0],
    "contiguous": lambda x: x.contiguous(),
    "contiguous, transposed": lambda x: x.t().contiguous(),
    "to": lambda x: x.to(torch.float32),
    "to another": lambda x: x.to(x),
    "to a device": lambda x: x.to("cpu"),
    "cpu": lambda x: x.cpu(),
    "float": lambda x: x.float(),
    "type_as": lambda x: x.type_as(x),
    "atleast_1d": lambda x: torch.atleast_1d(x),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x)[0],
    "expand_as": lambda x: x.expand_as(x),
    "broadcast_to": lambda x: x.broadcast_to(x.shape),
    "reshape": lambda x: x.reshape(x.shape),
    "reshape_as": lambda x: x.reshape_as(x),
    "view_as": lambda x: x.view_as(x),
    "clone": lambda x: x.clone(),
    "flatten": lambda x: x[0].flatten(),
    "ravel": lambda x: x[0].ravel(),
    "squeeze": lambda x: x.squeeze(),
    "conj": lambda x: x.conj(),
    "resolve_conj": lambda x: x.resolve_conj(),
    "resolve_neg": lambda x: x.resolve_neg(),
    "real": lambda x: torch.real(x),
    "positive": lambda x: +x,
    "narrow": lambda x: x.narrow(0, 0, x.shape[0]),
    "everything": lambda x: x[:],
    "an ellipsis": lambda x: x[...],
    "index by True": lambda x: x[True],
    "chunk": lambda x: x.chunk(1)[0].clone(),
    "diag": lambda x: x.diag(),
    "tile": lambda x: x.tile(1),
    "roll by nothing": lambda x: x.roll(0),
    "rot90 by nothing": lambda x: x.rot90(0),
    "sum to size": lambda x: x.sum_to_size(x.shape),
    "pad by nothing": lambda x: F.pad(x, (0, 0)),
    "matrix_power": lambda x: torch.linalg.matrix_power(x, 1),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij")[0],
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0]),
    "cat": lambda x: torch.cat([x]),
    "identity": lambda x: torch.nn.Identity()(x),
    "flatten module": lambda x: torch.nn.Flatten()(x),
    "half and back": lambda x: x.double().float(),
}

MODES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "plain": (nullcontext, "plain"),
    "with gradients": (nullcontext, "inside"),
    "no_grad": (torch.no_grad, "inside"),
    "inference mode": (torch.inference_mode, "plain"),
}


def tensor(kind: str) -> torch.Tensor:
    x = torch.linspace(-1, 1, 16).reshape(4, 4)
    return x.requires_grad_() * 1 if kind == "inside" else x


def outcome(function: Callable[..., Any], mode: str) -> tuple[Any, ...]:
    """What a call gives, and which of it is, or shares the memory of, what; also its argument."""
    context, kind = MODES[mode]
    x = tensor(kind)
    with context():
        values = [*function(x), x]
    identity = [next(n for n, one in enumerate(values) if one is value) for value in values]
    pointers = [value.untyped_storage().data_ptr() for value in values]
    like = [(value.requires_grad, value.stride(), value.storage_offset()) for value in values]
    return [value.detach() for value in values], identity, [*map(pointers.index, pointers)], like


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_identity_and_writes(name: str, mode: str) -> None:
    function = FUNCTIONS[name]

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        z = function(y)
        y.add_(1)
        return z, y, function(x)

    def writes_result(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        z = function(y)
        z.mul_(3)
        return z, y + 0, y

    programs = [program] if mode in ("plain", "with gradients") else [program, writes_result]
    for each in programs:
        try:
            expected = outcome(each, mode)
        except RuntimeError:  # several elements are one in memory, or a leaf is written to
            continue
        ours = fusewright.compile(each, options={"strict": True})
        torch.testing.assert_close(outcome(ours, mode), expected, rtol=0, atol=0)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x.sort().values, x.sort().values),
        lambda x: (x.max(0).values, x.max(0).values, x.max(0).indices),
        lambda x: (x.sort().indices, x.msort(), x.sort().indices),
        lambda x: (torch.var_mean(x, 0)[1], torch.var_mean(x, 0)[1]),
    ],
)
def test_results_of_two_equal_calls_stay_two(
    program: Callable[[torch.Tensor], Any], grad: bool
) -> None:
    """The calls of several results are one, where no result of theirs is returned twice."""
    compiled = fusewright.compile(program, fullgraph=True, options={"strict": True})
    x = torch.randn(5, requires_grad=grad)
    results, expected = compiled(x), program(x)
    torch.testing.assert_close(results, expected)
    assert len({result.data_ptr() for result in results}) == len(results)
    if not expected[0].requires_grad:
        return
    gradients = [
        torch.autograd.grad(sum(one.sum() for one in each if one.requires_grad), x)[0]
        for each in (results, expected)
    ]
    assert torch.equal(*gradients)
