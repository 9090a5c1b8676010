"""The operator of which kernels on a GPU make their draws: where it runs as it is, it gives the
same numbers. What graphs on a GPU do with it: `tests.gpu.pretended.dropout`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fusewright
from fusewright import philox
from fusewright.aot import trace_inference
from fusewright.aot.kernel_draws import SEEDS, seeds_operator, uniform_operator
from fusewright.context import CompileContext
from fusewright.ir.limits import ALIGNED_ROW_BYTES

CPU = torch.device("cpu")


def test_the_operator_gives_philox_of_places_in_row_major_order() -> None:
    seed = torch.tensor(-(1 << 60))
    drawn = uniform_operator()(seed, (3, 5))
    assert drawn.is_contiguous() and drawn.dtype is torch.float32
    assert torch.equal(drawn.flatten(), philox.uniform(seed, torch.arange(15)))
    assert uniform_operator()(seed, (2, 0)).shape == (2, 0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_for_the_cpu_it_is_a_call(dynamic: bool) -> None:
    draw = uniform_operator()

    def f(x: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return (draw(seed, x.shape) >= 0.5) * x

    compiled = fusewright.compile(f, dynamic=dynamic, options={"strict": True})
    for size in (7, 4):
        x, seed = torch.randn(3, size), torch.tensor(size)
        with torch.no_grad():
            assert torch.equal(compiled(x, seed), f(x, seed))


@pytest.mark.parametrize("train", [True, None])
def test_the_cpus_dropout_is_left_alone(train: bool | None) -> None:
    class Dropout(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.native_dropout(x, 0.5, train)[0]

    module = torch.fx.symbolic_trace(Dropout())
    graph = trace_inference(module, [torch.randn(3)], CompileContext())
    assert "aten.native_dropout.default" in targets(graph.graph)


def targets(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def seed() -> torch.Tensor:
    return torch.ops.aten.randint.default(SEEDS, [], dtype=torch.int64)


def two_draws(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    draw = uniform_operator()
    first = draw(seed(), x.shape)
    return first * x, draw(seed(), x.shape) + first


def test_seeds_are_drawn_at_once() -> None:
    x = torch.randn(3, 5)
    torch.manual_seed(3)
    seeds = seeds_operator()(2, device=CPU)
    first, second = (philox.uniform(one, torch.arange(15)).view(3, 5) for one in seeds)
    compiled = fusewright.compile(two_draws, options={"strict": True, "verify": True})
    for _ in range(2):
        torch.manual_seed(3)
        with torch.no_grad():
            found = compiled(x)
        assert torch.equal(found[0], first * x) and torch.equal(found[1], second + first)
    (compilation,) = fusewright.api.compilations(compiled)
    calls = compilation.compiled.record.extern_calls
    assert [call for call in calls if "philox" not in call] == ["fusewright.draw_seeds.default"]


def test_seeds_are_aligned() -> None:
    """A kernel for a GPU that is given one at another address takes three times as long."""
    seeds = seeds_operator()(3, device=CPU)
    assert {seed.data_ptr() % ALIGNED_ROW_BYTES for seed in seeds} == {0}
    assert len(set(map(int, seeds))) == len(seeds)


def test_seeds_are_kept_for_backward() -> None:
    x = torch.randn(3, 5, requires_grad=True)
    compiled = fusewright.compile(two_draws, options={"strict": True, "verify": True})
    torch.manual_seed(3)
    scaled, _ = compiled(x)
    (slope,) = torch.autograd.grad(scaled.sum(), x)
    torch.manual_seed(3)
    drawn = philox.uniform(seeds_operator()(2, device=CPU)[0], torch.arange(15)).view(3, 5)
    assert torch.equal(slope, drawn)


def test_draws_of_the_program_stay_as_they_are() -> None:
    """One that is also a result, one alone, and one that is read by another operator."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        draw, shown, read = uniform_operator(), seed(), seed()
        return draw(shown, x.shape), shown, draw(read, x.shape) + read, draw(seed(), x.shape)

    graphs: list[torch.fx.Graph] = []

    def backend(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        graphs.append(trace_inference(module, examples, CompileContext()).graph)
        return module.forward

    fusewright.compile(program, backend=backend, fullgraph=True)(torch.randn(3))
    assert targets(graphs[0]).count("aten.randint.default") == 3
