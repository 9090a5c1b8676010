"""Code of unusual shape: large, stripped, asynchronous, of class bodies, with `except*` and type
parameters. It is compiled where it can be, with breaks inside too, and agrees with eager always.
"""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import pytest
import torch

import fusewright
from tests.capture.reporting import agrees, report

X = torch.arange(3.0)


def defined(name: str, lines: list[str]) -> Any:
    """A function of `x` with a body of so many lines."""
    namespace: dict[str, Any] = {"report": report, "torch": torch}
    exec(f"def {name}(x):\n" + "\n".join(f"    {line}" for line in lines), namespace)
    return namespace[name]


def test_three_hundred_locals_are_alive_at_a_break() -> None:
    function = defined(
        "many",
        [
            *[f"v{n} = x * {n}" if n % 50 == 0 else f"v{n} = {n}" for n in range(300)],
            "report('break')",
            "return " + " + ".join(f"v{n}" for n in range(300)),
        ],
    )
    assert len(agrees(function, (X,))) == 2


def test_jumps_too_wide_for_one_byte() -> None:
    function = defined(
        "wide",
        [
            "for i in range(3):",
            "    if i % 2:",
            "        report(i)",
            *[f"        x = x + {n}.0 if i else x" for n in range(200)],
            "    else:",
            *[f"        i = i + {n} if i == 5 else i" for n in range(300)],
            "        if i == 2: continue",
            "return x",
        ],
    )
    agrees(function, (X,))


def test_hundreds_of_parameters() -> None:
    names = [f"p{n}" for n in range(260)]
    namespace: dict[str, Any] = {"report": report}
    body = f"    y = x + p3\n    report(y)\n    return y * p259 + sum([{', '.join(names)}])\n"
    exec(f"def function(x, {', '.join(names)}):\n{body}", namespace)
    agrees(namespace["function"], (X, *range(260)))


def test_a_stripped_line_table() -> None:
    def original(x, items):
        y = x + 1
        for item in items:
            report(item)
            y = y * item
        return y

    code = original.__code__.replace(co_linetable=b"")
    agrees(types.FunctionType(code, original.__globals__, "stripped"), (X, [1, 2]))


def test_no_constants_docstring_or_names() -> None:
    agrees(lambda x: x, (X,))
    agrees(lambda x: [x, -x], (X,))


def test_a_class_body_with_methods_that_use_super() -> None:
    def function(x):
        class Base:
            scale = 2

            def run(self, x):
                report("base")
                return x * self.scale

        class Derived(Base):
            scale = Base.scale + 1

            def run(self, x):
                return super().run(x) + __class__.scale  # type: ignore[name-defined]

        return Derived().run(x), Derived.__name__, Derived.__qualname__

    agrees(function, (X,))


def test_nested_regions_and_returns() -> None:
    def function(x, log):
        for n in range(3):
            try:
                try:
                    x = x + 1
                    report(n)
                    if n == 1:
                        return x
                finally:
                    log.append(n)
                    report("inner")
                    if n == 0:
                        continue  # noqa: B012 (what it does to a `return` is the point)
            finally:
                x = x * 2
                report("outer")
        return None

    agrees(function, (X, []))


def test_a_tower_of_context_managers() -> None:
    class Noting:
        def __init__(self, log, name):
            self.log, self.name = log, name

        def __enter__(self):
            self.log.append(self.name)

        def __exit__(self, kind, value, traceback):
            self.log.append((self.name, kind and kind.__name__))
            return self.name == 3

    def function(x, log):
        with Noting(log, 1), Noting(log, 2), Noting(log, 3), Noting(log, 4), Noting(log, 5):
            x = x + 1
            report("inside")
            with Noting(log, 6):
                x = x * 2
                report("deeper")
                log[0].missing  # noqa: B018 (it raises)
        return x

    agrees(function, (X, []))


def test_groups_of_exceptions() -> None:
    def function(x, which):
        log = []
        y = x + 1
        try:
            report("break")
            if which == 1:
                raise ExceptionGroup("g", [KeyError("k"), ValueError("v"), OSError("o")])
            if which == 2:
                raise KeyError("alone")
        except* KeyError as group:
            log.append(("key", [error.args for error in group.exceptions]))
        except* (ValueError, OSError) as group:
            log.append(("others", [type(error).__name__ for error in group.exceptions]))
        return y * 2, log

    agrees(function, (X, 0), (X, 1), (X, 2))


def test_an_exception_of_a_group_that_nobody_catches() -> None:
    def function(x):
        try:
            raise ExceptionGroup("g", [KeyError("k"), TypeError("t")])
        except* KeyError:
            x = x + 1
        return x

    with pytest.raises(ExceptionGroup) as raised:
        fusewright.compile(function, backend="eager")(X)
    assert [type(error) for error in raised.value.exceptions] == [TypeError]


def test_asynchronous_functions_run_as_they_are() -> None:
    async def double(x):
        await asyncio.sleep(0)
        return x * 2

    async def generate(x):
        yield x
        yield x + 1

    async def function(x):
        async with Turnstile():
            return [await double(item) async for item in generate(x)]

    target = fusewright.compile(function, backend="eager")
    for _ in range(2):
        found, expected = asyncio.run(target(X)), asyncio.run(function(X))
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class Turnstile:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        return False


def test_a_coroutine_made_in_a_compiled_function() -> None:
    async def double(x):
        return x * 2

    def function(x):
        coroutine = double(x + 1)
        report("made")
        return asyncio.run(coroutine) + 1

    agrees(function, (X,))


def test_a_generator_function_itself() -> None:
    def function(x):
        received = yield x + 1
        yield x * received

    target = fusewright.compile(function, backend="eager")
    for _ in range(2):
        generator = target(X)
        assert torch.equal(next(generator), X + 1)
        assert torch.equal(generator.send(3), X * 3)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax is new in 3.12")
def test_type_parameters() -> None:
    function = defined(
        "typed",
        [
            "def inner[T](value: T) -> T:",
            "    return value * 2",
            "type Alias = list[int]",
            "class Box[T]:",
            "    def get(self, value: T): return value + 1",
            "report('break')",
            "return inner(x), Box().get(x), Alias.__name__",
        ],
    )
    agrees(function, (X,))


def test_comprehensions_with_breaks_inside() -> None:
    def shown(value):
        report(value)
        return value

    def function(x, items):
        item = 5
        get = lambda: item  # noqa: E731
        found = [shown(item) for item in items if shown(item) != 2]
        nested = {key: [x * shown(key) for _ in range(2)] for key in found}
        lazy = sum(shown(value) for value in found)
        return x + item, get(), found, nested, lazy

    agrees(function, (X, [1, 2, 3]))


def test_decorated_functions_and_defaults_made_inside() -> None:
    def function(x):
        def twice(inner):
            report("decorating")
            return lambda *args, **keywords: inner(inner(*args, **keywords), **keywords)

        @twice
        def scale(value, /, by=[2], *, offset=x.sum()):  # noqa: B006, B008
            report("called")
            return value * by[0] + offset

        return scale(x), scale(x, offset=1)

    agrees(function, (X,))
