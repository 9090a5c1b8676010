"""Random programs of torch operators: straight-line functions of tensors.

Each statement is run while it is written, on the inputs of the first call, so that the next one
knows which tensors there are. A statement that raises is mostly taken back. Plain `random.Random`
draws, and no strategies of hypothesis: a program is told by its seed alone on every machine, tens
of them are made and run in a second, and what fails is made smaller as text.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.nn import functional

from fusewright.fuzz.execution import MODES
from fusewright.fuzz.inputs import KINDS, LAYOUTS, collected_leaves, fill
from fusewright.fuzz.operators import GROUPS, WRITES
from fusewright.fuzz.program import ENDING, RandomProgram

LARGEST: Final = 6000
"""Elements of a tensor; statements that make larger ones are taken back."""

SIZES: Final = (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33)
SIZE_WEIGHTS: Final = (2, 8, 12, 12, 10, 8, 8, 7, 5, 4, 4, 5, 5, 1, 2, 2)

WIDE_SIZES: Final = (47, 63, 64, 65, 100, 127, 128, 129, 200, 257, 300)
"""Sizes of one dimension, in some programs: loops over vectors have rounds and a rest."""

WIDE_SHARE: Final = 0.08
WIDE_LARGEST: Final = 40_000
"""Programs that have such a dimension, of all; elements of a tensor in these."""

DTYPES: Final = {
    "torch.float32": 48,
    "torch.float64": 8,
    "torch.float16": 6,
    "torch.bfloat16": 8,
    "torch.int64": 8,
    "torch.int32": 5,
    "torch.int16": 1,
    "torch.int8": 2,
    "torch.uint8": 3,
    "torch.bool": 5,
    "torch.complex64": 1,
}
FLOATS: Final = ("torch.float32", "torch.float64", "torch.float16", "torch.bfloat16")

_PLACE: Final = re.compile(r"\{(\w+)(?::(\w*)(\+?))?\}")


class Unfit(Exception):
    """An operator has no arguments here."""


def generate(seed: int) -> RandomProgram:
    """The tensor program of a seed."""
    return RandomProgram("tensors", seed, _Writer(random.Random(f"tensors {seed}")).text())


class _Writer:
    """Writes one program."""

    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self.is_wide = generator.random() < WIDE_SHARE
        self.mode = generator.choices(["plain", "no_grad", "inference", "grad"], [6, 2, 1, 6])[0]
        self.namespace: dict[str, Any] = {"torch": torch, "F": functional}
        self.names: list[str] = []
        self.body: list[str] = []
        self.used: set[str] = set()

    def text(self) -> str:
        """The program as a file."""
        sizes = self._calls()
        inputs = self._inputs()
        make = ["def make(N, M):", *(f"    {line}" for line in inputs)]
        with collected_leaves(), warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            self._make(make, sizes[0])
            arguments = list(self.names)
            with MODES[self.mode]():
                for _ in range(self.random.choice([1, 2, 3, 3, 4, 5, 6, 8, 10])):
                    self._add_statement()
        returned = self._results()
        calls = ", ".join(f"dict(N={n}, M={m})" for n, m in sizes)
        dynamic = self.random.choices(["None", "True", "False"], [6, 2, 1])[0]
        return "\n".join(
            [
                "import torch",
                "from torch.nn import functional as F",
                "",
                "from fusewright.fuzz import fill, show",
                "",
                f'MODE = "{self.mode}"',
                f"DYNAMIC = {dynamic}",
                f"CALLS = [{calls}]",
                "",
                "",
                *make,
                f"    return [{', '.join(arguments)}]",
                "",
                "",
                f"def f({', '.join(arguments)}):",
                *(f"    {line}" for line in self.body),
                f"    return ({', '.join(returned)},)",
                ENDING,
            ]
        )

    def _calls(self) -> list[tuple[int, int]]:
        count = self.random.choices([1, 2, 3], [13, 5, 2])[0]
        if self.is_wide:
            return [(self.random.choice(WIDE_SIZES), self._size()) for _ in range(count)]
        return [(self._size(), self._size()) for _ in range(count)]

    def _size(self) -> int:
        return self.random.choices(SIZES, SIZE_WEIGHTS)[0]

    def _inputs(self) -> list[str]:
        """Lines that make the inputs: new ones, and sometimes views of others."""
        lines: list[str] = []
        shapes: list[list[str]] = []
        main = self._dtype()
        for number in range(self.random.choices([1, 2, 3, 4], [5, 5, 3, 1])[0]):
            name = f"x{number}"
            if lines and self.mode != "grad" and self.random.random() < 0.1:
                base = self.random.randrange(number)
                shape = shapes[base]
                shapes.append(shape)
                views = [
                    "",
                    ".reshape(-1)",
                    ".detach()",
                    *([".t()", "[1:]"] if len(shape) == 2 else []),
                ]
                lines.append(f"{name} = x{base}{self.random.choice(views)}")
                continue
            shape = self._shape(shapes)
            shapes.append(shape)
            dtype = main if self.random.random() < 0.6 else self._dtype()
            lines += self._input(name, number, shape, dtype)
        return lines

    def _input(self, name: str, number: int, shape: list[str], dtype: str) -> list[str]:
        kind = self.random.choices(KINDS, [10, 6, 3, 3, 1])[0]
        layout = self.random.choices(LAYOUTS, [12, 3, 1, 2, 1, 1])[0]
        seed = self.random.randrange(10000)
        dims = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
        arguments = [str(seed), dims, dtype]
        if kind != "normal" or layout != "contiguous":
            arguments.append(f'"{kind}"')
        if layout != "contiguous":
            arguments.append(f'"{layout}"')
        is_float = dtype in FLOATS or "complex" in dtype
        wants = self.mode == "grad" and is_float and self.random.random() < 0.85
        if wants:
            arguments.append("grad=True")
        line = f"{name} = fill({', '.join(arguments)})"
        return [line, f"{name} = {name} * 1"] if wants and self.random.random() < 0.4 else [line]

    def _shape(self, shapes: list[list[str]]) -> list[str]:
        if shapes and self.random.random() < 0.7:
            shape = list(self.random.choice(shapes))
            if shape and self.random.random() < 0.25:
                shape[self.random.randrange(len(shape))] = "1"
            if shape and self.random.random() < 0.15:
                shape = shape[1:]
            return shape
        rank = self.random.choices([0, 1, 2, 3, 4], [1, 4, 8, 5, 3])[0]
        if self.is_wide:
            shape = ["N", *(str(min(self._size(), 9)) for _ in range(max(1, min(rank, 3)) - 1))]
            self.random.shuffle(shape)
            return shape
        return [
            self.random.choice(["N", "M"])
            if self.random.random() < 0.55
            else str(self._size() if rank < 3 else min(self._size(), 9))
            for _ in range(rank)
        ]

    def _dtype(self) -> str:
        return self.random.choices(list(DTYPES), list(DTYPES.values()))[0]

    def _make(self, lines: Sequence[str], sizes: tuple[int, int]) -> None:
        """The inputs of the first call, as variables."""
        self.namespace |= {"fill": fill}
        exec("\n".join([*lines, "    return dict(locals())"]), self.namespace)
        inputs = self.namespace["make"](*sizes)
        self.names = [name for name in inputs if name.startswith("x")]
        self.namespace |= {name: inputs[name] for name in self.names}

    def _add_statement(self) -> None:
        for _ in range(12):
            group = self.random.choices([g for _, g in GROUPS], [w for w, _ in GROUPS])[0]
            template = self.random.choice(group)
            try:
                text = Filler(self).fill(template)
            except Unfit:
                continue
            if self._take(template, text):
                return

    def _take(self, template: str, text: str) -> bool:
        """Whether a statement becomes part of the program."""
        is_write = template in WRITES
        if is_write and _hangs_on_order([self.namespace[name] for name in _variables(text)]):
            return False
        name = f"v{len(self.body)}"
        try:
            if is_write:
                exec(text, self.namespace)
            else:
                result = eval(text, self.namespace)
                if not isinstance(result, torch.Tensor) or result.numel() > self._largest:
                    return False
                self.namespace[name] = result
        except Exception:
            self.namespace.pop(name, None)
            if self.random.random() > 0.004:
                return False
        if is_write:
            self.body.append(text)
        else:
            self.body.append(f"{name} = {text}")
            if name in self.namespace:
                self.names.append(name)
        self.used |= _variables(text)
        return True

    @property
    def _largest(self) -> int:
        return WIDE_LARGEST if self.is_wide else LARGEST

    def _results(self) -> list[str]:
        computed = [name for name in self.names if name.startswith("v")]
        ends = [name for name in computed if name not in self.used]
        more = [name for name in self.names if name not in ends and self.random.random() < 0.15]
        return (ends + more)[:6] or self.names[-1:]

    def choose(self, fits: Callable[[torch.Tensor], bool]) -> str:
        """A variable for which a condition holds, of the later ones more often. Unfit: none."""
        names = [name for name in self.names if fits(self.namespace[name])]
        if not names:
            raise Unfit
        return self.random.choices(names, [2 + number for number in range(len(names))])[0]


def _variables(text: str) -> set[str]:
    return set(re.findall(r"\b[xv]\d+\b", text))


def _hangs_on_order(operands: Sequence[torch.Tensor]) -> bool:
    """Whether what a write among these tensors comes to hangs on the order in which eager goes
    through their elements: some of one share memory, or two are different views of the same.
    """
    views: dict[int, Any] = {}
    in_memory = [
        operand for operand in operands if operand.layout == torch.strided and operand.numel()
    ]
    for tensor in in_memory:
        view = (tensor.storage_offset(), tensor.shape, tensor.stride())
        if views.setdefault(tensor.untyped_storage().data_ptr(), view) != view:
            return True
    return any(map(_overlaps, in_memory))


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share memory though no stride is 0, as those of `unfold` may."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if 0 < stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _condition(kind: str, or_more: bool) -> Callable[[torch.Tensor], bool]:
    """The condition behind a colon in a template, as a question about a tensor."""
    rank = next((int(letter) for letter in kind if letter.isdigit()), None)

    def fits(tensor: torch.Tensor) -> bool:
        if rank is not None and (tensor.dim() < rank if or_more else tensor.dim() != rank):
            return False
        if "s" in kind and (tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]):
            return False
        return all(_OF_KIND[letter](tensor) for letter in kind if letter in _OF_KIND)

    return fits


_OF_KIND: Final[dict[str, Callable[[torch.Tensor], bool]]] = {
    "f": lambda tensor: tensor.is_floating_point(),
    "c": lambda tensor: tensor.is_complex(),
    "b": lambda tensor: tensor.dtype == torch.bool,
    "n": lambda tensor: tensor.dtype != torch.bool,
    "i": lambda tensor: (
        tensor.dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    ),
}


class Filler:
    """Fills the places of one template."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer
        self.random = writer.random
        self.main = ""
        self.axis = 0
        self.last_index = ""

    def fill(self, template: str) -> str:
        """The template as Python. Unfit: there are no arguments for it."""
        main = re.search(r"\{x(?::(\w*)(\+?))?\}", template)
        if main:
            self.main = self.writer.choose(_condition(main[1] or "", bool(main[2])))
        return _PLACE.sub(self._place, template)

    def _place(self, place: re.Match[str]) -> str:
        name, kind, or_more = place[1], place[2] or "", bool(place[3])
        if name == "x":
            return self.main
        method = getattr(self, f"_{name}")
        text: str = method(kind, or_more) if name in ("y", "t", "same", "into") else method()
        return text

    @property
    def tensor(self) -> torch.Tensor:
        """The value of the main tensor."""
        value: torch.Tensor = self.writer.namespace[self.main]
        return value

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def _t(self, kind: str, or_more: bool) -> str:
        fits = _condition(kind, or_more)

        def broadcasts(tensor: torch.Tensor) -> bool:
            if not fits(tensor):
                return False
            return all(
                left == right or 1 in (left, right)
                for left, right in zip(reversed(self.shape), reversed(tensor.shape), strict=False)
            )

        return self.writer.choose(broadcasts)

    def _y(self, kind: str, or_more: bool) -> str:
        return self._number() if self.random.random() < 0.35 else self._t(kind, or_more)

    def _same(self, kind: str = "", or_more: bool = False) -> str:
        fits = _condition(kind, or_more)
        try:
            return self.writer.choose(
                lambda tensor: tuple(tensor.shape) == self.shape and fits(tensor)
            )
        except Unfit:
            return self.main

    def _into(self, kind: str, or_more: bool) -> str:
        if not self.main:
            self.main = self.writer.choose(lambda tensor: True)
        shape = self.shape

        def takes(tensor: torch.Tensor) -> bool:
            return tuple(torch.broadcast_shapes(tensor.shape, shape)) == tuple(tensor.shape)

        def fits(tensor: torch.Tensor) -> bool:
            try:
                return takes(tensor)
            except RuntimeError:
                return False

        return self.writer.choose(fits)

    def _mask(self) -> str:
        try:
            return self.writer.choose(
                lambda tensor: tensor.dtype == torch.bool and tuple(tensor.shape) == self.shape
            )
        except Unfit:
            if self.tensor.dtype == torch.bool or self.tensor.is_complex():
                return f"({self.main} == {self._same()})"
            return f"({self.main} > {self._same() if self.random.random() < 0.3 else 0})"

    def _dim(self) -> str:
        if not self.shape:
            raise Unfit
        self.axis = self.random.randrange(len(self.shape))
        return str(self.axis if self.random.random() < 0.5 else self.axis - len(self.shape))

    def _dim2(self) -> str:
        if not self.shape:
            raise Unfit
        others = [axis for axis in range(len(self.shape)) if axis != self.axis] or [self.axis]
        return str(self.random.choice(others))

    def _dim_again(self) -> str:
        return str(self.axis)

    def _dims(self) -> str:
        rank = len(self.shape)
        if rank < 2 or self.random.random() < 0.5:
            return self._dim()
        some = self.random.sample(range(rank), self.random.randint(1, rank))
        return f"({', '.join(map(str, some))},)"

    def _positions_along(self, size: int, count: int) -> list[int]:
        if not size:
            raise Unfit
        return [self.random.randrange(size) for _ in range(count)]

    def _index(self) -> str:
        count = self.random.choice([1, 2, 3])
        self.last_index = f"torch.tensor({self._positions_along(self.shape[self.axis], count)})"
        return self.last_index

    def _index_again(self) -> str:
        return self.last_index

    def _index_of(self, axis: int) -> str:
        if len(self.shape) < 1 or axis >= len(self.shape):
            raise Unfit
        return f"torch.tensor({self._positions_along(self.shape[axis], 2)})"

    def _index0(self) -> str:
        return self._index_of(0)

    def _index1(self) -> str:
        return self._index_of(1)

    def _indexlast(self) -> str:
        return self._index_of(len(self.shape) - 1)

    def _index2(self) -> str:
        if not self.shape:
            raise Unfit
        return f"torch.tensor([{self._positions_along(self.shape[0], 2)}])"

    def _positions(self) -> str:
        """Positions for gather and scatter, of the shape of the tensor."""
        if not self.shape:
            raise Unfit
        size = f"{self.main}.shape[{self.axis}]"
        if self.random.random() < 0.5:
            return f"(torch.arange({self.main}.numel()).view({self.main}.shape) * 3 % {size})"
        return f"torch.zeros_like({self.main}, dtype=torch.int64)"

    def _position(self) -> str:
        return str(self.random.choice([0, -1, 1]))

    def _item(self) -> str:
        parts = []
        for _ in range(self.random.randint(1, max(1, len(self.shape)))):
            parts.append(
                self.random.choice(["0", "-1", ":", "1:", ":-1", "::2", "...", "None", "1:3"])
            )
        while parts.count("...") > 1:
            parts.remove("...")
        return ", ".join(parts)

    def _number(self) -> str:
        if self.main and self.tensor.dtype == torch.bool:
            return self._flag()
        choices = ["2", "3", "1", "0", "-1", "7"]
        if not self.main or self.tensor.is_floating_point():
            choices += ["0.5", "-1.5", "2.0", "1e-3"]
        return self.random.choice(choices)

    def _float(self) -> str:
        return self.random.choice(["0.5", "1.5", "2.0", "0.1", "1.0", "3.25"])

    def _int(self) -> str:
        return str(self.random.choice([0, 1, 1, 2, 2, 3, 4]))

    def _flag(self) -> str:
        return self.random.choice(["True", "False"])

    def _reduce(self) -> str:
        return repr(self.random.choice(["sum", "prod", "mean", "amax", "amin"]))

    def _dtype(self) -> str:
        return self.writer._dtype()

    def _float_dtype(self) -> str:
        return self.random.choice(FLOATS)

    def _shape(self) -> str:
        total = self.tensor.numel()
        first = self.random.choice([size for size in (1, 2, 3, 4, 5, 7) if total % size == 0])
        return self.random.choice(["-1", f"-1, {first}", f"{first}, -1", f"1, {first}, -1"])

    def _perm(self) -> str:
        axes = list(range(len(self.shape)))
        self.random.shuffle(axes)
        return ", ".join(map(str, axes)) or "()"

    def _sizes(self) -> str:
        """Sizes that the tensor may be expanded to."""
        sizes = [str(self.random.choice([1, 2, 3])) if size == 1 else "-1" for size in self.shape]
        more = [str(self.random.choice([1, 2, 3]))] if self.random.random() < 0.4 else []
        return f"({', '.join(more + sizes)},)" if more + sizes else "()"

    def _matrix(self) -> str:
        """A partner for a product of matrices."""
        size = self.shape[-1]

        def fits(tensor: torch.Tensor) -> bool:
            return (
                tensor.dim() == max(2, len(self.shape))
                and tensor.shape[-2] == size
                and tensor.shape[:-2] == self.shape[:-2]
                and tensor.dtype == self.tensor.dtype
            )

        try:
            return self.writer.choose(fits)
        except Unfit:
            return self.main if len(self.shape) == 1 else f"{self.main}.transpose(-1, -2)"

    def _matrix2(self) -> str:
        return f"{self.main}.t()"

    def _vector(self) -> str:
        return f"{self.main}[0]"

    def _rows(self) -> str:
        size = f"{self.main}.shape[-1]"
        return f"torch.linspace(-1, 1, 3 * {size}, dtype={self.main}.dtype).view(3, {size})"

    def _kernel(self) -> str:
        """Weights for two channels, of width 1 or 2 in each dimension."""
        inner = ", ".join(self.random.choice("12") for _ in self.shape[2:])
        count = f"2 * {self.main}.shape[1]"
        for width in inner.split(", "):
            count += f" * {width}"
        values = f"torch.linspace(-1, 1, {count}, dtype={self.main}.dtype)"
        return f"{values}.view(2, {self.main}.shape[1], {inner})"
