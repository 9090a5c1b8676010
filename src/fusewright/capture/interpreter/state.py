"""What the interpreter's parts ask of the machine beyond what values may ask."""

from __future__ import annotations

from typing import Any, Protocol

from fusewright.capture.sizes import Sizes
from fusewright.capture.sources import Source
from fusewright.capture.values.base import Interpreter
from fusewright.capture.values.functions import Namespace
from fusewright.capture.values.tensors import TensorValue


class MachineState(Interpreter, Protocol):
    """The machine as the tables of wrapping and operators see it."""

    sizes: Sizes
    """What is a symbol, and what was found at the same places before."""

    mutated: dict[int, Any]
    """Existing objects that the program changed, in order of first change."""

    def namespace(self, dictionary: dict[str, Any], origin: Source | None = None) -> Namespace:
        """The global variables kept in a dictionary, itself read from `origin` where it is no
        module's.
        """

    def namespace_of(self, dictionary: dict[str, Any]) -> Namespace | None:
        """The variables in a dict, if it is a module's or was met as a function's."""

    def add_input(self, value: TensorValue, tensor: Any, source: Source) -> tuple[Any, Any]:
        """Make an existing tensor an input of the graph: its node and its fake."""
