"""A tensor without data, and what of it is known."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.containers import tensors
from fusewright.fake_rules.arguments import flat

if TYPE_CHECKING:
    from fusewright.fake.mode import FakeMode

META = torch.device("meta")


class Writes:
    """How many operators wrote to a storage, which the versions of tensors do not tell where
    autograd is off.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._storages: list[torch.UntypedStorage] = []
        """The storages that were written to: while they live, no other has their key."""

    def note(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count a write to the storage of each of `tensors`."""
        for key, tensor in {torch_compat.storage_key(tensor): tensor for tensor in tensors}.items():
            self._storages.append(tensor.untyped_storage())
            self._counts[key] = self.count(tensor) + 1

    def count(self, tensor: torch.Tensor) -> int:
        """The number of operators that wrote to the storage of `tensor`."""
        return self._counts.get(torch_compat.storage_key(tensor), 0) if self._counts else 0


class FakeTensor(torch.Tensor):
    """A tensor without data. `meta_tensor` carries its geometry and storage identity, `fake_mode`
    made it.

    `constant` is the value that it was made with, where it was made of literals; `node` the node
    that gives it in the graph that is being built. By these its value may be known.
    """

    meta_tensor: torch.Tensor
    fake_mode: FakeMode
    constant: torch.Tensor | None
    _node: weakref.ref[fx.Node] | None

    __torch_function__ = torch_compat.disabled_torch_function  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls,
        meta_tensor: torch.Tensor,
        device: torch.device,
        mode: FakeMode,
        requires_grad: bool = False,
        storage_bytes: int | None = None,
    ) -> FakeTensor:
        if torch.is_inference_mode_enabled():  # an inference tensor could not be viewed later
            with torch.inference_mode(False):
                return cls.__new__(cls, meta_tensor, device, mode, requires_grad, storage_bytes)
        self: FakeTensor = torch_compat.make_wrapper(
            cls, meta_tensor, device, requires_grad, storage_bytes
        )
        if meta_tensor.is_conj() or meta_tensor.is_neg():
            torch_compat.set_math_bits(self, like=meta_tensor)
        self.meta_tensor = meta_tensor
        self.fake_mode = mode
        self.constant = self._node = None
        return self

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for value in flat((*args, *kwargs.values())):
            if isinstance(value, FakeTensor):
                return value.fake_mode.dispatch(op, args, kwargs)
        return NotImplemented

    @property
    def node(self) -> fx.Node | None:
        """The node that gives it, as long as that exists."""
        return None if self._node is None else self._node()

    @node.setter
    def node(self, node: fx.Node) -> None:
        self._node = weakref.ref(node)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        strides = "" if self.meta_tensor.is_contiguous() else f", stride={self.stride()}"
        return f"FakeTensor({tuple(self.shape)}, {self.dtype}, {self.device}{strides})"

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """torch's own takes no symbolic sizes."""
        return self.numel() * self.element_size()

    def tolist(self) -> Any:
        return self.fake_mode.value_of(self, "tolist").tolist()

    def numpy(self, *, force: bool = False) -> Any:
        return self.fake_mode.value_of(self, "numpy").numpy(force=force)

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        copied: Any = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        return copied  # type: ignore[no-any-return]


def set_node(value: Any, node: fx.Node) -> None:
    """Let the fakes in a result be those that `node` gives."""
    for fake in tensors(value):
        if isinstance(fake, FakeTensor):
            fake.node = node


def meta_of(tensor: Any) -> torch.Tensor:
    return tensor.meta_tensor  # type: ignore[no-any-return]
