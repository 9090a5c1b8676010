"""The section of a package that is read without Python: the plan of an entry point and what its
manifest says of arguments and results, as words of 64 bits, which the C code beside
`native/fusewright_package.h` reads in this order.

A text is its length in bytes, then the bytes with at least one zero behind them. A list is its
length, then its items. Operators are called through torch's dispatcher, with all arguments of their
declarations in order; where a plan calls what only Python has, there is no such section.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from fusewright.packages.standalone_plan import (
    NOTHING,
    NotStandalone,
    PlanBlock,
    PlanTranslator,
    dtype_number,
    text_words,
)
from fusewright.packages.structure import names_of_leaves

RELATIONS: Final = ("== 0", "!= 0", ">= 0")

ARITHMETIC: Final = {"+": 2, "*": 3, "//": 4, "%": 5, "min": 6, "max": 7}
"""Operations on a stack of sizes; 0 pushes a size that was read, 1 a number."""


def standalone_section(
    name: str,
    level: str,
    features: Sequence[str],
    manifest: Mapping[str, Any],
    entry: Mapping[str, Any],
    plan: Mapping[str, Any],
) -> bytes:
    """The section of entry point `name`. Raises: NotStandalone."""
    if manifest["devices"]:
        raise NotStandalone("it runs on a GPU")
    words = _Words()
    words.text(manifest["machine"])
    major, minor = map(int, manifest["torch"].split("."))
    words.add(major << 8 | minor)
    words.list_of(features, words.text)
    _leaves(words, entry)
    _sizes(words, entry["sizes"])
    translator = PlanTranslator(name, entry, manifest, plan)
    translator.translate()
    words.list_of(translator.weights, lambda row: _weight(words, *row))
    words.text(f"{name}.{level}.code")
    words.list_of(plan["kernels"], lambda row: _kernel(words, row))
    words.list_of(translator.operators, words.texts)
    words.list_of(translator.inputs, lambda row: words.add(*row))
    words.list_of(translator.blocks, lambda block: _block(words, block))
    words.list_of(translator.recipes(), lambda row: words.list_of(row, words.add))
    words.list_of(translator.outputs(), words.add)
    words.list_of(translator.writes(), lambda row: words.add(*row))
    return words.content()


class _Words:
    """Words that are written one behind the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, *numbers: int) -> None:
        self._parts.append(struct.pack(f"<{len(numbers)}q", *numbers))

    def text(self, text: str) -> None:
        self.add(*text_words(text))

    def texts(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.text(text)

    def list_of(self, items: Iterable[Any], write: Any) -> None:
        items = list(items)
        self.add(len(items))
        for item in items:
            write(item)

    def content(self) -> bytes:
        return b"".join(self._parts)


def _leaves(words: _Words, entry: Mapping[str, Any]) -> None:
    names = names_of_leaves(entry["parameters"])

    def leaf(row: tuple[int, Mapping[str, Any]]) -> None:
        number, content = row
        words.text(names[number])
        words.add(dtype_number(content["dtype"]), int(content["is_contiguous"]))
        words.add(len(content["size"]))
        words.add(*(-1 if n is None else n for n in content["size"]))
        words.add(*(-1 if n is None else n for n in content["stride"]))

    words.list_of(enumerate(entry["leaves"]), leaf)


def _sizes(words: _Words, sizes: Mapping[str, Any] | None) -> None:
    readings = sizes["readings"] if sizes else []
    slots = {symbol: slot for slot, (symbol, *_) in enumerate(readings)}
    words.list_of(readings, lambda row: words.add(*map(int, row[1:])))

    def relation(row: Mapping[str, Any]) -> None:
        words.text(row["words"])
        words.add(RELATIONS.index(row["kind"]))
        words.list_of(_postfix(row["difference"], slots), lambda pair: words.add(*pair))

    words.list_of(sizes["relations"] if sizes else [], relation)


def _postfix(number: Any, slots: Mapping[str, int]) -> list[tuple[int, int]]:
    if isinstance(number, int):
        return [(1, number)]
    if isinstance(number, str):
        return [(0, slots[number])]
    operation, first, *others = number
    code = _postfix(first, slots)
    for other in others:
        code += [*_postfix(other, slots), (ARITHMETIC[operation], 0)]
    return code


def _kernel(words: _Words, row: Mapping[str, Any]) -> None:
    words.text(row["name"])
    words.add(row["tensors"], row["sizes"])


def _weight(words: _Words, section: str, row: Mapping[str, Any], offset: int) -> None:
    words.text(json.dumps(section)[1:-1])  # as the table has it
    words.add(dtype_number(row["dtype"]), offset, len(row["size"]))
    words.add(*row["size"], *row["stride"])
    words.list_of(_packing_words(row.get("packing") or ()), words.add)


def _packing_words(packing: Iterable[Any]) -> Iterator[int]:
    """The arguments of an operator behind the weight that it packs; lists behind their lengths."""
    for argument in packing:
        if argument is None:
            yield NOTHING
        elif isinstance(argument, int):
            yield argument
        else:
            yield from (len(argument), *argument)


def _block(words: _Words, block: PlanBlock) -> None:
    words.add(block.inputs, block.plan["slots"])
    words.list_of(block.numbers, words.add)
    words.list_of(block.words, words.add)
