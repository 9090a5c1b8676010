"""Kernels between guard pages: an access outside of a buffer stops the kernel and names itself.

```
                 FUSEWRIGHT_GUARD_PAGES=end                  =begin
    ┌──────────┬───────┬────────┬──────────┐  ┌──────────┬────────┬───────┬──────────┐
    │ no access│ 0xFF… │ buffer │ no access│  │ no access│ buffer │ 0xFF… │ no access│
    └──────────┴───────┴────────┴──────────┘  └──────────┴────────┴───────┴──────────┘
```

A launch copies what its tensors span into such memory, tensors that overlap into one, runs the
kernel on the copies, by the shares that threads would have but one after another, and copies back.
With `both` it runs twice, first as for `begin`.
Memory of tensors that the kernel only reads may not be written either. The bytes between a buffer
and the page on its other side are compared after the launch. Locals of kernels that are rows lie
between such pages too.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

from fusewright.errors import FusewrightError
from fusewright.native import CpuKernel
from fusewright.records import record
from fusewright.runtime.layouts import length_of
from fusewright.runtime.memory_checks import ALLOCATION, local_size

PAGE: Final = mmap.PAGESIZE
GUARD: Final = 1 << 32
"""Bytes on each side that may not be touched: addresses, not memory. An index that has wrapped
around in 32 bits does not pass them.
"""

NO_ACCESS, READ_ONLY, READ_AND_WRITE = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE

ARGUMENT = re.compile(r"%((?:in|out|inout)\d+) = load ptr, ptr %")
"""A tensor argument in a kernel's source, in order."""

STRUCTURES: dict[str, str] = {}
"""By kernel name: the text of its group, shown with a fault. Kept by the compiler in this mode."""


class MemoryFault(FusewrightError):
    """A generated kernel touched memory outside of its buffers: a bug of the compiler."""


@record(frozen=False)
class Statistics:
    """Counts of what ran between guard pages in this process."""

    launches: int = 0
    checked_bytes: int = 0
    """Bytes of the tensors and rows that kernels ran on."""


STATISTICS: Final = Statistics()


@record
class Argument:
    """A tensor that a kernel is given."""

    name: str
    tensor: torch.Tensor

    @property
    def address(self) -> int:
        return self.tensor.data_ptr()

    @property
    def span(self) -> int:
        """Bytes from its first element to the end of its last."""
        return length_of(self.tensor) * self.tensor.element_size()

    @property
    def is_read_only(self) -> bool:
        return re.fullmatch(r"in\d+", self.name) is not None

    def __str__(self) -> str:
        dtype = str(self.tensor.dtype).removeprefix("torch.")
        size, stride = tuple(self.tensor.shape), self.tensor.stride()
        return f"{self.name} ({dtype}, size {size}, strides {stride}, {self.span} bytes)"


class GuardedMemory:
    """So many bytes that end (or begin) where a page that may not be touched begins (or ends)."""

    def __init__(self, size: int, side: str) -> None:
        self.size = size
        inside = -(-size // PAGE) * PAGE
        self._whole = GUARD + inside + GUARD
        self._start: int = _check(
            _LIBC.mmap(None, self._whole, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        )
        self._inside = (self._start + GUARD, inside)
        self.protect(READ_AND_WRITE)
        ctypes.memset(self._inside[0], 0xFF, inside)
        self.address = self._inside[0] + (inside - size if side == "end" else 0)

    def protect(self, access: int) -> None:
        """Allow this access to what lies between the guard pages."""
        first, size = self._inside
        _check(_LIBC.mprotect(first, size, access))

    def holds(self, address: int) -> bool:
        """Whether an address lies here, or on the guard pages."""
        return self._start <= address < self._start + self._whole

    def first_change_outside(self) -> int | None:
        """Address of the first byte beside the buffer, before the guard pages, that was written."""
        first, size = self._inside
        for start, stop in ((first, self.address), (self.address + self.size, first + size)):
            content = ctypes.string_at(start, stop - start)
            if content.strip(b"\xff"):
                return stop - len(content.lstrip(b"\xff"))
        return None

    def release(self) -> None:
        _check(_LIBC.munmap(self._start, self._whole))


class OverlappingArguments(GuardedMemory):
    """Copies of arguments that overlap, laid out as they are."""

    def __init__(self, arguments: Sequence[Argument], side: str) -> None:
        self.arguments = arguments
        self.first = min(argument.address for argument in arguments)
        last = max(argument.address + argument.span for argument in arguments)
        widest = max(argument.tensor.element_size() for argument in arguments)
        # Elements stay aligned: a byte or so past the end may then be no fault, but is compared.
        super().__init__(last - self.first + (self.first - last) % widest, side)
        self._bytes = last - self.first
        self._is_read_only = all(argument.is_read_only for argument in arguments)
        ctypes.memmove(self.address, self.first, self._bytes)
        if self._is_read_only:
            self.protect(READ_ONLY)

    def address_of(self, argument: Argument) -> int:
        return self.address + argument.address - self.first

    def copy_back(self) -> None:
        if not self._is_read_only:
            ctypes.memmove(self.first, self.address, self._bytes)

    def place(self, address: int) -> str:
        """Where an address lies, beside the nearest of the arguments."""

        def distance(argument: Argument) -> int:
            offset = address - self.address_of(argument)
            return max(-offset, offset - argument.span + 1)

        nearest = min(self.arguments, key=distance)
        offset = address - self.address_of(nearest)
        return _place(offset, nearest.span, str(nearest))


def _place(offset: int, size: int, what: str) -> str:
    if offset < 0:
        return f"byte {offset} of {what}, before its beginning"
    if offset >= size:
        return f"byte {offset} of {what}, {offset - size + 1} past its last"
    return f"byte {offset} of {what}, which it may not write,"


class GuardedKernel:
    """Calls a kernel as `CpuKernel` does, on copies of its tensors between guard pages."""

    def __init__(self, kernel: CpuKernel, source: str, side: str) -> None:
        names = ARGUMENT.findall(source)
        if len(names) != kernel.tensor_count:
            names = [f"argument {number}" for number in range(kernel.tensor_count)]
        self.kernel = kernel
        self.names = names
        self.sides = ("begin", "end") if side == "both" else (side,)

    def __call__(self, *arguments: Any) -> None:
        """Raises: MemoryFault; and what the kernel itself does, with nothing copied back."""
        *operands, iterations, grain = arguments
        count = self.kernel.tensor_count
        tensors = [*map(Argument, self.names, operands[:count])]
        with _ONE_AT_A_TIME:
            for side in self.sides:
                _LOCALS.side = side
                regions = [
                    OverlappingArguments(overlapping, side) for overlapping in _overlapping(tensors)
                ]
                try:
                    self._run(tensors, regions, operands[count:], _shares(iterations, grain))
                    if side == self.sides[-1]:
                        for region in regions:
                            region.copy_back()
                finally:
                    for region in regions:
                        region.release()
                STATISTICS.launches += 1
                STATISTICS.checked_bytes += sum(region.size for region in regions)

    def _run(
        self,
        tensors: Sequence[Argument],
        regions: Sequence[OverlappingArguments],
        numbers: Sequence[int | float],
        shares: Iterator[tuple[int, int]],
    ) -> None:
        by_argument = {id(a): region for region in regions for a in region.arguments}
        addresses = [by_argument[id(argument)].address_of(argument) for argument in tensors]
        slots = struct.pack(
            "".join("d" if isinstance(number, float) else "q" for number in (*addresses, *numbers)),
            *addresses,
            *numbers,
        )
        memory = ctypes.create_string_buffer(slots)
        for begin, end in shares:
            try:
                touched = self.kernel.run_guarded(ctypes.addressof(memory), begin, end)
                if touched is not None:
                    raise self._fault("touched", touched, regions, begin, end)
                for buffer in (*regions, *_LOCALS.rows):
                    changed = buffer.first_change_outside()
                    if changed is not None:
                        raise self._fault("wrote", changed, regions, begin, end)
            finally:
                STATISTICS.checked_bytes += _LOCALS.end()

    def _fault(
        self, did: str, address: int, regions: Sequence[OverlappingArguments], begin: int, end: int
    ) -> MemoryFault:
        places = [region.place(address) for region in regions if region.holds(address)]
        places += [
            _place(address - row.address, row.size, f"its row {number} ({row.size} bytes)")
            for number, row in enumerate(_LOCALS.rows)
            if row.holds(address)
        ]
        far = f"address {address:#x}" if address else "an address that the processor does not tell"
        place = places[0] if places else f"{far}, far from its buffers,"
        structure = STRUCTURES.get(self.kernel.name, "")
        return MemoryFault(
            f"kernel {self.kernel.name} {did} {place} doing units {begin} to {end}\n{structure}"
        )


def _shares(iterations: int, grain: int) -> Iterator[tuple[int, int]]:
    """The units of work of each thread, as the launcher divides them."""
    team = max(1, min((iterations - 1) // grain + 1, torch.get_num_threads()))
    share = -(-iterations // team)
    for begin in range(0, iterations, max(share, 1)):
        yield begin, min(begin + share, iterations)


def _overlapping(arguments: Sequence[Argument]) -> list[list[Argument]]:
    """The arguments in groups that share bytes."""
    groups: list[list[Argument]] = []
    end = 0
    for argument in sorted(arguments, key=lambda argument: argument.address):
        if groups and argument.address < end:
            groups[-1].append(argument)
        else:
            groups.append([argument])
            end = argument.address
        end = max(end, argument.address + argument.span)
    return groups


# Locals -------------------------------------------------------------------------------------------


class _Locals:
    """Memory of the rows of the kernel that runs now."""

    def __init__(self) -> None:
        self.rows: list[GuardedMemory] = []
        self.side = "end"
        self._function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(self._make)
        self.maker: int = ctypes.cast(self._function, ctypes.c_void_p).value or 0
        """Address of a C function from a number of bytes to their address."""

    def _make(self, size: int) -> int:
        self.rows.append(GuardedMemory(size, self.side))
        return self.rows[-1].address

    def end(self) -> int:
        """Release all; how many bytes they were."""
        size = sum(row.size for row in self.rows)
        for row in self.rows:
            row.release()
        self.rows.clear()
        return size


def with_guarded_rows(source: str) -> str:
    """A kernel's source whose locals of several elements lie between guard pages."""

    def guarded(match: re.Match[str]) -> str:
        local, count = match[1], match[3]
        if count is None:
            return match[0]
        maker = f"inttoptr (i64 {_LOCALS.maker} to ptr)"
        return f"{local_size(match)}\n  {local} = call ptr {maker}(i64 {local}.size)"

    return ALLOCATION.sub(guarded, source)


# The C library ------------------------------------------------------------------------------------


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.argtypes = (address, size, number, number, number, ctypes.c_long)
    library.mmap.restype = ctypes.c_ssize_t
    library.mprotect.argtypes = (address, size, number)
    library.munmap.argtypes = (address, size)
    return library


def _check(result: int) -> int:
    """The result of a function of the C library. OSError: it failed."""
    if result == -1:
        raise OSError(ctypes.get_errno(), "memory for guard pages")
    return result


_LIBC: Final = _library()
_LOCALS: Final = _Locals()
_ONE_AT_A_TIME: Final = threading.Lock()
"""Held during a launch: handlers of signals belong to the process."""
