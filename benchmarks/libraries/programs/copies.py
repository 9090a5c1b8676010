"""Compiled functions and modules that are copied, pickled, loaded and saved."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron


@program()
def deepcopy_in_a_loop(compile: Compile) -> Run:
    """A compiled module is copied and the copy is called, as meta-learning does."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        copied = copy.deepcopy(module)
        with torch.no_grad():
            copied[0].weight.mul_(0.5)
        return gradients(copied, copied(x).square().mean())

    return run


@program()
def deepcopied_function_of_a_module(compile: Compile) -> Run:
    """A copy of a module with a compiled method of its own."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron(32, 64, 8)
            self.forward = compile(self.forward)  # type: ignore[method-assign]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x).softmax(-1)

    module = Model()
    x = torch.randn(16, 32)
    return lambda: copy.deepcopy(module)(x).detach()


@program()
def pickle_in_a_loop(compile: Compile) -> Run:
    """A compiled module goes through pickle, as to a worker."""
    module = compile(perceptron(32, 64, 8))
    x = torch.randn(16, 32)

    def run() -> Any:
        copied = pickle.loads(pickle.dumps(module))
        return gradients(copied, copied(x).square().mean())

    return run


@program()
def save_and_load_whole(compile: Compile) -> Run:
    """torch.save and torch.load of a compiled module."""
    module = compile(perceptron(32, 64, 8)).eval()
    x = torch.randn(16, 32)

    def run() -> Any:
        file = io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        with torch.no_grad():
            return loaded(x)

    return run


@program()
def load_state_dict_in_a_loop(compile: Compile) -> Run:
    """Weights of a compiled module are put back before each call."""
    module = compile(perceptron(32, 64, 8))
    states = [copy.deepcopy(perceptron(32, 64, 8).state_dict()) for _ in range(2)]
    x = torch.randn(16, 32)

    def run() -> Any:
        results = []
        for state in states:
            module.load_state_dict(state)
            results.append(gradients(module, module(x).square().mean()))
        return results

    return run


@program()
def load_state_dict_assign(compile: Compile) -> Run:
    """Parameters are replaced by those of a state dict."""
    module = compile(perceptron(32, 64, 8))
    states = [perceptron(32, 64, 8).state_dict() for _ in range(2)]
    x = torch.randn(16, 32)

    def run() -> Any:
        results = []
        for state in states:
            module.load_state_dict({k: v.clone() for k, v in state.items()}, assign=True)
            results.append(module(x).detach())
        return results

    return run


@program()
def copies_as_an_ensemble(compile: Compile) -> Run:
    """Members of an ensemble are copies of one compiled module, kept and trained apart."""
    first = compile(perceptron(32, 64, 8))
    members = [first, *(copy.deepcopy(first) for _ in range(3))]
    with torch.no_grad():
        for number, member in enumerate(members):
            member[0].bias.add_(0.1 * number)
    x = torch.randn(16, 32)
    return lambda: [gradients(member, member(x).square().mean()) for member in members]


@program()
def moving_average_of_weights(compile: Compile) -> Run:
    """An averaged copy of a compiled module is updated and evaluated."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    module = compile(perceptron(32, 64, 8))
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    x = torch.randn(16, 32)

    def run() -> Any:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        average.update_parameters(module)
        with torch.no_grad():
            return loss.detach(), average(x)

    return run
