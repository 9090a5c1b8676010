"""Tokens of the text form: logical lines (brackets join lines), each with its indentation, and a
cursor over one.
"""

from __future__ import annotations

import re

from fusewright.errors import MalformedProgram
from fusewright.records import field, record

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
      | (?P<name>[A-Za-z_]\w*(?:\.\w+)*)
      | (?P<float>\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)
      | (?P<integer>\d+)
      | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<symbol>//|>=|[-+*%()\[\],:=<])""",
    re.VERBOSE,
)


@record
class Token:
    """A word of the text."""

    kind: str
    """name, float, integer, string, symbol; `end` after the last one of a line."""

    text: str
    line: int
    """Number of the physical line, from 1."""

    column: int


@record
class Line:
    """A logical line: its tokens, or the raw text behind the bar of a kernel's source (`| …`)."""

    indentation: int
    tokens: tuple[Token, ...]
    raw: str | None = None


def split_lines(text: str) -> list[Line]:
    """The logical lines of a text, without empty lines and comments."""
    lines: list[Line] = []
    pending: list[Token] = []
    depth = indentation = 0
    for number, row in enumerate(text.split("\n"), start=1):
        stripped = row.lstrip(" ")
        if not pending:
            indentation = len(row) - len(stripped)
            if stripped.startswith("|"):
                lines.append(Line(indentation, (), stripped[2:]))
                continue
        for token in _tokens(row, number, text):
            depth += (token.text in "([") - (token.text in ")]") if token.kind == "symbol" else 0
            pending.append(token)
        if pending and depth <= 0:
            end = Token("end", "the end of the line", number, len(row))
            lines.append(Line(indentation, (*pending, end)))
            pending, depth = [], 0
    if pending:
        raise syntax_error(text, pending[0], "a bracket is not closed")
    return lines


def _tokens(row: str, number: int, text: str) -> list[Token]:
    tokens: list[Token] = []
    column = 0
    while column < len(row):
        match = _TOKEN.match(row, column)
        if match is None:
            bad = Token("symbol", row[column], number, column)
            raise syntax_error(text, bad, f"unexpected character {row[column]!r}")
        if match.lastgroup != "space":
            tokens.append(Token(str(match.lastgroup), match.group(), number, column))
        column = match.end()
    return tokens


def syntax_error(text: str, token: Token, message: str) -> MalformedProgram:
    """An error that shows the line with a mark below the token, and the message."""
    row = text.split("\n")[token.line - 1]
    mark = " " * token.column + "^"
    return MalformedProgram(f"line {token.line}: {message}\n  {row}\n  {mark} {message}")


@record(frozen=False)
class Cursor:
    """A place in the tokens of one line."""

    source: str
    """The whole text, for messages."""

    tokens: tuple[Token, ...]
    position: int = field(default=0)

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.peek()
        self.position += 1
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token reads as one of these; a string token never does."""
        token = self.peek()
        return token.kind not in ("string", "end") and token.text in texts

    def accept(self, text: str) -> bool:
        """Step over the next token if it reads so."""
        if not self.at(text):
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.peek().text!r}")

    def take(self, kind: str) -> str:
        """The text of the next token, which must be of this kind."""
        token = self.peek()
        if token.kind != kind:
            raise self.error(f"expected a {kind}, found {token.text!r}")
        self.position += 1
        return token.text

    def integer(self) -> int:
        """An integer, perhaps negative."""
        sign = -1 if self.accept("-") else 1
        return sign * int(self.take("integer"))

    def finish(self) -> None:
        """The line must end here."""
        if self.peek().kind != "end":
            raise self.error(f"expected the end of the line, found {self.peek().text!r}")

    def error(self, message: str) -> MalformedProgram:
        return syntax_error(self.source, self.peek(), message)
