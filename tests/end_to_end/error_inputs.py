"""Calls that eager refuses, beside the same calls compiled: type and words of the exception.

    python -m tests.end_to_end.error_inputs [--all] [--part K/N] [--jobs N] [--from NAME] [NAME ...]

The cases: each error input of torch's own operator database; with `--all` also each operator with
its samples cast to each type that it does not take, and each operator of two tensors with each pair
of types, in place and with `out=` too. Prints one row for each call that differs, and the totals.
A run that was stopped goes on with `--from`, at the last operator it named.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo

import fusewright
from tests.operators.samples import name_of

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

TYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip

UNREPEATABLE = frozenset({"empty_strided", "resize_", "resize_as_"})
"""Operators whose refusals depend on memory that the first call has changed."""


@dataclass(frozen=True)
class Case:
    """A call, made anew from its arguments each time, since it may write to them."""

    label: str
    function: Callable[..., Any]
    arguments: Callable[[], Arguments]


@dataclass(frozen=True)
class Outcome:
    """What a call did: the exception's type and words, or that it returned."""

    error: type[BaseException] | None
    message: str = ""
    warnings: tuple[str, ...] = ()


def outcome(function: Callable[..., Any], arguments: Arguments) -> Outcome:
    """What the function does with these arguments, and what was warned of meanwhile."""
    args, kwargs = arguments
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error: BaseException | None = None
        try:
            function(*args, **kwargs)
        except Exception as raised:
            error = raised
    told = tuple(str(w.message) for w in caught if "fusewright" in str(w.message))
    return Outcome(
        None if error is None else type(error), "" if error is None else str(error), told
    )


def compiled_outcome(case: Case) -> Outcome:
    """What the compiled call does: of a function that no earlier case has compiled."""

    def program(function: Any, args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    own_code = types.FunctionType(program.__code__.replace(), program.__globals__)
    compiled = fusewright.compile(own_code, options={"strict": False})
    args, kwargs = case.arguments()
    return outcome(compiled, ((case.function, args, kwargs), {}))


def difference(case: Case) -> str | None:
    """How the compiled call differs from eager's: '' where it does not, None where eager returns
    something.
    """
    eager = outcome(case.function, case.arguments())
    if eager.error is None:
        return None
    actual = compiled_outcome(case)
    if actual.error is None:
        return f"RETURNS where eager raises {eager.error.__name__}: {eager.message}"
    if actual.error is not eager.error:
        return (
            f"TYPE {actual.error.__name__}: {actual.message} != "
            f"{eager.error.__name__}: {eager.message}"
        )
    if actual.message != eager.message:
        return f"MESSAGE {actual.message} != {eager.message}"
    return f"WARNS {actual.warnings[0]}" if actual.warnings else ""


# -- the cases -------------------------------------------------------------------------------------


def cases(info: Any, *, every_type: bool) -> Iterator[Case]:
    """Calls of one operator that eager may refuse."""
    yield from error_inputs(info)
    if every_type:
        yield from other_types(info)
        if isinstance(info, BinaryUfuncInfo):
            yield from pairs_of_types(info)


def error_inputs(info: Any) -> Iterator[Case]:
    """The error inputs that the database has of an operator."""
    if info.error_inputs_func is None:
        return
    for number, error_input in enumerate(info.error_inputs("cpu")):
        sample = error_input.sample_input
        yield Case(
            f"{name_of(info)} error input {number}",
            info.op,
            copies((sample.input, *sample.args), sample.kwargs),
        )


def other_types(info: Any) -> Iterator[Case]:
    """The first samples of an operator, with tensors of each type that it does not take."""
    wanted = torch.float32 if torch.float32 in info.dtypes else next(iter(info.dtypes), None)
    if wanted is None:
        return
    samples = enumerate(islice(info.sample_inputs("cpu", wanted), 2))
    for dtype, (number, sample) in product(TYPES, samples):
        if dtype not in info.dtypes:
            args = cast((sample.input, *sample.args), wanted, dtype)
            kwargs = cast(sample.kwargs, wanted, dtype)
            label = f"{name_of(info)} sample {number} of {dtype}"
            yield Case(label, info.op, copies(args, kwargs))


def pairs_of_types(info: Any) -> Iterator[Case]:
    """An operator of two tensors with each pair of types: as it is, in place, and into each."""
    in_place, op = info.inplace_variant, info.op
    for left, right in product(TYPES, TYPES):
        tensors = (torch.ones(2, 3).to(left), torch.ones(2, 3).to(right))
        label = f"{name_of(info)} of {left}, {right}"
        yield Case(label, op, copies(tensors, {}))
        if in_place is not None:
            yield Case(f"{label} in place", in_place, copies(tensors, {}))
        if info.supports_out:
            yield Case(f"{label} out", op, copies(tensors[:1] * 2, {"out": tensors[1]}))


def cast(value: Any, wanted: torch.dtype, dtype: torch.dtype) -> Any:
    """The value with its tensors, and types, of the type `wanted` of type `dtype`."""
    match value:
        case torch.Tensor() if value.dtype is wanted and value.layout is torch.strided:
            grad = value.requires_grad and (dtype.is_floating_point or dtype.is_complex)
            return value.detach().to(dtype).requires_grad_(grad)
        case torch.dtype():
            return dtype if value is wanted else value
        case list() | tuple() if type(value) in (list, tuple):
            return type(value)(cast(one, wanted, dtype) for one in value)
        case dict():
            return {name: cast(one, wanted, dtype) for name, one in value.items()}
        case _:
            return value


def copies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Arguments]:
    """What gives the arguments, each tensor with memory of its own in the same layout."""

    def copy(value: Any, known: dict[int, Any]) -> Any:
        match value:
            case torch.Tensor() if type(value) is torch.Tensor and value.layout is torch.strided:
                if id(value) not in known:
                    known[id(value)] = copy_of_memory(value)
                return known[id(value)]
            case list() | tuple() if type(value) in (list, tuple):
                return type(value)(copy(one, known) for one in value)
            case dict():
                return {name: copy(one, known) for name, one in value.items()}
            case _:
                return value

    def make() -> Arguments:
        known: dict[int, Any] = {}
        return copy(args, known), copy(kwargs, known)

    return make


def copy_of_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout on a copy of the storage."""
    if tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
        return tensor.clone()
    result = torch.empty(0, dtype=tensor.dtype)
    storage = tensor.untyped_storage().clone()
    result.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return result.requires_grad_(tensor.requires_grad)


# -- the command -----------------------------------------------------------------------------------


def sweep(infos: list[Any], *, every_type: bool) -> Counter[str]:
    """Print what differs; gives how many calls eager refuses, and how many of them differ, by
    kind.
    """
    totals: Counter[str] = Counter()
    for info in infos:
        for case in cases(info, every_type=every_type):
            try:
                what = difference(case)
            except Exception as error:
                what = f"FAILS {type(error).__name__}: {error}"
            if what is None:
                continue
            totals["refused by eager"] += 1
            if what:
                totals[what.partition(" ")[0]] += 1
                shown = what.replace("\n", " ")
                print(f"{case.label}: {shown[:400]}", flush=True)
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", dest="every_type", action="store_true")
    parser.add_argument("--part", default="0/1", help="K/N: every N-th operator, from the K-th")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--from", dest="first", default="")
    options = parser.parse_args()
    if options.jobs > 1:
        rest = ["--all"] if options.every_type else []
        rest += [f"--from={options.first}"] if options.first else []
        command = [sys.executable, "-m", "tests.end_to_end.error_inputs", *options.names, *rest]
        parts = [f"--part={k}/{options.jobs}" for k in range(options.jobs)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        for process in [subprocess.Popen([*command, part], env=environment) for part in parts]:
            process.wait()
        return
    torch.set_num_threads(1)
    part, of = map(int, options.part.split("/"))
    infos = [
        info
        for info in op_db
        if info.name not in UNREPEATABLE and (not options.names or info.name in options.names)
    ]
    names = [name_of(info) for info in infos]
    start = names.index(options.first) if options.first else 0
    totals = sweep(infos[start:][part::of], every_type=options.every_type)
    print(dict(totals))


if __name__ == "__main__":
    main()
