"""A CUDA driver that does nothing but tell what it was asked: functions in C's convention."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *[ctypes.c_uint] * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
GET_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
SET_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

ALIVE: list[Any] = []
"""Every driver's functions: a kernel has their addresses alone, and may outlive its driver."""


@dataclass
class Launched:
    """One launch, as the driver saw it."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    slots: list[int]
    """The first 8 bytes of each parameter, as many as the test has said there are."""

    context: int


@dataclass
class Driver:
    """What the driver would do, and what it was asked."""

    parameters: int
    """How many a kernel takes."""

    context: int = 0x11
    error: int = 0
    launched: list[Launched] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    writers: set[int] = field(default_factory=set)
    """Functions that write a table, and do so: address, number of values, values."""

    def __post_init__(self) -> None:
        def launch(function: int, *rest: Any) -> int:
            *numbers, stream, parameters, _ = rest
            if function in self.writers:
                return self._write_table(function, numbers, stream, parameters)
            slots = [
                ctypes.cast(parameters[number], ctypes.POINTER(ctypes.c_int64))[0]
                for number in range(self.parameters)
            ]
            grid, block = tuple(numbers[:3]), tuple(numbers[3:6])
            self.launched.append(
                Launched(function, grid, block, numbers[6], stream or 0, slots, self.context)
            )
            return self.error

        def get_context(found: Any) -> int:
            found[0] = self.context
            return 0

        def set_context(wanted: int | None) -> int:
            self.context = wanted or 0
            self.contexts.append(self.context)
            return 0

        self._kept = LAUNCH(launch), GET_CONTEXT(get_context), SET_CONTEXT(set_context)
        ALIVE.append(self._kept)

    def _write_table(self, function: int, numbers: Any, stream: Any, parameters: Any) -> int:
        address = ctypes.cast(parameters[0], ctypes.POINTER(ctypes.c_uint64))[0]
        count = ctypes.cast(parameters[1], ctypes.POINTER(ctypes.c_uint32))[0]
        grid, block = tuple(numbers[:3]), tuple(numbers[3:6])
        ctypes.memmove(address, parameters[2], 8 * count)
        slots = [address, count]
        self.launched.append(
            Launched(function, grid, block, numbers[6], stream or 0, slots, self.context)
        )
        return self.error

    @property
    def functions(self) -> tuple[int, int, int]:
        """Addresses, as a kernel takes them."""
        launch, get_context, set_context = (
            ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._kept
        )
        return launch, get_context, set_context
