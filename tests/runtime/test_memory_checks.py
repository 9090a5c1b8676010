"""Garbage in new memory: of generated modules, and of kernels' locals."""

from __future__ import annotations

import pytest
import torch

from fusewright.runtime.loader import load_module
from fusewright.runtime.memory_checks import MemoryChecks, allocator, placer
from tests.kernels.llvm.harness import build

MODULE = """
import torch

from fusewright.runtime import generated as runtime

empty_strided = runtime.allocator()


def call(inputs):
    return (empty_strided((3, 5), (7, 1), dtype=torch.{dtype}),)
"""


def test_nothing_is_checked_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FUSEWRIGHT_GUARD_PAGES", "FUSEWRIGHT_GARBAGE"):
        monkeypatch.delenv(name, raising=False)
    assert MemoryChecks.chosen() == MemoryChecks("", garbage=False)
    assert allocator() is torch.empty_strided
    monkeypatch.setenv("FUSEWRIGHT_GUARD_PAGES", "begin")
    monkeypatch.setenv("FUSEWRIGHT_GARBAGE", "1")
    assert MemoryChecks.chosen() == MemoryChecks("begin", garbage=True)


@pytest.mark.parametrize("name", ["FUSEWRIGHT_GUARD_PAGES", "FUSEWRIGHT_GARBAGE"])
def test_other_values_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "yes")
    with pytest.raises(ValueError, match=f"{name} has to be .*, not 'yes'"):
        MemoryChecks.chosen()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8", "complex64"])
def test_a_module_allocates_garbage(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setenv("FUSEWRIGHT_GARBAGE", "1")
    (tensor,) = load_module(MODULE.format(dtype=dtype), {}).call([])
    assert tensor.shape == (3, 5) and tensor.stride() == (7, 1)
    assert set(tensor.untyped_storage().tolist()) == {255}


@pytest.mark.parametrize("side", ["", "end"])
@pytest.mark.parametrize("local", ["f32", "f32[8]"])
def test_locals_are_garbage_until_written(local: str, side: str) -> None:
    text = f"""group copy [i0<8]
  write y: f32[8]
  local e: {local}
  stage
    t0 = load e[0]
    store y[i0] = t0
"""
    y = torch.zeros(8)
    build(text, checks=MemoryChecks(side, garbage=True))({"y": y})
    assert bool(y.isnan().all())


def test_buffers_of_an_arena_lie_apart_under_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = torch.zeros(256, dtype=torch.uint8)
    place = placer()
    tensor = place(arena, 64, (3, 5), (7, 1), torch.float32)
    assert tensor.data_ptr() == arena.data_ptr() + 64 and tensor.stride() == (7, 1)
    monkeypatch.setenv("FUSEWRIGHT_GARBAGE", "1")
    tensor = placer()(arena, 64, (3, 5), (7, 1), torch.float32)
    assert tensor.untyped_storage().data_ptr() != arena.untyped_storage().data_ptr()
    assert set(tensor.untyped_storage().tolist()) == {255}
    monkeypatch.delenv("FUSEWRIGHT_GARBAGE")
    monkeypatch.setenv("FUSEWRIGHT_GUARD_PAGES", "end")
    tensor = placer()(arena, 64, (3, 5), (7, 1), torch.float32)
    assert tensor.untyped_storage().data_ptr() != arena.untyped_storage().data_ptr()
    assert tensor.shape == (3, 5) and tensor.stride() == (7, 1)
