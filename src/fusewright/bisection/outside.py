"""State that a function changes outside of its arguments: modules, tensors and optimizers that it
reads from its closure and from globals. A call that is made several times begins with the same.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from fusewright.records import record


@record(kw_only=True)
class Outside:
    """The state as it was, and how to bring it back."""

    tensors: dict[str, torch.Tensor]
    before: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor | None]
    optimizers: tuple[tuple[torch.optim.Optimizer, Any], ...]

    @classmethod
    def of(cls, target: Callable[..., Any]) -> Outside:
        """The state behind a function; none behind an object, which is copied whole."""
        objects = dict(_objects(target)) if isinstance(target, types.FunctionType) else {}
        tensors = dict(_tensors(objects))
        return cls(
            tensors=tensors,
            before={name: tensor.detach().clone() for name, tensor in tensors.items()},
            gradients={name: _copied(tensor.grad) for name, tensor in tensors.items()},
            optimizers=tuple(
                (optimizer, copy.deepcopy(optimizer.state_dict()))
                for optimizer in objects.values()
                if isinstance(optimizer, torch.optim.Optimizer)
            ),
        )

    def values(self) -> Iterator[tuple[str, Any]]:
        """The values that can be seen of the state now."""
        for name, tensor in self.tensors.items():
            yield f"{name} after the call", tensor.detach().clone()
            yield f"gradient of {name}", _copied(tensor.grad)

    def restore(self) -> None:
        """Bring it back."""
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                if not torch.equal(tensor.nan_to_num(), self.before[name].nan_to_num()):
                    tensor.copy_(self.before[name])
                tensor.grad = _copied(self.gradients[name])
        for optimizer, state in self.optimizers:
            optimizer.load_state_dict(copy.deepcopy(state))


def _copied(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()


def _objects(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The objects that a function reads, by name."""
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not set yet
            continue


def _tensors(objects: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in objects.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, torch.nn.Module):
            for path, tensor in (*value.named_parameters(), *value.named_buffers()):
                yield f"{name}.{path}", tensor
