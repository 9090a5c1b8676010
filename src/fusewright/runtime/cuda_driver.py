"""Machine code for GPUs, loaded through the CUDA driver: it needs no compiler where it runs, and no
library of the toolkit.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from fusewright.errors import FusewrightError
from fusewright.runtime.gpu_code import Cubin
from fusewright.runtime.multiprocessors import WARP

PLAIN_SHARED_BYTES: Final = 48 << 10
"""Shared memory that a kernel may have without asking for it."""

MOST_SHARED_BYTES: Final = 8
"""The driver's number of the attribute by which a kernel asks for more."""


RELAXED_CAPTURE: Final = 2
"""The driver's number of the mode of a thread in which nothing is forbidden while it records that
does no harm to other streams.
"""

WAITS_FOR_NO_OTHER: Final = 1
"""The driver's flag of a stream that is not in order with the default one, as torch's are not."""


class DriverRefused(FusewrightError):
    """The CUDA driver is not there, or did not do what it was asked; says what, and why."""


SHARED_BYTES_TO_ASK_FOR: Final = 97
"""The driver's number of the attribute of a GPU that says how much more."""


@functools.cache
def library() -> ctypes.CDLL:
    """The driver's library. DriverRefused: there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverRefused(f"the CUDA driver cannot be loaded: {error}") from error


@functools.cache
def launch_functions() -> tuple[int, int, int]:
    """The addresses of what launches kernels, and of what reads and sets a thread's context."""
    names = ("cuLaunchKernel", "cuCtxGetCurrent", "cuCtxSetCurrent")
    addresses = [ctypes.cast(getattr(library(), name), ctypes.c_void_p).value for name in names]
    launch, get_context, set_context = (address or 0 for address in addresses)
    return launch, get_context, set_context


def check(error: int, what: str) -> None:
    """DriverRefused, unless the driver returned 0."""
    if error == 0:
        return
    text = ctypes.c_char_p()
    library().cuGetErrorString(error, ctypes.byref(text))
    reason = text.value.decode() if text.value else "an unknown error"
    raise DriverRefused(f"{what}: {reason} (CUDA error {error})")


def _gpu(device: int) -> ctypes.c_int:
    """The driver's number of a GPU."""
    number = ctypes.c_int()
    check(library().cuInit(0), "starting CUDA")
    check(library().cuDeviceGet(ctypes.byref(number), device), f"finding GPU {device}")
    return number


@functools.cache
def shared_bytes(device: int) -> int:
    """The most shared memory that a kernel can have on a GPU."""
    count = ctypes.c_int()
    ask = library().cuDeviceGetAttribute
    error = ask(ctypes.byref(count), SHARED_BYTES_TO_ASK_FOR, _gpu(device))
    check(error, f"the shared memory of GPU {device}")
    return count.value


@functools.cache
def context(device: int) -> int:
    """The context of a GPU that torch uses, too. It lives as long as the process."""
    number, handle = _gpu(device), ctypes.c_void_p()
    retain = library().cuDevicePrimaryCtxRetain
    check(retain(ctypes.byref(handle), number), f"the context of GPU {device}")
    return handle.value or 0


@contextmanager
def current(wanted: int) -> Iterator[None]:
    """A context as this thread's current one."""
    before = ctypes.c_void_p()
    check(library().cuCtxGetCurrent(ctypes.byref(before)), "reading the context")
    check(library().cuCtxSetCurrent(ctypes.c_void_p(wanted)), "setting the context")
    try:
        yield
    finally:
        library().cuCtxSetCurrent(before)


@contextmanager
def while_recording() -> Iterator[None]:
    """A block in which this thread may do what waits for no stream though it records a CUDA graph,
    its own or one of the program, such as to load machine code: else that breaks the recording.
    """
    mode = ctypes.c_int(RELAXED_CAPTURE)
    exchange = library().cuThreadExchangeStreamCaptureMode
    check(exchange(ctypes.byref(mode)), "allowing what a recording forbids")
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))  # It holds what was so before.


_IDLE_STREAMS: Final[dict[int, list[torch.cuda.Stream]]] = defaultdict(list)
"""By GPU: those whose owner is gone. A stream is never destroyed: memory is kept by streams."""


def own_stream(owner: object, device: int) -> torch.cuda.Stream:
    """A stream of a GPU on which nothing runs but what `owner` puts there, as long as it lives:
    torch's own streams are 32, handed out in turn, so that two who ask may have the same one.
    """
    try:
        stream = _IDLE_STREAMS[device].pop()
    except IndexError:
        handle = ctypes.c_void_p()
        with current(context(device)), while_recording():
            create = library().cuStreamCreate
            check(create(ctypes.byref(handle), WAITS_FOR_NO_OTHER), f"a stream of GPU {device}")
        stream = torch.cuda.ExternalStream(handle.value or 0, device=device)
    weakref.finalize(owner, _IDLE_STREAMS[device].append, stream).atexit = False
    return stream


def load(device: int, code: bytes, name: str, shared_bytes: int) -> int:
    """The function `name` of machine code, on a GPU. It stays loaded as long as the process."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with current(context(device)), while_recording():
        check(library().cuModuleLoadData(ctypes.byref(module), code), f"loading {name}")
        find = library().cuModuleGetFunction
        check(find(ctypes.byref(function), module, name.encode()), f"finding {name}")
        if shared_bytes > PLAIN_SHARED_BYTES:
            ask = library().cuFuncSetAttribute
            error = ask(function, MOST_SHARED_BYTES, shared_bytes)
            check(error, f"{shared_bytes} bytes of shared memory for {name}")
    return function.value or 0


def prepare(device: int, cubin: Cubin, arguments: int) -> tuple[int, int, int, int, int]:
    """Load machine code for a GPU: its context and function, threads of a program, bytes of shared
    memory, and how many parameters stand behind the `arguments` of the kernel's source.
    """
    function = load(device, cubin.code, cubin.function, cubin.shared_bytes)
    hidden = cubin.parameters - arguments
    return context(device), function, WARP * cubin.warps, cubin.shared_bytes, hidden


def architecture_of(device: int) -> int:
    """The kind of a GPU: 90 for an H100."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor
