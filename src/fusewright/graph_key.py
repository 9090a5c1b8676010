"""The key of a graph: a digest of all that decides the plan that is made of it.

A key has parts, so that a miss can say which differ. No address, identity, order of a set or
process enters: equal graphs have equal keys in any two processes. Of a graph that holds something
without a text here no plan is kept, and the reason is told.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final

import torch
from torch import fx

from fusewright import __version__
from fusewright.aot import (
    AtenGraph,
    ControlFlowCall,
    EagerCall,
    LoopCall,
    block_graphs,
    first_location,
)
from fusewright.config import FRONT_END_OPTIONS, Options
from fusewright.context import CompileContext
from fusewright.errors import Location
from fusewright.ir.index import Symbol
from fusewright.opaque import Opaque
from fusewright.records import record
from fusewright.runtime.choices import device_text
from fusewright.runtime.kept_files import KeptFiles
from fusewright.runtime.llvm_engine import cpu_target
from fusewright.runtime.memory_checks import MemoryChecks
from fusewright.runtime.processor import this_processor
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.nodes import SymbolicNode, free_symbols, index_of
from fusewright.symbolic.real import with_indices
from fusewright.torch_compat import OpOverload, declaration_of, is_autocast_on, states
from fusewright.user_kernels import UserKernelOnCopies

META_READ: Final = frozenset({"is_released", "location", "module_path", "reads_moved", "val"})
"""The entries of a node's `meta` that the stages behind the key read: all of them enter it."""

NOT_DECISIVE: Final = (FRONT_END_OPTIONS - {"strict"}) | {"graph_cache", "verify"}
"""Options that do not change what is generated."""

NOT_READ: Final = frozenset({"FUSEWRIGHT_CACHE_DIR", "FUSEWRIGHT_GRAPH_CACHE", "FUSEWRIGHT_LOG"})
"""Variables of ours that decide where files lie, and what is told."""

MODES: Final[dict[str, Callable[[], object]]] = {
    "threads": torch.get_num_threads,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "default type": torch.get_default_dtype,
    "precision of products": lambda: [states.matmul_precision(type) for type in ("cpu", "cuda")],
    "gradients": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "autocast": is_autocast_on,
    "oneDNN": lambda: torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled,
    "checks of memory": MemoryChecks.chosen,
}
"""By name in messages, modes of torch and of this process that stages read, or might."""

SOURCES: Final = KeptFiles("sources", ".digest")
"""Digests of this package's own files, by their sizes and times of change."""


class NotKept(Exception):
    """Says why no plan of a graph is kept."""


@record(kw_only=True)
class GraphKey:
    """The parts of a key, as text or its digest."""

    program: str
    """A digest of where the graph begins in the user's program, and which half of a training step
    it is: the kept graphs of one place are compared with one that is missing.
    """

    place: str
    """That line, or nothing where it is unknown."""

    locations: tuple[Location, ...]
    """The lines of the user's program that the graph comes from, which are no part of the key: a
    plan names them by their numbers, so that it holds wherever the program lies.
    """

    parts: Mapping[str, str]
    facts: ShapeFacts | None
    """What is known of the sizes of the graph that vary, if any do."""

    @property
    def digest(self) -> str:
        """The key itself."""
        return _digest(json.dumps(self.parts, sort_keys=True))


DESCRIPTIONS: Final = {
    "graph": "its operators",
    "layouts": "the sizes and types of its tensors",
    "sizes": "what is known of sizes that vary, and what they were when compiling",
    "places": "its modules, and which operators stand on one line",
    "options": "options",
    "modes": "modes",
    "variables": "variables of the environment",
    "processor": "the processor",
    "versions": "versions",
    "sources": "the source of fusewright",
}
"""The parts, as messages name them."""


def key_of(graph: AtenGraph, context: CompileContext, *, half: str) -> GraphKey:
    """The key of a graph. `half`: that of a training step which it is, `forward` or `backward`;
    empty where it is none. NotKept: something of it has no text.
    """
    writer = _GraphText(graph)
    role = (half, sorted(context.counters.items()))
    options = {
        option.name: getattr(context.options, option.name)
        for option in fields(Options)
        if option.name not in NOT_DECISIVE
    }
    place = first_location(graph.graph)
    return GraphKey(
        facts=writer.facts,
        place=str(place or ""),
        locations=tuple(writer.locations),
        program=_digest(f"{half} {place!r}"),
        parts={
            "graph": _digest("\n".join((repr(role), *writer.rows))),
            "layouts": _digest("\n".join(writer.layouts)),
            "sizes": writer.sizes(),
            "places": _digest("\n".join(writer.places)),
            "options": _named(options),
            "modes": _named({name: mode() for name, mode in MODES.items()}),
            "variables": _named(_variables()),
            "processor": _named(
                {
                    **_processor(context.options.kernel_target),
                    **_gpus(writer.gpus, context.options),
                }
            ),
            "versions": _named(_versions()),
            "sources": _sources_or_refusal(),
        },
    )


def differences(key: GraphKey, other: Mapping[str, str]) -> list[str]:
    """What differs between a key and the parts of another, in words."""
    said = []
    for name, text in key.parts.items():
        before = other.get(name, "")
        if text == before:
            continue
        changes = _changes(before, text)
        said.append(f"{DESCRIPTIONS[name]}{f' ({changes})' if changes else ''}")
    return said


def _changes(before: str, now: str) -> str:
    """The values that differ, where parts have names and values."""
    try:
        old, new = json.loads(before), json.loads(now)
    except ValueError:
        return ""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name}: {old.get(name)}, now {new.get(name)}" for name in names)


def _named(values: Mapping[str, object]) -> str:
    return json.dumps({name: str(value) for name, value in values.items()})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -- The graph -------------------------------------------------------------------------------------


class _GraphText:
    """The text of a functional graph: a row for each node in three lists. The rows of a condition's
    or loop's graphs come behind its own.
    """

    def __init__(self, graph: AtenGraph) -> None:
        self.rows: list[str] = []
        self.layouts: list[str] = []
        self.places: list[str] = []
        self.locations: dict[Location, int] = {}
        """Numbers of the user's lines, in the order in which operators come from them."""

        self.gpus: set[str] = set()
        self._numbers: dict[fx.Node, int] = {}
        self._operators: dict[Any, str] = {}
        self._symbols: set[Symbol] = set()
        self.facts: ShapeFacts | None = None
        self._add_graph(graph)

    def _add_graph(self, graph: AtenGraph) -> None:
        self.rows.append(repr(graph.replaced_inputs))
        for node in graph.graph.nodes:
            self._add(node)
            for name, inner in block_graphs(node).items():
                self.rows.append(name)
                self._add_graph(inner)

    def _add(self, node: fx.Node) -> None:
        meta = node.meta
        operator = self._operators.get(node.target)
        if operator is None:
            operator = self._operators[node.target] = _operator(node)
        arguments = self._argument(node.args)
        keywords = {name: self._argument(value) for name, value in node.kwargs.items()}
        flags = bool(meta.get("is_released")), bool(meta.get("reads_moved"))
        row = (node.op, node.name, operator, arguments, tuple(keywords.items()), flags)
        self.rows.append(repr(row))
        self.layouts.append(self._value(meta.get("val")))
        if isinstance(node.target, UserKernelOnCopies):
            self.layouts.append(self._value(node.target.likes))
        self.places.append(repr((self._line(meta.get("location")), meta.get("module_path", ""))))
        self._numbers[node] = len(self._numbers)

    def _line(self, location: Location | None) -> int | None:
        """The number of a line of the user's."""
        if location is None:
            return None
        return self.locations.setdefault(location, len(self.locations))

    def _argument(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return f"%{self._numbers[value]}"
        if isinstance(value, list | tuple):
            return f"{type(value).__name__}[{', '.join(map(self._argument, value))}]"
        if isinstance(value, slice):
            return f"slice{self._argument((value.start, value.stop, value.step))}"
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        if isinstance(value, torch.SymInt):
            return self._size(value)
        if isinstance(value, torch.SymFloat):
            return self._real(value)
        if type(value) not in CONSTANTS:
            raise NotKept(f"it holds an object of class {type(value).__qualname__}")
        return f"{type(value).__name__} {value!r}"

    def _size(self, size: torch.SymInt) -> str:
        """A size that varies, as far as is known by now."""
        facts = self._facts_of(size)
        index = index_of(size)
        self._symbols |= index.free()
        return f"size {facts.resolve(index).text}"

    def _real(self, number: torch.SymFloat) -> str:
        """A real number that varies, as far as is known by now."""
        facts = self._facts_of(number)
        self._symbols |= free_symbols(number)
        return f"real {with_indices(number.node.number, facts.resolve)!r}"

    def _facts_of(self, number: torch.SymInt | torch.SymFloat) -> ShapeFacts:
        node = number.node
        if not isinstance(node, SymbolicNode):
            raise NotKept("its sizes are symbols of another front end")
        if self.facts not in (None, node.facts):
            raise NotKept("its sizes belong to two programs")
        self.facts = node.facts
        return self.facts

    def _value(self, value: Any) -> str:
        """What a node computes, without its elements."""
        if isinstance(value, torch.Tensor):
            if value.device.type not in ("cpu", "cuda", "meta"):
                raise NotKept(f"it computes on {value.device.type}")
            if value.layout is not torch.strided:
                raise NotKept(f"it holds a tensor of layout {value.layout}")
            if value.is_cuda:
                self.gpus.add(str(value.device))
            numbers = (*value.shape, *value.stride(), value.storage_offset())
            shown = [n if type(n) is int else self._constant(n) for n in numbers]
            bits = value.is_conj(), value.is_neg(), value.requires_grad
            return repr((str(value.dtype), str(value.device), value.dim(), shown, bits))
        if isinstance(value, list | tuple):
            return f"{type(value).__name__}[{', '.join(map(self._value, value))}]"
        if isinstance(value, Opaque):
            return "opaque"
        return self._constant(value)

    def sizes(self) -> str:
        """A digest of what is known of sizes that vary; empty where none do."""
        return "" if self.facts is None else _digest(self.facts.text(self._symbols))


CONSTANTS: Final = (
    bool, int, float, complex, str, type(None), type(...),
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
"""Classes of constants whose `repr` says all of them."""


NUMBER_TARGETS: Final = (
    torch.sym_float, torch.sym_int, torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_ite,
)  # fmt: skip
"""Functions of numbers that vary, which are nodes beside operators."""


PROGRAMS: Final = (ControlFlowCall, EagerCall, LoopCall, UserKernelOnCopies)
"""Classes of what a plan runs beside operators, or is given to run."""


def _operator(node: fx.Node) -> str:
    """The target of a node, with what torch declares of it."""
    target: Any = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, OpOverload):
        return declaration_of(target)
    if isinstance(target, PROGRAMS):
        return f"{type(target).__name__} {target.signature}"
    if target in NUMBER_TARGETS:
        return f"torch.{target.__name__}"
    if getattr(target, "__module__", "") in ("_operator", "math"):
        return f"{target.__module__}.{target.__qualname__}"
    raise NotKept(f"it calls {getattr(target, '__qualname__', type(target).__qualname__)}")


# -- What is around it -----------------------------------------------------------------------------


def _variables() -> dict[str, str]:
    ours = (name for name in os.environ if name.startswith("FUSEWRIGHT_"))
    return {name: os.environ[name] for name in sorted(ours) if name not in NOT_READ}


@cache
def _processor(kernel_target: str) -> dict[str, object]:
    target = cpu_target(kernel_target)
    names = ("name", "features", "vector_bytes", "has_scalef")
    return {**{name: getattr(target, name) for name in names}, "llvm": this_processor().llvm}


def _gpus(devices: Iterable[str], options: Options) -> dict[str, object]:
    """The GPUs by device, where kernels for them are chosen by measuring: nothing else of a plan
    depends on which they are.
    """
    if not options.has_choices_on("cuda"):
        return {}
    return {device: device_text(torch.device(device)) for device in sorted(devices)}


@cache
def _versions() -> dict[str, object]:
    return {
        "fusewright": __version__,
        "torch": torch.__version__,
        "torch's commit": getattr(torch.version, "git_version", ""),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _sources_or_refusal() -> str:
    """`sources_digest`. NotKept: the files cannot be read, as in an archive."""
    try:
        return sources_digest()
    except OSError as error:
        raise NotKept(f"fusewright's own files cannot be read ({error.strerror})") from error


@cache
def sources_digest() -> str:
    """A digest of the files of this package, which an earlier process may have read: what they
    contain does not change while their sizes and times do not.
    """
    folder = os.path.dirname(__file__)
    paths = sorted(_sources(folder))
    states = ((path, os.stat(path)) for path in paths)
    shown = [(path, state.st_size, state.st_mtime_ns) for path, state in states]
    key = _digest(repr(shown))
    kept = SOURCES.read(key)
    if kept is not None:
        return kept.decode()
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        digest.update(f"{path.removeprefix(folder)} {len(content)}\n".encode())
        digest.update(content)
    SOURCES.write(key, digest.hexdigest().encode())
    return digest.hexdigest()


def _sources(folder: str) -> Iterable[str]:
    """The paths of the package's modules, extensions included."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting += [] if entry.name == "__pycache__" else [entry.path]
                elif entry.name.endswith((".py", ".pyc", ".so", ".pyd")):
                    yield entry.path
