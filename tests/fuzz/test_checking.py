"""What the fuzzer finds: a compiler with a known fault, and the class that its finding has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright import torch_compat
from fusewright.fuzz import loops
from fusewright.fuzz.campaign import generate
from fusewright.fuzz.checking import check, signature
from fusewright.fuzz.comparison import CLASSES, Finding, compare
from fusewright.fuzz.execution import Outcome, Raised, run
from fusewright.fuzz.judge import Judge
from fusewright.fuzz.observation import Observer, error_text
from fusewright.fuzz.program import ENDING, RandomProgram
from fusewright.runtime.guard_pages import MemoryFault

HEADER = """\
import torch
from torch.nn import functional as F

from fusewright.fuzz import fill, show

MODE = "{mode}"
LOG = []
STATE = ("LOG",)


def make():
    x0 = fill(7, (4, 3), torch.float32{grad})
    return [x0]


def f(x0):
"""

Fault = Callable[..., Any]


def program(body: str, mode: str = "plain") -> RandomProgram:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    header = HEADER.format(mode=mode, grad=", grad=True" if mode == "grad" else "")
    return RandomProgram("tensors", 3, header + lines + ENDING)


def found(source: RandomProgram, fault: Fault) -> set[str]:
    """The classes of what is found with a compiler that calls `fault(function, *arguments)`."""

    def transform(function: Any, dynamic: Any) -> Any:
        return lambda *arguments: fault(function, *arguments)

    verdict = check(source, transform)
    assert verdict.outcome == ("found" if verdict.findings else "right")
    return {finding.kind for finding in verdict.findings}


def touches_what_it_must_not(function: Any, x: torch.Tensor) -> Any:
    raise MemoryFault("beside a buffer")


def raises(function: Any, x: torch.Tensor) -> Any:
    raise RuntimeError("of the compiler")


FAULTS: dict[str, tuple[str, Fault, str]] = {
    "another value": ("return (x0 * 2,)", lambda f, x: (f(x)[0] + 1e-3,), "wrong_value"),
    "one value of many": (
        "return (x0 * 2,)",
        lambda f, x: (f(x)[0].index_fill(0, torch.tensor([3]), 0),),
        "wrong_value",
    ),
    "another NaN": ("return (x0.exp(),)", lambda f, x: (f(x)[0] * torch.nan,), "wrong_value"),
    "another sign of zero": ("return (x0 * 0,)", lambda f, x: (f(x)[0].abs(),), "zero_sign"),
    "a bool": ("return (x0 > 0,)", lambda f, x: (~f(x)[0],), "wrong_value"),
    "a lost write": ("return (x0.add_(1),)", lambda f, x: f(x.clone()), "wrong_side_effect"),
    "a lost entry": (
        "LOG.append(x0.shape[0])\nreturn (x0,)",
        lambda f, x: (f(x), f.__globals__["LOG"].clear())[0],
        "wrong_side_effect",
    ),
    "a result copied": ("return (x0,)", lambda f, x: (x.clone(),), "alias"),
    "a view copied": ("return (x0[1:],)", lambda f, x: (f(x)[0].clone(),), "alias"),
    "another dtype": ("return (x0 * 2,)", lambda f, x: (f(x)[0].double(),), "wrong_meta"),
    "another shape": ("return (x0 * 2,)", lambda f, x: (f(x)[0][None],), "wrong_meta"),
    "other strides": ("return (x0 * 2,)", lambda f, x: (f(x)[0].t().contiguous().t(),), "strides"),
    "an exception": ("return (x0 * 2,)", raises, "extra_exception"),
    "a fault": ("return (x0 * 2,)", touches_what_it_must_not, "crash"),
    "no exception": ("return (x0[9],)", lambda f, x: (x[0],), "missing_exception"),
    "another exception": ("return (x0[9],)", raises, "other_exception"),
    "another message": (
        "raise RuntimeError('of the program')",
        raises,
        "message",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(name: str) -> None:
    body, fault, kind = FAULTS[name]
    assert kind in found(program(body), fault)


def test_gradients_are_compared() -> None:
    source = program("return (x0.sin(),)", "grad")
    assert found(source, lambda f, x: (f(x.detach())[0] + 0 * x,)) == {"wrong_value"}
    assert "wrong_meta" in found(source, lambda f, x: (f(x.detach())[0],))


def test_memory_beside_an_argument_is_compared() -> None:
    source = program("return (x0 + 1,)")
    sliced = source.with_source(
        source.source.replace("torch.float32", 'torch.float32, "normal", "sliced"')
    )

    def writes_beside(function: Any, x: torch.Tensor) -> Any:
        x.as_strided((1,), (1,), 1).fill_(7)
        return function(x)

    assert found(sliced, writes_beside) == {"wrong_side_effect"}


def test_rounding_is_no_finding() -> None:
    """A sum in another order, a difference that has no correct digit, a comparison that hangs on
    the last bit.
    """
    other_order = program("return (x0.exp().sum(), (x0 / 3 * 3 - x0) * 1e6)")
    assert (
        found(
            other_order,
            lambda f, x: (x.double().exp().sum().float(), (x / 3 - x / 3) * 1e6),
        )
        == set()
    )
    last_bit = program("return (x0 / 3 * 3 == x0,)")
    assert found(last_bit, lambda f, x: (x == x,)) == set()


def test_sums_are_judged_by_what_is_summed() -> None:
    """Large numbers that cancel, a maximum of zeros of both signs, a standard deviation whose
    squares overflow: none is a finding; of a sum without such numbers each digit counts.
    """
    large = "x0[0] = 3e38\nx0[1] = -3e38\n"
    cases: list[tuple[str, Fault]] = [
        (large + "return (x0.sum(0),)", lambda f, x: (f(x)[0] + 2,)),
        (large + "return (x0.std(),)", lambda f, x: (f(x)[0] * torch.inf,)),
        ("return ((x0 * 0).amax(0),)", lambda f, x: (-f(x)[0],)),
        (
            "x = torch.full((2, 3), 2**63 - 1)\nx[1] = -3 - x[0]\n"
            "return (x.sum(0, dtype=torch.float32),)",
            lambda f, x: (f(x)[0] + 3,),
        ),
    ]
    for body, fault in cases:
        assert found(program(body), fault) == set()
    assert found(program("return (x0.sum(0),)"), lambda f, x: (f(x)[0] + 1e-3,)) == {"wrong_value"}
    one_large = "x0[0, 0] = 3e38\nreturn (x0.sum(0),)"
    assert found(program(one_large), lambda f, x: (f(x)[0] / 2,)) == {"wrong_value"}


def test_a_gradient_at_the_end_of_a_domain_is_judged_by_many_runs() -> None:
    """The arccosine of a cosine of equal vectors has a gradient where each cosine rounds below 1.
    Of five copies, which a program rounds alike, noise does so in one run of 32.
    """
    copies = "v = (x0 * 0 + torch.tensor([0, 2.0, 0])).tile([5, 1, 1])\n"
    source = program(copies + "return (F.cosine_similarity(v, v, dim=2).acos(),)", "grad")
    assert found(source, lambda f, x: (f(x.detach())[0] + 0 * x.sum(),)) == set()


def test_operators_in_inference_mode_are_judged_by_what_they_are_made_of() -> None:
    """There `layer_norm` comes as itself: rows of equal numbers are 0 up to rounding."""
    rows = "x0.fill_(3)\nreturn (F.layer_norm(x0, (3,)),)"
    for mode in ("plain", "inference"):
        assert found(program(rows, mode), lambda f, x: (f(x)[0] + 1e-5,)) == set()
        assert found(program(rows, mode), lambda f, x: (f(x)[0] + 1,)) == {"wrong_value"}


def test_what_is_left_of_a_sum_that_cancels_may_be_nothing() -> None:
    """Whether the mean of equal numbers is that number, and numbers whose sum is tiny add up to 0,
    is a matter of their order: to ask so is no finding, to ask of what does not cancel is one.
    """
    equal = "x0.fill_(3.3)\nv = F.batch_norm(x0, None, None, training=True)\n"
    assert found(program(equal + "return (v.all(),)"), lambda f, x: (~f(x)[0],)) == set()
    tiny = "x0.fill_(1.1)\nx0[:2] = -1.1 - 1e-7\nreturn (x0.mean(0).count_nonzero(),)"
    assert found(program(tiny), lambda f, x: (f(x)[0] - 1,)) == set()
    plain = "x0.fill_(3)\nx0[1] = 4\nreturn (x0.mean(0).count_nonzero(),)"
    assert found(program(plain), lambda f, x: (f(x)[0] - 1,)) == {"wrong_value"}


def test_products_overflow_in_some_order() -> None:
    """Three of these factors overflow and the last is next to 0: their product may be anything,
    that of the first two may not.
    """
    far = program("x0.fill_(9e18)\nx0[3] = 1e-45\nreturn (x0.cumprod(0),)")

    def with_others(first: int, other: float) -> Fault:
        rows = torch.arange(4)[:, None] >= first
        return lambda f, x: (torch.where(rows, other, f(x)[0]),)

    for other in (torch.nan, torch.inf, 0.0):
        assert found(far, with_others(3, other)) == set()
        assert found(far, with_others(1, other)) == {"wrong_value"}


def test_logarithms_are_judged_by_what_they_are_added_to() -> None:
    """Where their sum is 0, nothing is left of the digits of either."""
    ones = "x0.fill_(-1)\nreturn (torch.logaddexp2(x0, x0),)"
    assert found(program(ones), lambda f, x: (f(x)[0] + 1e-7,)) == set()
    assert found(program(ones), lambda f, x: (f(x)[0] + 1e-5,)) == {"wrong_value"}


def test_rounding_stays_in_the_range_of_an_operator() -> None:
    """A loss that refuses numbers beyond 1 is judged all the same."""
    loss = "x0.fill_(40)\ns = x0.sigmoid()\nF.binary_cross_entropy(s, s)\nreturn (x0 / 3 - x0 / 3,)"
    assert found(program(loss), lambda f, x: (f(x)[0] + 1e-8,)) == set()


def test_numbers_of_few_digits_meet_poles() -> None:
    """A unit of rounding from -11.5, `mvlgamma` is infinite; 40 units away it is not."""
    for value, kinds in ((-11.4375, set()), (-11.25, {"wrong_value"})):
        body = f"return (torch.mvlgamma(torch.full((3,), {value}, dtype=torch.float32), 2),)"
        body = body if kinds else body.replace("float32", "bfloat16")
        assert found(program(body), lambda f, x: (f(x)[0] * 0 - torch.inf,)) == kinds


def test_operators_in_place_are_judged_as_others() -> None:
    """In another order nothing is left of 7 between two large numbers."""
    sums = program("x0[:, 0] = 1e9\nx0[:, 1] = 7\nx0[:, 2] = -1e9\nx0.cumsum_(1)\nreturn (x0 * 1,)")
    assert found(sums, lambda f, x: (f(x)[0] * torch.tensor([1.0, 1.0, 0.0]),)) == set()
    wrong = found(sums, lambda f, x: (f(x)[0] * torch.tensor([1.1, 1.0, 1.0]),))
    assert wrong == {"wrong_value"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_squares_of_variances_overflow_in_some_order(dtype: str) -> None:
    """Eager's variance in double precision is NaN then, and a compiled one may be infinite; not
    beside an infinity, and not where nothing overflows.
    """
    numbers = f"x = torch.tensor({{}}, dtype=torch.{dtype})\nreturn (x.var(0) >= 1,)"
    largest = torch.finfo(getattr(torch, dtype)).max
    large = program(numbers.format([largest, -largest, 1.0]))
    assert found(large, lambda f, x: (torch.ones_like(f(x)[0]),)) == set()
    assert found(large, lambda f, x: (torch.zeros_like(f(x)[0]),)) == set()
    plain = program(numbers.format([3.0, -3.0, 1.0]))
    assert found(plain, lambda f, x: (torch.zeros_like(f(x)[0]),)) == {"wrong_value"}
    infinite = program("x0[0] = torch.inf\nreturn (x0.var(0) >= 1,)")
    assert found(infinite, lambda f, x: (torch.ones_like(f(x)[0]),)) == {"wrong_value"}


def test_rounding_may_decide_how_many_elements_there_are() -> None:
    decided, plain = "x0[x0 / 3 * 3 == x0]", "x0[x0 > 0]"
    everything: Fault = lambda f, x: (x.flatten().clone(),)  # noqa: E731
    assert found(program(f"return ({decided},)"), everything) == set()
    assert found(program(f"return ({plain},)"), everything) == {"wrong_meta"}
    assert found(program(f"return ({decided},)"), lambda f, x: (x.clone(),)) == {"wrong_meta"}


@pytest.mark.parametrize("choice", ["sort(0)", "topk(3, 0)", "kthvalue(3, 0)", "mode(0)"])
def test_on_a_gpu_any_of_equal_elements_may_be_chosen(choice: str) -> None:
    """On a CPU it is the one that eager takes; of elements that differ there is none to choose."""

    def kinds(rows: str, mirrored: str, on_gpu: bool) -> set[str]:
        body = f"v = x0[torch.tensor([{rows}])]{{}}.{choice}\nreturn (v[0], {{}})"
        source, other = program(body.format("", "v[1]")), program(body.format(".flip(0)", mirrored))
        findings = compare(list(run(source)), list(run(other)), Judge(source, on_gpu))
        return {finding.kind for finding in findings}

    equal, different = "0, 1, 1, 1", "0, 1, 2, 3"
    assert kinds(equal, "3 - v[1]", on_gpu=True) == set()
    assert kinds(equal, "3 - v[1]", on_gpu=False) == {"wrong_value"}
    assert kinds(different, "3 - v[1]", on_gpu=True) == set()
    assert kinds(different, "v[1] * 1", on_gpu=True) == {"wrong_value"}


CUBES = (
    "x = torch.zeros(1, 1, 9, 9)\nx[..., 4, 4] = {size}\nx[..., 4, 5] = {size}\n"
    "return (F.interpolate(x, size=(17, 9), mode='bicubic') + x[0, 0, 0, 0],)"
)


def test_resampling_overflows_in_some_order() -> None:
    """Around numbers whose sum is infinite anything but a number may come out, and no other number;
    elsewhere, and of numbers that do not overflow, each digit counts.
    """

    def at(place: tuple[int, int], value: float) -> Fault:
        return lambda f, x: (
            f(x)[0].index_put(tuple(map(torch.tensor, (0, 0, *place))), torch.tensor(value)),
        )

    large, small = program(CUBES.format(size=3e38)), program(CUBES.format(size=3e37))
    assert found(large, at((8, 4), math.nan)) == set()
    assert found(large, at((8, 0), math.nan)) == {"wrong_value"}
    assert found(large, at((8, 4), 1e38)) == {"wrong_value"}
    assert found(small, at((8, 4), math.nan)) == {"wrong_value"}


def test_a_gradient_that_is_0_may_be_divided_by_0() -> None:
    """Eager passes the zeros of `sgn` on undivided; zeros that are computed are NaN behind it."""
    body = "return (torch.sgn(x0 / {}), x0 * 1)"

    fault: Fault = lambda f, x: (f(x)[0].detach() + (x * 0).sqrt(), x * 1)  # noqa: E731
    assert found(program(body.format(0), "grad"), fault) == set()
    assert found(program(body.format(2), "grad"), fault) == {"wrong_value"}


@pytest.mark.parametrize("conversion", ["x.half()", "x.to(torch.float16)", "x.bfloat16()"])
def test_conversions_are_copies_in_double_precision(conversion: str) -> None:
    """Else a write to the copy would be one to a leaf, or to what it was made of, and what is right
    would not be known.
    """
    body = f"x = x0 * 1\nv = {conversion}\nv.mul_(3)\nreturn (v, x * 2)"
    source = program(body)
    assert found(source, lambda f, x: (f(x)[0], x * 30)) == {"wrong_value"}
    in_place = program(f"v = {conversion.replace('x.', 'x0.')}\nv.sigmoid_()\nreturn (v,)", "grad")
    dtype = "bfloat16" if "b" in conversion else "float16"
    rounded: Fault = lambda f, x: (x.sigmoid().to(getattr(torch, dtype)),)  # noqa: E731
    assert found(in_place, rounded) == set()
    other: Fault = lambda f, x: ((-x.sigmoid()).to(getattr(torch, dtype)),)  # noqa: E731
    assert found(in_place, other) == {"wrong_value"}


def test_parts_of_complex_numbers_are_judged_one_by_one() -> None:
    """A part that is not a number in both excuses nothing, and accuses of nothing."""
    parts = "return (torch.complex(x0 / 3 * 3 - x0, x0 * torch.nan),)"
    assert found(program(parts), lambda f, x: (torch.complex(x - x, x * torch.nan),)) == set()
    wrong = found(program(parts), lambda f, x: (torch.complex(x - x + 1, x * torch.nan),))
    assert wrong == {"wrong_value"}


def test_a_sum_of_gradients_may_be_nan_in_both_parts_of_a_complex_number() -> None:
    """A number that is added has been multiplied by 1. Without NaN there is none to spread."""
    body = (
        "x = torch.complex(x0, x0)\nv = x.to(torch.bfloat16) * {}\nreturn (v.to(torch.complex64),)"
    )
    for factor, kinds in (("torch.nan", set()), ("1", {"wrong_value"})):
        both: Fault = lambda f, x: (f(x)[0] * complex(0, torch.inf),)  # noqa: E731
        assert found(program(body.format(factor)), both) == kinds


def test_right_programs_have_no_findings() -> None:
    assert check(program("y = x0.sin()\nx0.add_(1)\nreturn (y, x0[1:], x0)")).outcome == "right"
    assert check(program("return (x0[9],)")).outcome == "same exception"
    assert check(program("return (undefined_name,)").with_source("raise ValueError")).outcome == (
        "discarded"
    )


def test_loop_programs_have_a_check_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source = generate("loops", 1)
    assert check(source).outcome == "right"
    for wrong, kind in (
        ("auto: b1: 1 of 5, at (2,) 3.0, not 4.0", "wrong_value"),
        ("auto: ValueError: no", "extra_exception"),
        ("auto: MemoryFault: beside", "crash"),
    ):
        monkeypatch.setattr(loops, "check", lambda program, seed, text=wrong: text)
        assert check(source).worst.kind == kind


def test_messages_about_what_backward_needs_agree_but_for_who_saved_it() -> None:
    start = "one of the variables needed for gradient computation has been modified by an inplace"
    eager = f"{start} operation: [torch.FloatTensor [3]], which is output 0 of AsStrided, is at"
    compiled = f"{start} operation: [torch.FloatTensor [1, 3]] is at"
    assert error_text(RuntimeError(eager)) == error_text(RuntimeError(compiled))
    other = compiled.replace("Float", "Double")
    assert error_text(RuntimeError(other)) != error_text(RuntimeError(compiled))


def test_signatures_name_the_operator() -> None:
    source = program("v0 = torch.sin(x0)\nv1 = v0.cumsum(0)\nreturn (v0, v1,)")
    told = [
        signature(source, Finding("wrong_value", 0, f"result[{number}]", "")) for number in (0, 1)
    ]
    assert told == ["wrong_value: result sin", "wrong_value: result cumsum"]
    assert set(CLASSES) >= {kind for _, _, kind in FAULTS.values()}


def test_gradients_may_be_parts_of_one_tensor() -> None:
    """Autograd gives the gradients of `stack` as parts of one; that they overlap would be found."""

    def outcome(gradients: tuple[torch.Tensor, torch.Tensor]) -> list[Any]:
        observer = Observer()
        for number, gradient in enumerate(gradients):
            observer.add_gradient(f"gradient {number}", gradient)
        return [(fact.memory, fact.offset) for fact in observer.facts.values()]  # type: ignore[union-attr]

    whole = torch.ones(4)
    apart = outcome((torch.ones(2), torch.ones(2)))
    assert outcome((whole[:2], whole[2:])) == apart
    assert outcome((whole[:2], whole[1:3])) != apart
    assert outcome((whole[:2], whole[:2])) != apart


@pytest.mark.parametrize("is_told", [True, False])
def test_what_eager_alone_saves_is_looked_at_where_torch_tells_it(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_compat.autograd, "UNPACKS_ONE_BY_ONE", is_told)
    text = "a tensor was modified by an inplace operation{}"
    first, second = (Raised("backward", "RuntimeError", text.format(end), "") for end in ("", "!"))
    assert exceptions(first, None) == (["missing_exception"] if is_told else [])
    assert exceptions(first, second) == (["message"] if is_told else [])
    other = Raised("backward", "RuntimeError", "of another kind", "")
    assert exceptions(other, None) == ["missing_exception"]
    assert exceptions(other, second) == ["message"]


def exceptions(eager: Raised | None, compiled: Raised | None) -> list[str]:
    """The classes of what differs between two calls that end so."""
    outcomes = ([Outcome(raised, {})] for raised in (eager, compiled))
    return [finding.kind for finding in compare(*outcomes, Judge(program("return (x0,)")))]


def test_a_gpu_may_lack_a_kernel_for_what_is_compiled() -> None:
    for text, kinds in (
        ("\"angle_cuda\" not implemented for 'Half'", []),
        ("\"angle_cuda\" not implemented for 'Half', and more", ["missing_exception"]),
        ("\"angle_cpu\" not implemented for 'Half'", ["missing_exception"]),
    ):
        raised = Raised("call", "NotImplementedError", text, "")
        assert exceptions(raised, None) == kinds
        assert exceptions(None, raised) == ["extra_exception"]
