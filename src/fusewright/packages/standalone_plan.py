"""The operations of a package's plan as words of 64 bits, which the C code runs without Python's
objects: on tensors in slots and on numbers, and with all arguments of an operator in order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import torch

from fusewright.packages.constants import constant_of
from fusewright.packages.structure import leaves_of, rebuild, torch_constant
from fusewright.records import field, record
from fusewright.runtime.fast_names import OPERATOR_OF_FUNCTION
from fusewright.runtime.layouts import tensor_kind
from fusewright.torch_compat import operator_arguments, operator_returns
from fusewright.wrapper.dispatched import present_type

NOTHING: Final = -(2**63)

OPERATIONS: Final = {
    name: code
    for code, name in enumerate(
        (
            "add", "multiply", "//", "%", "min", "max", "read number", "read size", "read stride",
            "allocate", "move", "reinterpret", "release", "launch", "mm", "bmm", "addmm", "copy",
            "ensure layout", "dispatch", "return", "place", "check", "branch", "while", "scan",
        )
    )
}  # fmt: skip
"""Operations of the C code, in the order of its table."""

BYTES: Final = 0
"""Torch's number of the dtype `uint8`."""

NO_INDEX: Final = 0xFFFF_FFFF
"""The processor among devices, as torch's C functions have it: its type, which is 0, and below it
the index -1.
"""

MOST_ARGUMENTS: Final = 64
"""Arguments of an operator are fewer, as the C code has it."""


class InputKind(IntEnum):
    """Where an input of a plan comes from."""

    FROM_LEAF = 0
    FROM_WEIGHT = 1
    FROM_NUMBER = 2
    FROM_NOWHERE = 3


class RecipeKind(IntEnum):
    """What a result is."""

    IS_OUTPUT = 0
    IS_LEAF = 1
    IS_WEIGHT = 2
    IS_RESULT = 3
    IS_VIEW = 4
    IS_OTHER = 5


RECIPES: Final = {
    "output": RecipeKind.IS_OUTPUT,
    "leaf": RecipeKind.IS_LEAF,
    "weight": RecipeKind.IS_WEIGHT,
    "result": RecipeKind.IS_RESULT,
    "view": RecipeKind.IS_VIEW,
}


class ArgumentKind(IntEnum):
    """What an argument of an operator is; what may be absent and is there is one more."""

    NONE = 0
    TENSOR = 1
    OPTIONAL_TENSOR = 2
    WORD = 3
    OPTIONAL_WORD = 4
    NUMBER = 5
    OPTIONAL_NUMBER = 6
    INTEGERS = 7
    OPTIONAL_INTEGERS = 8
    TENSORS = 9
    TEXT = 10
    OPTIONAL_TEXT = 11
    OPTIONAL_TENSORS = 12


class NotStandalone(Exception):
    """An entry point that only Python runs; says why."""


def dtype_number(name: str) -> int:
    """Torch's number of a dtype."""
    return tensor_kind(torch_constant("dtype", name), "cpu")[0]


def text_words(text: str) -> tuple[int, ...]:
    """A text: its length in bytes, then the bytes with at least one zero behind them."""
    content = text.encode()
    count = len(content) // 8 + 1
    return len(content), *struct.unpack(f"<{count}q", content.ljust(8 * count, b"\0"))


@record(eq=False, frozen=False)
class PlanBlock:
    """A plan, or that of one of its blocks, while its operations are translated."""

    plan: Mapping[str, Any]
    inputs: int
    numbers: list[int]
    """What numbers are at the beginning."""

    words: list[int] = field(default_factory=list)
    """The operations."""

    collections: dict[int, list[int]] = field(default_factory=dict)
    """By slot, the places of the items of a list that is only passed on."""

    integers: dict[int, int] = field(default_factory=dict)
    """By slot, the number of an integer that is only passed on."""

    filled: frozenset[int] = frozenset()
    """Slots that the last call has filled, and that the plan frees before it takes apart what the
    call gave.
    """


class PlanTranslator:
    """Turns a plan's operations into those that run without Python's objects."""

    def __init__(
        self,
        name: str,
        entry: Mapping[str, Any],
        manifest: Mapping[str, Any],
        plan: Mapping[str, Any],
    ) -> None:
        self.blocks: list[PlanBlock] = []
        """The plan, then the blocks of its conditions and loops, each behind those that run it."""

        self.operators: list[tuple[str, str]] = []
        self.weights: list[tuple[str, Mapping[str, Any], int]] = []
        """Section, row and offset in bytes of each tensor that is not an argument."""

        self._entry, self._plan = entry, plan
        self._now = PlanBlock(plan=plan, inputs=0, numbers=[])
        """The one whose operations are being translated."""

        self._weight_numbers: dict[str, int] = {}
        rows = {row["name"]: row for row in manifest["weights"]}
        frozen = {row["name"]: row for row in entry["frozen"]}
        self.inputs: list[tuple[int, int]] = []
        symbols = [symbol for symbol, *_ in entry["sizes"]["readings"]] if entry["sizes"] else []
        for kind, source in entry["inputs"]:
            match kind:
                case "leaf":
                    self.inputs.append((InputKind.FROM_LEAF, source))
                case "weight":
                    number = self._weight(f"weight.{source}", rows[source])
                    self.inputs.append((InputKind.FROM_WEIGHT, number))
                case "number":
                    self.inputs.append((InputKind.FROM_NUMBER, symbols.index(source)))
                case "frozen":
                    number = self._weight(f"{name}.frozen.{source}", frozen[source])
                    self.inputs.append((InputKind.FROM_WEIGHT, number))
                case "unread":
                    self.inputs.append((InputKind.FROM_NOWHERE, 0))
        self._constants = {row["name"]: row for row in entry["constants"]}
        self._name = name

    def _weight(self, section: str, row: Mapping[str, Any], offset: int = 0) -> int:
        key = f"{section} {row['size']} {row['stride']} {offset}"
        if key not in self._weight_numbers:
            self._weight_numbers[key] = len(self.weights)
            self.weights.append((section, row, offset))
        return self._weight_numbers[key]

    # Operations -----------------------------------------------------------------------------------

    def translate(self) -> None:
        """Translate all. Raises: NotStandalone."""
        self._translated(self._plan, len(self.inputs))

    def _translated(self, plan: Mapping[str, Any], inputs: int) -> int:
        """The number of a block that does what a plan does."""
        number = len(self.blocks)
        outer = self._now
        self._now = PlanBlock(plan=plan, inputs=inputs, numbers=[*plan["numbers"]])
        self.blocks.append(self._now)
        operations = plan["operations"]
        for place, (kind, _, operands) in enumerate(operations):
            following = (operations[later] for later in range(place + 1, len(operations)))
            self._operation(kind, list(operands), following)
        self._now = outer
        return number

    def _operation(self, kind: str, operands: list[Any], following: Iterator[Any]) -> None:
        """Translate an operation, with those that follow it."""
        match kind:
            case "list" | "tuple":
                slot, _, *items = operands
                self._now.collections[slot] = items
            case "make integer":
                self._now.integers[operands[0]] = operands[1]
            case "release" if self._forget(operands[0]) or operands[0] in self._now.filled:
                pass
            case "unpack":
                self._now.filled = frozenset()  # by the call before it
            case "branch":
                result, predicate, then, other, count, *places = operands
                blocks = self._named_block(then, count), self._named_block(other, count)
                results = self._unpacked(result, following)
                self._run("branch", (self._tensor(predicate), *blocks), places, (), results)
            case "call" if self._row(operands[1])[0] == "runtime":
                self._runtime(operands, following)
            case "call" | "dispatch":
                self._call(kind, operands, following)
            case "allocate" | "place" | "point" | "ensure layout":
                self._memory(kind, operands)
            case "launch":
                kernel, count, *rest = operands
                places = [self._tensor(place) for place in rest[:count]]
                self._write(kind, self._kernel(kernel), count, *places, *rest[count:])
            case "mm" | "bmm" | "addmm":
                self._write(kind, *map(self._tensor, operands[1:-1]))
            case "copy":
                self._write(kind, *map(self._tensor, operands))
            case "reinterpret" | "read size" | "read stride":
                first, source, *rest = operands
                self._write(kind, first, self._tensor(source), *rest)
            case "return":
                count, *places = operands
                self._write(kind, count, *map(self._returned, places))
            case _:
                if kind not in OPERATIONS:
                    raise NotStandalone(f"it does {kind!r}")
                self._write(kind, *operands)

    # Conditions and loops -------------------------------------------------------------------------

    def _runtime(self, operands: Sequence[int], following: Iterator[Any]) -> None:
        """A call of a function of ours."""
        result, function, count, *rest = operands
        _, name = self._row(function)
        if name == "check_fact":
            number, message = rest[:count]
            _, *words = text_words(self._constant(message))
            self._write("check", self._integer_at(number), len(words), *words)
        elif name == "reinterpret":
            source, *layout, offset = rest[:count]
            size, stride = map(self._integers_at, layout)
            numbers = (*size, *stride, self._integer_at(offset))
            self._write(name, result, self._tensor(source), len(size), *numbers)
        else:
            self._loop(name, result, rest[:count], following)

    def _loop(
        self, name: str, result: int, places: Sequence[int], following: Iterator[Any]
    ) -> None:
        stacked: Sequence[int] = ()
        match name, places:
            case "while_loop", [condition, body, listed, *numbers]:
                carried, positions = map(self._constant, numbers)
                if positions:
                    raise NotStandalone("it keeps what a loop's gradient needs")
                blocks, head = [condition, body], [carried]
            case "scan", [body, listed, *numbers]:
                carried, sliced, positions, is_reversed = map(self._constant, numbers)
                blocks, head = [body], [carried, sliced, int(is_reversed)]
                stacked = len(positions), *positions
            case _:
                raise NotStandalone(f"it calls {name}")
        arguments = self._now.collections[listed]
        first = [self._named_block(block, len(arguments)) for block in blocks]
        results = self._unpacked(result, following)
        self._run(name.removesuffix("_loop"), (*first, *head), arguments, stacked, results)

    def _run(
        self,
        kind: str,
        head: Sequence[int],
        arguments: Sequence[int],
        stacked: Sequence[int],
        results: Sequence[int],
    ) -> None:
        """An operation that runs blocks."""
        pairs = [word for place in arguments for word in self._argument_of_block(place)]
        self._write(kind, *head, len(arguments), *pairs, *stacked, len(results), *results)

    def _named_block(self, place: int, inputs: int) -> int:
        """The number of the block whose name is at a place."""
        _, name = self._row(place)
        return self._translated(self._now.plan["blocks"][name], inputs)

    def _argument_of_block(self, place: int) -> tuple[int, int]:
        """Whether it is a number, and where it is."""
        is_literal = place < 0 and self._row(place)[0] == "literal"
        if is_literal or place in self._now.integers:
            return 1, self._integer_at(place)
        return 0, self._tensor(place)

    def _integer_at(self, place: int) -> int:
        """The number that an integer is, a constant one, too."""
        if place in self._now.integers:
            return self._now.integers[place]
        value = self._constant(place) if place < 0 else None
        return self._number(value)

    def _integers_at(self, place: int) -> list[int]:
        """The numbers in a tuple."""
        if place in self._now.collections:
            return [*map(self._integer_at, self._now.collections[place])]
        return [*map(self._number, self._constant(place))]

    def _number(self, value: Any) -> int:
        """A number that begins as this integer."""
        if type(value) is not int:
            raise NotStandalone(f"it passes {value!r} for an integer")
        self._now.numbers.append(value)
        return len(self._now.numbers) - 1

    def _constant(self, place: int) -> Any:
        """The value of a literal."""
        return rebuild(self._row(place)[1], ())

    def _unpacked(self, result: int | None, following: Iterator[Any]) -> list[int]:
        """The slots of the results of a call, which a following operation takes apart: they are
        filled at once.
        """
        for kind, _, operands in following:
            if kind == "unpack" and operands[0] == result:
                slots = [NOTHING if slot is None else slot for slot in operands[2:]]
                self._now.filled = frozenset(slots)
                return slots
            if kind != "release":
                break
        raise NotStandalone("the results of a call stay together")

    def _memory(self, kind: str, operands: list[int]) -> None:
        match kind, operands:
            case "allocate", [slot, row, *rest]:
                self._write(kind, slot, self._kind(row), *rest)
            case "place", [slot, arena, row, *rest]:
                self._write(kind, slot, self._tensor(arena), self._kind(row), *rest)
            case "point", [slot, arena, offset]:
                self._write("place", slot, self._tensor(arena), BYTES, offset, 0)
            case "ensure layout", [slot, _, _, row, *rest]:
                self._write(kind, slot, self._kind(row), *rest)

    def _forget(self, slot: int) -> bool:
        """A slot holds nothing any more; whether it was an object that only Python needs."""
        is_object = slot in self._now.collections or slot in self._now.integers
        self._now.collections.pop(slot, None)
        self._now.integers.pop(slot, None)
        return is_object

    def _write(self, kind: str, *operands: int) -> None:
        self._now.words += [OPERATIONS[kind], 2 + len(operands), *operands]

    def _row(self, place: int) -> list[Any]:
        """The row of a constant, as `constants` describes them."""
        row: list[Any] = self._now.plan["constants"][~place]
        return row

    def _kind(self, place: int) -> int:
        return dtype_number(self._row(place)[1])

    def _kernel(self, place: int) -> int:
        names = [kernel["name"] for kernel in self._plan["kernels"]]
        return names.index(self._row(place)[1])

    def _tensor(self, place: int) -> int:
        """The place of a tensor: a slot, or ~ the number of a weight."""
        if place >= 0:
            if place in self._now.collections or place in self._now.integers:
                raise NotStandalone("it keeps an object of Python")
            return place
        kind, *parts = self._row(place)
        if kind not in ("constant", "view"):
            raise NotStandalone(f"it takes a {kind} for a tensor")
        row, offset = self._constants[parts[0]], 0
        section = f"{self._name}.constant.{row['name']}"
        if kind == "view":
            _, size, stride, start = parts
            row = {**row, "size": size, "stride": stride}
            offset = start * torch_constant("dtype", row["dtype"]).itemsize
        return ~self._weight(section, row, offset)

    def _returned(self, place: int) -> int:
        if place < 0 and self._row(place)[0] not in ("constant", "view"):
            return NOTHING
        if place in self._now.integers and self._now is not self.blocks[0]:
            raise NotStandalone("a block of a condition or loop returns a number")
        return NOTHING if place in self._now.integers else self._tensor(place)

    # Calls of operators ---------------------------------------------------------------------------

    def _call(self, kind: str, operands: list[Any], following: Iterator[Any]) -> None:
        if kind == "dispatch":
            function, _, _, _, count, *rest = operands
            results = [NOTHING if slot is None else slot for slot in rest[count + 2 :]]
        else:
            result, function, count, *rest = operands
            _, overload = self._operator(function)
            results = self._results(overload, result, following)
        self._dispatch(function, rest[:count], rest[count], results)

    def _dispatch(
        self, function: int, places: Sequence[int], names: int | None, results: Sequence[int]
    ) -> None:
        """Call the operator at `function` with what is at `places`, the last of them by `names`."""
        operator, overload = self._operator(function)
        count = len(places)
        keywords = rebuild(self._row(names)[1], ()) if names is not None else ()
        split = count - len(keywords)
        named: dict[str, int] = dict(zip(keywords, places[split:], strict=True))
        words: list[int] = []
        declared = operator_arguments(overload)
        for number, argument in enumerate(declared):
            if number < split and not argument.kwarg_only:
                words += self._argument(argument, places[number])
            elif argument.name in named:
                words += self._argument(argument, named[argument.name])
            else:
                words += _literal(argument, argument.default_value)
        if len(declared) >= MOST_ARGUMENTS:
            raise NotStandalone(f"{operator[0]} takes too many arguments")
        self._write(
            "dispatch",
            self._operator_number(operator),
            len(results),
            *results,
            len(declared),
            *words,
        )

    def _operator(self, place: int) -> tuple[tuple[str, str], Any]:
        kind, *path = self._row(place)
        if kind == "torch":
            path = OPERATOR_OF_FUNCTION[f"torch.{path[0]}"].split(".")
        if kind not in ("operator", "torch") or path[0] == "fusewright":
            raise NotStandalone(f"it calls {'.'.join(path)}")
        namespace, name, overload = path
        operator = constant_of(["operator", *path], {}, {})
        return (f"{namespace}::{name}", "" if overload == "default" else overload), operator

    def _operator_number(self, operator: tuple[str, str]) -> int:
        if operator not in self.operators:
            self.operators.append(operator)
        return self.operators.index(operator)

    def _results(self, overload: Any, result: int | None, following: Iterator[Any]) -> list[int]:
        returns = operator_returns(overload)
        if any(str(result.type) != "Tensor" for result in returns):
            raise NotStandalone(f"{overload} returns what is no tensor")
        if len(returns) > 1:
            return self._unpacked(result, following)
        return [NOTHING if result is None else result for _ in returns]

    def _argument(self, argument: Any, place: int) -> list[int]:
        kind = str(argument.type)
        inner, is_optional = present_type(kind)
        if place in self._now.collections:
            items = self._now.collections[place]
            if inner == "List[Tensor]":
                return [ArgumentKind.TENSORS, len(items), *map(self._tensor, items)]
            if inner == "List[Optional[Tensor]]":
                places = [NOTHING if self._is_none(item) else self._tensor(item) for item in items]
                return [ArgumentKind.OPTIONAL_TENSORS, len(items), *places]
            if inner == "List[int]" or (not items and inner.startswith("List[")):
                return [ArgumentKind.INTEGERS + is_optional, len(items), *self._items(items)]
            raise NotStandalone(f"it passes a list as {kind}")
        if place in self._now.integers:
            return [ArgumentKind.NUMBER + is_optional, self._now.integers[place]]
        if inner == "Tensor" and (place >= 0 or self._row(place)[0] in ("constant", "view")):
            return [ArgumentKind.TENSOR + is_optional, self._tensor(place)]
        if place >= 0 or self._row(place)[0] != "literal":
            raise NotStandalone(f"it passes an object of Python as {kind}")
        return _literal(argument, rebuild(self._row(place)[1], ()))

    def _is_none(self, place: int) -> bool:
        """Whether `None` is at a place."""
        is_literal = place < 0 and self._row(place)[0] == "literal"
        return is_literal and self._constant(place) is None

    def _items(self, places: Iterable[int]) -> list[int]:
        words: list[int] = []
        for place in places:
            if place in self._now.integers:
                words += [1, self._now.integers[place]]
            elif place < 0 and self._row(place)[0] == "literal":
                words += [0, rebuild(self._row(place)[1], ())]
            else:
                raise NotStandalone("it passes a list of objects of Python")
        return words

    # Results --------------------------------------------------------------------------------------

    def recipes(self) -> list[list[int]]:
        """How each result is made; what is no tensor, or only Python makes, cannot be."""
        recipes: list[list[int]] = []
        more: list[list[int]] = []
        count = len(self._entry["results"])
        for recipe in self._entry["results"]:
            kind, *parts = recipe
            match kind:
                case "output" | "leaf" | "result":
                    recipes.append([RECIPES[kind], parts[0]])
                case "weight":
                    recipes.append([RECIPES[kind], self.inputs[parts[0]][1]])
                case "view" if not any(
                    isinstance(n, list) for n in (*parts[1], *parts[2], parts[3])
                ):
                    base, size, stride, offset, _ = parts
                    kind_of_base, number = base[0], base[1]
                    number = self.inputs[number][1] if kind_of_base == "weight" else number
                    more.append([RECIPES[kind_of_base], number])
                    inner = count + len(more) - 1
                    recipes.append([RECIPES[kind], inner, len(size), *size, *stride, offset])
                case _:
                    recipes.append([RecipeKind.IS_OTHER, 0])
        return recipes + more

    def writes(self) -> list[tuple[int, int, int]]:
        """Tensors that a call writes to: whether it is a weight, its number, and the output that is
        the new value.
        """
        rows = []
        for kind, number, output, _ in self._entry["writes"]:
            is_weight = kind == "weight"
            rows.append((int(is_weight), self.inputs[number][1] if is_weight else number, output))
        return rows

    def outputs(self) -> list[int]:
        """The recipes of the tensors in the result, in order. Raises: NotStandalone."""
        recipes = self.recipes()
        numbers = [number for number, _ in leaves_of(self._entry["structure"], "")]
        results = self._entry["results"]
        tensors = [n for n in numbers if results[n][0] not in ("size", "constant")]
        if any(recipes[n][0] == RecipeKind.IS_OTHER for n in tensors):
            raise NotStandalone("a result is a view of a size that varies")
        return tensors


def _literal(argument: Any, value: Any) -> list[int]:
    """A constant argument of an operator, as the dispatcher's C function takes it."""
    kind = str(argument.type)
    inner, is_optional = present_type(kind)
    if value is None and is_optional:
        return [ArgumentKind.NONE]
    if isinstance(value, list | tuple) and (
        inner == "List[int]" or (not value and inner.startswith("List["))
    ):
        pairs = [number for item in value for number in (0, int(item))]
        return [ArgumentKind.INTEGERS + is_optional, len(value), *pairs]
    if isinstance(value, str) and inner == "str":
        return [ArgumentKind.TEXT + is_optional, *text_words(value)]
    match inner, value:
        case "bool", bool():
            word = int(value)
        case "int", int():
            word = int(value)
        case "float", int() | float():
            (word,) = struct.unpack("<q", struct.pack("<d", float(value)))
        case (("int" | "ScalarType"), torch.dtype()):
            word = dtype_number(str(value).removeprefix("torch."))
        case "Device", torch.device(type="cpu", index=None):
            word = NO_INDEX
        case _:
            raise NotStandalone(f"it passes {value!r} as {kind}")
    return [ArgumentKind.WORD + is_optional, word]
