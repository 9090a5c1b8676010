"""Programs of constants: variables, operators, items, text, unpacking, calls, classes."""

# ruff: noqa (these programs are meant to use every form that the language has)

from __future__ import annotations

from tests.programs.corpus import add as program

TABLE = {"a": 1, "b": [2, 3]}
counter = 0


# -- variables ------------------------------------------------------------------------------------


@program
def locals_in_pairs():
    a, b = 1, 2
    c = a
    d = b
    a = d
    b = c
    del c
    return a + b, a * d, b


@program
def unbound_local():
    if TABLE is None:
        x = 1
    return x


@program
def deleted_local():
    x = 1
    del x
    return x


@program
def delete_twice():
    x = 1
    del x
    del x


@program
def deleted_cell():
    x = 1

    def inner():
        return x

    del x
    return inner()


@program
def empty_cell_of_this_function():
    def inner():
        return x

    if TABLE is None:
        x = 1
    return x


@program
def delete_empty_cell():
    x = 1

    def inner():
        return x

    del x
    del x


@program
def nonlocal_variables():
    total = 0

    def add(n, /, m=10, *rest, key=1, **more):
        nonlocal total
        total += n + m + key + sum(rest) + sum(more.values())
        return total

    return add(1), add(1, 2), add(1, 2, 3, 4, key=5, z=6), add(*[1, 2], **{"key": 7}), total


@program
def global_variables():
    global counter, made_here
    before = counter
    counter = before + 2
    made_here = counter
    result = counter, made_here
    del made_here
    counter = before
    return result


@program
def missing_global():
    return there_is_no_such_name


@program
def delete_missing_global():
    global there_is_no_such_global
    del there_is_no_such_global


@program
def cell_of_a_parameter():
    def outer(x, y=2):
        def inner():
            return x * y

        x += 1
        return inner

    return outer(3)(), outer(3, 4)()


@program
def deep_closures():
    def one(a):
        def two(b):
            def three(c):
                return a, b, c, lambda: a + b + c

            return three

        return two

    a, b, c, f = one(1)(2)(3)
    return a, b, c, f()


# -- comprehensions, inlined from 3.12 on ---------------------------------------------------------


@program
def comprehension_keeps_the_outer_variable():
    x = 5
    squares = [x * x for x in range(4)]
    return x, squares


@program
def comprehension_of_an_unbound_variable():
    squares = [y for y in range(3)]
    try:
        return y
    except UnboundLocalError as error:
        return str(error), squares


@program
def comprehensions_of_all_kinds():
    rows = [[1, 2], [3, 4]]
    return (
        [v for row in rows for v in row if v != 2],
        {v % 3 for row in rows for v in row},
        {k: [v for v in row] for k, row in enumerate(rows)},
        sorted(v for row in rows for v in row),
        [[a * b for a in row] for b, row in zip((1, 2), rows)],
    )


@program
def comprehension_over_a_cell():
    x = 10
    functions = [lambda: x + i for i in range(3)]
    x = 20
    return [f() for f in functions]


@program
def comprehension_with_cells_of_its_own():
    x = 1
    get = lambda: x  # noqa: E731
    functions = [lambda: x for x in range(3)]
    return [f() for f in functions], x, get()


def _with_a_free_variable():
    k = 1

    @program
    def comprehension_hides_a_free_variable():
        table = {k: v + 1 for k, v in ((0, k), (2, 3))}
        table[k] = [k for k in range(3)]  # noqa: C416
        return table, k

    return comprehension_hides_a_free_variable


_with_a_free_variable()


@program
def comprehension_hides_a_cell():
    k = 10
    get = lambda: k
    found = {k: abs(v) for k, v in ((0, -1), (1, 2))}
    return found, k, get()


@program
def comprehension_that_raises_restores():
    x = 7
    try:
        [1 // x for x in (1, 0)]
    except ZeroDivisionError:
        pass
    return x


@program
def comprehension_with_walrus():
    found = [last := n * 2 for n in range(3)]
    return found, last


@program
def comprehension_in_a_method():
    class_value = []

    def method(self, values):
        return [self + v for v in values if (self, v)]

    class_value.append(method(1, [2, 3]))
    return class_value


# -- operators ------------------------------------------------------------------------------------


@program
def arithmetic():
    a, b = 17, 5
    return a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> b, a & b, a | b, a ^ b


@program
def in_place_arithmetic():
    a = 17
    a += 5
    a -= 1
    a *= 3
    a //= 2
    a %= 19
    a **= 2
    a <<= 1
    a >>= 2
    a &= 0xFF
    a |= 0x100
    a ^= 3
    b = 3.0
    b /= 2
    return a, b


@program
def unary_operators():
    a = 5
    return -a, +a, ~a, not a, not 0, +True, -0.0, not []


@program
def comparisons():
    a, b = 1, 2
    chained = a < b < 3 <= 3 != 4 == 4 > 2 >= 2
    return a < b, a <= b, a == b, a != b, a > b, a >= b, chained, 1 < 0 < there_is_no_such_name


@program
def comparisons_that_decide():
    found = []
    for n in range(6):
        if n < 1:
            found.append("small")
        elif n == 2 or n == 3:
            found.append("middle")
        elif not n >= 5:
            found.append("four" if n != 1 else "one")
        else:
            found.append("large")
    return found


@program
def identity_and_membership():
    a = []
    return a is a, a is not a, 1 in [1], 1 not in [1], None is None, "b" in "abc", 3 in {3: 1}


@program
def truth_of_things():
    return [bool(x) for x in (0, 1, "", "a", [], [0], {}, {1: 1}, None, 0.0, (), (0,), set())]


@program
def short_circuits():
    log = []

    def note(value):
        log.append(value)
        return value

    return note(0) or note(1), note(0) and note(2), note(3) if note(4) else note(5), log


@program
def type_error_in_operator():
    return 1 + "a"


@program
def division_by_zero():
    a = 0
    return 1 // a


# -- items and slices -----------------------------------------------------------------------------


@program
def items_and_slices():
    a = list(range(10))
    b = a[2:5], a[::-1], a[-3:], a[:3], a[1:8:3]
    a[0] = 100
    a[1:3] = [7, 8, 9]
    a[::4] = [0, 0, 0]
    del a[1], a[-2:]
    a[0] += 5
    a[1:2] += [1]
    return a, b, "abcdef"[1:3], (1, 2, 3)[1:]


@program
def dictionaries():
    a = {"x": 1, **TABLE, 2: 3}
    a["y"] = a["x"] + 1
    del a["a"]
    b = {**a, "x": 5}
    return a, b, {1: 2, 3: 4}, {}, "x" in a, dict(k=1), {(1, 2): 3}


@program
def index_error():
    return [1, 2][5]


@program
def key_error():
    return {}["missing"]


@program
def order_of_sets():
    a = {10, 20, 30, 40, 50}
    b = {n * 7 % 31 for n in range(12)}
    b.discard(14)
    b.add(45)
    return [*a], [*b], [*{3, *a, 1}], [*{"ab", 8, 16, 24, 32, 40, 0}.difference({"ab"})]


@program
def order_of_sets_changed():
    """The names of strings collide with the numbers in one process of eight, by chance."""
    a = {"ab", "cd", "ef", 8, 16, 24, 32, 40, 0}
    a.pop()
    a.update({48, 56, "gh"}, [64])
    b = a - {"ab"} | {"ij", 128}
    a.symmetric_difference_update({"cd", 72})
    a.intersection_update({*b, 72, 136, *range(0, 80, 8)})
    first = a.pop()
    a.add(first)
    c = frozenset(a) & b
    return [*a], first, [*b], [*c], [*c.union({1, "kl"})], [*set(c)], [a.pop() for _ in range(3)]


@program
def sets():
    a = {1, 2, *[3, 4], *()}
    return a, {1, 2, 3}, len({1, 1})


# -- text -----------------------------------------------------------------------------------------


@program
def formatted():
    a, b, width = 3.14159, "text", 10
    return (
        f"{a}",
        f"{a:.2f}",
        f"{b!r:>{width}}",
        f"{b!s}",
        f"{b!a}",
        f"x{a}y{b}z",
        f"{a=}",
        f"{b:^{width}}|",
        f"{1}{2}",
        f"{{}}",
        f"{None} {True} {[1, 2]}",
    )


@program
def percent_and_format():
    return "%s-%d" % ("a", 3), "{}:{x}".format(1, x=2), "ab", "-".join(["a", "b"])


# -- unpacking ------------------------------------------------------------------------------------


@program
def unpacking():
    a, b = 1, 2
    (c, d), [e, *f], *g, h = (3, 4), "xyz", 5, 6, 7
    *i, j = range(3)
    k, *l = [8]
    for m, (n, o) in [(1, (2, 3)), (4, (5, 6))]:
        pass
    a, b = b, a
    p = q = [0]
    return a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p is q


@program
def unpack_too_many():
    a, b = 1, 2, 3
    return a


@program
def unpack_too_few():
    a, b, c = [1, 2]


@program
def unpack_rest_too_few():
    a, *b, c = [1]


@program
def unpack_rest_far_too_few():
    a, b, *c = [1]


@program
def unpack_a_number():
    a, b = 5


@program
def unpack_endless():
    def count():
        n = 0
        while True:
            yield n
            n += 1

    try:
        a, b = count()
    except ValueError as error:
        return str(error)


@program
def unpack_takes_only_what_it_needs():
    iterator = iter([1, 2, 3, 4])
    a, b, *c = [next(iterator), next(iterator), 0]
    return a, b, c, list(iterator)


@program
def star_in_displays():
    a = [1, 2]
    return [*a, *a], (*a, 3), {*a}, [*range(2), *"ab"], {**{"a": 1}, **{"b": 2}}


@program
def star_of_a_number():
    return [1, *5]


@program
def double_star_of_a_number():
    return {**5}


# -- calls ----------------------------------------------------------------------------------------


def receive(*arguments, **keywords):
    return arguments, keywords


def typed(a, /, b, *, c, d=4):
    return a, b, c, d


@program
def calls_of_every_shape():
    method = "a-b".split
    return (
        receive(),
        receive(1, 2),
        receive(1, k=2),
        receive(*[1, 2], 3, *(4,), k=5, **{"l": 6}),
        receive(*[1]),
        receive(**{"a": 1}),
        typed(1, 2, c=3),
        typed(1, b=2, c=3, d=5),
        method("-"),
        "x".join(["a", "b"]),
        (lambda *a, **k: (a, k))(1, z=2),
        max(1, 2, key=lambda v: -v),
        "a b".split(sep=" ", maxsplit=1),
    )


@program
def repeated_keyword():
    return receive(a=1, **{"a": 2})


@program
def keywords_of_a_number():
    return receive(a=1, **5)


@program
def arguments_of_a_number():
    return receive(1, *5)


@program
def missing_argument():
    return typed(1)


@program
def unexpected_keyword():
    return typed(1, 2, c=3, e=4)


@program
def defaults_and_annotations():
    def inner(a: int = 1, *, b: str = "x", c=None) -> tuple:
        return a, b, c

    return inner(), inner(2, c=3), inner.__name__


@program
def lambdas_and_recursion():
    factorial = lambda n: 1 if n < 2 else n * factorial(n - 1)  # noqa: E731

    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return factorial(6), fibonacci(7)


@program
def decorators():
    def twice(function):
        def wrapper(*arguments):
            return function(function(*arguments))

        return wrapper

    def adding(n):
        return lambda function: lambda *arguments: function(*arguments) + n

    @twice
    @adding(3)
    def increment(x):
        return x + 1

    return increment(1)


class Base:
    def __init__(self, value):
        self.value = value

    def read(self, extra=0):
        return self.value + extra

    @classmethod
    def make(cls, value):
        return cls(value)

    @property
    def doubled(self):
        return self.value * 2


class Derived(Base):
    def __init__(self, value):
        super().__init__(value + 1)

    def read(self, extra=0):
        inner = lambda: self.value  # noqa: E731
        return super().read(extra) * 10 + super(Derived, self).doubled + inner()

    @classmethod
    def make(cls, value):
        return super().make(value + 100)


@program
def methods_and_super():
    a = Derived(1)
    a.value += 1
    b = Derived.make(5)
    del b.value
    return a.read(), a.read(extra=1), a.doubled, hasattr(b, "value"), Derived.read(a, 2)


@program
def missing_attribute():
    return Derived(1).missing
