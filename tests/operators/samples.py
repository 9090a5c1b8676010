"""Torch's own samples of its operators, and how a result is compared with eager's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from fusewright.lower.rules import words
from tests.lower.support import assert_same, leaves

HALF_TYPES = (torch.bfloat16, torch.float16)

RANDOM = frozenset(
    words(
        """
        bernoulli multinomial normal rand_like randn_like randint_like randn randint uniform
        nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
        nn.functional.alpha_dropout nn.functional.rrelu nn.functional.feature_alpha_dropout
        nn.functional.multi_head_attention_forward cauchy exponential geometric log_normal
        nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d pca_lowrank
        svd_lowrank torch.ops.aten._efficient_attention_forward
        torch.ops.aten._flash_attention_forward empty empty_like empty_strided empty_permuted
        new_empty new_empty_strided normal.in_place normal.number_mean uniform
        """
    )
)
"""Their results differ from call to call."""


def database() -> Iterator[Any]:
    """Operators of the database that have one right answer."""
    return (info for info in op_db if info.name not in RANDOM)


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def sample_inputs(info: Any, dtype: torch.dtype, count: int, device: str = "cpu") -> Iterator[Any]:
    """The first `count` of the database's samples. Those with dropout are left out: the database
    seeds eager's call alone.
    """
    torch.manual_seed(0)
    repeatable = (s for s in info.sample_inputs(device, dtype) if not s.kwargs.get("dropout_p"))
    return islice(repeatable, count)


def samples(
    info: Any, dtype: torch.dtype, count: int, device: str = "cpu"
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments and keywords of those samples."""
    for sample in sample_inputs(info, dtype, count, device):
        yield (sample.input, *sample.args), sample.kwargs


def examples(
    info: Any, dtype: torch.dtype, count: int, device: str = "cpu"
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Any]]:
    """Those of the first `count` samples that give tensors and numbers, with what eager gives."""
    for args, kwargs in samples(info, dtype, count, device):
        try:
            wanted = info.op(*args, **kwargs)
        except Exception:  # The database holds a few samples that eager itself refuses.
            continue
        if all(isinstance(leaf, (torch.Tensor, int, float, bool)) for leaf in leaves(wanted)):
            yield args, kwargs, wanted


def compare(
    found: Any, wanted: Any, function: Any, args: Any, kwargs: Any, dtype: torch.dtype
) -> None:
    """Raises AssertionError unless `found` is as eager's `wanted`, or nearer to the truth."""
    try:
        assert_same(found, wanted, **tolerance(dtype))
    except AssertionError:
        if is_more_exact(found, wanted, function, args, kwargs, dtype):
            return
        on_gpu = any(leaf.is_cuda for leaf in leaves(wanted) if isinstance(leaf, torch.Tensor))
        if not on_gpu or not picks_other_equals(found, wanted, function, args, kwargs):
            raise


DIMENSION_OF_EQUALS = {
    **dict.fromkeys(("sort", "argsort", "median", "nanmedian"), 1),
    **dict.fromkeys(("topk", "kthvalue"), 2),
}
"""Functions whose last result are indices, and which on a GPU promise no order of equal elements:
the number of their argument `dim`.
"""


def picks_other_equals(found: Any, wanted: Any, function: Any, args: Any, kwargs: Any) -> bool:
    """True when `found` has eager's elements, and other places where they are, too."""
    if dimension_of_equals(function, args, kwargs) is None:
        return False
    *values, places = leaves(wanted)
    *own_values, own_places = leaves(found)
    if own_places.dtype is not torch.int64 or own_places.shape != places.shape:
        return False
    assert_same(own_values, values)
    x, dim = args[0], dimension_of_equals(function, args, kwargs)
    if places.dim() < x.dim():
        places, own_places = places.unsqueeze(dim), own_places.unsqueeze(dim)
    assert_same(x.gather(dim, own_places), x.gather(dim, places))
    return bool((own_places.sort(dim).values.diff(dim=dim) > 0).all())


def dimension_of_equals(function: Any, args: Any, kwargs: Any) -> int | None:
    """The dimension along which a call chooses among equal elements; None where it does not."""
    number = DIMENSION_OF_EQUALS.get(getattr(function, "__name__", ""))
    if number is None or kwargs.get("stable"):
        return None
    return kwargs.get("dim", args[number] if len(args) > number else -1)  # type: ignore[no-any-return]


def summed_over_equals(gradient: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient of each element of `x` together with those of all that equal it along `dim`,
    which is the same whichever of them was chosen.
    """
    if x.dim() == 0:
        return gradient
    row, numbers = x.movedim(dim, -1), gradient.double().movedim(dim, -1)
    one, other = row[..., None], row[..., None, :]
    are_equal = (one == other) | (one.isnan() & other.isnan())
    return torch.where(are_equal, numbers[..., None, :], 0).sum(-1).movedim(-1, dim)


def is_more_exact(
    found: Any, wanted: Any, function: Any, args: Any, kwargs: Any, dtype: torch.dtype
) -> bool:
    """True when `found` is nearer to the result in f64 than eager's `wanted`: half types rounded
    less often.
    """
    if dtype not in HALF_TYPES:
        return False
    if not isinstance(wanted, torch.Tensor) or not wanted.is_floating_point():
        return False
    exact = function(*map(to_float64, args), **{k: to_float64(v) for k, v in kwargs.items()})
    error, eager_error = ((exact - x.double()).abs().nan_to_num() for x in (found, wanted))
    return bool((error <= eager_error + 1e-2 * exact.abs().nan_to_num() + 1e-3).all())


def to_float64(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return [to_float64(item) for item in value] if isinstance(value, (list, tuple)) else value


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    """How far results may differ that were rounded at other places."""
    if dtype in HALF_TYPES:
        return {"rtol": 2e-2, "atol": 2e-2}
    return {"rtol": 1e-4, "atol": 1e-5} if dtype.is_floating_point else {}
