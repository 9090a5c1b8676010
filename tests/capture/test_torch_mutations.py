"""A module changes between two calls, in every way that a module can: the compiled function does
what the changed module does.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import parametrize

from fusewright import api
from tests.capture.agreement import assert_same

X = torch.arange(12.0).reshape(3, 4) / 5 - 1


class Scaled(nn.Module):
    """A bit of everything: weights shared by two layers, a buffer, plain attributes, dropout."""

    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.parts = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.table = nn.ModuleDict({"a": nn.Identity()})
        self.register_buffer("offset", torch.ones(4))
        self.register_buffer("missing", None)
        self.options = {"power": 2}
        self.note: Any = None

    def forward(self, x: Any) -> Any:
        x = self.second(self.first(x)) * self.factor + self.offset
        for part in self.parts:
            x = part(x)
        for name, part in self.table.items():
            x = part(x) + len(name)
        if self.missing is not None:
            x = x + self.missing
        if self.training:
            x = x * 3
        if hasattr(self, "extra"):
            x = x + self.extra
        if isinstance(self.note, str):
            x = x - 1
        tied = self.first.weight is self.second.weight
        return x ** self.options["power"], tied, x.requires_grad, x.dtype


class Doubled(nn.Module):
    def forward(self, weight: Any) -> Any:
        return weight * 2


def _patch_forward(m: Any) -> None:
    m.parts[0].forward = lambda x: x * 5


def _patch_class(m: Any) -> Callable[[], None]:
    original = Scaled.forward
    Scaled.forward = lambda self, x: (x, self.factor)  # type: ignore[assignment,method-assign]

    def undo() -> None:
        Scaled.forward = original  # type: ignore[method-assign]

    return undo


def _patch_class_attribute(m: Any) -> Callable[[], None]:
    Scaled.factor = 7.0
    return lambda: setattr(Scaled, "factor", 2.0)


def _add_global_hook(m: Any) -> Callable[[], None]:
    return register_module_forward_hook(lambda module, args, out: _plus_one(out)).remove


def _add_global_pre_hook(m: Any) -> Callable[[], None]:
    return register_module_forward_pre_hook(lambda module, args: (args[0] + 1,)).remove


def _plus_one(value: Any) -> Any:
    return value + 1 if isinstance(value, torch.Tensor) else value


def _set_grad_disabled(m: Any) -> Callable[[], None]:
    torch.set_grad_enabled(False)
    return lambda: torch.set_grad_enabled(True)


def _set_default_dtype(m: Any) -> Callable[[], None]:
    m.missing = torch.ones(4, dtype=torch.float64)
    torch.set_default_dtype(torch.float64)
    return lambda: torch.set_default_dtype(torch.float32)


MUTATIONS: dict[str, Callable[[Any], Any]] = {
    "eval": lambda m: m.eval(),
    "eval of a part": lambda m: m.first.eval(),
    "weights in place": lambda m: m.first.weight.data.mul_(2),
    "another weight": lambda m: setattr(m.first, "weight", nn.Parameter(torch.eye(4))),
    "weights no longer shared": lambda m: setattr(m.second, "weight", nn.Parameter(torch.eye(4))),
    "bias removed": lambda m: setattr(m.first, "bias", None),
    "other dtype": lambda m: m.double().register_buffer("missing", torch.ones(4)),
    "frozen": lambda m: m.requires_grad_(False),
    "buffer replaced": lambda m: setattr(m, "offset", torch.zeros(4)),
    "buffer of another shape": lambda m: setattr(m, "offset", torch.zeros(3, 1)),
    "buffer appears": lambda m: setattr(m, "missing", torch.ones(4)),
    "attribute appears": lambda m: setattr(m, "extra", 3.0),
    "tensor attribute appears": lambda m: setattr(m, "extra", torch.ones(4)),
    "attribute of another type": lambda m: setattr(m, "note", "text"),
    "option changed": lambda m: m.options.update(power=3),
    "options replaced": lambda m: setattr(m, "options", {"power": 3}),
    "module replaced": lambda m: setattr(m, "first", nn.LayerNorm(4)),
    "module of a list replaced": lambda m: m.parts.__setitem__(0, nn.Sigmoid()),
    "list grows": lambda m: m.parts.append(nn.Sigmoid()),
    "list shrinks": lambda m: m.parts.__delitem__(1),
    "dictionary grows": lambda m: m.table.update({"bb": nn.Tanh()}),
    "dictionary renamed": lambda m: setattr(m, "table", nn.ModuleDict({"abc": nn.Identity()})),
    "hook": lambda m: m.first.register_forward_hook(lambda module, args, out: out + 1),
    "pre-hook": lambda m: m.parts[0].register_forward_pre_hook(lambda module, a: (a[0] * 2,)),
    "hook on the whole": lambda m: m.register_forward_hook(lambda module, args, out: out[0]),
    "global hook": _add_global_hook,
    "global pre-hook": _add_global_pre_hook,
    "backward hook": lambda m: m.first.register_full_backward_hook(lambda module, i, o: None),
    "parametrised": lambda m: parametrize.register_parametrization(m.first, "bias", Doubled()),
    "forward of one object": _patch_forward,
    "forward bound anew": lambda m: setattr(
        m.first, "forward", types.MethodType(lambda self, x: x + self.bias, m.first)
    ),
    "forward of the class": _patch_class,
    "attribute of the class": _patch_class_attribute,
    "attribute hides the class's": lambda m: setattr(m, "factor", 9.0),
    "class changed": lambda m: setattr(m.parts[0], "__class__", nn.Sigmoid),
    "gradients off": _set_grad_disabled,
    "default dtype": _set_default_dtype,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MUTATIONS)
def test_change_is_noticed(name: str) -> None:
    torch.manual_seed(0)
    model = Scaled()
    compiled = api.compile(lambda m, x: m(x), backend="eager")
    assert_same(_detached(compiled(model, X)), _detached(model(X)))
    undo = MUTATIONS[name](model)
    try:
        x = X.double() if name == "other dtype" else X
        for _ in range(2):
            assert_same(_detached(compiled(model, x)), _detached(model(x)))
    finally:
        if isinstance(undo, (types.FunctionType, types.MethodType)):
            undo()


def _detached(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.detach()
    return [_detached(item) if isinstance(item, torch.Tensor) else item for item in result]
