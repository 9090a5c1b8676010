"""Copies of what is compiled share its compiled code, and are otherwise apart."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fusewright
from fusewright.compiled import compiler_of

X = torch.randn(4, 8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.scale = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.scale

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * 2


def eager(target: Any) -> Any:
    return fusewright.compile(target, backend="eager", fullgraph=True)


COPIES: list[Callable[[Any], Any]] = [
    copy.deepcopy,
    copy.copy,
    lambda compiled: pickle.loads(pickle.dumps(compiled)),
]


@pytest.mark.parametrize("copied", COPIES, ids=["deep", "shallow", "pickle"])
def test_copies_of_a_module_compile_nothing(copied: Callable[[Any], Any]) -> None:
    compiled = eager(Net())
    compiled(X)
    other = compiled
    for _ in range(3):
        other = copied(other)
        with torch.no_grad():
            other.body[0].weight.mul_(0.5)
        assert torch.equal(other(X), other.body(X))
    assert compiler_of(other) is compiler_of(compiled)
    assert compiler_of(compiled).capture_count == 1


def test_a_copy_that_differs_is_compiled_for_itself() -> None:
    compiled = eager(Net())
    other = copy.deepcopy(compiled)
    other.scale = 3
    other.body.append(nn.Tanh())
    assert torch.equal(compiled(X), compiled.body(X))
    assert torch.equal(other(X), other.body(X) * 3)
    assert compiler_of(compiled).capture_count == 2


@pytest.mark.parametrize("copied", COPIES[::2], ids=["deep", "pickle"])
def test_copies_of_a_method_compile_nothing(copied: Callable[[Any], Any]) -> None:
    method = eager(Net().twice)
    method(X)
    other = copied(method)
    assert other.__wrapped__.__self__ is not method.__wrapped__.__self__
    assert torch.equal(other(X), method(X))
    assert method.compiler.capture_count == 1


def test_copies_keep_what_they_share_alive_and_nothing_else() -> None:
    compiled = eager(Net())
    compiled(X)
    gone = weakref.ref(compiled.body)
    written = pickle.dumps(compiled)
    other = copy.deepcopy(compiled)
    del compiled
    gc.collect()
    assert gone() is None
    assert compiler_of(pickle.loads(written)) is compiler_of(other)


def test_what_was_pickled_is_compiled_anew_once_its_code_is_gone() -> None:
    compiled = eager(Net())
    expected = compiled(X)
    written = pickle.dumps(compiled)
    del compiled
    gc.collect()
    other = pickle.loads(written)
    assert torch.equal(other(X), expected)
    assert compiler_of(other).capture_count == 1


def test_a_pickle_of_another_process_is_compiled_anew(tmp_path: Any) -> None:
    program = """
import pickle, sys, torch, fusewright
from fusewright.compiled import compiler_of
if sys.argv[1] == "write":
    module = fusewright.compile(torch.nn.Linear(8, 2), backend="eager")
    module(torch.ones(1, 8))
    pickle.dump(module, open(sys.argv[2], "wb"))
else:
    module = pickle.load(open(sys.argv[2], "rb"))
    module(torch.ones(1, 8))
    assert compiler_of(module).capture_count == 1
"""
    for what in ("write", "read"):
        subprocess.run([sys.executable, "-c", program, what, str(tmp_path / "file")], check=True)
