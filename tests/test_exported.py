"""`export`: a call as one graph that stands alone, or an error that names the line."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import fusewright
from fusewright.errors import Unsupported
from tests.capture.agreement import assert_same

X = torch.arange(12.0).reshape(3, 4)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
        self.register_buffer("shift", torch.ones(5))

    def forward(self, x: torch.Tensor, options: dict[str, Any]) -> dict[str, Any]:
        y = self.inner(x) * options["scale"] + self.shift
        return {"y": y, "parts": [x, (y.sum(), options["name"], 3)], "same": options["more"]}


def call_of(training: bool) -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Model().train(training), (X, {"scale": 2.5, "more": X + 1, "name": "a"})


@pytest.mark.parametrize("training", [False, True])
def test_a_module_with_nested_arguments_and_results(training: bool) -> None:
    model, arguments = call_of(training)
    twin = copy.deepcopy(model)
    exported = fusewright.export(model)(*arguments)
    assert_same(model.state_dict(), twin.state_dict())  # the program was not run
    module = exported.graph_module
    assert isinstance(module, fx.GraphModule)
    assert_same(module(*arguments), twin(*arguments))
    assert_same(model.state_dict(), twin.state_dict())
    others = (X * 3, {"scale": 2.5, "more": X - 1, "name": "a"})
    assert_same(exported(*others), twin(*others))
    assert dict(module.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert all(name in module.state_dict() for name in ("shift", "inner.0.weight"))
    read = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    assert "inner.1.running_mean" in read
    assert "['scale']" in exported.guards.table()


def test_an_exported_call_prints_as_its_graph() -> None:
    text = str(fusewright.export(lambda x: torch.relu(x) + 1)(X))
    assert text.strip().startswith("graph():") and "[target=torch.relu]" in text
    assert text.endswith(" guards, which .guards.table() lists") and len(text.splitlines()) == 6


def test_functions_methods_and_keywords() -> None:
    weight = torch.randn(4)

    def f(x, *others, factor=2, **named):
        return x * weight * factor + others[0] + named["z"], None, x

    exported = fusewright.export(f, X, X - 1, factor=3, z=X + 2)
    assert_same(exported(X + 1, X, factor=3, z=X), f(X + 1, X, factor=3, z=X))
    assert exported(X + 1, X, factor=3, z=X)[2].sum() == (X + 1).sum()
    model, arguments = call_of(False)
    assert_same(fusewright.export(model.forward)(*arguments)(*arguments), model(*arguments))
    compiled = fusewright.compile(f, backend="eager")
    assert_same(fusewright.export(compiled, X, X + 1, z=X + 2)(X, X, z=X), f(X, X, z=X))


def test_gradients_flow_into_the_parameters() -> None:
    model, arguments = call_of(True)
    fusewright.export(model)(*arguments)(*arguments)["y"].sum().backward()
    twin, _ = call_of(True)
    twin(*arguments)["y"].sum().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert_same(one.grad, other.grad)


def test_writes_to_tensors_stay_in_the_graph() -> None:
    def f(x):
        x.add_(1)
        return x

    exported = fusewright.export(f, X.clone())
    x = X.clone()
    assert exported(x) is x
    assert_same(x, X + 1)


class Named:
    count = 0


NAMED = Named()


def breaks(x):
    x = x + 1
    print("no graph holds this")
    return x


def branches(x):
    return x + 1 if x.sum() > 0 else x


def changes_an_object(x):
    NAMED.count += 1
    return x * 2


def returns_an_object(x):
    return x, NAMED


def raises(x):
    raise ValueError("always")


REFUSED = {
    breaks: "print",
    branches: "truth of a tensor",
    changes_an_object: "changes objects",
    returns_an_object: "an object of class Named",
    raises: "ValueError",
}


@pytest.mark.parametrize("program", REFUSED)
def test_what_is_no_graph_names_its_line(program: Any) -> None:
    with pytest.raises(Unsupported, match=REFUSED[program]) as caught:
        fusewright.export(program, X)
    location = caught.value.location
    assert location is not None and location.file == __file__
    first = program.__code__.co_firstlineno
    lines = Path(__file__).read_text().splitlines()
    assert first <= location.line <= first + 3 and lines[location.line - 1].strip() == location.text
    assert f"{Path(__file__).name}:{location.line}" in str(caught.value)
    assert NAMED.count == 0


def test_a_marked_dimension_is_refused() -> None:
    x = X.clone()
    fusewright.mark_dynamic(x, 0)
    with pytest.raises(Unsupported, match="marked"):
        fusewright.export(lambda x: x + 1, x)


def test_sizes_of_data() -> None:
    def f(x):
        return x.nonzero(), x[x > 3].sum()

    with pytest.raises(Unsupported, match="without its data"):
        fusewright.export(f, options={"capture_dynamic_output_shape_ops": False})(X)
    exported = fusewright.export(f)(X)
    for x in (X, X * 0, -X):
        assert_same(exported(x), f(x))
