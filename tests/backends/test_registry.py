"""The registry of backends: names, tags, options, and backends that other packages ship."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.backends import registry
from fusewright.config import KERNEL_TARGETS
from fusewright.errors import GraphFailed, UnknownBackend
from fusewright.runtime.llvm_engine import NAMED_TARGETS

X = torch.arange(6.0).reshape(2, 3)


def softmax_of_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x - 2).softmax(-1) + x.sum(0)


@pytest.fixture
def own_names() -> Iterator[None]:
    """Forget what a test registers."""
    before = dict(registry._REGISTRY)
    yield
    registry._REGISTRY.clear()
    registry._REGISTRY.update(before)


@pytest.mark.parametrize("name", registry.list_backends(exclude_tags=None))
def test_every_backend_agrees_with_eager(name: str) -> None:
    compiled = fusewright.compile(softmax_of_relu, backend=name, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), softmax_of_relu(X))


def test_names_and_tags() -> None:
    assert "fusewright" in registry.list_backends()
    assert not {"eager", "aot_eager", "loops_eager"} & set(registry.list_backends())
    assert {"eager", "aot_eager"} <= set(registry.list_backends(exclude_tags=None))
    assert registry.lookup_backend("eager").__name__ == "eager"


@pytest.mark.usefixtures("own_names")
def test_registering_by_decorator_and_by_call() -> None:
    @fusewright.register_backend
    def mine(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
        return graph_module.forward

    @fusewright.register_backend(name="renamed", tags=["experimental"])
    def other(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
        return graph_module.forward

    fusewright.register_backend(name="third", compiler_fn=lambda graph, inputs: graph.forward)
    assert registry.lookup_backend("mine") is mine
    assert registry.lookup_backend("renamed") is other
    assert {"mine", "third"} <= set(fusewright.list_backends())
    assert "renamed" not in fusewright.list_backends()
    fusewright.register_backend(mine)  # the same again is no error
    with pytest.raises(ValueError, match="already"):
        fusewright.register_backend(other, name="mine")
    with pytest.raises(ValueError, match="no name of its own"):
        fusewright.register_backend(lambda graph, inputs: graph.forward)
    with pytest.raises(TypeError, match="callable"):
        fusewright.register_backend(3, name="number")
    assert torch.equal(fusewright.compile(softmax_of_relu, backend="third")(X), softmax_of_relu(X))


def test_a_wrong_name_names_the_nearest() -> None:
    with pytest.raises(UnknownBackend, match=r"'aot_egaer' .*did you mean 'aot_eager'") as raised:
        fusewright.compile(softmax_of_relu, backend="aot_egaer")
    assert isinstance(raised.value, ValueError)
    with pytest.raises(UnknownBackend, match=r"torch.compile's own; here it is 'fusewright'"):
        fusewright.compile(softmax_of_relu, backend="inductor")
    with pytest.raises(TypeError, match="a name or a callable, not 3"):
        fusewright.compile(softmax_of_relu, backend=3)  # type: ignore[arg-type]


def test_options_go_to_who_takes_them() -> None:
    received: dict[str, Any] = {}

    def backend(graph_module: Any, inputs: Any, *, mode: Any = None, options: Any = None) -> Any:
        received.update(mode=mode, options=options)
        return graph_module.forward

    options = {"strict": True, "depth": 3}
    fusewright.compile(softmax_of_relu, backend=backend, options=options, mode="quick")(X)
    assert received == {"mode": "quick", "options": {"depth": 3}}
    with pytest.raises(TypeError, match="'eager' takes no options"):
        fusewright.compile(softmax_of_relu, backend="eager", options={"depth": 3})
    with pytest.raises(TypeError, match="'eager' takes no mode"):
        fusewright.compile(softmax_of_relu, backend="eager", mode="quick")
    with pytest.raises(TypeError, match=r"'strickt'; did you mean 'strict'"):
        fusewright.compile(softmax_of_relu, options={"strickt": True})
    with pytest.raises(TypeError, match="option 'strict' takes a value of bool, not 1"):
        fusewright.compile(softmax_of_relu, options={"strict": 1})
    with pytest.raises(TypeError, match=r"'fullgrph'; 'fullgraph' is a keyword of compile"):
        fusewright.compile(softmax_of_relu, options={"fullgrph": True})
    with pytest.raises(ValueError, match=r"mode 'max-autotun' .*did you mean 'max-autotune'"):
        fusewright.compile(softmax_of_relu, mode="max-autotun")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kernel_target": "avx"}, "'kernel_target' has to be one of auto, avx2"),
        ({"target": "c"}, "'target' has to be one of native, python, fx, cpp, not 'c'"),
        ({"memory_budget": 2}, "'memory_budget' has to be between 0 and 1, not 2"),
        ({"recompile_limit": 0}, "'recompile_limit' has to be at least 1"),
    ],
)
def test_options_out_of_range_are_told_before_the_first_call(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fusewright.compile(softmax_of_relu, options=options)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("FUSEWRIGHT_STRICT", "true", "0 or 1, not 'true'"),
        ("FUSEWRIGHT_DEBUG_PRINTER", "yes", "one of off, save, .*, not 'yes'"),
    ],
)
def test_values_of_variables_are_told_by_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"^{variable} has to be {words}"):
        fusewright.compile(softmax_of_relu)


def test_every_kernel_target_may_be_chosen() -> None:
    assert set(KERNEL_TARGETS) == {"auto", *NAMED_TARGETS}
    fusewright.compile(softmax_of_relu, options={"memory_budget": 1, "kernel_target": "scalar"})(X)


def test_arguments_of_another_type() -> None:
    with pytest.raises(TypeError, match="options are a dictionary"):
        fusewright.compile(softmax_of_relu, options=["strict"])
    with pytest.raises(TypeError, match="dynamic is None, True or False, not 3"):
        fusewright.compile(softmax_of_relu, dynamic=3)


def test_an_installed_backend_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint(
        "broken", "no_such_module:backend", registry.ENTRY_POINT_GROUP
    )
    monkeypatch.setattr(registry, "_entry_points", lambda: {"broken": point})
    assert "broken" in registry.list_backends()
    with pytest.raises(ImportError, match=r"'broken'.*no_such_module"):
        registry.lookup_backend("broken")


def test_a_backend_written_for_torch_compile() -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    graphs: list[Any] = []

    def compile_aten(graph_module: Any, example_inputs: Any) -> Any:
        graphs.append(graph_module)
        return make_boxed_func(graph_module.forward)

    mine, theirs = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    theirs.load_state_dict(mine.state_dict())
    backend = aot_autograd(fw_compiler=compile_aten)
    compiled = fusewright.compile(mine, backend=backend, fullgraph=True)
    for rows in (2, 3, 4):  # torch's own fakes take no symbols of ours
        x = torch.randn(rows, 3)
        compiled(x).square().sum().backward()
        theirs(x).square().sum().backward()
        torch.testing.assert_close(mine.weight.grad, theirs.weight.grad)
    assert len(graphs) == 6, "forward and backward, for each size"


def test_our_entry_point_is_what_the_name_means() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    value = project["entry-points"][registry.ENTRY_POINT_GROUP]["fusewright"]
    point = importlib.metadata.EntryPoint("fusewright", value, registry.ENTRY_POINT_GROUP)
    assert point.load() is registry.lookup_backend("fusewright")


PACKAGE = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "counting-backend"
version = "1.0"

[project.entry-points.torch_dynamo_backends]
counting = "counting_backend:counting"

[tool.setuptools]
py-modules = ["counting_backend"]
""",
    "counting_backend.py": """
print("imported")

def counting(graph_module, example_inputs):
    calls = [node for node in graph_module.graph.nodes if node.op.startswith("call")]
    print(len(calls), "calls on", [tuple(tensor.shape) for tensor in example_inputs])
    graph_module.recompile()
    return graph_module
""",
}

PROGRAM = """
import sys, torch, fusewright
assert "counting" in fusewright.list_backends()
print("listed")
f = fusewright.compile(lambda x: x.relu() + 1, backend="counting")
assert torch.equal(f(torch.ones(2, 3)), torch.full((2, 3), 2.0))
"""


def test_a_backend_of_another_package(tmp_path: Path) -> None:
    source, installed = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    for name, text in PACKAGE.items():
        (source / name).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    target = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(installed)]
    subprocess.run([*pip, *target, str(source)], check=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(installed)])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["listed", "imported", "2 calls on [(2, 3)]"]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (lambda x: x, "returned a Tensor; it has to return a tuple"),  # of one row, as the results
        (lambda x: (x, x), "returned 2 results; the graph has 1"),
        (lambda x: None, "returned a NoneType"),
    ],
)
def test_what_a_backend_made_has_to_return_a_tuple(
    results: Callable[[torch.Tensor], Any], words: str
) -> None:
    def wrong(graph_module: Any, example_inputs: Any) -> Callable[..., Any]:
        return results

    x = torch.ones(1, 3)
    with pytest.raises(GraphFailed, match=f"what backend 'wrong' made {words}"):
        fusewright.compile(softmax_of_relu, backend=wrong, fullgraph=True)(x)
    with pytest.warns(RuntimeWarning, match=words):
        found = fusewright.compile(softmax_of_relu, backend=wrong)(x)
    assert torch.equal(found, softmax_of_relu(x))
