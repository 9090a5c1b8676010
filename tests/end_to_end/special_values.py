"""Operators on numbers that are no ordinary ones (NaN, infinities, zeros of either sign, denormals,
the largest and the smallest, rows of one value), forward and gradient, compiled beside eager.

    python -m tests.end_to_end.special_values [--dtype NAME] [--kind KIND] [--all] [NAME ...]
        [--device cuda] [--part K/N]

prints a row for each result that differs: NaN, infinities and signs have to be eager's, bit for
bit; finite numbers have to be as close to the result in double precision as eager's are, or within
a few units in the last place. `--part` takes every N-th case, from the K-th on.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import fusewright
from fusewright.capture.reasons import BRANCH_ON_TENSOR
from tests.half_types import FUNCTIONS, LEAST, HalfFunction

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)

PLACES = """
    0.1 0.25 0.5 0.75 0.9 0.999 1 1.001 1.5 2 2.5 3 3.5 4 5 5.5 6 7 8 9 10 12.5 15 16.5 17 18 20
    20.5 25 33 37 40 50 70 86 87.5 88.5 89 100 103.5 104.5 110 150 200 700 709 710 745 746 1e3 1e4
    6.5e4 1e7 1e9 1e10 1e19 1e20 1e30 1e-3 1e-4 1e-7 1e-10 1e-20 1e-30
"""
"""Where functions change their form, overflow, underflow or reach an asymptote; both signs."""


def special_numbers(dtype: torch.dtype) -> list[float]:
    """Special values of a type, some forty for a grid of pairs."""
    if dtype is torch.bool:
        return [0, 1]
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        small = [0, 1, 2, 3, 7, 8]
        signed = [-1, -2, -3, -7] if limits.min else []
        return [*small, *signed, limits.min, limits.min + 1, limits.max, limits.max - 1]
    limits = torch.finfo(dtype)
    magnitudes = [
        0.0, limits.smallest_normal / 4, limits.tiny, 1e-3, 0.5, 1.0, 1.5, 2.0, 3.0, 5.5, 10.0,
        90.0, 1e4, limits.max / 2, limits.max, math.inf,
    ]  # fmt: skip
    return [*magnitudes, *(-m for m in magnitudes), math.nan]


def line(dtype: torch.dtype) -> Tensor:
    """Special values and places where functions change, in one dimension."""
    numbers = special_numbers(dtype)
    if dtype.is_floating_point:
        places = [float(word) for word in PLACES.split()]
        numbers = [*numbers, *places, *(-place for place in places)]
    return torch.tensor(numbers, dtype=torch.float64 if dtype.is_floating_point else None).to(dtype)


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Each special value with each."""
    values = torch.tensor(special_numbers(dtype)).to(dtype)
    if dtype.is_floating_point:
        values = torch.tensor(special_numbers(dtype), dtype=torch.float64).to(dtype)
    grid = torch.cartesian_prod(values, values)
    return grid[:, 0].contiguous(), grid[:, 1].contiguous()


def rows(dtype: torch.dtype, length: int = 24) -> Tensor:
    """Rows to reduce: ordinary, constant, huge, tiny, with NaN, with infinities, with zeros."""
    generator = torch.Generator().manual_seed(0)
    if not dtype.is_floating_point:
        high = 2 if dtype is torch.bool else 8
        base = torch.randint(0, high, (6, length), generator=generator)
        numbers = special_numbers(dtype)
        base[1] = 1
        base[2] = 0
        base[3, :3] = torch.tensor((numbers * 3)[-3:])
        base[4] = torch.tensor((numbers * length)[:length])
        base[5] = numbers[-1]
        return base.to(dtype)
    limits = torch.finfo(dtype)
    x = torch.randn((22, length), generator=generator, dtype=torch.float64)

    def put(row: int, **places: float) -> None:
        for place, value in places.items():
            x[row, int(place[1:])] = value

    put(1, _3=math.nan)
    put(2, _3=math.inf)
    put(3, _3=-math.inf)
    put(4, _3=math.inf, _20=-math.inf)
    put(5, _3=math.inf, _5=0.0)
    put(6, _3=math.nan, _20=math.inf)
    x[7] = 0.1
    x[8] = -3.3
    x[9] = 0.0
    x[10] = -0.0
    x[11] = math.inf
    x[12] = -math.inf
    x[13] = math.nan
    x[14] = limits.max / 64
    x[15] *= limits.max / 64
    x[16] *= limits.tiny
    x[17] += 1000
    x[18] = limits.max
    put(19, _0=limits.max, _9=-limits.max)
    x[20, ::2] = -0.0
    x[20, 1::2] = 0.0
    x[21] = torch.randint(-1, 2, (length,), generator=generator).double()
    return x.to(dtype)


HUGE = [14, 15, 16, 18, 19]
"""Rows of whose numbers the squares, or the sum, are too large or too small for the type."""


def moderate_rows(dtype: torch.dtype) -> Tensor:
    """`rows` for statistics, which eager too takes in one precision here and in another there."""
    x = rows(dtype)
    x[HUGE] = x[0].flip(0)
    return x


@dataclass(frozen=True)
class Case:
    """A program and the arguments it is run with."""

    name: str
    kind: str
    program: Callable[..., Any]
    arguments: Callable[[torch.dtype], Sequence[tuple[Tensor, ...]]]
    dtypes: tuple[torch.dtype, ...] = FLOATS
    ulps: float = 8
    """How far from the result in double precision an element may be, whatever eager's is."""

    by_row: bool = False
    """Whether an element is a sum, whose error is measured by the greatest in the result's row."""

    raises_differences: bool = False
    """Whether gradients are powers of differences of numbers as large as the arguments: so many
    times the error of those is theirs.
    """


UNARY_FLOAT = """
    acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 expm1 log log10 log1p log2
    sqrt rsqrt reciprocal sigmoid erf erfc erfinv lgamma digamma logit sinc deg2rad rad2deg frac
    special.entr special.erfcx special.expit special.ndtr special.ndtri special.log_ndtr
    special.log_softmax:0 special.i0 special.i0e special.i1 special.i1e special.bessel_j0
    special.gammaln special.psi special.log1p special.exp2 special.sinc special.round
    special.xlog1py:1.5 special.xlogy:1.5 special.zeta:2.0 nan_to_num
    F.celu F.elu F.gelu F.gelu:tanh F.hardshrink F.hardsigmoid F.hardswish F.hardtanh F.leaky_relu
    F.logsigmoid F.mish F.relu F.relu6 F.selu F.silu F.softplus F.softshrink F.softsign F.tanhshrink
    F.threshold:0.1,2.0 F.rrelu
"""
UNARY_ANY = "abs sign sgn neg square ceil floor trunc round isnan isinf isfinite isposinf isneginf "
UNARY_ANY += "signbit logical_not positive"
BINARY_FLOAT = """
    atan2 copysign hypot nextafter logaddexp logaddexp2 xlogy fmod remainder pow div floor_divide
    true_divide special.xlog1py float_power ldexp heaviside maximum minimum fmax fmin add sub mul
    eq ne lt le gt ge dist:skip
"""
BINARY_INTEGER = "maximum minimum add sub mul eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor "
BINARY_INTEGER += "bitwise_left_shift bitwise_right_shift true_divide gcd heaviside"
REDUCTIONS = """
    sum prod mean amax amin nansum nanmean logsumexp var std median nanmedian argmax argmin max min
    any all cumsum cumprod cummax cummin logcumsumexp count_nonzero softmax log_softmax norm aminmax
    sort diff
"""


def function(name: str) -> Callable[..., Any]:
    """`special.expit` of torch, or `F.gelu` with what follows the colon as its argument."""
    name, _, text = name.partition(":")
    found: Any = F if name.startswith("F.") else torch
    for part in name.removeprefix("F.").split("."):
        found = getattr(found, part)
    if not text:
        return found  # type: ignore[no-any-return]
    if name == "F.gelu":
        return functools.partial(found, approximate=text)
    values = [float(word) if "." in word else int(word) for word in text.split(",")]
    return lambda x, found=found, values=values: found(x, *values)


FORMULAS: dict[str, Callable[..., Any]] = {
    "log1p(exp)": lambda x: torch.log1p(torch.exp(x)),
    "log(1 + exp)": lambda x: torch.log(1 + torch.exp(x)),
    "exp - 1": lambda x: torch.exp(x) - 1,
    "log(sigmoid)": lambda x: torch.log(torch.sigmoid(x)),
    "1 - tanh²": lambda x: 1 - torch.tanh(x) ** 2,
    "1 - erf": lambda x: 1 - torch.erf(x),
    "1 + erf": lambda x: 1 + torch.erf(x),
    "sigmoid (1 - sigmoid)": lambda x: torch.sigmoid(x) * (1 - torch.sigmoid(x)),
    "x sigmoid": lambda x: x * torch.sigmoid(x),
    "x / sqrt(x²)": lambda x: x / torch.sqrt(x * x),
    "x / x": lambda x: x / x,
    "0 x": lambda x: x * 0,
    "x - x": lambda x: x - x,
    "x + 0": lambda x: x + 0.0,
    "x - 0": lambda x: x - 0.0,
    "0 - x": lambda x: 0.0 - x,
    "-x": lambda x: -x,
    "1 / x": lambda x: 1 / x,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp to 0": lambda x: x.clamp(min=0),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "masked_fill": lambda x: x.masked_fill(x > 0.3, -1),
    **{
        f"x ** {power}": lambda x, power=power: x**power
        for power in (0, 1, 2, 3, 4, 5, -1, -2, -3, 0.5, -0.5, 1.5, 1 / 3, 10.1, 1e10, 9999999999)
    },
    **{f"{base} ** x": lambda x, base=base: base**x for base in (0.0, 1.0, 2.0, -1.0, 0.5)},
    **{f"fmod {y}": lambda x, y=y: torch.fmod(x, y) for y in (1.5, -2.0, math.inf, 0.0)},
    **{f"remainder {y}": lambda x, y=y: x % y for y in (1.5, -2.0, math.inf, 0.0)},
    **{f"floor_divide {y}": lambda x, y=y: x // y for y in (1.5, -2.0, math.inf, 0.0)},
    "softplus beta": lambda x: F.softplus(x, beta=2.5, threshold=10),
    "elu alpha": lambda x: F.elu(x, 0.3),
    "celu alpha": lambda x: F.celu(x, 0.3),
    "prelu": lambda x: F.prelu(x, x.new_full((1,), 0.25)),
    "logit eps": lambda x: torch.logit(x, 1e-3),
    "nan_to_num values": lambda x: torch.nan_to_num(x, 1.0, 2.0, -2.0),
    "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 0.75),
    "addcdiv": lambda x: torch.addcdiv(x, x, x),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=2),
    "ldexp": lambda x: torch.ldexp(x, torch.tensor(3)),
    "glu": lambda x: F.glu(torch.cat([x, x.flip(0)])),
    "to int": lambda x: torch.nan_to_num(x, 0, 0, 0).clamp(-100, 100).to(torch.int32),
    "round decimals": lambda x: torch.round(x, decimals=2),
}
"""Of one tensor: what programs are written with, near their asymptotes."""

OF_ROWS: dict[str, Callable[..., Any]] = {
    "sum all": torch.sum,
    "prod all": torch.prod,
    "mean all": torch.mean,
    "amax all": torch.amax,
    "var all": torch.var,
    "argmax all": torch.argmax,
    "sum 0": lambda x: x.sum(0),
    "prod 0": lambda x: x.prod(0),
    "mean 0": lambda x: x.mean(0),
    "max 0": lambda x: x.max(0),
    "var 0": lambda x: x.var(0),
    "argmin 0": lambda x: x.argmin(0),
    "var 0 correction": lambda x: torch.var(x, 1, correction=0),
    "std correction": lambda x: torch.std(x, 1, correction=30),
    "var_mean": lambda x: torch.var_mean(x, 1),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "var of one": lambda x: x[:, :1].var(1),
    "softmax 0": lambda x: x.softmax(0),
    "log_softmax 0": lambda x: x.log_softmax(0),
    "cumprod 0": lambda x: x.cumprod(0),
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
    "norm inf": lambda x: torch.linalg.vector_norm(x, math.inf, dim=1),
    "norm -inf": lambda x: torch.linalg.vector_norm(x, -math.inf, dim=1),
    "norm 0": lambda x: torch.linalg.vector_norm(x, 0, dim=1),
    "norm 3": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
    "norm all": torch.linalg.vector_norm,
    "normalize": lambda x: F.normalize(x, dim=1),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.flip(1), dim=1),
    "sum of nothing": lambda x: x[:, :0].sum(1),
    "prod of nothing": lambda x: x[:, :0].prod(1),
    "mean of nothing": lambda x: x[:, :0].mean(1),
    "logsumexp of nothing": lambda x: x[:, :0].logsumexp(1),
    "expanded var": lambda x: x[:, :1].expand(-1, 13).var(1),
    "expanded std": lambda x: x[:, :1].expand(-1, 7).std(1, correction=0),
    "softmin": lambda x: F.softmin(x, dim=1),
    "masked softmax": lambda x: x.masked_fill(x > 0, -math.inf).softmax(1),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
}

NORMALISATIONS: dict[str, Callable[..., Any]] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer_norm weight": lambda x: F.layer_norm(x, x.shape[1:], x[0], x[21]),
    "layer_norm eps 0": lambda x: F.layer_norm(x, x.shape[1:], eps=0.0),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x, 2),
    "group_norm image": lambda x: F.group_norm(x.reshape(-1, 6, 4), 3),
    "instance_norm": lambda x: F.instance_norm(x.reshape(-1, 6, 4)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm columns": lambda x: F.batch_norm(x.t(), None, None, training=True),
    "batch_norm pair": lambda x: F.batch_norm(x[:2], None, None, training=True),
    "batch_norm image": lambda x: F.batch_norm(
        x.reshape(-1, 6, 4).transpose(0, 1), None, None, training=True
    ),
    "batch_norm fixed": lambda x: F.batch_norm(x, x[0], x[17].abs()),
    "local_response_norm": lambda x: F.local_response_norm(x.reshape(2, -1, 24), 2),
    "attention": lambda x: F.scaled_dot_product_attention(
        x.reshape(-1, 1, 6, 4), x.reshape(-1, 1, 6, 4), x.reshape(-1, 1, 6, 4)
    ),
    "attention of one": lambda x: F.scaled_dot_product_attention(
        x[:, :, None], x[:, :, None], x[:, :, None]
    ),
    "attention causal": lambda x: F.scaled_dot_product_attention(
        x.reshape(-1, 6, 4), x.reshape(-1, 6, 4), x.reshape(-1, 6, 4), is_causal=True
    ),
}


CANCEL = {"special.ndtr", "F.gelu", "special.erfcx", "special.i1e", "1 + erf", "1 - erf"}
"""Formulas that subtract numbers near 1: an ulp of 1 is nothing."""


def _against(name: str, **options: Any) -> Callable[..., Any]:
    return lambda x, y: getattr(F, name)(x, y, **options)


LOSSES: dict[str, Callable[..., Any]] = {
    **{
        f"{name} {reduction}": _against(name, reduction=reduction)
        for name in ("l1_loss", "mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss",
                     "binary_cross_entropy_with_logits", "poisson_nll_loss", "kl_div")
        for reduction in ("none", "mean", "sum")
    },
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
    "cosine_embedding": lambda x, y: F.cosine_embedding_loss(x, y, x.new_ones(len(x))),
    "margin_ranking": lambda x, y: F.margin_ranking_loss(x, y, torch.ones_like(x)),
    "hinge": lambda x, y: F.hinge_embedding_loss(x, torch.where(y > 0, 1.0, -1.0).to(x.dtype)),
    "gaussian_nll": lambda x, y: F.gaussian_nll_loss(x, y, y.abs(), reduction="none"),
    "cross_entropy": lambda x, y: F.cross_entropy(x, classes(x), reduction="none"),
    "cross_entropy mean": lambda x, y: F.cross_entropy(x[:1], classes(x[:1])),
    "cross_entropy ignored": lambda x, y: F.cross_entropy(x[:2], x.new_zeros(2).long(),
                                                          ignore_index=0),
    "cross_entropy smooth": lambda x, y: F.cross_entropy(
        x, classes(x), reduction="none", label_smoothing=0.1
    ),
    "nll": lambda x, y: F.nll_loss(x, classes(x), reduction="none"),
    "nll none": lambda x, y: F.nll_loss(x[:0], classes(x[:0])),
    "triplet": lambda x, y: F.triplet_margin_loss(x, y, x.flip(0), reduction="none"),
    "cdist": lambda x, y: torch.cdist(x, y[:3]),
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y),
}  # fmt: skip


def classes(x: Tensor) -> Tensor:
    """A class for each row."""
    return torch.arange(len(x), device=x.device) % 24


def _along(name: str) -> Callable[..., Any]:
    def program(x: Tensor) -> Any:
        if name == "norm":
            return torch.linalg.vector_norm(x, dim=1)
        return getattr(torch, name)(x, dim=1)

    return program


def cases() -> Iterator[Case]:
    def lines(dtype: torch.dtype) -> Sequence[tuple[Tensor, ...]]:
        return [(line(dtype),), (line(dtype)[-1],), (line(dtype)[:0],)]

    def grid(dtype: torch.dtype) -> Sequence[tuple[Tensor, ...]]:
        return [pairs(dtype)]

    def matrix(dtype: torch.dtype) -> Sequence[tuple[Tensor, ...]]:
        return [(rows(dtype),)]

    def matrices(dtype: torch.dtype) -> Sequence[tuple[Tensor, ...]]:
        return [(rows(dtype), rows(dtype).roll(1, 1)), (rows(dtype), rows(dtype).roll(5, 0))]

    for name in UNARY_FLOAT.split():
        yield Case(name, "unary", function(name), lines)
    for name in UNARY_ANY.split():
        dtypes = DTYPES if name != "neg" else DTYPES[:-1]
        yield Case(name, "unary", getattr(torch, name), lines, dtypes)
    for name, program in FORMULAS.items():
        yield Case(name, "formula", program, lines, ulps=64)
    for name in BINARY_FLOAT.split():
        if not name.endswith(":skip"):
            yield Case(name, "binary", function(name), grid)
    for name in BINARY_INTEGER.split():
        yield Case(name, "binary", getattr(torch, name), grid, (*INTEGERS, torch.bool))

    def moderate(dtype: torch.dtype) -> Sequence[tuple[Tensor, ...]]:
        return [(moderate_rows(dtype) if dtype.is_floating_point else rows(dtype),)]

    for name in REDUCTIONS.split():
        arguments = moderate if name in ("var", "std") else matrix
        raises = name == "logcumsumexp"
        yield Case(name, "reduction", _along(name), arguments, DTYPES, 64, True, raises)
    for name, program in OF_ROWS.items():
        arguments = moderate if "var" in name or "std" in name else matrix
        yield Case(name, "reduction", program, arguments, FLOATS, 64, by_row=True)
    for name, program in NORMALISATIONS.items():
        yield Case(name, "normalisation", program, moderate, FLOATS, 4096, by_row=True)
    for name, program in LOSSES.items():
        yield Case(name, "loss", program, matrices, FLOATS, 64, by_row=True)


ALL = FLOATS
HALF = (torch.float16, torch.bfloat16)
KNOWN: dict[str, tuple[tuple[torch.dtype, ...], str]] = {
    "F.hardsigmoid": ((torch.float64,), "eager's 1/6 is float32, on a CPU in the gradient"),
    "fmod": (ALL, "eager's vectors give NaN where the quotient overflows; ours is C's, exact"),
    "remainder": (ALL, "as fmod"),
    "cosh": (ALL, "eager overflows a little early"),
    "sinh": (ALL, "eager overflows a little early"),
    "atan2": (HALF, "the gradient's squares underflow, to what depends on their type"),
    "log(sigmoid)": (ALL, "eager's sigmoid rounds subnormal results to 0, ours does not"),
    "x / sqrt(x²)": (HALF, "terms cancel, of which one is rounded to be saved"),
    "x ** 10000000000.0": ((torch.float32,), "eager's last elements take the exponent in double"),
    "x ** 9999999999": ((torch.float32,), "eager's last elements take the exponent in double"),
    "F.softshrink": (ALL, "the sign of zero in eager's last elements is not that of the others"),
    "1 - tanh²": (ALL, "cancels"),
    "special.erfcx": (ALL, "the gradient cancels"),
    "prod all": (ALL, "with two zeros eager gives a gradient of 0 without a look at the NaN"),
    "layer_norm eps 0": (ALL, "of equal numbers is 0 / 0 in eager; the mean may be off by an ulp"),
    "attention causal": (ALL, "scores of a million"),
    "attention of one": (ALL, "scores of a million"),
    "norm 3": (HALF, "overflows between roundings"),
    "cosine_embedding": (HALF, "overflows between roundings"),
    "gaussian_nll": (HALF, "overflows between roundings"),
    "pairwise_distance": (HALF, "overflows between roundings"),
    "cosine_similarity": (ALL, "the gradient cancels"),
}
"""By case: the types of which it is known to differ, and why eager's answer is not the right one,
or not the only one.
"""


KNOWN_ON_A_GPU: dict[str, tuple[tuple[torch.dtype, ...], str]] = {
    "sort": (DTYPES, "equal numbers come in any order"),
    "median": (DTYPES, "of equal numbers any is taken"),
    "nanmedian": (DTYPES, "of equal numbers any is taken"),
    "F.hardswish": ((torch.float64,), "eager's constants are float32"),
    "rms_norm": ((torch.float64,), "eager's mean of squares is NaN beside an infinity"),
    "logcumsumexp": ((torch.bfloat16,), "the gradient's exponents are of rounded numbers"),
    "bce": (ALL, "eager asserts that there is no NaN, which ends the process"),
}
"""What else is known to differ there."""


ROUNDED_TO_ZERO_ON_A_GPU: dict[str, tuple[float, tuple[str, ...]]] = {
    "sums of a subnormal number and an exponential": (
        torch.finfo(torch.bfloat16).tiny,
        ("logaddexp",),
    ),
    "products of the argument and a function of an exponential": (
        LEAST,
        ("F.silu", "F.mish", "F.gelu", "F.gelu:tanh", "glu", "x sigmoid"),
    ),
}
"""By mechanism: below which magnitude all numbers but 0 are as good as 0 in bfloat16 there, and the
cases. Approximations of what is rounded to a half type are made of exponentials, and these are 0
where they are subnormal numbers, below 2**-126. Where the result is no larger than the exponential,
as of sigmoid, no row is needed: `differences` knows that subnormal numbers may be 0.
`tests.kernels.triton.test_approximations` runs such cases on Triton's interpreter.
"""


EXACT: dict[str, HalfFunction] = {
    "tanh": FUNCTIONS["tanh"],
    "F.gelu": FUNCTIONS["gelu"],
    "F.gelu:tanh": FUNCTIONS["gelu_tanh"],
}
"""By case: functions and slopes of doubles where the formulas that eager takes cancel, as
1 - tanh² and 1 + tanh.
"""


def zero_below(name: str) -> float:
    """By a case's name: below which magnitude all numbers but 0 are as good as 0 in bfloat16, where
    kernels of a GPU compute them.
    """
    rows = ROUNDED_TO_ZERO_ON_A_GPU.values()
    return max((least for least, names in rows if name in names), default=0.0)


def is_known(case: Case, dtype: torch.dtype, device: str = "cpu") -> bool:
    tables = (KNOWN,) if device == "cpu" else (KNOWN, KNOWN_ON_A_GPU)
    return any(dtype in table.get(case.name, ((), ""))[0] for table in tables)


# Running ------------------------------------------------------------------------------------------


def run(program: Callable[..., Any], arguments: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    """The results of a program by name, and the gradients of the sum of all that have one."""
    leaves = [one.detach().clone() for one in arguments]
    for leaf in leaves:
        leaf.requires_grad_(leaf.dtype.is_floating_point)
    returned = program(*leaves)
    results = list(returned) if isinstance(returned, tuple) else [returned]
    named = [(f"result {n}", result.detach()) for n, result in enumerate(results)]
    differentiable = [result for result in results if result.requires_grad]
    if differentiable:
        ones = [torch.ones_like(result) for result in differentiable]
        gradients = torch.autograd.grad(differentiable, leaves, ones, allow_unused=True)
        named += [(f"gradient {n}", g) for n, g in enumerate(gradients) if g is not None]
    return named


def run_compiled(program: Callable[..., Any], arguments: Sequence[Tensor]) -> Any:
    """`run` of the program as one graph; on a GPU of several where it checks a tensor's values: a
    graph cannot do so there.
    """
    try:
        whole = fusewright.compile(program, dynamic=False, options={"strict": True})
        return run(whole, arguments)
    except fusewright.errors.Unsupported as error:
        if error.reason != BRANCH_ON_TENSOR.name or arguments[0].device.type == "cpu":
            raise
    return run(fusewright.compile(program, dynamic=False), arguments)


def pattern(x: Tensor) -> Tensor:
    """An integer an element: what is exact of it. NaN, infinities and zeros with their sign."""
    if not x.dtype.is_floating_point:
        return x.long()
    kind = torch.where(x.isnan(), 4, torch.where(x.isinf(), 3, torch.where(x == 0, 1, 2)))
    return torch.where(x.signbit() & ~x.isnan(), -kind, kind)


@dataclass(frozen=True)
class Difference:
    """The first of the elements in which a result is not eager's."""

    result: str
    why: str
    count: int
    at: tuple[int, ...]
    eager: float
    compiled: float
    exact: float

    def __str__(self) -> str:
        return (
            f"{self.result} {self.why} in {self.count}, at {list(self.at)}: eager {self.eager!r}, "
            f"compiled {self.compiled!r}, in float64 {self.exact!r}"
        )


def _difference(
    name: str, why: str, wrong: Tensor, eager: Tensor, compiled: Tensor, exact: Tensor
) -> Difference | None:
    if not wrong.any():
        return None
    at = tuple(wrong.nonzero()[0].tolist())
    values = (eager[at].item(), compiled[at].item(), exact[at].item())
    return Difference(name, why, int(wrong.sum()), at, *values)


def differences(
    case: Case,
    name: str,
    eager: Tensor,
    compiled: Tensor,
    exact: Tensor,
    argument: Tensor,
    least: float = 0.0,
) -> Iterator[Difference]:
    """In what one result is not eager's: its type, its pattern, its numbers. `least`: the magnitude
    below which all numbers but 0 are as good as 0.
    """
    if eager.dtype != compiled.dtype or eager.shape != compiled.shape:
        yield Difference(name, f"{compiled.dtype} {tuple(compiled.shape)}", 0, (), 0, 0, 0)
        return
    unequal = pattern(eager) != pattern(compiled)
    if not eager.dtype.is_floating_point:
        found = _difference(name, "values", unequal, eager, compiled, exact)
        if found:
            yield found
        return
    limits = torch.finfo(eager.dtype)
    ours, theirs, exact = compiled.double(), eager.double(), exact.double()
    # Whether a number this small is rounded to zero is a matter of an ulp.
    both_tiny = (ours.abs() <= limits.tiny) & (theirs.abs() <= limits.tiny)
    unequal &= ~(both_tiny & (exact.abs() <= limits.tiny) & (exact != 0))
    are_zero = (ours.abs() < least) & (theirs.abs() < least) & (exact.abs() < least) & (exact != 0)
    unequal &= ~are_zero
    # What eager rounded to zero or infinity may be closer to the exact number.
    error, error_of_eager = (ours - exact).abs(), (theirs - exact).abs()
    unequal &= ~(exact.isfinite() & (error <= error_of_eager) & (error_of_eager != 0))
    if eager.dtype is torch.float64:
        unequal &= ~((ours - theirs).abs().nan_to_num(1.0) < 1e-15) | (ours == theirs)
    if case.by_row:  # a sum that cancels: only NaN and infinities are exact
        unequal &= ~(ours.isfinite() & theirs.isfinite())
    # The exact result rounded, where eager's has lost it to an infinity or NaN on the way.
    unequal &= pattern(exact.to(eager.dtype)) != pattern(compiled)
    as_eager = pattern(exact) == pattern(theirs)
    for why, wrong in (
        ("pattern, exact is eager's", unequal & as_eager),
        ("pattern", unequal & ~as_eager),
    ):
        found = _difference(name, why, wrong, eager, compiled, exact)
        if found:
            yield found
    finite = ours.isfinite() & theirs.isfinite() & exact.isfinite()
    scale = exact.abs()
    if case.by_row and scale.dim():
        scale = torch.where(finite, scale, 0).amax(-1, keepdim=True).expand_as(scale)
    # In double precision eager is its own reference: only gross differences count.
    is_double = eager.dtype is torch.float64
    ulps = 1e6 if is_double else case.ulps
    if case.raises_differences and name.startswith("gradient"):
        moderate = torch.where(argument.abs() < limits.max / 64, argument.abs(), 0)
        ulps = ulps + 2 * moderate.double().amax(-1, keepdim=True)
    about_one = ulps if case.by_row else 1e3 if is_double else float(case.name in CANCEL)
    smallest = limits.smallest_normal * limits.eps
    allowed = (scale * ulps + about_one) * limits.eps + 2 * smallest
    wrong = finite & (error > allowed) & (error > 2 * error_of_eager)
    wrong &= (pattern(eager) == pattern(compiled)) & ~are_zero
    found = _difference(name, "number", wrong, eager, compiled, exact)
    if found:
        yield found


def check(
    case: Case,
    dtype: torch.dtype,
    device: str = "cpu",
    run_compiled: Callable[..., Any] = run_compiled,
    is_approximate: bool | None = None,
) -> Iterator[str]:
    """What differs, as lines. `is_approximate`: whether kernels of a GPU are run; None if the
    device tells.
    """
    if is_approximate is None:
        is_approximate = device != "cpu"
    least = zero_below(case.name) if is_approximate and dtype is torch.bfloat16 else 0.0
    for on_cpu in case.arguments(dtype):
        arguments = [argument.to(device) for argument in on_cpu]
        try:
            eager = run(case.program, arguments)
        except (RuntimeError, TypeError):
            continue  # no such operator on this type
        fusewright.reset()
        try:
            compiled = run_compiled(case.program, arguments)
        except Exception as error:
            yield f"raises {type(error).__name__}: {str(error)[:200]}"
            continue
        wide = [x.double() if x.dtype.is_floating_point else x for x in arguments]
        exact = run(case.program, wide)
        if case.name in EXACT:
            own = EXACT[case.name]
            exact = [("result 0", own.value(wide[0])), ("gradient 0", own.slope(wide[0]))]
        if [name for name, _ in eager] != [name for name, _ in compiled]:
            yield f"results {[name for name, _ in compiled]}"
            continue
        for (name, theirs), (_, ours), (_, reference) in zip(eager, compiled, exact, strict=True):
            for found in differences(case, name, theirs, ours, reference, arguments[0], least):
                if found.at and len(arguments) and arguments[0].dim() == 1:
                    inputs = [x[found.at[0]].item() for x in arguments]
                    yield f"{found} for {inputs}"
                else:
                    yield str(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="")
    parser.add_argument("--kind", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--all", action="store_true", help="those of KNOWN too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started, totals = time.perf_counter(), Counter[str]()
    first, step = map(int, options.part.split("/"))
    for case in islice(cases(), first - 1, None, step):
        if options.names and case.name not in options.names:
            continue
        if options.kind and case.kind != options.kind:
            continue
        for dtype in case.dtypes:
            if options.dtype and dtype is not getattr(torch, options.dtype):
                continue
            if is_known(case, dtype, options.device) and not options.all:
                totals["known to differ"] += 1
                continue
            totals["checked"] += 1
            found = list(check(case, dtype, options.device))
            totals["different"] += bool(found)
            for text in found:
                print(f"{case.kind} {case.name} {str(dtype)[6:]}: {text}", flush=True)
    print(f"{dict(totals)} in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
