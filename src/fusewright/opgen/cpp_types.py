"""C++ types of operators, as torch's dispatcher expects them of a kernel."""

from __future__ import annotations

from fusewright.opgen.declarations import Operator, Parameter, Type

_SCALARS = {
    "int": "int64_t",
    "SymInt": "int64_t",  # kernels take plain sizes; torch guards and converts symbolic ones
    "float": "double",
    "bool": "bool",
    "str": "c10::string_view",
    "ScalarType": "at::ScalarType",
    "Layout": "at::Layout",
    "Device": "at::Device",
    "DeviceIndex": "at::DeviceIndex",
    "MemoryFormat": "at::MemoryFormat",
    "QScheme": "at::QScheme",
    "Storage": "at::Storage",
    "Stream": "at::Stream",
    "Generator": "at::Generator",
    "Dimname": "at::Dimname",  # up to torch 2.12
}
"""Types that pass by value."""


def parameter_type(parameter: Parameter, operator: Operator) -> str:
    """The type of a kernel's parameter, `const at::Tensor&` for a tensor that is read."""
    kind = parameter.type
    match kind.base, kind.is_list:
        case "Tensor", False:
            if parameter.written and not operator.writes_to_const:
                return "at::Tensor&"
            return "const std::optional<at::Tensor>&" if kind.is_optional else "const at::Tensor&"
        case "Tensor", True:
            if kind.holds_optional:
                return "const c10::List<std::optional<at::Tensor>>&"
            return "const at::ITensorListRef&" if operator.structured else "at::TensorList"
        case "Scalar", False:
            return "const std::optional<at::Scalar>&" if kind.is_optional else "const at::Scalar&"
        case "bool", True if kind.length is not None:
            return f"std::array<bool, {kind.length}>"
        case _:
            return _value_type(kind)


def _value_type(kind: Type) -> str:
    if kind.is_list and kind.base in ("int", "SymInt"):
        return "at::OptionalIntArrayRef" if kind.is_optional else "at::IntArrayRef"
    scalar = "at::Scalar" if kind.base == "Scalar" else _SCALARS[kind.base]
    whole = f"at::ArrayRef<{scalar}>" if kind.is_list else scalar
    return f"std::optional<{whole}>" if kind.is_optional else whole


def result_type(operator: Operator) -> str:
    """The type that a kernel returns: `at::Tensor`, `at::Tensor&` for what it wrote to, tuples of
    them.
    """
    written = "const at::Tensor&" if operator.writes_to_const else "at::Tensor&"
    types = [
        written if result.written and not result.type.is_list else _result_type(result.type)
        for result in operator.results
    ]
    match types:
        case []:
            return "void"
        case [single]:
            return single
        case _:
            return f"std::tuple<{', '.join(types)}>"


def _result_type(kind: Type) -> str:
    match kind.base, kind.is_list:
        case "Tensor", True:
            return "std::vector<at::Tensor>"
        case "Tensor", False:
            return "at::Tensor"
        case "Scalar", False:
            return "at::Scalar"
        case "SymInt", False:
            return "c10::SymInt"
        case "SymBool", False:
            return "c10::SymBool"
        case _:
            return _value_type(kind)


def parameter_list(operator: Operator) -> str:
    """`const at::Tensor& self, const at::Scalar& alpha`."""
    return ", ".join(
        f"{parameter_type(parameter, operator)} {parameter.name}"
        for parameter in operator.parameters
    )


def structured_parameter_list(operator: Operator) -> str:
    """The parameters of a structured kernel: outs are handles to tensors that are ready."""
    return ", ".join(
        f"const at::Tensor& {parameter.name}"
        if parameter.written
        else f"{parameter_type(parameter, operator)} {parameter.name}"
        for parameter in operator.parameters
    )


def symbolic(parameter: Parameter) -> str:
    """An expression that hands a kernel's parameter to torch's typed dispatcher entry, which takes
    symbolic integers, with its tensors exchanged for meta tensors.
    """
    if parameter.type.is_tensor:
        return f"opgen::meta({parameter.name})"
    if parameter.type.base == "SymInt":
        return f"opgen::symbolic({parameter.name})"
    if parameter.type.base == "Device":
        return "at::Device(at::kMeta)"
    return parameter.name


def borrowed(parameter: Parameter) -> str:
    """An expression that hands a kernel's parameter to a meta function."""
    if parameter.type.is_optional and parameter.type.base in ("Tensor", "Scalar"):
        return f"opgen::borrow({parameter.name})"
    return parameter.name
