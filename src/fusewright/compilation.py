"""Settings of how a function is compiled, and the record of each compilation."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, cast

from torch import fx

from fusewright.backends.registry import Backend
from fusewright.capture.dynamic_shapes import DynamicShapes
from fusewright.capture.guards import GuardSet
from fusewright.config import Options
from fusewright.errors import Location
from fusewright.records import field, record

if TYPE_CHECKING:  # Importing it takes the whole IR along.
    from fusewright.runtime.compiled import CompiledGraph, Record, Training


@record(kw_only=True)
class Settings:
    """How one function or module is compiled."""

    backend: Backend
    """The backend, with the user's mode and options bound."""

    backend_name: str
    fullgraph: bool = False
    dynamic: bool | None = None
    """Whether sizes are symbols: None for those that were seen to vary."""

    dynamic_shapes: DynamicShapes | None = None
    """The sizes of arguments, as far as the user has stated them."""

    options: Options = field(default_factory=Options)
    """The options that capture reads."""

    name: str | None = None
    """The name in reports; None: its own."""

    @property
    def refuses(self) -> bool:
        """Whether what cannot be captured is an error."""
        return self.fullgraph or self.options.strict

    @property
    def tries_eager(self) -> bool:
        """Whether calls may be run as they are written where that is faster: not where the user
        wants to know what is compiled, or has calls go to a backend of another.
        """
        options = self.options
        wanted = options.eager_where_faster and not options.strict
        return wanted and self.backend_name == "fusewright"


@record(kw_only=True)
class Compilation:
    """The record of one capture and compilation, for reports."""

    function: str
    """Qualified name of the captured function."""

    place: Location
    """Where it is defined, or for the rest of a function after a graph break, where that begins."""

    began: float
    """When it was begun, by `time.perf_counter`."""

    capture_seconds: float
    """Time to trace the frame to a graph."""

    backend_seconds: float
    """Time that the backend took."""

    finish_seconds: float
    """Time to write the new function and its guards."""

    operators: Mapping[str, int]
    """How often the graph calls each torch function or method, by name."""

    node_count: int
    """Nodes of the captured graph, inputs and output included."""

    input_count: int
    """Tensors that the graph reads: arguments, parameters, buffers."""

    guards: GuardSet
    """The guards under which the result is used; `guards.table()` prints them."""

    guard_seconds: float | None
    """Time that the guards take in one call, where it was measured."""

    compiled: Callable[..., Any] | None
    """The callable that the backend returned; None where there was nothing to compile."""

    captured: CodeType
    """The code of the captured function."""

    code: CodeType
    """The code that runs in its place."""

    @property
    def python(self) -> str:
        """The Python that this code means."""
        return str(_as_python().as_python(self.code, self.captured))

    @property
    def bytecode(self) -> str:
        """Its instructions, one a line."""
        return f"{_as_python().disassemble(self.code)}\n"

    @property
    def seconds(self) -> dict[str, float]:
        """Time by stage, in order; stages inside others are left out."""
        timings = self.record.timings if self.record else {"backend": self.backend_seconds}
        backend = {name: spent for name, spent in timings.items() if "." not in name}
        return {"capture": self.capture_seconds, **backend, "guards": self.finish_seconds}

    @property
    def record(self) -> Record | None:
        """The record of the stages, where the backend is one of ours that keeps it."""
        return None if self._own is None else self._own.record

    @property
    def training(self) -> Training | None:
        """The record of the backward half, under the same condition; None for inference."""
        return None if self._own is None else self._own.training

    @property
    def halves(self) -> tuple[CompiledGraph, ...]:
        """The compiled graph, and in training its backward half where that is compiled; empty where
        the backend is not one of ours.
        """
        backward = None if self.training is None else self.training.backward
        return tuple(half for half in (self._own, backward) if half is not None)

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of its halves, each before those of the functions of its conditions and
        loops.
        """
        wholes = (half.record for half in self.halves)
        return tuple(part for whole in wholes for part in (whole, *whole.subprograms))

    @property
    def _own(self) -> CompiledGraph | None:
        is_ours = type(self.compiled).__module__ == "fusewright.runtime.compiled"
        return cast("CompiledGraph", self.compiled) if is_ours else None

    @property
    def peak_bytes(self) -> int | None:
        """The most that planned buffers hold at one time; None where the backend does not tell."""
        return None if self.record is None else self.record.peak_bytes


def _as_python() -> Any:
    """The module that writes code as Python, which only reports need."""
    return importlib.import_module("fusewright.capture.bytecode.as_python")


def operator_counts(graph: fx.Graph) -> Counter[str]:
    """How often a graph calls each torch function or method, by name."""
    calls = (node.target for node in graph.nodes if node.op.startswith("call_"))
    return Counter(getattr(target, "__name__", str(target)) for target in calls)
