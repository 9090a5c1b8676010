"""Graph breaks: the graph so far, the instruction as written, and the rest compiled too."""

from __future__ import annotations

import contextlib
import functools
import gc
import traceback
import weakref

import pytest
import torch

import fusewright
from tests.capture.reporting import agrees, compiled, graphs, outcome, report

ONES = torch.ones(3)


def baz(x):
    return -x if x > 0 else x - 1


def bar(x):
    return x * baz(x - 1)


def foo(x):
    return x * bar(2 * x)


def test_branches_in_inlined_calls() -> None:
    target = compiled(foo)
    for value, count in ((4.0, 6), (-4.0, 7), (4.0, 7)):
        x = torch.tensor(value)
        assert torch.equal(target(x), foo(x))
        assert len(graphs(target)) == count


def test_one_graph_before_and_one_for_each_side() -> None:
    def function(x):
        y = x * 2
        if x.sum() < 0:
            return y + 1
        return y - 1

    assert agrees(function, (ONES,), (-ONES,)) == [3, 1, 1]


def test_in_a_loop_compiles_a_bounded_number_of_graphs() -> None:
    def function(x):
        for step in [0.5] * 30:
            x = x * step
            report(x)
            x = x + 1
        return x

    assert len(agrees(function, (ONES,))) <= 4


def test_thousands_of_breaks_do_not_nest() -> None:
    def function(x, count):
        while count > 0:
            count = report(count) or count - 1
            x = x + 1
        return x

    target = compiled(function)
    assert torch.equal(target(ONES, 3000), ONES + 3000)


def test_with_block_stays_open() -> None:
    def function(x):
        with torch.no_grad():
            y = x * 2
            report(torch.is_grad_enabled(), y)
            z = y * x
        report(torch.is_grad_enabled())
        return z * x

    x = torch.ones(3, requires_grad=True)
    target = compiled(function)
    result = target(x)
    assert result.requires_grad
    assert torch.is_grad_enabled()
    assert outcome(target, x)[1] == outcome(function, x)[1]


class Recorder:
    """A context manager that tells what happens to it, and may swallow exceptions."""

    def __init__(self, swallow: bool = False) -> None:
        self.swallow = swallow
        self.events: list[object] = []

    def __enter__(self) -> Recorder:
        self.events.append("enter")
        return self

    def __exit__(self, kind, error, trace) -> bool:
        self.events.append((kind, str(error), trace is None))
        return self.swallow


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_context_managers_of_the_user(swallow: bool, fails: bool) -> None:
    def function(x):
        with Recorder(swallow) as outer, Recorder() as inner:
            x = x + 1
            report(x)
            if fails:
                raise ValueError("here")
            x = x * 2
            report(outer.events, inner.events)
        report(outer.events, inner.events)
        return x, outer.events, inner.events

    agrees(function, (ONES,))


@contextlib.contextmanager
def logged(name):
    report("enter", name)
    try:
        yield name
        report("normal exit", name)
    except ValueError as error:
        report("error", str(error))
        raise
    finally:
        report("leave", name)


@contextlib.contextmanager
def plain(values):
    values.append("enter")
    try:
        yield values
    finally:
        values.append("leave")


@pytest.mark.parametrize("fails", [False, True])
def test_context_managers_from_generators(fails: bool) -> None:
    def function(x):
        values: list[object] = []
        with plain(values):
            x = x + 1
            report(values)
            if fails:
                raise ValueError("here")
            x = x * 2
        with logged("name"):
            x = x * 3
            report(x)
        return x, values

    agrees(function, (ONES,))


def test_exceptions_of_the_breaking_instruction() -> None:
    def function(x, flag):
        y = x + 1
        try:
            y = y * 2
            if flag:
                report(int("no number"))
            y = y * 3
        except ValueError as error:
            y = y - 1
            report(str(error))
            y = y - 2
        else:
            y = y / 2
        finally:
            y = y + 10
            report("finally")
            y = y + 20
        return y

    agrees(function, (ONES, True), (ONES, False))


def raises(message):
    report("about to raise")
    raise KeyError(message)


def test_handlers_nest_and_raise_again() -> None:
    def function(x):
        try:
            try:
                raises("first")
            except KeyError as error:
                x = x + 1
                report("inner", error.args)
                x = x + 2
                try:
                    raises("second")
                except KeyError as second:
                    report(second.__context__.args)
                    x = x * 2
                raise
        except KeyError as outer:
            report("outer", outer.args, outer.__context__)
            return x * 3

    agrees(function, (ONES,))


def test_exceptions_that_leave_have_the_lines_of_the_program() -> None:
    def function(x):
        y = x + 1
        report(y)
        y = y + 2
        raises("gone")
        return y

    agrees(function, (ONES,))


def test_an_exception_raised_while_tracing_is_real_in_its_handler() -> None:
    def fails(x):
        raise ValueError("inlined")

    def function(x):
        try:
            fails(x + 1)
        except ValueError as error:
            report("".join(traceback.format_tb(error.__traceback__)).count("fails"))
            x = x + 1
        return x

    agrees(function, (ONES,))


def test_comprehensions_and_nested_calls() -> None:
    def noted(x):
        x = x + 1
        report(x)
        return x * 2

    def function(x):
        parts = [noted(x * scale) + 1 for scale in (1.0, 2.0, 3.0)]
        total = functools.reduce(lambda a, b: noted(a) + b, parts)
        return {str(index): part for index, part in enumerate(parts)}, total

    agrees(function, (ONES,))


def test_closures_keep_their_cells() -> None:
    def function(x):
        count = 0
        scale = x * 2

        def step(y):
            nonlocal count
            count += 1
            return y * scale + count

        x = step(x)
        report(count)
        x = step(x)
        scale = scale + 1
        report(step.__closure__[0].cell_contents)
        x = step(x)
        return x, count, step

    target = compiled(function)
    expected = function(ONES)
    result = target(ONES)
    assert torch.equal(result[0], expected[0])
    assert result[1] == expected[1] == 3
    assert torch.equal(result[2](ONES), expected[2](ONES))
    assert result[2].__closure__[0].cell_contents == 4


class Base:
    def scale(self, x):
        return x * 2


class Derived(Base):
    def scale(self, x):
        report("before")
        y = super().scale(x + 1)
        report("between")
        return super().scale(y) + 1

    def captured(self, x):
        call = lambda: self.scale(x)  # noqa: E731
        report("captured")
        return super().scale(call())


def test_super_without_arguments() -> None:
    def function(x):
        return Derived().scale(x), Derived().captured(x)

    agrees(function, (ONES,))


def test_stack_entries_survive() -> None:
    def value(x):
        report(x)
        return x

    def function(x, values):
        values.append(x + 1)
        return (x * 2, [value(x), values], f"{value(1)}-{value(2)}", value(x) + value(x) * value(x))

    agrees(function, (ONES, []))


def test_effects_before_and_after_happen_once_and_in_order() -> None:
    class Box:
        pass

    box = Box()
    box.total = 0
    box.seen = []

    def function(x):
        box.total += 1
        box.seen.append(("before", box.total))
        shared = [x + 1]
        box.first = shared
        report(box.total, list(box.seen))
        box.second = shared
        shared.append(x + 2)
        box.total += 1
        box.seen.append(("after", box.total))
        return box.first is box.second, len(box.first)

    target = compiled(function)
    assert target(ONES) == (True, 2)
    assert box.total == 2
    assert box.seen == [("before", 1), ("after", 2)]
    assert target(ONES) == (True, 2)
    assert box.total == 4


def test_a_generator_in_flight() -> None:
    def counted(x):
        for step in range(4):
            x = x + step
            sent = yield x
            report("sent", sent)

    def function(x):
        running = counted(x)
        first = next(running)
        report(first)
        second = running.send("one")
        third = running.send("two")
        running.close()
        return first * second * third, list(running)

    agrees(function, (ONES,))


def test_looking_at_the_frame() -> None:
    def function(x):
        first = x + 1
        second = 2
        names = sorted(locals())
        report(names)
        return eval("first * second"), names

    agrees(function, (ONES,))


def test_modules_with_breaks_inside() -> None:
    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.calls = 0

        def forward(self, x):
            x = self.linear(x)
            self.calls += 1
            report(self.calls)
            return torch.relu(x)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([Inner(), Inner()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x) + 1
            return x

    torch.manual_seed(0)
    module = Outer()
    target = compiled(module)
    for _ in range(2):
        assert torch.equal(target(ONES), module(ONES))
    assert [layer.calls for layer in module.layers] == [4, 4]


def test_a_loop_over_an_iterator_of_the_caller() -> None:
    def function(iterator):
        total = torch.zeros(3)
        for item in iterator:
            total = total + item
            report(total)
        return total

    target = compiled(function)
    parts = [ONES, ONES * 2, ONES * 3]
    assert torch.equal(target(iter(parts)), function(iter(parts)))
    assert torch.equal(target(x * 2 for x in parts), function(x * 2 for x in parts))


def test_fullgraph_makes_it_an_error() -> None:
    def function(x):
        report(x)
        return x

    with pytest.raises(fusewright.errors.Unsupported, match=r"test_graph_breaks\.py"):
        fusewright.compile(function, backend="eager", fullgraph=True)(ONES)


def test_unpacking_matching_and_formatting() -> None:
    def pair(x):
        report("pair")
        return x, (x + 1, {"key": x * 2})

    def function(x):
        first, (second, rest) = pair(x)
        head, *tail = pair(x)
        match pair(x):
            case (a, (b, {"key": c})) if report("guard") is None:
                total = a + b + c
        return first, second, rest["key"], head, tail, total, f"{report('f')!r:>10}"

    agrees(function, (ONES,))


def test_item_and_data_dependent_sizes() -> None:
    def function(x):
        count = int(x.sum().item())
        kept = x[x > 0]
        return torch.arange(count) + 1, kept * 2, torch.nonzero(x)

    agrees(function, (ONES,), (torch.tensor([1.0, -1.0, 4.0]),))


def test_boolean_operators_on_tensors() -> None:
    def function(x):
        y = (x.sum() > 2) and x + 1
        z = (x.sum() > 100) or x - 1
        return y, z, not x.sum(), x.sum() in [torch.tensor(3.0)]

    agrees(function, (ONES,), (-ONES,))


def test_an_object_made_before_is_the_same_after() -> None:
    def function(x):
        items = [x]
        table = {"items": items}
        report(items)
        items.append(x + 1)
        report(len(table["items"]))
        return table["items"] is items, len(items)

    agrees(function, (ONES,))


class Passing:
    """A context manager that breaks the graph while an exception passes."""

    def __enter__(self) -> Passing:
        return self

    def __exit__(self, *error) -> bool:
        report("leaving")
        return False


class Argument:
    """Something to watch die."""


def test_an_exception_does_not_keep_itself_alive() -> None:
    def function(x, argument):
        with Passing():
            x = x + 1
            raise ValueError("passing")

    target = compiled(function)
    gc.disable()
    try:
        for _ in range(2):
            argument = Argument()
            alive = weakref.ref(argument)
            with contextlib.suppress(ValueError):
                target(ONES, argument)
            del argument
            assert alive() is None
    finally:
        gc.enable()


def test_what_has_a_history_may_be_written_to() -> None:
    def function(x):
        y = x * 2
        report(y)
        y.mul_(3)
        y[0] = 1
        return y + 1

    assert agrees(function, (torch.ones(3, requires_grad=True),)) == [1, 3]


class Numbered(Exception):
    """An exception of the program's own."""


def test_what_an_exception_carries_is_guarded() -> None:
    def function(x, number, kind):
        try:
            raise kind(number)
        except (Numbered, ValueError) as error:
            report("caught")
            return x + 1, str(error), error.args

    calls = [(ONES, number, kind) for kind in (Numbered, ValueError) for number in (2, 2, 3)]
    agrees(function, *calls)
