"""The dicts that hold global variables: those of modules, and of functions made with others."""

from __future__ import annotations

import sys
import types
from typing import Any

from fusewright.capture import reasons
from fusewright.capture.sources import Source
from fusewright.capture.values.base import Machine
from fusewright.capture.values.functions import Namespace


class Namespaces:
    """The global variables that a program has met, one value for each dict of them."""

    def __init__(self, machine: Machine, root_globals: dict[str, Any]) -> None:
        self._machine = machine
        root = Namespace(root_globals, _module_of(root_globals), is_root=True)
        self._found = {id(root_globals): root}
        """Namespaces by the identity of their dicts, which they keep alive."""

    def of(self, dictionary: dict[str, Any], origin: Source | None = None) -> Namespace:
        """The variables in the dict of a module or function, read from `origin` where it is no
        module's.
        """
        namespace = self._found.get(id(dictionary))
        if namespace is not None:
            return namespace
        if self._machine.known_value(dictionary) is not None:
            raise self._machine.unsupported(
                reasons.UNSUPPORTED_ATTRIBUTE, name="__globals__", object="a function"
            )
        module = _module_of(dictionary)
        if module is None and origin is None:
            raise self._machine.unsupported(
                reasons.INTERNAL_ERROR, error="variables that no guard reads"
            )
        namespace = self._found[id(dictionary)] = Namespace(dictionary, module, origin)
        return namespace

    def known(self, dictionary: dict[str, Any]) -> Namespace | None:
        """The variables in a dict, if it is a module's or was met as a function's."""
        namespace = self._found.get(id(dictionary))
        if namespace is None and _is_of_module(dictionary, dict.get(dictionary, "__name__")):
            namespace = self.of(dictionary, None)
        return namespace

    def release(self) -> None:
        """Let go of the dicts."""
        self._found.clear()


def _module_of(dictionary: dict[str, Any]) -> str | None:
    """The name in `sys.modules` of the module whose variables stand in a dict."""
    names = [dictionary.get("__name__"), *sys.modules]
    return next((name for name in names if _is_of_module(dictionary, name)), None)


def _is_of_module(dictionary: dict[str, Any], name: Any) -> bool:
    """Whether a dict holds the variables of the module that `sys.modules` has under a name."""
    module = sys.modules.get(name) if isinstance(name, str) else None
    return isinstance(module, types.ModuleType) and module.__dict__ is dictionary
