"""Modules under capture: containers, hooks, modes, modules that change themselves, modules made
inside.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from fusewright import api
from tests.capture.torch_cases import Cases

X = torch.arange(12.0).reshape(3, 4) / 5 - 1

cases = Cases()


def linear(inputs: int = 4, outputs: int = 4) -> nn.Linear:
    return nn.Linear(inputs, outputs)


# -- containers -----------------------------------------------------------------------------------


@cases(lambda: (nn.Sequential(linear(), nn.ReLU(), linear()), X))
def sequential(m: Any, x: Any) -> Any:
    return (
        m(x), m[0](x), m[-1](x), m[:2](x), len(m), [type(part).__name__ for part in m],
        *[part(x) for part in m], list(m._modules), m[1:][0](x),
    )  # fmt: skip


@cases(lambda: (nn.Sequential(collections.OrderedDict(a=linear(), b=nn.Tanh())), X))
def named_sequential(m: Any, x: Any) -> Any:
    return m.a(m.b(x)), [name for name, _ in m.named_children()], m.b is m[1]


@cases(lambda: (nn.ModuleList([linear() for _ in range(3)]), X))
def module_list(m: Any, x: Any) -> Any:
    for layer in m:
        x = layer(x)
    for index, layer in enumerate(m[1:]):
        x = x + layer(x) * index
    for layer in reversed(m):
        x = layer(x)
    return x, m[-1](x), len(m), m[0] in m, len(m[::2]), [*m][1](x)


@cases(lambda: (nn.ModuleDict({"a": linear(), "b": nn.ReLU()}), X, "b"))
def module_dict(m: Any, x: Any, name: str) -> Any:
    total = m["a"](x) + m[name](x)
    for key, part in m.items():
        total = total + part(x) * len(key)
    return total, list(m), list(m.keys()), len(m), "a" in m, "c" in m, [v(x) for v in m.values()]


@cases(lambda: (nn.ParameterList([torch.ones(4), torch.arange(4.0)]), X))
def parameter_list(m: Any, x: Any) -> Any:
    for parameter in m:
        x = x * parameter
    return x + m[0], len(m), m[-1] * 2, [p.requires_grad for p in m]


@cases(lambda: (nn.ParameterDict({"a": torch.ones(4), "b": torch.arange(4.0)}), X))
def parameter_dict(m: Any, x: Any) -> Any:
    for name, parameter in m.items():
        x = x + parameter * len(name)
    return x * m["a"], list(m.keys()), "b" in m, m.b * 2


@cases(lambda: (nn.ModuleList([linear()]), X))
def append_inside(m: Any, x: Any) -> Any:
    m.append(nn.ReLU())
    m.extend([nn.Tanh()])
    m.insert(0, nn.Sigmoid())
    for layer in m:
        x = layer(x)
    return x, len(m)


@cases(lambda: (nn.Sequential(linear(), nn.BatchNorm1d(4)), X))
def conversion_to_what_it_is(m: Any, x: Any) -> Any:
    """Routers of experts convert their weights in every call."""
    return m.to(torch.float32)(x)


@cases(lambda: (linear(), X), breaks="unsupported-attribute")
def conversion(m: Any, x: Any) -> Any:
    return m.to(torch.float64)(x.double())


# -- hooks ----------------------------------------------------------------------------------------


def hooked() -> tuple[Any, ...]:
    m = linear()
    m.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    m.register_forward_hook(lambda module, args, output: output + module.weight.sum())
    m.register_forward_hook(lambda module, args, output: None)
    return nn.Sequential(m, nn.ReLU()), X


@cases(hooked, captures=2)
def forward_hooks(m: Any, x: Any) -> Any:
    return m(x)


def hooked_with_keywords() -> tuple[Any, ...]:
    class Scaled(nn.Module):
        def forward(self, x: Any, *, scale: Any) -> Any:
            return x * scale

    m = Scaled()
    m.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True
    )
    m.register_forward_hook(
        lambda module, args, kwargs, output: output * kwargs["scale"], with_kwargs=True
    )
    m.register_forward_hook(lambda module, args, output: output - 1, prepend=True)
    m.register_forward_hook(lambda module, args, output: output - 1, always_call=True)
    return m, X


@cases(hooked_with_keywords, captures=2)
def hooks_with_keywords(m: Any, x: Any) -> Any:
    return m(x, scale=3)


@cases(lambda: (linear(), X), captures=2)
def hook_registered_inside(m: Any, x: Any) -> Any:
    handle = m.register_forward_hook(lambda module, args, output: output * 3)
    y = m(x)
    handle.remove()
    return y, m(x)


def counting_hook() -> tuple[Any, ...]:
    m = linear()
    seen: list[Any] = []
    m.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    return m, X, seen


@cases(counting_hook, captures=2)
def hook_with_effect(m: Any, x: Any, seen: list[Any]) -> Any:
    return m(x) + len(seen)


def backward_hooked() -> tuple[Any, ...]:
    m = nn.Sequential(linear(), linear())
    m[0].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
    return m, X.clone().requires_grad_()


@cases(backward_hooked, breaks="grad-required")
def backward_hooks(m: Any, x: Any) -> Any:
    return m(x) * 2


@cases(lambda: (linear(), X), captures=2)
def global_hooks(m: Any, x: Any) -> Any:
    from torch.nn.modules.module import register_module_forward_hook

    handle = register_module_forward_hook(lambda module, args, output: output + 1)
    try:
        return m(x)
    finally:
        handle.remove()


# -- modules that build or change themselves ------------------------------------------------------


@cases(lambda: (nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d()), X), breaks="tensor-kind")
def lazy_modules(m: Any, x: Any) -> Any:
    return m(x)


class Counting(nn.Module):
    """Keeps a count in Python, a running sum in a buffer, and the last output."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.last = None
        self.register_buffer("total", torch.zeros(4))
        self.layer = linear()

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.total = self.total + x.detach().sum(0)
        self.last = x.detach() * 2
        return self.layer(x) * self.calls


@cases(lambda: (Counting(), X))
def self_mutating(m: Any, x: Any) -> Any:
    return m(x) + m(x)


@cases(lambda: (nn.Sequential(linear(), nn.ReLU()), X))
def replace_module(m: Any, x: Any) -> Any:
    y = m(x)
    m[1] = nn.Tanh()
    m.extra = nn.Sigmoid()
    return y, m(x)


@cases(lambda: (linear(), X))
def new_buffers_and_parameters(m: Any, x: Any) -> Any:
    m.register_buffer("offset", torch.ones(4), persistent=False)
    m.register_buffer("nothing", None)
    y = m(x) + m.offset
    m.offset = m.offset * 2
    del m.nothing
    return y, m.offset, sorted(m._buffers)


@cases(lambda: (nn.BatchNorm1d(4), X))
def batch_norm(m: Any, x: Any) -> Any:
    y = m(x)
    m.eval()
    return y, m(x), m.training, m.num_batches_tracked + 0


@cases(lambda: (nn.Sequential(nn.Dropout(0.5), nn.Dropout1d(0.5)), X))
def train_and_eval(m: Any, x: Any) -> Any:
    a = m(x)
    m.eval()
    b = m(x)
    m.train()
    m[0].train(False)
    return a, b, [part.training for part in m.modules()]


@cases(lambda: (nn.Sequential(linear(), nn.Sequential(linear(), nn.ReLU())), X))
def inspection(m: Any, x: Any) -> Any:
    total = x.sum()
    for name, parameter in m.named_parameters():
        total = total + parameter.sum() * len(name)
    for parameter in m.parameters():
        total = total + parameter.mean()
    return (
        total, [name for name, _ in m.named_modules()], [type(c) for c in m.children()],
        list(m.state_dict()), m.state_dict()["0.weight"] * 2, m.get_submodule("1.0")(x),
        m.get_parameter("1.0.bias") + 1, sum(p.numel() for p in m.parameters()),
        any(p.requires_grad for p in m.parameters()), dict(m.named_children())["0"](x),
        next(m.parameters()).dtype, len(list(m.buffers())),
    )  # fmt: skip


@cases(lambda: (linear(), X), breaks="grad-required")
def freeze_inside(m: Any, x: Any) -> Any:
    for parameter in m.parameters():
        parameter.requires_grad_(False)
    return m(x)


@cases(lambda: (linear(), X))
def apply_function(m: Any, x: Any) -> Any:
    def double(part: Any) -> None:
        if isinstance(part, nn.Linear):
            part.scale = 2

    m.apply(double)
    return m(x) * m.scale, repr(m)


# -- modules made inside --------------------------------------------------------------------------


@cases(X)
def stateless_modules_made_inside(x: Any) -> Any:
    return nn.ReLU()(x) + nn.Sequential(nn.Tanh(), nn.Flatten(0))(x).view(3, 4) + nn.Softmax(1)(x)


@cases(X, breaks="parameter-made")
def module_made_inside(x: Any) -> Any:
    m = nn.Linear(4, 2)
    return m(x), m.weight


@cases(X, breaks="parameter-made")
def parameter_made_inside(x: Any) -> Any:
    p = nn.Parameter(torch.ones(4))
    return x * p, isinstance(p, nn.Parameter), p.requires_grad


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = linear()
        self.second = linear()
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x)), self.first.weight is self.second.weight


@cases(lambda: (Tied(), X))
def tied_weights(m: Any, x: Any) -> Any:
    return m(x)


# -- parametrisations and norms -------------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, weight: Any) -> Any:
        return weight.triu() + weight.triu(1).transpose(-1, -2)


def parametrised() -> tuple[Any, ...]:
    m = linear()
    parametrize.register_parametrization(m, "weight", Symmetric())
    return m, X


@cases(parametrised, captures=2)
def parametrisation(m: Any, x: Any) -> Any:
    with parametrize.cached():
        y = m(x)
    return m(x) + y, m.weight, parametrize.is_parametrized(m)


@cases(lambda: (parametrizations.weight_norm(linear()), X), captures=2)
def weight_norm(m: Any, x: Any) -> Any:
    return m(x)


@cases(lambda: (nn.utils.weight_norm(linear()), X), captures=2)
def weight_norm_by_hook(m: Any, x: Any) -> Any:
    return m(x)


@cases(lambda: (parametrizations.spectral_norm(linear()), X), captures=2)
def spectral_norm(m: Any, x: Any) -> Any:
    return m(x)


@cases(lambda: (nn.utils.spectral_norm(linear()), X), captures=2)
def spectral_norm_by_hook(m: Any, x: Any) -> Any:
    return m(x)


@cases(lambda: (parametrizations.orthogonal(linear()), X), captures=2)
def orthogonal(m: Any, x: Any) -> Any:
    return m(x)


# -- layers of torch ------------------------------------------------------------------------------


@cases(lambda: (nn.LSTM(4, 5, num_layers=2, batch_first=True), X[None]), captures=2)
def lstm(m: Any, x: Any) -> Any:
    return m(x)


@cases(lambda: (nn.GRU(4, 5, bidirectional=True), X[:, None], torch.zeros(2, 1, 5)), captures=2)
def gru(m: Any, x: Any, h: Any) -> Any:
    return m(x, h)


@cases(lambda: (nn.RNN(4, 5), nn.LSTMCell(4, 5), nn.GRUCell(4, 5), X), captures=2)
def recurrent_cells(rnn: Any, lstm_cell: Any, gru_cell: Any, x: Any) -> Any:
    return rnn(x), lstm_cell(x), gru_cell(x)


@cases(lambda: (nn.MultiheadAttention(4, 2, batch_first=True), X[None]))
def attention(m: Any, x: Any) -> Any:
    mask = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    return m(x, x, x), m(x, x, x, attn_mask=mask, need_weights=False)[0]


@cases(lambda: (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), X[None]))
def encoder_layer(m: Any, x: Any) -> Any:
    return m(x)


@cases(
    lambda: (
        nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, batch_first=True), 2).eval(),
        X[None],
    ),
)
def decoder(m: Any, x: Any) -> Any:
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    return m(x, x, tgt_mask=mask)


@cases(lambda: (nn.Embedding(7, 3, padding_idx=0, max_norm=1.0), torch.tensor([[1, 0, 6]])))
def embedding(m: Any, ids: Any) -> Any:
    return m(ids)


@cases(lambda: (nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), X[None, None]))
def convolution(m: Any, x: Any) -> Any:
    return (nn.functional.max_pool2d(m(x), 2), nn.Upsample(scale_factor=2)(x))


@cases(
    lambda: (X, torch.tensor([1, 0, 3])),
)
def losses(x: Any, target: Any) -> Any:
    return (
        nn.CrossEntropyLoss()(x, target), nn.MSELoss()(x, x * 2), nn.L1Loss(reduction="sum")(x, -x),
        nn.BCEWithLogitsLoss()(x, x.sigmoid()), nn.functional.nll_loss(x, target, ignore_index=0),
        nn.HuberLoss()(x, -x), nn.KLDivLoss(reduction="batchmean")(x, x.softmax(1)),
    )  # fmt: skip


@cases(lambda: (nn.DataParallel(linear()), X))
def data_parallel(m: Any, x: Any) -> Any:
    return m(x)


class WithGetattr(nn.Module):
    """Hands attributes on to the module that it wraps."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x: Any) -> Any:
        return self.inner(x) + self.bias


@cases(lambda: (WithGetattr(linear()), X))
def custom_getattr(m: Any, x: Any) -> Any:
    return m(x), m.out_features


class Custom(nn.Module):
    """Overrides `__call__` and keeps modules in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [linear(), nn.ReLU()]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) + 1

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@cases(lambda: (Custom(), X))
def custom_call(m: Any, x: Any) -> Any:
    return m(x)


@cases(lambda: (torch.jit.script(nn.Linear(4, 4)), X), breaks="unknown-callable")
def scripted_module(m: Any, x: Any) -> Any:
    return m(x) * 2


@cases(lambda: (linear(), torch.optim.SGD, X), breaks="grad-required")
def optimizer_made_inside(m: Any, optimizer_class: Any, x: Any) -> Any:
    optimizer = optimizer_class(m.parameters(), lr=0.1)
    optimizer.zero_grad()
    m(x).sum().backward()
    optimizer.step()
    return m(x)


test_program = cases.test()


def test_recurrent_layers_see_a_weight_replaced() -> None:
    layer = nn.LSTM(4, 5)
    compiled = api.compile(layer, backend="eager", fullgraph=True)
    x = X[:, None]
    assert torch.equal(compiled(x)[0], layer(x)[0])
    layer.weight_ih_l0 = nn.Parameter(torch.zeros(20, 4))
    assert torch.equal(compiled(x)[0], layer(x)[0])


def test_weights_are_swapped_without_capturing_again() -> None:
    layer = nn.Linear(4, 4)
    compiled = api.compile(lambda m, x: m(x), backend="eager", fullgraph=True)
    for _ in range(3):
        layer.weight = nn.Parameter(torch.randn(4, 4))
        assert torch.equal(compiled(layer, X), layer(X))
    assert compiled.compiler.capture_count == 1
