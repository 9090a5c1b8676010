"""Where the numbers that a program takes are found among a graph's arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fusewright.fake import FakeMode
from fusewright.ir.program import Program
from fusewright.ir.sizes import SizeFact, size_symbol
from fusewright.lower.arguments import calling_order
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import symbolic_float, symbolic_int

FACTS = ShapeFacts()


def _size(hint: int) -> Any:
    return symbolic_int(FACTS, FACTS.size(hint))


A, B, C = (_size(hint) for hint in (5, 7, 11))
REAL = FACTS.real(0.5)
FAKES = FakeMode(FACTS)


def order(wanted: str, *values: Any) -> Any:
    """What gives the symbols `wanted` where a graph takes these values."""
    graph = fx.Graph()
    placeholders = []
    for number, value in enumerate(values):
        node = graph.placeholder(f"x{number}")
        node.meta["val"] = value
        placeholders.append(node)
    facts = tuple(SizeFact(size_symbol(name), 2) for name in wanted.split())
    program = Program(name="graph", inputs=(), sizes=facts, statements=(), outputs=())
    return calling_order(placeholders, program)


def found(wanted: str, values: Any, arguments: list[Any]) -> list[Any]:
    """The arguments of generated code."""
    taken: list[Any] = []
    order(wanted, *values).around(taken.extend)(list(arguments))
    return taken


def test_arguments_in_order_are_passed_on() -> None:
    def call(arguments: list[Any]) -> None:
        raise AssertionError

    both = order("s0 f3", A, symbolic_float(FACTS, REAL), torch.empty(2))
    assert both.around(call) is call
    assert order("f3 s0", A, symbolic_float(FACTS, REAL)).around(call) is not call
    assert order("s0", A - 1, torch.empty(2)).around(call) is not call


def test_numbers_and_sizes() -> None:
    x = torch.empty(5, 7)
    assert found("s1 s0", [A, FAKES.fake_input(x, (A, B), (B, 1))], [5, x]) == [7, 5, x]


def test_numbers_that_expressions_tell() -> None:
    x = torch.empty(2)
    assert found("s0 s1", [A - 1, 2 * B + A, x], [4, 19, x]) == [5, 7, x]


def test_sizes_that_expressions_tell() -> None:
    x, y = torch.empty(13, 35), torch.empty(7)
    values = [FAKES.fake_input(x, (2 * A + 3, A * B), (A * B, 1)), FAKES.fake_input(y, (B,), (1,))]
    assert found("s0 s1", values, [x, y])[:2] == [5, 7]
    assert found("s0 s1", values[:1], [x])[:2] == [5, 7]


def test_strides_that_tell_a_size() -> None:
    x = torch.empty(5, 11)[:, :7]
    value = FAKES.fake_input(x, (A, B), (C, 1))
    assert found("s2", [value], [x])[0] == 11


def test_a_stride_of_one_element_is_asked_last() -> None:
    x, y = torch.empty(1, 11), torch.empty(7)
    values = [FAKES.fake_input(x, (1, B), (C, 1)), FAKES.fake_input(y, (C,), (1,))]
    assert found("s2", values, [x, y])[0] == 7
    assert found("s2", values[:1], [x])[0] == 11
