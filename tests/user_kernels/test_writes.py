"""The arguments that a kernel may write to are found from its source, more rather than fewer."""

from __future__ import annotations

from tests.kernels.triton import interpreter  # isort: skip - it has to come before triton

import triton
import triton.language as tl

from fusewright.user_kernels import kernel_writes
from tests.user_kernels import programs

assert interpreter


def stored(kernel) -> set[str]:
    """The parameters of which an address may be made, those that are numbers left out."""
    writes = kernel_writes(kernel)
    assert writes.is_known
    numbers = {"BLOCK", "count", "stride"}
    return set().union(*writes.stores) - numbers


def test_a_store_and_a_load() -> None:
    assert stored(programs.add) == {"out"}
    assert stored(programs.scale) == {"x"}
    assert stored(programs.total) == {"out"}
    assert stored(programs.subtract_maximum) - {"out0", "out1"} == {"out"}


def test_around_a_kernel() -> None:
    assert stored(programs.both) == {"out"}


def test_functions_that_a_kernel_calls() -> None:
    assert stored(programs.triple) == {"y", "z"}
    (helper,) = kernel_writes(programs.triple).helpers
    assert helper.kernel is programs.store_tripled


@triton.jit
def by_variables(x, y, z, count, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    target = x
    if count > 3:
        target = y + place
    for _ in range(2):
        target += BLOCK
    tl.store(target, tl.load(z + place))


def test_either_branch_counts() -> None:
    assert stored(by_variables) == {"x", "y"}


@triton.jit
def round_a_loop(x, y, z, count, BLOCK: tl.constexpr):
    first, second = x, y
    for _ in range(count):
        tl.store(first + tl.arange(0, BLOCK), 1.0)
        first = second
        second = z


def test_what_comes_round_a_loop() -> None:
    assert stored(round_a_loop) == {"x", "y", "z"}


@triton.jit
def by_blocks(x, out, count, stride, BLOCK: tl.constexpr):
    source = tl.make_block_ptr(x, (count,), (stride,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(
        base=out, shape=(count,), strides=(stride,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    target = tl.advance(target, (BLOCK,))
    tl.store(target, tl.load(source).to(out.dtype.element_ty))


def test_pointers_to_blocks() -> None:
    assert stored(by_blocks) == {"out"}


@triton.jit
def by_descriptors(x, out, count, stride, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [count, stride], [stride, 1], [BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, [count, stride], [stride, 1], [BLOCK, BLOCK])
    target.store([0, 0], source.load([0, 0]))


def test_descriptors() -> None:
    assert stored(by_descriptors) == {"out"}


@triton.jit
def by_loaded_places(x, places, out, count, BLOCK: tl.constexpr):
    place = tl.load(places + tl.arange(0, BLOCK))
    tl.atomic_max(out + place, tl.load(x + place), sem="relaxed")
    tl.atomic_cas(pointer=places, cmp=0, val=1)


def test_places_that_are_loaded() -> None:
    assert stored(by_loaded_places) == {"out", "places"}


@triton.jit
def by_addresses(addresses, count, BLOCK: tl.constexpr):
    target = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(target + tl.arange(0, BLOCK), 1.0)


@triton.jit
def by_the_type_of_another(addresses, out, count, BLOCK: tl.constexpr):
    tl.store(tl.load(addresses).to(out.dtype) + tl.arange(0, BLOCK), 1.0)


@triton.jit
def by_a_function(x, out, count, BLOCK: tl.constexpr, FUNCTION: tl.constexpr):
    FUNCTION(x, count)


def test_what_nobody_knows() -> None:
    assert kernel_writes(by_addresses).follows_addresses
    assert kernel_writes(by_the_type_of_another).follows_addresses
    assert stored(by_a_function) == {"x"}


@triton.jit
def by_a_method(x, out, count, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK)).to(tl.float32).reshape((BLOCK,))
    out.put(values.sum(0))


@triton.jit
def by_a_list(x, out, count, BLOCK: tl.constexpr):
    (target,) = [pointer + count for pointer in (out,)]
    tl.store(target, tl.load(x))


def test_what_is_not_of_triton() -> None:
    assert stored(by_a_method) == {"out"}
    writes = kernel_writes(by_a_list)
    assert not writes.is_known and not writes.follows_addresses


@triton.jit
def printing(x, count, BLOCK: tl.constexpr):
    tl.device_print("x", tl.load(x))


def test_effects_beside_memory() -> None:
    assert kernel_writes(printing).has_effect
    assert not kernel_writes(programs.add).has_effect
    assert not stored(printing)
