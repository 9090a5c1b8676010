"""Compare a captured function with the function itself: results, effects on arguments, aliasing, a
second call.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from fusewright import api


def assert_same(
    found: Any, expected: Any, path: str = "result", seen: dict[int, int] | None = None
) -> None:
    """Equal in class, content and aliasing, tensors bit for bit (NaN equal to itself), dtype and
    strides included.
    """
    seen = {} if seen is None else seen
    has_parts = hasattr(expected, "__dict__") or hasattr(type(expected), "__slots__")
    if isinstance(expected, list | dict | collections.deque) or has_parts:
        if id(expected) in seen:
            assert seen[id(expected)] == id(found), f"{path}: aliasing differs"
            return
        seen[id(expected)] = id(found)
    assert type(found) is type(expected), f"{path}: {type(found)} is not {type(expected)}"
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and found.shape == expected.shape, path
        assert found.stride() == expected.stride(), f"{path}: {found.stride()} {expected.stride()}"
        assert torch.equal(torch.nan_to_num(found), torch.nan_to_num(expected)), path
    elif isinstance(expected, dict):
        assert list(found) == list(expected), f"{path}: keys {list(found)} {list(expected)}"
        for key in expected:
            assert_same(dict.get(found, key), dict.get(expected, key), f"{path}[{key!r}]", seen)
        _assert_same_attributes(found, expected, path, seen)
    elif isinstance(expected, list | tuple | collections.deque):
        assert len(found) == len(expected), path
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{path}[{index}]", seen)
        _assert_same_attributes(found, expected, path, seen)
    elif hasattr(expected, "__dict__") and not callable(expected):
        _assert_same_attributes(found, expected, path, seen)
    elif slots := [
        slot for cls in type(expected).__mro__ for slot in vars(cls).get("__slots__", ())
    ]:
        for slot in slots:
            assert hasattr(found, slot) == hasattr(expected, slot), f"{path}.{slot}"
            if hasattr(expected, slot):
                one, other = getattr(found, slot), getattr(expected, slot)
                assert_same(one, other, f"{path}.{slot}", seen)
    elif not callable(expected):
        assert found == expected or (found != found and expected != expected), (
            f"{path}: {found} {expected}"
        )


def _assert_same_attributes(found: Any, expected: Any, path: str, seen: dict[int, int]) -> None:
    names = getattr(expected, "__dict__", {})
    assert list(getattr(found, "__dict__", {})) == list(names), path
    for name in names:
        assert_same(found.__dict__[name], names[name], f"{path}.{name}", seen)


def check(
    function: Callable[..., Any], *arguments: Any, graphs: int | None = None, **keywords: Any
) -> Any:
    """Compile with backend `eager` as one graph, call twice on copies of the arguments, compare
    with the function.
    """
    nodes: list[int] = []

    def backend(graph_module: Any, inputs: Any) -> Any:
        nodes.append(len(graph_module.graph.nodes))
        return graph_module.forward

    compiled = api.compile(function, backend=backend, fullgraph=True)
    result = None
    for _ in range(2):
        mine, theirs = copy.deepcopy((arguments, keywords)), copy.deepcopy((arguments, keywords))
        expected = function(*theirs[0], **theirs[1])
        result = compiled(*mine[0], **mine[1])
        assert_same(result, expected)
        assert_same(mine, theirs, "arguments")
    assert compiled.compiler.capture_count == 1, "the second call captured again"
    if graphs is not None:
        assert len(nodes) == graphs
    return result


@dataclasses.dataclass
class Point:
    """A plain dataclass for tests."""

    x: Any
    y: Any = 2
