"""What holds of every native plan: nothing is left behind, whatever fails and however often it
runs; threads share one; kernels of several languages, and conditions within conditions, are in it.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

import fusewright
from fusewright import generation
from fusewright.kernels import KernelLanguage, Languages, triton
from fusewright.native import CallPlan
from fusewright.records import field, record
from fusewright.runtime import native_plan
from fusewright.runtime.generated import tensor_kind, with_layout
from tests.leftovers import leaves_nothing, repeated
from tests.runtime.test_eager_kernels import load

Tensor = torch.Tensor

# -- programs --------------------------------------------------------------------------------------


def kernels_alone(x: Tensor, w: Tensor) -> Any:
    return torch.softmax(x, -1) * 2 + 1, (x.sum(0) + w.sum()).relu()


def products(x: Tensor, w: Tensor) -> Any:
    y = torch.relu(x @ w.t()) + 1
    return torch.softmax(y[1:] @ w, -1).t(), torch.addmm(w[0], x, torch.tanh(w[:6]))


def batches(x: Tensor, w: Tensor) -> Any:
    both = torch.stack([x, x + 1])
    return torch.bmm(both, both.transpose(1, 2)) + 1, torch.baddbmm(
        both, both, w[:6].expand(2, 6, 6)
    )


def library_calls(x: Tensor, w: Tensor) -> Any:
    """Of several results, some unused; of lists; of numbers; laid out otherwise than foretold."""
    values, order = (x + 1).sort(-1)
    together = torch.cat([values, w, x[:2]])
    return together + order.sum(), x.topk(2)[0] * 2, torch.linalg.qr(x * 2)[1] + 1, w[1:]


def attention(x: Tensor, w: Tensor) -> Any:
    """Library calls by the dispatcher, with and without what may be None."""
    x = x.double()  # Narrower ones are kernels.
    heads, mask = torch.stack([x, x + 1]).view(1, 2, *x.shape), x @ x.t()
    attend = functional.scaled_dot_product_attention
    return attend(heads, heads, heads * 2), attend(heads, heads, heads, mask, scale=0.5), w.cos()


def in_an_arena(x: Tensor, w: Tensor) -> Any:
    """Buffers of many sizes, for kernels and library calls; one is written to in place."""
    a = torch.softmax(x, -1)
    b = torch.softmax(a + torch.softmax(a.sum(0), -1), 0).sum(1)
    c = torch.sort(torch.softmax((a.double() @ w.double().t())[:, :3].contiguous(), 0))[0]
    d = torch.softmax(a, 0).index_put((torch.tensor([0, 2]),), w[:2, :6])
    return torch.softmax(c.sum(1) + b, 0), torch.cat([d, d.flip(0)]).t()


def data_dependent(x: Tensor, w: Tensor) -> Any:
    found = torch.nonzero(x > 0)
    return found * 2, w.sum(0)


def writes(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    x.copy_(x * 0 + x)
    w[1:].mul_(1)
    return y @ w.t()


def nested(x: Tensor, w: Tensor) -> Any:
    """A condition in a condition in a condition."""

    def inner(a: Tensor) -> Tensor:
        return torch.cond(a.amax() > 1, lambda a: a.sin() @ a.t(), lambda a: a.cos() @ a.t(), (a,))

    def outer(a: Tensor) -> Tensor:
        return torch.cond(a.sum() > 0, inner, lambda a: inner(-a) + 1, (a,))

    return outer(x) * 2, torch.cond(w.sum() > 0, inner, lambda a: a @ a.t() - 1, (w,))


PROGRAMS = (
    kernels_alone,
    products,
    batches,
    library_calls,
    attention,
    in_an_arena,
    data_dependent,
    writes,
    nested,
)


def arguments(rows: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 6, generator=generator), torch.randn(8, 6, generator=generator)


# -- the plans of a program ------------------------------------------------------------------------


@record(frozen=False)
class Recorded:
    """A plan: what it is made of, and what it was called with."""

    operations: Sequence[native_plan.Operation]
    others: tuple[Any, ...]
    plan: CallPlan
    inputs: list[Any] = field(default_factory=list)

    def __call__(self, *given: Any) -> Any:
        is_list = len(given) == 1 and isinstance(given[0], list)
        self.inputs = [*given[0]] if is_list else [*given]
        return self.plan(*given)

    def with_operations(self, operations: Sequence[native_plan.Operation]) -> CallPlan:
        """A plan of other operations."""
        return CallPlan(tuple(operations), *self.others)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """The plans that the test makes."""
    found: list[Recorded] = []

    def make(operations: Sequence[native_plan.Operation], *others: Any) -> Recorded:
        found.append(Recorded(operations, others, CallPlan(operations, *others)))
        return found[-1]

    monkeypatch.setattr(native_plan, "CallPlan", make)
    return found


def compiled(program: Callable[..., Any], dynamic: bool = False) -> Callable[..., Any]:
    options = {"strict": True, "target": "native", "verify": True}
    return fusewright.compile(program, fullgraph=True, dynamic=dynamic, options=options)


def check(function: Callable[..., Any], program: Callable[..., Any], rows: int = 6) -> None:
    """Compare a compiled program's results with eager's."""
    given, again = arguments(rows), arguments(rows)
    torch.testing.assert_close(function(*given), program(*again))
    torch.testing.assert_close(given, again)


# -- what is left behind ---------------------------------------------------------------------------


def references(plan: Recorded) -> Callable[[], tuple[int, ...]]:
    """Counts those to what the plan was given; small integers are everybody's."""
    given = [*plan.inputs, *plan.others[3], *plan.operations]
    items = [item for item in given if not isinstance(item, int)]
    return lambda: tuple([sys.getrefcount(item) for item in items])


class Injected(Exception):
    """What a test raises in a call."""


def fail() -> None:
    raise Injected


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_exception_at_any_operation_leaves_nothing_behind(
    program: Callable[..., Any], dynamic: bool, recorded: list[Recorded]
) -> None:
    check(compiled(program, dynamic), program)
    assert recorded
    for one in recorded:
        if not one.inputs:  # the side of a condition that was not taken
            continue
        constants = (*one.others[3], fail)
        one.others = (*one.others[:3], constants, *one.others[4:])
        failure = ("call", 1, (None, ~(len(constants) - 1), 0, None))
        plans = [
            one.with_operations((*one.operations[:place], failure, *one.operations[place:]))
            for place in range(len(one.operations) + 1)
        ]

        def call(plans: Sequence[CallPlan] = plans, inputs: Sequence[Any] = one.inputs) -> None:
            for plan in plans:
                with pytest.raises(Injected):
                    plan(*inputs)

        leaves_nothing(call, references(one))


def with_an_empty_slot(one: Recorded) -> Iterator[CallPlan]:
    """Plans in which one operand is a slot that holds nothing: they fail somewhere."""
    inputs, slots, numbers, *rest = one.others
    empty = max(slots, len(numbers))  # as a number it would be refused
    others = (inputs, empty + 1, numbers, *rest)
    for place, (name, line, operands) in enumerate(one.operations):
        for position in range(len(operands)):
            changed = (name, line, (*operands[:position], empty, *operands[position + 1 :]))
            operations = (*one.operations[:place], changed, *one.operations[place + 1 :])
            try:
                yield CallPlan(operations, *others)
            except ValueError:  # no slot belongs there
                continue


@pytest.mark.parametrize("program", PROGRAMS)
def test_operations_that_fail_leave_nothing_behind(
    program: Callable[..., Any], recorded: list[Recorded]
) -> None:
    check(compiled(program, True), program)
    for one in recorded:
        if not one.inputs:
            continue
        plans = list(with_an_empty_slot(one))
        failures = []

        def call(
            plans: Sequence[CallPlan] = plans,
            inputs: Sequence[Any] = one.inputs,
            failures: list[Exception] = failures,
        ) -> None:
            failures.clear()
            for plan in plans:
                try:
                    plan(*inputs)
                except Exception as error:
                    failures.append(error.with_traceback(None))

        leaves_nothing(call, references(one))
        assert len(failures) >= len(one.operations) / 3


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_many_calls_leave_nothing_behind(
    program: Callable[..., Any], dynamic: bool, recorded: list[Recorded]
) -> None:
    check(compiled(program, dynamic), program)
    one = recorded[-1]
    leaves_nothing(repeated(lambda: one.plan(*one.inputs)), references(one))


def test_a_result_laid_out_otherwise_is_copied_and_leaves_nothing() -> None:
    """Or refused, where it is of another size."""
    kind = tensor_kind(torch.float32, "cpu")
    operations = (("ensure layout", 1, (0, ~0, ~2, ~1, 2, 0, 1, 2, 3)), ("return", 2, (1, 0)))
    others = (1, 1, (3, 4, 1, 3), (with_layout, kind, "aten.any"), {}, "plan.py")
    one = Recorded(operations, others, CallPlan(operations, *others), [torch.randn(3, 4)])
    (found,) = one.plan(*one.inputs)
    assert found.stride() == (1, 3) and torch.equal(found, one.inputs[0])
    leaves_nothing(lambda: one.plan(*one.inputs), references(one))
    wrong = torch.randn(4, 4)

    def refuse() -> None:
        with pytest.raises(RuntimeError, match=r"aten\.any: returned"):
            one.plan(wrong)

    leaves_nothing(refuse, references(one))


ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def dispatching(kinds: str, *inputs: Any) -> Recorded:
    """A plan that calls attention by the dispatcher, with arguments of these kinds."""
    texts = (ATTENTION._schema.name, "", kinds)
    slots = range(len(inputs))
    call = (~0, ~1, ~2, ~3, len(inputs), *slots, ~4, 2, len(inputs), None)
    operations = (("dispatch", 1, call), ("return", 2, (1, len(inputs))))
    constants = (ATTENTION, *texts, ("attn_mask", "scale"))
    others = (len(inputs), len(inputs) + 1, (), constants, {}, "plan.py")
    return Recorded(operations, others, CallPlan(operations, *others), list(inputs))


@pytest.mark.parametrize(
    ("kinds", "mask", "scale"),
    [
        ("tttdbnn", None, None),
        ("tttdbTn", torch.ones(3, 3), None),
        ("tttdbTD", torch.ones(3, 3), 2),
    ],
)
def test_operators_are_called_by_the_dispatcher(kinds: str, mask: Any, scale: Any) -> None:
    """And by Python where a tensor is of a class of its own, or the dispatcher refuses."""
    x = torch.randn(1, 2, 3, 8)
    expected, _ = ATTENTION(x, x + 1, x * 2, 0.0, False, attn_mask=mask, scale=scale)
    one = dispatching(kinds, x, x + 1, x * 2, 0.0, False, mask, scale)
    (result,) = one.plan(*one.inputs)
    torch.testing.assert_close(result, expected)
    leaves_nothing(lambda: one.plan(*one.inputs), references(one))

    parameter = torch.nn.Parameter(x)
    with torch.no_grad():
        assert type(one.plan(parameter, *one.inputs[1:])[0]) is Tensor
    (result,) = one.plan(x.as_subclass(Marked), *one.inputs[1:])
    assert type(result) is Marked
    torch.testing.assert_close(result.as_subclass(Tensor), expected)

    def refused() -> None:
        with pytest.raises(RuntimeError) as error:
            one.plan(x, x.double(), *one.inputs[2:])
        with pytest.raises(RuntimeError) as eager:
            ATTENTION(x, x.double(), *one.inputs[2:5], attn_mask=mask, scale=scale)
        assert str(error.value) == str(eager.value)
        with pytest.raises(TypeError, match="must be real number"):
            one.plan(*one.inputs[:3], "a", *one.inputs[4:])

    leaves_nothing(refused, references(one))


class Marked(Tensor):
    """A class of tensors of its own."""


# -- threads, languages, targets -------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_threads_share_a_plan(program: Callable[..., Any]) -> None:
    function = compiled(program, True)
    check(function, program)
    start = threading.Barrier(16)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        start.wait()
        try:
            for turn in range(3):
                check(function, program, 6 + (number + turn) % 3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_a_plan_calls_itself(recorded: list[Recorded]) -> None:
    """From a function that it calls: the values of the calls stay apart."""
    check(compiled(products), products)
    (one,) = recorded
    expected = one.plan(*one.inputs)
    depth = itertools.count()
    found: list[Any] = []

    def inner() -> None:
        if next(depth) < 3:
            found.append(plan(*one.inputs))

    constants = (*one.others[3], inner)
    one.others = (*one.others[:3], constants, *one.others[4:])
    calls_itself = ("call", 1, (None, ~(len(constants) - 1), 0, None))
    half = len(one.operations) // 2
    plan = one.with_operations((*one.operations[:half], calls_itself, *one.operations[half:]))
    found.append(plan(*one.inputs))
    assert len(found) == 4
    for results in found:
        torch.testing.assert_close(results, expected)


OTHER = KernelLanguage(name="eager_kernels", write=triton.write_work, load=load)
"""Triton source, which torch's operators compute."""


class InTurn(Languages):
    """Kernels are written in two languages, in turn."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.turns = itertools.cycle((super().of("cpu"), OTHER))

    def of(self, device: str) -> KernelLanguage:
        return next(self.turns)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_module_of_two_languages(
    dynamic: bool, monkeypatch: pytest.MonkeyPatch, recorded: list[Recorded]
) -> None:
    monkeypatch.setattr(generation, "Languages", InTurn)

    def program(x: Tensor, w: Tensor) -> Any:
        y = torch.relu(x + 1) @ w.t()
        z = torch.exp(y - 1) @ w
        return torch.tanh(z * 2) @ w.t() + 3

    function = compiled(program, dynamic)
    check(function, program)
    (compilation,) = fusewright.api.compilations(function)
    kernels = compilation.compiled.record.kernels
    assert {kernel.language for kernel in kernels} == {"cpu", OTHER.name}
    assert len(recorded) == 1


def test_two_kernel_targets_in_one_process() -> None:
    """Each has code of its own, whichever came first."""
    sources = []
    for target in ("avx2", "scalar", "avx2"):
        options = {"strict": True, "target": "native", "kernel_target": target}
        function = fusewright.compile(kernels_alone, options=options)
        check(function, kernels_alone)
        (compilation,) = fusewright.api.compilations(function)
        assert isinstance(compilation.compiled.entry, CallPlan)
        sources.append([(one.name, one.source) for one in compilation.compiled.record.kernels])
    assert sources[0] == sources[2]
    assert not {*sources[0]} & {*sources[1]}
