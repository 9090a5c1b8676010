"""Sources: how the user would write them, and when they are equal."""

from __future__ import annotations

import pytest

from fusewright.capture.sources import (
    AttributeSource,
    BuiltinSource,
    CellContentsSource,
    CellSource,
    ConstantSource,
    DictItemSource,
    DictKeySource,
    GlobalSource,
    InstanceSource,
    ItemSource,
    LocalSource,
    ModuleSource,
    Source,
    TypeAttributeSource,
)

SELF = LocalSource("self")
LAYER = DictItemSource(InstanceSource(SELF, "_modules"), "layer")


@pytest.mark.parametrize(
    ("source", "expression"),
    [
        (SELF, "self"),
        (GlobalSource("N"), "N"),
        (GlobalSource("pi", "math"), "math.pi"),
        (BuiltinSource("len"), "len"),
        (ModuleSource("a.b"), "sys.modules['a.b']"),
        (CellSource("n"), "<cell n>"),
        (CellContentsSource(CellSource("n")), "n"),
        (CellContentsSource(SELF), "self.cell_contents"),
        (ConstantSource(LocalSource), "LocalSource"),
        (AttributeSource(SELF, "a"), "self.a"),
        (InstanceSource(SELF, "a"), "self.a"),
        (TypeAttributeSource(SELF, "a"), "self.a"),
        (ItemSource(SELF, 2), "self[2]"),
        (DictItemSource(SELF, "k"), "self['k']"),
        (DictKeySource(SELF, 2), "list(self)[2]"),
        (LAYER, "self.layer"),
        (
            DictItemSource(InstanceSource(LAYER, "_modules"), "0"),
            "self.layer[0]",
        ),
        (
            DictItemSource(InstanceSource(LAYER, "_buffers"), "b"),
            "self.layer.b",
        ),
    ],
)
def test_expressions(source: Source, expression: str) -> None:
    assert source.expression() == str(source) == expression


def test_a_path_begins_at_its_root() -> None:
    weight = DictItemSource(InstanceSource(LAYER, "_parameters"), "weight")
    assert weight.expression() == "self.layer.weight"
    assert weight.root() is SELF and SELF.root() is SELF


def test_sources_are_values() -> None:
    again = DictItemSource(InstanceSource(LocalSource("self"), "_modules"), "layer")
    assert again == LAYER and hash(again) == hash(LAYER)
    assert ItemSource(SELF, 1) != DictItemSource(SELF, 1)
    assert AttributeSource(SELF, "a") != InstanceSource(SELF, "a")
    assert ConstantSource(int) == ConstantSource(int) != ConstantSource(bool)
