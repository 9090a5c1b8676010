"""Every operator of torch's own sample database, lowered and compared with eager.

    python -m tests.lower.operator_samples [--samples N] [--dtype float32] [NAME ...]

prints one row an operator that fails, and how many operators were lowered to loops altogether, in
part, or not at all.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from fusewright.errors import Unsupported
from fusewright.lower.rules import words
from tests.lower.support import assert_same, leaves, lowered

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


@dataclass
class Outcome:
    """What became of one operator."""

    name: str
    computed: int = 0
    externs: Counter[str] = field(default_factory=Counter)
    untraceable: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        if self.failures:
            return "fails"
        if self.untraceable and not self.computed and not self.externs:
            return "untraceable"
        if not self.externs:
            return "loops"
        return "library" if not self.computed else "both"


def database() -> Iterator[Any]:
    """Operators of the database that have one right answer."""
    return (info for info in op_db if info.name not in RANDOM)


def name_of(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def samples(
    info: Any, dtype: torch.dtype, count: int, device: str = "cpu"
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The first `count` samples: arguments and keywords. Those with dropout are left out: the
    database seeds eager's call alone.
    """
    torch.manual_seed(0)
    repeatable = (s for s in info.sample_inputs(device, dtype) if not s.kwargs.get("dropout_p"))
    for number, sample in enumerate(repeatable):
        if number == count:
            return
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


def try_operator(info: Any, dtype: torch.dtype, count: int) -> Outcome:
    """Lower and evaluate samples of one operator."""
    outcome = Outcome(name_of(info))
    for args, kwargs, wanted in examples(info, dtype, count):
        try:
            result = lowered(info.op, *args, **kwargs)
        except Exception as error:
            tracing = isinstance(error, Unsupported) or "trace" in _files(error)
            if tracing and "lower" not in _files(error):
                outcome.untraceable = f"{type(error).__name__}: {error}"
            else:
                outcome.failures.append(f"{type(error).__name__}: {error}")
            continue
        outcome.computed += result.computed
        outcome.externs.update(result.externs)
        try:
            compare(result.run(), wanted, info.op, args, kwargs, dtype)
        except Exception as error:
            outcome.failures.append(f"{type(error).__name__}: {str(error)[:300]}")
    return outcome


def compare(
    found: Any, wanted: Any, function: Any, args: Any, kwargs: Any, dtype: torch.dtype
) -> None:
    """Raises AssertionError unless `found` is as eager's `wanted`, or nearer to the truth."""
    try:
        assert_same(found, wanted, **tolerance(dtype))
    except AssertionError:
        if not is_more_exact(found, wanted, function, args, kwargs, dtype):
            raise


def is_more_exact(
    found: Any, wanted: Any, function: Any, args: Any, kwargs: Any, dtype: torch.dtype
) -> bool:
    """True when `found` is nearer to the result in f64 than eager's `wanted`: half types rounded
    less often.
    """
    if dtype not in (torch.bfloat16, torch.float16):
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
    if dtype in (torch.bfloat16, torch.float16):
        return {"rtol": 2e-2, "atol": 2e-2}
    return {"rtol": 1e-4, "atol": 1e-5} if dtype.is_floating_point else {}


def _files(error: BaseException) -> set[str]:
    """The folders of this package that a traceback went through last."""
    found = ""
    traceback = error.__traceback__
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        for part in ("aot", "fake", "lower", "ir"):
            if f"/fusewright/{part}/" in file:
                found = "aot" if part == "fake" else part
        traceback = traceback.tb_next
    return {"trace" if found == "aot" else found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    statuses: Counter[str] = Counter()
    for info in database():
        if dtype not in info.dtypes or (options.names and info.name not in options.names):
            continue
        outcome = try_operator(info, dtype, options.samples)
        statuses[outcome.status] += 1
        if outcome.failures:
            print(f"FAILS {outcome.name}: {outcome.failures[0]}", flush=True)
        elif outcome.untraceable and outcome.status == "untraceable":
            print(f"UNTRACEABLE {outcome.name}: {outcome.untraceable[:160]!r}", flush=True)
        elif options.names:
            print(f"{outcome.status.upper()} {outcome.name} {dict(outcome.externs)}", flush=True)
    print(dict(statuses))


if __name__ == "__main__":
    main()
