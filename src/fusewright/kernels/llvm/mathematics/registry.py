"""The table of vector functions: who computes `name` on an element type, and its text.

A function is declared by a decorator over Python code that writes its body:

    @vector_function("exp", "float")
    def exp(b: Builder, x: Register) -> Register: ...

and is called from kernels by the name `exp.v16f32`: function, lanes, element. `definition` writes
it out as an internal LLVM function, which main loops inline; only what a kernel calls is ever
written.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import lru_cache

from fusewright.kernels.llvm.builder import IRBuilder, Register, VectorType
from fusewright.records import record

Body = Callable[..., Register]

FUNCTIONS: dict[tuple[str, str], Body] = {}
"""(name, element type) -> the Python function that writes the body."""

GENERATORS: dict[str, Callable[..., Definition]] = {}
"""Functions that are not of vectors alone, by name: what writes them for a vector type, and what
else stands in their name (`name-6-adds.v64f32`).
"""

ELEMENTS = {
    "f16": "half",
    "f32": "float",
    "f64": "double",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
}


def vector_function(name: str, element: str) -> Callable[[Body], Body]:
    """Declare the decorated function as `name` on vectors of `element`."""

    def declare(body: Body) -> Body:
        FUNCTIONS[name, element] = body
        return body

    return declare


def supports(name: str, element: str) -> bool:
    """Whether there is a function `name` on `element`."""
    return (name, element) in FUNCTIONS


def symbol(name: str, kind: VectorType) -> str:
    """The name under which kernels call a function: `exp.v16f32`."""
    return f"{name}.{kind.suffix}"


@record
class Definition:
    """A function of the module as text."""

    text: str
    required: tuple[str, ...]
    """Symbols of the other definitions that it calls."""


@lru_cache(maxsize=4096)
def definition(name: str, has_scalef: bool = False) -> Definition:
    """The text that defines (or, for a function of the C library, declares) the symbol `name`."""
    if name.startswith("libm."):
        return _declaration(name)
    function, kind = _parse(name)
    function, *others = function.split("-")
    if function in GENERATORS:
        return GENERATORS[function](kind, *others)
    body = FUNCTIONS[function, kind.element]
    builder = IRBuilder(has_scalef=has_scalef)
    parameters = list(inspect.signature(body).parameters)[1:]
    operands = [Register(builder, f"%{parameter}", kind) for parameter in parameters]
    result = body(builder, *operands)
    arguments = ", ".join(f"{kind} {operand.text}" for operand in operands)
    head = f"define internal {result.type} @{name}({arguments}) nounwind {{"
    lines = [head, "entry:", *builder.lines, f"  ret {result.type} {result.text}", "}"]
    return Definition("\n".join(lines), tuple(builder.required))


def definitions(names: list[str], has_scalef: bool = False) -> list[str]:
    """The texts of `names` and of all that they call, each once, callees first."""
    texts: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in texts:
            return
        entry = definition(name, has_scalef)
        for callee in entry.required:
            visit(callee)
        texts[name] = entry.text

    for name in names:
        visit(name)
    return list(texts.values())


def _parse(name: str) -> tuple[str, VectorType]:
    """`exp.v16f32` -> ("exp", <16 x float>)."""
    match = re.fullmatch(r"([\w-]+)\.(?:v(\d+))?(b?[fi]\d+)", name)
    assert match, name
    function, lanes, element = match.groups()
    return function, VectorType(ELEMENTS[element], int(lanes or 1))


def _declaration(name: str) -> Definition:
    """`libm.sinf.1` -> a declaration of `float sinf(float)`; the number counts the operands."""
    _, function, arity = name.split(".")
    element = "float" if function.endswith("f") and function != "erf" else "double"
    operands = ", ".join([element] * int(arity))
    text = f"declare {element} @{function}({operands}) nounwind willreturn memory(none)"
    return Definition(text, ())
