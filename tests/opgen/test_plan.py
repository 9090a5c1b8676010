"""Which variant is made from which, and the totals over all of torch's declarations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fusewright.opgen import emit, read_declarations, read_plan, summary, survey
from fusewright.opgen.declarations import Kind
from fusewright.opgen.plan import Given, Inherited, Made, Refused, Row, describe_all, plan
from tests.golden import golden


@golden("cases/plans.txt")
def test_rows(text: str) -> str:
    made = read_plan(f"backend: npu\ncpp_namespace: npu\nsupported:\n{text}")
    return "".join(f"{show(row)}\n" for row in made.rows)


def show(row: Row) -> str:
    name = row.operator.name
    match row:
        case Given():
            return f"{name}: given"
        case Made():
            return f"{name}: made from {row.source.name}{' (structured)' * row.structured}"
        case Inherited():
            return f"{name}: inherited, {row.reason}"
        case Refused():
            return f"{name}: refused, {row.reason}"


def test_totals_over_all_declarations(bless: bool) -> None:
    version = ".".join(torch.__version__.split(".")[:2])
    file = Path(__file__).parent / "cases" / f"survey_{version}.txt"
    text = survey(read_declarations()) + "\n"
    if bless:
        file.write_text(text)
    if not file.exists():
        pytest.skip(f"no totals recorded for torch {version}: python -m tests.bless tests/opgen")
    assert file.read_text() == text


test_totals_over_all_declarations = pytest.mark.golden(test_totals_over_all_declarations)


def test_every_operator_is_in_one_group() -> None:
    declarations = read_declarations()
    members = [operator.name for group in declarations.groups for operator in group]
    assert sorted(members) == sorted(declarations.operators)


def test_groups_hold_what_computes_the_same() -> None:
    group_of = read_declarations().group_of
    assert {o.name for o in group_of["add.Tensor"]} == {"add.Tensor", "add_.Tensor", "add.out"}
    assert {o.name for o in group_of["zeros"]} == {"zeros", "zeros.out"}
    batch_norm = group_of["_native_batch_norm_legit"]
    assert batch_norm.members[Kind.FUNCTIONAL].name == "_native_batch_norm_legit_functional"


def test_summary_names_refusals() -> None:
    made = read_plan("backend: npu\ncpp_namespace: npu\nsupported: [nonzero.out, relu]")
    assert summary(made) == (
        "operators: 2 with a kernel, 1 made from these, 1 more by way of torch's own kernels\n"
        "  nonzero falls back to the CPU: the size of its result depends on data"
    )


@pytest.mark.parametrize("kind", list(Kind))
def test_all_declarations_are_emitted(kind: Kind) -> None:
    """Whatever can be made is written, in both targets; the Python is Python."""
    declarations = read_declarations()
    made = plan(describe_all(declarations, kind), declarations)
    files = emit(made, callable_operators=True)
    compile(files["everything_operators.py"], "everything_operators.py", "exec")
    units = [text for name, text in files.items() if name.startswith("RegisterEverything")]
    assert sum(text.count("TORCH_FN(wrappers::") for text in units) == len(made.made)
    function = r"(?:TORCH_FN|torch::CppFunction::makeFromBoxed)"
    names = re.findall(rf'm\.impl\(\s*"([^"]+)",\s*{function}', "".join(units))
    assert len(names) == len(set(names)), "one function an operator"
