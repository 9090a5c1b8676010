"""Whether a result differs from a reference in double precision by more than rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from fusewright.records import record

SLACK: Final = 8
"""The factor by which an error may exceed that of eager, or of noise."""

UNITS: Final = 16
"""An error of so many units of rounding is none, however exact eager is."""

WITHOUT_REFERENCE: Final = 4096
"""The factor where there is no reference in double precision but eager's own result."""


@record(kw_only=True)
class Expected:
    """One value as eager computes it, and what it would be without rounding."""

    eager: Any
    exact: Any
    """In double precision; None where it cannot be computed so."""

    noisy: tuple[Any, ...] = ()
    """In double precision, each rounded result changed by a unit of rounding of the program."""


@record(kw_only=True)
class Difference:
    """The difference of a value."""

    kind: str
    """`type`, `dtype`, `shape`, `strides`, `NaN`, `infinite` or `value`."""

    detail: str
    """The difference in words."""

    error: float | None = None
    """The largest relative error; None where that is not what differs."""

    eager_error: float | None = None
    wrong: int = 0
    """The number of elements that differ."""

    elements: int = 0


def difference(value: Any, expected: Expected) -> Difference | None:
    """The difference of `value` from the expected one; None where there is none."""
    eager = expected.eager
    if not isinstance(eager, torch.Tensor) or not isinstance(value, torch.Tensor):
        return _of_objects(value, eager)
    geometry = (
        ("dtype", eager.dtype, value.dtype),
        ("shape", tuple(eager.shape), tuple(value.shape)),
        ("strides", _strides(eager), _strides(value)),
    )
    for kind, wanted, actual in geometry:
        if wanted != actual:
            return Difference(kind=kind, detail=f"eager has {wanted}, this {actual}")
    if eager.numel() == 0 or eager.is_meta:
        return None
    if eager.is_complex():
        parts = [*map(_as_real, (value, eager, expected.exact))]
        noisy = tuple(map(_as_real, expected.noisy))
        return _of_floats(parts[0], parts[1], parts[2], noisy)
    if eager.is_floating_point():
        return _of_floats(value, eager, expected.exact, expected.noisy)
    return _of_integers(value, expected)


def _of_objects(value: Any, eager: Any) -> Difference | None:
    if type(value) is not type(eager):
        detail = f"eager has {type(eager).__name__}, this {type(value).__name__}"
        return Difference(kind="type", detail=detail)
    if value == eager or value != value:
        return None
    return Difference(kind="value", detail=f"eager has {eager!r}, this {value!r}")


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides, where they mean something."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return ()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride if size > 1 else 1 for size, stride in pairs)


def _as_real(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return None
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _of_integers(value: torch.Tensor, expected: Expected) -> Difference | None:
    wrong = value != expected.eager
    for other in (expected.exact, *expected.noisy):
        if isinstance(other, torch.Tensor) and other.shape == value.shape:
            # Where rounding decides, as in an argmax of near equals, either is right.
            wrong = wrong & (other == expected.eager)
    return _told("value", wrong, value, expected.eager, None, None)


def _of_floats(
    value: torch.Tensor, eager: torch.Tensor, exact: Any, noisy: Sequence[Any]
) -> Difference | None:
    value, unit = value.detach(), torch.finfo(eager.dtype).eps
    eager = eager.detach()
    has_reference = isinstance(exact, torch.Tensor) and exact.shape == eager.shape
    exact = (exact if has_reference else eager).detach().double()
    wide = eager.double()
    either = wide.isfinite() != exact.isfinite()  # it overflows in eager's type alone
    nan = value.isnan() & ~eager.isnan() & ~either
    lost = eager.isnan() & ~value.isnan() & ~either
    if bool((nan | lost).any()):
        return _told("NaN", nan | lost, value, eager, None, None)
    finite = wide.isfinite() & exact.isfinite()
    infinite = (value.isinf() & finite) | (~either & eager.isinf() & (value.double() != wide))
    largest = torch.finfo(eager.dtype).max
    infinite &= exact.abs() < largest / 4
    infinite |= ~either & eager.isinf() & (value.double() != wide)
    if bool(infinite.any()):
        return _told("infinite", infinite, value, eager, None, None)
    finite &= value.isfinite()
    if not bool(finite.any()):
        return None
    scale = _scale(exact, finite)
    eager_errors = _relative(wide, exact, scale, finite)
    scatter = [
        _relative(sample.detach().double(), exact, scale, finite & sample.isfinite())
        for sample in noisy
        if isinstance(sample, torch.Tensor) and sample.shape == exact.shape
    ]
    own = _relative(value.double(), exact, scale, finite)
    rounding = max([float(eager_errors.max()), *(float(errors.max()) for errors in scatter)])
    least = (UNITS if has_reference else WITHOUT_REFERENCE) * unit
    wrong = own > max(SLACK * rounding, least)
    return _told("value", wrong, value, exact, float(own.max()), float(eager_errors.max()))


def _scale(exact: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """The size of each element, with that of an ordinary one added: next to it, small ones may be
    as wrong as that.
    """
    sizes = exact.abs()
    ordinary = sizes[finite & (sizes > 0)]
    return sizes + (ordinary.median() if ordinary.numel() else 1.0)


def _relative(
    value: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor, where: torch.Tensor
) -> torch.Tensor:
    return torch.where(where, (value - exact).abs() / scale, 0.0)


def _told(
    kind: str,
    wrong: torch.Tensor,
    value: torch.Tensor,
    expected: torch.Tensor,
    error: float | None,
    eager_error: float | None,
) -> Difference | None:
    """The difference in words; None where no element is wrong."""
    count = int(wrong.sum())
    if count == 0:
        return None
    distance = torch.where(wrong, (value.double() - expected.double()).abs(), -1.0)
    place = int(torch.where(wrong, distance.nan_to_num(float("inf")), -1.0).argmax())
    index = tuple(
        int(coordinate) for coordinate in torch.unravel_index(torch.tensor(place), value.shape)
    )
    actual, wanted = value[index].item(), expected[index].item()
    detail = f"the worst, at {list(index)}, is {actual:.6g} and should be {wanted:.6g}"
    return Difference(
        kind=kind,
        detail=detail,
        error=error,
        eager_error=eager_error,
        wrong=count,
        elements=value.numel(),
    )
