"""The judge of rounding: the same program in double precision, exactly and with noise.

Two correct programs that round in another order differ. How much is too much depends on the
program: the difference of two large numbers may have no correct digit at all. So a disputed
program is run in double precision, once as it is, and some times with every result of every
operator changed at random by up to some units of rounding of the program's dtype (Monte Carlo
arithmetic, D. S. Parker, 1997), and so are inputs that are no integers. How far results scatter
tells what rounding can do to each; where they scatter between true and false, between two integers
or between finite and infinite, either is right. Operators that do not round, views and copies and
comparisons, get no noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.nn import functional

from fusewright import torch_compat
from fusewright.bisection.double import EXACT
from fusewright.fuzz.conversions import NotedConversions, RepeatedConversions
from fusewright.fuzz.execution import Outcome, run
from fusewright.fuzz.gpu_choices import ATOMIC_SUMS, GpuChoices
from fusewright.fuzz.inputs import noisy_inputs
from fusewright.fuzz.observation import Tensor
from fusewright.fuzz.program import RandomProgram
from fusewright.torch_compat import TorchDispatchMode

SOME: Final = 3
MANY: Final = 16
MOST: Final = 128
"""Runs with noise: as many as settle most disputes, as settle nearly all, and as are made before
something is called a finding: where an element is finite only if numbers computed alike round to
the same side, say arccosines of cosines of equal vectors, few runs show that.
"""

SUMS: Final = frozenset(str.split("sum mean nansum cumsum"))
"""Sums: their error is one of the largest summand, so that each is given noise."""

SQUARES: Final = frozenset(
    str.split(
        """
        var std var_mean std_mean prod cumprod linalg_vector_norm norm mm bmm addmm baddbmm
        native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit
        """
    )
)
"""Sums of products, and products: as `SUMS`."""

PRODUCTS: Final = frozenset(str.split("prod cumprod"))
"""Products of many numbers, of which some may overflow together and others underflow."""

ABSOLUTE: Final = frozenset(str.split("linspace _fft_c2c _fft_r2c _fft_c2r logsumexp"))
"""Operators whose error is one of the largest element of the result."""

OF_THE_LARGER: Final = frozenset(str.split("logaddexp logaddexp2"))
"""Operators whose error is one of the larger argument, which a logarithm is added to: their sum may
be 0, as where both arguments are -1 to the base of 2.
"""

WITHIN_ONE: Final = frozenset(
    str.split("sigmoid tanh _softmax sin cos erf sigmoid_ tanh_ sin_ cos_ erf_")
)
"""Operators whose results are in no rounding beyond 1 or -1: what is computed of them may refuse
such numbers.
"""

CANCELLING: Final = frozenset(str.split("gelu gelu_backward"))
"""Operators whose error is one of their first argument, where the second factor of the result is a
difference: of 1 and an error function that is not yet 1.
"""

CANCELS_BELOW: Final = 5.5
"""Where the arguments of such an operator are larger, nothing is left of the difference."""

NORMALISATIONS: Final = frozenset(
    str.split(
        """
        native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit
        _native_batch_norm_legit_no_training cudnn_batch_norm batch_norm native_layer_norm_backward
        native_group_norm_backward native_batch_norm_backward
        """
    )
)
"""Differences from a mean in units of a deviation, or a factor and a summand computed from both:
what is 0 has the sign of rounding. Where squares overflow the deviation is infinite, and all is 0,
or NaN.
"""

WITH_STATISTICS: Final = frozenset(
    str.split("native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit")
)
"""Normalisations whose third result is the factor that differences from the mean are taken by."""

UNSIGNED: Final = NORMALISATIONS | frozenset(
    str.split(
        """
        amax amin max min aminmax maximum minimum fmax fmin clamp clamp_min clamp_max softshrink
        mm bmm addmm baddbmm
        """
    )
)
"""Operators that take zeros of both signs for equal, and give the one that comes first: eager's
vectors another one than the last elements of a row, and its reductions in an order of their own.
"""

POLES: Final = {"lgamma": 1, "digamma": 1, "polygamma": 1, "mvlgamma": 2}
"""Operators that are infinite at integers of 0 and below, or at multiples of a half: what part of 1
lies between two poles. Numbers of few digits meet them, and numbers with noise never do.
"""

DEVIATIONS: Final = frozenset(str.split("var std var_mean std_mean"))
"""Means of squared differences: where squares overflow they are infinite, or NaN where an infinite
mean is subtracted from infinity.
"""

RESAMPLING: Final = frozenset(
    str.split(
        """
        upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
        _upsample_bilinear2d_aa _upsample_bicubic2d_aa
        """
    )
)
"""Sums of neighbours, first along one dimension and then along the next: where those are infinite
their differences are NaN.
"""

WEIGHT: Final = 2.25
"""What the weights of neighbours, without their signs, add up to at most."""

TAPS: Final = 2
"""How far away neighbours are at most."""

MAXIMA: Final = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
"""The largest numbers around places, by how many dimensions these have, less one."""

ZEROS: Final = "_efficientzerotensor"
"""The operator that gives gradients which a formula says are 0: zeros without memory, which are not
computed with. Compiled code has them as numbers: 0 / 0 is NaN.
"""

OVERFLOWING: Final = DEVIATIONS | RESAMPLING
"""Operators that may overflow on the way to a result that is finite, or to one that is not."""

SIGNS: Final = frozenset(str.split("signbit copysign"))
"""Operators that show the sign of a NaN, which means nothing."""

UNLIKE_AT_NAN: Final = frozenset(
    str.split(
        "elu_backward hardtanh_backward hardswish_backward hardshrink_backward softshrink_backward"
    )
)
"""Operators whose results at NaN differ in eager between vectors and the last elements."""

JUDGED_BY_NAME: Final = (
    SUMS
    | SQUARES
    | ABSOLUTE
    | OF_THE_LARGER
    | UNSIGNED
    | CANCELLING
    | SIGNS
    | POLES.keys()
    | ATOMIC_SUMS
)
"""Operators with noise of their own, whose in-place forms have the same."""

UNITS: Final = 4
"""Units of rounding that a result is changed by at most: an operator rounds more than once."""


class _Noise(TorchDispatchMode):
    """Changes each rounded result by up to `size`, relatively, and what is summed.

    What two numbers of a sum overflow in, the dtype `narrowest`, or the square of one, may or may
    not overflow on the way to the result, as the sum is ordered: in some runs (told by `seed`) such
    numbers are infinite, and in some they are cut to what does not overflow. What is left of a sum
    that cancels is exactly 0 in some runs, as in one order it may be. With `on_gpu`, what is open
    in a GPU's kernels is chosen at random.
    """

    def __init__(
        self, size: float, seed: int, narrowest: torch.dtype, on_gpu: bool = False
    ) -> None:
        super().__init__()
        self._size = size
        self._seed = seed
        self._largest = torch.finfo(narrowest).max
        self._least = torch.finfo(narrowest).smallest_normal
        self._generator = torch.Generator().manual_seed(seed)
        self._choices = GpuChoices(seed, narrowest, self._generator) if on_gpu else None

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch_compat.is_composite(function):  # as operators come in inference mode
            with self:
                return torch_compat.decompose(function, args, kwargs)
        name = function.overloadpacket.__name__
        if name.endswith("_") and name[:-1] in JUDGED_BY_NAME:
            form = torch_compat.not_in_place(function)
            return args[0].copy_(self.__torch_dispatch__(form, types, args, kwargs))
        if self._choices is not None and self._choices.decides(name):
            return self._choices.result(name, function, args, kwargs)
        if name == ZEROS and self._seed % 2:
            return torch.zeros_like(function(*args, **kwargs))
        return self._noisy(name, function, args, kwargs)

    def _noisy(self, name: str, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an operator, with noise."""
        args = self._arguments(name, args, kwargs)
        result = function(*args, **kwargs)
        if self._cancels and name in SUMS | PRODUCTS and args[0].is_floating_point():
            result = self._in_another_order(name, result, function, args, kwargs)
        if name in UNLIKE_AT_NAN:
            return self._with_any_at_nan(result, args)
        if name in ABSOLUTE:
            return self._shifted(result)
        parts = result if isinstance(result, list | tuple) else (result,)
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        if name in NORMALISATIONS:
            tensors[0].copy_(self._shifted(tensors[0]))
            self._overflow(tensors[0], args[0])
            if self._cancels and name in WITH_STATISTICS:
                self._cancel(tensors[0], args[0], tensors[2])
        if name in OVERFLOWING and self._seed % 4 == 3:
            overflow = self._overflow_squares if name in DEVIATIONS else self._overflow_between
            overflow(function, tensors[0], args, kwargs)
        if name in CANCELLING:
            factor, argument = args[0], args[-1]  # one and the same without a gradient
            noise = factor * self._noise(factor.shape).to(factor)
            result.add_(torch.where(argument.abs() < CANCELS_BELOW, noise, 0.0))
        if name in OF_THE_LARGER:
            larger = torch.maximum(args[0].abs(), args[1].abs())
            noise = larger * self._noise(larger.shape).to(larger)
            result.add_(torch.where(larger.isfinite(), noise, 0.0))
        if name in UNSIGNED:
            for tensor in tensors:
                self._sign_zeros(tensor)
        if name not in EXACT and not function.is_view:
            for tensor in tensors:
                self._change(tensor)
        if name in WITHIN_ONE and not result.is_complex():
            result.clamp_(-1, 1)
        if not function.is_view:
            self._spread_nan(tensors)
        return result

    def _arguments(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """What an operator is called with in place of its arguments."""
        if self._choices is not None:
            args = self._choices.summands(name, args)
        if name in SUMS or name in SQUARES:
            count = 1 if name in NORMALISATIONS else len(args)  # statistics are written to
            dtype = kwargs.get("dtype")
            summed = [self._summands(arg, name in SQUARES, dtype) for arg in args[:count]]
            args = [*summed, *args[count:]]
        if name in POLES:
            args = [self._at_poles(arg, POLES[name]) for arg in args]
        if name in SIGNS:
            args = [self._with_any_nan(arg) for arg in args]
        return args

    def _summands(self, value: Any, squared: bool, dtype: torch.dtype | None) -> Any:
        """An argument of a sum with noise on each element; `dtype`: the one that sums are in, if it
        is another.
        """
        if isinstance(value, torch.Tensor) and dtype == torch.float64 and not value.is_complex():
            value = value.double()
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
            return value
        if not value.numel() or not value.data_ptr():
            return value
        limit = self._largest**0.5 / 2 if squared else self._largest / 2
        large = (value.abs() > limit) & value.isfinite()
        value = value * (1 + self._noise(value.shape))
        if self._seed % 3 == 0 or int(large.sum()) < (1 if squared else 2):
            return value
        bound = math.inf if self._seed % 3 == 1 else limit / value.numel()
        return torch.where(large, value.sign() * bound, value)

    def _at_poles(self, value: Any, per_one: int) -> Any:
        """An argument of which elements near a pole are at it, in some runs."""
        if not isinstance(value, torch.Tensor) or self._seed % 3 or not value.is_floating_point():
            return value
        pole = (value * per_one).round() / per_one
        is_near = (pole <= 0.5) & ((value - pole).abs() <= self._size * value.abs())
        return torch.where(is_near, pole, value)

    def _noise(self, shape: Sequence[int]) -> torch.Tensor:
        """Numbers between -size and size."""
        noise = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return self._size * (2 * noise - 1)

    def _signs(self, value: torch.Tensor) -> torch.Tensor:
        """1 and -1 at random, as many as `value` has elements."""
        return torch.ones_like(value).copysign(self._noise(value.shape).to(value))

    def _sign_zeros(self, value: torch.Tensor) -> None:
        """Give each zero any sign."""
        if value.is_floating_point() and value.data_ptr():
            value.copy_(torch.where(value == 0, 0 * self._signs(value), value))

    def _with_any_nan(self, value: Any) -> Any:
        """`value` whose NaN have any sign."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return torch.where(value.isnan(), value.copysign(self._signs(value)), value)

    def _with_any_at_nan(self, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
        """A result with NaN or 0 wherever an argument is NaN, in some runs."""
        other = (None, math.nan, 0.0)[self._seed % 3]
        if other is None:
            return result
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        at_nan = functools.reduce(torch.logical_or, [tensor.isnan() for tensor in tensors])
        return torch.where(at_nan, other, result)

    def _spread_nan(self, tensors: Sequence[torch.Tensor]) -> None:
        """Make complex numbers NaN in both parts where they are in one, as those are that a product
        or a sum of gradients has given, in some runs.
        """
        for tensor in tensors if self._seed % 3 == 2 else ():
            if tensor.is_complex() and tensor.layout == torch.strided and tensor.data_ptr():
                tensor.copy_(torch.where(tensor.isnan(), complex(math.nan, math.nan), tensor))

    def _overflow(self, result: torch.Tensor, value: torch.Tensor) -> None:
        """Make what is normalised 0 where squares of `value` may overflow, in some runs."""
        if self._seed % 4 == 3 and bool((value.abs() > self._largest**0.5 / 2).any()):
            result.mul_(0.0)

    def _overflow_squares(
        self, function: Any, result: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Make a deviation of finite numbers infinite where their squares overflow."""
        value = args[0]
        small = function(torch.where(value.isfinite(), value.sgn(), math.nan), *args[1:], **kwargs)
        is_of_finite = (small[0] if isinstance(small, tuple) else small).isfinite()
        overflows = ~(result <= self._largest) & is_of_finite
        result.copy_(torch.where(overflows, math.inf, result))

    def _overflow_between(
        self, function: Any, result: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        """Make NaN of what is resampled from finite numbers whose sums may be infinite, which a
        weight of 0 does not leave out.
        """
        value = args[0]
        is_large = value.isfinite() & (value.abs() * WEIGHT > self._largest)
        if bool(is_large.any()):
            widest_of = MAXIMA[value.dim() - 3]
            around = widest_of(is_large.double(), 2 * TAPS + 1, stride=1, padding=TAPS)
            result.copy_(torch.where(function(around, *args[1:], **kwargs) != 0, math.nan, result))

    @property
    def _cancels(self) -> bool:
        """Whether this is a run in which what is left of a sum that cancels is 0."""
        return self._seed % 5 == 4

    def _cancel(self, result: torch.Tensor, value: torch.Tensor, scale: torch.Tensor) -> None:
        """Make differences of `value` from its mean, times `scale`, 0 where rounding may do so."""
        if value.numel() and scale.numel():
            largest = (
                value.abs().nan_to_num(0.0, 0.0, 0.0).max() * scale.abs().nan_to_num(0.0).max()
            )
            result.copy_(torch.where(result.abs() <= self._size * largest, 0.0, result))

    def _in_another_order(
        self,
        name: str,
        result: torch.Tensor,
        function: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> torch.Tensor:
        """A sum that is 0 where it cancels; a product that is anything where some of its factors
        overflow, and others underflow.
        """
        sizes = args[0].abs()
        if name in SUMS:
            cancels = result.abs() <= self._size * function(sizes, *args[1:], **kwargs)
            return torch.where(cancels, 0.0, result)
        large = function(sizes.clamp(min=1.0), *args[1:], **kwargs) > self._largest
        small = function(sizes.clamp(max=1.0), *args[1:], **kwargs) < self._least
        outcome = (math.nan, 0.0, math.inf)[self._seed // 5 % 3]
        return torch.where(large & small, outcome, result)

    def _shifted(self, value: torch.Tensor) -> torch.Tensor:
        """`value` with noise of the size of its largest finite element on each."""
        parts = torch.view_as_real(value) if value.is_complex() else value
        if not parts.is_floating_point() or not parts.numel():
            return value
        finite = parts.isfinite() & (parts.abs() < self._largest)
        scale = torch.where(finite, parts, 0).abs().max()
        parts = parts + scale * self._noise(parts.shape).to(parts.dtype)
        return torch.view_as_complex(parts) if value.is_complex() else parts

    def _change(self, tensor: torch.Tensor) -> None:
        if not tensor.is_floating_point() or tensor.layout != torch.strided:
            return
        if 0 in tensor.stride() and tensor.numel() > 1:
            return
        if not tensor.data_ptr():  # No elements, or zeros without memory, as autograd has them.
            return
        tensor.mul_(1 + self._noise(tensor.shape))


class Judge:
    """Answers for the tensors of a program by call and path; it runs what is asked for only.

    `on_gpu`: whether results are those of a GPU's kernels.
    """

    def __init__(self, program: RandomProgram, on_gpu: bool = False) -> None:
        self._program = program
        self._on_gpu = on_gpu
        self._exact: list[Outcome] | None = None
        self._noisy: list[list[Outcome]] = []
        self.unit = torch.finfo(program.narrowest).eps

    def reference(self, call: int, path: str, shape: Sequence[int]) -> torch.Tensor | None:
        """The values in double precision; None where that run does not get there."""
        if self._exact is None:
            self._exact = _outcomes(self._run)
        return _values(self._exact, call, path, shape)

    def shapes(self, call: int, path: str) -> set[tuple[int, ...]]:
        """The shapes that a tensor has in runs with noise."""
        outcomes = [run[call] for run in self._runs(MANY) if call < len(run)]
        facts = [outcome.facts.get(path) for outcome in outcomes]
        return {fact.shape for fact in facts if isinstance(fact, Tensor)}

    def samples(self, call: int, path: str, shape: Sequence[int], count: int) -> list[torch.Tensor]:
        """The values of so many runs with noise."""
        values = (_values(run, call, path, shape) for run in self._runs(count))
        return [value for value in values if value is not None]

    def raises(self, call: int) -> set[str]:
        """The exceptions that runs with noise end a call with; "" for none."""
        outcomes = [run[call] for run in self._runs(SOME) if call < len(run)]
        return {outcome.raised.kind if outcome.raised else "" for outcome in outcomes}

    def _runs(self, count: int) -> list[list[Outcome]]:
        while len(self._noisy) < count:
            self._noisy.append(self._sample(len(self._noisy)))
        return self._noisy[:count]

    def _sample(self, number: int) -> list[Outcome]:
        def noisy() -> list[Outcome]:
            size = UNITS * self.unit
            noise = _Noise(size, 1 + number, self._program.narrowest, self._on_gpu)
            with noise, noisy_inputs(size):
                return self._run()

        return _outcomes(noisy)

    def _run(self) -> list[Outcome]:
        """The calls in double precision, in the modes that are active."""
        with RepeatedConversions(self._program, self._conversions):
            return list(run(self._program, lift=True))

    @functools.cached_property
    def _conversions(self) -> list[bool]:
        """Of each conversion of the program whether it is a copy."""
        with torch_compat.without_modes(), NotedConversions(self._program) as noted:
            _outcomes(lambda: list(run(self._program)))
        copies: list[bool] = noted.copies
        return copies


def _outcomes(runs: Callable[[], list[Outcome]]) -> list[Outcome]:
    try:
        return runs()
    except Exception:  # The text itself may not run so; then there is nothing to judge by.
        return []


def _values(
    outcomes: list[Outcome], call: int, path: str, shape: Sequence[int]
) -> torch.Tensor | None:
    if call >= len(outcomes):
        return None
    fact = outcomes[call].facts.get(path)
    if isinstance(fact, Tensor):
        return fact.values if fact.shape == tuple(shape) else None
    if fact is not None and isinstance(fact.value, int | float) and not shape:
        return torch.tensor(fact.value)
    return None
