"""A graph as a module whose Python code is written when somebody asks for it.

`torch.fx.GraphModule` writes and compiles the code at once, which takes a few hundredths of a first
compile, and torch keeps the text for good. Here most graphs are read and never called.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx


class _Forward:
    """`forward` of a class whose code is not written yet: reading it writes the code."""

    def __get__(self, module: Any, owner: type) -> Any:
        if module is None:
            return self
        fx.GraphModule.recompile(module)  # puts the function in the place of this
        return module.forward


_FORWARD: Final = _Forward()


class GraphModule(fx.GraphModule):
    """`torch.fx.GraphModule`, but for when its code is written. 2.11 to 2.13."""

    def __init__(
        self,
        root: torch.nn.Module | dict[str, Any],
        graph: fx.Graph,
        class_name: str = "GraphModule",
    ) -> None:
        super().__init__(root, graph, class_name)

    def recompile(self) -> Any:
        """Have the code written anew when it is asked for: the class is this module's own."""
        vars(self).pop("_code", None)
        cls: Any = type(self)
        cls.forward = _FORWARD

    @property
    def code(self) -> str:
        """The Python code of the graph."""
        if "_code" not in vars(self):
            fx.GraphModule.recompile(self)
        code: str = self._code
        return code

    def __reduce__(self) -> Any:
        name = type(self).__name__
        return fx.GraphModule(self, self.graph, name).__reduce__()
