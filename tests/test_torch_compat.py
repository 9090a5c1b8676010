"""Which versions of torch are taken, and whether the one at hand has what is used of it."""

from __future__ import annotations

import ast
import copy
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import fusewright.torch_compat
from fusewright.torch_compat import autograd
from fusewright.torch_compat.graph_modules import GraphModule
from fusewright.torch_version import refused_version, unknown_version
from tests.source_names import dotted_names


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1+cu130", "2.15.0+cpu", "2.13.0a0+git12"])
def test_known_versions(version: str) -> None:
    assert refused_version(version) is None
    assert unknown_version(version) is None


@pytest.mark.parametrize("version", ["2.10.2", "1.13.1"])
def test_old_ones_are_refused_in_one_sentence(version: str) -> None:
    assert refused_version(version) == (
        f"fusewright needs torch 2.11 or newer, and this is torch {version}: "
        "pip install 'torch>=2.11,<2.16'"
    )


@pytest.mark.parametrize("version", ["2.16.0", "3.0.0"])
def test_newer_ones_are_tried(version: str) -> None:
    assert refused_version(version) is None
    assert unknown_version(version) == (
        f"fusewright was tested with torch up to 2.15, and this is torch {version}: "
        "it is tried all the same; please report what fails"
    )


def test_an_old_one_is_refused_before_a_name_is_missed() -> None:
    program = """
import torch
torch.__version__ = "2.10.2"
del torch._C._is_tracing
import fusewright.torch_compat
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: fusewright needs torch 2.11 or newer")


PACKAGE = Path(fusewright.torch_compat.__file__).parent


def names_of_torch(file: Path) -> set[str]:
    """Every dotted name below `torch` that a file mentions or imports."""
    names = dotted_names(ast.parse(file.read_text()))
    return {name for _, name in names if name.startswith("torch.")}


def is_there(name: str) -> bool:
    """Whether this torch has a name, as an attribute or as a module of its own."""
    value: object = torch
    reached = "torch"
    for part in name.split(".")[1:]:
        reached = f"{reached}.{part}"
        if not hasattr(value, part):
            try:
                value = importlib.import_module(reached)
            except ImportError:
                return False
        else:
            value = getattr(value, part)
    return True


def test_this_torch_has_the_names_that_are_used() -> None:
    """What a new version lacks is told at once, and not by the first import that fails."""
    lacking = [
        f"torch {torch.__version__} has no {name}, which torch_compat/{file.name} uses"
        for file in sorted(PACKAGE.glob("*.py"))
        for name in sorted(names_of_torch(file))
        if not is_there(name)
    ]
    assert not lacking, "\n".join(lacking)


def test_a_name_that_is_not_there_is_found() -> None:
    assert is_there("torch._C._get_privateuse1_backend_name")
    assert not is_there("torch._C.no_such_name")
    assert not is_there("torch.no_such_module.name")


def test_saved_versions_share_a_plain_tensor_and_count_for_themselves() -> None:
    """Also where a mode is on when it is made."""
    cpu, dtype = torch.device("cpu"), torch.float8_e4m3fn  # nobody else's: it is made here
    with FakeTensorMode():
        assert type(autograd._no_elements(dtype, cpu)) is torch.Tensor
    first, second = (torch.ones(3, requires_grad=True) * 1 for _ in range(2))
    versions = [autograd.SavedVersion(first), autograd.SavedVersion(second)]
    first.add_(1)
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0"):
        versions[0].check(0)
    versions[1].check(0)


def _doubled() -> GraphModule:
    graph = fx.Graph()
    graph.output(graph.call_function(torch.add, (graph.placeholder("x"), 1)))
    return GraphModule({}, graph, "Doubled")


def test_the_code_of_a_graph_is_written_when_it_is_asked_for() -> None:
    module = _doubled()
    assert "_code" not in vars(module)
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
    assert "torch.add" in module.code
    assert "torch.add" in _doubled().code
    run = _doubled().forward
    assert torch.equal(run(torch.ones(2)), torch.full((2,), 2.0))


def test_the_code_of_a_graph_that_changes_is_written_again() -> None:
    module = _doubled()
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
    (node,) = module.graph.find_nodes(op="call_function", target=torch.add)
    node.args = (node.args[0], 5)
    module.recompile()
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 6.0)) and "5" in module.code


def _pickled(module: GraphModule) -> GraphModule:
    copied: GraphModule = pickle.loads(pickle.dumps(module))
    return copied


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled])
def test_copies_of_a_graph_run(copied: Callable[[GraphModule], GraphModule]) -> None:
    other = copied(_doubled())
    assert torch.equal(other(torch.ones(2)), torch.full((2,), 2.0)) and "torch.add" in str(other)
