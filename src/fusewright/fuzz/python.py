"""Random Python programs around tensors: control flow, exceptions, closures, generators, classes,
objects and containers that are written to, graph breaks anywhere, and a log of what happened when.

All that a program does to its globals and arguments is compared, and in which order.
"""

from __future__ import annotations

import random
import re
import textwrap
from typing import Final

from fusewright.fuzz.program import ENDING, RandomProgram
from fusewright.fuzz.python_phrases import (
    ABANDONS,
    ALWAYS,
    BLOCKS,
    DEFINITIONS,
    EXPRESSIONS,
    MAY_RAISE,
    SETTING,
    STATEMENTS,
)

DEEPEST: Final = 2
"""Blocks inside of blocks, and expressions inside of expressions."""

FIRST: Final = {"i": "n", "t": "x", "s": "s", "l": "lst", "o": "obj", "b": "flag"}
"""The parameter of each type."""

_PLACE: Final = re.compile(r"\{(=?[A-Z]|[a-z]|block)\}")

_FRAME: Final = """\
def outer():
    cell = 4

    def scaled(t, a):
        return t + a + cell

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        global G_INT, G_TEXT
        nonlocal cell
{body}
    def peek():
        return cell

    return f, peek


f, peek = outer()
"""

_DRIVE: Final = """\
def make(seed, n=2, s="ab", rest=(), **keywords):
    return [fill(seed, (3, 2), torch.float32, "integers"{grad}), n, s, rest, keywords]


def drive(f, x, n, s, rest, keywords):
    try:
        return f(x, n, s, LST, D, OBJ, *rest, **keywords)
    finally:
        LOG.append(peek())
"""


def generate(seed: int) -> RandomProgram:
    """The Python program of a seed."""
    return RandomProgram("python", seed, _Writer(random.Random(f"python {seed}")).text())


class _Writer:
    """Writes one program."""

    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self._scopes: list[dict[str, list[str]]] = [{kind: [name] for kind, name in FIRST.items()}]
        self._count = 0
        self._abandons = generator.random() < 0.1

    def text(self) -> str:
        """The program as a file."""
        count = self.random.choice([2, 3, 4, 5, 6, 8])
        body = "".join(self._statement(0) for _ in range(count)) + self._return()
        function = _FRAME.format(body=textwrap.indent(body, " " * 8))
        mode = self.random.choices(["plain", "grad", "no_grad"], [7, 2, 1])[0]
        grad = ", grad=True" if mode == "grad" else ""
        setting = SETTING
        if mode == "grad" and self.random.random() < 0.85:
            body_of_drive = _DRIVE.replace("return f(x,", "return f(x * 1,")
        else:
            body_of_drive = _DRIVE
        drive = body_of_drive.replace("{grad}", grad)
        dynamic = self.random.choices(["None", "True", "False"], [6, 2, 1])[0]
        calls = ", ".join(self._call() for _ in range(self.random.choice([1, 1, 2, 2, 3])))
        return "\n\n".join(
            [
                ALWAYS.rstrip(),
                *_needed(function + setting + drive),
                setting.rstrip(),
                f'MODE = "{mode}"\nDYNAMIC = {dynamic}\nCALLS = [{calls}]\n'
                'STATE = ("LOG", "LST", "D", "OBJ", "G_INT", "G_LIST", "G_TEXT", "mod")',
                function.rstrip(),
                drive.rstrip() + ENDING,
            ]
        )

    def _call(self) -> str:
        parts = [f"seed={self.random.randrange(100)}"]
        for part in ("n=3", "n=0", 's="b7"', "rest=(5, 6)", "k=0", "flag=True", "fl=0.5", "w=1"):
            if self.random.random() < 0.2 and part.partition("=")[0] not in str(parts):
                parts.append(part)
        return f"dict({', '.join(parts)})"

    def _statement(self, depth: int) -> str:
        is_block = depth <= DEEPEST and self.random.random() < 0.4
        phrase = self.random.choice(BLOCKS if is_block else STATEMENTS)
        unwanted = phrase in ABANDONS and not self._abandons
        if unwanted or (phrase in MAY_RAISE and self.random.random() < 0.8):
            return self._statement(depth)
        targets: list[tuple[str, str]] = []
        alone = re.compile(r"(?:^| = |\(){[A-Z]}(?:$|\))")
        text = _PLACE.sub(
            lambda place: self._filled(place[1], depth, targets, alone.search(phrase) is not None),
            phrase,
        )
        for kind, name in targets:
            self._scopes[-1].setdefault(kind, []).append(name)
        return text if text.endswith("\n") else f"{text}\n"

    def _filled(self, what: str, depth: int, targets: list[tuple[str, str]], whole: bool) -> str:
        """The text at a place; `whole`: an expression needs no parentheses there."""
        if what == "block":
            return self._block(depth, targets)
        if what.startswith("="):
            self._count += 1
            kind = what[1].lower()
            targets.append((kind, f"{kind}{self._count}"))
            return targets[-1][1]
        if what.islower():
            return self._variable(what)
        text = self._expression(what, 0)
        return text if whole else _enclosed(text)

    def _block(self, depth: int, targets: list[tuple[str, str]]) -> str:
        """Statements of a block, which see what its head sets; what they set mostly stays in it."""
        self._scopes.append({})
        for kind, name in targets:
            self._scopes[-1].setdefault(kind, []).append(name)
        lines = "".join(self._statement(depth + 1) for _ in range(self.random.choice([1, 1, 2, 3])))
        inner = self._scopes.pop()
        if self.random.random() < 0.05:
            for kind, names in inner.items():
                self._scopes[-1].setdefault(kind, []).extend(names)
        return textwrap.indent(lines, "    ")

    def _variable(self, kind: str) -> str:
        names = [name for scope in self._scopes for name in scope.get(kind, ())]
        return self.random.choice(names)

    def _expression(self, kind: str, depth: int) -> str:
        phrases = EXPRESSIONS[kind]
        if depth > DEEPEST or self.random.random() < 0.35 * depth:
            phrases = tuple(p for p in phrases if not re.search(r"\{[A-Z]\}", p))
        phrase = self.random.choice(phrases)
        if phrase in MAY_RAISE and self.random.random() < 0.8:
            return self._expression(kind, depth)

        def part(place: re.Match[str]) -> str:
            if place[1].islower():
                return self._variable(place[1])
            return _enclosed(self._expression(place[1], depth + 1))

        return _PLACE.sub(part, phrase)

    def _return(self) -> str:
        parts = [self._variable("t")]
        parts += [self._variable(kind) for kind in "isltob" if self.random.random() < 0.35]
        return f"return ({', '.join(dict.fromkeys(parts))},)\n"


def _enclosed(text: str) -> str:
    """An expression as an operand."""
    return text if re.fullmatch(r"[a-zA-Z_][\w.]*|\[[^\[\]]*\]", text) else f"({text})"


def _needed(text: str) -> list[str]:
    """The definitions that a text refers to, and those that these refer to."""
    wanted: set[str] = set()
    pending = text
    while True:
        more = {
            name
            for name in DEFINITIONS
            if name not in wanted and re.search(rf"\b{name}\b", pending)
        }
        if not more:
            break
        wanted |= more
        pending = "".join(DEFINITIONS[name] for name in more)
    return ["\n" + text.rstrip() for name, text in DEFINITIONS.items() if name in wanted] + [""]
