"""Functions, methods, partial applications and modules, and what becomes of them."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch import nn

from tests.capture.soundness.cases import Kind

# -- functions -----------------------------------------------------------------------------------

SOURCE = """
scale = 2

def helper(x):
    return x + 1

def function(x, factor=3, *, shift=1):
    return helper(x) * scale * factor + shift
"""


def _function() -> Any:
    namespace = {"__name__": "somewhere"}
    exec(compile(SOURCE, __file__, "exec"), namespace)
    return namespace["function"]


def _closure() -> Any:
    cell = 2

    def inner(x: Any) -> Any:
        return x * cell

    def change(new: Any) -> None:
        nonlocal cell
        cell = new

    inner.change = change  # type: ignore[attr-defined]
    return inner


FUNCTION_READS = {
    "call": lambda v, x: v(x),
    "call with all": lambda v, x: v(x, 5, shift=2),
    "map": lambda v, x: list(map(v, [x, x + 1])),
    "partial": lambda v, x: functools.partial(v, factor=7)(x),
    "decorated inside": lambda v, x: functools.wraps(v)(lambda y: v(y))(x),
    "name": lambda v, x: (x, v.__name__),
    "defaults": lambda v, x: (x, v.__defaults__),
    "signature": lambda v, x: (x, v.__code__.co_argcount),
    "attribute": lambda v, x: x * getattr(v, "extra", 2),
    "is": lambda v, x: x + 1 if v is torch.sin else x - 1,
    "callable": lambda v, x: x + 1 if callable(v) else x - 1,
}

FUNCTION = Kind(
    name="function",
    make=_function,
    reads=FUNCTION_READS,
    others={
        "another": lambda: lambda x, factor=1, *, shift=0: x * 9 + factor + shift,
        "a torch function": lambda: torch.sin,
        "a partial": lambda: functools.partial(_function(), factor=4),
        "a cached function": lambda: functools.lru_cache(_function()),
        "a callable": lambda: _Callable(),
        "None": lambda: None,
        "a built-in": lambda: abs,
        "a class": lambda: _Callable,
    },
    changes={
        "code": lambda v: setattr(
            v, "__code__", (lambda x, factor=3, *, shift=1: x * 11 + factor).__code__
        ),
        "defaults": lambda v: setattr(v, "__defaults__", (4,)),
        "defaults shifted": lambda v: setattr(v, "__defaults__", (3, 3)),
        "defaults gone": lambda v: setattr(v, "__defaults__", None),
        "keyword default": lambda v: v.__kwdefaults__.__setitem__("shift", 5),
        "keyword defaults replaced": lambda v: setattr(v, "__kwdefaults__", {"shift": 6}),
        "keyword defaults gone": lambda v: setattr(v, "__kwdefaults__", None),
        "global": lambda v: v.__globals__.__setitem__("scale", 4),
        "global to tensor": lambda v: v.__globals__.__setitem__("scale", torch.tensor(4.0)),
        "global deleted": lambda v: v.__globals__.__delitem__("scale"),
        "helper": lambda v: v.__globals__.__setitem__("helper", lambda x: x * 8),
        "helper's code": lambda v: setattr(
            v.__globals__["helper"], "__code__", (lambda x: x * 9).__code__
        ),
        "attribute": lambda v: setattr(v, "extra", 3),
        "name": lambda v: setattr(v, "__name__", "renamed"),
    },
    unread=(
        ("call", "attribute"),
        ("call with all", "keyword defaults replaced"),
        ("name", "global"),
    ),
)

CLOSURE = Kind(
    name="closure",
    make=_closure,
    reads=FUNCTION_READS,
    others={"another": lambda: _closure(), "a method": lambda: _Callable().method},
    changes={
        "cell": lambda v: v.change(3),
        "cell to tensor": lambda v: v.change(torch.tensor(3.0)),
        "cell to function": lambda v: v.change("text"),
        "cell emptied": lambda v: v.__closure__[0].__delattr__("cell_contents"),
    },
)


class _Callable:
    """An object that is called."""

    scale = 2

    def __init__(self, a: Any = 2) -> None:
        self.a = a

    def __call__(self, x: Any, *arguments: Any, **keywords: Any) -> Any:
        return x * self.a

    def method(self, x: Any, *arguments: Any, **keywords: Any) -> Any:
        return x + self.a * self.scale


def _own_callable() -> Any:
    cls = type("Callable", (_Callable,), {"method": _copy(_Callable.method)})
    return cls()


def _copy(function: Any) -> Any:
    copied = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    copied.__defaults__ = function.__defaults__
    return copied


METHOD = Kind(
    name="bound method",
    make=lambda: _own_callable().method,
    reads=FUNCTION_READS
    | {"self": lambda v, x: x * v.__self__.a, "function": lambda v, x: v.__func__(v.__self__, x)},
    others={
        "of another object": lambda: _Callable(5).method,
        "another method": lambda: _Callable(5).__call__,
        "a function": lambda: lambda x, *a, **k: x - 4,
        "of a list": lambda: [].append,
        "of a tensor": lambda: torch.ones(2, 3).add,
    },
    changes={
        "attribute of self": lambda v: setattr(v.__self__, "a", 5),
        "class attribute": lambda v: setattr(type(v.__self__), "scale", 5),
        "code": lambda v: setattr(
            v.__func__, "__code__", (lambda self, x, *a, **k: x * 17).__code__
        ),
        "method replaced": lambda v: setattr(type(v.__self__), "method", lambda s, x: x * 18),
    },
    unread=(("name", "attribute of self"),),
)

PARTIAL = Kind(
    name="partial",
    make=lambda: functools.partial(_function(), factor=4),
    reads={
        "call": lambda v, x: v(x),
        "call with more": lambda v, x: v(x, shift=9),
        "keywords": lambda v, x: (x, dict(v.keywords)),
        "function": lambda v, x: v.func(x),
        "arguments": lambda v, x: (x, len(v.args)),
    },
    others={
        "another": lambda: functools.partial(_function(), factor=5),
        "positional": lambda: functools.partial(_function(), torch.ones(2, 3)),
        "a function": lambda: _function(),
        "of torch": lambda: functools.partial(torch.add, alpha=2, other=1),
    },
    changes={
        "keyword": lambda v: v.keywords.__setitem__("factor", 6),
        "keyword added": lambda v: v.keywords.__setitem__("shift", 6),
        "keyword to tensor": lambda v: v.keywords.__setitem__("factor", torch.tensor(2.0)),
        "state": lambda v: v.__setstate__((v.func, (), {"factor": 8}, {})),
        "function's default": lambda v: setattr(v.func, "__kwdefaults__", {"shift": 5}),
    },
)

# -- modules -------------------------------------------------------------------------------------


class Block(nn.Module):
    """A module with a parameter, a buffer, a submodule and a plain attribute."""

    def __init__(self, scale: Any = 2) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.table = nn.ModuleDict({"a": nn.Tanh(), "b": nn.ReLU()})
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("nothing", None)
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.weight + self.mean * self.scale


def _block(**attributes: Any) -> Any:
    """A block of a class of its own, so that its class may be changed."""
    cls = type("Block", (Block,), {"forward": _copy(Block.forward)})
    torch.manual_seed(0)
    return cls(**attributes)


def _hook(module: Any, *arguments: Any) -> Any:
    return arguments[-1] * 2


def _before(module: Any, arguments: Any) -> Any:
    return (arguments[0] + 1,)


MODULE_READS = {
    "call": lambda v, x: v(x),
    "forward": lambda v, x: v.forward(x),
    "layers": lambda v, x: nn.Sequential.forward(v.layers, x),
    "loop": lambda v, x: [layer(x) for layer in v.layers],
    "index": lambda v, x: v.layers[0](x),
    "last": lambda v, x: v.layers[-1](x),
    "length": lambda v, x: x * len(v.layers),
    "module dict": lambda v, x: v.table["a"](x),
    "module dict keys": lambda v, x: (x, list(v.table.keys())),
    "training": lambda v, x: x + 1 if v.training else x - 1,
    "dropout": lambda v, x: nn.functional.dropout(x, 0.0, v.training),
    "parameter": lambda v, x: x * v.weight,
    "shape": lambda v, x: (x, v.weight.shape),
    "requires grad": lambda v, x: x + 1 if v.weight.requires_grad else x - 1,
    "buffer": lambda v, x: x + v.mean,
    "buffer is None": lambda v, x: x + 1 if v.nothing is None else x - 1,
    "attribute": lambda v, x: x * v.scale,
    "parameters": lambda v, x: [x.sum() + p.sum() for p in v.parameters()],
    "named parameters": lambda v, x: (x, [name for name, _ in v.named_parameters()]),
    "buffers": lambda v, x: [x + b.sum() for b in v.buffers()],
    "children": lambda v, x: (x, [type(c).__name__ for c in v.children()]),
    "modules": lambda v, x: (x, [type(c).__name__ for c in v.modules()]),
    "isinstance": lambda v, x: x + 1 if isinstance(v.inner, nn.Linear) else x - 1,
    "hasattr": lambda v, x: x + 1 if hasattr(v, "absent") else x - 1,
    "getattr": lambda v, x: x * getattr(v, "absent", 3),
    "get submodule": lambda v, x: v.get_submodule("layers.0")(x),
    "state keys": lambda v, x: (x, list(v._parameters)),
    "extra": lambda v, x: (x, v.extra_repr()),
}

MODULE_CHANGES = {
    "train flag": lambda v: v.eval(),
    "train flag of submodule": lambda v: v.layers.eval(),
    "weight values": lambda v: v.weight.data.fill_(3),
    "weight replaced": lambda v: setattr(v, "weight", nn.Parameter(torch.full((3,), 4.0))),
    "weight of other shape": lambda v: setattr(v, "weight", nn.Parameter(torch.ones(1))),
    "weight of other dtype": lambda v: setattr(v, "weight", nn.Parameter(torch.ones(3).double())),
    "weight frozen": lambda v: v.weight.requires_grad_(False),
    "weight deleted": lambda v: delattr(v, "weight"),
    "weight to None": lambda v: setattr(v, "weight", None),
    "weight to buffer": lambda v: (
        delattr(v, "weight"),
        v.register_buffer("weight", torch.full((3,), 5.0)),
    ),
    "parameter added": lambda v: v.register_parameter("absent", nn.Parameter(torch.ones(3))),
    "buffer values": lambda v: v.mean.fill_(3),
    "buffer replaced": lambda v: setattr(v, "mean", torch.full((3,), 4.0)),
    "buffer of other dtype": lambda v: setattr(v, "mean", torch.ones(3, dtype=torch.int64)),
    "buffer of other shape": lambda v: setattr(v, "mean", torch.ones(2, 3)),
    "buffer appears": lambda v: setattr(v, "nothing", torch.ones(3)),
    "to double": lambda v: v.double(),
    "submodule replaced": lambda v: setattr(v, "inner", nn.Identity()),
    "submodule of same class": lambda v: setattr(v, "inner", nn.Linear(3, 3)),
    "submodule without bias": lambda v: setattr(v, "inner", nn.Linear(3, 3, bias=False)),
    "submodule added": lambda v: v.add_module("absent", nn.ReLU()),
    "submodule deleted": lambda v: delattr(v, "inner"),
    "layer replaced": lambda v: v.layers.__setitem__(0, nn.Tanh()),
    "layer appended": lambda v: v.layers.append(nn.Tanh()),
    "layer deleted": lambda v: v.layers.__delitem__(0),
    "layers are one": lambda v: v.layers.__setitem__(1, v.layers[0]),
    "layers swapped": lambda v: v.layers.__init__([v.layers[1], v.layers[0]]),
    "entry replaced": lambda v: v.table.__setitem__("a", nn.ReLU()),
    "entry added": lambda v: v.table.__setitem__("c", nn.ReLU()),
    "entry deleted": lambda v: v.table.pop("b"),
    "scale": lambda v: setattr(v, "scale", 5),
    "absent appears": lambda v: setattr(v, "absent", 5),
    "absent on class": lambda v: setattr(type(v), "absent", 5),
    "forward hook": lambda v: v.register_forward_hook(_hook),
    "forward pre-hook": lambda v: v.register_forward_pre_hook(_before),
    "hook of submodule": lambda v: v.inner.register_forward_hook(_hook),
    "hook with keywords": lambda v: v.register_forward_hook(
        lambda module, args, kwargs, result: result * 3, with_kwargs=True
    ),
    "hook of layer": lambda v: v.layers[0].register_forward_pre_hook(_before),
    "forward on instance": lambda v: setattr(v, "forward", lambda x: x * 19),
    "forward of submodule": lambda v: setattr(v.inner, "forward", lambda x: x * 19),
    "forward on class": lambda v: setattr(type(v), "forward", lambda self, x: x * 20),
    "forward's code": lambda v: setattr(
        type(v).forward, "__code__", (lambda self, x: x * 21).__code__
    ),
    "__call__ on class": lambda v: setattr(type(v), "__call__", lambda self, x: x * 22),
    "property over weight": lambda v: setattr(type(v), "weight", property(lambda s: 23)),
    "__getattr__ on class": lambda v: setattr(type(v), "__getattr__", lambda self, name: 24),
    "class": lambda v: setattr(v, "__class__", Block),
    "extra_repr": lambda v: setattr(type(v), "extra_repr", lambda self: "more"),
    "weights are one": lambda v: setattr(v.inner, "bias", v.weight),
    "weights share storage": lambda v: setattr(v.inner, "bias", nn.Parameter(v.weight.data)),
    "parametrization": lambda v: nn.utils.parametrize.register_parametrization(
        v, "weight", nn.Tanh()
    ),
}

MODULE = Kind(
    name="module",
    make=_block,
    reads=MODULE_READS,
    others={
        "of same class": lambda: Block(3),
        "another": lambda: nn.Linear(3, 3),
        "None": lambda: None,
        "evaluating": lambda: _block().eval(),
        "sequential": lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()),
    },
    changes=MODULE_CHANGES,
    unread=(
        ("call", "weight values"),
        ("call", "buffer values"),
        ("call", "weight replaced"),
        ("call", "absent appears"),
        ("parameter", "weight replaced"),
        ("parameter", "scale"),
        ("parameter", "train flag"),
        ("attribute", "buffer replaced"),
        ("attribute", "forward hook"),
        ("forward", "forward hook"),
        ("index", "entry added"),
    ),
)

KINDS = (FUNCTION, CLOSURE, METHOD, PARTIAL, MODULE)
