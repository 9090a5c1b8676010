"""Loading generated modules: constants belong to one load, not to the module's text; files of the
modules that were loaded longest ago are removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from fusewright.runtime import loader
from fusewright.runtime.loader import load_module

NESTED = """
from fusewright.runtime import generated as runtime

between()
value = runtime.constant(globals(), "value")


def call(inputs):
    return (value,)
"""


def test_equal_modules_that_load_at_once_keep_their_own_constants(monkeypatch) -> None:
    loaded = []

    def load_the_same_again() -> None:
        if len(loaded) < 1:
            loaded.append(None)
            loaded[0] = load_module(NESTED, {"value": torch.tensor(2)})

    monkeypatch.setattr("builtins.between", load_the_same_again, raising=False)
    outer = load_module(NESTED, {"value": torch.tensor(1)})
    assert outer.path == loaded[0].path
    assert [int(module.call([])[0]) for module in (outer, loaded[0])] == [1, 2]


def test_modules_loaded_longest_ago_are_removed(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path))
    texts = [f"def call(arguments):\n    return ({number},)\n" for number in range(8)]
    loaded = [load_module(text, {}) for text in texts]
    for age, module in enumerate(reversed(loaded)):
        os.utime(module.path, (1e9 - age, 1e9 - age))
    load_module(texts[0], {})  # which is used again
    (tmp_path / "fusewright_notes.py").write_text("x = 1")
    monkeypatch.setattr(loader, "MODULE_ROOM", 4 * len(texts[0]))
    loader.prune_modules()
    assert [module.path.exists() for module in loaded] == [True, *[False] * 5, True, True]
    assert (tmp_path / "fusewright_notes.py").exists()
    loader.prune_modules()
    assert loaded[0].path.exists()
    assert loaded[1].call([]) == (1,)


def test_a_process_removes_old_modules_as_it_ends(tmp_path: Path) -> None:
    program = (
        "from fusewright.runtime import loader\n"
        "loader.MODULE_ROOM = 0\n"
        "loader.load_module('def call(arguments):\\n    return ()\\n', {})\n"
        "assert loader.generated_modules()\n"
    )
    environment = os.environ | {"FUSEWRIGHT_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert not list(tmp_path.glob("*.py"))
