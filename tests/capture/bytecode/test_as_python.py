"""Functions whose control only goes on, written as Python again, compute the same. How the texts of
functions that capture writes run is in `tests/capture/test_functions_as_python.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from fusewright.capture.bytecode.as_python import as_python


def operators(a: Any, b: Any) -> Any:
    return (a + b) * -a, a - (b - 1), a < b, a in [b], a is not b, not a, ~b, (a + b).real


def changes_in_place(a: Any, b: Any) -> Any:
    c = [a]
    d = c
    c += [b]
    a -= b
    return c is d, a


def calls(a: Any, b: Any) -> Any:
    def show(*arguments: Any, **keywords: Any) -> Any:
        return arguments, keywords

    rows = (b,)
    return show(*rows), show(a, b, last=1), max(a, b), show(key=rows)


def in_order(a: Any, b: Any) -> Any:
    log = [a]
    first = log[0]
    log[0] = b
    return [first, log.append(3), log[0], log.pop(), log[-1]]


def containers(a: Any, b: Any) -> Any:
    row = [a, b]
    both = (row, row)
    table = {"a": row, 2: (a,)}
    table["more"] = both
    del table[2]
    first, (second, third) = a, both
    return table, first, second is third, row[0:1]


def branches(a: Any, b: Any) -> Any:
    if a > b:
        return "above"
    if a is None or b is None:
        return "nothing"
    return "below" if a else "zero"


def attributes(a: Any, b: Any) -> Any:
    def holder() -> None: ...

    holder.value = a  # type: ignore[attr-defined]
    other = holder.value  # type: ignore[attr-defined]
    holder.value = b  # type: ignore[attr-defined]
    return other, holder.value  # type: ignore[attr-defined]


def parameters(a: Any, /, b: Any, *rest: Any, c: Any = 3, **more: Any) -> Any:
    return a, b, rest, c, more


@pytest.mark.parametrize(
    "function",
    [operators, changes_in_place, calls, in_order, containers, branches, attributes, parameters],
    ids=lambda function: function.__name__,
)
def test_it_computes_the_same(function: Callable[..., Any]) -> None:
    python = as_python(function.__code__)
    inner = {
        name: type(function)(code, globals())
        for name, code in python.constants.items()
        if isinstance(code, type(function.__code__))
    }
    variables = {**python.constants, **inner}
    exec(compile(python.text, "<text>", "exec"), variables)
    again = variables[function.__name__]
    again.__kwdefaults__ = function.__kwdefaults__
    for arguments in [(3, 2), (0, 5), (True, 7)]:
        assert again(*arguments) == function(*arguments)


def returned(source: str) -> str:
    """The last row of the text of a function with this body."""
    variables: dict[str, Any] = {}
    exec(f"def f(x, y):\n {source}", variables)
    text = as_python(variables["f"].__code__).text
    ast.parse(text)
    return text.splitlines()[-1].strip()


def test_names_and_constants() -> None:
    assert returned("return x.a.b, (1).real, -1.5, 'x', None, ()") == (
        "return (x.a.b, (1).real, -1.5, 'x', None, ())"
    )
    assert returned("lambda_ = lambda: x; return lambda_, len(lambda_())") == (
        "return (lambda_, len(lambda_()))"
    )


def test_an_instruction_without_words() -> None:
    assert "BUILD_STRING(" in returned("return f'{x} {y}'")


def test_a_loop_is_refused() -> None:
    def loops(x: Any) -> Any:
        while x:
            x = x - 1
        return x

    with pytest.raises(ValueError, match="control goes back"):
        as_python(loops.__code__)
