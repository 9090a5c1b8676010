"""The steps of a generated wrapper, stated once for both targets.

A target is a `Language` and how a call is written in it. The functions that wrappers call have the
same names in `support.h` and in `support.py`.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from fusewright.opgen.declarations import Kind, Operator, Parameter
from fusewright.opgen.plan import Made, Plan, computes_in_dtype_of_out
from fusewright.records import record


@record(kw_only=True)
class Language:
    """How a target writes what wrappers are made of, as format strings."""

    statement: str
    declaration: str
    """A template for a statement that declares a name with its value."""

    support: str
    """A call, of a function's name and its arguments."""

    option: str
    """An argument that switches something on or off: its name and `truths[value]`."""

    truths: tuple[str, str]
    references: str
    """Several tensors that are written to."""

    values: str
    """Several results."""

    element: str
    """One of several results, by its index."""

    given_or: str
    """The value of an optional argument, or another where it was left out."""

    attributes: Mapping[str, str]
    """How a tensor is asked for its dtype, layout and device."""

    defaults: Mapping[str, str]
    """Values of arguments that declarations spell in another way."""


class Wrapper(abc.ABC):
    """Writes one wrapper: `operator` by means of `source`."""

    language: ClassVar[Language]

    def __init__(self, row: Made, plan: Plan) -> None:
        self.row = row
        self.plan = plan
        self.operator = row.operator
        self.source = row.source
        self.outputs = [self.name(parameter) for parameter in row.operator.outputs]
        self.inputs = [
            self.name(parameter)
            for parameter in row.operator.inputs
            if parameter.type.is_tensor and not parameter.written
        ]

    @abc.abstractmethod
    def name(self, parameter: Parameter) -> str:
        """The parameter's name in the target's language."""

    @abc.abstractmethod
    def call(self, replaced: Mapping[str, str]) -> str:
        """A call of the source, with some arguments replaced."""

    @abc.abstractmethod
    def geometry(self) -> str:
        """A call of the functional variant on meta tensors: what torch says of the result."""

    # ── Pieces ────────────────────────────────────────────────────────────────────────────────

    def do(self, expression: str) -> str:
        """A statement."""
        return self.language.statement.format(expression)

    def declare(self, name: str, value: str) -> str:
        """A statement that names a value."""
        return self.do(self.language.declaration.format(name, value))

    def support(self, function: str, *arguments: str) -> str:
        """A call of a function that all wrappers share."""
        return self.language.support.format(function, ", ".join(arguments))

    def option(self, name: str, value: bool) -> str:
        """An argument of such a call."""
        return self.language.option.format(name, self.language.truths[value])

    def references(self, names: Sequence[str]) -> str:
        """One tensor that is written to, or several."""
        return names[0] if len(names) == 1 else self.language.references.format(", ".join(names))

    def values(self, names: Sequence[str]) -> str:
        """One result, or several."""
        return names[0] if len(names) == 1 else self.language.values.format(", ".join(names))

    def elements(self, values: str, count: int) -> list[str]:
        """The results in `values`, which is the result itself where there is one."""
        if count == 1:
            return [values]
        return [self.language.element.format(values, index) for index in range(count)]

    def default(self, parameter: Parameter) -> str:
        """The value that a parameter has unless it is given; None where there is none."""
        declared = parameter.default or "None"
        return self.language.defaults.get(declared, declared)

    # ── What wrappers do ──────────────────────────────────────────────────────────────────────

    def body(self) -> Iterator[str]:
        """The statements of the wrapper, in order."""
        tensors = [self.name(p) for p in self.operator.parameters if p.type.is_tensor]
        if len(tensors) > 1 and self.operator.same_device:
            yield self.do(self.support("check_same_device", *tensors))
        elif len(tensors) > 1 and self.operator.castable:
            yield self.do(self.support("check_same_device_or_scalar", *tensors))
        yield from self.computation()

    def computation(self) -> Iterator[str]:
        """The statements after the check of devices."""
        return _COMPUTATIONS[self.operator.kind, self.source.kind](self)

    @property
    def functional(self) -> Operator:
        """The functional variant, on which geometry is asked for."""
        functional = self.plan.functional(self.operator)
        assert functional is not None
        return functional

    def argument(self, parameter: Parameter, replaced: Mapping[str, str]) -> str:
        """The value that the source gets for one of its parameters, matched by name; what the
        wrapper is not given is read off its out, or left to the default.
        """
        if parameter.name in replaced:
            return replaced[parameter.name]
        out = self.outputs[0] if self.outputs else ""
        if any(own.name == parameter.name for own in self.operator.parameters):
            if computes_in_dtype_of_out(self.operator, parameter):
                dtype = self.language.attributes["dtype"].format(out)
                return self.language.given_or.format(self.name(parameter), dtype)
            return self.name(parameter)
        if out and parameter.name in self.language.attributes:
            return self.language.attributes[parameter.name].format(out)
        return self.default(parameter)

    def call_writing_to(self, values: str) -> str:
        """A call of the source that writes to the results in `values`."""
        written = [parameter.name for parameter in self.source.outputs]
        elements = self.elements(values, len(written))
        return self.do(self.call(dict(zip(written, elements, strict=True))))

    def check_overlap(self) -> str:
        """Refuse memory that overlaps with itself, or in part with what is read."""
        written = self.references(self.outputs)
        return self.do(self.support("check_overlap", written, *self.inputs))

    def castable(self) -> str:
        """Whether a result is converted to the dtype of what is written to."""
        return self.option("castable", self.operator.castable)

    def functional_from_out(self) -> Iterator[str]:
        """Allocate, and call."""
        devices = [self.name(p) for p in self.operator.parameters if p.type.base == "Device"]
        yield self.declare("geometry", self.geometry())
        device = self.support("device_of", *devices, *self.inputs)
        yield self.declare("outs", self.support("allocate", "geometry", device))
        yield self.call_writing_to("outs")
        yield self.do("return outs")

    def functional_from_inplace(self) -> Iterator[str]:
        """Copy what is changed, and call."""
        selfs = self.references([self.name(parameter) for parameter in self.source.outputs])
        converts_first = any(parameter.name == "dtype" for parameter in self.operator.parameters)
        option = self.option("in_result_dtype", converts_first)
        yield self.declare("geometry", self.geometry())
        yield self.declare("copies", self.support("writable_copy", selfs, "geometry", option))
        yield self.call_writing_to("copies")
        yield self.do(f"return {self.support('converted', 'copies', 'geometry')}")

    def functional_from_mutable(self) -> Iterator[str]:
        """Copy what is changed, call, and return the copies behind the other results."""
        copies = {}
        for parameter in self.source.outputs:
            copies[parameter.name] = f"{parameter.name}_copy"
            clone = self.support("clone", self.name(parameter))
            yield self.declare(copies[parameter.name], clone)
        fresh = sum(not result.written for result in self.source.results)
        call = self.call(copies)
        yield self.declare("results", call) if fresh else self.do(call)
        results = self.elements("results", fresh)
        yield self.do(f"return {self.values([*results, *copies.values()])}")

    def inplace_from_out(self) -> Iterator[str]:
        """Check, and call with what is changed as the out."""
        selfs = self.references(self.outputs)
        outs = [parameter.name for parameter in self.source.outputs]
        yield self.check_overlap()
        yield self.declare("geometry", self.geometry())
        yield self.do(self.support("check_self", selfs, "geometry", self.castable()))
        yield self.do(self.call(dict(zip(outs, self.outputs, strict=True))))
        yield from self.return_written()

    def out_from_structured(self) -> Iterator[str]:
        """Check, resize, and call."""
        outs = self.references(self.outputs)
        yield self.check_overlap()
        yield self.declare("geometry", self.geometry())
        yield self.do(self.support("resize_outs", outs, "geometry", self.castable()))
        yield self.do(self.call({}))
        yield from self.return_written()

    def written_from_functional(self) -> Iterator[str]:
        """In-place and out from functional: compute, check, copy."""
        written = self.references(self.outputs)
        write = "write_out" if self.operator.kind is Kind.OUT else "write_self"
        yield self.check_overlap()
        yield self.do(self.support(write, written, self.call({}), self.castable()))
        yield from self.return_written()

    def mutable_from_functional(self) -> Iterator[str]:
        """Compute, copy the last results to what is changed, and return the others."""
        fresh = sum(not result.written for result in self.operator.results)
        results = self.elements("results", fresh + len(self.outputs))
        yield self.declare("results", self.call({}))
        for output, result in zip(self.outputs, results[fresh:], strict=True):
            yield self.do(self.support("write_self", output, result, self.castable()))
        if fresh:
            yield self.do(f"return {self.values(results[:fresh])}")

    def return_written(self) -> Iterator[str]:
        """Return what was written to; operators that write to lists return nothing."""
        if self.operator.results:
            returned = self.outputs[: len(self.operator.results)]
            yield self.do(f"return {self.references(returned)}")


def fitted(line: str, *, closing_alone: bool = False) -> str:
    """A declaration, a call or a comment, its arguments on lines of their own where it is longer
    than 100 columns. `closing_alone`: so is what follows the last parenthesis, as Python has it.
    """
    if len(line) <= 100 or "(" not in line:
        return line
    margin = re.match("(//)? *", line)[0]  # type: ignore[index]  # it matches nothing at least
    head, _, arguments = line.partition("(")
    arguments, tail = arguments.rsplit(")", 1) if closing_alone else (arguments, "")
    lines = [f"{head}("]
    room = 0
    for piece in re.split(r"(?<=,) ", arguments):
        if len(piece) >= room:
            lines.append(f"{margin}    {piece}")
        else:
            lines[-1] += f" {piece}"
        room = 100 - len(lines[-1])
    return "\n".join([*lines, f"{margin}){tail}"] if closing_alone else lines)


_COMPUTATIONS: Mapping[tuple[Kind, Kind], Callable[[Wrapper], Iterator[str]]] = {
    (Kind.FUNCTIONAL, Kind.OUT): Wrapper.functional_from_out,
    (Kind.FUNCTIONAL, Kind.INPLACE): Wrapper.functional_from_inplace,
    (Kind.FUNCTIONAL, Kind.MUTABLE): Wrapper.functional_from_mutable,
    (Kind.INPLACE, Kind.OUT): Wrapper.inplace_from_out,
    (Kind.INPLACE, Kind.FUNCTIONAL): Wrapper.written_from_functional,
    (Kind.OUT, Kind.OUT): Wrapper.out_from_structured,
    (Kind.OUT, Kind.FUNCTIONAL): Wrapper.written_from_functional,
    (Kind.MUTABLE, Kind.FUNCTIONAL): Wrapper.mutable_from_functional,
}
"""How each kind is made from each."""
