"""Sources: their steps, and how the user would write them."""

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
    ("source", "expression", "last_step"),
    [
        (SELF, "self", ("local", "self")),
        (GlobalSource("N"), "N", ("global", None, "N")),
        (GlobalSource("pi", "math"), "math.pi", ("global", "math", "pi")),
        (BuiltinSource("len"), "len", ("builtin", "len")),
        (ModuleSource("a.b"), "sys.modules['a.b']", ("module", "a.b")),
        (CellSource("n"), "<cell n>", ("cell", "n")),
        (CellContentsSource(CellSource("n")), "n", ("cell_contents",)),
        (CellContentsSource(SELF), "self.cell_contents", ("cell_contents",)),
        (ConstantSource(LocalSource), "LocalSource", ("constant", LocalSource)),
        (AttributeSource(SELF, "a"), "self.a", ("attribute", "a")),
        (InstanceSource(SELF, "a"), "self.a", ("instance", "a")),
        (TypeAttributeSource(SELF, "a"), "self.a", ("type_attribute", "a")),
        (ItemSource(SELF, 2), "self[2]", ("item", 2)),
        (DictItemSource(SELF, "k"), "self['k']", ("dict_item", "k")),
        (DictKeySource(SELF, 2), "list(self)[2]", ("dict_key", 2)),
        (LAYER, "self.layer", ("dict_item", "layer")),
        (
            DictItemSource(InstanceSource(LAYER, "_modules"), "0"),
            "self.layer[0]",
            ("dict_item", "0"),
        ),
        (
            DictItemSource(InstanceSource(LAYER, "_buffers"), "b"),
            "self.layer.b",
            ("dict_item", "b"),
        ),
    ],
)
def test_expressions_and_steps(
    source: Source, expression: str, last_step: tuple[object, ...]
) -> None:
    assert source.expression() == str(source) == expression
    assert source.steps()[-1] == source.step == last_step


def test_steps_run_from_the_root() -> None:
    weight = DictItemSource(InstanceSource(LAYER, "_parameters"), "weight")
    assert weight.expression() == "self.layer.weight"
    assert weight.steps() == (
        ("local", "self"),
        ("instance", "_modules"),
        ("dict_item", "layer"),
        ("instance", "_parameters"),
        ("dict_item", "weight"),
    )


def test_sources_are_values() -> None:
    again = DictItemSource(InstanceSource(LocalSource("self"), "_modules"), "layer")
    assert again == LAYER and hash(again) == hash(LAYER)
    assert ItemSource(SELF, 1) != DictItemSource(SELF, 1)
    assert AttributeSource(SELF, "a") != InstanceSource(SELF, "a")
