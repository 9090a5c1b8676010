"""What is open in a GPU's kernels is no finding, and what is not is one: the fault stands for the
GPU, whose results are compared with those of the CPU.
"""

from __future__ import annotations

import pytest

from fusewright.fuzz.comparison import compare
from fusewright.fuzz.execution import run
from fusewright.fuzz.judge import Judge
from tests.fuzz.test_checking import program


def kinds(eager: str, compiled: str, *, on_gpu: bool = True) -> set[str]:
    """The classes of what differs between two texts."""
    source = program(eager)
    findings = compare(list(run(source)), list(run(program(compiled))), Judge(source, on_gpu))
    return {finding.kind for finding in findings}


ROW = (
    "x = torch.linspace(-1, 1, {length})[torch.arange({length}) * 7 % {length}]\n"
    "x[5:{end}] = {nan}\n"
)
FIRST = "x = x.nan_to_num(-9)\n"
"""NaN stand where a number that is less than all others does."""

SORTED = "x = {x}\nx[x == -9] = torch.nan\nreturn (x,)"


@pytest.mark.parametrize("length", [32, 33])
def test_nan_come_first_in_long_rows(length: int) -> None:
    """A GPU sorts more than 32 elements by their bits; without NaN there is one order."""
    row = ROW.format(length=length, end=7, nan="torch.nan")
    eager = row + SORTED.format(x="x.sort()[0]")
    compiled = row + FIRST + SORTED.format(x="x.sort()[0]")
    assert kinds(eager, compiled) == (set() if length > 32 else {"wrong_value"})
    assert kinds(eager, compiled, on_gpu=False) == {"wrong_value"}
    plain = ROW.format(length=length, end=5, nan=0)
    wrong = plain + "x = x.sort()[0]\nx[9] = x[8]\nreturn (x,)"
    assert kinds(plain + "return (x.sort()[0],)", wrong) == {"wrong_value"}


@pytest.mark.parametrize("length", [31, 51])
def test_medians_are_of_rows_that_nan_begin(length: int) -> None:
    """The next number is another one that it may be, one far behind that is not."""
    row = ROW.format(length=length, end=6, nan="torch.nan")
    eager = row + "return (x.nanmedian(),)"
    for back, is_open in ((1, length > 32), (20, False)):
        place = (length - 2) // 2 - back
        compiled = row + f"return (x[~x.isnan()].sort()[0][{place}],)"
        assert kinds(eager, compiled) == (set() if is_open else {"wrong_value"})


def test_different_numbers_of_which_nan_come_first() -> None:
    row = ROW.format(length=9, end=7, nan="torch.nan")
    eager, compiled = (
        row + SORTED.format(x="x.unique()"),
        row + FIRST + SORTED.format(x="torch.cat([torch.full((1,), -9.0), x.unique()])"),
    )
    assert kinds(eager, compiled) == set()
    assert kinds(eager, compiled, on_gpu=False) == {"wrong_value"}


SUM = "x = torch.full((3,), {start}, dtype=torch.{dtype})\ni = torch.tensor([0, 0, 1])\n"


def test_atomics_add_nothing_that_is_not_normal() -> None:
    """In float32, of which bfloat16 has such numbers; any other number counts."""
    least, tiny = 2.0**-128, SUM.format(start=2.0**-128, dtype="bfloat16")
    for name in ("scatter_add", "index_add"):
        eager = f"return (torch.{name}(x, 0, i, x),)"
        assert kinds(tiny + eager, tiny + "return (x * 0,)") == set()
        assert kinds(tiny + eager, tiny + "return (x * 0,)", on_gpu=False) == {"wrong_value"}
        one = SUM.format(start=1, dtype="bfloat16")
        assert kinds(one + eager, one + "return (x * 0,)") == {"wrong_value"}
        far = tiny + f"x[2] = {least * 1024}\n"
        assert kinds(far + eager, far + "return (x * 0,)") == {"wrong_value"}
        whole = SUM.format(start=2.0**-128, dtype="float32")
        assert kinds(whole + eager, whole + "return (x * 0,)") == {"wrong_value"}
