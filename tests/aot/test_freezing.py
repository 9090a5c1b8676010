"""Cutting a graph in two: what is computed of weights alone, and the rest."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import fx, nn

from fusewright.aot import AtenGraph, freeze, interpreter, trace_inference
from fusewright.capture.trace import trace
from fusewright.context import CompileContext
from fusewright.fake import FakeMode


def targets(graph: fx.Graph) -> list[str]:
    """The names of what a graph calls, in order."""
    nodes = (node for node in graph.nodes if node.op == "call_function")
    return [getattr(node.target, "__name__", str(node.target)) for node in nodes]


def cut(model: Any, weights: str, *inputs: torch.Tensor, free: bool = False) -> Any:
    """What `freeze` makes of a function whose arguments `weights` are frozen, and the graph."""
    by_name = dict(zip(inspect.signature(model).parameters, inputs, strict=True))
    with torch.no_grad():
        module = trace(model, *inputs)
        names = [node.name for node in module.graph.find_nodes(op="placeholder")]
        graph = trace_inference(module, [by_name[name] for name in names], CompileContext())
    frozen = {place: name for place, name in enumerate(names) if name in weights.split()}
    return freeze(graph, frozen, layouts_are_free=free), graph


def convolution(x: Any, w: Any, mean: Any, variance: Any) -> Any:
    y = nn.functional.conv2d(x, w)
    return nn.functional.batch_norm(y, mean, variance).relu()


IMAGES = (torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3), torch.randn(4), torch.rand(4))
ALL_WEIGHTS = "w mean variance"


def test_a_batch_norm_is_folded() -> None:
    frozen, _ = cut(convolution, ALL_WEIGHTS, *IMAGES)
    assert targets(frozen.graph.graph) == ["convolution.default", "relu.default"]
    assert targets(frozen.prepare.graph) == ["folded_weight", "folded_bias"]
    assert frozen.positions == (1, 2, 3) and frozen.names == ("w", "mean", "variance")
    weight, bias = interpreter(frozen.prepare)(list(IMAGES[1:]))
    x = IMAGES[0].double()
    exact = convolution(x, *(value.double() for value in IMAGES[1:]))
    found = nn.functional.conv2d(x, weight.double(), bias.double()).relu()
    torch.testing.assert_close(found, exact, rtol=1e-6, atol=1e-6)


def test_statistics_that_change_are_not_folded() -> None:
    frozen, graph = cut(convolution, "w mean", *IMAGES)
    assert frozen is None and "convolution.default" in targets(graph.graph)


def test_weights_are_packed_where_tensors_may_lie_anyhow() -> None:
    frozen, _ = cut(convolution, ALL_WEIGHTS, *IMAGES, free=True)
    packs = torch.backends.mkldnn.is_available()
    assert ("pack_convolution_weight" in targets(frozen.prepare.graph)) == packs
    assert ("_convolution_pointwise.default" in targets(frozen.graph.graph)) == packs


def test_channels_last_of_half_types_on_a_gpu() -> None:
    fakes = FakeMode()
    graph = fx.Graph()
    for name, size in {"x": (2, 3, 8, 8), "w": (4, 3, 3, 3)}.items():
        meta = torch.empty(size, dtype=torch.float16, device="meta")
        graph.placeholder(name).meta["val"] = fakes.wrap(meta, torch.device("cuda", 0))
    x, w = graph.nodes
    arguments = (x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    graph.output((graph.call_function(torch.ops.aten.convolution.default, arguments),))
    frozen = freeze(AtenGraph(graph=graph), {1: "w"}, layouts_are_free=True)
    assert frozen is not None and targets(frozen.prepare.graph) == ["clone.default"]
    value = frozen.prepare.outputs[0].meta["val"]
    assert value.stride() == (27, 1, 9, 3) and value.is_cuda


def test_what_is_cut_off() -> None:
    def model(x: Any, w: Any) -> Any:
        scaled = torch.exp(w) * 2
        mask = w[0] > torch.zeros(1)  # of no input, but read by what is constant
        noise = torch.rand(3)  # another at each call
        return x @ scaled.t() + mask, w.t() @ x, scaled + noise, scaled * 3

    frozen, _ = cut(model, "w", torch.randn(3, 3), torch.randn(3, 3))
    prepared, rest = targets(frozen.prepare.graph), targets(frozen.graph.graph)
    assert "exp.default" in prepared and "exp.default" not in rest
    assert "gt.Tensor" in prepared and "gt.Tensor" not in rest
    assert "rand.default" not in prepared, "each call draws"
    assert rest.count("mm.default") == 2 and "t.default" in rest, "a view costs nothing"
    assert rest.count("mul.Tensor") == 1, "a result has memory of its own"


def test_what_is_much_larger_than_its_weights_stays() -> None:
    def model(x: Any, w: Any) -> Any:
        return x * torch.exp(w).expand(512, 512).cos()

    frozen, _ = cut(model, "w", torch.randn(512, 512), torch.randn(1))
    assert "cos.default" in targets(frozen.graph.graph)
    assert "exp.default" in targets(frozen.prepare.graph)


def test_weights_that_are_written_to_are_not_frozen() -> None:
    def model(x: Any, w: Any) -> Any:
        y = x * torch.exp(w)
        w.add_(1)
        return y

    frozen, graph = cut(model, "w", torch.randn(3), torch.randn(3))
    assert frozen is None and len(graph.mutated_inputs) == 1
