"""Tensors: everything about them that a graph may depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.capture.soundness.cases import Kind


class Subclass(torch.Tensor):
    """A subclass of tensor without behaviour of its own."""


def _tensor(*sizes: int, **options: Any) -> Callable[[], torch.Tensor]:
    def make() -> torch.Tensor:
        count = 1
        for size in sizes:
            count *= size
        return torch.arange(1, count + 1, dtype=torch.float32).reshape(sizes).to(**options)

    return make


READS = {
    "times": lambda v, x: x * v,
    "unary": lambda v, x: v * 2,
    "shape": lambda v, x: (x, v.shape),
    "branch on shape": lambda v, x: x + 1 if v.shape[0] == 2 else x - 1,
    "dim": lambda v, x: x * v.dim(),
    "numel": lambda v, x: x * v.numel(),
    "length": lambda v, x: x * len(v),
    "stride": lambda v, x: (x, v.stride()),
    "contiguous": lambda v, x: x + 1 if v.is_contiguous() else x - 1,
    "offset": lambda v, x: (x, v.storage_offset()),
    "dtype": lambda v, x: (x, v.dtype),
    "device": lambda v, x: (x, v.device),
    "floating": lambda v, x: x + 1 if v.is_floating_point() else x - 1,
    "requires grad": lambda v, x: x + 1 if v.requires_grad else x - 1,
    "leaf": lambda v, x: x + 1 if v.is_leaf else x - 1,
    "grad": lambda v, x: x + 1 if v.grad is None else x + v.grad,
    "grad function": lambda v, x: x + 1 if v.grad_fn is None else x - 1,
    "conjugate": lambda v, x: x + 1 if v.is_conj() else x - 1,
    "inference": lambda v, x: x + 1 if v.is_inference() else x - 1,
    "type": lambda v, x: (x, type(v).__name__),
    "isinstance": lambda v, x: x + 1 if isinstance(v, torch.nn.Parameter) else x - 1,
    "is": lambda v, x: x + 1 if v is x else x - 1,
    "attribute": lambda v, x: x * getattr(v, "extra", 2),
    "hasattr": lambda v, x: x + 1 if hasattr(v, "extra") else x - 1,
    "written": lambda v, x: (v.detach().clone().add_(1), x),
    "iterated": lambda v, x: [row.sum() for row in v],
    "size as number": lambda v, x: x * v.shape[-1] + v.size(0),
    "view": lambda v, x: v.reshape(-1)[0] + x,
    "names": lambda v, x: (x, v.names),
    "layout": lambda v, x: (x, v.layout),
    "data": lambda v, x: x + v.data,
    "itemsize": lambda v, x: (x, v.itemsize, v.nbytes, v.ndim),
}

OTHERS: dict[str, Callable[[], Any]] = {
    "other values": lambda: torch.zeros(2, 3),
    "of one row": _tensor(1, 3),
    "of no rows": lambda: torch.zeros(0, 3),
    "of more dimensions": _tensor(1, 2, 3),
    "a scalar": lambda: torch.tensor(2.0),
    "transposed": lambda: _tensor(3, 2)().t(),
    "with gaps": lambda: _tensor(2, 6)()[:, ::2],
    "with an offset": lambda: _tensor(3, 3)()[1:],
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "double": _tensor(2, 3, dtype=torch.float64),
    "integers": _tensor(2, 3, dtype=torch.int64),
    "booleans": _tensor(2, 3, dtype=torch.bool),
    "complex": _tensor(2, 3, dtype=torch.complex64),
    "conjugated": lambda: _tensor(2, 3, dtype=torch.complex64)().conj(),
    "half": _tensor(2, 3, dtype=torch.float16),
    "a parameter": lambda: torch.nn.Parameter(_tensor(2, 3)()),
    "needing gradients": lambda: _tensor(2, 3)().requires_grad_(),
    "a result": lambda: _tensor(2, 3)().requires_grad_() * 1,
    "with a gradient": lambda: _with_gradient(),
    "on meta": lambda: torch.ones(2, 3, device="meta"),
    "a subclass": lambda: _tensor(2, 3)().as_subclass(Subclass),
    "sparse": lambda: torch.eye(2, 3).to_sparse(),
    "in inference mode": lambda: _inference(),
    "with an attribute": lambda: _with_attribute(),
    "a number": lambda: 2.5,
    "None": lambda: None,
    "a list": lambda: [1.0, 2.0, 3.0],
}


def _with_gradient() -> torch.Tensor:
    tensor = torch.ones(2, 3, requires_grad=True)
    (tensor * 2).sum().backward()
    return tensor


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2, 3)


def _with_attribute() -> torch.Tensor:
    tensor = torch.ones(2, 3)
    tensor.extra = 7  # type: ignore[attr-defined]
    return tensor


def _resize(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.set_(torch.full((1, 3), 4.0))


CHANGES = {
    "values": lambda v: v.data.fill_(3),
    "sizes in place": lambda v: v.unsqueeze_(0),
    "strides in place": lambda v: v.t_(),
    "storage replaced": _resize,
    "resized": lambda v: v.resize_(1, 3),
    "gradients wanted": lambda v: v.requires_grad_(),
    "gradient appears": lambda v: setattr(v, "grad", torch.ones(2, 3)),
    "attribute": lambda v: setattr(v, "extra", 5),
    "data of other dtype": lambda v: setattr(v, "data", torch.ones(2, 3, dtype=torch.float64)),
    "data of other shape": lambda v: setattr(v, "data", torch.ones(1, 3)),
    "class": lambda v: setattr(v, "__class__", Subclass),
}

UNREAD = (
    ("times", "values"),
    ("unary", "values"),
    ("shape", "values"),
    ("times", "attribute"),
)

TENSOR = Kind(
    name="tensor",
    make=_tensor(2, 3),
    reads=READS,
    others=OTHERS,
    changes=CHANGES,
    unread=UNREAD,
)
PARAMETER = Kind(
    name="parameter",
    make=lambda: torch.nn.Parameter(_tensor(2, 3)()),
    reads={name: READS[name] for name in ("times", "requires grad", "type", "isinstance", "grad")},
    others=OTHERS,
    changes={name: CHANGES[name] for name in ("values", "gradient appears", "attribute")}
    | {"frozen": lambda v: v.requires_grad_(False)},
    unread=(("times", "values"),),
)


# -- several tensors -----------------------------------------------------------------------------


def _pair() -> list[torch.Tensor]:
    return [torch.ones(2, 3), torch.ones(2, 3)]


def _alias(pair: list[torch.Tensor]) -> None:
    pair[1] = pair[0]


def _view(pair: list[torch.Tensor]) -> None:
    pair[1] = pair[0][:]


PAIR = Kind(
    name="two tensors",
    make=_pair,
    reads={
        "written": lambda v, x: _written(v[0], v[1]),
        "is": lambda v, x: x + 1 if v[0] is v[1] else x - 1,
        "in": lambda v, x: x + 1 if any(t is v[0] for t in v[1:]) else x - 1,
        "results": lambda v, x: _results(v[0], v[1]),
        "as keys": lambda v, x: x * len({v[0]: 1, v[1]: 2}),
        "identity": lambda v, x: x * len({id(v[0]), id(v[1])}),
    },
    changes={
        "become one": _alias,
        "second a view": _view,
        "second replaced": lambda v: v.__setitem__(1, torch.zeros(2, 3)),
        "swapped": lambda v: v.reverse(),
    },
)

ONE_TWICE = Kind(
    name="one tensor twice",
    make=lambda: [torch.ones(2, 3)] * 2,
    reads=PAIR.reads,
    changes={"become two": lambda v: v.__setitem__(1, torch.ones(2, 3))},
)


def _written(one: Any, other: Any) -> Any:
    one.add_(1)
    result = one + other
    one.sub_(1)
    return result


def _results(one: Any, other: Any) -> Any:
    return [one is other, one + other]


KINDS = (TENSOR, PARAMETER, PAIR, ONE_TWICE)
