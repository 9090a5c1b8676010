"""Generated C++, compiled by g++ and called: what the target `cpp` runs."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import torch

from fusewright.errors import FusewrightError, NanFound, WrongLayout
from fusewright.runtime.debug_printer import keep_tensor
from fusewright.torch_compat.handles import delete, handles_of, tensor_of

SOURCES: Final = Path(__file__).parents[1] / "native" / "standalone"
"""Where the header of generated C++ is, and the C files that it is linked with."""

C_FILES: Final = ("package_torch", "kernel_launch")

MESSAGE_BYTES: Final = 4000


class _Kind(IntEnum):
    """`FusewrightKind` of the header."""

    NONE = 0
    TENSOR = 1
    INTEGER = 2
    REAL = 3
    BOOLEAN = 4


_ERRORS: Final[dict[int, type[Exception]]] = {2: IndexError, 3: NanFound, 4: WrongLayout}
"""Exceptions by `FusewrightError` of the header; others are RuntimeError."""


class CppNotCompiled(FusewrightError):
    """g++ is not there, or refuses generated C++; says why."""


class _Value(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int64),
        ("tensor", ctypes.c_void_p),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
    )


_PRINT = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_SAVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


class _Host(ctypes.Structure):
    _fields_ = (("print", _PRINT), ("save", _SAVE))


def compiler() -> str:
    """The C++ compiler: `CXX`, or g++. CppNotCompiled: there is none."""
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name)
    if path is None:
        raise CppNotCompiled(f"the target cpp needs a C++ compiler, and there is no {name!r}")
    return path


def load_cpp(
    text: str, object_code: bytes, constants: Sequence[torch.Tensor], outputs: int
) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The function of a generated C++ module, which takes one list, clears it, and returns a tuple
    of so many `outputs`. `object_code`: that of its kernels. CppNotCompiled: g++ refuses it.
    """
    with tempfile.TemporaryDirectory(prefix="fusewright") as name:
        folder = Path(name)
        (folder / "module.cpp").write_text(text)
        objects = [*_support(compiler())]
        if object_code:
            (folder / "kernels.o").write_bytes(object_code)
            objects.append(folder / "kernels.o")
        library = folder / "module.so"
        torch_libraries = Path(torch.__file__).parent / "lib"
        _run(
            [
                *(compiler(), "-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"),
                *(f"-I{SOURCES}", folder / "module.cpp", *objects, "-o", library, "-lm"),
                *(f"-L{torch_libraries}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"),
            ]
        )
        loaded = ctypes.CDLL(str(library))
    if hasattr(loaded, "fusewright_set_host"):
        loaded.fusewright_set_host(_HOST)
    run = loaded.fusewright_run
    kept = handles_of(constants)

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        given, held = _as_values(inputs, kept)
        inputs.clear()
        results, message = (_Value * outputs)(), ctypes.create_string_buffer(MESSAGE_BYTES)
        try:
            code = run(
                given, ctypes.c_size_t(len(given)), results, ctypes.c_size_t(outputs),
                message, ctypes.c_size_t(MESSAGE_BYTES),
            )  # fmt: skip
        finally:
            _delete_all(held)
        if code:
            raise _ERRORS.get(code, RuntimeError)(message.value.decode(errors="replace"))
        return tuple([_from_value(value) for value in results])

    weakref.finalize(call, _delete_all, kept).atexit = False
    return call


@functools.cache
def _support(path: str) -> tuple[Path, ...]:
    """The objects of the C files, compiled once a process."""
    folder = tempfile.TemporaryDirectory(prefix="fusewright")
    atexit.register(folder.cleanup)
    objects = []
    for name in C_FILES:
        source, target = SOURCES / f"{name}.c", Path(folder.name) / f"{name}.o"
        flags = ("-x", "c", "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden")
        _run([path, *flags, "-c", source, "-o", target])
        objects.append(target)
    return tuple(objects)


def _run(command: Sequence[Any]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CppNotCompiled(f"{command[0]} refuses generated C++:\n{done.stderr[-3000:]}")


def _delete_all(handles: Sequence[int]) -> None:
    for handle in handles:
        delete(handle)


def _as_values(inputs: Sequence[Any], constants: Sequence[int]) -> tuple[Any, list[int]]:
    """The inputs and the handles of constants as the module takes them, and the handles of inputs,
    which are to be deleted behind the call.
    """
    handles = handles_of([value for value in inputs if isinstance(value, torch.Tensor)])
    remaining = iter(handles)
    values = (_Value * (len(inputs) + len(constants)))()
    for place, value in enumerate(inputs):
        match value:
            case torch.Tensor():
                values[place] = _Value(_Kind.TENSOR, next(remaining), 0, 0.0)
            case float():
                values[place] = _Value(_Kind.REAL, None, 0, value)
            case _:
                values[place] = _Value(_Kind.INTEGER, None, int(value), 0.0)
    for place, handle in enumerate(constants, len(inputs)):
        values[place] = _Value(_Kind.TENSOR, handle, 0, 0.0)
    return values, handles


def _from_value(value: _Value) -> Any:
    match value.kind:
        case _Kind.TENSOR:
            return tensor_of(value.tensor)
        case _Kind.INTEGER:
            return value.integer
        case _Kind.REAL:
            return value.real
        case _Kind.BOOLEAN:
            return bool(value.integer)
    return None


# Debug prints -------------------------------------------------------------------------------------


def _print(text: bytes) -> None:
    sys.stdout.write(text.decode(errors="replace"))
    sys.stdout.flush()


def _save(folder: bytes, name: bytes, handle: int) -> int:
    try:
        target = Path(os.fsdecode(folder))
        target.mkdir(parents=True, exist_ok=True)
        keep_tensor(target, name.decode(), tensor_of(handle))
    except Exception:
        return 1
    return 0


_HOST: Final = _Host(_PRINT(_print), _SAVE(_save))
