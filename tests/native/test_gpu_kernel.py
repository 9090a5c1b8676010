"""Launches on a GPU, handed to a driver that only tells what it was asked."""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fusewright.native import CallPlan
from fusewright.native._extension import GpuKernel
from tests.native.driver import Driver

CONTEXT, FUNCTION, STREAM = 0x11, 0x22, 0x33


def kernel(
    driver: Driver,
    kinds: str = "",
    tensors: int = 2,
    prepare: Callable[[int, bool], Any] | None = None,
    eager: Callable[..., None] = print,
) -> GpuKernel:
    def usual(device: int, aligned: bool) -> Any:
        return CONTEXT, FUNCTION + aligned, 128, 4096, 2

    return GpuKernel(
        "add", tensors, kinds, driver.functions, lambda device: STREAM, prepare or usual, eager
    )


def test_what_the_driver_is_asked() -> None:
    driver = Driver(parameters=7)
    x, y = torch.ones(64), torch.ones(64)
    kernel(driver, "ild")(x, y, -5, 1 << 40, 2.5, 3)
    (launched,) = driver.launched
    assert (launched.function, launched.grid, launched.block) == (
        FUNCTION + 1,
        (3, 1, 1),
        (128, 1, 1),
    )
    assert (launched.shared_bytes, launched.stream) == (4096, STREAM)
    real = struct.unpack("q", struct.pack("d", 2.5))[0]
    assert launched.slots == [x.data_ptr(), y.data_ptr(), -5, 1 << 40, real, 0, 0]
    assert driver.contexts == []


def test_numbers_of_the_cpu_are_given_by_value() -> None:
    driver = Driver(parameters=6)
    widths = bytes((0, 8, 4, 8))
    mixed = GpuKernel(
        *("mixed", 4, "", driver.functions, lambda device: STREAM),
        *(lambda *_: (CONTEXT, FUNCTION, 32, 0, 2), print, widths),
    )
    x, y = torch.ones(8), torch.tensor([7.0, 0.1], dtype=torch.float64)[1]
    third, place = torch.tensor(1 / 3), torch.tensor(-5)
    mixed(x, y, third, place, 1)
    (launched,) = driver.launched
    single = struct.unpack("i", struct.pack("f", third.item()))[0]
    assert launched.slots == [x.data_ptr(), bits(0.1), single, -5, 0, 0]
    y.fill_(2.5)
    mixed(x, y, third, place, 1)
    assert driver.launched[-1].slots[1] == bits(2.5), "it is read at each launch"
    for wrong in (bytes(3), b"\0\1\0\0", bytes(5)):
        with pytest.raises(ValueError, match="0, 4 or 8 for each tensor"):
            GpuKernel("mixed", 4, "", driver.functions, id, id, print, wrong)
    with pytest.raises(RuntimeError, match="tensor argument 1 is no number of the CPU"):
        mixed(x, torch.empty((), dtype=torch.float64, device="meta"), third, place, 1)


WRITER = 0x44


def with_table(driver: Driver, count: int, most: int, widths: bytes = b"", **options: Any) -> Any:
    """A kernel of `count` tensors and a table, which is of two launches; `most`: the values that
    one launch writes into it.
    """
    driver.writers = {WRITER}

    def prepare(device: int, aligned: bool) -> Any:
        return CONTEXT, FUNCTION + aligned, 128, 0, 1, WRITER, most

    return GpuKernel(
        *("step", count + 1, "", driver.functions, lambda device: STREAM),
        *(options.get("prepare", prepare), options.get("eager", print), widths),
        first_values=struct.pack("2q", 64, 1 << 32 | 9),
    )


@pytest.mark.parametrize("most", [1, 3, 4, 6, 4096])
def test_arguments_in_a_table_are_written_ahead(most: int) -> None:
    driver = Driver(parameters=3)
    x, y, table = torch.ones(65)[1:], torch.ones(9), torch.full((8,), -1)
    rate, place = torch.tensor(0.1, dtype=torch.float64), torch.tensor(1 / 3)
    kernel = with_table(driver, 4, most, bytes((0, 8, 4, 0, 0)))
    kernel(x, rate, place, y, table, 2)
    single = struct.unpack("i", struct.pack("f", place.item()))[0]
    values = [64, 1 << 32 | 9, x.data_ptr(), bits(0.1), single, y.data_ptr()]
    assert table.tolist() == [*values, -1, -1], "nothing is written behind the table"
    *writes, launched = driver.launched
    assert [write.slots for write in writes] == [
        [table.data_ptr() + 8 * begin, min(most, 6 - begin)] for begin in range(0, 6, most)
    ]
    assert {write.stream for write in writes} == {STREAM}
    assert launched.slots == [table.data_ptr(), 2, 0]
    # How the table lies decides, not the tensors: the kernel looks at those itself.
    assert (launched.function, launched.grid) == (FUNCTION + 1, (2, 1, 1))


def test_a_table_has_room_for_thousands_of_tensors() -> None:
    driver = Driver(parameters=3)
    tensors = [torch.ones(4) for _ in range(7990)]
    table = torch.zeros(8000, dtype=torch.int64)
    step = with_table(driver, len(tensors), 4000)
    step(*tensors, table, 2)
    assert table[2:7992].tolist() == [tensor.data_ptr() for tensor in tensors]
    assert [launched.grid for launched in driver.launched] == [(32, 1, 1), (32, 1, 1), (2, 1, 1)]
    plan = launching(step, (), 2, tensors=len(tensors) + 1)
    table.zero_()
    assert plan(*tensors, table) == ()
    assert table[2:7992].tolist() == [tensor.data_ptr() for tensor in tensors]
    with pytest.raises(ValueError, match="GpuKernel takes 1 to 8000 arguments"):
        with_table(driver, 8000, 4000)


def test_a_kernel_with_a_table_runs_eagerly_without_one() -> None:
    driver, calls = Driver(parameters=3), []

    def eager(*arguments: Any) -> None:
        calls.append(arguments)

    x, table = torch.ones(4), torch.zeros(3, dtype=torch.int64)
    step = with_table(driver, 1, 4, prepare=lambda *_: None, eager=eager)
    step(x, table, 2)
    launching(step, (), 2)(x, table)
    assert [len(call) for call in calls] == [3, 3] and not table.any() and not driver.launched


def test_what_is_refused_of_a_table() -> None:
    driver = Driver(parameters=3)
    x, table = torch.ones(4), torch.zeros(3, dtype=torch.int64)
    for wrong in ((1, 2, 3, 0, 0), (1, 2, 3, 0, 0, 0, 8), (1, 2, 3, 0, 0, 4, 4097)):
        step = with_table(driver, 1, 4, prepare=lambda *_, wrong=wrong: wrong)
        with pytest.raises(ValueError, match="step has a table, and nothing that writes it"):
            step(x, table, 2)
    for kinds, first in (("i", bytes(8)), ("", bytes(7))):
        with pytest.raises(ValueError, match="with a table takes tensors"):
            GpuKernel("step", 2, kinds, driver.functions, id, id, print, first_values=first)
    driver.error = 700
    with pytest.raises(RuntimeError, match="CUDA error 700 at the launch of step"):
        with_table(driver, 1, 4)(x, table, 2)
    assert [launched.function for launched in driver.launched] == [WRITER], "the kernel is not"


def test_machine_code_is_asked_for_once_for_each_alignment() -> None:
    driver, asked = Driver(parameters=2), []

    def prepare(device: int, aligned: bool) -> Any:
        asked.append((device, aligned))
        return CONTEXT, FUNCTION + aligned, 32, 0, 0

    add = kernel(driver, prepare=prepare)
    x, y = torch.ones(65), torch.ones(64)
    for first in (x[1:], x[:64], x[1:], x[4:]):
        add(first, y, 1)
    assert [one.function - FUNCTION for one in driver.launched] == [0, 1, 0, 1]
    assert asked == [(-1, False), (-1, True)]


def test_another_context_is_the_current_one_during_the_launch_alone() -> None:
    driver = Driver(parameters=2, context=0x99)
    kernel(driver)(torch.ones(4), torch.ones(4), 1)
    assert driver.launched[0].context == CONTEXT
    assert driver.contexts == [CONTEXT, 0x99]


def test_nothing_is_launched_for_no_programs() -> None:
    driver = Driver(parameters=2)
    kernel(driver)(torch.ones(0), torch.ones(0), 0)
    assert driver.launched == []


def test_what_is_refused() -> None:
    driver = Driver(parameters=2)
    add, x = kernel(driver), torch.ones(4)
    with pytest.raises(ValueError, match="add would need 2147483648 programs"):
        add(x, x, 1 << 31)
    with pytest.raises(TypeError, match=r"add takes 3 positional arguments \(2 tensors, 0 sizes"):
        add(x, 1)
    with pytest.raises(TypeError, match="argument 1 must be a tensor, not int"):
        add(x, 1, 1)
    with pytest.raises(TypeError):
        kernel(driver, "i")(x, x, "1", 1)
    with pytest.raises(TypeError):
        kernel(driver, "d")(x, x, "1", 1)
    with pytest.raises(ValueError, match="GpuKernel takes 1 to 500 arguments"):
        kernel(driver, tensors=0)
    driver.error = 700
    with pytest.raises(RuntimeError, match="CUDA error 700 at the launch of add"):
        add(x, x, 1)


def test_an_error_of_what_prepares_it_goes_on() -> None:
    def prepare(device: int, aligned: bool) -> Any:
        raise LookupError("no machine code")

    with pytest.raises(LookupError, match="no machine code"):
        kernel(Driver(parameters=2), prepare=prepare)(torch.ones(4), torch.ones(4), 1)
    with pytest.raises(TypeError):
        kernel(Driver(parameters=2), prepare=lambda *_: "four")(torch.ones(4), torch.ones(4), 1)
    many = kernel(Driver(parameters=2), prepare=lambda *_: (1, 2, 3, 4, 99))
    with pytest.raises(ValueError, match="add has 99 hidden parameters"):
        many(torch.ones(4), torch.ones(4), 1)


def test_where_there_is_no_machine_code_it_runs_eagerly() -> None:
    driver, calls = Driver(parameters=2), []

    def prepare(device: int, aligned: bool) -> Any:
        return (CONTEXT, FUNCTION, 32, 0, 0) if aligned else None

    def eager(*arguments: Any) -> None:
        calls.append(arguments)

    add = kernel(driver, "d", prepare=prepare, eager=eager)
    x, y = torch.ones(65), torch.ones(64)
    assert add(x[1:], y, 0.5, 3) is None
    add(x[:64], y, 0.5, 3)
    ((tensor, other, number, programs),) = calls
    assert (tensor.data_ptr(), other, number, programs) == (x[1:].data_ptr(), y, 0.5, 3)
    assert len(driver.launched) == 1

    def refuses(*arguments: Any) -> None:
        raise LookupError("no operator either")

    with pytest.raises(LookupError, match="no operator either"):
        kernel(driver, "d", prepare=prepare, eager=refuses)(x[1:], y, 0.5, 3)


def test_other_threads_run_during_a_launch() -> None:
    """The driver waits where too much is launched already: here, for the fifth of a second that it
    takes the function for.
    """
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
    functions = (sleep, *Driver(parameters=1).functions[1:])
    waits = GpuKernel(
        *("waits", 1, "", functions, lambda device: STREAM),
        *(lambda *_: (CONTEXT, 200_000, 32, 0, 0), print),
    )
    begun, stops, turns = threading.Event(), threading.Event(), []

    def turn() -> None:
        while not stops.wait(0.001):
            turns.append(len(turns))
            begun.set()

    thread = threading.Thread(target=turn)
    thread.start()
    begun.wait()
    before = len(turns)
    waits(torch.ones(4), 1)
    after = len(turns)
    stops.set()
    thread.join()
    assert after - before > 5


def test_nothing_is_kept_of_a_call() -> None:
    driver = Driver(parameters=2)
    add, x = kernel(driver, "l"), torch.ones(4)
    number = 1 << 50
    add(x, x, number, 1)
    before = [sys.getrefcount(one) for one in (x, number, add)]
    for _ in range(100):
        add(x, x, number, 1)
    assert [sys.getrefcount(one) for one in (x, number, add)] == before


# In a plan ----------------------------------------------------------------------------------------


def bits(real: float) -> int:
    """A double as the integer of the same bits."""
    return int(struct.unpack("q", struct.pack("d", real))[0])


def launching(
    one: GpuKernel, numbers: tuple[int, ...], programs: int, tensors: int = 2
) -> CallPlan:
    """A plan that launches a kernel on views of its inputs, which no Python code has needed."""
    values = (*numbers, programs, 4, 1, 0)
    places = range(len(numbers))
    size, stride, offset = len(values) - 3, len(values) - 2, len(values) - 1
    views = [("reinterpret", 1, (tensors + i, i, 1, size, stride, offset)) for i in range(tensors)]
    slots = range(tensors, 2 * tensors)
    launch = (~0, tensors, *slots, len(numbers), *places, len(numbers))
    operations = (*views, ("launch on GPU", 7, launch), ("return", 8, (0,)))
    return CallPlan(operations, tensors, 2 * tensors, values, (one,), {}, "twin.py")


def test_what_the_driver_is_asked_by_a_plan() -> None:
    driver = Driver(parameters=7)
    x, y = torch.ones(64), torch.ones(64)
    plan = launching(kernel(driver, "ild"), (-5, 1 << 40, bits(2.5)), 3)
    assert plan(x, y) == ()
    (launched,) = driver.launched
    assert launched.slots == [x.data_ptr(), y.data_ptr(), -5, 1 << 40, bits(2.5), 0, 0]
    assert (launched.function, launched.grid, launched.stream) == (FUNCTION + 1, (3, 1, 1), STREAM)


def test_a_plan_runs_eagerly_what_has_no_machine_code() -> None:
    driver, calls = Driver(parameters=2), []

    def eager(*arguments: Any) -> None:
        calls.append(arguments)

    one = kernel(driver, "id", prepare=lambda device, aligned: None, eager=eager)
    x, y = torch.ones(64), torch.ones(64)
    launching(one, (7, bits(0.5)), 3)(x, y)
    ((a, b, *numbers),) = calls
    assert (a.data_ptr(), b.data_ptr(), a.shape) == (x.data_ptr(), y.data_ptr(), (4,))
    assert numbers == [7, 0.5, 3] and driver.launched == []

    def fails(*_: Any) -> None:
        raise KeyError("eager")

    with pytest.raises(KeyError, match="eager"):
        launching(kernel(driver, prepare=lambda *_: None, eager=fails), (), 3)(x, y)


def test_a_plan_launches_nothing_without_programs_and_refuses_too_many() -> None:
    driver = Driver(parameters=2)
    x, y = torch.ones(64), torch.ones(64)
    launching(kernel(driver), (), 0)(x, y)
    assert driver.launched == []
    for programs in (-1, 1 << 31):
        with pytest.raises(ValueError, match="programs in one launch"):
            launching(kernel(driver), (), programs)(x, y)
    driver.error = 700
    with pytest.raises(RuntimeError, match="CUDA error 700 at the launch of add"):
        launching(kernel(driver), (), 1)(x, y)


def test_a_plan_refuses_a_kernel_of_other_arguments() -> None:
    x, y = torch.ones(64), torch.ones(64)
    for one in (kernel(Driver(parameters=2), "i"), kernel(Driver(parameters=2), tensors=1), print):
        with pytest.raises(TypeError, match="does not take 2 tensors and 0 sizes"):
            launching(one, (), 1)(x, y)  # type: ignore[arg-type]
    launch = ("launch on GPU", 1, (~0, 1, 0, 0, 0))
    plan = CallPlan((launch,), 1, 1, (1,), (kernel(Driver(1), tensors=1),), {}, "twin.py")
    with pytest.raises(RuntimeError, match="tensor argument 0 has no data in memory"):
        plan(5)
