"""Emitters have a method for each class of lines."""

from typing import get_args

import pytest

from fusewright.ir.lines import Line
from fusewright.wrapper.line_emitter import METHODS, LineEmitter


def test_each_class_of_lines_has_a_method() -> None:
    assert METHODS.keys() == set(get_args(Line))


def test_an_emitter_that_lacks_a_method_is_refused() -> None:
    methods = dict.fromkeys({*METHODS.values()} - {"copy_into"})
    with pytest.raises(TypeError, match="Partial has no copy_into"):
        type("Partial", (LineEmitter,), methods)
