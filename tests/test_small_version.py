"""docs/the-small-version.md: its blocks are one program, which prints what the page shows and
computes what Python does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[1] / "docs" / "the-small-version.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
MOST_LINES = 500


@pytest.fixture(scope="module")
def printed() -> StringIO:
    """What the page's program prints."""
    return StringIO()


@pytest.fixture(scope="module")
def small(printed: StringIO) -> Iterator[Any]:
    """The page's program as a module."""
    module = ModuleType("the_small_version")
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setitem(sys.modules, module.__name__, module)
        for number, block in enumerate(BLOCKS):
            exec(compile(block, f"{PAGE.name}, block {number}", "exec"), vars(module))
        yield module


@pytest.mark.usefixtures("small")
def test_it_prints_what_the_page_shows(printed: StringIO) -> None:
    shown = re.findall(r"```\n(\S.*?)```", PAGE.read_text().split("## What it makes")[1], re.S)
    assert len(shown) == 2
    assert printed.getvalue() == "".join(shown)


def test_it_is_small() -> None:
    lines = [line for block in BLOCKS for line in block.splitlines()]
    assert sum(bool(line.strip()) for line in lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100


def softmax_of_columns(x: Any, y: Any) -> Any:
    return torch.softmax(x * y, 0)


def statistics(x: Any, y: Any) -> Any:
    centred = x - torch.mean(x, 0, keepdim=True)
    return torch.sum(centred * centred, 0, keepdim=True) / (3 + y)


def transposed(x: Any, y: Any) -> Any:
    return -x.transpose(0, 1) + y.transpose(0, 1).exp()


def total(x: Any, y: Any) -> Any:
    rows = torch.sum(torch.exp(x), 1)
    return torch.sum(rows, 0) + y


def branches(x: Any, y: Any) -> Any:
    if x.ndim == 2:
        x = x + 1 - y
    return 2 / x.exp() if x.shape[1] > 5 else x * x


@pytest.mark.parametrize(
    ("program", "kernels"),
    [(softmax_of_columns, 2), (statistics, 2), (transposed, 1), (total, 2), (branches, 1)],
)
def test_programs(small: Any, program: Callable[..., Any], kernels: int) -> None:
    fast = small.compile(program)
    for columns in (5, 7, 5):
        x, y = torch.rand(3, columns), torch.rand(3, columns)
        torch.testing.assert_close(fast(x, y), program(x, y))
    assert [len(version.schedule) for version in fast.versions] == [kernels, kernels]


def changed(x: Any) -> Any:
    x += 1
    return x.exp()


def decided(x: Any) -> Any:
    return x.exp() if torch.sum(x, 0) else -x


def product(x: Any) -> Any:
    return torch.outer(x, x)


def unchanged(x: Any) -> Any:
    return x


def comprehended(x: Any) -> Any:
    return [-row for row in (x, x)]


@pytest.mark.parametrize("program", [changed, decided, product, unchanged, comprehended])
def test_what_it_does_not_know_it_refuses(small: Any, program: Callable[..., Any]) -> None:
    with pytest.raises(small.NotCaptured):
        small.compile(program)(torch.rand(3))


def test_it_refuses_tensors_of_other_types(small: Any) -> None:
    for x in (torch.rand(3).double(), torch.rand(3, 2).T):
        with pytest.raises(small.NotCaptured, match="not contiguous, or of another type"):
            small.compile(transposed)(x, x)
