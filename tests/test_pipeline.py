"""The whole compiler on small programs: what they do beside computing their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from fusewright.config import Options
from fusewright.context import CompileContext
from fusewright.errors import Location, Unsupported, UnsupportedOperator
from fusewright.fake import FakeMode
from fusewright.pipeline import compile_graph
from fusewright.runtime.compiled import CompiledGraph

OPTIONS = Options(verify=True, strict=True)


def compiled(function: Callable[..., Any], *examples: Any) -> CompiledGraph:
    module = fx.symbolic_trace(function)
    return compile_graph(module, list(examples), CompileContext(options=OPTIONS))


# -- random numbers -------------------------------------------------------------------------------


def unread(x: torch.Tensor) -> Any:
    torch.rand_like(x)
    return (torch.rand_like(x) + x,)


def late_and_early(x: torch.Tensor) -> Any:
    """What is drawn first is needed last, and large: reason enough to draw it later."""
    large = torch.rand_like(x.expand(64, 4, 8))
    small = torch.rand_like(x).sum()
    return small, (large * x).sum()


RANDOM: dict[str, Callable[[torch.Tensor], Any]] = {
    "dropout": lambda x: (F.dropout(x * 2, 0.3).exp(), F.dropout(x, 0.1).sum()),
    "other dropouts": lambda x: (F.dropout2d(x[None, None]), F.alpha_dropout(x, 0.2, True)),
    "attention": lambda x: (F.scaled_dot_product_attention(x[None], x[None], x[None], None, 0.3),),
    "draws like x": lambda x: (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 5)),
    "bernoulli": lambda x: (torch.bernoulli(x.sigmoid()), x.clone().bernoulli_(), x.bernoulli(0.3)),
    "in place": lambda x: (x.clone().normal_(), x.clone().uniform_(), x.clone().random_(0, 9)),
    "more in place": lambda x: (x.clone().exponential_(), x.clone().geometric_(0.4)),
    "distributions": lambda x: (torch.multinomial(x.softmax(-1), 2), torch.poisson(x.abs())),
    "rrelu": lambda x: (F.rrelu(x, training=True), torch.normal(x, x.abs())),
    "unread": unread,
    "in the program's order": late_and_early,
}


@pytest.mark.parametrize("program", RANDOM.values(), ids=RANDOM)
def test_random_numbers_are_those_of_eager(program: Callable[[torch.Tensor], Any]) -> None:
    x = torch.randn(4, 8)
    graph = compiled(program, x)
    for seed in range(2):
        torch.manual_seed(seed)
        expected, following = program(x), torch.rand(())
        torch.manual_seed(seed)
        given = graph(x)
        assert torch.rand(()) == following, "as many numbers are drawn"
        for one, other in zip(given, expected, strict=True):
            torch.testing.assert_close(one, other)


# -- asserts --------------------------------------------------------------------------------------


def test_asserts_are_kept() -> None:
    def program(x: torch.Tensor) -> Any:
        torch._assert_async(x.sum() > 0, "the sum is not positive")
        return (x + 1,)

    graph = compiled(program, torch.ones(3))
    assert torch.equal(graph(torch.ones(3))[0], torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="the sum is not positive"):
        graph(-torch.ones(3))


# -- library calls --------------------------------------------------------------------------------


def test_results_laid_out_otherwise_than_planned() -> None:
    """Eager's strides of these are not those that torch's meta kernels tell."""

    def program(x: torch.Tensor) -> Any:
        values, vectors = torch.linalg.eig(x)
        restored = vectors @ torch.diag(values) @ torch.linalg.inv(vectors)
        return torch.view_as_real(restored), torch.fft.rfft2(x[None]).abs(), vectors.t() * 2

    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)) + torch.diag(torch.arange(4))
    for one, other in zip(compiled(program, x)(x), program(x), strict=True):
        torch.testing.assert_close(one, other)


def test_complex_numbers_as_arguments() -> None:
    def program(x: torch.Tensor) -> Any:
        return x * 1j, torch.where(x.real > 0, x, complex("nan")), x + complex(0, float("inf"))

    x = torch.tensor([1 + 1j, -2.0, 3j])
    for one, other in zip(compiled(program, x)(x), program(x), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("statistic", [torch.masked.var, torch.masked.std])
def test_masked_statistics_of_complex_numbers(statistic: Callable[..., torch.Tensor]) -> None:
    x = torch.randn(4, 3, dtype=torch.complex64)
    keep = torch.tensor([[True], [False], [True], [True]])
    graph = fx.Graph()
    values, mask = graph.placeholder("values"), graph.placeholder("mask")
    options = {"unbiased": True, "mask": mask}
    graph.output((graph.call_function(statistic, (values, 0), options),))
    module = fx.GraphModule({}, graph)
    (given,) = compile_graph(module, [x, keep], CompileContext(options=OPTIONS))(x, keep)
    torch.testing.assert_close(given, statistic(x, 0, unbiased=True, mask=keep))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32])
def test_types_without_kernels_are_refused_with_the_line(dtype: torch.dtype) -> None:
    module = fx.symbolic_trace(lambda x: (x.to(dtype) * 1.0,))
    for node in module.graph.nodes:
        node.meta["location"] = Location("model.py", 12, "x.to(…)")
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(Unsupported, match=rf"model\.py:12(.|\n)*{name}"):
        compile_graph(module, [torch.ones(3)], CompileContext(options=OPTIONS))


def test_unsigned_integers_of_64_bits_are_computed_by_eager_operators() -> None:
    module = fx.symbolic_trace(lambda x: ((x.to(torch.uint64) * 3).view(2, 3).t().to(x.dtype) + 1,))
    x = torch.arange(6)
    compiled = compile_graph(module, [x], CompileContext(options=OPTIONS))
    assert torch.equal(compiled(x)[0], module(x)[0])
    assert len(compiled.record.launches) == 1


def test_a_device_without_kernels_is_refused() -> None:
    """Memory that the CPU does not reach is not handed to its kernels."""
    elsewhere = FakeMode().wrap(torch.ones(3, 4, device="meta"), torch.device("xpu", 0))
    with pytest.raises(UnsupportedOperator, match="tensors on xpu"):
        compiled(lambda x: (x * 2 + 1).sum(0), elsewhere)


@pytest.mark.parametrize("targets", [("auto", "avx2"), ("scalar", "auto"), ("auto", "scalar")])
def test_kernels_for_two_targets_share_no_code(
    targets: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They cut their work into other units, so that some elements would never be written."""
    monkeypatch.setenv("FUSEWRIGHT_GARBAGE", "1")

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 0.5
        for number in range(4):
            y = y * x + number
        return y

    x = torch.randn(109_120)
    for target in targets:
        context = CompileContext(options=Options(kernel_target=target))
        compiled_program = compile_graph(fx.symbolic_trace(program), [x], context)
        torch.testing.assert_close(compiled_program(x), program(x))
