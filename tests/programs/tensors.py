"""Tensors in Python programs: operators, items, attributes, containers that hold them, modes."""

# ruff: noqa (these programs are meant to use every form that the language has)

from __future__ import annotations

import functools
import operator

import torch

from tests.capture.agreement import Point
from tests.programs import corpus
from tests.programs.expressions import TABLE

X = torch.arange(6.0).reshape(2, 3)
SCALE = 3

program = corpus.program((X,))


class Tracked(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.last = key


@corpus.program((X, 5))
def tensors_and_a_number(x, n):
    return (
        x * n + x / 2 - n // 2 + x**2 - (n % 3), -x, +n, ~n, n << 2, n >> 1, n ^ 5, n | 8, n & 3,
        x > n, n < 5, n >= 5 > 2, x == x, x is x, n is not None, f"{n:>4}|{n!r}|{x.shape}",
    )  # fmt: skip


@program
def items_of_tensors(x):
    first, second = x
    return (
        first + second, x[0], x[:, 1:], x[..., None], x[x.shape[0] - 1], [row for row in x],
        any([0, x.shape[0]]),
    )  # fmt: skip


@corpus.program((X, {"scale": 3}), (X, [1, 2]), (X, Point(0, 5)), (X, "id"), (X, "other"), (X, 7))
def matching_an_argument(x, command):
    match command:
        case {"scale": factor}:
            return x * factor
        case [a, b]:
            return x + a + b
        case Point(x=0, y=y):
            return x - y
        case str(name) if name == "id":
            return x
        case _:
            return -x


@corpus.program((X, True), (X, False))
def branches_on_a_value(x, flag):
    y = x if flag else -x
    if flag:
        return (flag and "yes") or "no", not flag or None, y
    return None


@program
def missing_attribute_of_a_tensor(x):
    try:
        x.no_such_thing
    except AttributeError as error:
        return x, type(error)


@program
def gradient_modes(x):
    with torch.no_grad():
        a = torch.is_grad_enabled()
        y = x * 2
    with torch.enable_grad():
        b = torch.is_grad_enabled()
    return y, a, b, torch.is_grad_enabled()


@program
def partial_and_reduced(x):
    add = functools.partial(operator.add, x)
    scaled = functools.partial(torch.mul, other=2)
    return add(1), scaled(x), functools.reduce(lambda a, b: a + b, [x, x, x]), operator.add(x, 1)


@program
def dictionaries_with_attributes(x):
    tracked = Tracked(a=1)
    tracked["b"] = x
    return tracked, tracked.last


@program
def aliasing(x):
    inner = [x]
    outer = {"a": inner, "b": inner, "t": (inner,)}
    inner.append(1)
    return outer, outer["a"] is outer["b"], outer["t"][0] is inner


@program
def cycles(x):
    node = {"x": x}
    node["self"] = node
    return node["self"]["self"]["x"]


@program
def globals_and_builtins(x):
    return x * SCALE + TABLE["a"], len(TABLE), __name__


@program
def writes_in_place(x):
    y = x.clone()
    y += 1
    y[0] = 5
    y[:, 1] *= 2
    z = y
    z.mul_(2)
    return y, z is y


@program
def chained_methods(x):
    return (
        x.view(-1).reshape(3, 2).transpose(0, 1).contiguous().sum(dim=-1, keepdim=True).squeeze(-1)
    )


@program
def metadata(x):
    return (
        x.shape, x.size(), x.size(0), x.dim(), x.ndim, x.numel(), x.dtype, x.device, x.stride(),
        x.is_floating_point(), x.is_contiguous(), len(x), x.shape[-1], x.requires_grad, x.layout,
        x.element_size(), x.T, x.mT, x.shape[:-1] + (7,), isinstance(x, torch.Tensor),
        torch.is_tensor(x), x.is_cuda, x.size()[0], tuple(x.shape),
    )  # fmt: skip


@program
def factories(x):
    return (
        torch.zeros(2), torch.arange(3) + 1, torch.tensor([1.0, 2.0]), torch.ones_like(x),
        x.new_zeros(2), torch.full((2,), 7), torch.empty(0),
    )  # fmt: skip


@program
def several_results(x):
    values, indices = x.max(dim=1)
    pair = torch.sort(x)
    a, b = x.split([1, 2], dim=1)
    return values, indices, pair, pair.values, a, b, list(x.chunk(3, 1)), torch.topk(x, 1).indices


@program
def constant_tensors(x):
    n = torch.tensor(3)
    return x * n.item(), torch.stack([x, x]), torch.cat((x, x), dim=0)


@corpus.program((3,))
def no_tensors(n):
    return [n, n + 1], {"a": n}


@program
def deleted_attribute(x):
    d = Point(1)
    del d.y
    return x, hasattr(d, "y"), "y" in vars(d)


SHAPES = ((), (0,), (1,), (0, 3), (2, 0), (2, 3, 4))


@corpus.program(*((torch.ones(shape),) for shape in SHAPES))
def shapes(x):
    return x + 1, x.sum(), x.shape, x.numel()


DTYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64
)  # fmt: skip


@corpus.program(*((torch.ones(3, dtype=dtype),) for dtype in DTYPES))
def dtypes(x):
    return x * 1, x.to(torch.float32) if not x.is_complex() else x, x.dtype
