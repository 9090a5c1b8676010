"""The objects that a native plan holds and calls, as data, and back.

A plan names its constants by expressions that a generated module's globals give a meaning. A
package holds no expressions, which would have to be run, but rows of a kind and what it takes:

    3                                              ["literal", {"constant": 3}]
    runtime.tensor_kind(torch.float32, …)          ["kind", "float32", "cpu"]
    torch.ops.aten.max.dim                         ["operator", "aten", "max", "dim"]
    torch.mm                                       ["torch", "mm"]
    runtime.with_layout                            ["runtime", "with_layout"]
    cpu_add_3f                                     ["kernel", "cpu_add_3f"]
    cond_true, a block's plan                      ["kernel", "cond_true"]
    runtime.constant(globals(), "w")               ["constant", "w"]
    runtime.reinterpret(<constant>, …)             ["view", "w", [8, 8], [1, 8], 0]
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

import torch

from fusewright import torch_compat
from fusewright.errors import PackageRefused
from fusewright.number_functions import NUMBER_FUNCTIONS
from fusewright.packages.structure import CannotDescribe, describe, rebuild, torch_constant
from fusewright.runtime.debug_printer import assert_layout, check_nan, debug_print
from fusewright.runtime.fast_names import OPERATOR_OF_FUNCTION
from fusewright.runtime.layouts import (
    check_fact,
    exact_layout,
    reinterpret,
    tensor_kind,
    with_layout,
)
from fusewright.runtime.loops import scan, while_loop

Row = list[Any]

FUNCTIONS: Final = {
    name: getattr(torch, name)
    for module, name in (path.split(".") for path in OPERATOR_OF_FUNCTION)
    if module == "torch"
}
"""Functions of torch that plans call in place of operators."""

OWN_FUNCTIONS: Final = {
    path.removeprefix("runtime."): operator.split(".")
    for path, operator in OPERATOR_OF_FUNCTION.items()
    if path.startswith("runtime.")
}
"""By name of a function of ours, the operator whose work it does: a package calls that."""

RUNTIME: Final = {
    function.__name__: function
    for function in (
        exact_layout,
        with_layout,
        reinterpret,
        check_fact,
        debug_print,
        check_nan,
        assert_layout,
        while_loop,
        scan,
    )
}
"""Functions of ours that plans call."""


def constant_row(text: str, devices: Mapping[str, str]) -> Row:
    """An expression as data; `devices`: by slot, a device. Raises: CannotDescribe, for one that no
    package holds.
    """
    return _row(ast.parse(text, mode="eval").body, text, devices)


def _row(node: ast.expr, text: str, devices: Mapping[str, str]) -> Row:
    match node:
        case ast.Name(id=name) if name in devices:
            device = torch.device(devices[name])
            return ["literal", describe(device, lambda value: None, text)]
        case ast.Name(id=name):
            return ["kernel", name]
        case ast.Call(func=ast.Attribute(attr="constant"), args=[_, ast.Constant(value=name)]):
            return ["constant", name]
        case ast.Call(
            func=ast.Attribute(attr="tensor_kind"),
            args=[ast.Attribute(attr=dtype), device],
        ):
            return ["kind", dtype, _device(device, devices)]
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="runtime"), attr="reinterpret"),
            args=[source, *layout],
        ):
            kind, name = _row(source, text, devices)
            if kind == "constant":
                return ["view", name, *map(ast.literal_eval, layout)]
        case ast.Attribute(value=ast.Name(id="runtime"), attr=name) if name in OWN_FUNCTIONS:
            return ["operator", *OWN_FUNCTIONS[name]]
        case ast.Attribute(value=ast.Name(id="runtime"), attr=name) if name in RUNTIME:
            return ["runtime", name]
        case ast.Subscript(value=ast.Attribute(attr="NUMBER_FUNCTIONS"), slice=name):
            return ["number", ast.literal_eval(name)]
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in FUNCTIONS:
            return ["torch", name]
    path = _operator_path(node)
    if path is not None:
        return ["operator", *path]
    return ["literal", describe(_literal(node, text), lambda value: None, text)]


def _device(node: ast.expr, devices: Mapping[str, str]) -> str:
    """The device that `torch.device("cpu")` or a slot stands for."""
    match node:
        case ast.Call(args=[ast.Constant(value=str(name))]):
            return name
        case ast.Name(id=slot):
            return devices[slot]
    raise CannotDescribe(f"the device {ast.unparse(node)}")


def _operator_path(node: ast.expr) -> list[str] | None:
    """The parts of an operator's name behind `torch.ops`."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr="ops"):
            return []
        case ast.Attribute(value=inner, attr=name):
            path = _operator_path(inner)
            return None if path is None else [*path, name]
        case ast.Call(func=ast.Name(id="getattr"), args=[inner, ast.Constant(value=str(name))]):
            path = _operator_path(inner)
            return None if path is None else [*path, name]
    return None


def _literal(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return getattr(torch, name)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="device"), args=[name]):
            return torch.device(ast.literal_eval(name))
        case ast.Call(func=ast.Name(id="float"), args=[value]):
            return float(ast.literal_eval(value))
        case ast.Call(func=ast.Name(id="complex"), args=[real, imaginary]):
            return complex(_literal(real, text), _literal(imaginary, text))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise CannotDescribe(f"what the compiled program calls, {text},") from None


# Back ---------------------------------------------------------------------------------------------


def constant_of(row: Row, kernels: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Any:
    """The object that a row stands for; `kernels`: plans of blocks, too. Raises: PackageRefused,
    where this process has no such thing.
    """
    kind, *parts = row
    match kind:
        case "literal":
            return rebuild(parts[0], ())
        case "kernel":
            return kernels[parts[0]]
        case "constant":
            return tensors[parts[0]]
        case "view":
            name, size, stride, offset = parts
            return reinterpret(tensors[name], tuple(size), tuple(stride), offset)
        case "kind":
            return tensor_kind(torch_constant("dtype", parts[0]), torch.device(parts[1]))
        case "runtime":
            return RUNTIME[parts[0]]
        case "number":
            return NUMBER_FUNCTIONS[parts[0]]
        case "torch":
            return FUNCTIONS[parts[0]]
        case "operator":
            return _operator(parts)
        case _:
            raise PackageRefused("the package", f"its plan has a constant of kind {kind!r}")


def _operator(path: list[str]) -> Any:
    operator: Any = torch.ops
    try:
        for name in path:
            operator = getattr(operator, name)
    except AttributeError:
        raise PackageRefused(
            "the package",
            f"it calls the operator {'.'.join(path)}, which is not registered: import what "
            "defines it first",
        ) from None
    if not isinstance(operator, torch_compat.OpOverload):
        raise PackageRefused("the package", f"{'.'.join(path)} is no operator")
    return operator
