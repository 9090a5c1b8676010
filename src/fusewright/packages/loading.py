"""Packages are loaded and called here, without the compiler."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.errors import PackageRefused, WrongArgument
from fusewright.native import CallPlan, CpuKernel, MachineCode, lacking_features
from fusewright.packages.constants import constant_of
from fusewright.packages.container import PackageFile, read_package
from fusewright.packages.gpu_kernels import PackagedKernel, check_gpus
from fusewright.packages.processors import machine_name
from fusewright.packages.sizes import HOLDS, evaluate
from fusewright.packages.structure import (
    leaves_of,
    names_of_leaves,
    rebuild,
    take_leaves,
    torch_constant,
)
from fusewright.packages.tensors import stored_tensor
from fusewright.records import field, record
from fusewright.runtime.layouts import Addresses, write_into
from fusewright.torch_version import version_of

Weights = Mapping[str, torch.Tensor] | torch.nn.Module

_ABSENT: Final = object()


class Entry:
    """A compiled function of a package: called as the function that it was made of."""

    def __init__(self, package: Package, name: str, entry: Mapping[str, Any]) -> None:
        self.name = name
        self._entry = entry
        parameters = entry["parameters"]
        self.signature = inspect.Signature(
            [
                inspect.Parameter(row["name"], getattr(inspect.Parameter, row["kind"]))
                for row in parameters
            ]
        )
        self._parameters = [(row["name"], row["structure"]) for row in parameters]
        self._is_constant = {
            name: structure is None or not any(leaves_of(structure, ""))
            for name, structure in self._parameters
        }
        places = names_of_leaves(parameters)
        self._leaves = [_Leaf(places[number], leaf) for number, leaf in enumerate(entry["leaves"])]
        self._sizes = _Sizes(entry["sizes"], self._leaves) if entry["sizes"] else None
        self._results = entry["results"]
        self._writes = _Writes(entry, self._leaves) if entry["writes"] else None
        self._structure = entry["structure"]
        self._plan = package._plan(name, entry)
        self._frozen = package._frozen_values(name, entry)
        self._fill(package.weights)

    def _fill(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take these weights from now on."""
        inputs = self._entry["inputs"]
        tensors = {"weight": weights, "frozen": self._frozen}
        self._inputs: list[Any] = [tensors.get(kind, {}).get(source) for kind, source in inputs]
        self._moving = [
            (position, kind == "number", source)
            for position, (kind, source) in enumerate(inputs)
            if kind in ("leaf", "number")
        ]

    def __repr__(self) -> str:
        return f"{self.name}{self.signature}"

    def random_arguments(self, size: int) -> dict[str, Any]:
        """Arguments by name: normal numbers, or zeros and ones; sizes that vary are `size`."""
        leaves = [leaf.random(size) for leaf in self._leaves]
        return {
            name: rebuild(structure, leaves)
            for name, structure in self._parameters
            if not self._is_constant[name]
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it. WrongArgument: an argument is of another kind than it was compiled for, or of a
        size that the compiled code is not right for.
        """
        tensors = self._leaves_of_call(args, kwargs)
        leaves = [leaf.checked(tensor) for leaf, tensor in zip(self._leaves, tensors, strict=True)]
        numbers = self._sizes.of(leaves) if self._sizes is not None else {}
        inputs = self._inputs.copy()
        for position, is_number, source in self._moving:
            inputs[position] = numbers[source] if is_number else leaves[source]
        if self._writes is not None:
            self._writes.refuse_shared(tensors, self._inputs)
        if torch_compat.is_autocast_on():
            with torch_compat.without_autocast():
                outputs = self._plan(inputs)
        else:
            outputs = self._plan(inputs)
        if self._writes is not None:
            self._writes.write(outputs, tensors, leaves, self._inputs)
        results: list[Any] = []
        for recipe in self._results:
            if recipe[0] == "size":
                results.append(evaluate(recipe[1], numbers))
            elif recipe[0] == "leaf":  # the very tensor
                results.append(tensors[recipe[1]])
            else:
                results.append(_result(recipe, outputs, leaves, self._inputs, results))
        return rebuild(self._structure, results)

    def _leaves_of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        try:
            bound = self.signature.bind_partial(*args, **kwargs)  # Constants may be left out.
        except TypeError as error:
            raise WrongArgument(f"{self.name}: {error}") from None
        leaves: list[Any] = [None] * len(self._leaves)
        arguments = bound.arguments
        for name, structure in self._parameters:
            value = arguments.get(name, _ABSENT)
            if value is _ABSENT:
                if not self._is_constant[name]:
                    raise WrongArgument(f"argument {name} is missing")
            elif structure is None:
                raise WrongArgument(f"argument {name} was not given when the package was made")
            else:
                take_leaves(structure, value, f"argument {name}", leaves)
        return leaves


class _Leaf:
    """The tensor that a call is given at one place."""

    def __init__(self, place: str, leaf: Mapping[str, Any]) -> None:
        self.place = f"argument {place}"
        self._dtype = torch_constant("dtype", leaf["dtype"])
        self._device = torch.device(leaf["device"])
        self._sizes: tuple[int | None, ...] = tuple(leaf["size"])
        self._strides: tuple[int | None, ...] = tuple(leaf["stride"])
        self._is_dense = leaf["is_contiguous"]
        self._fixed_sizes = [(d, n) for d, n in enumerate(self._sizes) if n is not None]
        self._fixed_strides = [
            (d, n)
            for d, n in enumerate(self._strides)
            if n is not None and self._sizes[d] not in (0, 1)
        ]

    def random(self, size: int) -> torch.Tensor:
        """A tensor of the kind that is expected."""
        sizes = [size if n is None else n for n in self._sizes]
        if self._dtype.is_floating_point or self._dtype.is_complex:
            return torch.randn(sizes, dtype=self._dtype, device=self._device)
        return torch.randint(0, 2, sizes, device=self._device).to(self._dtype)

    def checked(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor, in memory as it was compiled for."""
        if value.dtype is not self._dtype or value.device != self._device:
            raise WrongArgument(
                f"{self.place} has to be a tensor of {self._dtype} on {self._device}, not of "
                f"{value.dtype} on {value.device}"
            )
        size = value.shape
        if len(size) != len(self._sizes) or any(size[d] != n for d, n in self._fixed_sizes):
            expected = ", ".join("any" if n is None else str(n) for n in self._sizes)
            raise WrongArgument(
                f"{self.place} has size ({', '.join(map(str, size))}), and the package was made "
                f"for ({expected})"
            )
        if value.requires_grad and torch.is_grad_enabled():
            raise WrongArgument(
                f"{self.place} requires grad, and packages compute no gradients: call it under "
                "torch.no_grad()"
            )
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            raise WrongArgument(f"{self.place} has to be a plain tensor")
        if type(value) is not torch.Tensor:
            value = value.as_subclass(torch.Tensor)
        return self._laid_out(value)

    def _laid_out(self, value: torch.Tensor) -> torch.Tensor:
        """The tensor itself, or a copy where it is laid out otherwise."""
        if self._is_dense:
            return value.contiguous()
        stride = value.stride()
        if all(stride[d] == n for d, n in self._fixed_strides):
            return value
        if None in self._strides:
            raise WrongArgument(f"{self.place} has strides {stride}, which were not compiled for")
        strides: Any = self._strides
        planned = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
        return planned.copy_(value)


class _Sizes:
    """The sizes that vary, and what has to hold of them."""

    def __init__(self, sizes: Mapping[str, Any], leaves: Sequence[_Leaf]) -> None:
        self._readings: list[tuple[str, int, int, bool]] = sizes["readings"]
        self._relations = [
            (HOLDS[row["kind"]], row["difference"], row["words"]) for row in sizes["relations"]
        ]
        self._leaves = leaves

    def of(self, leaves: Sequence[Any]) -> dict[str, int]:
        """The numbers, by symbol. WrongArgument: a relation does not hold, which names them."""
        numbers: dict[str, int] = {}
        for symbol, leaf, dim, is_stride in self._readings:
            tensor = leaves[leaf]
            numbers[symbol] = (tensor.stride() if is_stride else tensor.shape)[dim]
        for holds, difference, words in self._relations:
            if not holds(evaluate(difference, numbers)):
                shown = [
                    f"{self._leaves[leaf].place}.{'stride' if is_stride else 'size'}({dim}) is "
                    f"{numbers[symbol]}"
                    for symbol, leaf, dim, is_stride in self._readings
                    if symbol in _symbols(difference)
                ]
                raise WrongArgument(f"{'; '.join(shown)}: the package was made for {words}")
        return numbers


class _Writes:
    """The tensors of a call that the program writes to."""

    def __init__(self, entry: Mapping[str, Any], leaves: Sequence[_Leaf]) -> None:
        self._rows: list[tuple[str, int, int, bool]] = entry["writes"]
        self._places = [leaf.place for leaf in leaves]
        self._names = {
            position: f"weight {source}"
            for position, (kind, source) in enumerate(entry["inputs"])
            if kind == "weight"
        }

    def refuse_shared(self, tensors: Sequence[torch.Tensor], inputs: Sequence[Any]) -> None:
        """Raises: WrongArgument, where memory that is written belongs to another tensor, too: the
        package was made for tensors apart.
        """
        memory = {("leaf", n): Addresses.of(tensor) for n, tensor in enumerate(tensors)}
        memory |= {("weight", n): Addresses.of(inputs[n]) for n in self._names}
        for kind, number, *_ in self._rows:
            place = kind, number
            for other, addresses in memory.items():
                if other != place and addresses.overlap(memory[place]):
                    raise WrongArgument(
                        f"{self._name(place)} is written to, and {self._name(other)} lies in the "
                        "same memory: the package was made for tensors that share none"
                    )

    def _name(self, place: tuple[str, int]) -> str:
        kind, number = place
        return self._places[number] if kind == "leaf" else self._names[number]

    def write(
        self,
        outputs: Sequence[Any],
        tensors: Sequence[torch.Tensor],
        leaves: Sequence[torch.Tensor],
        inputs: Sequence[Any],
    ) -> None:
        """Give the tensors their new values: those that the caller has, and copies of them in
        another layout, of which results may be views. What a kernel wrote in place is there.
        """
        counted: list[torch.Tensor] = []
        for kind, number, output, is_noticed in self._rows:
            value = outputs[output]
            own = leaves[number] if kind == "leaf" else inputs[number]
            given = tensors[number] if kind == "leaf" else own
            for target in (own, given) if given is not own else (own,):
                if target is not value:
                    write_into(target if is_noticed else target.data, value)
                elif is_noticed and not target.is_inference():
                    counted.append(target)
        if counted:
            torch.autograd.graph.increment_version(counted)


def _symbols(number: Any) -> set[str]:
    if isinstance(number, str):
        return {number}
    return set().union(*map(_symbols, number[1:])) if isinstance(number, list) else set()


def _result(
    recipe: Sequence[Any],
    outputs: Sequence[Any],
    leaves: Sequence[Any],
    inputs: Sequence[Any],
    before: Sequence[Any],
) -> Any:
    """A result of the program, by its recipe."""
    kind, *parts = recipe
    match kind:
        case "output":
            return outputs[parts[0]]
        case "leaf":
            return leaves[parts[0]]
        case "weight":
            return inputs[parts[0]]
        case "result":
            return before[parts[0]]
        case "constant":
            return rebuild(parts[0], ())
        case _:
            base, size, stride, offset, dtype = parts
            tensor = _result(base, outputs, leaves, inputs, before)
            numbers = [
                [outputs[n[0]] if isinstance(n, list) else n for n in extents]
                for extents in (size, stride, [offset])
            ]
            tensor = tensor if dtype is None else tensor.view(torch_constant("dtype", dtype))
            offset = tensor.storage_offset() + numbers[2][0]
            return torch.as_strided(tensor, numbers[0], numbers[1], offset)


@record(eq=False, frozen=False)
class Package:
    """A package in memory. It is called as its entry point `forward`; others are attributes."""

    path: Path
    manifest: Mapping[str, Any] = field(repr=False)
    weights: dict[str, torch.Tensor] = field(repr=False)
    """Tensors that the program reads beside its arguments, by the names that the model has for
    them.
    """

    entries: dict[str, Entry]
    _file: PackageFile = field(repr=False)
    _level: str = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.entries["forward"](*args, **kwargs)

    def __getattr__(self, name: str) -> Entry:
        entries = object.__getattribute__(self, "entries")
        if name in entries:
            return entries[name]  # type: ignore[no-any-return]
        raise AttributeError(f"{self.path} has no entry point {name!r}; it has {list(entries)}")

    def text(self, name: str = "forward") -> str:
        """The text of an entry point: its wrapper lines with the kernels' source."""
        return bytes(self._file.section(f"{name}.{self._level}.lines")).decode()

    def use_weights(self, weights: Weights) -> None:
        """Run on these weights from now on, a module's or a mapping by name; they are shared, not
        copied, and those that are not among them stay. PackageRefused: one has another type, size,
        stride or device, or was frozen.
        """
        named = self._named(weights)
        for row in self.manifest["weights"]:
            name = row["name"]
            if name in named:
                self.weights[name] = self._fitting(row, named[name])
        for entry in self.entries.values():
            entry._fill(self.weights)

    def _named(self, weights: Weights) -> dict[str, torch.Tensor]:
        """Weights by name. PackageRefused: one is stored as what was computed of it."""
        named = dict(weights) if not isinstance(weights, torch.nn.Module) else _state_of(weights)
        for name in self.manifest["frozen"]:
            if name in named:
                raise PackageRefused(
                    str(self.path),
                    f"its weight {name} was frozen: it holds what was computed of it. Make another "
                    "package of these weights, or one without options={'freeze': True}",
                )
        return named

    def _frozen_values(self, name: str, entry: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """By name, the values that are stored in place of weights, packed for this processor."""
        values = {}
        for row in entry["frozen"]:
            value = stored_tensor(self._file, row, f"{name}.frozen.{row['name']}")
            if row["packing"] is not None:
                if torch_compat.PACKED_CONVOLUTION is None:
                    what = "it calls oneDNN, which this torch was built without"
                    raise PackageRefused(str(self.path), what)
                value = torch_compat.pack_convolution_weight(value, *row["packing"])
            values[row["name"]] = value
        return values

    def _fitting(self, row: Mapping[str, Any], tensor: torch.Tensor) -> torch.Tensor:
        expected = (
            torch_constant("dtype", row["dtype"]),
            row["size"],
            row["stride"],
            row["device"],
        )
        actual = (tensor.dtype, [*tensor.shape], [*tensor.stride()], str(tensor.device))
        if actual != expected:
            raise PackageRefused(
                str(self.path),
                f"its weight {row['name']} is {expected[0]} of size {expected[1]} and stride "
                f"{expected[2]} on {expected[3]}, and was given as {actual[0]} of size {actual[1]} "
                f"and stride {actual[2]} on {actual[3]}",
            )
        return tensor.detach()

    def _plan(self, name: str, entry: Mapping[str, Any]) -> Callable[[list[Any]], Any]:
        """The native plan of an entry point, with its machine code."""
        code = json.loads(bytes(self._file.section(f"{name}.{self._level}.plan")))
        rows = [row for row in code["kernels"] if row["language"] == "cpu"]
        kernels: dict[str, Any] = {
            row["name"]: PackagedKernel(self._file, name, row).launcher()
            for row in code["kernels"]
            if row["language"] != "cpu"
        }
        if rows:
            section = self._file.section(f"{name}.{self._level}.code")
            try:
                machine_code = MachineCode(section)
            except ValueError as error:
                raise PackageRefused(str(self.path), str(error)) from None
            for kernel in rows:
                address = machine_code.address(kernel["name"])
                kernels[kernel["name"]] = CpuKernel(
                    address, kernel["tensors"], kernel["sizes"], kernel["name"], machine_code
                )
        tensors = {
            row["name"]: stored_tensor(self._file, row, f"{name}.constant.{row['name']}")
            for row in entry["constants"]
        }
        return _call_plan(code, kernels, tensors, f"{self.path}/{name}")


def _call_plan(
    code: Mapping[str, Any],
    kernels: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    path: str,
) -> CallPlan:
    """The plan that was stored as data; those of its blocks are among its constants."""
    blocks = {
        name: _call_plan(block, kernels, tensors, path) for name, block in code["blocks"].items()
    }
    called = {**kernels, **blocks}
    operations = [(kind, line, tuple(operands)) for kind, line, operands in code["operations"]]
    return CallPlan(
        tuple(operations),
        code["inputs"],
        code["slots"],
        tuple(code["numbers"]),
        tuple([constant_of(row, called, tensors) for row in code["constants"]]),
        {},
        path,
    )


def load(
    path: str | os.PathLike[str],
    *,
    weights: Weights | None = None,
    key: bytes | str = b"",
) -> Package:
    """A package that `aot_compile` has made, ready to be called; the compiler is not imported.

    `weights`: a module or mapping whose tensors are shared in place of those that are stored.
    `key`: only a package that was signed with it is taken. Raises: PackageRefused, which names what
    is wrong, before anything of it is executed: it is damaged, or for another version of torch,
    another processor or GPU, or other weights; OSError, where there is no such file.
    """
    key = key.encode() if isinstance(key, str) else key
    file = read_package(Path(path), key)
    manifest = file.manifest
    level = _checked(file)
    package = Package(
        path=file.path, manifest=manifest, weights={}, entries={}, _file=file, _level=level
    )
    named = {} if weights is None else package._named(weights)
    for row in manifest["weights"]:
        name = row["name"]
        if name in named:
            package.weights[name] = package._fitting(row, named[name])
        elif f"weight.{name}" in file.places:
            package.weights[name] = stored_tensor(file, row, f"weight.{name}")
        else:
            raise PackageRefused(
                str(file.path), f"its weight {name} is not stored in it: pass weights=…"
            )
    for name, entry in manifest["entries"].items():
        package.entries[name] = Entry(package, name, entry)
    return package


def _checked(file: PackageFile) -> str:
    """The level of processors whose code this machine runs. Raises: PackageRefused."""
    manifest, path = file.manifest, str(file.path)
    made_with, running = manifest["torch"], ".".join(map(str, version_of(torch.__version__)))
    if made_with != running:
        raise PackageRefused(path, f"it was made with torch {made_with}, and this is {running}")
    if manifest["machine"] != machine_name():
        raise PackageRefused(path, f"it is for {manifest['machine']}, and this is {machine_name()}")
    check_gpus(path, manifest)
    lacking: list[str] = []
    for level in manifest["levels"]:
        lacking = lacking_features(tuple(level["features"]))
        if not lacking:
            return str(level["name"])
    raise PackageRefused(path, f"this processor lacks {', '.join(lacking)}, which it needs")


def _state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    named = [*module.named_parameters(remove_duplicate=False)]
    return dict(named) | dict(module.named_buffers(remove_duplicate=False))
