"""A tensor without data, and what of it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fusewright import torch_compat
from fusewright.errors import DataDependent
from fusewright.fake_rules.arguments import flat

if TYPE_CHECKING:
    from fusewright.fake.mode import FakeMode

META = torch.device("meta")


class FakeTensor(torch.Tensor):
    """A tensor without data. `meta_tensor` carries its geometry and storage identity, `fake_mode`
    made it.

    `constant` is its value where that is known (a small tensor made from literals), so that
    `.item()` works on it.
    """

    meta_tensor: torch.Tensor
    fake_mode: FakeMode
    constant: torch.Tensor | None

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
        self.constant = None
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

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        strides = "" if self.meta_tensor.is_contiguous() else f", stride={self.stride()}"
        return f"FakeTensor({tuple(self.shape)}, {self.dtype}, {self.device}{strides})"

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """torch's own takes no symbolic sizes."""
        return self.numel() * self.element_size()

    def tolist(self) -> Any:
        return known_value(self, "tolist").tolist()

    def numpy(self, *, force: bool = False) -> Any:
        return known_value(self, "numpy").numpy(force=force)

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        copied: Any = self.detach().clone().requires_grad_(self.requires_grad)
        memo[id(self)] = copied
        return copied  # type: ignore[no-any-return]


def is_known(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.constant is not None


def known_value(fake: FakeTensor, what: str) -> torch.Tensor:
    if fake.constant is None:
        raise DataDependent(f"Tensor.{what}() needs the values of a tensor")
    return fake.constant


def meta_of(tensor: Any) -> torch.Tensor:
    return tensor.meta_tensor  # type: ignore[no-any-return]


def constant_of(tensor: Any) -> torch.Tensor:
    return tensor.constant  # type: ignore[no-any-return]
