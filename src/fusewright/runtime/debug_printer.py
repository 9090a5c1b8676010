"""Debug prints and checks of values, which compiled code calls where options ask for them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import Final

import torch

from fusewright.errors import FusewrightError, NanFound, WrongLayout

SHOWN_WHOLE: Final = 64
"""Tensors of more elements are summed up in figures."""

HEADS: Final = {"before": "before {}", "after": "after {}", "input": "graph {}"}
"""The line above values, by when they are shown."""

Number = bool | int | float | complex


def debug_print(
    level: str,
    when: str,
    kernel: str,
    names: Sequence[str],
    values: Sequence[torch.Tensor | Number],
    place: str,
    folder: str,
) -> None:
    """Show the values, keep them as files in `folder`, or name the kernel, as the level asks.

    `place`: the user's lines. Raises FusewrightError, where a file cannot be written.
    """
    pairs = list(zip(names, values, strict=True))
    try:
        _LEVELS[level](when, kernel, pairs, place, folder)
    except OSError as error:
        raise FusewrightError(f"debug_printer={level!r} cannot write: {error}") from error


Pairs = list[tuple[str, torch.Tensor | Number]]


def _print(when: str, kernel: str, pairs: Pairs, place: str, folder: str) -> None:
    lines = [HEADS[when].format(kernel), *_indented(place)]
    for name, value in pairs:
        first, *others = describe(value).splitlines()
        lines += [f"  {name}: {first}", *(f"    {line}" for line in others)]
    _tell(lines)


def _save(when: str, kernel: str, pairs: Pairs, place: str, folder: str) -> None:
    """Tensors go to files of their own; one of the same name, from an earlier call, is replaced."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    prefix = file_prefix(when, kernel)
    for name, value in pairs:
        if isinstance(value, torch.Tensor):
            keep_tensor(target, f"{prefix}_{name}", value)


def file_prefix(when: str, kernel: str) -> str:
    """How the names of files begin that hold a launch's tensors."""
    return "graph_input" if when == "input" else f"{when}_launch_{kernel}"


def keep_tensor(folder: Path, name: str, tensor: torch.Tensor) -> None:
    """Write a tensor to a file of its own in a folder that is there."""
    path = folder / (re.sub(r"[^\w.-]", "_", name) + ".pt")
    with path.open("wb") as file:
        torch.save(tensor.detach().clone(), file)  # A view takes its whole memory along.


def _name(when: str, kernel: str, pairs: Pairs, place: str, folder: str) -> None:
    """Say that a kernel begins; behind it, wait until it has ended, so that what it does on a
    device by fault shows before another is named.
    """
    if when == "before":
        _synchronize(pairs)
        _tell([f"launch {kernel}", *_indented(place)])
    else:
        _synchronize(pairs)


_LEVELS: Final[dict[str, Callable[[str, str, Pairs, str, str], None]]] = {
    "print": _print,
    "save": _save,
    "kernel_names": _name,
}


def _synchronize(pairs: Pairs) -> None:
    devices = {value.device for _, value in pairs if isinstance(value, torch.Tensor)}
    for device in devices:
        if device.type != "cpu":
            torch.get_device_module(device).synchronize(device)


def _indented(place: str) -> list[str]:
    return [f"  {line}" for line in place.splitlines()]


def _tell(lines: Iterable[str]) -> None:
    """In one piece, whatever other threads print."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


# Values -------------------------------------------------------------------------------------------


def describe(value: torch.Tensor | Number | tuple[object, ...]) -> str:
    """A number, that a value is opaque, or a tensor: its elements where there are few of them, else
    figures about them.

    Mean, standard deviation (by n - 1) and the like are those of the finite elements, in double
    precision; of complex numbers, the least and greatest magnitudes.
    """
    if _is_opaque(value):
        return "an opaque value"
    if not isinstance(value, torch.Tensor):
        return repr(value)
    with torch.no_grad():
        tensor = value.detach()
        size = "×".join(map(str, tensor.shape)) or "one number"
        dtype = str(tensor.dtype).removeprefix("torch.")
        head = f"{dtype}, {size}, on {tensor.device}"
        if tensor.numel() <= SHOWN_WHOLE:
            return f"{head}\n{_elements(tensor)}"
        return f"{head}\ncount {tensor.numel()}, {_figures(tensor)}"


MOST_DIGITS: Final = 17
"""Decimal digits that tell any two numbers of double precision apart."""


def _elements(tensor: torch.Tensor) -> str:
    """All elements, a row on each line, with as many digits as tell a number of the type from its
    neighbours.
    """
    numbers = tensor.flatten().tolist()
    texts = _shortest(numbers, tensor.dtype) if tensor.is_floating_point() else map(repr, numbers)
    return _nested(list(texts), tuple(tensor.shape), "")


def _shortest(numbers: Sequence[float], dtype: torch.dtype) -> list[str]:
    texts = [repr(number) for number in numbers]
    left = [place for place, number in enumerate(numbers) if math.isfinite(number)]
    for digits in range(1, MOST_DIGITS):
        shorter = [float(f"{numbers[place]:.{digits}g}") for place in left]
        rounded = torch.tensor(shorter, dtype=dtype).tolist()
        found = [number == numbers[place] for place, number in zip(left, rounded, strict=True)]
        for place, text in compress(zip(left, map(repr, shorter), strict=True), found):
            texts[place] = text
        left = [place for place, is_found in zip(left, found, strict=True) if not is_found]
    return texts


def _nested(texts: Sequence[str], shape: tuple[int, ...], indent: str) -> str:
    """Texts of elements in brackets, those of the innermost dimension on a line."""
    if not shape:
        return texts[0]
    if len(shape) == 1:
        return f"[{', '.join(texts)}]"
    step = math.prod(shape[1:])
    parts = (texts[step * place : step * (place + 1)] for place in range(shape[0]))
    inner = (_nested(part, shape[1:], f"{indent} ") for part in parts)
    between = f",\n{indent} "
    return f"[{between.join(inner)}]"


def _figures(tensor: torch.Tensor) -> str:
    wide = _widened(tensor)
    is_exact = not (tensor.is_floating_point() or tensor.is_complex())
    nans = 0 if is_exact else int(wide.isnan().sum())
    infinities = 0 if is_exact else int(wide.isinf().sum())
    finite = wide if nans + infinities == 0 else wide[wide.isfinite()]
    counts = f"NaN {nans}, infinite {infinities}"
    if finite.numel() == 0:
        return f"{counts}; no element is finite"
    mean = finite.mean().item()
    deviation = finite.std().item() if finite.numel() > 1 else math.nan
    lowest, highest = _extremes(tensor if is_exact else finite)
    kind = "magnitude " if tensor.is_complex() else ""
    return (
        f"mean {mean:.6g}, minimum {kind}{lowest}, maximum {kind}{highest}, "
        f"standard deviation {deviation:.6g}, {counts}"
    )


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """The elements in double precision, where the device has it."""
    has_double = tensor.device.type != "mps"
    if tensor.is_complex():
        return tensor.to(torch.complex128 if has_double else torch.complex64)
    return tensor.to(torch.float64 if has_double else torch.float32)


_WITHOUT_ORDER: Final = (torch.uint16, torch.uint32, torch.uint64)
"""Types that torch does not compare."""


def _extremes(tensor: torch.Tensor) -> tuple[str, str]:
    """The least and the greatest element, exact where they are integers."""
    if tensor.dtype is torch.bool:
        return str(bool(tensor.all())), str(bool(tensor.any()))
    if tensor.dtype in _WITHOUT_ORDER:
        numbers = tensor.flatten().tolist()
        return str(min(numbers)), str(max(numbers))
    ordered = tensor.abs() if tensor.is_complex() else tensor
    lowest, highest = (bound.item() for bound in torch.aminmax(ordered))
    exact = not ordered.is_floating_point()
    return (str(lowest), str(highest)) if exact else (f"{lowest:.6g}", f"{highest:.6g}")


# Checks -------------------------------------------------------------------------------------------


def _is_opaque(value: object) -> bool:
    """Whether no size describes a value: what a library call keeps, or a weight that it packed."""
    if isinstance(value, torch.Tensor):
        return value.layout is not torch.strided
    return isinstance(value, tuple)


def check_nan(kernel: str, names: Sequence[str], values: Sequence[object], place: str) -> None:
    """Raise NanFound for the first of the values that holds NaN; names the user's lines, `place`,
    and its first element that is NaN. Opaque values are not looked into.
    """
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, torch.Tensor) or _is_opaque(value):
            continue
        if not (value.is_floating_point() or value.is_complex()) or value.numel() == 0:
            continue
        with torch.no_grad():
            where = _widened(value.detach()).isnan()
            count = int(where.sum())
        if count:
            first = tuple(where.nonzero()[0].tolist())
            counted = f"{count} of {value.numel()} elements, first {first}"
            lines = [f"{origin_of(kernel)} {name} with NaN: {counted}", *_indented(place)]
            raise NanFound("\n".join(lines))


def origin_of(kernel: str) -> str:
    """Whence a checked value comes, as `check_nan` says it."""
    return "the graph's input" if kernel == "inputs" else f"{kernel} has computed"


def assert_layout(
    tensor: torch.Tensor,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    name: str,
) -> None:
    """Raise WrongLayout for an input that is laid out otherwise; dimensions of one element may have
    any stride.
    """
    same_strides = 0 in size or all(
        n == 1 or a == b for n, a, b in zip(size, tensor.stride(), stride, strict=False)
    )
    if tuple(tensor.shape) == size and tensor.dtype == dtype and same_strides:
        return
    raise WrongLayout(
        f"input {name} is {tensor.dtype} of size {tuple(tensor.shape)} and stride "
        f"{tensor.stride()}; the graph was compiled for {dtype} of size {size} and stride {stride}"
    )
