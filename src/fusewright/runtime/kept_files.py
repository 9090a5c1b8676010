"""Files that are kept on disk for later processes, by a key of all that decides what is in them.

A file is written whole, so that processes may share the folder. It begins with a digest of its key
and its content: one that is damaged, that has the name of another, or that another user could have
written counts as missing. Where the files of one kind come to more than `ROOM` bytes, those that
were not read for longest are removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from fusewright.runtime.folders import generated_folder, is_private, write_whole

ROOM: Final = 1 << 30
"""Bytes that files of one kind may come to: some ten thousand kernels."""

KEPT: Final = ROOM * 3 // 4
"""Bytes that are left when some have to go."""

PRUNE_EVERY: Final = 64
"""Files that a process writes between two looks at all of them; the first is one of those looks."""

LOCKS: Final = 64
"""Files that processes lock, so that one makes what others wait for: a key has one of these."""

_DIGEST_BYTES: Final = 32

_WRITTEN: Final = itertools.count()
"""How many files this process has written."""


class KeptFiles:
    """The files of one kind."""

    def __init__(self, name: str, suffix: str) -> None:
        self.name = name
        """The name of the folder that holds them."""

        self._suffix = suffix

    def folder(self) -> Path:
        """Where they are; it may be absent."""
        return generated_folder() / self.name

    def path(self, key: str) -> Path:
        """The file of a key, which may be absent."""
        return self.folder() / f"{key}{self._suffix}"

    def read(self, key: str, *, is_use: bool = True) -> bytes | None:
        """The content that was kept under a key; None where there is none that can be trusted.
        `is_use`: the file is kept for longer; a look at it for a report is none.
        """
        path = self.path(key)
        try:
            with path.open("rb") as file:
                content = file.read() if is_private(os.fstat(file.fileno())) else None
        except OSError:
            return None
        if content is None or content[:_DIGEST_BYTES] != _digest(key, content[_DIGEST_BYTES:]):
            return None
        if is_use:
            with suppress(OSError):  # A folder that is only read keeps what it has.
                os.utime(path)
        return content[_DIGEST_BYTES:]

    def write(self, key: str, content: bytes) -> None:
        """Keep a file. What cannot be written, on a full disk say, is made again."""
        try:
            path = self.path(key)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, _digest(key, content), content)
        except OSError:
            return
        if next(_WRITTEN) % PRUNE_EVERY == 0:
            self.prune()

    @contextmanager
    def making(self, key: str) -> Iterator[None]:
        """A block in which this process alone makes the file of a key, as far as locks can be had:
        others wait, and find it then.
        """
        try:
            folder = self.folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = sum(key.encode()) % LOCKS
            descriptor = os.open(folder / f"{number}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            yield
            return
        try:
            with suppress(OSError):  # Some file systems have no locks.
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            with suppress(OSError):  # A process that was forked meanwhile holds the file, too.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def prune(self) -> None:
        """Remove the files that were used longest ago, where all come to more than `ROOM`; also
        what processes that ended while they wrote left behind. Another process may remove the same.
        """
        remove_oldest(self._files(), ROOM, KEPT)

    def clear(self) -> None:
        """Remove all of them."""
        for _, _, path in self._files():
            with suppress(OSError):
                path.unlink()

    def size(self) -> tuple[int, int]:
        """How many there are, and their bytes."""
        sizes = [size for _, size, path in self._files() if path.suffix == self._suffix]
        return len(sizes), sum(sizes)

    def keys_on_disk(self) -> list[str]:
        """The keys of those that are there, in order."""
        return sorted(self.by_age())

    def by_age(self) -> list[str]:
        """Their keys; that of the file that was used longest ago comes first."""
        files = [(used, path) for used, _, path in self._files() if path.suffix == self._suffix]
        return [path.name.removesuffix(self._suffix) for _, path in sorted(files)]

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each was used last, its bytes and its path; locks left out."""
        return [file for file in files_of(self.folder()) if file[2].suffix != ".lock"]


def files_of(folder: Path) -> list[tuple[float, int, Path]]:
    """The files of a folder, which may be absent: when each was used last, its bytes, its path."""
    files: list[tuple[float, int, Path]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # Another process has removed it.
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, Path(entry.path)))
    return files


def remove_oldest(files: list[tuple[float, int, Path]], room: int, kept: int) -> None:
    """Remove the least recently used of the files until `kept` bytes are left, where all come to
    more than `room`. A file is given by the time of its last use, its bytes, and its path.
    """
    total = sum(size for _, size, _ in files)
    if total <= room:
        return
    for _, size, path in sorted(files):
        with suppress(OSError):
            path.unlink()
        total -= size
        if total <= kept:
            return


def _digest(key: str, content: bytes) -> bytes:
    """A digest of the key, too: a file under the name of another is other code."""
    digest = hashlib.blake2b(key.encode() + b"\0", digest_size=_DIGEST_BYTES)
    digest.update(content)
    return digest.digest()
