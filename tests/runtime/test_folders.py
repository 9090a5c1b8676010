"""Where generated code is kept: never where another user decides what is in it, never half."""

from __future__ import annotations

import errno
import os
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusewright.runtime import folders
from fusewright.runtime.folders import generated_folder, write_once
from fusewright.runtime.kept_files import KeptFiles
from fusewright.runtime.loader import load_module

Patch = pytest.MonkeyPatch
KEPT = KeptFiles("things", ".thing")


@pytest.fixture(autouse=True)
def _folder(monkeypatch: Patch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    folders._folder_of_this_process.cache_clear()
    yield
    folders._folder_of_this_process.cache_clear()


def replaced(folder: Path, reason: str) -> None:
    """Another folder is used, with one warning."""
    with pytest.warns(RuntimeWarning, match=f"nothing is kept in {folder}: .*{reason}"):
        other = generated_folder()
    assert other != folder and other.stat().st_mode & 0o777 == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert generated_folder() == other


def test_a_folder_is_private(tmp_path: Path) -> None:
    assert generated_folder() == tmp_path / "cache"
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    replaced(tmp_path / "cache", "another user may write to it")
    KEPT.write("a", b"content")
    assert list((tmp_path / "cache").iterdir()) == []
    assert KEPT.read("a") == b"content"


def test_a_folder_of_another_user_is_not_used(monkeypatch: Patch, tmp_path: Path) -> None:
    generated_folder()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    replaced(tmp_path / "cache", "another user may write to it")


def test_a_link_to_a_folder_of_others_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "theirs").chmod(0o777)
    (tmp_path / "cache").symlink_to(tmp_path / "theirs")
    replaced(tmp_path / "cache", "another user may write to it")


def test_a_folder_that_cannot_be_made_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    replaced(tmp_path / "cache", "another user|File exists|Not a directory")


def test_a_file_under_the_name_of_another_is_missing() -> None:
    KEPT.write("a", b"one")
    KEPT.write("b", b"two")
    KEPT.path("a").rename(KEPT.path("b"))
    assert KEPT.read("b") is None and KEPT.read("a") is None


def test_a_planted_source_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "source.py"
    path.write_text("import os")
    assert write_once(path, "x = 1") == path
    assert path.read_text() == "x = 1"


def full(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_no_half_file(monkeypatch: Patch, tmp_path: Path) -> None:
    generated_folder()
    monkeypatch.setattr(os, "replace", full)
    KEPT.write("a", b"content")
    assert KEPT.read("a") is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_module_that_cannot_be_written_is_loaded_and_shown(monkeypatch: Patch) -> None:
    """Its lines stand in tracebacks all the same."""
    monkeypatch.setattr(os, "replace", full)
    text = "def call(inputs):\n    raise ValueError('planted')  # in memory alone\n"
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        module = load_module(text, {})
    assert not module.path.exists()
    try:
        module.call([])
    except ValueError:
        assert "# in memory alone" in traceback.format_exc()


def test_a_folder_that_is_only_read(monkeypatch: Patch) -> None:
    """Modules go to a folder of this process; what was kept before is found."""
    KEPT.write("a", b"content")
    real = folders.write_whole
    shared = generated_folder()

    def refuse(path: Path, *parts: bytes) -> None:
        if path.is_relative_to(shared):
            raise PermissionError(errno.EACCES, "Permission denied")
        real(path, *parts)

    monkeypatch.setattr(folders, "write_whole", refuse)
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        module = load_module("def call(inputs):\n    return ()\n", {})
    assert module.path.exists() and not module.path.is_relative_to(shared)
    assert KEPT.read("a") == b"content"
