"""Where generated code is kept as files, which tracebacks and Triton read."""

from __future__ import annotations

import atexit
import getpass
import os
import shutil
import stat
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path


def generated_folder() -> Path:
    """A private folder: `FUSEWRIGHT_CACHE_DIR`, or one a user in the system's temporary folder.
    Where another user may write to it, or nobody can make it, it is a temporary one of this
    process, and there is a warning.
    """
    folder = configured_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(folder.stat()):
            return folder
        reason = "another user may write to it, and so decide what runs here"
    except OSError as error:
        reason = error.strerror or type(error).__name__
    return _folder_of_this_process(folder, reason)


def configured_folder() -> Path:
    """The folder that this user's processes share, which may be absent or unusable."""
    chosen = os.environ.get("FUSEWRIGHT_CACHE_DIR")
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"fusewright_{_user()}"


def is_private(status: os.stat_result) -> bool:
    """Whether nobody but this user can have written a file, or may write to a folder."""
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _folder_of_this_process(unusable: Path, reason: str) -> Path:
    warnings.warn(
        f"fusewright: nothing is kept in {unusable}: {reason}\n"
        "  later processes compile again. Set FUSEWRIGHT_CACHE_DIR to a folder that is yours "
        "alone; `fusewright doctor` looks at it",
        RuntimeWarning,
        stacklevel=2,
    )
    folder = Path(tempfile.mkdtemp(prefix="fusewright_"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # and not one that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def write_once(path: Path, text: str) -> Path:
    """Write a file unless it is there, with this text, and return where it is: in a folder of this
    process where its own cannot be written to. OSError: there is no room anywhere.
    """
    try:
        with suppress(FileNotFoundError):
            if path.read_bytes() == text.encode():
                os.utime(path)
                return path
        write_whole(path, text.encode())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        path = _folder_of_this_process(path.parent, reason) / path.name
        write_whole(path, text.encode())
    return path


def write_whole(path: Path, *parts: bytes) -> None:
    """Write through a temporary file, so that no other process reads half of it and none is left
    half written. OSError: it cannot be written.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
