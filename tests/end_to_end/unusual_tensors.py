"""Tensors that are not strided memory of ordinary numbers, in each place where a program meets
tensors, compared with eager: the same results, the same gradients, or the same exception; under
`fullgraph` those too, or a refusal whose reason stands in the catalogue.

    python -m tests.end_to_end.unusual_tensors [KIND ...]

prints one row for each combination that differs, and the totals.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn

import fusewright
from fusewright.capture import reasons
from fusewright.errors import Unsupported
from tests.end_to_end.tensor_subclasses import Dispatched, Labelled

JAGGED_SIZE: Final = re.compile(r"\bj\d+\b")
"""The size of a nested tensor's ragged dimension: each tensor has its own."""

Convert = Callable[[torch.Tensor], torch.Tensor]

KINDS: Final[dict[str, Convert]] = {
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
    "quantised by channel": lambda x: torch.quantize_per_channel(
        x, torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.zeros(4, dtype=torch.int64), 0, torch.qint8
    ),
    "sparse": lambda x: x.relu().to_sparse(),
    "sparse uncoalesced": lambda x: torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 0], [2, 0, 2]]), x[0, :3], (4, 4)
    ),
    "sparse hybrid": lambda x: x.to_sparse(1),
    "compressed rows": lambda x: x.relu().to_sparse_csr(),
    "compressed columns": lambda x: x.relu().to_sparse_csc(),
    "compressed blocks": lambda x: x.relu().to_sparse_bsr((2, 2)),
    "nested": lambda x: torch.nested.nested_tensor([x, x[:2]]),
    "jagged": lambda x: torch.nested.as_nested_tensor([x, x[:2]], layout=torch.jagged),
    "mkldnn": lambda x: x.to_mkldnn(),
    "complex64": lambda x: torch.complex(x, x.flip(0)),
    "complex128": lambda x: torch.complex(x.double(), x.flip(0).double()),
    "conjugate": lambda x: torch.complex(x, x.flip(0)).conj(),
    "negative": lambda x: torch.complex(x, x.flip(0)).conj().imag,
    "half": lambda x: x.half(),
    "bfloat16": lambda x: x.bfloat16(),
    "float8_e4m3": lambda x: x.to(torch.float8_e4m3fn),
    "float8_e5m2": lambda x: x.to(torch.float8_e5m2),
    "uint16": lambda x: x.abs().to(torch.uint16),
    "uint64": lambda x: x.abs().to(torch.uint64),
    "meta": lambda x: x.to("meta"),
    "labelled": lambda x: x.as_subclass(Labelled),
    "dispatched": lambda x: Dispatched(x),
    "masked": lambda x: torch.masked.masked_tensor(x, x > 0),
    "half complex": lambda x: torch.complex(x, x).to(torch.complex32),
}
"""How each kind of tensor is made of a float matrix of 4 x 4."""

PROGRAMS: Final[dict[str, Convert]] = {
    "add": lambda t: t + t,
    "scale": lambda t: t * 2,
    "sum": lambda t: t.sum(),
    "relu": lambda t: torch.relu(t),
    "product": lambda t: t @ torch.ones(4, 4, device=t.device),
    "linear": lambda t: nn.functional.linear(torch.ones(2, 4, device=t.device), t),
    "dense": lambda t: t.to_dense() + 1,
    "dequantised": lambda t: t.dequantize() + 1,
    "float": lambda t: t.float() * 2,
    "clone": lambda t: t.clone(),
    "row": lambda t: t[0],
    "transposed": lambda t: t.t(),
    "viewed": lambda t: t.view(-1),
    "joined": lambda t: torch.cat([t, t]),
    "written": lambda t: t.clone().add_(1),
    "passed on": lambda t: [t, {"t": t}],
    "questions": lambda t: (
        torch.ones(3) + t.dim(),
        t.shape,
        t.dtype,
        t.is_sparse,
        t.layout,
        t.is_quantized,
        t.device,
        t.is_complex(),
        t.is_nested,
        t.requires_grad,
    ),
    "branch": lambda t: t * 2 if t.is_sparse or t.is_quantized else t + 1,
    "values": lambda t: t.values() * 2,
    "elements": lambda t: t.tolist(),
}
"""What is done with each."""


def x() -> torch.Tensor:
    return torch.linspace(-1, 2, 16).reshape(4, 4).clone()


class Holder(nn.Module):
    """A module with the tensor as a parameter or, where it cannot be one, as a buffer."""

    def __init__(self, tensor: torch.Tensor, program: Convert) -> None:
        super().__init__()
        self.program = program
        if tensor.is_floating_point() or tensor.is_complex():
            self.tensor = nn.Parameter(tensor, requires_grad=False)
        else:
            self.register_buffer("tensor", tensor)

    def forward(self) -> Any:
        return self.program(self.tensor)


def as_input(convert: Convert, program: Convert) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda t: program(t), (convert(x()),)


def as_parameter(convert: Convert, program: Convert) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return Holder(convert(x()), program), ()


def made_inside(convert: Convert, program: Convert) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda x: program(convert(x * 1)), (x(),)


def trained(convert: Convert, program: Convert) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda x: program(convert(x * 1)), (x().requires_grad_(),)


def trained_leaf(convert: Convert, program: Convert) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda t: program(t), (convert(x()).detach().requires_grad_(),)


PLACES: Final = {
    "input": as_input,
    "parameter": as_parameter,
    "inside": made_inside,
    "trained inside": trained,
    "trained": trained_leaf,
}
"""Where the program meets the tensor."""


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What a call gives, with the gradient of its inputs; what it raises, in the words' place."""
    try:
        result = function(*arguments)
        wanted = [argument for argument in arguments if argument.requires_grad]
        if wanted and isinstance(result, torch.Tensor) and result.requires_grad:
            total = (result.to_dense() if result.layout is not torch.strided else result).sum()
            total = total.abs() if total.is_complex() else total
            return result.detach(), torch.autograd.grad(total, wanted, allow_unused=True)
    except Unsupported:
        raise
    except Exception as error:
        return type(error), str(error).split("\n")[0]
    return result


def difference(found: Any, wanted: Any) -> str:
    """How one result differs from eager's; empty where it does not."""
    if isinstance(wanted, torch.Tensor):
        return tensor_difference(found, wanted)
    if type(found) is not type(wanted):
        return f"{type(found)} for {type(wanted)}: {found} for {wanted}"
    if isinstance(wanted, list | tuple):
        if len(found) != len(wanted):
            return f"{found} for {wanted}"
        return next(filter(None, map(difference, found, wanted)), "")
    if isinstance(wanted, dict):
        return difference(list(found.items()), list(wanted.items()))
    if isinstance(wanted, float) and wanted != wanted:
        return "" if found != found else f"{found} for nan"
    same = found == wanted or JAGGED_SIZE.sub("j", str(found)) == JAGGED_SIZE.sub("j", str(wanted))
    return "" if same else f"{found} for {wanted}"


def tensor_difference(found: Any, wanted: torch.Tensor) -> str:
    if type(found) is not type(wanted):
        return f"{type(found)} for {type(wanted)}: {found} for {wanted}"
    for name in ("layout", "dtype", "device", "requires_grad", "is_quantized", "is_nested"):
        if getattr(found, name) != getattr(wanted, name):
            return f"{name} is {getattr(found, name)}, not {getattr(wanted, name)}"
    if isinstance(wanted, Labelled):
        return difference(found.as_subclass(torch.Tensor), wanted.as_subclass(torch.Tensor))
    if isinstance(wanted, Dispatched):
        return difference(found.inner, wanted.inner)
    if isinstance(wanted, torch.masked.MaskedTensor):
        return difference(found.to_tensor(0), wanted.to_tensor(0))
    if wanted.is_nested:
        return difference(list(found.unbind()), list(wanted.unbind()))
    if found.shape != wanted.shape:
        return f"sizes are {found.shape}, not {wanted.shape}"
    if wanted.device.type == "meta":
        return ""
    if wanted.is_quantized:
        return difference(found.int_repr(), wanted.int_repr())
    try:
        if wanted.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            found, wanted = found.float(), wanted.float()
        if wanted.dtype is torch.complex32:
            found, wanted = found.to(torch.complex64), wanted.to(torch.complex64)
        if wanted.layout is not torch.strided:
            found, wanted = found.to_dense(), wanted.to_dense()
        torch.testing.assert_close(found, wanted, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


def check(kind: str, place: str, program: str) -> Iterator[tuple[str, str]]:
    """Each way of compiling one combination that does not do as eager does, with how."""

    def fresh() -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return PLACES[place](KINDS[kind], PROGRAMS[program])

    try:
        wanted = outcome(*fresh())
    except Exception:
        return
    for backend in ("eager", "fusewright"):
        function, arguments = fresh()
        compiled = fusewright.compile(function, backend=backend)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for call in ("first", "second"):
                _, arguments = fresh()
                if found := difference(outcome(compiled, arguments), wanted):
                    yield f"{backend}, {call} call", found
        yield from ((backend, str(one.message)) for one in told if "defect" in str(one.message))
        function, arguments = fresh()
        try:
            result = outcome(
                fusewright.compile(function, backend=backend, fullgraph=True), arguments
            )
        except Unsupported as error:
            if (
                error.reason == reasons.INTERNAL_ERROR.name
                or not error.remedy
                or not error.location
            ):
                yield f"{backend}, fullgraph", str(error)
        else:
            if found := difference(result, wanted):
                yield f"{backend}, fullgraph", found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    for kind in parser.parse_args().kinds:
        for place in PLACES:
            for program in PROGRAMS:
                found = list(check(kind, place, program))
                counts["differs" if found else "as eager"] += 1
                for how, what in found:
                    print(f"{kind} | {place} | {program} | {how}: {what[:300]!r}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main()
