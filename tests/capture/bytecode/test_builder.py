"""Function bodies written by the builder run, and mistakes in them are named."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import pytest

from fusewright.capture.bytecode import (
    Builder,
    CodeUnit,
    Positions,
    assemble,
    disassemble,
    new_unit,
    with_body,
)
from fusewright.errors import InvalidBytecode


def function_of(unit: CodeUnit, closure: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """A function that runs `unit`, with this module's globals."""
    return types.FunctionType(assemble(unit), globals(), closure=closure or None)


def receive(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
    return arguments, keywords


def test_calls_of_every_shape() -> None:
    builder = Builder()
    builder.load_global("receive")
    builder.prepare_call()
    builder.load_local("x")
    builder.load_constant(2)
    builder.call(2)

    builder.load_constant([receive])
    builder.load_constant(0)
    builder.load_subscript()
    builder.prepare_call()
    builder.load_local("x")
    builder.load_constant(3)
    builder.call(2, ("named",))

    builder.load_global("receive")
    builder.prepare_call()
    builder.load_constant((4, 5))
    builder.load_constant("key")
    builder.load_local("x")
    builder.build_map(1)
    builder.emit("CALL_FUNCTION_EX", 1)

    builder.load_constant("a-b")
    builder.emit("LOAD_METHOD", "split")
    builder.load_constant("-")
    builder.call(1)

    builder.build_tuple(4)
    builder.return_value()
    function = function_of(new_unit("calls", builder.instructions, parameters=("x",)))
    assert function(1) == (
        ((1, 2), {}),
        ((1,), {"named": 3}),
        ((4, 5), {"key": 1}),
        ["a", "b"],
    )


def test_every_kind_of_parameter() -> None:
    builder = Builder()
    for name in ("a", "b", "c", "rest", "others"):
        builder.load_local(name)
    builder.build_list(5)
    builder.return_value()
    unit = new_unit(
        "parameters",
        builder.instructions,
        parameters=("a", "b"),
        positional_only_count=1,
        keyword_only=("c",),
        variable_arguments="rest",
        variable_keywords="others",
    )
    function = function_of(unit)
    assert str(inspect.signature(function)) == "(a, /, b, *rest, c, **others)"
    assert function(1, 2, 3, c=4, d=5) == [1, 2, 4, (3,), {"d": 5}]


def test_jumps_both_ways() -> None:
    builder = Builder()
    again, end = builder.label(), builder.label()
    builder.load_constant(0)
    builder.store_local("total")
    builder.place(again)
    builder.load_local("pair")
    builder.jump_if_none(end)
    builder.load_local("pair")
    builder.unpack_sequence(2)
    builder.load_local("total")
    builder.emit("BINARY_OP", "+=")
    builder.store_local("total")
    builder.store_local("pair")
    builder.jump(again)
    builder.place(end)
    builder.load_local("total")
    builder.return_value()
    total = function_of(new_unit("sum", builder.instructions, parameters=("pair",)))
    assert total((1, (2, (3, None)))) == 6


def test_operators_and_stack() -> None:
    builder = Builder()
    builder.load_local("x")
    builder.duplicate()
    builder.load_constant(3)
    builder.swap(2)
    builder.compare("<")
    builder.swap(2)
    builder.load_constant(None)
    builder.emit("IS_OP", 1)
    builder.build_tuple(2)
    builder.unpack_sequence(2)
    builder.build_list(2)
    builder.return_value()
    function = function_of(new_unit("operators", builder.instructions, parameters=("x",)))
    assert function(5) == [True, True]
    assert function(1) == [True, False]


def test_cells_and_inner_functions() -> None:
    inner = Builder()
    inner.emit("LOAD_DEREF", "n")
    inner.load_local("k")
    inner.emit("BINARY_OP", "+")
    inner.emit("STORE_DEREF", "n")
    inner.emit("LOAD_DEREF", "n")
    inner.return_value()
    inner_unit = new_unit("inner", inner.instructions, parameters=("k",), free_names=("n",))

    outer = Builder()
    outer.load_closure("n")
    outer.build_tuple(1)
    outer.make_function(assemble(inner_unit), closure=True)
    outer.return_value()
    outer_unit = new_unit("outer", outer.instructions, parameters=("n",), cell_names=("n",))

    function = function_of(outer_unit)(1)
    assert (function(10), function(1)) == (11, 12)


def test_protected_code_reaches_its_handler() -> None:
    builder = Builder()
    handler = builder.label()
    builder.load_constant("kept")
    with builder.protected(handler, stack_depth=1):
        builder.load_local("x")
        builder.load_attribute("missing")
    builder.build_tuple(2)
    builder.return_value()
    builder.place(handler)
    builder.build_tuple(2)
    builder.return_value()
    kept, exception = function_of(new_unit("guarded", builder.instructions, parameters=("x",)))(1)
    assert kept == "kept"
    assert isinstance(exception, AttributeError)


def test_an_unset_local_raises() -> None:
    builder = Builder()
    builder.load_local("never_stored")
    builder.return_value()
    with pytest.raises(UnboundLocalError, match="never_stored"):
        function_of(new_unit("unset", builder.instructions))()


def test_a_new_body_keeps_parameters_place_and_position() -> None:
    def original(a, *rest, b=1, **others):
        """Documented."""
        return [a for _ in rest], b, others

    unit = disassemble(original.__code__)
    builder = Builder(positions=Positions(unit.first_line + 2, unit.first_line + 2, 8, 9))
    builder.load_local("rest")
    builder.load_local("missing")
    builder.return_value()
    body = with_body(unit, builder.instructions, cell_names=(), free_names=())
    function = function_of(body)
    assert str(inspect.signature(function)) == "(a, *rest, b, **others)"
    assert function.__doc__ is None
    assert function.__code__.co_name == "original"
    with pytest.raises(UnboundLocalError) as raised:
        function(1, b=2)
    assert raised.traceback[-1].lineno + 1 == unit.first_line + 2


def test_constants_that_compare_equal_stay_apart() -> None:
    values = (0.0, -0.0, 0, False, (0,), (False,), 1, 1.0, True, frozenset({0}), frozenset({False}))
    builder = Builder()
    for value in values:
        builder.load_constant(value)
    builder.build_tuple(len(values))
    builder.return_value()
    result = function_of(new_unit("constants", builder.instructions))()
    assert [repr(value) for value in result] == [repr(value) for value in values]


def test_a_string_as_first_constant_is_no_docstring() -> None:
    builder = Builder()
    builder.load_constant("text")
    builder.return_value()
    assert function_of(new_unit("text", builder.instructions)).__doc__ is None


MISTAKES: dict[str, tuple[Callable[[Builder], object], str]] = {
    "operation": (lambda b: b.emit("LOAD_NOTHING"), "no operation of this Python version"),
    "pop": (lambda b: b.pop(), "more is popped than was pushed"),
    "end": (lambda b: b.load_constant(1), "runs off the end"),
    "cell": (lambda b: b.emit("LOAD_DEREF", "x"), "neither a cell name nor a free name"),
    "target": (lambda b: b.jump(b.label()), "jumps to an instruction that is not in this unit"),
    "no target": (lambda b: b.emit("JUMP"), "needs an instruction to jump to"),
    "operator": (lambda b: b.emit("BINARY_OP", "<>"), "cannot take '<>' as its argument"),
    "argument": (lambda b: b.emit("BUILD_TUPLE", "two"), "cannot take 'two' as its argument"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    builder = Builder()
    make(builder)
    with pytest.raises(InvalidBytecode, match=message):
        assemble(new_unit("mistaken", builder.instructions))


def test_a_handler_outside_the_code_is_refused() -> None:
    builder = Builder()
    with builder.protected(builder.label(), stack_depth=0):
        builder.load_constant(1)
    builder.return_value()
    with pytest.raises(InvalidBytecode, match="handler outside this unit"):
        assemble(new_unit("mistaken", builder.instructions))


def test_a_handler_that_wants_more_than_there_is_is_refused() -> None:
    builder = Builder()
    handler = builder.label()
    with builder.protected(handler, stack_depth=1):
        builder.load_constant(1)
    builder.return_value()
    builder.place(handler)
    builder.return_value()
    with pytest.raises(InvalidBytecode, match="handler wants 1"):
        assemble(new_unit("mistaken", builder.instructions))


def test_a_loop_cannot_advance_backwards() -> None:
    builder = Builder()
    again = builder.label()
    builder.place(again)
    builder.load_local("iterator")
    builder.emit("FOR_ITER", again)
    builder.return_value()
    with pytest.raises(InvalidBytecode, match="cannot jump backwards"):
        assemble(new_unit("mistaken", builder.instructions, parameters=("iterator",)))


def test_a_place_reached_with_two_depths_is_refused() -> None:
    builder = Builder()
    end = builder.label()
    builder.load_local("x")
    builder.load_local("x")
    builder.jump_if_none(end)
    builder.load_constant(1)
    builder.place(end)
    builder.return_value()
    with pytest.raises(InvalidBytecode, match="values on the stack, elsewhere"):
        assemble(new_unit("uneven", builder.instructions, parameters=("x",)))


def test_the_listing_names_targets_and_handlers() -> None:
    def original(value):
        try:
            return value[0]
        except IndexError:
            return None

    text = str(disassemble(original.__code__))
    assert text.startswith(disassemble(original.__code__).qualified_name + "(value):")
    assert "[raises to L1]" in text
    assert "L1:" in text
    assert "LOAD_GLOBAL 'IndexError'" in text
