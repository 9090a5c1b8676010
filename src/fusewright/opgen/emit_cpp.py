"""The C++ target: wrappers and registrations that compile against torch's headers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fusewright.opgen.cpp_types import (
    borrowed,
    parameter_list,
    result_type,
    structured_parameter_list,
    symbolic,
)
from fusewright.opgen.declarations import Kind, Operator, Parameter
from fusewright.opgen.plan import Given, Made, Plan, Refused, computes_in_dtype_of_out

SUPPORT = Path(__file__).parent / "support.h"


def emit_cpp(plan: Plan, *, callable_operators: bool = False) -> dict[str, str]:
    """The files of the C++ target by name.

    `callable_operators`: also define each operator as a function in `at::<backend>`, to be called
    without the dispatcher.
    """
    name = camel_case(plan.description.backend)
    files = {
        "OpgenSupport.h": SUPPORT.read_text(),
        f"{name}Kernels.h": _kernels_header(plan),
        f"Register{name}.cpp": _registrations(plan, name, callable_operators),
    }
    if any(row.entry.differentiated for row in plan.given):
        files[f"RegisterAutograd{name}.cpp"] = _autograd_registrations(plan, name)
    if callable_operators:
        files[f"{name}Operators.h"] = _callable_header(plan)
    return files


def camel_case(name: str) -> str:
    """`my_npu` → `MyNpu`."""
    return "".join(part.capitalize() for part in name.split("_"))


def _kernels_header(plan: Plan) -> str:
    lines = [
        "// The kernels that the backend defines, and the generated files call.",
        "#pragma once",
        "",
        "#include <ATen/core/ATen_fwd.h>",
        "#include <ATen/core/Generator.h>",
        "#include <ATen/core/List.h>",
        "#include <ATen/core/Tensor.h>",
        "#include <array>",
        "#include <optional>",
        "#include <tuple>",
        "#include <vector>",
        "",
        f"namespace {plan.description.namespace} {{",
        "",
    ]
    for entry in plan.description.entries.values():
        operator = entry.operator
        lines.append(f"// {operator.schema}")
        if entry.structured:
            lines.append(
                "// Computes into outs of the right size and dtype; an out may be `self`.\n"
                f"void {operator.symbol}({structured_parameter_list(operator)});"
            )
        else:
            if operator.kind is Kind.OUT:
                lines.append("// Also called with `self` as out.")
            lines.append(f"{result_type(operator)} {operator.symbol}({parameter_list(operator)});")
        lines.append("")
    return "\n".join([*lines, f"}}  // namespace {plan.description.namespace}", ""])


def _registrations(plan: Plan, name: str, callable_operators: bool) -> str:
    made = plan.made
    wrappers = [_Wrapper(row, plan).text() for row in made]
    registered = [
        *(_registration(row.operator, _kernel(plan, row.operator)) for row in plan.given),
        *(_registration(row.operator, f"wrappers::{row.operator.symbol}") for row in made),
    ]
    refused = [
        f"// {row.operator.name} falls back: {row.reason}."
        for row in plan.rows
        if isinstance(row, Refused)
    ]
    key = plan.description.dispatch_key
    parts = [
        "\n".join(_includes(plan, name)),
        "// In a namespace of their own, since some have the names of C functions.\n"
        "namespace wrappers {\nnamespace {\n",
        "\n".join(wrappers),
        "}  // namespace\n}  // namespace wrappers\n",
        *([_callable_definitions(plan)] if callable_operators else []),
        "\n".join(
            [
                f"TORCH_LIBRARY_IMPL(aten, {key}, m) {{",
                *registered,
                *_common_registrations(plan),
                "}",
                "",
                *refused,
                "// Everything else is computed on the CPU, and counted.",
                f"TORCH_LIBRARY_IMPL(_, {key}, m) {{",
                "  m.fallback(torch::CppFunction::makeFromBoxedFunction<&opgen::fall_back>());",
                "}",
                f"TORCH_LIBRARY_FRAGMENT({plan.description.backend}, m) {{",
                '  m.def("fallback_counts() -> Dict(str, int)", TORCH_FN(opgen::fallback_counts));',
                '  m.def("reset_fallback_counts() -> ()", TORCH_FN(opgen::reset_fallback_counts));',
                '  m.def("set_fallback(str mode) -> ()", TORCH_FN(opgen::set_fallback));',
                "}",
                "",
            ]
        ),
    ]
    return "\n".join(parts)


def _registration(operator: Operator, function: str) -> str:
    return f'  m.impl("{operator.name}", TORCH_FN({function}));'


_GEOMETRY = {
    "as_strided": "at::native::as_strided_tensorimpl",
    "view": "at::native::view",
    "_reshape_alias": "at::native::_reshape_alias",
    "unfold": "at::native::unfold",
    "resize_": "opgen::resize_",
    "set_.source_Storage_storage_offset": "opgen::set_",
    "_copy_from_and_resize": "opgen::copy_from_and_resize",
}
"""Operators that every backend gets, since they touch no elements, and their functions."""

_CONVOLUTIONS = {
    "convolution_overrideable": "opgen::fall_back_convolution",
    "convolution_backward_overrideable": "opgen::fall_back_convolution_backward",
}
"""Operators that torch refuses to run where the backend does not, and their boxed functions."""


def _common_registrations(plan: Plan) -> list[str]:
    """What every backend gets, apart from operators that it has kernels for."""
    given = plan.given_operators
    boxed = "torch::CppFunction::makeFromBoxedFunction<&{}>()"
    return [
        "",
        "  // Geometry alone, the same for any device with plain storages.",
        *(
            f'  m.impl("{name}", TORCH_FN({function}));'
            for name, function in _GEOMETRY.items()
            if name not in given
        ),
        *(
            f'  m.impl("{name}", {boxed.format(function)});'
            for name, function in _CONVOLUTIONS.items()
            if name not in given
        ),
    ]


def _includes(plan: Plan, name: str) -> Iterator[str]:
    yield f'#include "{name}Kernels.h"'
    yield '#include "OpgenSupport.h"'
    yield ""
    headers = set()
    for row in plan.made:
        if row.operator.structured:
            headers.add(f"{row.operator.root}_meta.h")
        elif _needs_geometry(row):
            functional = plan.functional(row.operator)
            if functional is not None:
                headers.add(f"{functional.root}_ops.h")
        if row.source.name not in plan.given_operators | plan.made_operators:
            headers.add(f"{row.source.root}_ops.h")
    for native in ("as_strided", "view", "_reshape_alias", "unfold"):
        headers.add(f"{native}_native.h")
    yield from (f"#include <ATen/ops/{header}>" for header in sorted(headers))
    yield ""


def _kernel(plan: Plan, operator: Operator) -> str:
    return f"{plan.description.namespace}::{operator.symbol}"


def _needs_geometry(row: Made) -> bool:
    """Whether a wrapper asks torch for the geometry of the result before it computes."""
    return (row.operator.kind, row.source.kind) in (
        (Kind.FUNCTIONAL, Kind.OUT),
        (Kind.FUNCTIONAL, Kind.INPLACE),
        (Kind.INPLACE, Kind.OUT),
    )


class _Wrapper:
    """Writes one wrapper: `operator` by means of `source`."""

    def __init__(self, row: Made, plan: Plan) -> None:
        self.row = row
        self.plan = plan
        self.operator = row.operator
        self.source = row.source

    def text(self) -> str:
        """The function's definition."""
        operator = self.operator
        lines = [
            f"// {operator.name}, made from {self.source.name}.",
            f"{result_type(operator)} {operator.symbol}({parameter_list(operator)}) {{",
            *(f"  {line}" for line in self._body()),
            "}",
            "",
        ]
        return "\n".join(lines)

    def _body(self) -> Iterator[str]:
        unused = self._unused()
        yield from (f"(void){name};" for name in unused)
        if self.operator.same_device and len(tensors := self._tensors()) > 1:
            yield f"opgen::check_same_device({', '.join(tensors)});"
        if self.operator.structured and self.source.kind in (Kind.OUT, Kind.FUNCTIONAL):
            yield from self._structured()
        else:
            yield from _BODIES[self.operator.kind, self.source.kind](self)

    def _tensors(self) -> list[str]:
        return [p.name for p in self.operator.parameters if p.type.is_tensor]

    def _inputs(self) -> list[str]:
        return [p.name for p in self.operator.inputs if p.type.is_tensor and not p.written]

    def _unused(self) -> list[str]:
        """Parameters that the source does not know, such as the pinning of a result."""
        known = {parameter.name for parameter in self.source.parameters}
        used = self.operator.structured or _needs_geometry(self.row)
        return [
            parameter.name
            for parameter in self.operator.inputs
            if parameter.name not in known and not parameter.written and not used
        ]

    def _call(self, replaced: Mapping[str, str]) -> str:
        """Call the source, matching arguments by name."""
        arguments = [self._argument(p, replaced) for p in self.source.parameters]
        if self.row.structured or self.source.name in self.plan.given_operators:
            return f"{_kernel(self.plan, self.source)}({', '.join(arguments)})"
        if self.source.name in self.plan.made_operators:
            return f"wrappers::{self.source.symbol}({', '.join(arguments)})"
        passed = [
            f"opgen::symbolic({argument})" if parameter.type.base == "SymInt" else argument
            for parameter, argument in zip(self.source.parameters, arguments, strict=True)
        ]
        return f"at::_ops::{self.source.symbol}::call({', '.join(passed)})"

    def _argument(self, parameter: Parameter, replaced: Mapping[str, str]) -> str:
        if parameter.name in replaced:
            return replaced[parameter.name]
        if any(known.name == parameter.name for known in self.operator.parameters):
            if computes_in_dtype_of_out(self.operator, parameter):
                return f"dtype.value_or({self.operator.outputs[0].name}.scalar_type())"
            return parameter.name
        out = self.operator.outputs[0].name if self.operator.outputs else ""
        match parameter.name:
            case "dtype":
                return f"{out}.scalar_type()"
            case "layout" | "device":
                return f"{out}.{parameter.name}()"
            case _:
                return _CPP_DEFAULTS.get(parameter.default or "None", parameter.default or "")

    def _structured(self) -> Iterator[str]:
        """Let ATen's meta function check, and allocate or resize; then compute."""
        operator = self.operator
        outputs = [parameter.name for parameter in operator.outputs]
        functional = self.plan.functional(operator)
        assert functional is not None and operator.structured is not None
        writes = {Kind.FUNCTIONAL: "New", Kind.INPLACE: "Self", Kind.OUT: "Out"}[operator.kind]
        meta = f"at::meta::structured_{functional.symbol}"
        count = len(functional.results)
        given = f"({', '.join(outputs)})" if outputs else ""
        yield f"opgen::Checked<{meta}, opgen::Writes::{writes}, {count}> checked{given};"
        arguments = ", ".join(borrowed(parameter) for parameter in functional.parameters)
        yield f"checked.meta({arguments});"
        if self.source.kind is Kind.OUT:
            handles = [f"checked.output({index})" for index in range(count)]
            replaced = dict(zip((p.name for p in self.source.outputs), handles, strict=True))
            yield f"{self._call(replaced)};"
            yield "checked.finish();"
        else:
            yield f"opgen::copy({_tuple(outputs)}, {self._call({})});"
        if operator.kind is Kind.FUNCTIONAL:
            results = [f"std::move(checked.output({index}))" for index in range(count)]
            yield f"return {_tuple(results, 'std::make_tuple')};"
        else:
            yield from self._return_outputs()

    def _geometry(self) -> Iterator[str]:
        """Ask torch on meta tensors what the functional variant would return."""
        functional = self.plan.functional(self.operator)
        assert functional is not None
        known = {parameter.name for parameter in self.operator.parameters}
        arguments = [
            symbolic(parameter) if parameter.name in known else "{}"
            for parameter in functional.parameters
        ]
        entry = f"at::_ops::{functional.symbol}::call({', '.join(arguments)})"
        yield f"const auto geometry = {entry};"

    def _device(self) -> str:
        return f"opgen::device_of({', '.join([*self._device_options(), *self._inputs()])})"

    def _device_options(self) -> list[str]:
        return [p.name for p in self.operator.parameters if p.type.base == "Device"]

    def _functional_from_out(self) -> Iterator[str]:
        yield from self._geometry()
        yield f"auto outs = opgen::allocate(geometry, {self._device()});"
        outputs = [parameter.name for parameter in self.source.outputs]
        handles = _elements("outs", len(outputs))
        call = self._call(dict(zip(outputs, handles, strict=True)))
        yield f"{call};"
        yield "return outs;"

    def _functional_from_inplace(self) -> Iterator[str]:
        yield from self._geometry()
        outputs = [parameter.name for parameter in self.source.outputs]
        handles = _elements("copies", len(outputs))
        selfs = _tuple(outputs, "std::forward_as_tuple")
        dtype = any(parameter.name == "dtype" for parameter in self.operator.parameters)
        convert = "true" if dtype else "false"
        yield f"auto copies = opgen::writable_copy({selfs}, geometry, {convert});"
        yield f"{self._call(dict(zip(outputs, handles, strict=True)))};"
        yield "return opgen::converted(std::move(copies), geometry);"

    def _functional_from_mutable(self) -> Iterator[str]:
        copies = {}
        for parameter in self.source.outputs:
            copies[parameter.name] = f"{parameter.name}_copy"
            yield f"auto {parameter.name}_copy = opgen::clone({parameter.name});"
        fresh = [result for result in self.source.results if not result.written]
        call = self._call(copies)
        if not fresh:
            yield f"{call};"
            yield f"return {_tuple(list(copies.values()), 'std::make_tuple')};"
            return
        yield f"auto results = {call};"
        values = [*_elements("results", len(fresh)), *copies.values()]
        yield f"return {_tuple(values, 'std::make_tuple')};"

    def _inplace_from_out(self) -> Iterator[str]:
        yield from self._geometry()
        outputs = [parameter.name for parameter in self.operator.outputs]
        selfs = _tuple(outputs, "std::forward_as_tuple")
        yield f"opgen::check_overlap({selfs}, {', '.join(self._inputs()) or selfs});"
        yield f"opgen::check_self({selfs}, geometry, {self._conversion()});"
        outs = [parameter.name for parameter in self.source.outputs]
        yield f"{self._call(dict(zip(outs, outputs, strict=True)))};"
        yield from self._return_outputs()

    def _written_from_functional(self) -> Iterator[str]:
        """In-place and out from functional: compute, check, copy."""
        outputs = [parameter.name for parameter in self.operator.outputs]
        written = _tuple(outputs, "std::forward_as_tuple")
        yield f"opgen::check_overlap({', '.join([written, *self._inputs()])});"
        write = "write_out" if self.operator.kind is Kind.OUT else "write_self"
        yield f"opgen::{write}({written}, {self._call({})}, {self._conversion()});"
        yield from self._return_outputs()

    def _mutable_from_functional(self) -> Iterator[str]:
        outputs = [parameter.name for parameter in self.operator.outputs]
        fresh = [result for result in self.operator.results if not result.written]
        yield f"auto results = {self._call({})};"
        values = _elements("results", len(fresh) + len(outputs))
        for output, value in zip(outputs, values[len(fresh) :], strict=True):
            yield f"opgen::write_self({output}, {value}, {self._conversion()});"
        if fresh:
            returned = values[: len(fresh)]
            yield f"return {_tuple(returned, 'std::make_tuple')};"

    def _conversion(self) -> str:
        return "opgen::Dtype::Castable" if self.operator.castable else "opgen::Dtype::Same"

    def _return_outputs(self) -> Iterator[str]:
        outputs = [parameter.name for parameter in self.operator.outputs]
        if result_type(self.operator) != "void":
            count = len(self.operator.results)
            yield f"return {_tuple(outputs[:count], 'std::forward_as_tuple')};"


_BODIES: Mapping[tuple[Kind, Kind], Callable[[_Wrapper], Iterator[str]]] = {
    (Kind.FUNCTIONAL, Kind.OUT): _Wrapper._functional_from_out,
    (Kind.FUNCTIONAL, Kind.INPLACE): _Wrapper._functional_from_inplace,
    (Kind.FUNCTIONAL, Kind.MUTABLE): _Wrapper._functional_from_mutable,
    (Kind.INPLACE, Kind.OUT): _Wrapper._inplace_from_out,
    (Kind.INPLACE, Kind.FUNCTIONAL): _Wrapper._written_from_functional,
    (Kind.OUT, Kind.FUNCTIONAL): _Wrapper._written_from_functional,
    (Kind.MUTABLE, Kind.FUNCTIONAL): _Wrapper._mutable_from_functional,
}
"""How each kind is made from each, for operators without a meta function of their own."""

_CPP_DEFAULTS = {"None": "{}", "True": "true", "False": "false", "[]": "{}"}


def _tuple(values: list[str], make: str = "std::tie") -> str:
    """One value as it is, several as a tuple."""
    return values[0] if len(values) == 1 else f"{make}({', '.join(values)})"


def _elements(values: str, count: int) -> list[str]:
    """Expressions for the elements of what `_tuple` made."""
    if count == 1:
        return [values]
    return [f"std::get<{index}>({values})" for index in range(count)]


def _autograd_registrations(plan: Plan, name: str) -> str:
    key = plan.description.dispatch_key
    kernels = [row.operator for row in plan.given if row.entry.differentiated]
    return "\n".join(
        [
            f'#include "{name}Kernels.h"',
            "",
            "#include <torch/library.h>",
            "",
            "// Kernels that differentiate themselves; they take the place of torch's formulas.",
            f"TORCH_LIBRARY_IMPL(aten, Autograd{key}, m) {{",
            *(_registration(operator, _kernel(plan, operator)) for operator in kernels),
            "}",
            "",
        ]
    )


def _callable_header(plan: Plan) -> str:
    namespace = f"at::{plan.description.backend}"
    lines = [
        "// Operators as plain functions: the kernels and the wrappers, without the dispatcher.",
        "#pragma once",
        "",
        "#include <ATen/core/Generator.h>",
        "#include <ATen/core/List.h>",
        "#include <ATen/core/Tensor.h>",
        "",
        f"namespace {namespace} {{",
        "",
        *(f"{_signature(row.operator)};" for row in _callables(plan)),
        "",
        f"}}  // namespace {namespace}",
        "",
    ]
    return "\n".join(lines)


def _callable_definitions(plan: Plan) -> str:
    namespace = f"at::{plan.description.backend}"
    lines = [f"namespace {namespace} {{", ""]
    for row in _callables(plan):
        operator = row.operator
        wrapper = f"wrappers::{operator.symbol}"
        function = wrapper if isinstance(row, Made) else _kernel(plan, operator)
        arguments = ", ".join(parameter.name for parameter in operator.parameters)
        function = f"::{function}"
        lines.append(f"{_signature(operator)} {{\n  return {function}({arguments});\n}}\n")
    return "\n".join([*lines, f"}}  // namespace {namespace}", ""])


def _callables(plan: Plan) -> list[Given | Made]:
    return [*plan.given, *plan.made]


def _signature(operator: Operator) -> str:
    """A declaration under the operator's plain name; C++ overloading tells variants apart."""
    name = operator.name.partition(".")[0] + ("_outf" if operator.kind is Kind.OUT else "")
    return f"{result_type(operator)} {name}({parameter_list(operator)})"
