"""Compares a device's in-place and out variants with the CPU's: results, errors and warnings.

Each sample of an operator is run in several forms, a form being what is written to: of the right
size, empty, of a wrong size or dtype, with gaps, overlapping, an input itself, on another device,
wanting a gradient.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fusewright.containers import mapped, tensors
from fusewright.records import field, record, replace
from fusewright.torch_compat import set_math_bits


@record(kw_only=True)
class Case:
    """One call that writes: to its first argument, or to `outs`."""

    form: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outs: tuple[Tensor, ...] = ()


@record
class Outcome:
    """The outcome of a case."""

    error: Exception | None = None
    resized: bool = False
    """Whether the case warned that an out was resized."""

    written: list[Tensor] = field(default_factory=list)
    """The arguments that were written to, afterwards."""

    returns_written: bool = True
    """Whether the case returned the very tensors that it wrote to."""


def differences(
    info: Any, device: str, dtype: torch.dtype, *, samples: int = 4, same_text: bool = False
) -> list[str]:
    """Sentences about each case in which `device` does other than the CPU.

    `info`: an `OpInfo` of torch's. `samples`: how many of its samples to use. `same_text`: errors
    must also have the same text, the names of devices aside.
    """
    sentences = []
    inputs = info.sample_inputs("cpu", dtype, requires_grad=False)
    for number, sample in enumerate(itertools.islice(inputs, samples)):
        for case in cases(info, sample):
            expected = run(case, "cpu")
            actual = run(case, device)
            if _is_limit_of_cpu(case.form, expected.error, actual.error):
                continue
            difference = compare(expected, actual, same_text)
            if difference and case.form == ALIASED:
                # The CPU's kernels may write before they read all; variants never do.
                apart = replace(case, outs=tuple(out.clone() for out in case.outs))
                difference = compare(run(apart, "cpu"), actual, same_text)
            if difference:
                sentences.append(
                    f"{info.formatted_name}, sample {number}, {case.form}: {difference}"
                )
    return sentences


ALIASED = "out, the input itself"


def _is_limit_of_cpu(form: str, expected: Exception | None, actual: Exception | None) -> bool:
    """Whether outcomes differ where the CPU's kernels differ among themselves: some write to memory
    that overlaps, which a generated variant always refuses; some refuse to convert, which
    ATen's rules for the operator allow; `cat` does with an exception of its own; and each lacks
    some dtypes, which a device may compute, or refuse in its own words.
    """
    if expected is None:
        return " overlapping " in form and "to a single memory location" in str(actual)
    if isinstance(expected, NotImplementedError) and " not implemented for " in str(expected):
        return True
    if isinstance(expected, TypeError) and "can't be cast to the desired" in str(expected):
        return "can't be cast to the desired" in str(actual)
    refusals = ("Found dtype", "all only supports bool tensor", "any only supports bool tensor")
    return actual is None and str(expected).startswith(refusals)


def cases(info: Any, sample: Any) -> Iterator[Case]:
    """All forms of one sample."""
    args = (sample.input, *sample.args)
    if any(tensor.layout is not torch.strided for tensor in list(tensors((args, sample.kwargs)))):
        return
    if isinstance(sample.input, Tensor) and info.inplace_variant is not None:
        for form, first in _inplace_forms(sample.input):
            yield Case(
                form=f"in-place, {form}",
                function=info.inplace_variant,
                args=(first, *sample.args),
                kwargs=sample.kwargs,
            )
    if not info.supports_out:
        return
    try:
        result = info.op(*args, **sample.kwargs)
    except Exception:  # the sample is for errors
        return
    results = list(tensors(tuple(result) if isinstance(result, tuple) else result))
    if any(tensor.layout is not torch.strided for tensor in results):
        return
    for form, outs in _out_forms(results):
        yield _out_case(info, sample, form, sample.input, outs)
    if len(results) == 1 and isinstance(sample.input, Tensor):
        for form, first, out in _shared_forms(results[0], sample.input):
            yield _out_case(info, sample, form, first, (out,))


def _out_case(info: Any, sample: Any, form: str, first: object, outs: tuple[Tensor, ...]) -> Case:
    args = (first, *sample.args)
    return Case(form=f"out, {form}", function=info.op, args=args, kwargs=sample.kwargs, outs=outs)


def _inplace_forms(first: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield "plain", first
    yield "with gaps", _with_gaps(first)
    if first.dim() > 0 and first.numel() > 1:
        yield "overlapping itself", first.narrow(0, 0, 1).expand_as(first)
        yield "one row of it", first[:1]
    if first.is_floating_point():
        yield "of integers", first.nan_to_num().clamp(-9, 9).to(torch.int64)
        yield "wanting a gradient", first.clone().requires_grad_()


def _out_forms(results: list[Tensor]) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    yield "fitting", tuple(torch.zeros_like(result) for result in results)
    yield "empty", tuple(result.new_empty(0) for result in results)
    yield "too large", tuple(result.new_zeros(result.numel() + 3) for result in results)
    yield "with gaps", tuple(_with_gaps(result) for result in results)
    yield "of doubles", tuple(torch.zeros_like(result, dtype=torch.double) for result in results)
    yield "of integers", tuple(torch.zeros_like(result, dtype=torch.int64) for result in results)
    if all(result.dim() > 0 and result.numel() > 1 for result in results):
        yield (
            "overlapping itself",
            tuple(_overlapping(result) for result in results),
        )
    if all(result.is_floating_point() for result in results):
        yield (
            "wanting a gradient",
            tuple(torch.zeros_like(result).requires_grad_() for result in results),
        )


def _shared_forms(result: Tensor, first: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """An input and an out that share memory."""
    if result.size() != first.size():
        return
    yield "the input itself", first, first
    if first.numel() > 1 and result.dtype == first.dtype:
        buffer = first.new_zeros(first.numel() + 1)
        shifted = buffer[1:].view(first.size())
        yield "overlapping the input in part", buffer[:-1].view(first.size()).copy_(first), shifted


def _overlapping(tensor: Tensor) -> Tensor:
    """One element in the place of all, and memory behind it for kernels that ignore strides."""
    return tensor.new_zeros(tensor.numel() + 64)[:1].expand_as(tensor)


def _with_gaps(tensor: Tensor) -> Tensor:
    wide = tensor.new_zeros((*tensor.size(), 2))[..., 0]
    return wide.copy_(tensor)


def run(case: Case, device: str) -> Outcome:
    """Run a case on copies of its arguments on `device`; tensors that share memory still do."""
    move = Mover(device)
    args, kwargs = mapped(move, case.args), mapped(move, dict(case.kwargs))
    if "device" in kwargs:
        kwargs["device"] = torch.device(device)
    outs = tuple(move(out) for out in case.outs)
    torch.default_generator.manual_seed(0)
    if outs:
        kwargs["out"] = outs[0] if len(outs) == 1 else outs
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = case.function(*args, **kwargs)
        except Exception as error:
            return Outcome(error=error)
    written = list(outs) or [args[0]]
    returned = list(tensors(tuple(result) if isinstance(result, tuple) else result))
    return Outcome(
        resized=any("was resized" in str(warning.message) for warning in caught),
        written=[tensor.detach().cpu() for tensor in written],
        returns_written=all(a is b for a, b in zip(written, returned, strict=False)),
    )


class Mover:
    """Copies tensors of the CPU to a device, each storage once, geometry and all."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._storages: dict[int, Tensor] = {}
        self._moved: dict[int, tuple[Tensor, Tensor]] = {}  # the first lives on, and so its id

    def __call__(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._moved:
            self._moved[id(tensor)] = (tensor, self._move(tensor))
        return self._moved[id(tensor)][1]

    def _move(self, tensor: Tensor) -> Tensor:
        whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        key = tensor.untyped_storage().data_ptr()
        if key == 0 or key not in self._storages:
            copy = whole.to(self.device) if self.device != "cpu" else whole.clone()
            self._storages[key] = copy
        moved = self._storages[key].as_strided(
            tensor.size(), tensor.stride(), tensor.storage_offset()
        )
        set_math_bits(moved, like=tensor)
        return moved.detach().requires_grad_(tensor.requires_grad)


def compare(expected: Outcome, actual: Outcome, same_text: bool) -> str | None:
    """The difference of two outcomes, in words; None where there is none."""
    if (expected.error is None) != (actual.error is None):
        return f"the CPU gives {expected.error!r}, the device {actual.error!r}"
    if expected.error is not None:
        return _compare_errors(expected.error, actual.error, same_text)
    if expected.resized != actual.resized:
        return f"warns of resizing: {expected.resized} on the CPU, {actual.resized} on the device"
    if expected.returns_written != actual.returns_written:
        return "does not return what it wrote to"
    try:
        torch.testing.assert_close(  # as float32 is compared: an out of doubles is computed so
            actual.written,
            expected.written,
            equal_nan=True,
            check_stride=False,
            rtol=1.3e-6,
            atol=1e-5,
        )
    except AssertionError as error:
        return str(error).partition("\n\n")[0]
    return None


def _compare_errors(expected: Exception, actual: Exception | None, same_text: bool) -> str | None:
    if type(expected) is not type(actual):
        return f"raises {actual!r} instead of {expected!r}"
    if same_text and str(expected).partition("\n")[0] != str(actual).partition("\n")[0]:
        return f"says {str(actual)!r} instead of {str(expected)!r}"
    return None
