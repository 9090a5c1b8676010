"""Generated files: written once, left alone when nothing changed, never overwritten by surprise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusewright.errors import OperatorGenerationError
from fusewright.opgen import generate, write_files

YAML = "backend: npu\ncpp_namespace: npu\nsupported: [relu]\n"


def test_unchanged_files_are_left_alone(tmp_path: Path) -> None:
    files = generate(YAML)
    assert len(write_files(files, tmp_path / "new" / "folder")) == len(files)
    assert write_files(files, tmp_path / "new" / "folder") == []


def test_a_file_edited_by_hand_is_kept(tmp_path: Path) -> None:
    write_files(generate(YAML), tmp_path)
    edited = tmp_path / "RegisterNpu.cpp"
    edited.write_text(edited.read_text() + "// mine\n")
    other = tmp_path / "NpuKernels.h"
    before = other.read_text()
    changed = generate(YAML.replace("relu", "relu, mm"))
    with pytest.raises(OperatorGenerationError, match=r"RegisterNpu.cpp: was edited .* --force"):
        write_files(changed, tmp_path)
    assert other.read_text() == before  # all or none
    write_files(changed, tmp_path, force=True)
    assert "mine" not in edited.read_text()


@pytest.mark.parametrize("content", [b"\xff", None], ids=["not a text", "a folder"])
def test_what_stands_in_a_files_place_is_kept(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "NpuKernels.h"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(OperatorGenerationError, match=r"NpuKernels.h.*: (was not|cannot be)"):
        write_files(generate(YAML), tmp_path)
    assert path.is_dir() if content is None else path.read_bytes() == content


def test_a_file_of_somebody_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "NpuKernels.h").write_text("#pragma once\n")
    with pytest.raises(OperatorGenerationError, match=r"NpuKernels.h:1: was not generated"):
        write_files(generate(YAML), tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorGenerationError, match=r"file.*: cannot be"):
        write_files(generate(YAML), tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OperatorGenerationError, match="cannot be written: Permission denied"):
        write_files(generate(YAML), tmp_path)


def test_operators_are_spread_over_files(tmp_path: Path) -> None:
    units = ["RegisterNpu.cpp", "RegisterNpu_1.cpp", "RegisterNpu_2.cpp"]
    text = YAML.replace("relu", "relu, mm, add.Tensor")
    files = generate(text, targets=["cpp"], per_file=2)
    assert [name for name in files if name.startswith("Register")] == units
    for name in units[1:]:
        assert "TORCH_LIBRARY_IMPL(_" not in files[name]  # the fall-back is registered once
    assert 'm.impl("add_.Tensor", TORCH_FN(wrappers::add__Tensor));' in files[units[2]]
    write_files(files, tmp_path)
    (tmp_path / "RegisterNpu_mine.cpp").write_text("")
    write_files(generate(text, targets=["cpp"]), tmp_path)
    assert {path.name for path in tmp_path.glob("Reg*")} == {units[0], "RegisterNpu_mine.cpp"}


def test_unknown_target() -> None:
    with pytest.raises(ValueError, match="unknown target 'rust'; there are cpp, python"):
        generate(YAML, targets=["rust"])
