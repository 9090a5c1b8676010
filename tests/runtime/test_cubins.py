"""Machine code on disk: what is read is what was written, for just that request, or nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from fusewright.records import replace
from fusewright.runtime import cubins
from fusewright.runtime.cubins import CompileRequest, Cubin

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
    return list(cubins.folder().iterdir())


def test_what_is_written_is_read() -> None:
    assert cubins.read(REQUEST) is None
    cubins.write(REQUEST, CUBIN)
    assert cubins.read(REQUEST) == CUBIN
    assert cubins.read(CompileRequest.from_json(REQUEST.to_json())) == CUBIN
    assert cubins.folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "change",
    [
        {"name": "triton_sub"}, {"source": "import triton"}, {"signature": {"in0": "*fp64"}},
        {"blocks": {"XBLOCK": 64}}, {"architecture": 80}, {"warps": 8}, {"debug": True},
        {"aligned": 0},
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
        monkeypatch.setattr(cubins, "FORMAT", 0)
    assert cubins.read(REQUEST) is None
    cubins._compilers_identity.cache_clear()


def test_a_file_in_another_format_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = CUBIN.to_bytes()
    monkeypatch.setattr(cubins, "FORMAT", 0)
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
    cubins.folder().write_text("no folder")
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
