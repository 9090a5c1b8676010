"""Machine code on disk: what is read is what was written, for just that request, or nothing."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path

import pytest

from fusewright.records import replace
from fusewright.runtime import cubins, gpu_code, kept_files
from fusewright.runtime.cubins import CompileRequest
from fusewright.runtime.gpu_code import Cubin
from tests.threads import in_threads

REQUEST = CompileRequest(
    name="triton_add",
    source="import triton\n",
    signature={"in0": "*fp32", "XBLOCK": "constexpr"},
    blocks={"XBLOCK": 128},
    architecture=90,
    warps=4,
    debug=False,
    aligned=1,
)
CUBIN = Cubin(
    code=b"\x7fELF\n\x00\n", function="f", warps=4, shared_bytes=9, parameters=3, scratch_bytes=0
)


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))


def files() -> list[Path]:
    return list(cubins.FILES.folder().iterdir())


def test_what_is_written_is_read() -> None:
    assert cubins.read(REQUEST) is None
    cubins.write(REQUEST, CUBIN)
    assert cubins.read(REQUEST) == CUBIN
    assert cubins.read(CompileRequest.from_json(REQUEST.to_json())) == CUBIN
    assert cubins.FILES.folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "change",
    [
        {"name": "triton_sub"}, {"source": "import triton"}, {"signature": {"in0": "*fp64"}},
        {"blocks": {"XBLOCK": 64}}, {"architecture": 80}, {"warps": 8}, {"debug": True},
        {"aligned": 0}, {"stages": 2},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_another_request_is_not_answered(change: dict[str, object]) -> None:
    cubins.write(REQUEST, CUBIN)
    assert cubins.read(replace(REQUEST, **change)) is None


@pytest.mark.parametrize("what", ["triton", "format"])
def test_nor_one_to_another_compiler(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cubins.write(REQUEST, CUBIN)
    cubins._compilers_identity.cache_clear()
    if what == "triton":
        monkeypatch.setattr(cubins.importlib.metadata, "version", lambda name: "0.1")
    else:
        monkeypatch.setattr(gpu_code, "FORMAT", 0)
    assert cubins.read(REQUEST) is None
    cubins._compilers_identity.cache_clear()


def test_a_file_in_another_format_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = CUBIN.to_bytes()
    monkeypatch.setattr(gpu_code, "FORMAT", 0)
    assert Cubin.from_bytes(data) is None


def test_a_damaged_file_is_missing() -> None:
    cubins.write(REQUEST, CUBIN)
    (path,) = files()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert cubins.read(REQUEST) is None
    path.write_bytes(whole.replace(b"ELF", b"ELG"))
    assert cubins.read(REQUEST) is None
    path.write_bytes(b"[]\n")
    assert cubins.read(REQUEST) is None
    cubins.write(REQUEST, CUBIN)
    assert cubins.read(REQUEST) == CUBIN


def test_a_file_that_others_may_write_is_missing() -> None:
    cubins.write(REQUEST, CUBIN)
    (path,) = files()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o660)
    assert cubins.read(REQUEST) is None


def test_what_cannot_be_written_is_compiled_again(tmp_path: Path) -> None:
    cubins.FILES.folder().write_text("no folder")
    cubins.write(REQUEST, CUBIN)
    assert cubins.read(REQUEST) is None


def test_many_may_write_at_a_time() -> None:
    large = replace(CUBIN, code=bytes(1 << 20))
    found: list[Cubin | None] = []

    def work() -> None:
        for _ in range(5):
            cubins.write(REQUEST, large)
            found.append(cubins.read(REQUEST))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [large] * 30
    assert len(files()) == 1


# Room ---------------------------------------------------------------------------------------------


def numbered(number: int) -> CompileRequest:
    return replace(REQUEST, name=f"k{number}")


def with_ages(count: int) -> None:
    """Write so many files, each an hour older than the one before."""
    for number in range(count):
        cubins.write(numbered(number), CUBIN)
        os.utime(cubins.FILES.path(cubins._key(numbered(number))), (0, 1e9 - 3600 * number))


def test_what_was_read_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with_ages(8)
    size = cubins.FILES.path(cubins._key(numbered(0))).stat().st_size
    assert cubins.read(numbered(7)) == CUBIN  # Now it is the youngest.
    monkeypatch.setattr(kept_files, "ROOM", 8 * size)
    cubins.FILES.prune()
    assert len(files()) == 8
    monkeypatch.setattr(kept_files, "ROOM", 8 * size - 1)
    monkeypatch.setattr(kept_files, "KEPT", 3 * size)
    cubins.FILES.prune()
    assert [n for n in range(8) if cubins.read(numbered(n)) is not None] == [0, 1, 7]


def test_writing_looks_at_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with_ages(4)
    monkeypatch.setattr(kept_files, "ROOM", 0)
    monkeypatch.setattr(kept_files, "KEPT", 0)
    monkeypatch.setattr(kept_files, "_WRITTEN", itertools.count(1))
    cubins.write(numbered(4), CUBIN)
    assert len(files()) == 5
    monkeypatch.setattr(kept_files, "_WRITTEN", itertools.count(kept_files.PRUNE_EVERY))
    cubins.write(numbered(5), CUBIN)
    assert files() == []


def test_what_a_killed_writer_left_goes_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    with_ages(1)
    left = cubins.FILES.folder() / "left.tmp"
    left.write_bytes(bytes(64))
    os.utime(left, (0, 0))
    monkeypatch.setattr(kept_files, "ROOM", 64)
    monkeypatch.setattr(
        kept_files, "KEPT", cubins.FILES.path(cubins._key(numbered(0))).stat().st_size
    )
    cubins.FILES.prune()
    assert not left.exists() and cubins.read(numbered(0)) == CUBIN


def test_many_prune_while_others_write_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is right or missing, and nobody fails."""
    monkeypatch.setattr(kept_files, "ROOM", 600)
    monkeypatch.setattr(kept_files, "KEPT", 300)
    monkeypatch.setattr(kept_files, "PRUNE_EVERY", 1)
    wrong: list[object] = []

    def work(_: int) -> None:
        for number in range(60):
            cubins.write(numbered(number % 7), CUBIN)
            cubin = cubins.read(numbered(number % 5))
            if cubin not in (None, CUBIN):
                wrong.append(cubin)

    in_threads(work, 4)
    assert wrong == []


def test_without_a_folder_nothing_is_pruned() -> None:
    cubins.FILES.prune()
    assert not cubins.FILES.folder().exists()
