"""Fakes that are no leaves: a program may write to them, as to a tensor that another computed."""

from __future__ import annotations

from typing import Any

import torch

from fusewright import torch_compat
from fusewright.fake.tensor import FakeTensor


class History(torch.autograd.Function):
    """Gives a fake of the same memory that has a history; its gradient is that of the fake."""

    @staticmethod
    def forward(ctx: Any, fake: FakeTensor) -> FakeTensor:
        symbolic = torch_compat.has_symbolic_geometry(fake)
        held = fake.untyped_storage().nbytes() if symbolic else None
        return FakeTensor(fake.meta_tensor, fake.device, fake.fake_mode, storage_bytes=held)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient
