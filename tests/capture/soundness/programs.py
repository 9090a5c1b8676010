"""Random small programs with graph breaks in random places, as trees that can be shrunk.

A program is a module with a function `main` and helpers that are inlined: loops, `with`, `try`,
comprehensions, closures, generators, objects. Breaks are calls of `graph_break`, prints, reads of
a tensor's value and branches on one, anywhere a statement or an expression can stand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

PRELUDE = """
import contextlib
import dataclasses
import torch
import fusewright

counter = 0
finished = []

class Error(Exception):
    pass

class Context:
    def __init__(self, log, name, swallow):
        self.log, self.name, self.swallow = log, name, swallow
    def __enter__(self):
        self.log.append("enter " + self.name)
        return self
    def __exit__(self, kind, value, traceback):
        self.log.append(f"exit {self.name} {kind and kind.__name__}")
        return self.swallow

class Breaking(Context):
    def __enter__(self):
        fusewright.graph_break()
        return super().__enter__()
    def __exit__(self, *error):
        fusewright.graph_break()
        return super().__exit__(*error)

@contextlib.contextmanager
def managed(log, name):
    log.append("begin " + name)
    try:
        yield name
    finally:
        log.append("end " + name)

class Box:
    def __init__(self, value):
        self.value, self.count = value, 0
    def add(self, t):
        self.count += 1
        self.value = self.value + t
        return self.value
    @property
    def double(self):
        return self.value * 2
    def __len__(self):
        return self.count

def pause(v):
    fusewright.graph_break()
    return v

def show(v):
    print("show", v)
    return v

def numbers(k):
    for i in range(k):
        yield i

def pausing_numbers(k):
    for i in range(k):
        fusewright.graph_break()
        yield i
    return k

def bump():
    global counter
    counter += 1

def careful(log, values):
    try:
        for value in values:
            received = yield value
            if received:
                log.append(received)
    except Error as error:
        log.append(f"caught {error}")
        yield values[0]
    finally:
        # Not in the order of `log`: a generator that nothing reads again may die before its frame.
        finished.append("closed")
    return len(values)

def delegating(log, values):
    count = yield from careful(log, values)
    log.append(count)
    yield values[-1] * count

def descend(t, n):
    if n <= 0:
        return pause(t)
    return descend(t + n, n - 1) * 0.5

def picked(t, n):
    rows = t[torch.tensor([n % 3, 0])]  # there are two: this raises while the graph runs
    return t + rows.sum(0)

def apply(function, *arguments, **keywords):
    return function(*arguments, **keywords)
"""


HANDLERS = ("except Error as error:", "except (ValueError, IndexError):", "except Exception:")


@dataclass
class Statement:
    """A statement: lines, or headers each with a block below it."""

    lines: list[str] = field(default_factory=list)
    parts: list[tuple[str, Block]] = field(default_factory=list)

    def text(self, indent: int) -> Iterator[str]:
        """Source lines."""
        margin = "    " * indent
        for line in self.lines:
            yield margin + line
        for header, block in self.parts:
            yield margin + header
            yield from block_text(block, indent + 1)


Block = list[Statement]


def block_text(block: Block, indent: int) -> Iterator[str]:
    """Source lines of a block; an empty one passes."""
    if not block:
        yield "    " * indent + "pass"
    for statement in block:
        yield from statement.text(indent)


@dataclass
class Program:
    """The functions of a module, each with its block."""

    functions: list[tuple[str, Block]]

    @property
    def source(self) -> str:
        """The module's text."""
        lines = [PRELUDE]
        for header, block in self.functions:
            lines += ["", header, *block_text(block, 1)]
        return "\n".join(lines) + "\n"


@dataclass
class Scope:
    """Names that are bound for certain, by kind."""

    tensors: list[str]
    numbers: list[str]
    in_loop: bool = False
    in_helper: bool = False

    def inner(self, in_loop: bool | None = None) -> Scope:
        """For a block that may not run to its end: what it binds is not bound for certain."""
        loop = self.in_loop if in_loop is None else in_loop
        return Scope(list(self.tensors), list(self.numbers), loop, self.in_helper)


class Generator:
    """Makes a program from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def program(self) -> Program:
        """A program: `main(x, k, items, table, box, log)` and helpers."""
        helper, second = (Scope(["a"], ["k"], in_helper=True) for _ in range(2))
        main = Scope(["x"], ["k"])
        return Program(
            [
                ("def helper(a, k, log):", self._body(helper, 1, 3)),
                ("def second(a, k, log):", self._body(second, 1, 2)),
                ("def main(x, k, items, table, box, log):", self._body(main, 2, 6)),
            ]
        )

    def _body(self, scope: Scope, depth: int, size: int) -> Block:
        block = self._block(scope, depth, size)
        names = [*scope.tensors[-3:], *scope.numbers[-2:]]
        result = names[0] if scope.in_helper else f"({', '.join(names)},)"
        if scope.in_helper:
            result = self._tensor(scope)
        return [*block, Statement([f"return {result}"])]

    def _block(self, scope: Scope, depth: int, size: int) -> Block:
        return [self._statement(scope, depth) for _ in range(self.random.randint(1, size))]

    def _fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # -- expressions -----------------------------------------------------------------------------

    def _tensor(self, scope: Scope, depth: int = 2) -> str:
        """An expression whose value is a tensor of two rows and three columns."""
        one = self.random.choice(scope.tensors)
        if depth == 0 or self.random.random() < 0.2:
            return one
        other = self._tensor(scope, depth - 1)
        number = self._number(scope, depth - 1)
        choices = [
            f"{one} + {other}",
            f"{one} - {number}",
            f"torch.sin({other})",
            f"{other} * 0.5",
            f"torch.relu({one} * {other})",
            f"torch.where({one} > {other}, {one}, -({other}))",
            f"({other}) + {one}.sum()",
            f"pause({other})",
            f"show({other})",
            f"({other} if {self._condition(scope, 0)} else {one})",
            f"sum([{one} + i for i in range(3)], {other})",
            f"torch.stack([{one}, {other}]).mean(0)",
            f"apply(lambda t: t + {number}, {other})",
            f"apply(torch.add, {one}, other={other})",
            f"max({one}, {other}, key=lambda t: t.shape[0])",
            f"({other}).clone().mul_(0.5)",
            f"sum(delegating(log, [{one}, {other}]))",
            f"next(careful(log, [{one}, {other}]))",
            f"descend({other}, {number})",
            f"picked({other}, {number})",
            f"[*({one}, pause({other}))][-1]",
            f"{{0: {one}, **{{1: pause({other})}}}}[1]",
            f"(lambda *a, **k: a[0] + k['b'])({one}, b={other})",
            f"(last := {other}) + last",
            f"{one}[pause(0)] + {other}",
            # A comprehension iterates over names: in what it iterates over, `:=` may not stand.
            f"[pause(t) + {other} for t in ({one},) if pause(1)][0]",
        ]
        if not scope.in_helper:
            choices += [
                f"helper({other}, {number}, log)",
                f"second({other}, k={number}, log=log)",
                f"apply(helper, {other}, {number}, log)",
                f"box.add({other})",
                "box.double",
                "items[-1]",
                f"table.setdefault({number}, {other})",
                f"[helper(t, {number}, log) + {other} for t in ({one},)][0]",
            ]
        return self.random.choice(choices)

    def _number(self, scope: Scope, depth: int = 2) -> str:
        """An expression whose value is a small integer."""
        one = self.random.choice(scope.numbers)
        if depth <= 0 or self.random.random() < 0.3:
            return self.random.choice([one, str(self.random.randint(0, 3))])
        tensor = self.random.choice(scope.tensors)
        choices = [
            f"({one} + 1) % 4",
            f"{tensor}.shape[0]",
            f"int({tensor}.sum().item() > 0)",
            f"pause({one})",
            f"len([i for i in range({one}) if i % 2])",
            f"sum(numbers({one}))",
            f"sum(pausing_numbers({one}))",
            f"(lambda v: v + {one})(1)",
            f"6 // {one}",
            f"[3, 1, 2][{one}]",
            f"len(f'{{{one}!r:>4}} {{pause({one})}}')",
            f"{{k: pause(v) for k, v in ((0, {one}), (1, 2))}}[1]",
            f"sorted([{one}, 2, 1], key=lambda v: pause(-v))[0]",
        ]
        if not scope.in_helper:
            choices += ["len(items)", "len(box)", "len(table)", "box.count"]
        return self.random.choice(choices)

    def _condition(self, scope: Scope, depth: int = 1) -> str:
        tensor, number = self.random.choice(scope.tensors), self.random.choice(scope.numbers)
        choices = [
            f"{number} > 1",
            f"{number} % 2",
            f"{tensor}.sum() > 0",
            f"({tensor} > 0.5).any()",
            f"pause({number}) == 2",
            f"{tensor} is {self.random.choice(scope.tensors)}",
            f"1 < {number} < 3",
        ]
        if depth:
            choices += [
                f"{self._condition(scope, 0)} and {self._condition(scope, 0)}",
                f"not ({self._condition(scope, 0)})",
                f"{self._condition(scope, 0)} or pause({number})",
            ]
        return self.random.choice(choices)

    # -- statements ------------------------------------------------------------------------------

    def _statement(self, scope: Scope, depth: int) -> Statement:
        simple = [self._assign, self._assign, self._assign, self._effect, self._break, self._leave]
        compound = [self._if, self._loop, self._while, self._try, self._with, self._closure]
        compound += [self._match, self._counter, self._driven, self._class]
        chosen = simple + compound * 2 if depth else simple
        made = self.random.choice(chosen)
        return made(scope, depth)

    def _assign(self, scope: Scope, depth: int) -> Statement:
        kind = self.random.random()
        if kind < 0.6:
            value = self._tensor(scope)
            name = self._target(scope.tensors, "t")
            return Statement([f"{name} = {value}"])
        if kind < 0.8:
            value = self._number(scope)
            name = self._target(scope.numbers, "n")
            return Statement([f"{name} = {value}"])
        if kind < 0.9:
            one, other = self._tensor(scope), self._number(scope)
            first, second = self._target(scope.tensors, "t"), self._target(scope.numbers, "n")
            return Statement([f"{first}, {second} = {one}, {other}"])
        name = self.random.choice(scope.tensors)
        return Statement([f"{name} = {name} + {self._number(scope)}"])

    def _target(self, names: list[str], prefix: str) -> str:
        free = [name for name in names if not name.startswith("w")]  # Or `while` may not end.
        if free and self.random.random() < 0.4:
            return self.random.choice(free)
        name = self._fresh(prefix)
        names.append(name)
        return name

    def _effect(self, scope: Scope, depth: int) -> Statement:
        tensor, number = self._tensor(scope), self._number(scope)
        choices = [
            [f"log.append({number})"],
            [f"log.append(('t', {tensor}))"],
            ["bump()"],
        ]
        if not scope.in_helper:
            choices += [
                [f"items.append({tensor})"],
                [f"items[0] = {tensor}"],
                [f"table[{number}] = {tensor}"],
                [f"box.value = {tensor}"],
                ["box.count += 1"],
                [f"box.add({tensor})"],
                [f"table.pop({number}, None)"],
                [f"items.extend([{tensor}, {tensor}])"],
                [f"del items[{number}]"],
            ]
        return Statement(self.random.choice(choices))

    def _break(self, scope: Scope, depth: int) -> Statement:
        tensor, number = self.random.choice(scope.tensors), self.random.choice(scope.numbers)
        return Statement(
            [
                self.random.choice(
                    [
                        "fusewright.graph_break()",
                        f"print('at', {number})",
                        f"print({tensor})",
                        f"log.append({tensor}.sum().item())",
                        f"show({number})",
                    ]
                )
            ]
        )

    def _leave(self, scope: Scope, depth: int) -> Statement:
        number = self.random.choice(scope.numbers)
        condition = f"if {self._condition(scope)}: "
        choices = [
            condition + f"raise Error({number})",
            condition + f"raise ValueError('wrong', {number})",
            condition + f"return {self._tensor(scope)}",
            f"assert {self._condition(scope)}, {number}",
        ]
        if scope.in_loop:
            choices += [condition + "break", condition + "continue"] * 2
        return Statement([self.random.choice(choices)])

    def _if(self, scope: Scope, depth: int) -> Statement:
        parts = [(f"if {self._condition(scope)}:", self._block(scope.inner(), depth - 1, 3))]
        if self.random.random() < 0.3:
            parts.append(
                (f"elif {self._condition(scope)}:", self._block(scope.inner(), depth - 1, 2))
            )
        if self.random.random() < 0.6:
            parts.append(("else:", self._block(scope.inner(), depth - 1, 2)))
        return Statement(parts=parts)

    def _loop(self, scope: Scope, depth: int) -> Statement:
        name = self._fresh("i")
        tensor, number = self.random.choice(scope.tensors), self.random.choice(scope.numbers)
        numeric = [
            f"range({number})",
            "range(3)",
            f"numbers({number})",
            f"pausing_numbers({number})",
            "[1, 2]",
            "{1: 2, 2: 3}",
            "{1: 2, 2: 3}.values()",
            "reversed([1, 2, 3])",
            "map(abs, [1, -2, 3])",
            f"filter(None, range({number}))",
            f"map(lambda n: n + {number}, range(3))",
        ]
        tensors = [f"({tensor}, {self._tensor(scope)})", f"[pause({tensor})]"]
        inner = scope.inner(in_loop=True)
        if self.random.random() < 0.2:
            other = self._fresh("t")
            header = f"for {name}, {other} in zip(numbers({number}), [{tensor}] * 3):"
            inner.numbers.append(name)
            inner.tensors.append(other)
        elif self.random.random() < 0.7:
            header = f"for {name} in {self.random.choice(numeric)}:"
            inner.numbers.append(name)
        elif self.random.random() < 0.5:
            header = f"for {name} in {self.random.choice(tensors)}:"
            inner.tensors.append(name)
        else:
            other = self._fresh("t")
            header = f"for {name}, {other} in enumerate({self.random.choice(tensors)}):"
            inner.numbers.append(name)
            inner.tensors.append(other)
        parts = [(header, self._block(inner, depth - 1, 3))]
        if self.random.random() < 0.15:
            parts.append(("else:", self._block(scope.inner(), depth - 1, 1)))
        return Statement(parts=parts)

    def _while(self, scope: Scope, depth: int) -> Statement:
        name = self._fresh("w")
        inner = scope.inner(in_loop=True)
        inner.numbers.append(name)
        limit = self.random.choice(["3", f"{self.random.choice(scope.numbers)}"])
        body = self._block(inner, depth - 1, 2)
        return Statement([f"{name} = 0"], [(f"while ({name} := {name} + 1) <= {limit}:", body)])

    def _try(self, scope: Scope, depth: int) -> Statement:
        parts = [("try:", self._block(scope.inner(), depth - 1, 3))]
        handlers = [
            "except Error as error:",
            "except (ValueError, IndexError):",
            "except Exception:",
        ]
        for header in self.random.sample(handlers, self.random.randint(0, 2)):
            block = self._block(scope.inner(), depth - 1, 2)
            if "as error" in header:
                block.append(Statement(["log.append(str(error))"]))
            if self.random.random() < 0.2:
                block.append(Statement([self.random.choice(["raise", "raise Error(9) from None"])]))
            parts.append((header, block))
        order = [header for header, _ in parts]
        if "except Exception:" in order:  # The widest one last, or those behind it never run.
            parts.append(parts.pop(order.index("except Exception:")))
        if len(parts) > 1 and self.random.random() < 0.2:
            parts.append(("else:", self._block(scope.inner(), depth - 1, 1)))
        if len(parts) == 1 or self.random.random() < 0.4:
            inner = scope.inner(in_loop=False)
            parts.append(("finally:", self._block(inner, depth - 1, 2)))
        return Statement(parts=parts)

    def _with(self, scope: Scope, depth: int) -> Statement:
        name = self._fresh("c")
        swallow = self.random.random() < 0.4
        manager = self.random.choice(
            [
                f"Context(log, '{name}', {swallow})",
                f"Context(log, '{name}', {swallow})",
                f"Breaking(log, '{name}', {swallow})",
                f"managed(log, '{name}')",
                "torch.no_grad()",
                f"Context(log, '{name}', False), managed(log, 'inner {name}')",
                "contextlib.suppress(Error)",
            ]
        )
        return Statement(parts=[(f"with {manager}:", self._block(scope.inner(), depth - 1, 3))])

    def _closure(self, scope: Scope, depth: int) -> Statement:
        function = self._fresh("f")
        tensor = self.random.choice(scope.tensors)
        inner = Scope(["p"], [self.random.choice(scope.numbers)], in_helper=True)
        body = self._block(inner, depth - 1, 2)
        result = self._fresh("t")
        argument = self._tensor(scope, 1)
        scope.tensors.append(result)
        return Statement(
            [],
            [
                (
                    f"def {function}(p):",
                    [*body, Statement([f"return {self._tensor(inner, 1)} + {tensor}"])],
                ),
                ("if True:", [Statement([f"{result} = {function}({argument})"])]),
            ],
        )

    def _match(self, scope: Scope, depth: int) -> Statement:
        number, tensor = self.random.choice(scope.numbers), self.random.choice(scope.tensors)
        subject = self.random.choice([f"({number}, {tensor})", f"[pause({number}), {tensor}]"])
        first = ("case [0 | 1, t]:", self._block(scope.inner(), depth - 1, 2))
        guarded = (f"case [n, _] if {self._condition(scope)}:", [self._effect(scope, 0)])
        rest = ("case _:", self._block(scope.inner(), depth - 1, 2))
        return Statement(parts=[(f"match {subject}:", [Statement(parts=[first, guarded, rest])])])

    def _counter(self, scope: Scope, depth: int) -> Statement:
        """A closure that changes a variable of the function around it."""
        name, function = self._fresh("v"), self._fresh("f")
        tensor = self.random.choice(scope.tensors)
        result = self._fresh("t")
        stop = self._break(Scope(["p"], ["1"], in_helper=True), 0)
        lines = [f"nonlocal {name}", f"{name} = {name} + p", *stop.lines, f"return {name} * 2"]
        made = Statement(
            [f"{name} = {tensor}"],
            [
                (f"def {function}(p):", [Statement(lines)]),
                ("if True:", [Statement([f"{result} = {function}({self._tensor(scope, 1)})"])]),
                ("if True:", [Statement([f"{result} = {function}({name}) + {name}"])]),
            ],
        )
        scope.tensors.append(result)
        return made

    def _class(self, scope: Scope, depth: int) -> Statement:
        """A class made inside, an instance of which outlives what comes then."""
        name, made, result = self._fresh("C"), self._fresh("c"), self._fresh("t")
        tensor, number = self.random.choice(scope.tensors), self.random.choice(scope.numbers)
        bases = self.random.choice(["", "(list)", "(Error)"])
        stop = self._break(Scope(["self.v"], [number], in_helper=True), 0)
        body = [
            Statement([f"k = {number}"]),
            Statement(parts=[("def set(self, v):", [Statement(["self.v = v", "return self"])])]),
            Statement(
                parts=[
                    (
                        "def get(self, n=2):",
                        [Statement([*stop.lines, f"return self.v * self.k + n + {tensor}"])],
                    )
                ]
            ),
        ]
        decorator = self.random.choice([[], [], ["@dataclasses.dataclass"]])
        between = self.random.choice([[], ["fusewright.graph_break()"]])
        lines = [
            f"{made} = {name}().set({self._tensor(scope, 1)})",
            *between,
            f"{result} = {made}.get(n={number})",
            f"log.append(type({made}).__name__)",
        ]
        scope.tensors.append(result)
        return Statement(
            decorator, [(f"class {name}{bases}:", body), ("if True:", [Statement(lines)])]
        )

    def _driven(self, scope: Scope, depth: int) -> Statement:
        """A generator that is sent values, thrown into and closed."""
        name = self._fresh("g")
        maker = self.random.choice(["careful", "delegating"])
        values = f"[{self._tensor(scope, 1)}, {self.random.choice(scope.tensors)}]"
        ends = [f"{name}.close()", f"log.append({name}.throw(Error(4)))", f"list({name})"]
        lines = [
            f"{name} = {maker}(log, {values})",
            f"log.append(next({name}))",
            *self.random.choice([[], ["fusewright.graph_break()"]]),
            f"log.append({name}.send({self.random.choice(scope.numbers)}))",
            *self.random.choice([[], ["fusewright.graph_break()"]]),
            self.random.choice(ends),
        ]
        return Statement(lines)


def shrunk(program: Program) -> Iterator[Program]:
    """Programs with one part less, the largest parts first."""
    for index, (header, block) in enumerate(program.functions):
        for smaller in _shrunk_block(block):
            functions = list(program.functions)
            functions[index] = (header, smaller)
            yield Program(functions)


def _shrunk_block(block: Block) -> Iterator[Block]:
    for index, statement in enumerate(block):
        before, after = block[:index], block[index + 1 :]
        yield before + after
        for _, inner in statement.parts:
            yield before + inner + after
        if len(statement.parts) > 1:
            for part in range(1, len(statement.parts)):
                kept = statement.parts[:part] + statement.parts[part + 1 :]
                yield [*before, Statement(statement.lines, kept), *after]
        for part, (header, inner) in enumerate(statement.parts):
            for smaller in _shrunk_block(inner):
                parts = list(statement.parts)
                parts[part] = (header, smaller)
                yield [*before, Statement(statement.lines, parts), *after]
