"""The table of operators beside what torch declares of them."""

from __future__ import annotations

import pytest
import torch

from fusewright import torch_compat
from fusewright.lower.extern import out_variant
from fusewright.operators import TABLE, OperatorKind, facts, operator_named, operators_with
from fusewright.operators.table import _row, _table

aten = torch.ops.aten

SOME_TORCH = {"cholesky.default", "lift_fresh_copy.default"}
"""Operators that not every supported version of torch has."""

OURS = {"fusewright.philox_uniform.default"}
"""Operators that are defined when a program first needs them."""


def test_every_name_is_an_operator() -> None:
    named = {name for row in TABLE.values() for name in (row.undone_by, row.put_back_by)}
    named |= {row.turns_into for row in TABLE.values()}
    missing = {name for name in {*TABLE, *named} - {""} if operator_named(name) is None}
    assert missing - OURS <= SOME_TORCH


def test_views_are_those_that_torch_declares_and_those_of_compiled_code() -> None:
    kinds = (OperatorKind.VIEW, OperatorKind.RESHAPE, OperatorKind.ITSELF)
    rows = operators_with(lambda row: row.kind in kinds)
    undeclared = {str(op) for op in rows if not torch_compat.is_view_operator(op)}
    assert undeclared == {
        "aten._unsafe_view.default",
        "aten.unsafe_split.Tensor",
        "aten.unsafe_split_with_sizes.default",
    }


def test_what_writes_its_out_has_such_a_variant() -> None:
    rows = operators_with(lambda row: row.writes_its_out)
    assert rows and [op for op in rows if not out_variant(op)] == []


def test_what_turns_into_a_view_writes_to_its_argument() -> None:
    rows = operators_with(lambda row: row.turns_into or row.takes_memory or row.writes_repeated)
    assert [op for op in rows if not torch_compat.written_arguments(op)] == []


def test_an_operator_is_found_by_itself_and_by_its_name() -> None:
    assert facts(aten.mm.default) is facts("aten.mm.default") is TABLE["mm.default"]
    assert facts(aten.mm.default).kind is OperatorKind.LIBRARY
    assert facts(aten.sin.default).kind is OperatorKind.OTHER
    assert facts("prims.mm.default").kind is OperatorKind.OTHER
    assert facts(len).kind is OperatorKind.OTHER


def test_an_operator_has_one_row() -> None:
    with pytest.raises(AssertionError, match=r"two rows for mm\.default"):
        _table(_row("mm bmm", takes_reals=True), _row("mm.default"))
