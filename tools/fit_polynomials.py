"""Fits the polynomials of the vector mathematics and writes their coefficients as a Python file.

    python tools/fit_polynomials.py > src/fusewright/kernels/llvm/mathematics/coefficients.py

Each row of `FITS` asks for the polynomial P of least maximal error in

    f(x) ~ known(x) + factor(x) * P(argument(x))        on an interval,

the error being weighed by 1 / |scale(x)| (relative error of the final result, as a rule). The
method
is Remez's exchange on a dense grid, in 60 digits (mpmath). Coefficients are then rounded to their
format one at a time from the lowest, the rest being fitted again after each, so that the rounding
of
one is made up for by the others. The comment beside each row of the output states what was reached.
Needs mpmath; runs a few minutes. Nothing of it is used at run time.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One polynomial to be found."""

    name: str
    says: str
    function: Function
    interval: tuple[float, float]
    terms: int
    precision: str = "single"
    known: Function = lambda x: mp.mpf(0)
    factor: Function = lambda x: mp.mpf(1)
    argument: Function = lambda x: x
    scale: Function | None = None
    """Where None, the function itself: relative error."""


def round_to(precision: str, value: mp.mpf) -> mp.mpf:
    """`value` rounded to a number that the format holds."""
    if precision == "double":
        return mp.mpf(float(value))
    return mp.mpf(struct.unpack("f", struct.pack("f", float(value)))[0])


def remez(
    target: Function,
    weight: Function,
    argument: Function,
    powers: list[int],
    interval: tuple[float, float],
) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients c of least max |weight * (target - sum c_k argument^k)|, and that maximum."""
    low, high = (mp.mpf(end) for end in interval)
    count = len(powers)
    grid = [low + (high - low) * (1 - mp.cos(mp.pi * i / 400)) / 2 for i in range(401)]
    table = [(argument(x), target(x), weight(x)) for x in grid]
    chosen = [round(400 * i / count) for i in range(count + 1)]
    best: tuple[list[mp.mpf], mp.mpf] | None = None
    for _ in range(30):
        rows, values = [], []
        for sign, index in enumerate(chosen):
            u, value, w = table[index]
            rows.append([u**k for k in powers] + [(-1) ** sign / w])
            values.append(value)
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix(values))
        coefficients = [solution[i] for i in range(count)]
        errors = [
            w * (value - sum(c * u**k for c, k in zip(coefficients, powers, strict=True)))
            for u, value, w in table
        ]
        worst = max(abs(error) for error in errors)
        if best is None or worst < best[1]:
            best = coefficients, worst
        exchanged = alternation(errors, count + 1)
        if exchanged == chosen or worst < abs(solution[count]) * mp.mpf("1.002"):
            break
        chosen = exchanged
    assert best is not None
    return best


def alternation(errors: list[mp.mpf], count: int) -> list[int]:
    """Indices of `count` extrema of alternating sign, the largest ones."""
    extrema: list[int] = []
    for index, error in enumerate(errors):
        if extrema and (errors[extrema[-1]] >= 0) == (error >= 0):
            if abs(error) > abs(errors[extrema[-1]]):
                extrema[-1] = index
        else:
            extrema.append(index)
    while len(extrema) > count:
        if len(extrema) - count == 1:
            first, last = abs(errors[extrema[0]]), abs(errors[extrema[-1]])
            del extrema[0 if first < last else -1]
        else:
            weakest = min(
                range(len(extrema) - 1),
                key=lambda i: max(abs(errors[extrema[i]]), abs(errors[extrema[i + 1]])),
            )
            del extrema[weakest : weakest + 2]
    if len(extrema) < count:
        return [round((len(errors) - 1) * i / (count - 1)) for i in range(count)]
    return extrema


def solve(fit: Fit) -> tuple[list[mp.mpf], mp.mpf]:
    """The rounded coefficients of a fit and the error reached with them."""
    scale = fit.scale or fit.function

    def weight(x: mp.mpf) -> mp.mpf:
        return abs(fit.factor(x) / scale(x))

    def wanted(x: mp.mpf) -> mp.mpf:
        return (fit.function(x) - fit.known(x)) / fit.factor(x)

    done: list[mp.mpf] = []
    error = mp.mpf(0)
    while len(done) < fit.terms:
        known = list(done)

        def rest(x: mp.mpf, known: list[mp.mpf] = known) -> mp.mpf:
            u = fit.argument(x)
            return wanted(x) - sum(c * u**k for k, c in enumerate(known))

        powers = list(range(len(done), fit.terms))
        coefficients, error = remez(rest, weight, fit.argument, powers, fit.interval)
        done.append(round_to(fit.precision, coefficients[0]))
    low, high = (mp.mpf(end) for end in fit.interval)
    grid = [low + (high - low) * i / 997 for i in range(998)]
    reached = max(
        abs(weight(x) * (wanted(x) - sum(c * fit.argument(x) ** k for k, c in enumerate(done))))
        for x in grid
    )
    return done, max(error, reached)


HALF_LN2 = 0.34661  # a little over ln(2) / 2
ROOT_HALF, ROOT_TWO = 0.70700, 1.41430  # a little outside sqrt(1/2) and sqrt(2)
TINY = 1e-5  # intervals about zero leave out the point where factor and scale vanish together


def scaled_erfc(x: mp.mpf) -> mp.mpf:
    """erfc(x) * exp(x²), which falls slowly."""
    return mp.erfc(x) * mp.exp(x * x)


def erfinv_central(w: mp.mpf) -> mp.mpf:
    """erfinv(x) / x as a function of w = -log(1 - x²)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


FITS = [
    Fit(
        name="EXPM1",
        says="expm1(r) = r + r² P(r)",
        function=mp.expm1,
        known=lambda r: r,
        factor=lambda r: r * r,
        interval=(-HALF_LN2, HALF_LN2 + 1e-9),
        terms=6,
    ),
    Fit(
        name="EXP",
        says="exp(r) = 1 + r + r² P(r)",
        function=mp.exp,
        known=lambda r: 1 + r,
        factor=lambda r: r * r,
        interval=(-HALF_LN2, HALF_LN2 + 1e-9),
        terms=5,
    ),
    Fit(
        name="EXP2M1",
        says="2^r - 1 = r P(r)",
        function=lambda r: mp.mpf(2) ** r - 1,
        factor=lambda r: r,
        interval=(-0.5001, 0.50011),
        terms=7,
    ),
    Fit(
        name="LOG",
        says="log(1 + f) = f - f²/2 + f³ P(f)",
        function=mp.log1p,
        known=lambda f: f - f * f / 2,
        factor=lambda f: f**3,
        interval=(ROOT_HALF - 1, ROOT_TWO - 1),
        terms=8,
    ),
    Fit(
        name="LOG2",
        says="log2(1 + f) = f / log(2) + f² P(f)",
        function=lambda f: mp.log1p(f) / mp.log(2),
        known=lambda f: f / mp.log(2),
        factor=lambda f: f * f,
        interval=(ROOT_HALF - 1, ROOT_TWO - 1),
        terms=9,
    ),
    Fit(
        name="LOG10",
        says="log10(1 + f) = f / log(10) + f² P(f)",
        function=lambda f: mp.log1p(f) / mp.log(10),
        known=lambda f: f / mp.log(10),
        factor=lambda f: f * f,
        interval=(ROOT_HALF - 1, ROOT_TWO - 1),
        terms=9,
    ),
    Fit(
        name="TANH",
        says="tanh(x) = x + x³ P(x²), x <= 0.625",
        function=mp.tanh,
        known=lambda x: x,
        factor=lambda x: x**3,
        argument=lambda x: x * x,
        interval=(TINY, 0.6251),
        terms=5,
    ),
    Fit(
        name="ERF",
        says="erf(x) = x + x P(x²), x <= 0.9",
        function=mp.erf,
        known=lambda x: x,
        factor=lambda x: x,
        argument=lambda x: x * x,
        interval=(TINY, 0.9001),
        terms=6,
    ),
    Fit(
        name="ERF_TAIL",
        says="log2(erfc(x)) = P(x), 0.9 <= x <= 4; error is erf's, relative",
        function=lambda x: mp.log(mp.erfc(x), 2),
        scale=lambda x: mp.erf(x) / mp.erfc(x),
        interval=(0.8999, 4.0),
        terms=7,
    ),
    Fit(
        name="EXP2_SHORT",
        says="2^r = 1 + r P(r), where a quarter of the error counts",
        function=lambda r: mp.mpf(2) ** r,
        known=lambda r: mp.mpf(1),
        factor=lambda r: r,
        interval=(-0.5001, 0.50011),
        terms=5,
    ),
    # In double precision, for results in single: an error of 1e-10 is a thousandth of an ulp.
    Fit(
        name="EXP_WIDE",
        says="exp(r) = 1 + r + r² P(r)",
        function=mp.exp,
        known=lambda r: 1 + r,
        factor=lambda r: r * r,
        interval=(-HALF_LN2, HALF_LN2 + 1e-9),
        terms=7,
        precision="double",
    ),
    Fit(
        name="LOG_WIDE",
        says="log(1 + f) = f + f² P(f)",
        function=mp.log1p,
        known=lambda f: f,
        factor=lambda f: f * f,
        interval=(ROOT_HALF - 1, ROOT_TWO - 1),
        terms=14,
        precision="double",
    ),
    Fit(
        name="SIN_WIDE",
        says="sin(r) = r + r³ P(r²), r <= pi/4",
        function=mp.sin,
        known=lambda r: r,
        factor=lambda r: r**3,
        argument=lambda r: r * r,
        interval=(TINY, 0.7855),
        terms=4,
        precision="double",
    ),
    Fit(
        name="COS_WIDE",
        says="cos(r) = 1 - r²/2 + r⁴ P(r²), r <= pi/4",
        function=mp.cos,
        known=lambda r: 1 - r * r / 2,
        factor=lambda r: r**4,
        argument=lambda r: r * r,
        interval=(TINY, 0.7855),
        terms=4,
        precision="double",
    ),
    Fit(
        name="ATAN_WIDE",
        says="atan(x) = x + x³ P(x²), x <= 1",
        function=mp.atan,
        known=lambda x: x,
        factor=lambda x: x**3,
        argument=lambda x: x * x,
        interval=(TINY, 1.0),
        terms=12,
        precision="double",
    ),
    Fit(
        name="ASIN_WIDE",
        says="asin(x) = x + x³ P(x²), x <= 1/2",
        function=mp.asin,
        known=lambda x: x,
        factor=lambda x: x**3,
        argument=lambda x: x * x,
        interval=(TINY, 0.5),
        terms=7,
        precision="double",
    ),
    Fit(
        name="SINH_WIDE",
        says="sinh(x) = x + x³ P(x²), x <= 1",
        function=mp.sinh,
        known=lambda x: x,
        factor=lambda x: x**3,
        argument=lambda x: x * x,
        interval=(TINY, 1.0),
        terms=5,
        precision="double",
    ),
    Fit(
        name="ERFC_WIDE",
        says="erfc(x) exp(x²) (1 + 2x) = P(t), t = (x - 2) / (x + 2), x <= 10.1",
        function=lambda t: scaled_erfc(2 * (1 + t) / (1 - t)) * (1 + 4 * (1 + t) / (1 - t)),
        interval=(-1.0, 0.67),
        terms=14,
        precision="double",
    ),
    Fit(
        name="ERFINV_CENTRAL",
        says="erfinv(x) = x P(w), w = -log(1 - x²) <= 5",
        function=erfinv_central,
        interval=(TINY, 5.0),
        terms=12,
        precision="double",
    ),
    Fit(
        name="ERFINV_TAIL",
        says="erfinv(x) = x P(sqrt(w) - 3), 5 <= w <= 17",
        function=lambda s: erfinv_central((s + 3) ** 2),
        interval=(-0.765, 1.13),
        terms=13,
        precision="double",
    ),
]


ERF_STEP = 33 / 128
"""Distance of the points about which ERF_ROWS expands erf: 15.5 of them reach where erf is 1."""

ERF_LIMIT = 3.9921875
"""erf is 1 from here on; the last of the sixteen intervals reaches a little further."""


def erf_rows() -> list[list[mp.mpf]]:
    """Coefficients of erf(k step + d), |d| <= step / 2, in powers of d: a row a power, a column k.

    Interpolated at Chebyshev's points. About 0 the form is d + d P(d²), whose relative error is
    small, and the first d is left to the caller. The last polynomial, from whose end on erf is 1,
    makes up there for the rounding of its first coefficient: it would stay one step below 1.
    """
    half = mp.mpf(ERF_STEP) / 2

    def about_zero(u: mp.mpf) -> mp.mpf:
        return mp.erf(mp.sqrt(u)) / mp.sqrt(u) - 1

    even = mp.chebyfit(about_zero, [mp.mpf(TINY) ** 2, half * half], 3)
    columns = [[coefficient for one in reversed(even) for coefficient in (mp.mpf(0), one)]]
    columns[0].append(mp.mpf(0))
    for k in range(1, 16):
        centre = k * mp.mpf(ERF_STEP)
        fitted = mp.chebyfit(lambda d, centre=centre: mp.erf(centre + d), [-half, half], 7)
        columns.append(list(reversed(fitted)))
    last, end = columns[-1], mp.mpf(ERF_LIMIT) - 15 * mp.mpf(ERF_STEP)
    last[1] += (last[0] - round_to("single", last[0])) / end
    return [[round_to("single", value) for value in row] for row in zip(*columns, strict=True)]


def main() -> None:
    names = sys.argv[1:]
    print('"""Coefficients of the vector mathematics, lowest power first.')
    print()
    print(
        "Written by tools/fit_polynomials.py, which states the method; do not edit by hand. After"
    )
    print("each name: the form, then the largest weighed error over the interval.")
    print('"""')
    print()
    print("from __future__ import annotations")
    for fit in FITS:
        if names and fit.name not in names:
            continue
        coefficients, error = solve(fit)
        print(f"\n# {fit.says}: {mp.nstr(error, 2)}")
        print(f"{fit.name} = (")
        for coefficient in coefficients:
            print(f"    {float(coefficient)!r},")
        print(")", flush=True)
        print(f"{fit.name} {mp.nstr(error, 3)}", file=sys.stderr, flush=True)
    if not names or "ERF_ROWS" in names:
        print("\n# erf(k ERF_STEP + d) = sum of ERF_ROWS[n][k] d^n; d more at k = 0")
        print(f"ERF_STEP = {ERF_STEP!r}")
        print(f"ERF_LIMIT = {ERF_LIMIT!r}")
        print("ERF_ROWS = (")
        for row in erf_rows():
            print("    (")
            print("".join(f"        {float(value)!r},\n" for value in row) + "    ),")
        print(")", flush=True)


if __name__ == "__main__":
    main()
