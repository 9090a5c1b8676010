"""What debug prints say of a tensor or number, for every kind of element; and checks of values."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
import torch

from fusewright.errors import FusewrightError, NanFound, WrongLayout
from fusewright.runtime.debug_printer import assert_layout, check_nan, debug_print, describe

inf, nan = float("inf"), float("nan")


def figures(value: Any) -> dict[str, str]:
    """The figures about a large tensor, by name."""
    text = describe(value).splitlines()[1]
    names = "count|mean|minimum|maximum|standard deviation|NaN|infinite"
    return dict(re.findall(rf"({names}) ([^,;]+)", text))


def test_few_elements_are_shown_themselves() -> None:
    assert describe(torch.arange(64)).splitlines() == [
        "int64, 64, on cpu",
        str(list(range(64))),
    ]
    assert describe(torch.tensor(2.5)) == "float32, one number, on cpu\n2.5"
    assert describe(torch.empty(0, 3)) == "float32, 0×3, on cpu\n[]"
    assert describe(torch.tensor([True, False])) == "bool, 2, on cpu\n[True, False]"
    assert describe(torch.tensor([1 + 2j])) == "complex64, 1, on cpu\n[(1+2j)]"
    assert describe(7) == "7" and describe(0.5) == "0.5"


@pytest.mark.parametrize(
    ("dtype", "third"),
    [(torch.float64, 1 / 3), (torch.float32, 0.33333334), (torch.bfloat16, 0.334)],
)
def test_elements_have_the_digits_of_their_type(dtype: torch.dtype, third: float) -> None:
    x = torch.tensor([[1 / 3, 2.0], [-0.1, inf]], dtype=dtype)
    rows = describe(x).splitlines()[1:]
    assert rows == [f"[[{third}, 2.0],", " [-0.1, inf]]"]
    numbers = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    shown = ast.literal_eval(describe(numbers).split("\n", 1)[1])
    assert torch.equal(torch.tensor(shown, dtype=dtype), numbers)


def test_many_are_summed_up() -> None:
    x = torch.arange(65, dtype=torch.float32)
    assert describe(x).splitlines()[0] == "float32, 65, on cpu"
    assert figures(x) == {
        "count": "65", "mean": "32", "minimum": "0", "maximum": "64",
        "standard deviation": f"{x.double().std().item():.6g}", "NaN": "0", "infinite": "0",
    }  # fmt: skip


def test_figures_are_those_of_finite_elements() -> None:
    x = torch.arange(100, dtype=torch.bfloat16)
    x[:3] = torch.tensor([nan, inf, -inf])
    expected = x[3:].double()
    found = figures(x)
    assert (found["NaN"], found["infinite"]) == ("1", "2")
    assert float(found["mean"]) == pytest.approx(expected.mean().item(), rel=1e-5)
    assert (found["minimum"], found["maximum"]) == ("3", "99")
    assert "no element is finite" in describe(torch.full((65,), nan))


@pytest.mark.parametrize(
    ("value", "lowest", "highest"),
    [
        (torch.tensor([2**62 + 1, -3]).repeat(50), "-3", str(2**62 + 1)),
        (torch.tensor([2**64 - 1, 5], dtype=torch.uint64).repeat(50), "5", str(2**64 - 1)),
        (torch.tensor([True, False]).repeat(50), "False", "True"),
        (torch.tensor([3 + 4j, 1j]).repeat(50), "magnitude 1", "magnitude 5"),
        (torch.tensor([0.5, -2]).to(torch.float8_e4m3fn).repeat(50), "-2", "0.5"),
        (torch.full((1,), 3, dtype=torch.int8).expand(100), "3", "3"),
    ],
    ids=["int64", "uint64", "bool", "complex", "float8", "expanded"],
)
def test_every_kind_of_element(value: torch.Tensor, lowest: str, highest: str) -> None:
    found = figures(value)
    assert (found["minimum"], found["maximum"]) == (lowest, highest)
    assert found["count"] == "100"


def test_files_hold_what_is_seen_and_no_more(tmp_path: Any) -> None:
    base = torch.randn(1000, 10)
    folder = str(tmp_path / "new" / "folder")
    debug_print("save", "before", "mine::op.out", ["x", "s0"], [base[3:5].t(), 4], "", folder)
    (path,) = (tmp_path / "new" / "folder").iterdir()
    assert path.name == "before_launch_mine__op.out_x.pt" and path.stat().st_size < 4000
    loaded = torch.load(path, weights_only=True)
    assert torch.equal(loaded, base[3:5].t()) and loaded.stride() == (1, 10)
    with pytest.raises(FusewrightError, match=r"debug_printer='save' cannot write: .*x.pt"):
        debug_print("save", "before", "k", ["y"], [base], "", str(path))


def test_nan_is_found() -> None:
    x = torch.ones(2, 3)
    check_nan("k", ["n", "x"], [torch.ones(2, dtype=torch.int32), x], "a.py:3  y = x")
    x[1, 2] = nan
    with pytest.raises(NanFound, match=r"k has computed x with NaN: 1 of 6 .*first \(1, 2\)"):
        check_nan("k", ["n", "x"], [torch.ones(2), x], "a.py:3  y = x")
    with pytest.raises(NanFound, match=r"the graph's input z .*first \(\)"):
        check_nan("inputs", ["z"], [torch.tensor(complex(1, nan))], "")


def test_layouts_are_asserted() -> None:
    x = torch.ones(4, 1, 6)[::2]
    assert_layout(x, (2, 1, 6), (12, 99, 1), torch.float32, "x")
    for size, stride, dtype in (
        ((2, 1, 5), (12, 6, 1), torch.float32),
        ((2, 1, 6), (6, 6, 1), torch.float32),
        ((2, 1, 6), (12, 6, 1), torch.int32),
        ((2, 6), (12, 1), torch.float32),
    ):
        with pytest.raises(WrongLayout, match="input x is"):
            assert_layout(x, size, stride, dtype, "x")
