"""Programs of constants: loops, generators, exceptions, `match`, imports, and large functions."""

# ruff: noqa (these programs are meant to use every form that the language has)

from __future__ import annotations

from typing import Any

from tests.programs.corpus import add as program
from tests.programs.expressions import TABLE

# -- loops ----------------------------------------------------------------------------------------


@program
def loops():
    found = []
    for n in range(10):
        if n == 2:
            continue
        if n == 5:
            break
        found.append(n)
    else:
        found.append("never")
    for n in ():
        pass
    else:
        found.append("else")
    i = 0
    while i < 3:
        i += 1
        if i == 2:
            continue
    else:
        found.append(i)
    while True:
        i += 1
        if i > 6:
            break
    return found, i


@program
def nested_loops():
    found = []
    for a in range(3):
        for b in range(a, 3):
            if b == 2 and a == 1:
                break
            for c in "xy":
                found.append((a, b, c))
        else:
            found.append(a)
    return found


@program
def loop_over_a_growing_list():
    items = [1, 2]
    for item in items:
        if len(items) < 6:
            items.append(item * 2)
    return items


@program
def loop_over_a_number():
    for _ in 5:
        pass


@program
def loop_with_none():
    found = []
    for x in (None, 1, None):
        if x is None:
            found.append(0)
        if x is not None:
            found.append(x)
    return found


# -- generators -----------------------------------------------------------------------------------


@program
def generators():
    def count(n):
        for i in range(n):
            yield i
        return "done"

    def delegate(n):
        result = yield from count(n)
        yield result
        yield from [10, 20]

    return list(count(3)), list(delegate(2)), [x for x in count(2)], sum(x for x in count(4))


@program
def send_to_a_generator():
    log = []

    def average():
        total = n = 0
        value = yield
        while value is not None:
            total += value
            n += 1
            value = yield total / n
        return total

    generator = average()
    log.append(next(generator))
    log.append(generator.send(10))
    log.append(generator.send(20))
    try:
        generator.send(None)
    except StopIteration as stop:
        log.append(stop.value)
    return log


@program
def send_through_yield_from():
    def inner():
        received = []
        while True:
            value = yield len(received)
            if value is None:
                return received
            received.append(value)

    def outer():
        return (yield from inner()), "outer"

    generator = outer()
    log = [next(generator), generator.send("a"), generator.send("b")]
    try:
        generator.send(None)
    except StopIteration as stop:
        log.append(stop.value)
    return log


@program
def throw_into_a_generator():
    log = []

    def generate():
        while True:
            try:
                yield len(log)
            except KeyError as error:
                log.append(("caught", error.args))
            finally:
                log.append("finally")

    generator = generate()
    log.append(next(generator))
    log.append(generator.throw(KeyError("k")))
    try:
        generator.throw(ValueError("v"))
    except ValueError as error:
        log.append(error.args)
    return log, list(generator)


@program
def throw_through_yield_from():
    log = []

    def inner():
        try:
            yield 1
        except KeyError:
            log.append("inner caught")
            yield 2
        return "returned"

    def outer():
        log.append((yield from inner()))
        yield 3

    generator = outer()
    log.append(next(generator))
    log.append(generator.throw(KeyError()))
    log.append(next(generator))
    return log


@program
def throw_through_yield_from_to_the_end():
    def inner():
        try:
            yield 1
        except KeyError:
            return "swallowed"

    def outer():
        value = yield from inner()
        yield value

    generator = outer()
    next(generator)
    return generator.throw(KeyError())


@program
def close_a_generator():
    log = []

    def generate():
        try:
            yield 1
            yield 2
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("finally")

    def outer():
        try:
            yield from generate()
        finally:
            log.append("outer")

    generator = outer()
    log.append(next(generator))
    generator.close()
    generator.close()
    fresh = generate()
    fresh.close()
    return log, list(generator), list(fresh)


@program
def close_is_ignored():
    def generate():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    generator = generate()
    next(generator)
    generator.close()


@program
def generator_raises_stop_iteration():
    def generate():
        yield 1
        raise StopIteration("inside")

    return list(generate())


@program
def send_before_start():
    def generate():
        yield 1

    generate().send(5)


@program
def generator_runs_itself():
    def generate():
        yield next(generator)

    generator = generate()
    next(generator)


@program
def generator_in_a_handler():
    log = []

    def generate():
        try:
            raise KeyError("first")
        except KeyError:
            yield 1
            try:
                raise
            except KeyError as again:
                log.append(again.args)

    for item in generate():
        try:
            raise ValueError("between")
        except ValueError:
            log.append(item)
    return log


@program
def generator_expressions():
    data = [1, 2, 3]
    lazy = (x * y for x in data for y in (10, 20) if x != 2)
    first = next(lazy)
    return first, list(lazy), next(lazy, "end"), any(x > 2 for x in data), all(data)


@program
def next_of_an_exhausted_iterator():
    return next(iter(()))


# -- exceptions -----------------------------------------------------------------------------------


@program
def handlers():
    log = []
    for value in (0, 1, "a", None):
        try:
            log.append(1 // value)
        except ZeroDivisionError as error:
            log.append(str(error))
        except (TypeError, ValueError):
            log.append("type")
        else:
            log.append("else")
        finally:
            log.append("finally")
    return log


@program
def name_of_a_handler_is_unbound_after_it():
    try:
        raise KeyError("x")
    except KeyError as error:
        text = str(error)
    try:
        return error
    except UnboundLocalError:
        return text


@program
def reraise():
    log = []
    try:
        try:
            raise KeyError("x")
        except KeyError:
            log.append(1)
            raise
        finally:
            log.append(2)
    except KeyError as error:
        log.append(error.args)
    return log


@program
def raise_without_an_exception():
    raise


@program
def raise_a_number():
    raise 5


@program
def raise_from():
    try:
        try:
            raise KeyError("x")
        except KeyError as error:
            raise ValueError("y") from error
    except ValueError as error:
        return type(error.__cause__).__name__, error.args


@program
def raise_from_a_number():
    raise ValueError from 5


@program
def catch_a_number():
    try:
        raise KeyError
    except 5:
        return 1


@program
def nested_finally_with_return():
    log = []

    def inner():
        for i in range(3):
            try:
                try:
                    log.append(i)
                    if i == 1:
                        return "first"
                finally:
                    log.append("inner")
                    if i == 0:
                        continue
            finally:
                log.append("outer")
                if i == 1:
                    return "second"

    return inner(), log


@program
def finally_swallows():
    def inner():
        try:
            raise KeyError
        finally:
            return "swallowed"

    return inner()


@program
def break_through_finally():
    log = []
    while True:
        try:
            log.append(1)
            break
        finally:
            log.append(2)
    for i in range(2):
        try:
            continue
        finally:
            log.append(i)
    return log


@program
def handler_in_a_handler():
    log = []
    try:
        raise KeyError(1)
    except KeyError:
        try:
            raise ValueError(2)
        except ValueError as error:
            log.append(error.args)
        try:
            raise
        except KeyError as error:
            log.append(error.args)
    return log


@program
def uncaught_passes_finally():
    log = []
    try:
        raise KeyError("out")
    finally:
        log.append(1)


@program
def assertions():
    assert 1 == 1, "never"
    try:
        assert not TABLE, f"table has {len(TABLE)}"
    except AssertionError as error:
        return str(error)


@program
def failing_assertion():
    assert TABLE is None


class Manager:
    def __init__(self, log, name, swallows=False):
        self.log = log
        self.name = name
        self.swallows = swallows

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self.name

    def __exit__(self, kind, value, traceback):
        self.log.append(f"leave {self.name} {kind and kind.__name__}")
        return self.swallows


@program
def with_statements():
    log = []
    with Manager(log, "a") as a, Manager(log, "b", True):
        log.append(a)
        raise KeyError("swallowed")
    with Manager(log, "c"):
        for i in range(3):
            with Manager(log, i):
                if i == 1:
                    break
    return log


@program
def with_raises():
    log = []
    try:
        with Manager(log, "a"):
            with Manager(log, "b"):
                raise ValueError("x")
    except ValueError as error:
        log.append(error.args)
    return log


@program
def with_return():
    log = []

    def inner():
        with Manager(log, "a"):
            return len(log)

    return inner(), log


@program
def with_something_else():
    with 5:
        pass


class EnterOnly:
    def __enter__(self):
        return self


@program
def with_half_a_manager():
    with EnterOnly():
        pass


@program
def deeply_nested_with():
    log = []
    # fmt: off
    with Manager(log, 0), Manager(log, 1), Manager(log, 2), Manager(log, 3), Manager(log, 4), \
         Manager(log, 5), Manager(log, 6), Manager(log, 7), Manager(log, 8, True), Manager(log, 9):
        raise KeyError
    # fmt: on
    return log


# -- match ----------------------------------------------------------------------------------------


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x = x
        self.y = y


def describe(subject):
    match subject:
        case 0 | 1:
            return "small"
        case True | None:
            return "singleton"
        case "text":
            return "text"
        case [a, b]:
            return "pair", a, b
        case [first, *rest] if len(rest) > 3:
            return "long", first, rest
        case (1, *_, last):
            return "from one", last
        case {"kind": kind, "n": int(n), **others}:
            return kind, n, others
        case {"kind": kind}:
            return kind
        case Point(0, y=y):
            return "on the axis", y
        case Point(x, y) as point:
            return "point", x, y, point.x
        case int(n) | float(n):
            return "number", n
        case [[1, inner], *_]:
            return inner
        case str() as text:
            return text
        case _:
            return "other"


@program
def patterns():
    subjects = [
        0, 1, None, "text", [1, 2], (3, 4), [1, 2, 3, 4, 5], (1, 2, 9), {"kind": "k", "n": 3, "z": 1},
        {"kind": "k", "n": "no"}, {}, Point(0, 5), Point(1, 2), 7, 2.5, [[1, 8], 2, 3], "word", b"x",
        [], [5],
    ]  # fmt: skip
    return [describe(subject) for subject in subjects]


@program
def pattern_with_a_wrong_class():
    match 5:
        case Point(1, 2, 3):
            return 1
    match Point(1, 2):
        case Point(1, 2, 3):
            return 2


# -- imports --------------------------------------------------------------------------------------


@program
def imports():
    import math
    import os.path as path
    from math import floor, pi as circle

    return math.sqrt(4), floor(circle), path.__name__


@program
def missing_import():
    import there_is_no_such_module


@program
def missing_name_in_a_module():
    from math import there_is_no_such_function


# -- size -----------------------------------------------------------------------------------------


def _generated(name: str, body: list[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def {name}():\n" + "\n".join(f"    {line}" for line in body), namespace)
    program(namespace[name])


_generated(
    "three_hundred_locals",
    [
        *[f"v{n} = {n}" for n in range(300)],
        "total = 0",
        *[f"total += v{n}" for n in range(300)],
        "return total",
    ],
)
_generated(
    "wide_jumps",
    [
        "total = 0",
        "for i in range(4):",
        "    if i % 2:",
        *[f"        total += {n} + len('{n}')" for n in range(400)],
        "    else:",
        *[f"        total -= {n}" for n in range(400)],
        "        if i == 2: continue",
        "return total",
    ],
)
_generated(
    "many_constants_and_names",
    [f"x = {list(range(300, 700))}", "y = {" + ", ".join(f"'k{n}': {n}" for n in range(300)) + "}",
     "return sum(x), len(y), " + " + ".join(f"y['k{n}']" for n in range(290, 300))],
)  # fmt: skip
_generated(
    "many_handlers",
    [
        "log = []",
        *[
            line
            for n in range(60)
            for line in (
                "try:",
                f"    if {n} % 3: raise KeyError({n})",
                f"    log.append({n})",
                "except KeyError as e:",
                "    log.append(e.args)",
            )
        ],
        "return log",
    ],
)
