"""The Python target: a module whose `register` takes the backend's kernels; no compiler needed."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping

from fusewright.opgen.declarations import Kind, Operator, Parameter
from fusewright.opgen.plan import FACTORY_OPTIONS, Made, Plan, Refused, computes_in_dtype_of_out

_HEADER = '''"""Operators of the backend {backend!r}, made from its kernels.

`register(kernels)` takes a module or an object with one function an operator:

{kernels}
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from fusewright.opgen import support

aten = torch.ops.aten
kernels: Any = SimpleNamespace()
"""The backend's functions; `register` sets it."""

fall_back = support.FallBack()
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
    support.register(library, operators, autograd, fall_back, "{key}")
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(fall_back, "{key}")
    _libraries.extend((library, rest))
'''


def emit_python(plan: Plan) -> dict[str, str]:
    """The files of the Python target by name."""
    description = plan.description
    entries = description.entries.values()
    kernels = "\n".join(_kernel_line(entry.operator, entry.structured) for entry in entries)
    parts = [
        _HEADER.format(backend=description.backend, kernels=kernels),
        *(_Wrapper(row, plan).text() for row in plan.made),
        _table("GIVEN", ((row.operator.name, repr(row.operator.symbol)) for row in plan.given)),
        _table(
            "DIFFERENTIATED",
            (
                (row.operator.name, repr(row.operator.symbol))
                for row in plan.given
                if row.entry.differentiated
            ),
        ),
        _table("MADE", ((row.operator.name, _safe(row.operator.symbol)) for row in plan.made)),
        _table(
            "REFUSED",
            ((r.operator.name, repr(r.reason)) for r in plan.rows if isinstance(r, Refused)),
        ),
        _REGISTER.format(key=description.dispatch_key),
    ]
    return {f"{description.backend}_operators.py": "\n".join(parts)}


def _kernel_line(operator: Operator, structured: bool) -> str:
    names = ", ".join(parameter.name for parameter in operator.parameters)
    note = "  (outs are ready to be written)" if structured else ""
    return f"    {operator.symbol}({names}){note}"


def _table(name: str, rows: Iterator[tuple[str, str]]) -> str:
    lines = [f"    {key!r}: {value}," for key, value in rows]
    return "\n".join([f"{name} = {{", *lines, "}"]) if lines else f"{name}: dict[str, Any] = {{}}"


def _safe(name: str) -> str:
    """A name that is no word of Python's."""
    return f"{name}_" if keyword.iskeyword(name) else name


def operator_path(operator: Operator) -> str:
    """`aten.add.Tensor`, `aten.relu.default`, and a detour for names that are words of Python's."""
    base, _, overload = operator.name.partition(".")
    if keyword.iskeyword(overload) or keyword.iskeyword(base):
        return f'getattr(getattr(aten, "{base}"), "{overload or "default"}")'
    return f"aten.{base}.{overload or 'default'}"


class _Wrapper:
    """Writes one wrapper: `operator` by means of `source`."""

    def __init__(self, row: Made, plan: Plan) -> None:
        self.row = row
        self.plan = plan
        self.operator = row.operator
        self.source = row.source
        self.outputs = [_safe(parameter.name) for parameter in row.operator.outputs]

    def text(self) -> str:
        """The function's definition."""
        body = "\n".join(f"    {line}" for line in self._body())
        name = _safe(self.operator.symbol)
        return (
            f"\ndef {name}({self._parameters()}) -> Any:\n"
            f'    """`{self.operator.name}`, made from `{self.source.name}`."""\n{body}\n'
        )

    def _parameters(self) -> str:
        parts = []
        star = False
        for parameter in self.operator.parameters:
            if parameter.keyword_only and not star:
                parts.append("*")
                star = True
            default = "" if parameter.default is None else f" = {_default(parameter)}"
            parts.append(f"{_safe(parameter.name)}: Any{default}")
        return ", ".join(parts)

    def _body(self) -> Iterator[str]:
        tensors = [_safe(p.name) for p in self.operator.parameters if p.type.is_tensor]
        if self.operator.same_device and len(tensors) > 1:
            yield f"support.check_same_device({', '.join(tensors)})"
        yield from _BODIES[self.operator.kind, self.source.kind](self)

    def _call(self, replaced: Mapping[str, str]) -> str:
        """Call the source, matching arguments by name."""
        arguments = []
        for parameter in self.source.parameters:
            value = self._argument(parameter, replaced)
            arguments.append(f"{parameter.name}={value}" if parameter.keyword_only else value)
        return f"{self._source()}({', '.join(arguments)})"

    def _source(self) -> str:
        """The function that computes: a kernel, a wrapper, or torch's own operator."""
        if self.row.structured or self.source.name in self.plan.given_operators:
            return f"kernels.{self.source.symbol}"
        if self.source.name in self.plan.made_operators:
            return _safe(self.source.symbol)
        return operator_path(self.source)

    def _argument(self, parameter: Parameter, replaced: Mapping[str, str]) -> str:
        if parameter.name in replaced:
            return replaced[parameter.name]
        if any(known.name == parameter.name for known in self.operator.parameters):
            if computes_in_dtype_of_out(self.operator, parameter):
                return f"{self.outputs[0]}.dtype if dtype is None else dtype"
            return _safe(parameter.name)
        if parameter.name in FACTORY_OPTIONS and self.outputs and parameter.name != "pin_memory":
            return f"{self.outputs[0]}.{parameter.name}"
        return _default(parameter)

    def _passed(self, operator: Operator) -> str:
        """The wrapper's own arguments, as they are passed on to an operator of torch's."""
        known = {parameter.name for parameter in self.operator.parameters}
        return ", ".join(
            f"{parameter.name}={_safe(parameter.name)}"
            if parameter.keyword_only
            else _safe(parameter.name)
            for parameter in operator.parameters
            if parameter.name in known or not parameter.keyword_only
        )

    def _geometry(self) -> str:
        functional = self.plan.functional(self.operator)
        assert functional is not None
        path = operator_path(functional)
        return f"geometry = support.geometry({path}, {self._passed(functional)})"

    def _functional_from_out(self) -> Iterator[str]:
        yield self._geometry()
        tensors = [_safe(p.name) for p in self.operator.parameters if p.type.is_tensor]
        device = ["device"] if any(p.name == "device" for p in self.operator.parameters) else []
        yield f"outs = support.allocate(geometry, support.device_of({', '.join(device + tensors)}))"
        outs = [parameter.name for parameter in self.source.outputs]
        yield self._call(dict(zip(outs, _elements("outs", len(outs)), strict=True)))
        yield "return outs"

    def _functional_from_inplace(self) -> Iterator[str]:
        yield self._geometry()
        names = [parameter.name for parameter in self.source.outputs]
        dtype = any(parameter.name == "dtype" for parameter in self.operator.parameters)
        yield f"copies = support.writable_copy({_tuple(names)}, geometry, in_result_dtype={dtype})"
        yield self._call(dict(zip(names, _elements("copies", len(names)), strict=True)))
        yield "return support.converted(copies, geometry)"

    def _functional_from_mutable(self) -> Iterator[str]:
        copies = {}
        for parameter in self.source.outputs:
            copies[parameter.name] = f"{parameter.name}_copy"
            yield f"{parameter.name}_copy = support.clone({parameter.name})"
        fresh = sum(not result.written for result in self.source.results)
        yield f"results = {self._call(copies)}"
        yield f"return ({', '.join([*_elements('results', fresh)[:fresh], *copies.values()])})"

    def _inplace_from_out(self) -> Iterator[str]:
        yield self._check_overlap()
        yield self._geometry()
        yield f"support.check_self({self._written()}, geometry, {self._castable()})"
        outs = [parameter.name for parameter in self.source.outputs]
        yield self._call(dict(zip(outs, self.outputs, strict=True)))
        yield from self._return_written()

    def _out_from_structured(self) -> Iterator[str]:
        yield self._check_overlap()
        yield self._geometry()
        yield f"support.resize_outs({self._written()}, geometry, {self._castable()})"
        yield self._call({})
        yield from self._return_written()

    def _written_from_functional(self) -> Iterator[str]:
        """In-place and out from functional: compute, check, copy."""
        yield self._check_overlap()
        write = "write_out" if self.operator.kind is Kind.OUT else "write_self"
        yield f"support.{write}({self._written()}, {self._call({})}, {self._castable()})"
        yield from self._return_written()

    def _return_written(self) -> Iterator[str]:
        if self.operator.results:  # operators that write to lists return nothing
            yield f"return {_tuple(self.outputs[: len(self.operator.results)])}"

    def _written(self) -> str:
        return _tuple(self.outputs)

    def _castable(self) -> str:
        return f"castable={self.operator.castable}"

    def _check_overlap(self) -> str:
        inputs = [
            _safe(parameter.name)
            for parameter in self.operator.inputs
            if parameter.type.is_tensor and not parameter.written
        ]
        return f"support.check_overlap({self._written()}, [{', '.join(inputs)}])"

    def _mutable_from_functional(self) -> Iterator[str]:
        fresh = sum(not result.written for result in self.operator.results)
        yield f"results = {self._call({})}"
        written = f"({', '.join(self.outputs)},)"
        yield f"support.write_self({written}, results[{fresh}:], {self._castable()})"
        yield f"return results[0] if {fresh} == 1 else results[:{fresh}]"


_BODIES: Mapping[tuple[Kind, Kind], Callable[[_Wrapper], Iterator[str]]] = {
    (Kind.FUNCTIONAL, Kind.OUT): _Wrapper._functional_from_out,
    (Kind.FUNCTIONAL, Kind.INPLACE): _Wrapper._functional_from_inplace,
    (Kind.FUNCTIONAL, Kind.MUTABLE): _Wrapper._functional_from_mutable,
    (Kind.INPLACE, Kind.OUT): _Wrapper._inplace_from_out,
    (Kind.INPLACE, Kind.FUNCTIONAL): _Wrapper._written_from_functional,
    (Kind.OUT, Kind.OUT): _Wrapper._out_from_structured,
    (Kind.OUT, Kind.FUNCTIONAL): _Wrapper._written_from_functional,
    (Kind.MUTABLE, Kind.FUNCTIONAL): _Wrapper._mutable_from_functional,
}


def _tuple(values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


def _elements(values: str, count: int) -> list[str]:
    return [values] if count == 1 else [f"{values}[{index}]" for index in range(count)]


_DEFAULTS = {
    "Mean": "1",
    "contiguous_format": "torch.contiguous_format",
    "long": "torch.long",
}
"""Words of the declaration language whose value in Python has another name."""


def _default(parameter: Parameter) -> str:
    declared = parameter.default if parameter.default is not None else "None"
    return _DEFAULTS.get(declared, declared)
