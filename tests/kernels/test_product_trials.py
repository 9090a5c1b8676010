"""Trials decide which matrix products are kernels, and which the library computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kernels.triton.interpreted import language as interpreted  # isort: skip - before triton

import pytest
import torch
from torch import Tensor

import fusewright
from fusewright.backends.torch_dynamo import kernel_backend
from fusewright.kernels import triton
from fusewright.records import replace
from fusewright.runtime import trials
from fusewright.runtime.trials import Alternative
from tests.kernels.alternatives import first_call, is_library_call

NAME = "triton_tuned"

fusewright.register_backend(
    kernel_backend(
        replace(
            interpreted,
            name=NAME,
            candidates=lambda *arguments: triton.candidates(*arguments)[:2],
            products=triton.PRODUCT_TYPES,
            product_forms=triton.PRODUCT_FORMS,
        )
    ),
    name=NAME,
)
"""A language whose rule leaves products to the library."""


class Planted:
    """A timer for which either library calls are fast or kernels that multiply, which take three
    tensors. It counts what it is asked.
    """

    def __init__(self, *, library_is_fast: bool) -> None:
        self.library_is_fast = library_is_fast
        self.calls = 0
        self.kernels = 0

    def __call__(self, alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
        for alternative in alternatives:
            alternative()
        first = first_call(alternatives[0])
        is_kernel = not is_library_call(first)
        self.kernels += is_kernel
        self.calls += not is_kernel
        tensors = sum(isinstance(value, Tensor) for value in first.args) if is_kernel else 3
        is_slow = is_kernel is self.library_is_fast and tensors >= 3
        return [8.0 if is_slow else 1.0] * len(alternatives)


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Planted]:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))

    def plant(library_is_fast: bool) -> Planted:
        planted = Planted(library_is_fast=library_is_fast)
        monkeypatch.setattr(trials, "TIMER", planted)
        return planted

    return plant


def layers(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
    y = torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))
    z = torch.nn.functional.gelu(torch.nn.functional.linear(y, v))
    return torch.nn.functional.linear(z, v.mT).softmax(-1)


def arguments() -> tuple[Tensor, ...]:
    return torch.randn(24, 32), torch.randn(48, 32), torch.randn(48), torch.randn(20, 48)


def tuned(backend: str = "fusewright", **keywords: Any) -> tuple[Any, Any]:
    """The functions, compiled and called; and the explanation."""
    options = {"strict": True, "verify": True, "tune": True}
    explained = fusewright.explain(layers, backend=backend, options=options, **keywords)
    inputs = arguments()
    explanation = explained(*inputs)
    torch.testing.assert_close(explanation.result, layers(*inputs), rtol=1e-4, atol=1e-5)
    (graph,) = explanation.graphs
    return graph, explanation.tuning


def test_products_are_kernels_where_these_are_fast(plant: Callable[[bool], Planted]) -> None:
    plant(False)
    graph, tuning = tuned()
    assert graph.library_calls == 0
    assert [trial.decision.winner for trial in tuning.trials[:3]] == [0, 0, 0]


def test_products_are_calls_where_the_library_is_fast(plant: Callable[[bool], Planted]) -> None:
    plant(True)
    graph, tuning = tuned()
    assert graph.library_calls == 3
    assert [trial.candidates for trial in tuning.trials[:3]] == [("kernels", "the library")] * 3
    assert [trial.decision.winner for trial in tuning.trials[:3]] == [1, 1, 1]


@pytest.mark.parametrize("library_is_fast", [False, True])
def test_inputs_of_several_sets(
    plant: Callable[[bool], Planted], library_is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where calls go through them in turn."""
    monkeypatch.setattr(trials, "cold_sets", lambda *_: 3)
    plant(library_is_fast)
    graph, _ = tuned()
    assert graph.library_calls == 3 * library_is_fast


def test_what_was_tried_is_not_tried_again(plant: Callable[[bool], Planted]) -> None:
    planted = plant(True)
    tuned()
    asked = planted.calls, planted.kernels
    assert asked[0] == 6  # Each twice, since it replaces the rule's answer.
    tuned()
    assert (planted.calls, planted.kernels) == asked


def test_what_was_tried_on_inputs_is_tried_anew_on_what_is_computed(
    plant: Callable[[bool], Planted],
) -> None:
    """Inputs lie in no cache when their product begins."""
    planted = plant(True)
    options = {"tune": True}
    x, w = torch.randn(24, 32), torch.randn(32, 48)
    fusewright.compile(lambda x, w: x @ w, options=options)(x, w)
    before = planted.calls
    fusewright.compile(lambda x, w: x @ w.cumsum(0), options=options)(x, w)
    assert planted.calls > before > 0


def test_the_library_is_tried_anew_where_it_may_round_factors(
    plant: Callable[[bool], Planted],
) -> None:
    planted = plant(True)
    tuned()
    assert planted.calls == 6
    matmul: Any = torch.backends.mkldnn.matmul
    matmul.fp32_precision = "tf32"
    try:
        tuned()
    finally:
        matmul.fp32_precision = "none"
    assert planted.calls == 12


def test_symbolic_sizes(plant: Callable[[bool], Planted]) -> None:
    plant(True)
    graph, _ = tuned(dynamic=True)
    assert graph.library_calls == 3


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("library_is_fast", [False, True])
def test_products_in_triton(plant: Callable[[bool], Planted], library_is_fast: bool) -> None:
    plant(library_is_fast)
    graph, tuning = tuned(NAME)
    assert graph.library_calls == (3 if library_is_fast else 0)
    assert {trial.candidates[:2] for trial in tuning.trials[:3]} == {("the library", "kernels")}


COMPUTES, ALONE = "kernels that compute their operands", "kernels of the product alone"


class ByTensors:
    """A timer for which a kernel takes as long as is said for so many tensors, and a library call
    ever so long.
    """

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
        for alternative in alternatives:
            alternative()
        first: Any = alternatives[0]
        if is_library_call(first):
            return [100.0]
        tensors = sum(isinstance(value, Tensor) for value in first.args)
        return [self.seconds[f"of_{tensors}"]] * len(alternatives)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_product_that_computes_its_operands(
    plant: Callable[[bool], Planted], monkeypatch: pytest.MonkeyPatch, dynamic: bool
) -> None:
    """The activation, and the heads put side by side, are in the product's kernel; the sums of rows
    are not, nor what the program returns, nor what is no matrix where it is computed.
    """

    def layer(x: Tensor, w: Tensor, rows: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        heads = torch.tanh(x).transpose(1, 2).reshape(-1, 32)
        scaled = rows * rows.square().mean(-1, keepdim=True).rsqrt()
        kept = rows + 1
        repeated = torch.tanh(w[:1]).expand(30, -1).contiguous()
        return (heads @ w) * 2, scaled @ v, kept @ v, kept, repeated @ w.mT

    monkeypatch.setattr(trials, "TIMER", ByTensors(of_2=1.0, of_3=1.0, of_4=0.5))
    inputs = [torch.randn(size) for size in ((3, 2, 10, 16), (32, 24), (30, 32), (32, 40))]
    options = {"strict": True, "verify": True, "tune": True}
    explained = fusewright.explain(layer, backend=NAME, options=options, dynamic=dynamic)
    explanation = explained(*inputs)
    torch.testing.assert_close(explanation.result, layer(*inputs), rtol=1e-4, atol=1e-5)
    trials_of_products = [t for t in explanation.tuning.trials if t.kind == "product"]
    winners = [trial.candidates[trial.decision.winner] for trial in trials_of_products]
    assert winners == [COMPUTES, COMPUTES, "kernels"]
    (graph,) = explanation.graphs
    assert graph.library_calls == 0
    # The product of heads; mean squares and `kept`; the product of scaled rows; that of `kept`;
    # `repeated`; its product.
    assert graph.launches == 6


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_product_alone(plant: Callable[[bool], Planted], monkeypatch: pytest.MonkeyPatch) -> None:
    def layer(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(x @ w) + y

    monkeypatch.setattr(trials, "TIMER", ByTensors(of_3=1.0, of_4=9.0))
    inputs = torch.randn(20, 16), torch.randn(16, 24), torch.randn(20, 24)
    options = {"strict": True, "verify": True, "tune": True}
    explanation = fusewright.explain(layer, backend=NAME, options=options)(*inputs)
    torch.testing.assert_close(explanation.result, layer(*inputs), rtol=1e-4, atol=1e-5)
    trial = explanation.tuning.trials[0]
    assert trial.candidates == ("the library", "kernels", ALONE)
    assert trial.candidates[trial.decision.winner] == ALONE
    (graph,) = explanation.graphs
    assert (graph.library_calls, graph.launches) == (0, 2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_products_of_a_vector_as_sums(
    plant: Callable[[bool], Planted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that are multiplied are one kernel, as two sums are."""

    def layer(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return torch.nn.functional.silu(x @ w) * (x @ v)

    monkeypatch.setattr(trials, "TIMER", ByTensors(of_3=1.0, of_4=1.0))
    inputs = torch.randn(1, 16), torch.randn(16, 24), torch.randn(16, 24)
    options = {"strict": True, "verify": True, "tune": True}
    explanation = fusewright.explain(layer, backend=NAME, options=options)(*inputs)
    torch.testing.assert_close(explanation.result, layer(*inputs), rtol=1e-4, atol=1e-5)
    trial = explanation.tuning.trials[0]
    assert trial.candidates[trial.decision.winner] == "kernels of sums"
    (graph,) = explanation.graphs
    assert (graph.library_calls, graph.launches) == (0, 1)


def test_an_answer_has_to_be_faster_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library that was fast by chance, and is not when it is asked again, replaces no kernel."""
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    calls = iter([0.1] * 3)

    def timer(alternatives: Sequence[Alternative], device: torch.device) -> list[float]:
        if not is_library_call(alternatives[0]):
            return [1.0] * len(alternatives)
        return [next(calls, 100.0)]

    monkeypatch.setattr(trials, "TIMER", timer)
    graph, tuning = tuned()
    assert graph.library_calls == 0
    assert [trial.decision.winner for trial in tuning.trials[:3]] == [0, 0, 0]


def test_words(plant: Callable[[bool], Planted]) -> None:
    plant(True)
    _, tuning = tuned()
    row = "products 24 x 32 by 32 x 48 of f32: the library (4.00 times as fast, of 2)"
    assert row in str(tuning)
