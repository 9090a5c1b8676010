"""What programs change in modules and tensors that exist: gradients, attributes, weights, buffers,
whole submodules; compared with eager after every call.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from tests.capture.torch_cases import Cases

X = torch.arange(12.0).reshape(3, 4) / 5 - 1
G = X.clone().requires_grad_()

cases = Cases()


def linear() -> nn.Linear:
    return nn.Linear(4, 4)


def _trained() -> tuple[Any, ...]:
    m = nn.Sequential(linear(), nn.ReLU(), linear())
    m(X).pow(2).mean().backward()
    return m, X


# -- gradients ------------------------------------------------------------------------------------


@cases(_trained)
def set_gradients_to_none(m: Any, x: Any) -> Any:
    for parameter in m.parameters():
        parameter.grad = None
    return m(x)


@cases(_trained)
def zero_gradients(m: Any, x: Any) -> Any:
    m.zero_grad(set_to_none=False)
    return [p.grad.sum() for p in m.parameters()]


@cases(_trained)
def scale_gradients(m: Any, x: Any) -> Any:
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.grad.mul_(2)
            parameter.grad += 1
    return x + 1


@cases(_trained)
def clip_gradients(m: Any, x: Any) -> Any:
    return torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)


@cases(_trained)
def plain_descent(m: Any, x: Any) -> Any:
    with torch.no_grad():
        for parameter in m.parameters():
            parameter.sub_(0.1 * parameter.grad)
    return m(x)


@cases(_trained)
def assign_gradient(m: Any, x: Any) -> Any:
    weight = m[0].weight
    weight.grad = torch.ones_like(weight)
    return weight.grad + 1, m[0].weight.grad is weight.grad


@cases(_trained, raises=True)
def assign_gradient_of_wrong_shape(m: Any, x: Any) -> Any:
    m[0].weight.grad = torch.ones(2)
    return x


# -- attributes of tensors ------------------------------------------------------------------------


@cases(X)
def attribute_on_argument(x: Any) -> Any:
    x.tag = "seen"
    x.twice = x * 2
    return x.twice + 1


@cases(X)
def attribute_counter(x: Any) -> Any:
    x.count = getattr(x, "count", 0) + 1
    return x * x.count


@cases(X)
def attribute_on_result(x: Any) -> Any:
    y = x * 2
    y.origin = x
    y.names_of_rows = ["a", "b"]
    del y.names_of_rows[0]
    return {"y": y}


@cases(X)
def attribute_removed(x: Any) -> Any:
    x.tag = 1
    del x.tag
    return hasattr(x, "tag"), x + 1


# -- weights and buffers --------------------------------------------------------------------------


@cases(lambda: (linear(), X))
def initialise_again(m: Any, x: Any) -> Any:
    with torch.no_grad():
        m.weight.fill_(0.5)
        m.bias.copy_(x[0])
        m.weight[0] = 0
    return m(x)


@cases(lambda: (linear(), X))
def initialise_with_torch(m: Any, x: Any) -> Any:
    nn.init.ones_(m.weight)
    nn.init.uniform_(m.bias)
    return m(x)


@cases(lambda: (linear(), linear(), X))
def load_weights(m: Any, other: Any, x: Any) -> Any:
    m.load_state_dict(other.state_dict())
    return m(x)


@cases(lambda: (linear(), linear(), X))
def average_weights(m: Any, average: Any, x: Any) -> Any:
    y = m(x)
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), m.parameters(), strict=True):
            mine.mul_(0.9).add_(theirs.detach(), alpha=0.1)
    return y, average(x)


@cases(lambda: (linear(), X), breaks="unsupported-attribute")
def assign_weight_data(m: Any, x: Any) -> Any:
    m.weight.data = m.weight.data * 2
    return m(x)


@cases(lambda: (linear(), X))
def write_through_weight_data(m: Any, x: Any) -> Any:
    m.weight.data.mul_(2)
    m.bias.data[0] = 3
    return m(x)


@cases(lambda: (linear(), X), breaks="unsupported-attribute")
def convert_weights(m: Any, x: Any) -> Any:
    m.double()
    return m(x.double())


@cases(lambda: (linear(), X), breaks="grad-required")
def freeze_all(m: Any, x: Any) -> Any:
    m.requires_grad_(False)
    return m(x)


class Statistics(nn.Module):
    """Counts and averages in buffers, in all the ways that code does it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("seen", None)
        self.history: list[Any] = []
        self.best: float | None = None

    def forward(self, x: Any) -> Any:
        if self.training:
            self.count += 1
            self.mean.lerp_(x.detach().mean(0), 0.1)
            if self.seen is None:
                self.seen = x.detach().amax(0)
            else:
                self.seen = torch.maximum(self.seen, x.detach().amax(0))
            self.history.append(x.shape[0])
            self.best = 1.0 if self.best is None else self.best + 1
        return (x - self.mean) * self.count


@cases(lambda: (Statistics(), X))
def statistics(m: Any, x: Any) -> Any:
    return m(m(x)), m.count + 0, m.history


# -- structure ------------------------------------------------------------------------------------


@cases(lambda: (nn.Sequential(linear(), nn.ReLU()), X))
def submodule_removed(m: Any, x: Any) -> Any:
    y = m(x)
    del m[1]
    return y, m(x), len(m)


@cases(lambda: (nn.Module(), linear(), X))
def submodule_added(m: Any, part: Any, x: Any) -> Any:
    m.add_module("part", part)
    m.other = part
    return m.part(x), m.other is part, [name for name, _ in m.named_children()]


@cases(lambda: (nn.ModuleDict({"a": linear()}), X))
def dictionary_of_modules_grows(m: Any, x: Any) -> Any:
    m["b"] = nn.Tanh()
    m.update({"c": nn.Sigmoid()})
    x = m.pop("a")(x)
    for part in m.values():
        x = part(x)
    return x, list(m)


class Cached(nn.Module):
    """Keeps a table by the length of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, Any] = {}

    def forward(self, x: Any) -> Any:
        length = x.shape[0]
        if length not in self.tables:
            self.tables[length] = torch.arange(length).float()
        return x + self.tables[length][:, None]


@cases(lambda: (Cached(), X))
def cached_table(m: Any, x: Any) -> Any:
    return m(x) + m(x * 2), sorted(m.tables)


@cases(lambda: (Cached(), X))
def called_by_name(m: Any, x: Any) -> Any:
    return getattr(m, "forward")(x), type(m).forward(m, x), m.__call__(x)  # noqa: B009


@cases(lambda: (nn.Sequential(linear(), nn.Dropout(0.5)), X))
def evaluate_and_return(m: Any, x: Any) -> Any:
    was = m.training
    m.eval()
    try:
        return m(x)
    finally:
        m.train(was)


@cases(lambda: (linear(), X), breaks="tensor-to-unknown")
def copy_of_a_module(m: Any, x: Any) -> Any:
    return copy.deepcopy(m)(x)


test_program = cases.test()
