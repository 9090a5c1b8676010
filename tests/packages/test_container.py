"""The file of a package: whole or refused, whichever bit is wrong; written whole or not at all."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fusewright.errors import PackageRefused
from fusewright.packages.container import read_package, write_package

SECTIONS = [("first", b"abc"), ("empty", b""), ("large", bytes(range(256)) * 5), ("end", b"x" * 64)]


def written(path: Path, key: bytes = b"") -> Path:
    write_package(path, {"what": "a test"}, SECTIONS, key)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = read_package(written(tmp_path / "p"), b"")
    assert file.manifest["what"] == "a test"
    assert {name: bytes(file.section(name)) for name in file.places} == dict(SECTIONS)
    assert all(offset % 64 == 0 for offset, _ in file.places.values())
    with pytest.raises(PackageRefused, match="no section 'other'"):
        file.section("other")


@pytest.mark.parametrize("key", [b"", b"secret"])
def test_every_flipped_bit_is_refused_by_name(tmp_path: Path, key: bytes) -> None:
    path = written(tmp_path / "p", key)
    content = path.read_bytes()
    damaged = tmp_path / "damaged"
    places = [*range(96), *range(96, len(content), 7)]  # all of the head, and samples of the rest
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << random.Random(place).randrange(8)
        damaged.write_bytes(flipped)
        with pytest.raises(PackageRefused, match=str(damaged)):
            read_package(damaged, key)


def test_every_truncation_is_refused_by_name(tmp_path: Path) -> None:
    content = written(tmp_path / "p").read_bytes()
    damaged = tmp_path / "damaged"
    for size in range(0, len(content), 7):
        damaged.write_bytes(content[:size])
        with pytest.raises(PackageRefused, match=r"cut off|no package"):
            read_package(damaged, b"")
    damaged.write_bytes(content + b"\0")
    with pytest.raises(PackageRefused, match="cut off"):
        read_package(damaged, b"")


def test_signatures(tmp_path: Path) -> None:
    signed, plain = written(tmp_path / "signed", b"secret"), written(tmp_path / "plain")
    assert read_package(signed, b"secret").manifest == read_package(signed, b"").manifest
    with pytest.raises(PackageRefused, match="signed with another key"):
        read_package(signed, b"other")
    with pytest.raises(PackageRefused, match="it is not signed"):
        read_package(plain, b"secret")


def test_another_format_is_refused(tmp_path: Path) -> None:
    content = bytearray(written(tmp_path / "p").read_bytes())
    content[14] = 9
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(PackageRefused, match="it is of format 9, and this fusewright reads"):
        read_package(tmp_path / "p", b"")


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_package(tmp_path / "p", {}, ((str(1 // n), b"") for n in (1, 0)), b"")
    before = written(tmp_path / "p").read_bytes()

    class Full(bytes):
        def __len__(self) -> int:
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_package(tmp_path / "p", {}, [("a", Full(b"x"))], b"")
    assert os.listdir(tmp_path) == ["p"] and (tmp_path / "p").read_bytes() == before
    with pytest.raises(FileNotFoundError):
        written(tmp_path / "no" / "folder")


WRITER = """
import os, sys
from pathlib import Path
from fusewright.packages.container import write_package

if os.geteuid() == 0 and sys.argv[2] == "as nobody":
    os.setresuid(65534, 65534, 65534)
try:
    write_package(Path(sys.argv[1]), {}, [("a", bytes(1 << 20))], b"")
except OSError as error:
    print(type(error).__name__, error.errno)
"""


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    """The folder is a disk of 64 KiB; the file that was there stays."""
    shell = (
        'mount -t tmpfs -o size=64k none "$1" && echo old > "$1/p" && '
        '"$2" -c "$3" "$1/p" "" && ls -A "$1" && cat "$1/p"'
    )
    arguments = ["sh", "-c", shell, "sh", tmp_path, sys.executable, WRITER]
    alone = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("needs a mount of its own")
    done = subprocess.run([*alone, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == f"OSError {errno.ENOSPC}\np\nold\n"


def test_a_folder_without_permission_is_left_alone() -> None:
    with tempfile.TemporaryDirectory() as name:  # that of other tests is closed to nobody
        folder = Path(name)
        (folder / "p").write_text("old")
        folder.chmod(0o555)
        arguments = [sys.executable, "-c", WRITER, folder / "p", "as nobody"]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd="/")
        assert done.stdout == f"PermissionError {errno.EACCES}\n"
        assert os.listdir(folder) == ["p"] and (folder / "p").read_text() == "old"
        folder.chmod(0o700)


def in_folder(tmp_path: Path, key: bytes = b"") -> Path:
    """A package in a folder of its own."""
    (tmp_path / "inner").mkdir()
    return written(tmp_path / "inner" / "p", key)


def test_what_every_user_may_write_to_is_refused(tmp_path: Path) -> None:
    path = in_folder(tmp_path)
    path.chmod(0o666)
    with pytest.raises(PackageRefused, match=r"every user may write to it: .*chmod o-w"):
        read_package(path, b"")
    path.chmod(0o664)  # A group is of the owner's choice.
    path.parent.chmod(0o775)
    assert bytes(read_package(path, b"").section("first")) == b"abc"
    path.parent.chmod(0o777)
    words = f"every user may put a package there, in {path.parent}"
    with pytest.raises(PackageRefused, match=words):
        read_package(path, b"")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(PackageRefused, match=words):
        read_package(tmp_path / "link", b"")


def test_a_signed_package_may_lie_anywhere(tmp_path: Path) -> None:
    path = in_folder(tmp_path, b"key")
    path.parent.chmod(0o777)
    assert bytes(read_package(path, b"key").section("first")) == b"abc"


def test_files_of_others_in_a_sticky_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = in_folder(tmp_path)
    path.parent.chmod(0o1777)
    assert bytes(read_package(path, b"").section("first")) == b"abc"
    if os.getuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PackageRefused, match="every user may put a package there"):
        read_package(path, b"")
