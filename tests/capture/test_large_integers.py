"""Integers of Python have no limit; graphs and guards compute with 64 bits. Where arithmetic on
integers that vary goes beyond, results and exceptions are eager's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fusewright

NUMBERS = (3000, 4000, 5, -3000, 2**40, 3, 2**62, 2**63, -(2**63), 2**70)


def power(x, k):
    return x * k**8


def product_behind_a_comparison(x, k):
    return x + k * k * k * k if k**6 > 5 else x


def large_coefficients(x, k):
    for _ in range(3):
        k *= k + 1 + k
    return (x, x + 1) if k > 2**200 or k % 2**70 == 3 else x


def not_in_the_graph(x, k):
    for _ in range(4):
        k = k * k + 1
    return x, k, k // 3, k % 2**65, -k, {k, 2}


def size(x, k):
    return x[: k * k * k * k * k * k * k], torch.full((2,), k * k)


PROGRAMS = [power, product_behind_a_comparison, large_coefficients, not_in_the_graph, size]


def outcome(function: Callable[..., Any], number: int) -> str:
    try:
        return repr(function(torch.ones(3), number))
    except OverflowError as error:
        return repr(error)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_eager(program: Callable[..., Any], dynamic: bool | None) -> None:
    compiled = fusewright.compile(program, dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "(?s).*defect of fusewright")
        warnings.filterwarnings("ignore", "Truncating the start")
        for number in NUMBERS:
            assert outcome(compiled, number) == outcome(program, number), number
