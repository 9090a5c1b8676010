"""What a program returned when it was compiled, compared with what it returns in eager."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

SMALLEST = 1e-6
"""Norm below which the error of a tensor is taken relative to this bound."""


def differences(found: Any, expected: Any, tolerance: float, path: str = "result") -> Iterator[str]:
    """In words, where the two differ by more than rounding. TypeError: what a program returned is
    of a kind that is not compared.
    """
    if isinstance(expected, torch.Tensor):
        yield from _of_tensors(found, expected, tolerance, path)
    elif type(found) is not type(expected):
        yield f"{path}: {type(found).__name__} in place of {type(expected).__name__}"
    elif isinstance(expected, np.ndarray | np.generic):
        yield from _of_tensors(torch.as_tensor(found), torch.as_tensor(expected), tolerance, path)
    elif isinstance(expected, float):
        same = math.isclose(found, expected, rel_tol=10 * tolerance, abs_tol=tolerance)
        if not (same or (math.isnan(found) and math.isnan(expected))):
            yield f"{path}: {found} in place of {expected}"
    elif isinstance(expected, str | bytes | bool | int | complex | None):
        if found != expected:
            yield f"{path}: {found!r} in place of {expected!r}"
    else:
        yield from _of_parts(_parts(found, path), _parts(expected, path), tolerance, path)


def _parts(whole: Any, path: str) -> dict[Any, Any]:
    """What a container or dataclass holds, by key."""
    match whole:
        case Mapping():
            return dict(whole)
        case Sequence():
            return dict(enumerate(whole))
        case _ if dataclasses.is_dataclass(whole):
            return {one.name: getattr(whole, one.name) for one in dataclasses.fields(whole)}
        case _:
            raise TypeError(f"{path}: programs may not return {type(whole).__name__}")


def _of_parts(
    found: dict[Any, Any], expected: dict[Any, Any], tolerance: float, path: str
) -> Iterator[str]:
    if list(found) != list(expected):
        yield f"{path}: {list(found)} in place of {list(expected)}"
        return
    for key, value in expected.items():
        yield from differences(found[key], value, tolerance, f"{path}[{key!r}]")


def _of_tensors(found: Any, expected: torch.Tensor, tolerance: float, path: str) -> Iterator[str]:
    if type(found) is not type(expected):
        yield f"{path}: {type(found).__name__} in place of {type(expected).__name__}"
        return
    for fact in ("shape", "dtype", "layout", "requires_grad"):
        ours, theirs = getattr(found, fact), getattr(expected, fact)
        if ours != theirs:
            yield f"{path}: {fact} {ours} in place of {theirs}"
            return
    ours, theirs = _plain(found), _plain(expected)
    if not theirs.is_floating_point() and not theirs.is_complex():
        if not torch.equal(ours, theirs):
            yield f"{path}: other numbers"
        return
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    ours, theirs = ours.to(wide), theirs.to(wide)
    finite = theirs.isfinite()
    if not torch.equal(finite, ours.isfinite()) or not torch.equal(
        ours[~finite].nan_to_num(), theirs[~finite].nan_to_num()
    ):
        yield f"{path}: other elements are finite"
        return
    error = float((ours - theirs)[finite].norm())
    error /= max(float(theirs[finite].norm()), SMALLEST)
    if error > tolerance:
        yield f"{path}: relative error {error:.1e}"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The elements, whatever the tensor's class and layout."""
    plain = tensor.detach()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    with torch._C.DisableTorchFunctionSubclass():
        return plain.as_subclass(torch.Tensor).clone()
