"""The Python target: a module whose `register` takes the backend's kernels; no compiler needed."""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from fusewright.opgen.declarations import Operator, Parameter
from fusewright.opgen.plan import Plan, Refused
from fusewright.opgen.wrappers import Language, Wrapper, fitted

_HEADER = '''"""Operators of the backend "{backend}", made from its kernels.

`register(kernels)` takes a module or an object with one function an operator:

{kernels}
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from fusewright.opgen import support
from fusewright.opgen.fall_back import FallBack
from fusewright.opgen.registration import register as register_operators

aten = torch.ops.aten
kernels: Any = SimpleNamespace()
"""The backend's functions; `register` sets it."""

fall_back = FallBack()
"""Computes on the CPU what stands neither here nor among the kernels; `fall_back.counts` lists it,
`fall_back.mode` is "warn", "quiet" or "error".
"""
'''

_REGISTER = '''
_libraries: list[torch.library.Library] = []


def register(backend_kernels: Any) -> None:
    """Register kernels and wrappers with torch; they stay for the life of the process."""
    global kernels
    kernels = backend_kernels
    library = torch.library.Library("aten", "IMPL")
    operators = {{
        **{{name: getattr(kernels, symbol) for name, symbol in GIVEN.items()}},
        **MADE,
    }}
    autograd = {{name: getattr(kernels, symbol) for name, symbol in DIFFERENTIATED.items()}}
    register_operators(library, operators, autograd, fall_back, "{key}")
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(fall_back, "{key}")
    _libraries.extend((library, rest))
'''


def emit_python(plan: Plan) -> dict[str, str]:
    """The files of the Python target by name."""
    description = plan.description
    entries = description.entries.values()
    kernels = "\n".join(_kernel_line(entry.operator, entry.structured) for entry in entries)
    differentiated = [row for row in plan.given if row.entry.differentiated]
    refused = [row for row in plan.rows if isinstance(row, Refused)]
    tables = {
        "GIVEN": {row.operator.name: f'"{row.operator.symbol}"' for row in plan.given},
        "DIFFERENTIATED": {row.operator.name: f'"{row.operator.symbol}"' for row in differentiated},
        "MADE": {row.operator.name: _safe(row.operator.symbol) for row in plan.made},
        "REFUSED": {row.operator.name: f'"{row.reason}"' for row in refused},
    }
    parts = [
        _HEADER.format(backend=description.backend, kernels=kernels),
        *(_PythonWrapper(row, plan).text() for row in plan.made),
        "",
        *(_table(name, rows) for name, rows in tables.items()),
        _REGISTER.format(key=description.dispatch_key),
    ]
    return {f"{description.backend}_operators.py": "\n".join(parts)}


def _kernel_line(operator: Operator, structured: bool) -> str:
    names = ", ".join(parameter.name for parameter in operator.parameters)
    note = "  (outs are ready to be written)" if structured else ""
    return fitted(f"    {operator.symbol}({names}){note}")


def _table(name: str, rows: Mapping[str, str]) -> str:
    lines = "".join(f'    "{key}": {value},\n' for key, value in rows.items())
    return f"{name}: dict[str, Any] = {{" + (f"\n{lines}}}" if lines else "}")


def _safe(name: str) -> str:
    """A name that is no word of Python's."""
    return f"{name}_" if keyword.iskeyword(name) else name


def operator_path(operator: Operator) -> str:
    """`aten.add.Tensor`, `aten.relu.default`, and a detour for names that are words of Python's."""
    base, _, overload = operator.name.partition(".")
    if keyword.iskeyword(overload) or keyword.iskeyword(base):
        return f'getattr(getattr(aten, "{base}"), "{overload or "default"}")'
    return f"aten.{base}.{overload or 'default'}"


class _PythonWrapper(Wrapper):
    language = Language(
        statement="{}",
        declaration="{} = {}",
        support="support.{}({})",
        option="{}={}",
        truths=("False", "True"),
        references="({})",
        values="({})",
        element="{}[{}]",
        given_or="{1} if {0} is None else {0}",
        attributes={"dtype": "{}.dtype", "layout": "{}.layout", "device": "{}.device"},
        defaults={
            "Mean": "1",
            "contiguous_format": "torch.contiguous_format",
            "long": "torch.long",
        },
    )

    def text(self) -> str:
        """The function's definition."""
        name = _safe(self.operator.symbol)
        lines = [
            "",
            f"def {name}({self._parameters()}) -> Any:",
            f'    """`{self.operator.name}`, made from `{self.source.name}`."""',
            *(f"    {line}" for line in self.body()),
            "",
        ]
        return "\n".join(fitted(line, closing_alone=True) for line in lines)

    def _parameters(self) -> str:
        parts = []
        star = False
        for parameter in self.operator.parameters:
            if parameter.keyword_only and not star:
                parts.append("*")
                star = True
            default = "" if parameter.default is None else f" = {self.default(parameter)}"
            parts.append(f"{self.name(parameter)}: Any{default}")
        return ", ".join(parts)

    def name(self, parameter: Parameter) -> str:
        return _safe(parameter.name)

    def call(self, replaced: Mapping[str, str]) -> str:
        arguments = []
        for parameter in self.source.parameters:
            value = self.argument(parameter, replaced)
            arguments.append(f"{parameter.name}={value}" if parameter.keyword_only else value)
        return f"{self._function()}({', '.join(arguments)})"

    def _function(self) -> str:
        """The function that computes: a kernel, a wrapper, or torch's own operator."""
        if self.row.structured or self.source.name in self.plan.given_operators:
            return f"kernels.{self.source.symbol}"
        if self.source.name in self.plan.made_operators:
            return _safe(self.source.symbol)
        return operator_path(self.source)

    def geometry(self) -> str:
        names = {parameter.name for parameter in self.operator.parameters}
        arguments = [
            f"{parameter.name}={self.name(parameter)}"
            if parameter.keyword_only
            else self.name(parameter)
            for parameter in self.functional.parameters
            if parameter.name in names or not parameter.keyword_only
        ]
        return self.support("geometry", operator_path(self.functional), *arguments)
