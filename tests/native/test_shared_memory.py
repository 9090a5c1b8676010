"""Who holds memory that is handed out, as C reads it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusewright.native._extension import holders_of, names_of, use_of
from fusewright.torch_compat.cuda import storage_use_counts

FREE, HELD, GONE = 0, 1, 2


class Memory:
    """Two tensors with their storages, and who holds them in the beginning."""

    def __init__(self) -> None:
        self.tensors = torch.ones(3), torch.ones(2, 2)
        self.storages = tuple(tensor.untyped_storage() for tensor in self.tensors)
        self.addresses = tuple(storage._cdata for storage in self.storages)
        self.known = holders_of(self.tensors, self.storages, self.addresses)

    def use(self) -> int:
        return use_of(self.tensors, self.storages, self.known)


def test_the_counts_are_torchs() -> None:
    memory = Memory()
    view = memory.tensors[1][0]
    words = holders_of(memory.tensors, memory.storages, memory.addresses)
    counts = [int.from_bytes(words[at : at + 8], "little") for at in (16, 48)]
    assert counts == storage_use_counts(memory.tensors)
    assert view.untyped_storage() is memory.storages[1]


@pytest.mark.parametrize(
    "hold",
    [
        lambda tensor: tensor[1:],
        lambda tensor: tensor.detach(),
        lambda tensor: tensor.untyped_storage(),
        lambda tensor: tensor.numpy(),
        lambda tensor: names_of((tensor,)),
        lambda tensor: torch.ones(1, requires_grad=True) * tensor.detach(),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_holders_are_seen_and_are_seen_to_let_go(hold: Any, place: int) -> None:
    memory = Memory()
    assert memory.use() == FREE
    held = hold(memory.tensors[place])
    assert memory.use() == HELD
    del held
    assert memory.use() == FREE


def test_a_storage_with_other_memory() -> None:
    memory = Memory()
    held = memory.tensors[0].detach()
    memory.storages[1].resize_(4000)
    assert memory.use() == GONE
    del held


def test_names_are_tensors_of_their_own_in_the_same_memory() -> None:
    tensor = torch.arange(12.0).view(3, 4)[1:, ::2]
    (name,) = names_of((tensor,))
    assert (name.data_ptr(), name.shape, name.stride()) == (
        tensor.data_ptr(),
        tensor.shape,
        tensor.stride(),
    )
    assert not name._is_view() and name.untyped_storage() is tensor.untyped_storage()
    name.add_(1)
    assert (tensor._version, name._version) == (0, 1)
    torch.testing.assert_close(tensor, name)
    with torch.inference_mode():
        assert names_of((tensor,))[0].is_inference()
        own = torch.ones(2)
    assert not names_of((own,))[0].is_inference()
    assert names_of((torch.empty(0, 3),))[0].shape == (0, 3)


def test_what_is_refused() -> None:
    memory = Memory()
    with pytest.raises(TypeError, match="tensors"):
        names_of((1,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tuple"):
        names_of([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="64 were expected, not 32"):
        use_of(memory.tensors, memory.storages, memory.known[:32])
    with pytest.raises(ValueError, match="one storage"):
        use_of(memory.tensors, memory.storages[:1], memory.known)
    with pytest.raises(TypeError, match="tensors"):
        holders_of((1,), memory.storages[:1], (0,))  # type: ignore[arg-type]
