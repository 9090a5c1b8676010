"""The C++ target: wrappers and registrations that compile against torch's headers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fusewright.opgen.cpp_types import (
    borrowed,
    parameter_list,
    result_type,
    structured_parameter_list,
    symbolic,
)
from fusewright.opgen.declarations import Kind, Operator, Parameter
from fusewright.opgen.description import Entry
from fusewright.opgen.plan import Given, Made, Plan, Refused, needs_geometry
from fusewright.opgen.registration import with_gradient
from fusewright.opgen.wrappers import Language, Wrapper, fitted

SUPPORT = Path(__file__).parent / "support.h"

PER_FILE = 200
"""About how many operators one file registers: it compiles in about half a minute."""


def emit_cpp(
    plan: Plan, *, callable_operators: bool = False, per_file: int = PER_FILE
) -> dict[str, str]:
    """The files of the C++ target by name.

    `callable_operators`: also define each operator as a function in `at::<backend>`, to be called
    without the dispatcher. `per_file`: about how many operators stand in one file to compile.
    """
    name = camel_case(plan.description.backend)
    files = {
        "OpgenSupport.h": SUPPORT.read_text(),
        f"{name}Kernels.h": _kernels_header(plan),
    }
    for number, rows in enumerate(_units(plan, per_file)):
        file = f"Register{name}_{number}.cpp" if number else f"Register{name}.cpp"
        files[file] = _unit(plan, name, rows, callable_operators, is_first=number == 0)
    files[f"Register{name}.cpp"] += _rest(plan)
    if any(row.entry.differentiated for row in plan.given):
        files[f"RegisterAutograd{name}.cpp"] = _autograd(plan, name)
    if callable_operators:
        files[f"{name}Operators.h"] = _callable_header(plan)
    return files


def camel_case(name: str) -> str:
    """`my_npu` → `MyNpu`."""
    return "".join(part.capitalize() for part in name.split("_"))


_KERNELS = """\
// The kernels that the backend defines, and the generated files call.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace {namespace} {{

{declarations}
}}  // namespace {namespace}
"""


def _kernels_header(plan: Plan) -> str:
    rewriting = {row.source.name for row in plan.made if row.operator.kind is Kind.INPLACE}
    declarations = [
        _kernel_declaration(entry, entry.operator.name in rewriting)
        for entry in plan.description.entries.values()
    ]
    return _KERNELS.format(
        namespace=plan.description.namespace, declarations="\n".join(declarations)
    )


def _kernel_declaration(entry: Entry, rewrites: bool) -> str:
    """`rewrites`: an out kernel also serves the in-place variant."""
    operator = entry.operator
    lines = [f"// {operator.schema}"]
    if entry.structured:
        lines.append("// Computes into outs of the right size and dtype.")
    if operator.kind is Kind.OUT and rewrites:
        lines.append("// An out may be `self`.")
    if entry.structured:
        lines.append(f"void {operator.symbol}({structured_parameter_list(operator)});")
    else:
        lines.append(f"{result_type(operator)} {operator.symbol}({parameter_list(operator)});")
    return "\n".join(map(fitted, [*lines, ""]))


def _units(plan: Plan, per_file: int) -> list[list[Given | Made]]:
    """The registered operators, in files of about so many. A group stays together, since its
    wrappers call each other.
    """
    units: list[list[Given | Made]] = [[]]
    by_group = itertools.groupby(plan.registered, lambda row: plan.groups[row.operator.name].name)
    for _, members in by_group:
        if len(units[-1]) >= per_file:
            units.append([])
        units[-1] += members
    return units


_UNIT = """\
{includes}

// In a namespace of their own, since some have the names of C functions.
namespace wrappers {{
namespace {{

{wrappers}
}}  // namespace
}}  // namespace wrappers

{callables}TORCH_LIBRARY_IMPL(aten, {key}, m) {{
{registrations}
}}
"""


def _unit(
    plan: Plan, name: str, rows: Sequence[Given | Made], callable_operators: bool, is_first: bool
) -> str:
    made_rows = [row for row in rows if isinstance(row, Made)]
    common = _common_registrations(plan) if is_first else []
    return _UNIT.format(
        includes="\n".join(_includes(plan, name, made_rows)),
        wrappers="\n".join(_CppWrapper(row, plan).text() for row in made_rows),
        callables=_callable_definitions(plan, rows) if callable_operators else "",
        key=plan.description.dispatch_key,
        registrations="\n".join([*(_registration(plan, row) for row in rows), *common]),
    )


_REST = """
{refused}// Everything else is computed on the CPU, and counted.
TORCH_LIBRARY_IMPL(_, {key}, m) {{
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&opgen::fall_back>());
}}

// To resolve a conjugate takes a copy; hence copies get tensors as they are.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {{
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}}
TORCH_LIBRARY_IMPL(aten, Negative, m) {{
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}}

TORCH_LIBRARY_FRAGMENT({backend}, m) {{
  m.def("fallback_counts() -> Dict(str, int)", TORCH_FN(opgen::fallback_counts));
  m.def("reset_fallback_counts() -> ()", TORCH_FN(opgen::reset_fallback_counts));
  m.def("set_fallback(str mode) -> ()", TORCH_FN(opgen::set_fallback));
}}
"""


def _rest(plan: Plan) -> str:
    """The code that stands once in a backend: the fall-back, and how to ask about it."""
    refusals = [row for row in plan.rows if isinstance(row, Refused)]
    return _REST.format(
        refused="".join(f"// {r.operator.name} falls back: {r.reason}.\n" for r in refusals),
        key=plan.description.dispatch_key,
        backend=plan.description.backend,
    )


def _registration(plan: Plan, row: Given | Made) -> str:
    return fitted(f'  m.impl("{row.operator.name}", TORCH_FN({_function(plan, row)}));')


_BOXED_FALL_BACK = "torch::CppFunction::makeFromBoxedFunction<&opgen::fall_back>()"

_COMMON = {
    # Geometry alone, the same for any device with plain storages.
    "as_strided": "TORCH_FN(at::native::as_strided_tensorimpl)",
    "view": "TORCH_FN(at::native::view)",
    "_reshape_alias": "TORCH_FN(at::native::_reshape_alias)",
    "unfold": "TORCH_FN(at::native::unfold)",
    "resize_": "TORCH_FN(opgen::resize_)",
    "set_": "TORCH_FN(opgen::set_empty)",
    "set_.source_Storage": "TORCH_FN(at::native::set_)",
    "set_.source_Storage_storage_offset": "TORCH_FN(opgen::set_)",
    "set_.source_Tensor": "TORCH_FN(at::native::set_tensor_)",
    "_copy_from_and_resize": "TORCH_FN(opgen::copy_from_and_resize)",
    # torch has these for every device, only to refuse; the fall-back knows what is meant.
    "convolution_overrideable": _BOXED_FALL_BACK,
    "convolution_backward_overrideable": _BOXED_FALL_BACK,
    # torch asks a device from outside for these, and has them for CUDA alone.
    "_thnn_fused_lstm_cell": "TORCH_FN(opgen::lstm_cell)",
    "_thnn_fused_lstm_cell_backward_impl": "TORCH_FN(opgen::lstm_cell_backward)",
    "_thnn_fused_gru_cell": "TORCH_FN(opgen::gru_cell)",
    "_thnn_fused_gru_cell_backward": "TORCH_FN(opgen::gru_cell_backward)",
}
"""Kernels that every backend gets unless it has its own."""


def _common_registrations(plan: Plan) -> list[str]:
    registered = {with_gradient(row.operator.name) for row in plan.registered}
    return [
        "",
        "  // What every backend gets.",
        *(
            fitted(f'  m.impl("{name}", {function});')
            for name, function in _COMMON.items()
            if with_gradient(name) not in registered
        ),
    ]


def _includes(plan: Plan, name: str, made_rows: Sequence[Made]) -> Iterator[str]:
    yield f'#include "{name}Kernels.h"'
    yield '#include "OpgenSupport.h"'
    yield ""
    headers = set()
    for row in made_rows:
        if row.operator.structured:
            headers.add(f"{row.operator.root}_meta.h")
        elif needs_geometry(row.operator, row.source):
            functional = plan.functional(row.operator)
            if functional is not None:
                headers.add(f"{functional.root}_ops.h")
        if row.source.name not in plan.given_operators | plan.made_operators:
            headers.add(f"{row.source.root}_ops.h")
    for native in ("as_strided", "view", "_reshape_alias", "unfold", "set"):
        headers.add(f"{native}_native.h")
    yield from (f"#include <ATen/ops/{header}>" for header in sorted(headers))


def _function(plan: Plan, row: Given | Made) -> str:
    """The function that is registered for an operator: the backend's kernel, or a wrapper."""
    namespace = "wrappers" if isinstance(row, Made) else plan.description.namespace
    return f"{namespace}::{row.operator.symbol}"


class _CppWrapper(Wrapper):
    language = Language(
        statement="{};",
        declaration="auto {} = {}",
        support="opgen::{}({})",
        option="/*{}=*/{}",
        truths=("false", "true"),
        references="std::forward_as_tuple({})",
        values="std::make_tuple({})",
        element="std::get<{1}>({0})",
        given_or="{}.value_or({})",
        attributes={"dtype": "{}.scalar_type()", "layout": "{}.layout()", "device": "{}.device()"},
        defaults={"None": "{}", "True": "true", "False": "false", "[]": "{}"},
    )

    def text(self) -> str:
        """The function's definition."""
        operator = self.operator
        lines = [
            f"// {operator.name}, made from {self.source.name}.",
            f"{result_type(operator)} {operator.symbol}({parameter_list(operator)}) {{",
            *(f"  (void){name};" for name in self._unused()),
            *(f"  {line}" for line in self.body()),
            "}",
            "",
        ]
        return "\n".join(map(fitted, lines))

    def name(self, parameter: Parameter) -> str:
        return parameter.name

    def call(self, replaced: Mapping[str, str]) -> str:
        arguments = [self.argument(parameter, replaced) for parameter in self.source.parameters]
        if self.row.structured or self.source.name in self.plan.given_operators:
            function = f"{self.plan.description.namespace}::{self.source.symbol}"
        elif self.source.name in self.plan.made_operators:
            function = f"wrappers::{self.source.symbol}"
        else:
            function = f"at::_ops::{self.source.symbol}::call"
            arguments = [
                f"opgen::symbolic({argument})" if parameter.type.base == "SymInt" else argument
                for parameter, argument in zip(self.source.parameters, arguments, strict=True)
            ]
        return f"{function}({', '.join(arguments)})"

    def geometry(self) -> str:
        names = {parameter.name for parameter in self.operator.parameters}
        arguments = [
            symbolic(parameter) if parameter.name in names else "{}"
            for parameter in self.functional.parameters
        ]
        return f"at::_ops::{self.functional.symbol}::call({', '.join(arguments)})"

    def computation(self) -> Iterator[str]:
        if self.operator.structured and self.source.kind in (Kind.OUT, Kind.FUNCTIONAL):
            return self._structured()
        return super().computation()

    def _structured(self) -> Iterator[str]:
        """Let ATen's meta function check, and allocate or resize; then compute."""
        operator = self.operator
        writes = {Kind.FUNCTIONAL: "New", Kind.INPLACE: "Self", Kind.OUT: "Out"}[operator.kind]
        meta = f"at::meta::structured_{self.functional.symbol}"
        count = len(self.functional.results)
        outputs = f"({', '.join(self.outputs)})" if self.outputs else ""
        if self.outputs and not operator.iterates:  # a tensor iterator looks after this itself
            yield self.check_overlap()
        yield f"opgen::Checked<{meta}, opgen::Writes::{writes}, {count}> checked{outputs};"
        arguments = ", ".join(borrowed(parameter) for parameter in self.functional.parameters)
        yield f"checked.meta({arguments});"
        if self.source.kind is Kind.OUT:
            handles = [f"checked.output({index})" for index in range(count)]
            outs = [parameter.name for parameter in self.source.outputs]
            yield self.do(self.call(dict(zip(outs, handles, strict=True))))
            yield "checked.finish();"
        else:
            yield self.do(self.support("copy", self.references(self.outputs), self.call({})))
        if operator.kind is Kind.FUNCTIONAL:
            results = [f"std::move(checked.output({index}))" for index in range(count)]
            yield f"return {self.values(results)};"
        else:
            yield from self.return_written()

    def _unused(self) -> list[str]:
        """Parameters that the source does not know, such as the pinning of a result."""
        if self.operator.structured or needs_geometry(self.operator, self.source):
            return []
        names = {parameter.name for parameter in self.source.parameters}
        return [
            parameter.name
            for parameter in self.operator.inputs
            if parameter.name not in names and not parameter.written
        ]


_AUTOGRAD = """\
#include "{name}Kernels.h"

#include <torch/library.h>

// Kernels that differentiate themselves; they take the place of torch's formulas.
TORCH_LIBRARY_IMPL(aten, Autograd{key}, m) {{
{registrations}
}}
"""


def _autograd(plan: Plan, name: str) -> str:
    kernels = (row for row in plan.given if row.entry.differentiated)
    return _AUTOGRAD.format(
        name=name,
        key=plan.description.dispatch_key,
        registrations="\n".join(_registration(plan, row) for row in kernels),
    )


_CALLABLES = """\
// Operators as plain functions: the kernels and the wrappers, without the dispatcher.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

namespace at::{backend} {{

{declarations}

}}  // namespace at::{backend}
"""


def _callable_header(plan: Plan) -> str:
    declarations = [fitted(f"{_signature(row.operator)};") for row in plan.registered]
    return _CALLABLES.format(backend=plan.description.backend, declarations="\n".join(declarations))


def _callable_definitions(plan: Plan, rows: Sequence[Given | Made]) -> str:
    namespace = f"at::{plan.description.backend}"
    lines = [f"namespace {namespace} {{", ""]
    for row in rows:
        arguments = ", ".join(parameter.name for parameter in row.operator.parameters)
        call = f"::{_function(plan, row)}({arguments})"
        lines += [fitted(f"{_signature(row.operator)} {{"), fitted(f"  return {call};"), "}\n"]
    return "\n".join([*lines, f"}}  // namespace {namespace}\n\n"])


def _signature(operator: Operator) -> str:
    """A declaration under the operator's plain name; C++ overloading tells variants apart."""
    name = operator.name.partition(".")[0] + ("_outf" if operator.kind is Kind.OUT else "")
    return f"{result_type(operator)} {name}({parameter_list(operator)})"
