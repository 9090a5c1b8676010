"""The file of a package: named sections of bytes behind a table of them, with digests of all.

    16 bytes   "fusewright pkg", and the version of this format, two bytes
     8 bytes   size of the table
     8 bytes   size of the file
    32 bytes   the signature: HMAC-SHA-256 of the table under the user's key; zeros without one
    32 bytes   SHA-256 of all of the above and of the table
    table      JSON, then the sections, each from a multiple of 64 bytes on

Of each section the table holds a SHA-256 and a checksum, filling behind it included. The checksum,
which is as fast as reading, finds damage; where the user gives a key, the SHA-256 is looked at too.
Integers are little-endian. Nothing in the file is run, or imported, by reading it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from fusewright.errors import PackageRefused
from fusewright.native import checksum
from fusewright.records import record

MAGIC: Final = b"fusewright pkg"
FORMAT: Final = 3
ALIGNMENT: Final = 64

_HEAD: Final = struct.Struct("<14sHQQ32s")
_DIGEST: Final = 32
_BEGIN: Final = _HEAD.size + _DIGEST
"""Where the table stands."""

Section = bytes | memoryview


def write_package(
    path: Path, manifest: Mapping[str, Any], sections: Iterable[tuple[str, Section]], key: bytes
) -> None:
    """Write a package to `path`: through a file beside it, so that there is never half of one.

    `key`: signs it, where it is not empty. Raises: OSError, where it cannot be written.
    """
    path = path.absolute()
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, manifest, list(sections), key)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write(
    file: BinaryIO,
    manifest: Mapping[str, Any],
    sections: list[tuple[str, Section]],
    key: bytes,
) -> None:
    rows = [_row(name, content) for name, content in sections]
    table = b""
    while True:  # The table holds offsets behind itself: its size settles in a few rounds.
        begin = _aligned(_BEGIN + len(table))
        offset = begin
        for row in rows:
            row["offset"] = offset
            offset += _aligned(row["size"])
        written = json.dumps({**manifest, "sections": rows}, separators=(",", ":")).encode()
        if len(written) <= len(table):
            table = written.ljust(len(table))
            break
        table = written.ljust(_aligned(len(written) + ALIGNMENT))
    signature = _signature(key, table)
    head = _HEAD.pack(MAGIC, FORMAT, len(table), offset, signature)
    file.write(head + hashlib.sha256(head + table).digest() + table)
    file.write(bytes(begin - _BEGIN - len(table)))
    for _, content in sections:
        file.write(content)
        file.write(bytes(_aligned(len(content)) - len(content)))


def _row(name: str, content: Section) -> dict[str, Any]:
    size = len(content)
    digest = hashlib.sha256(content)
    digest.update(bytes(_aligned(size) - size))
    whole = size // ALIGNMENT * ALIGNMENT
    rest = bytes(content[whole:]).ljust(_aligned(size) - whole, b"\0")
    sums = checksum(content[:whole]).hex() + checksum(rest).hex()
    return {"name": name, "size": size, "sha256": digest.hexdigest(), "checksum": sums}


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _signature(key: bytes, table: bytes) -> bytes:
    return hmac.digest(key, table, "sha256") if key else bytes(32)


# Reading ------------------------------------------------------------------------------------------


@record
class PackageFile:
    """A package's table, and its sections in memory that the file is mapped to."""

    path: Path
    manifest: Mapping[str, Any]
    memory: mmap.mmap
    """A private mapping of the whole file: writing to it changes no file."""

    places: Mapping[str, tuple[int, int]]
    """By section, its offset and its size."""

    def section(self, name: str) -> memoryview:
        """The bytes of a section. PackageRefused: there is none of this name."""
        if name not in self.places:
            raise PackageRefused(str(self.path), f"it has no section {name!r}")
        offset, size = self.places[name]
        return memoryview(self.memory)[offset : offset + size]


def read_package(path: Path, key: bytes) -> PackageFile:
    """Open a package and check that it is whole; with a key, also that it was signed with that.

    Raises: PackageRefused; OSError, where there is no such file.
    """
    with path.open("rb") as stream:
        status = os.fstat(stream.fileno())
        if not key:
            _check_writers(path, status)
        size = status.st_size
        if size < _BEGIN:
            raise PackageRefused(str(path), "it is no package, or was cut off")
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    magic, version, table_size, file_size, signature = _HEAD.unpack_from(memory)
    if magic != MAGIC:
        raise PackageRefused(str(path), "it is no package")
    if version != FORMAT:
        raise PackageRefused(
            str(path), f"it is of format {version}, and this fusewright reads format {FORMAT}"
        )
    if file_size != size or table_size > size - _BEGIN:
        raise PackageRefused(str(path), f"it has {size} bytes of {file_size}: it was cut off")
    table = memory[_BEGIN : _BEGIN + table_size]
    head = memory[: _HEAD.size]
    if hashlib.sha256(head + table).digest() != memory[_HEAD.size : _BEGIN]:
        raise PackageRefused(str(path), "its table is damaged")
    _check_signature(path, key, table, signature)
    manifest = json.loads(table)
    places = {row["name"]: (row["offset"], row["size"]) for row in manifest["sections"]}
    file = PackageFile(path, manifest, memory, places)
    begin = _BEGIN + table_size
    for row in manifest["sections"]:
        if any(memory[begin : row["offset"]]):
            raise PackageRefused(str(path), "it is damaged between its sections")
        _check_section(file, row, bool(key))
        begin = row["offset"] + _aligned(row["size"])
    if begin != size:
        raise PackageRefused(str(path), "its sections do not fill it")
    return file


def _check_writers(path: Path, status: os.stat_result) -> None:
    """PackageRefused: any user of this machine may have put another file there, whose code would
    run as this user. In a sticky folder, such as /tmp, only a file's owner may: this user or root.
    """
    remedy = "take that right away (chmod o-w), or sign the package and pass its key"
    if status.st_mode & stat.S_IWOTH:
        raise PackageRefused(str(path), f"every user may write to it: {remedy}")
    for folder in {path.absolute().parent, path.resolve().parent}:
        of_folder = folder.stat()
        is_safe = of_folder.st_mode & stat.S_ISVTX and status.st_uid in (0, os.geteuid())
        if of_folder.st_mode & stat.S_IWOTH and not is_safe:
            raise PackageRefused(
                str(path), f"every user may put a package there, in {folder}: {remedy}"
            )


def _check_signature(path: Path, key: bytes, table: bytes, signature: bytes) -> None:
    if not key:
        return
    if not any(signature):
        raise PackageRefused(str(path), "a key was given, and it is not signed")
    if not hmac.compare_digest(_signature(key, table), signature):
        raise PackageRefused(str(path), "it was signed with another key, or changed since")


def _check_section(file: PackageFile, row: Mapping[str, Any], is_signed: bool) -> None:
    offset, size = row["offset"], row["size"]
    whole = size // ALIGNMENT * ALIGNMENT
    padded = memoryview(file.memory)[offset : offset + _aligned(size)]
    sums = checksum(padded[:whole]).hex() + checksum(padded[whole:]).hex()
    is_right = sums == row["checksum"]
    if is_right and is_signed:
        is_right = hashlib.sha256(padded).hexdigest() == row["sha256"]
    if not is_right:
        raise PackageRefused(str(file.path), f"its section {row['name']!r} is damaged")
