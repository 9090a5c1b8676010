"""`explain(f)(*args)`: call a function compiled anew, and say what that did and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusewright.compiler import Compiler
from fusewright.inspect.explanation import Explanation, explain_compiler


class Explainer:
    """Calls a target that is compiled for this purpose alone. Several calls add up, so that the
    second one can show why it compiles again.
    """

    def __init__(
        self, target: Callable[..., Any], compiler: Compiler, history: Compiler | None
    ) -> None:
        self._target = target
        self._compiler = compiler
        self._history = history
        compiler.measures_guards = True

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        """Call the target, and tell all that happened up to now. Raises what the target raises."""
        result = self._target(*args, **kwargs)
        return explain_compiler(self._compiler, self._name, result)

    @property
    def so_far(self) -> Explanation:
        """The explanation of all calls of this object up to now, those that raised included."""
        return explain_compiler(self._compiler, self._name)

    @property
    def history(self) -> Explanation | None:
        """The explanation of all that the target has compiled by itself so far; None when it was
        not compiled.
        """
        return None if self._history is None else explain_compiler(self._history, self._name)

    @property
    def _name(self) -> str:
        name = self._compiler.settings.name or getattr(self._target, "__qualname__", None)
        return name or type(self._target).__qualname__

    def __str__(self) -> str:
        return str(self.history or self.so_far)
