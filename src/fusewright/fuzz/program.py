"""A random program: source text, which is a Python file that runs alone.

    f                   what is compiled: a function or a module
    make(**call)        arguments of a call, made anew; optional
    drive(f, *args)     one call, where it is more than f(*args): say a training step; optional
    CALLS               the keyword arguments of `make`, one dictionary for each call
    MODE                "plain", "no_grad", "inference", or "grad": then gradients are compared too
    DYNAMIC             what `fusewright.compile` is told
    STATE               names of globals that are compared after each call; optional
    verify()            in place of all of these: a check of its own, which returns what is wrong

Each run executes the whole text in a namespace of its own, so that nothing is shared between them.
"""

from __future__ import annotations

import ast
import linecache
import re
from pathlib import Path
from types import CodeType
from typing import Any, Final

import torch

from fusewright.records import record

ENDING: Final = """

if __name__ == "__main__":
    show(__file__)
"""
"""The end of each program, which makes it a file that runs alone."""

_PRECISION: Final = (
    (re.compile(r"\btorch\.(float32|float16|bfloat16|half|float)\b(?!\()"), "torch.float64"),
    (re.compile(r"\.(half|float|bfloat16)\(\)"), ".double()"),
    (re.compile(r"\btorch\.complex64\b"), "torch.complex128"),
)
"""Texts, and what stands in their place for a run in double precision."""

_FILL: Final = re.compile(r"^.*\bfill\(.*$", re.MULTILINE)
"""Lines that make inputs: their dtype is the one of the values, whichever run it is."""

FACTORIES: Final = frozenset(
    str.split(
        """
        arange empty eye full linspace logspace ones rand randint randn randperm scalar_tensor
        tensor tril_indices triu_indices zeros
        """
    )
)
"""Functions of torch that make tensors of none."""

NARROWEST: Final = ((r"bfloat16", torch.bfloat16), (r"float16|half", torch.float16))


@record
class RandomProgram:
    """A program, and how it was generated."""

    kind: str
    seed: int
    source: str

    @property
    def title(self) -> str:
        """The name that reports have for the program, as `tensors 12`."""
        return f"{self.kind} {self.seed}"

    @property
    def module(self) -> str:
        """The name of the module that the text is, and of its file without the ending."""
        return f"fuzz_{self.kind}_{self.seed}"

    @property
    def narrowest(self) -> torch.dtype:
        """The floating dtype of least precision that the program mentions."""
        for pattern, dtype in NARROWEST:
            if re.search(pattern, self.source):
                return dtype
        return torch.float32

    def with_source(self, source: str) -> RandomProgram:
        """A copy with another source."""
        return RandomProgram(self.kind, self.seed, source)

    def load(self, lift: bool = False, device: str = "cpu") -> dict[str, Any]:
        """The namespace that executing the text makes; `lift`: with floats of 64 bits. What it
        makes anew is on `device`.
        """
        source = _in_double(self.source) if lift else self.source
        if device != "cpu":
            source = _on_device(source, device)
        namespace: dict[str, Any] = {"__name__": self.module}
        exec(_compiled(source, f"{self.module}.py"), namespace)
        namespace.setdefault("CALLS", [{}])
        namespace.setdefault("MODE", "plain")
        namespace.setdefault("DYNAMIC", None)
        namespace.setdefault("STATE", ())
        namespace.setdefault("make", lambda: [])
        return namespace


def read_program(file: Path) -> RandomProgram:
    """The program that a file holds."""
    kind, _, seed = file.stem.rpartition("_")
    return RandomProgram(kind or "file", int(seed) if seed.isdecimal() else 0, file.read_text())


def _compiled(source: str, name: str) -> CodeType:
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return compile(source, name, "exec", dont_inherit=True)


def _in_double(source: str) -> str:
    """The text with dtypes of 64 bits, but for lines that fill inputs."""

    def rewritten(text: str) -> str:
        for pattern, replacement in _PRECISION:
            text = pattern.sub(replacement, text)
        return text

    lines = source.splitlines(keepends=True)
    return "".join(line if _FILL.match(line) else rewritten(line) for line in lines)


class _Placing(ast.NodeTransformer):
    """Has each call of a factory name a device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        function = node.func
        names_one = any(keyword.arg == "device" for keyword in node.keywords)
        match function:
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in FACTORIES:
                if not names_one:
                    node.keywords.append(ast.keyword("device", ast.Constant(self.device)))
        return node


def _on_device(source: str, device: str) -> str:
    """The text with factories on a device."""
    return ast.unparse(_Placing(device).visit(ast.parse(source)))
