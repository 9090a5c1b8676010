"""Loading generated modules: constants belong to one load, not to the module's text."""

from __future__ import annotations

import torch

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
