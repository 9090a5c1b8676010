"""Compares what can be seen of two runs, eager's and the compiled one's, and names differences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import torch

from fusewright import torch_compat
from fusewright.fuzz.execution import Outcome, Raised
from fusewright.fuzz.judge import MANY, MOST, SOME, Judge
from fusewright.fuzz.observation import Fact, PlainObservation, Tensor
from fusewright.records import record
from fusewright.runtime.guard_pages import MemoryFault

OVERWRITTEN: Final = "modified by an inplace operation"
_MISSING_KERNEL: Final = re.compile(r'^"\w+_cuda" not implemented for \'\w+\'$')

CLASSES: Final = {
    "crash": "the process ended by a signal, or a kernel touched what it must not",
    "hang": "no answer within the time limit",
    "wrong_value": "a result or a gradient has other values",
    "wrong_side_effect": "an argument, a global or an object is left otherwise",
    "extra_exception": "only the compiled program raises",
    "missing_exception": "only eager raises",
    "other_exception": "both raise, exceptions of different types, or one only in backward",
    "alias": "other results are the same object, or share memory",
    "wrong_meta": "a tensor has another dtype, shape, requires_grad or device",
    "strides": "a tensor has other strides",
    "zero_sign": "a zero has the other sign",
    "message": "both raise, with different messages",
    "fallback": "the compiler says that something runs eagerly",
}
"""Classes of findings, gravest first."""


@record
class Finding:
    """One difference."""

    kind: str
    """A key of `CLASSES`."""

    call: int
    path: str
    """The place of the difference, such as `result[0]`."""

    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: call {self.call + 1}, {self.path}: {self.detail}"


def compare(eager: list[Outcome], compiled: list[Outcome], judge: Judge) -> Iterator[Finding]:
    """Differences between the calls of two runs, in order of their paths."""
    for call, (expected, actual) in enumerate(zip(eager, compiled, strict=True)):
        yield from _compare_exceptions(call, expected.raised, actual.raised, judge)
        phases = [outcome.raised and outcome.raised.phase for outcome in (expected, actual)]
        if phases[0] == phases[1]:
            yield from _compare_facts(call, expected, actual, judge)


def _compare_exceptions(
    call: int, expected: Raised | None, actual: Raised | None, judge: Judge
) -> Iterator[Finding]:
    if expected is None and actual is None:
        return
    if expected is None or actual is None:
        kind = "missing_exception" if actual is None else "extra_exception"
        if actual is not None and actual.kind == MemoryFault.__name__:
            yield Finding("crash", call, "exception", str(actual))
        elif _is_of_eagers_saves(expected) or _is_of_a_missing_kernel(expected):
            return
        elif len(judge.raises(call)) < 2:
            yield Finding(kind, call, "exception", str(expected or actual))
    elif (expected.kind, expected.phase) != (actual.kind, actual.phase):
        yield Finding("other_exception", call, "exception", f"eager {expected}, compiled {actual}")
    elif expected.message != actual.message and not _is_of_eagers_saves(expected):
        yield Finding("message", call, "exception", f"eager {expected}, compiled {actual}")


def _is_of_eagers_saves(raised: Raised | None) -> bool:
    """Whether eager's backward misses what it alone has saved, which compiled code does not look at
    with a torch that does not tell what that is: it may miss something else, or nothing.
    """
    is_told = torch_compat.autograd.UNPACKS_ONE_BY_ONE
    return raised is not None and not is_told and OVERWRITTEN in raised.message


def _is_of_a_missing_kernel(raised: Raised | None) -> bool:
    """Whether eager has no kernel on a GPU for a type, of which compiled code computes the same."""
    return raised is not None and _MISSING_KERNEL.search(raised.message) is not None


def _compare_facts(
    call: int, expected: Outcome, actual: Outcome, judge: Judge
) -> Iterator[Finding]:
    paths = [path for path in expected.facts if path in actual.facts]
    if expected.raised:  # Which gradients are there by then hangs on the order of computing them.
        paths = [path for path in paths if not path.startswith("gradient")]
    for path in paths:
        yield from _compare_fact(call, path, expected.facts[path], actual.facts[path], judge)
    if not expected.raised and not len(paths) == len(expected.facts) == len(actual.facts):
        only = sorted(set(expected.facts) ^ set(actual.facts))
        by_length = [path for path in paths if _differ_in_length(expected, actual, path)]
        if not by_length:
            yield Finding(_effect(only[0]), call, only[0], "only one of the runs has it")


def _differ_in_length(expected: Outcome, actual: Outcome, path: str) -> bool:
    facts = expected.facts[path], actual.facts[path]
    return type(facts[0]) is not type(facts[1]) or facts[0] != facts[1]


def _effect(path: str) -> str:
    is_result = path.startswith(("result", "gradient"))
    return "wrong_value" if is_result else "wrong_side_effect"


def _compare_fact(
    call: int, path: str, expected: Fact, actual: Fact, judge: Judge
) -> Iterator[Finding]:
    if isinstance(expected, Tensor) and isinstance(actual, Tensor):
        yield from _compare_tensors(call, path, expected, actual, judge)
    elif isinstance(expected, PlainObservation) and isinstance(actual, PlainObservation):
        yield from _compare_plain(call, path, expected, actual, judge)
    else:
        kind = "wrong_meta" if path.startswith("gradient") else _effect(path)
        yield Finding(kind, call, path, f"eager {_short(expected)}, compiled {_short(actual)}")


def _compare_plain(
    call: int, path: str, expected: PlainObservation, actual: PlainObservation, judge: Judge
) -> Iterator[Finding]:
    if (expected.kind, expected.value) == (actual.kind, actual.value):
        if expected.identity != actual.identity:
            detail = f"eager object {expected.identity}, compiled object {actual.identity}"
            yield Finding("alias", call, path, detail)
        return
    if expected.kind == actual.kind == "float":
        values = torch.tensor([expected.value, actual.value], dtype=torch.float64)
        if _close(values[0], values[1], judge, call, path) is None:
            return
    if expected.kind == actual.kind == "int" and _scattered(expected, actual, judge, call, path):
        return
    detail = f"eager {_short(expected)}, compiled {_short(actual)}"
    yield Finding(_effect(path), call, path, detail)


def _scattered(
    expected: PlainObservation, actual: PlainObservation, judge: Judge, call: int, path: str
) -> bool:
    """Whether rounding may turn one integer into the other."""
    values = {int(sample) for sample in judge.samples(call, path, (), MANY)}
    return len(values) > 1 or (bool(values) and expected.value not in values)


def _short(fact: Fact) -> str:
    if isinstance(fact, Tensor):
        return f"a tensor of {fact.shape}, {fact.dtype}"
    text = f"{fact.value!r} ({fact.kind})"
    return text if len(text) < 200 else f"{text[:200]}…"


def _compare_tensors(
    call: int, path: str, expected: Tensor, actual: Tensor, judge: Judge
) -> Iterator[Finding]:
    meta = [
        (fact.dtype, fact.shape, fact.requires_grad, str(fact.device))
        for fact in (expected, actual)
    ]
    if expected.shape != actual.shape and _decided_by_rounding(expected, actual, judge, call, path):
        return
    if meta[0] != meta[1]:
        yield Finding("wrong_meta", call, path, f"eager {meta[0]}, compiled {meta[1]}")
    if meta[0][:2] != meta[1][:2]:
        return
    difference = _close(expected.values, actual.values, judge, call, path)
    if difference is not None:
        kind = "zero_sign" if bool((expected.values == actual.values).all()) else _effect(path)
        yield Finding(kind, call, path, f"{expected.dtype} {difference}")
    if _visible_strides(expected) != _visible_strides(actual):
        detail = f"eager {expected.strides}, compiled {actual.strides}, shape {expected.shape}"
        yield Finding("strides", call, path, detail)
    identities = [(fact.identity, fact.memory, fact.offset) for fact in (expected, actual)]
    if identities[0] != identities[1]:
        detail = f"(object, memory, offset): eager {identities[0]}, compiled {identities[1]}"
        yield Finding("alias", call, path, detail)


def _decided_by_rounding(
    expected: Tensor, actual: Tensor, judge: Judge, call: int, path: str
) -> bool:
    """Whether sizes that differ are numbers of elements that rounding decides about."""
    shapes = judge.shapes(call, path)
    same = (expected.dtype, expected.requires_grad) == (actual.dtype, actual.requires_grad)
    return same and _is_open(expected.shape, actual.shape, shapes)


def _is_open(
    expected: tuple[int, ...], actual: tuple[int, ...], shapes: set[tuple[int, ...]]
) -> bool:
    """Whether every size in which two shapes differ varies in `shapes`, or is another one there."""
    rank = len(expected)
    if len(actual) != rank or any(len(shape) != rank for shape in shapes):
        return False
    for dim in range(rank):
        sizes = {shape[dim] for shape in shapes}
        if expected[dim] != actual[dim] and sizes <= {expected[dim]}:
            return False
    return True


def _visible_strides(fact: Tensor) -> list[int]:
    if 0 in fact.shape:
        return []
    return [stride for size, stride in zip(fact.shape, fact.strides, strict=False) if size > 1]


def _close(
    expected: torch.Tensor, actual: torch.Tensor, judge: Judge, call: int, path: str
) -> str | None:
    """None where values agree, up to what rounding explains; else what differs."""
    suspects = ~_alike(expected, actual)
    if not suspects.any():
        return None
    reference = judge.reference(call, path, expected.shape)
    if reference is not None:
        for enough in (SOME, MANY, MOST):
            if suspects.any():
                samples = judge.samples(call, path, expected.shape, enough)
                suspects &= ~_excused(expected, actual, reference, samples, judge.unit)
    count = int(suspects.sum())
    if not count:
        return None
    index = tuple(suspects.nonzero()[0].tolist())
    detail = f"{count} of {expected.numel()} values, at {list(index)}: "
    detail += f"eager {expected[index].item()}, compiled {actual[index].item()}"
    return detail if reference is None else f"{detail}, in double {reference[index].item()}"


def _alike(expected: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
    """Where values are equal, in sign too, or differ by little more than one unit of rounding."""
    if expected.is_complex():
        return _alike(torch.view_as_real(expected), torch.view_as_real(actual)).all(-1)
    if not expected.is_floating_point():
        return expected == actual
    same = (expected == actual) & (expected.signbit() == actual.signbit())
    same |= expected.isnan() & actual.isnan()
    facts = torch.finfo(expected.dtype)
    left, right = expected.double(), actual.double()
    near = (left - right).abs() <= 4 * facts.eps * left.abs().clamp(max=facts.max / 8)
    zeros = (left == 0) & (right == 0)
    return same | (near & ~zeros & left.isfinite() & right.isfinite())


def _excused(
    expected: torch.Tensor,
    actual: torch.Tensor,
    reference: torch.Tensor,
    samples: list[torch.Tensor],
    unit: float,
) -> torch.Tensor:
    """Where rounding may turn eager's value into the compiled one."""
    if expected.is_complex():
        parts = [
            torch.view_as_real(tensor.to(torch.complex128))
            for tensor in (expected, actual, reference, *samples)
        ]
        alike = _alike(parts[0], parts[1])
        return (alike | _excused(parts[0], parts[1], parts[2], parts[3:], unit)).all(-1)
    if not expected.is_floating_point() or not reference.is_floating_point():
        scattered = reference != expected
        for sample in samples:
            scattered |= (sample != reference) | (sample != expected)
        return scattered
    facts = torch.finfo(expected.dtype)
    eager, compiled, exact = expected.double(), actual.double(), reference.double()
    rounded = reference.to(expected.dtype).double()
    pattern = _pattern(rounded)
    unsure = _pattern(eager) != pattern
    spread = torch.zeros_like(exact)
    either_zero = torch.zeros_like(unsure)
    for sample in samples:
        either_zero |= sample.signbit() != reference.signbit()
        unsure |= _pattern(sample.to(expected.dtype).double()) != pattern
        spread = torch.maximum(spread, (sample.double() - exact).abs().nan_to_num(0.0))
    limit = 16 * facts.eps * exact.abs() + 8 * (eager - exact).abs() + 16 * spread
    limit = limit + 8 * facts.smallest_normal * unit
    near = torch.minimum((compiled - exact).abs(), (compiled - eager).abs()) <= limit
    zeros = (eager == 0) & (compiled == 0) & (rounded == 0)
    signed = zeros & (rounded.signbit() == eager.signbit()) & (spread == 0) & ~either_zero
    # Whatever else may come out, a finite number is to be explained by those that are finite.
    unsure &= ~(eager.isfinite() & rounded.isfinite() & compiled.isfinite())
    return unsure | (near & (_pattern(compiled) == pattern) & ~signed)


def _pattern(values: torch.Tensor) -> torch.Tensor:
    """0 for finite values, 1 and -1 for infinite ones, 2 for NaN."""
    infinite = values.isinf() * values.sign().nan_to_num(0.0)
    return torch.where(values.isnan(), torch.full_like(values, 2.0), infinite)


def gravest(findings: list[Finding]) -> Finding:
    """The finding of the gravest class, and of these the first."""
    order = list(CLASSES)
    return min(findings, key=lambda finding: order.index(finding.kind))


__all__ = ["CLASSES", "Finding", "compare", "gravest"]
