"""Rules of resampling: images, rows and volumes made larger or smaller by their neighbours.

Each element of the result is a sum of the elements around its place in the input, by weights that
are a product of one for each dimension:

    upsample_linear1d(x, 2 n)[i]  ->  (1 - w) x[p] + w x[min(p + 1, n - 1)]
                                      where s = max(0, (i + 0.5) / 2 - 0.5), p = floor(s), w = s - p

A gradient is such a sum, too: over the few results around an element that read it, one dimension
after the other. Weights are computed where they are used, in the order in which eager computes
them, so that what is infinite spreads as far as there.

What smooths before it resamples, integers, and gradients of which a size or a ratio is not known
while compiling stay with eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from fusewright.ir.dtype import DType
from fusewright.ir.index import Index, contiguous_strides
from fusewright.ir.value import Constant, IndexValue, Value
from fusewright.lower.boxes import Box, Position
from fusewright.lower.builder import Call, Element
from fusewright.lower.rules import rule, words
from fusewright.lower.scalar import Scalar
from fusewright.records import record

MOST_READERS: Final = 18
"""The most results along one dimension that the gradient of an element is summed from."""

WHOLE: Final = 40
LONGEST_WHOLE: Final = 1 << 19
"""How many times an element may be repeated, and how many results there may be, so that the product
of a result's number and a ratio's reciprocal in single precision, which eager rounds down, lies in
the right element. It does not for 41.
"""

MOST_AT_ONCE: Final = {"side by side": 16, "apart": 1, "on a GPU": 36}
"""The most results along all dimensions that the gradient of an element is summed from in one step,
by where they lie.
"""

FEW_CHANNELS: Final = 8
"""Channels that are too few for a vector."""

LARGEST: Final = 1 << 22
"""Sizes of which every place is known well enough in single precision to find a gradient."""

ROWS_OF_A_TABLE: Final = 8
"""Rows from which on what is the same for all of them is computed once."""

CUBIC: Final = -0.75
"""The slope of the cubic weights, one element away."""


@record(kw_only=True, eq=False)
class Term:
    """One of the values along a dimension that a sum is made of."""

    base: Scalar
    """Where it lies, in a type of integers."""

    offset: int = 0
    """How far behind that."""

    weight: Scalar | None = None
    """What it is multiplied by; None: 1."""

    counts: Scalar | None = None
    """Whether it does; None: it does."""


Terms = Callable[[Index], Sequence[Term]]
"""The terms of the sum at a place along a dimension."""


@record(kw_only=True)
class Axis:
    """One dimension that is resampled: how the places of results lie among elements, which elements
    a result reads, and which results read an element.
    """

    call: Call
    dtype: DType
    """The type that places are computed in."""

    old: Index
    """How many elements there are."""

    new: Index
    """How many results there are."""

    factor: float | None
    """How many times as many results as elements, where the program says so: results then lie as
    far apart as that tells, whatever the sizes are.
    """

    aligned: bool = False
    """Whether the first and the last of the results lie on those of the elements."""

    @property
    def integers(self) -> DType:
        """The type of arithmetic on places: 32 bits where they are known to be enough."""
        sizes = (self.old, self.new)
        are_small = all(size.is_constant and int(size) < 1 << 24 for size in sizes)
        return DType.I32 if are_small else DType.I64

    @property
    def last(self) -> Index:
        """The last of the elements."""
        return self.old - 1

    # Places --------------------------------------------------------------------------------------

    @property
    def known_step(self) -> float | None:
        """How many elements lie between two results; None: not known while compiling."""
        if self.factor is not None and not self.aligned:
            return 1.0 / self.factor
        if not (self.old.is_constant and self.new.is_constant):
            return None
        old, new = int(self.old), int(self.new)
        if not self.aligned:
            return old / new
        return (old - 1) / (new - 1) if new > 1 else 0.0

    @property
    def step(self) -> Scalar:
        """How many elements lie between two results, as a value."""
        known, call = self.known_step, self.call
        if known is not None:
            return call.number(known, self.dtype)
        if not self.aligned:
            return call.index(self.old, self.dtype) / call.index(self.new, self.dtype)
        between = call.index(self.new - 1, self.dtype)
        return (between > 0).where(call.index(self.last, self.dtype) / between, 0)

    def place(self, result: Scalar) -> Scalar:
        """Where a result lies, in elements from the first one."""
        if self.aligned:
            return self.step * result
        return self.step.apply("fma", result + self.middle, -self.middle)

    @property
    def middle(self) -> float:
        """Where in an element its place is."""
        return 0.5

    def existing(self, element: Scalar) -> Scalar:
        """The nearest element that there is."""
        last = self.call.index(self.last, self.integers)
        return element.apply("maximum", 0).apply("minimum", last)

    # What the ways to resample differ in ---------------------------------------------------------

    def taps(self, result: Index) -> list[Term]:
        """The elements that a result is made of, in eager's order."""
        raise NotImplementedError

    def weight(self, result: Scalar, element: Scalar) -> tuple[Scalar, Scalar | None]:
        """Whether a result reads an element, and by which weight; None: it is the element."""
        raise NotImplementedError

    @property
    def reach(self) -> tuple[float, float]:
        """Where the results lie that read an element, from its place on: from the first of the two
        on, and before the second.
        """
        raise NotImplementedError

    @property
    def ratio(self) -> int | None:
        """How many results each element is, in order; None: it is not, or that is not known."""
        return None

    # Results that read an element ----------------------------------------------------------------

    @property
    def count(self) -> int | None:
        """The most results that read an element; None: not known while compiling, or many."""
        step = self.known_step
        if step is None or not (self.old.is_constant and self.new.is_constant):
            return None
        old, new = int(self.old), int(self.new)
        ends_inside = self.aligned or step * new <= old * (1 + 1e-6)
        if max(old, new) > LARGEST or not ends_inside:
            return None
        if self.ratio is not None:
            return self.ratio if self.ratio <= MOST_READERS else None
        most = new
        if step > 0:
            first, end = self.reach
            most = min(most, math.floor((end - first) / step + 2 * self._rounding) + 1)
        return most if most <= MOST_READERS else None

    @property
    def _rounding(self) -> float:
        """How far off a place may be by rounding, in results."""
        return 0.01 + max(int(self.old), int(self.new)) / (1 << 20)

    def readers(self, element: Index) -> list[Term]:
        """As many results as `count`, all that read an element among them."""
        count, step, call = self.count, self.known_step, self.call
        assert count is not None and step is not None
        if self.ratio is not None:
            return [Term(base=call.index(element * self.ratio + k)) for k in range(self.ratio)]
        own, first = call.index(element, self.dtype), call.number(0, self.integers)
        if count < int(self.new):
            shift = 0.0 if self.aligned else self.middle
            offset = (self.reach[0] + shift) / step - shift - self._rounding
            first = (own * (1 / step) + offset).apply("ceil").cast(self.integers)
            first = first.apply("maximum", 0).apply("minimum", int(self.new) - count)
        terms = []
        for number in range(count):
            counts, weight = self.weight((first + number).cast(self.dtype), own)
            terms.append(Term(base=first, offset=number, weight=weight, counts=counts))
        return terms


class Nearest(Axis):
    """A dimension whose results are the elements that their middles lie in."""

    __slots__ = ()

    def taps(self, result: Index) -> list[Term]:
        if self.ratio is not None:
            return [Term(base=self.call.index(result // self.ratio))]
        nearest = self._nearest(self.call.index(result, self.dtype)).cast(self.integers)
        return [Term(base=self.existing(nearest))]

    def _nearest(self, result: Scalar) -> Scalar:
        last = self.call.index(self.last, self.dtype)
        return ((result + self.middle) * self.step).apply("floor").apply("minimum", last)

    def weight(self, result: Scalar, element: Scalar) -> tuple[Scalar, Scalar | None]:
        return self._nearest(result).apply("eq", element), None

    @property
    def reach(self) -> tuple[float, float]:
        return -self.middle, 1 - self.middle

    @property
    def ratio(self) -> int | None:
        if not (self.old.is_constant and self.new.is_constant):
            return None
        ratio, rest = divmod(int(self.new), int(self.old))
        is_whole = rest == 0 and self.factor in (None, ratio)
        return ratio if is_whole and ratio <= WHOLE and int(self.new) <= LONGEST_WHOLE else None


class Beginning(Nearest):
    """A dimension whose results are the elements that they begin in."""

    __slots__ = ()

    @property
    def middle(self) -> float:
        return 0.0


class Linear(Axis):
    """A dimension whose results lie on lines between two elements. Where there are as many results
    as elements each is one, whatever the factor is.
    """

    __slots__ = ()

    def taps(self, result: Index) -> list[Term]:
        place = self.place(self.call.index(result, self.dtype)).apply("maximum", 0)
        last = self.call.index(self.last, self.integers)
        first = place.cast(self.integers).apply("minimum", last)
        weight = (place - first.cast(self.dtype)).apply("maximum", 0).apply("minimum", 1)
        second = first + 1
        if not (self.old.is_constant and self.new.is_constant) or self.old == self.new:
            is_same = self.call.index(self.old).apply("eq", self.call.index(self.new))
            first = is_same.where(self.call.index(result, self.integers), first)
            second, weight = is_same.where(first, second), is_same.where(weight.like(0), weight)
        return [
            Term(base=self.existing(first), weight=1 - weight),
            Term(base=self.existing(second), weight=weight),
        ]

    def weight(self, result: Scalar, element: Scalar) -> tuple[Scalar, Scalar | None]:
        last = self.call.index(self.last, self.dtype)
        place = self.place(result).apply("maximum", 0).apply("minimum", last)
        distance = place - element
        behind = distance > -1 if self.old == self.new else distance >= -1
        return behind & (distance < 1), 1 - distance.apply("abs")

    @property
    def reach(self) -> tuple[float, float]:
        return -1.0, 1.0


class Cubic(Axis):
    """A dimension whose results lie on curves through two elements, whose slopes the next two
    give.
    """

    __slots__ = ()

    def taps(self, result: Index) -> list[Term]:
        base, weights = self._weights(self.call.index(result, self.dtype))
        first = base.cast(self.integers) - 1
        return [
            Term(base=self.existing(first + k), weight=weight) for k, weight in enumerate(weights)
        ]

    def _weights(self, result: Scalar) -> tuple[Scalar, list[Scalar]]:
        """The element before a result, as a number, and the weights of the four around it."""
        last = self.call.index(self.last, self.dtype)
        base = self.place(result).apply("floor").apply("minimum", last)
        behind = self.place(result) - base
        if self.aligned:
            behind = self.step.apply("fma", result, -base)
        behind = behind.apply("maximum", 0).apply("minimum", 1)
        before = 1 - behind
        return base, [_far(behind + 1), _near(behind), _near(before), _far(before + 1)]

    def weight(self, result: Scalar, element: Scalar) -> tuple[Scalar, Scalar | None]:
        base, weights = self._weights(result)
        last = self.call.index(self.last, self.dtype)
        reads, total = self.call.number(False, DType.BOOL), element.like(0)
        for k, weight in enumerate(weights):
            tap = (base + (k - 1)).apply("maximum", 0).apply("minimum", last)
            is_own = tap.apply("eq", element)
            reads, total = reads | is_own, total + is_own.where(weight, 0)
        return reads, total

    @property
    def reach(self) -> tuple[float, float]:
        return -2.0, 2.0


def _near(distance: Scalar) -> Scalar:
    """The cubic weight of an element up to one away."""
    slope = distance.apply("fma", CUBIC + 2, -(CUBIC + 3)) * distance
    return slope.apply("fma", distance, 1)


def _far(distance: Scalar) -> Scalar:
    """The cubic weight of an element one to two away."""
    weight = distance.apply("fma", CUBIC, -5 * CUBIC).apply("fma", distance, 8 * CUBIC)
    return weight.apply("fma", distance, -4 * CUBIC)


# Sums along dimensions ----------------------------------------------------------------------------


@record(kw_only=True)
class Step:
    """A sum along one dimension for each place of it."""

    dimension: int
    extent: Index
    """How many places there are."""

    terms: Terms


def summed(
    call: Call, x: Box, steps: Sequence[Step], *, apart: bool, onto_zeros: bool = False
) -> Box:
    """The result of a call: sums of `x` along one dimension after the other, rounded once. `apart`:
    each step is computed by itself, for all places. `onto_zeros`: eager adds the terms to zeros, so
    that a sum of -0.0 alone is 0.0.
    """
    call.realise_unless_free(x)
    dtype = call.result.dtype.compute
    for step in steps:
        size = (*x.size[: step.dimension], step.extent, *x.size[step.dimension + 1 :])
        terms = step.terms
        if runs_on_cpu(call) and _rows(call, size, step) >= ROWS_OF_A_TABLE:
            terms = _tabulated(call, step)
        element = _sum_along(call, x, step.dimension, terms)
        if onto_zeros and step is steps[-1]:
            element = _plus_zero(element)
        x = call.lazy(size, dtype, element, _like_the_result(call, size))
        if apart and step is not steps[-1]:
            call.builder.realise(x)
    return call.same(x, 0)


def _rows(call: Call, size: Sequence[Index], step: Step) -> int:
    """How many places of the other dimensions there are for one along the step's."""
    hint = call.builder.hint
    return math.prod(hint(extent) for d, extent in enumerate(size) if d != step.dimension)


def _sum_along(call: Call, x: Box, dimension: int, terms: Terms) -> Element:
    """The sum of elements of `x` along a dimension, by their weights."""
    indirect = call.builder.expressions.indirect

    def element(at: Position) -> Scalar:
        total: Scalar | None = None
        for term in terms(at[dimension]):
            place = term.base + term.offset if term.offset else term.base
            index = indirect(place.value, x.size[dimension], wrap=False, check=False)
            value = call.read(x, (*at[:dimension], index, *at[dimension + 1 :]))
            if term.counts is not None:
                value = term.counts.where(value, 0)
            if term.weight is None:
                total = value if total is None else total + value
            elif total is None:
                total = value * term.weight
            else:
                total = value.apply("fma", term.weight, total)
        assert total is not None
        return total

    return element


def _plus_zero(element: Element) -> Element:
    """`element` with 0.0 in place of -0.0, also where that is what a product rounds to."""
    return lambda at: element(at) + 0.0


def _tabulated(call: Call, step: Step) -> Terms:
    """The terms of a step, read from memory: what they are made of is computed once for all rows,
    before.
    """
    size = (step.extent,)
    (at,) = call.builder.position(size)
    tables: dict[Value, Box] = {}

    def table(part: Scalar | None) -> Box | None:
        """Where a part is, unless it is as good as a number."""
        if part is None or isinstance(part.value, IndexValue | Constant):
            return None
        if part.value not in tables:
            box = tables[part.value] = call.lazy(size, part.dtype, lambda at: part)
            call.builder.realise(box)
        return tables[part.value]

    rows = [(table(t.base), table(t.weight), table(t.counts)) for t in step.terms(at)]

    def terms(at: Index) -> list[Term]:
        def read(box: Box | None, part: Scalar) -> Scalar:
            return part if box is None else call.read(box, (at,), box.dtype)

        return [
            Term(
                base=read(base, term.base),
                offset=term.offset,
                weight=term.weight and read(weight, term.weight),
                counts=term.counts and read(counts, term.counts),
            )
            for (base, weight, counts), term in zip(rows, step.terms(at), strict=True)
        ]

    return terms


def _like_the_result(call: Call, size: tuple[Index, ...]) -> tuple[Index, ...]:
    """Strides of a tensor with channels last where those of the result are, else row-major."""
    if not _has_channels_last(call):
        return contiguous_strides(size)
    first, *others, last = contiguous_strides((size[0], *size[2:], size[1]))
    return (first, last, *others)


def _has_channels_last(call: Call) -> bool:
    return call.result.stride[1] == 1


def runs_on_cpu(call: Call) -> bool:
    """Whether a call is one on a CPU, for which sums along one dimension alone, and tables of what
    depends on one, save more than it costs to write them to memory.
    """
    return call.result.device == "cpu"


# Rules --------------------------------------------------------------------------------------------

METHODS: Final[dict[str, type[Axis]]] = {
    **dict.fromkeys([f"upsample_nearest{n}d" for n in (1, 2, 3)], Beginning),
    **dict.fromkeys([f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)], Nearest),
    **dict.fromkeys(words("upsample_linear1d upsample_bilinear2d upsample_trilinear3d"), Linear),
    "upsample_bicubic2d": Cubic,
}
"""How dimensions are resampled, by operator."""

COPIED_ON_GPUS: Final = frozenset(
    words(
        "upsample_nearest2d _upsample_nearest_exact2d "
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
    )
)
COPIED_ON_CPUS: Final = frozenset({"upsample_bicubic2d"})
"""Where there are as many results as elements, eager copies the gradients of these, -0.0 too, and
adds those of others to zeros.
"""


@rule(*(f"aten.{name}.default" for name in METHODS))
def resample(call: Call, x: Box, size: Any, *options: Any) -> Any:
    """Images, rows or volumes of other sizes. A CPU picks elements of a row one by one, and those
    of columns by whole vectors, so that it goes along columns first.
    """
    axes = _axes(call, call.operator, x.size, call.result.size, options)
    if axes is None:
        return NotImplemented
    is_by_rows = not _has_channels_last(call) or call.builder.hint(x.size[1]) < FEW_CHANNELS
    apart = runs_on_cpu(call) and not isinstance(axes[0], Nearest) and is_by_rows
    steps = [Step(dimension=d, extent=a.new, terms=a.taps) for d, a in enumerate(axes, 2)]
    return summed(call, x, steps, apart=apart)


@rule(*(f"aten.{name}_backward.default" for name in METHODS))
def resample_backward(call: Call, gradient: Box, size: Any, input_size: Any, *options: Any) -> Any:
    """The sum of what the results that read an element get, by their weights. Eager refuses it on a
    GPU where algorithms are to be deterministic.
    """
    if not runs_on_cpu(call) and torch.are_deterministic_algorithms_enabled():
        return NotImplemented
    operator = call.operator.replace("_backward", "")
    axes = _axes(call, operator, call.result.size, gradient.size, options)
    counts = [axis.count for axis in axes or ()]
    if axes is None or not call.result.dtype.is_float or None in counts:
        return NotImplemented
    copied = COPIED_ON_CPUS if runs_on_cpu(call) else COPIED_ON_GPUS
    if operator.split(".")[1] in copied and all(axis.old == axis.new for axis in axes):
        return summed(call, gradient, [], apart=False)
    steps = [Step(dimension=d, extent=a.old, terms=a.readers) for d, a in enumerate(axes, 2)]
    together = math.prod(count for count in counts if count is not None)
    where = "side by side" if all(axis.ratio is not None for axis in axes) else "apart"
    most = MOST_AT_ONCE[where if runs_on_cpu(call) else "on a GPU"]
    return summed(call, gradient, steps, apart=together > most, onto_zeros=True)


def _axes(
    call: Call,
    operator: str,
    elements: Sequence[Index],
    results: Sequence[Index],
    options: Sequence[Any],
) -> list[Axis] | None:
    """The dimensions that are resampled, from the sizes of input and result; None where eager is to
    do it.
    """
    method, dtype = METHODS[operator.split(".")[1]], call.result.dtype
    aligned, factors = False, options
    if not issubclass(method, Nearest):
        aligned, *factors = options
        if not dtype.is_float:
            return None
    factors = [*factors, *[None] * (len(elements) - 2 - len(factors))]
    if not all(factor is None or isinstance(factor, int | float) for factor in factors):
        return None
    axes: list[Axis] = []
    for old, new, factor in zip(elements[2:], results[2:], factors, strict=True):
        is_unused = factor is None or factor <= 0 or (method is Linear and old == new)
        axes.append(
            method(
                call=call,
                dtype=DType.F32 if issubclass(method, Nearest) else dtype.compute,
                old=old,
                new=new,
                factor=None if is_unused else float(factor),
                aligned=aligned,
            )
        )
    return None if method is Beginning and any(map(_is_rounded, axes)) else axes


def _is_rounded(axis: Axis) -> bool:
    """Whether there may be as many results as elements, or twice as many, without the factor being
    that: eager's kernels then differ in whether they take it for one or for two.
    """
    if axis.factor in (None, 1, 2):
        return False
    is_known = axis.old.is_constant and axis.new.is_constant
    return not is_known or axis.new in (axis.old, axis.old * 2)
