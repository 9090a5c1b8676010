"""What fakes refuse because eager's kernels do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

import fusewright
from fusewright.containers import mapped
from fusewright.errors import UnsupportedOperator
from fusewright.fake import FakeMode, refusals
from fusewright.fake_rules.trial import result_for_zeros
from tests.operators.samples import name_of


def run(function: Callable[..., Any], *args: Any, asks: bool = True, **kwargs: Any) -> Any:
    """The call on fakes of the tensors, by a mode that asks eager."""
    mode = FakeMode()
    mode.asks_eager = asks

    def fake(tensor: Any) -> Any:
        is_plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
        return mode.fake(tensor) if is_plain else tensor

    args, kwargs = mapped(fake, args), mapped(fake, kwargs)
    with mode:
        return mode.call(function, args, kwargs)


aten = torch.ops.aten

BOOL, LONG, HALF = (torch.ones(2, 3, dtype=t) for t in (torch.bool, torch.int64, torch.float16))
FLOAT, COMPLEX = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.complex64)

REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "subtraction of a truth value": (torch.sub, (FLOAT, True)),
    "subtraction in place": (torch.Tensor.sub_, (FLOAT, BOOL)),
    "reversed subtraction": (torch.rsub, (FLOAT, True)),
    "result that its target cannot hold": (torch.Tensor.mul_, (BOOL, 0.5)),
    "integers in place": (torch.Tensor.mul_, (BOOL, LONG)),
    "running sum": (torch.Tensor.cumsum_, (BOOL, 0)),
    "search": (torch.bucketize, (BOOL, BOOL[0])),
    "exponents": (torch.ldexp, (FLOAT, BOOL)),
    "distances": (torch.cdist, (FLOAT.bfloat16(), FLOAT.bfloat16())),
    "special function": (torch.special.log_ndtr, (FLOAT.bfloat16(),)),
    "activation of integers": (F.silu, (LONG,)),
    "option": (torch.ops.aten.gelu.default, (FLOAT,)),
    "least of nothing": (torch.min, (torch.empty(0, 3),)),
    "greatest of nothing": (torch.max, (torch.empty(0, dtype=torch.uint8),)),
    "factory": (torch.arange, (5,)),
    "number that a type has not": (torch.full_like, (LONG, 2.0**70)),
    "large tensors": (torch.ldexp, (torch.ones(90, 90), torch.ones(90, 90, dtype=torch.bool))),
    "complex order": (torch.sort, (COMPLEX,)),
    "mean of bool": (
        lambda x, i: x.scatter_reduce(0, i, x, "mean", include_self=False),
        (BOOL, torch.zeros(2, 3, dtype=torch.int64)),
    ),
}
KEYWORDS = {"option": {"approximate": "no such"}, "factory": {"dtype": torch.bool}}


@pytest.mark.parametrize("name", REFUSED)
def test_fakes_raise_what_eager_does(name: str) -> None:
    function, args = REFUSED[name]
    kwargs = KEYWORDS.get(name, {})
    with pytest.raises(Exception) as eager:
        function(*mapped(torch.clone, args), **kwargs)
    with pytest.raises(type(eager.value)) as caught:
        run(function, *args, **kwargs)
    assert str(caught.value) == str(eager.value)


def test_a_mode_that_does_not_ask_gives_what_meta_kernels_do() -> None:
    assert run(torch.ldexp, BOOL, BOOL, asks=False).shape == (2, 3)


def test_zeros_that_are_refused_for_their_value_are_no_refusal() -> None:
    assert run(torch.floor_divide, LONG.int(), LONG.int()).shape == (2, 3)
    assert run(torch.linalg.inv, COMPLEX[:, :2]).shape == (2, 2)
    assert run(torch.multinomial, FLOAT.double(), 2).shape == (2, 2)


def test_masks_that_choose_as_many_elements_as_there_are_values_are_no_refusal() -> None:
    mask = torch.tensor([True, False, True])
    run(torch.Tensor.index_put_, torch.ones(3, dtype=torch.float16), (mask.ne(0),), HALF[0, :2])
    rows = torch.ones(600, 20, dtype=torch.float16)
    run(torch.Tensor.index_put_, rows, (torch.arange(600) % 2 == 0,), rows[:300].clone())
    x = torch.ones(3, 4)
    run(torch.ops.aten._index_put_impl_.default, x, [mask], x[:2].clone())


def test_sizes_that_shrink_together_no_longer_are_no_refusal() -> None:
    x = torch.ones(100, 90, dtype=torch.float16)
    assert run(F.layer_norm, x, (90,)).shape == (100, 90)
    assert run(torch.topk, x, 50)[0].shape == (100, 50)


def test_kernels_that_trust_lengths_are_not_tried_on_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's gradient of this loss reads as far as the lengths say, whatever the tensors' sizes:
    tried on smaller ones, it could end the process.
    """
    tried: list[Any] = []
    monkeypatch.setattr(refusals.EagerTrial, "error", lambda trial: tried.append(trial.op))
    losses, logarithms = torch.ones(16), torch.ones(50, 16, 20)
    targets = torch.ones(16, 30, dtype=torch.int64)
    alpha = torch.ones(16, 50, 61)
    lengths = ([50] * 16, [30] * 16)
    backward = torch.ops.aten._ctc_loss_backward.default
    result = run(backward, losses, logarithms, targets, *lengths, losses, alpha, 0)
    assert result.shape == logarithms.shape and not tried


IMAGE, PLACE = torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64)
LENGTHS = ([1], [1])

TRUSTING: dict[Any, tuple[tuple[Any, ...], set[int]]] = {
    aten.linalg_ldl_solve.default: ((FLOAT[:, :2], LONG[0, :2].int(), FLOAT), {1}),
    aten.adaptive_max_pool2d_backward.default: ((IMAGE, IMAGE, PLACE), {0}),
    aten._ctc_loss.default: ((IMAGE[0], PLACE[0, 0], *LENGTHS), {0}),
    aten._ctc_loss_backward.default: (
        (IMAGE[0, 0, 0], IMAGE[0], PLACE[0, 0], *LENGTHS, IMAGE[0, 0, 0], FLOAT[None, :1], 0),
        {0},
    ),
}


@pytest.mark.parametrize("op", TRUSTING, ids=str)
def test_kernels_that_trust_integers_are_asked_with_those_that_lead_nowhere(
    op: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fills: list[int] = []

    def refuse(trial: Any, fill: int, types: Any) -> Exception:
        fills.append(fill)
        return RuntimeError("no")

    monkeypatch.setattr(refusals.EagerTrial, "error_for", refuse)
    args, expected = TRUSTING[op]
    fakes = mapped(FakeMode().fake, args)
    assert refusals.refusal(op, fakes, {}) is not None
    assert set(fills) == expected
    assert (result_for_zeros(op, fakes, {}) is None) == (0 not in expected)


def test_kernels_that_trust_integers_are_not_tried_on_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals.EagerTrial, "error", None)  # may not be called
    images = torch.ones(1, 1, 80, 80), torch.ones(1, 1, 80, 80), PLACE.expand(1, 1, 80, 80)
    run(aten.adaptive_max_pool2d_backward.default, *images)


def test_asking_draws_no_random_numbers() -> None:
    state = torch.get_rng_state()
    run(torch.bernoulli, HALF)
    run(torch.Tensor.normal_, HALF)
    assert torch.equal(torch.get_rng_state(), state)


def test_eager_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_TAKEN", set())
    run(torch.special.i0e, HALF)
    monkeypatch.setattr(refusals.EagerTrial, "error", None)  # may not be called any more
    run(torch.special.i0e, HALF)


def test_eager_is_not_asked_about_usual_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_TAKEN", set())
    monkeypatch.setattr(refusals.EagerTrial, "error", None)
    assert run(torch.matmul, FLOAT, FLOAT.T).shape == (2, 2)
    assert run(F.softmax, FLOAT + LONG, 1).shape == (2, 3)


SAMPLE = [info for number, info in enumerate(op_db) if number % 40 == 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.complex64])
def test_no_sample_that_eager_takes_is_refused(dtype: torch.dtype) -> None:
    refused = []
    for info in (info for info in SAMPLE if dtype in info.dtypes):
        for sample in itertools.islice(info.sample_inputs("cpu", dtype), 2):
            args = (sample.input, *sample.args)
            try:
                run(info.op, *args, asks=False, **sample.kwargs)
                info.op(*mapped(lambda x: x.detach().clone(), args), **sample.kwargs)
            except Exception:
                continue
            try:
                run(info.op, *args, **sample.kwargs)
            except Exception as error:
                refused.append((name_of(info), error))
    assert refused == []


OVERLAPPING: dict[str, Callable[[torch.Tensor], Any]] = {
    "a part that is read": lambda x: x[1:].add_(x[:-1]),
    "a part in a later operand": lambda x: x[1:].addcmul_(x[1:], x[:-1]),
    "all of it, scattered": lambda x: x.scatter_add_(0, torch.zeros(3, 4, dtype=torch.long), x),
    "its own places": lambda x: (lambda y: y.scatter_(0, y, 1))(x.long() * 0),
    "rows of itself": lambda x: x.index_put_((torch.zeros(3, dtype=torch.long),), x),
}


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.parametrize("columns", [4, 5000])
def test_memory_that_is_read_and_written(name: str, columns: int) -> None:
    """Eager refuses it on every device, whatever the types."""

    def program(x: torch.Tensor) -> torch.Tensor:
        OVERLAPPING[name](x)
        return x + 1

    x = torch.zeros(3, columns)
    with pytest.raises(RuntimeError, match="single memory location"):
        program(x)
    with pytest.raises(RuntimeError, match="single memory location"):
        fusewright.compile(program)(x)


@pytest.mark.parametrize(
    "program",
    [lambda x: x.add_(x), lambda x: x[1:].add_(x[:1]), lambda x: x[:, ::2].mul_(x[:, 1::2])],
)
def test_memory_that_may_be_read_and_written(program: Callable[[torch.Tensor], Any]) -> None:
    x, y = torch.ones(3, 4), torch.ones(3, 4)
    fusewright.compile(program, fullgraph=True)(x)
    program(y)
    assert torch.equal(x, y)


def on_gpu(operator: Any, args: tuple[Any, ...]) -> Any:
    """A call on fakes of a GPU's tensors, by a mode that asks eager."""
    mode = FakeMode()
    mode.asks_eager = True

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        size, stride = tensor.size(), tensor.stride()
        meta = torch.empty_strided(size, stride, dtype=tensor.dtype, device="meta")
        return mode.wrap(meta, torch.device("cuda", 0))

    return mode.dispatch(operator, mapped(fake, args), {})


ON_ANY_DEVICE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "two types": (aten.heaviside.default, (HALF, FLOAT)),
    "a source of another type": (aten.index_add.default, (HALF, 0, LONG[0, :2], FLOAT)),
    "greatest of nothing": (aten.max.dim, (HALF[:0], 0)),
    "bits of a float": (aten.bitwise_and.Tensor, (HALF, HALF)),
    "softmax of integers": (aten._softmax.default, (LONG.int(), 0, False)),
}


@pytest.mark.parametrize("name", ON_ANY_DEVICE)
def test_fakes_of_a_gpu_raise_what_kernels_of_any_device_do(name: str) -> None:
    operator, args = ON_ANY_DEVICE[name]
    with pytest.raises(Exception) as eager:
        operator(*args)
    with pytest.raises(type(eager.value)):
        on_gpu(operator, args)


ROWS = torch.ones(3).expand(4, 3)
SECOND, NONE = torch.tensor([1, 2]), torch.zeros(0, dtype=torch.int64)


@pytest.mark.filterwarnings("ignore:Use of index_put_ on expanded tensors")
def test_what_is_added_by_index_to_repeated_elements_is_refused_on_a_gpu_alone() -> None:
    """There it is added to a copy, which is copied back, unless there is nothing to add."""
    put = aten.index_put_.default
    with pytest.raises(RuntimeError, match="single memory location"):
        on_gpu(put, (ROWS, [SECOND], torch.ones(2, 3), True))
    with pytest.raises(UnsupportedOperator):
        on_gpu(put, (ROWS, [torch.ones(4, dtype=torch.bool)], torch.ones(4, 3), True))
    for args in (([SECOND], torch.ones(2, 3)), ([NONE], torch.ones(0, 3), True)):
        assert on_gpu(put, (ROWS, *args)).shape == ROWS.shape
    run(torch.Tensor.index_put_, ROWS, (SECOND,), torch.ones(2, 3), accumulate=True)


def test_what_is_put_in_order_into_repeated_elements_is_refused_on_a_gpu_alone() -> None:
    put = aten.index_put_.default
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="single memory location"):
            on_gpu(put, (ROWS, [SECOND], torch.ones(2, 3)))
        on_gpu(put, (ROWS, [SECOND], torch.ones(())))
    finally:
        torch.use_deterministic_algorithms(False)


CUBE = torch.ones(2, 2, 2, 2, dtype=torch.float16)

OF_THE_CPU: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pooling of halves": (aten.avg_pool3d.default, (CUBE, [1])),
    "a loss of halves": (aten.multi_margin_loss.default, (CUBE[0, 0], LONG[0, :2] * 0)),
    "counts of integers": (aten.histc.default, (LONG, 2)),
    "absolute truth": (aten.abs.default, (BOOL,)),
}


@pytest.mark.parametrize("name", OF_THE_CPU)
def test_what_kernels_for_the_cpu_lack_is_not_refused_on_a_gpu(name: str) -> None:
    operator, args = OF_THE_CPU[name]
    on_gpu(operator, args)
    with pytest.raises((NotImplementedError, RuntimeError)):
        run(operator, *args)
    on_gpu(operator, args)
