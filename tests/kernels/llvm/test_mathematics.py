"""Vector mathematics against double precision: error in ulp over the whole range, and every
special value.

`python -m pytest -m every_float` tries each of the 2^32 numbers there are, some minutes a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import special

from fusewright.kernels.llvm.builder import VectorType
from fusewright.kernels.llvm.mathematics import FUNCTIONS, definitions, symbol
from fusewright.native import CpuKernel
from fusewright.runtime.llvm_engine import NAMED_TARGETS, compile_batch, cpu_target

REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sigmoid": special.expit, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": special.erf, "erfc": special.erfc,
    "lgamma": special.gammaln, "pow": np.power, "atan2": np.arctan2,
    "fmod": np.fmod,
}  # fmt: skip
BINARY = {"pow", "atan2", "fmod"}
SPECIAL = [
    0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e-45,
    -1e-45, 1.1754944e-38, 3.4e38, -3.4e38, 88.72, 88.73, -87.3, -103.9, -104.0, 10.0, -10.0, 100.0,
    1e-5, 0.625, 0.9, 4.0, 10.05, 1.0000001, 0.99999994, 1.5, 2.5, 1e9, 1.1e9, 1e30,
]  # fmt: skip
SINGLE = sorted(name for name, element in FUNCTIONS if element == "float")
ODD = [
    "expm1", "log1p", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh", "tanh", "erf",
]  # fmt: skip
ULPS = dict.fromkeys(SINGLE, 1.0) | {
    "erf": 1.6, "expm1": 1.3, "log1p": 1.5, "sigmoid": 1.9, "tanh": 1.3,
}  # fmt: skip
"""The error that each function may have, in ulp."""
SATURATED: dict[str, tuple[tuple[float, float], ...]] = {
    "erf": ((4.0, 1.0), (-4.0, -1.0)),
    "erfc": ((10.1, 0.0), (-4.0, 2.0)),
    "tanh": ((10.0, 1.0), (-10.0, -1.0)),
    "sigmoid": ((18.0, 1.0), (-105.0, 0.0)),
    "expm1": ((89.0, math.inf), (-18.0, -1.0)),
    "exp": ((89.0, math.inf), (-104.0, 0.0)),
    "exp2": ((128.0, math.inf), (-151.0, 0.0)),
    "atan": ((1e9, math.pi / 2), (-1e9, -math.pi / 2)),
    "cosh": ((90.0, math.inf), (-90.0, math.inf)),
    "sinh": ((90.0, math.inf), (-90.0, -math.inf)),
}
"""By function: from where on, away from zero, it has which value, exactly."""
WIDTHS = {"avx512": 16, "avx2": 8, "neon": 4, "scalar": 1}


def kernel_of(name: str, lanes: int, count: int, has_scalef: bool) -> CpuKernel:
    """A kernel that applies one function to whole vectors of its operands; the last argument is
    the result."""
    kind = VectorType("float", lanes)
    rows = ["define i64 @kernel(ptr %arguments, i64 %begin, i64 %end) {", "entry:"]
    for n in range(count + 1):
        rows.append(f"  %slot{n} = getelementptr ptr, ptr %arguments, i64 {n}")
        rows.append(f"  %base{n} = load ptr, ptr %slot{n}")
    rows += ["  br label %loop", "loop:", "  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]"]
    rows += [f"  %place{n} = getelementptr {kind}, ptr %base{n}, i64 %i" for n in range(count + 1)]
    rows += [f"  %x{n} = load {kind}, ptr %place{n}, align 4" for n in range(count)]
    operands = ", ".join(f"{kind} %x{n}" for n in range(count))
    rows.append(f"  %y = call {kind} @{symbol(name, kind)}({operands}) alwaysinline")
    rows.append(f"  store {kind} %y, ptr %place{count}, align 4")
    rows += ["  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %end"]
    rows += ["  br i1 %more, label %loop, label %done", "done:", "  ret i64 0", "}"]
    source = "\n\n".join([*definitions([symbol(name, kind)], has_scalef), "\n".join(rows)])
    library = compile_batch({f"apply_{name}": source})
    return CpuKernel(library.addresses[f"apply_{name}"], count + 1, 0, name, library)


def samples(name: str, count: int) -> list[np.ndarray]:
    """Half of them random bit patterns, half ordinary numbers of several sizes; special values,
    all pairs of them."""
    random = np.random.default_rng(sum(map(ord, name)))

    def one() -> np.ndarray:
        bits = random.integers(0, 2**32, count, dtype=np.uint32).view(np.float32).copy()
        sizes = random.choice([1e-3, 0.1, 1.0, 5.0, 30.0], count // 2)
        bits[: count // 2] = random.standard_normal(count // 2) * sizes
        return bits

    values = np.array(SPECIAL, dtype=np.float32)
    if name not in BINARY:
        x = one()
        x[: len(values)] = values
        return [x]
    x, y = one(), one()
    x[: len(values) ** 2] = np.repeat(values, len(values))
    y[: len(values) ** 2] = np.tile(values, len(values))
    return [x, y]


def errors(result: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Distance in ulp of the wanted number's single-precision neighbourhood; infinite where
    specials differ."""
    with np.errstate(all="ignore"):
        rounded = wanted.astype(np.float32)
        base = np.where(np.isfinite(rounded), np.abs(rounded), np.float32(1))
        ulp = np.maximum(np.spacing(base).astype(np.float64), 2.0**-149)
        distance = np.abs(result.astype(np.float64) - wanted) / ulp
        same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
        distance = np.where(same & ~np.isfinite(rounded), 0.0, distance)
        return np.where(np.isnan(distance), np.inf, distance)


def applied(name: str, width: str, operands: list[np.ndarray]) -> np.ndarray:
    """What the kernel of a function gives, on whole vectors."""
    lanes = WIDTHS[width]
    has_scalef = width == "avx512" and cpu_target().has_scalef
    result = np.empty_like(operands[0])
    kernel = kernel_of(name, lanes, len(operands), has_scalef)
    tensors = [torch.from_numpy(array) for array in (*operands, result)]
    kernel(*tensors, len(result) // lanes, 1 << 60)
    return result


def largest_error_of(
    name: str, width: str, operands: list[np.ndarray]
) -> tuple[float, list[float]]:
    """The largest error in ulp, and where; infinite where a special value or a sign is wrong."""
    with np.errstate(all="ignore"):
        wanted = REFERENCES[name](*(operand.astype(np.float64) for operand in operands))
    if name == "lgamma":
        # C and torch say +inf where scipy says -inf; near its negative zeros scipy itself is
        # coarse.
        wanted = torch.lgamma(torch.from_numpy(operands[0]).double()).numpy()
    result = applied(name, width, operands)
    found = errors(result, wanted)
    found[(np.signbit(result) != np.signbit(wanted)) & ~np.isnan(wanted)] = np.inf
    worst = int(np.argmax(found))
    return float(found[worst]), [float(operand[worst]) for operand in operands]


def largest_error(name: str, width: str, count: int) -> tuple[float, list[float]]:
    """`largest_error_of` samples."""
    lanes = WIDTHS[width]
    return largest_error_of(name, width, samples(name, count // lanes * lanes))


def largest_error_of_bits(name: str, width: str, bits: range) -> tuple[float, list[float]]:
    """`largest_error_of` the numbers with these bits."""
    x = np.arange(bits.start, bits.stop, bits.step, dtype=np.uint64).astype(np.uint32)
    x = x[: len(x) // 16 * 16].view(np.float32)
    return largest_error_of(name, width, [x])


def test_every_function_has_a_reference() -> None:
    assert set(SINGLE) == set(REFERENCES)
    assert set(WIDTHS) == set(NAMED_TARGETS)


@pytest.mark.parametrize("width", ["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("name", SINGLE)
def test_error_is_at_most_as_stated(name: str, width: str) -> None:
    error, where = largest_error(name, width, 1 << 15)
    assert error <= ULPS[name], f"{name}({where}) errs by {error} ulp"


@pytest.mark.parametrize("width", ["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("name", sorted(set(SINGLE) - BINARY))
def test_numbers_from_the_whole_range(name: str, width: str) -> None:
    """Every 131,071st: all signs and exponents, and NaNs."""
    error, where = largest_error_of_bits(name, width, range(0, 1 << 32, 131071))
    assert error <= ULPS[name], f"{name}({where}) errs by {error} ulp"


@pytest.mark.every_float
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("width", ["avx512", "scalar"])
@pytest.mark.parametrize("name", sorted(set(SINGLE) - BINARY))
def test_every_number_there_is(name: str, width: str) -> None:
    for start in range(0, 1 << 32, 1 << 22):
        error, where = largest_error_of_bits(name, width, range(start, start + (1 << 22)))
        assert error <= ULPS[name], f"{name}({where}) errs by {error} ulp"


@pytest.mark.parametrize("width", ["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("name", SATURATED)
def test_asymptotes_are_met_exactly(name: str, width: str) -> None:
    """An error of an ulp there is multiplied by what a program likes: gelu is x (1 + erf) / 2."""
    for start, value in SATURATED[name]:
        x = np.float32(math.copysign(1, start)) * np.geomspace(abs(start), 3.4e38, 64)
        x = np.concatenate([x, [math.copysign(math.inf, start)] * 16]).astype(np.float32)
        assert set(applied(name, width, [x]).tolist()) == {float(np.float32(value))}


@pytest.mark.parametrize("name", ODD)
def test_zeros_keep_their_sign(name: str) -> None:
    x = torch.tensor([0.0, -0.0] * 8)
    y = torch.empty(16)
    kernel_of(name, 16, 1, False)(x, y, 1, 1)
    assert torch.equal(y.signbit(), x.signbit()) and bool((y == 0).all())
