"""An entry point as C++ and object code, for who wants source: `aot_compile(…, cpp=DIR)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fusewright.errors import Location, Unsupported
from fusewright.generation import GeneratedCode
from fusewright.packages.structure import names_of_leaves
from fusewright.wrapper.cpp import NoCpp, emit_cpp


def write_source(
    folder: Path,
    name: str,
    code: GeneratedCode,
    object_code: bytes,
    entry: Mapping[str, Any],
    place: Location,
) -> None:
    """Write `NAME.cpp`, which says of each input what it is, and `NAME.o` with its kernels. Raises:
    Unsupported, where C++ has no form of something; OSError, where a file cannot be written.
    """
    try:
        module = emit_cpp(name, code.lines, [*_sources(code, entry)])
    except NoCpp as reason:
        raise Unsupported(f"the program has no form in C++: {reason}", place) from None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.cpp").write_text(module.text)
    if object_code:
        (folder / f"{name}.o").write_bytes(object_code)


def _sources(code: GeneratedCode, entry: Mapping[str, Any]) -> Iterator[str]:
    """Where the caller has the inputs from, in the order of the lines: numbers, then tensors."""
    names = names_of_leaves(entry["parameters"])
    described = [_described(source, entry, names) for source in entry["inputs"]]
    numbers = {number.symbol: number for number in code.order.numbers}
    for symbol in code.order.symbols:
        number = numbers[symbol]
        what = "stride" if number.is_stride else "size"
        whose = described[number.position]
        yield whose if number.dimension is None else f"{what}({number.dimension}) of {whose}"
    for position in code.order.tensors:
        yield described[position]


def _described(source: Sequence[Any], entry: Mapping[str, Any], names: Mapping[int, str]) -> str:
    kind, which = source
    match kind:
        case "leaf":
            return f"argument {names[which]}"
        case "number":
            readings = {symbol: rest for symbol, *rest in entry["sizes"]["readings"]}
            leaf, dimension, is_stride = readings[which]
            return f"{'stride' if is_stride else 'size'}({dimension}) of argument {names[leaf]}"
        case _:
            return f"{kind} {which}"
