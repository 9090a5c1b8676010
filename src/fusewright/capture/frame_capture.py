"""Capture one call of a Python function: its graph, the guards under which it holds, and the
function to run instead.

    capture = capture_call(function, arguments, breaks)   # the frame's locals at entry
    capture.graph_module, capture.inputs              # what a backend compiles
    capture.guards                                    # when it may be used again
    capture.finish(compiled)                          # the Python function that calls what the
    backend made
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx

from fusewright import torch_compat
from fusewright.capture import handlers, reasons
from fusewright.capture.autograd_history import leaves
from fusewright.capture.breaks import (
    BreakTable,
    BreakWriter,
    Failed,
    Interruption,
    Retrace,
    TracePlan,
    entry_of,
    interruption,
    keeping_random_state,
    run_as_written,
    run_unless_written,
    tell_why_not,
    writes_last,
)
from fusewright.capture.effects import (
    Recover,
    SideEffects,
    Write,
    first_dropped,
    first_unmakeable,
    pending_writes,
    reachable_outputs,
    written_values,
)
from fusewright.capture.graph import ALL_ALLOWED, NeedsConstants, Permissions
from fusewright.capture.guards import Guard, GuardKind, current_gpu, has_memory, placements
from fusewright.capture.interpreter.existing_iterators import keep_iterators_whole
from fusewright.capture.interpreter.frame import Frame, SavedException, Stopped
from fusewright.capture.interpreter.machine import Machine
from fusewright.capture.rebuild import FunctionWriter
from fusewright.capture.sizes import SizeHistory
from fusewright.capture.sources import CellSource, LocalSource
from fusewright.capture.values.base import TracedError, Value
from fusewright.capture.values.functions import FunctionValue
from fusewright.capture.values.mappings import DictValue
from fusewright.capture.values.numbers import SymbolicValue
from fusewright.capture.values.tensors import TensorValue, UnknownValue
from fusewright.context import WhileUsed
from fusewright.errors import Unsupported, WrongShape
from fusewright.fake.graph_writes import (
    any_is_seen_through,
    may_write_inputs,
    storages_of,
    written_storages,
)
from fusewright.modes import ModeChange, Modes, changed_modes, guarding_modes, restore
from fusewright.records import record, replace
from fusewright.torch_compat.graph_modules import GraphModule

assert handlers, "importing the handlers fills their table"

RECURSION_LIMIT = 10_000
"""While tracing, each call of the traced program takes about ten calls of the machine's own."""


class NotCaptured(Exception):
    """The call has to run as it is, whenever the same guards hold."""

    def __init__(
        self,
        guards: Sequence[Guard],
        error: Unsupported | None,
        raised: str = "",
        operator: str = "",
    ) -> None:
        self.guards = guards
        self.error = error
        """The refusal; None when the program itself raises, as it then has to from its own
        lines.
        """
        self.raised = raised
        """The exception that it raises, in words."""
        self.operator = operator
        """The operator of somebody's own whose fake implementation raised it; else empty."""
        super().__init__(str(error) if error else f"the program raises {raised}")


@record(kw_only=True)
class BreakPlace:
    """The place at which capture stopped before the end of the function, and the reason."""

    error: Unsupported
    """The reason, at the user's line."""

    interruption: Interruption

    @property
    def is_where_it_failed(self) -> bool:
        """Whether what runs natively is what could not be captured, and not something before it."""
        calls = self.error.calls
        return bool(calls) and calls[0].executed == self.interruption.frame.executed


@record(kw_only=True)
class Capture:
    """One captured call, up to its end or to a graph break."""

    graph_module: fx.GraphModule
    """Torch-level graph: a placeholder a tensor read, a tuple of tensors as output."""

    inputs: tuple[Any, ...]
    """Examples of what is read, in the order of the placeholders: symbolic sizes, and tensors."""

    guards: tuple[Guard, ...]
    """Facts that must hold for the capture to be used again; see also `all_guards`."""

    outputs: tuple[TensorValue | SymbolicValue, ...]
    result: Value | BreakPlace
    """The value that the function returns, or the place of the graph break."""

    writes: tuple[Write, ...]
    calls: tuple[ModeChange, ...]
    """Calls by which the program changed Python's random state and the thread's modes."""

    may_return: bool
    """Whether the call as it was written may return though the graph raised: the program may handle
    the exception, or the graph checks what eager does not always need.
    """

    machine: Machine
    function: Any
    """The function of Python that was called."""

    root: FunctionValue
    breaks: BreakTable

    def all_guards(self) -> tuple[Guard, ...]:
        """The guards, with what has been assumed of sizes so far; to be asked when the graph is
        compiled, after which nothing more may be assumed. MarkedDimension: a size that the user has
        marked would have to stay as it is.
        """
        shapes = self.machine.sizes.close()
        guards = self.guards if shapes is None else (*self.guards, shapes.guard)
        return (*guards, current_gpu()) if self.machine.builder.mode.meets_gpu else guards

    @property
    def is_empty(self) -> bool:
        """Whether the graph does nothing that anyone could see."""
        return not self.outputs and all(
            node.op in ("placeholder", "output") for node in self.graph_module.graph.nodes
        )

    @property
    def graph_break(self) -> BreakPlace | None:
        """The break at which capture stopped; None when it reached the end."""
        return self.result if isinstance(self.result, BreakPlace) else None

    def finish(
        self,
        compiled: Callable[..., Any] | None,
        failed: Failed,
    ) -> types.FunctionType:
        """The function that runs in place of the captured one; it calls `compiled` with the
        graph's inputs. With a graph break it returns a continuation there. When `compiled` raises,
        `failed` is called; its result is called if the call, run as written, returns.

        To be called once: the objects met while tracing are let go. Raises Unsupported when the
        result, or something that the program put in an existing object, cannot be made again.
        """
        try:
            code = self._write(compiled, failed)
        except Unsupported:
            raise
        except Exception as error:
            raise self.machine.failure(error) from error
        function = types.FunctionType(
            code,
            self.function.__globals__,
            self.function.__name__,
            self.function.__defaults__,
            self.function.__closure__,
        )
        function.__kwdefaults__ = self.function.__kwdefaults__
        stop, permissions = self.graph_break, self.machine.builder.permissions
        if stop is not None and stop.is_where_it_failed and permissions == ALL_ALLOWED:
            self.breaks.predicted.expect(stop.error)
        self.machine.release()
        return function

    def _write(
        self,
        compiled: Callable[..., Any] | None,
        failed: Failed,
    ) -> types.CodeType:
        """The new function's code."""
        graph, traced = None, self.graph_module.graph
        recover: Recover = functools.partial(run_as_written, failed)
        if compiled is not None and not self.is_empty:
            graph = guarding_modes(traced, entry_of(compiled))
            if may_write_inputs(traced):
                run_again = functools.partial(run_unless_written, failed)
                recover = run_again if writes_last(compiled) else tell_why_not
            if recover is not tell_why_not and self.machine.builder.mode.is_random:
                devices = {tensor.fake.device for tensor in self.machine.tensors.values()}
                graph = keeping_random_state(graph, devices)
        effects = SideEffects(graph, self.outputs, self.writes, self.calls, recover)
        match self.result:
            case BreakPlace(interruption=interruption):
                reason = self.result.error.reason
                breaking = BreakWriter(self.machine, self.root, interruption, self.breaks, reason)
                return breaking.write_break(effects)
            case result:
                return FunctionWriter(self.machine, self.root).write(effects, result)


def capture_call(
    function: types.FunctionType,
    arguments: Mapping[str, Any],
    breaks: BreakTable | None = None,
    history: SizeHistory | None = None,
) -> Capture:
    """Trace one call of `function`; `arguments` are its locals at entry, `*args` and `**kwargs`
    collected, `history` what sizes it was called with before.

    What cannot be captured is a graph break: the call is traced once more, up to the instruction
    of `function` that led there, so that nothing of the attempt remains. Raises NotCaptured when
    that is not possible, or when breaks are not wanted: `breaks` is None. Then symbolic sizes are
    given up before.
    """
    plan = TracePlan()
    error = breaks.predicted.take(function.__code__) if breaks else None
    if error is not None:
        place = error.calls[0]
        plan = TracePlan(stop=place.executed, error=error, predicted=place)
    while True:
        try:
            return _attempt(function, arguments, breaks, history, plan)
        except Retrace as retrace:
            plan = retrace.plan


def _attempt(
    function: types.FunctionType,
    arguments: Mapping[str, Any],
    breaks: BreakTable | None,
    history: SizeHistory | None,
    plan: TracePlan,
) -> Capture:
    """Trace a call as planned. Raises Retrace with a better plan; NotCaptured for none."""
    with _tracing() as modes, ExitStack() as on_failure:
        machine = Machine(function.__globals__, history, plan.permissions)
        on_failure.callback(machine.release)
        try:
            capture = _trace(machine, function, arguments, breaks, plan, modes)
        except (Retrace, WrongShape):
            raise
        except TracedError as raised:
            raised.forget_frames()
            text = raised.value.describe()
            machine.guard_distinct()
            raise NotCaptured(machine.guard_list(), None, text, raised.operator) from None
        except Exception as failure:
            better = _better_plan(machine, breaks, plan, failure)
            if better is not None:
                raise Retrace(better) from None
            error = machine.failure(failure)
            if error is not failure:
                error.__cause__ = failure
            elif error is plan.error:
                _without_frames(error)
            raise NotCaptured(machine.guard_list(), error) from None
        on_failure.pop_all()
        return capture


def _better_plan(
    machine: Machine, breaks: BreakTable | None, plan: TracePlan, failure: Exception
) -> TracePlan | None:
    """The next plan for a call that could not be traced as planned; None: there is none."""
    if isinstance(failure, NeedsConstants) and machine.sizes.take_as_constants(failure.symbols):
        return plan
    if isinstance(failure, Unsupported):
        if plan.predicted is not None:
            return plan.whole()
        executed = machine.root.executed if machine.root else 0
        if breaks is not None and executed and plan.error is None:
            return plan.broken(executed - 1, _without_frames(failure))
    if breaks is None and machine.sizes.give_up_symbols():
        return plan.whole()
    return None


def _trace(
    machine: Machine,
    function: types.FunctionType,
    arguments: Mapping[str, Any],
    breaks: BreakTable | None,
    plan: TracePlan,
    modes: Modes,
) -> Capture:
    """Execute a call as planned, and finish its graph."""
    if torch_compat.states.has_foreign_modes():
        raise machine.unsupported(reasons.TORCH_FUNCTION_MODE)
    if torch_compat.is_transforming():
        raise machine.unsupported(reasons.INSIDE_TRANSFORM)
    root = _root_function(machine, function)
    frame = machine.new_frame(root, _root_variables(machine, function, arguments))
    if plan.window:
        assert breaks is not None, "a frame stops at a known break"
        stop = _last_makeable(machine, frame, breaks, plan)
        raise Retrace(plan.searching() if stop is None else plan.earlier(stop))
    frame.stop = plan.stop
    result = _run(machine, frame, breaks, plan)
    writes = pending_writes(machine)
    needed = [*_kept(result), *written_values(writes)]
    missing = first_unmakeable(machine, needed)
    if missing is not None and isinstance(result, BreakPlace):
        raise Retrace(plan.searching())
    if isinstance(missing, UnknownValue):
        raise missing.refusal()
    if missing is not None:
        raise machine.unsupported(reasons.NO_REBUILD, object=missing.describe())
    _look_for_dropped(machine, needed, plan)
    outputs = reachable_outputs(machine, needed)
    machine.builder.add_sizes(tensor.fake for tensor in machine.inputs)
    graph_module = _finish_graph(machine, outputs)
    permissions = _permissions_left(machine, graph_module.graph, outputs)
    if permissions != plan.permissions:
        raise Retrace(TracePlan(permissions=permissions))
    machine.guard_distinct()
    _guard_memory(machine, graph_module.graph)
    return Capture(
        graph_module=graph_module,
        inputs=machine.builder.examples([value.object for value in machine.inputs], machine.shapes),
        guards=tuple(machine.guards.values()),
        outputs=tuple(outputs),
        result=result,
        writes=tuple(writes),
        calls=(*machine.draws, *changed_modes(modes, Modes.now())),
        may_return=machine.may_return,
        machine=machine,
        function=function,
        root=frame.function,
        breaks=breaks or BreakTable(),
    )


def _without_frames(error: Unsupported) -> Unsupported:
    """An error that is kept to be told of, not to be raised: its traceback would keep all that the
    interrupted frames refer to.
    """
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def _last_makeable(
    machine: Machine, frame: Frame, breaks: BreakTable, plan: TracePlan
) -> int | None:
    """After how many instructions, of the last ones before the planned break, all that is live
    could last be made by generated code; None for none. The frame is executed once, and asked at
    each of these.
    """
    last = None
    for stop in range(max(1, plan.stop - plan.window), plan.stop):
        frame.stop = stop
        try:
            machine.run(frame)
        except Stopped:
            machine.handled = frame.handled
        place = interruption(frame, breaks.resumes)
        if place is not None:
            needed = [*place.live_values, *written_values(pending_writes(machine))]
            if first_unmakeable(machine, needed) is None:
                last = stop
    return last


def _run(
    machine: Machine, frame: Frame, breaks: BreakTable | None, plan: TracePlan
) -> Value | BreakPlace:
    """Execute a frame to its end, or to the planned stop."""
    try:
        return machine.run(frame)
    except Stopped:
        assert plan.error is not None and breaks is not None, "a frame stops at a known break"
        if plan.predicted is not None and plan.predicted.position != frame.position:
            raise plan.error from None
        _look_for_raised(frame, plan)
        place = interruption(frame, breaks.resumes)
        if place is None:
            raise Retrace(plan.searching()) from None
        begins_after = breaks.resumes.begins_after(frame.code, place.position)
        if begins_after and keep_iterators_whole(machine):
            # A loop that breaks in each round is captured once for all of them.
            raise Retrace(plan.whole()) from None
        return BreakPlace(error=plan.error, interruption=place)


def _kept(result: Value | BreakPlace) -> list[Value]:
    """The values that must exist when the graph has run: the result, or all that is live."""
    return result.interruption.live_values if isinstance(result, BreakPlace) else [result]


def _permissions_left(
    machine: Machine, graph: fx.Graph, outputs: Sequence[TensorValue | SymbolicValue]
) -> Permissions:
    """The permissions that a graph was made with, less one that it makes use of and must not."""
    builder, allowed = machine.builder, machine.builder.permissions
    if builder.has_checks and may_write_inputs(graph):
        return replace(allowed, checks=False)  # The call could not begin again.
    if any_is_seen_through(graph, builder.copies):
        return replace(allowed, copies=False)
    if _has_history_of_its_own(machine, outputs):
        return replace(allowed, leaves=False)  # To autograd, results come from the graph's inputs.
    if _has_hooks(machine, outputs):
        return replace(allowed, hooks=False)  # The engine may be asked for its gradient.
    return allowed


def _has_history_of_its_own(
    machine: Machine, outputs: Sequence[TensorValue | SymbolicValue]
) -> bool:
    """Whether a result has a history that begins inside of the graph, and only there."""
    inside = {id(leaf) for leaf in machine.builder.leaves}
    fakes = [output.fake for output in outputs if inside and isinstance(output, TensorValue)]
    beginnings = ({id(leaf) for leaf in leaves([fake])} for fake in fakes)
    return any(nodes and nodes <= inside for nodes in beginnings)


def _has_hooks(machine: Machine, outputs: Sequence[TensorValue | SymbolicValue]) -> bool:
    """Whether the gradient of a result has a hook of the graph's own."""
    hooked = {id(fake) for fake in machine.builder.hooked}
    return any(isinstance(output, TensorValue) and id(output.fake) in hooked for output in outputs)


def _guard_memory(machine: Machine, graph: fx.Graph) -> None:
    """Guard which inputs share memory with one that the graph may write to, and where those begin
    in their storages from whose beginning it counts.
    """
    inputs = [tensor for tensor in machine.inputs if has_memory(tensor.object)]
    restrides = bool(machine.restrided)
    storages = written_storages(graph) if len(inputs) > 1 or restrides else set()
    input_storages = [storages_of(memory.fake) for memory in inputs]
    written = [not storages.isdisjoint(memory) for memory in input_storages]
    restrided = [
        n
        for n, memory in enumerate(input_storages)
        if not machine.restrided.keys().isdisjoint(memory)
    ]
    for storage in storages.intersection(machine.restrided):
        refusal = machine.restrided[storage]
        if refusal is not None:
            raise refusal
    if not any(written) and not restrided:
        return
    placed = placements([tensor.object for tensor in inputs], written, restrided)
    if placed is None:
        raise machine.unsupported(reasons.OVERLAPPING_STORAGES)
    sources = [tensor.source for tensor in inputs]
    machine.guard(GuardKind.MEMORY, None, tuple(zip(sources, placed, strict=True)))


def _look_for_dropped(machine: Machine, needed: Sequence[Value], plan: TracePlan) -> None:
    """Break where an object is made that runs code when it is dropped, which happens before the
    end, or before the planned break: only a real one does.
    """
    dropped = first_dropped(machine, needed)
    if dropped is None or machine.root is None:
        return
    if plan.error is not None:
        raise Retrace(plan.earlier(dropped.made_at - 1))
    machine.root.executed = dropped.made_at
    reason = reasons.FINALIZER
    raise Unsupported(reason.text(object=dropped.what), dropped.place, reason.remedy, reason.name)


def _look_for_raised(frame: Frame, plan: TracePlan) -> None:
    """Break at the instruction that raised, where an exception is being handled that was never
    raised for real: it then is, with a traceback.
    """
    for entry in frame.stack:
        if isinstance(entry, SavedException) and entry.handled.source is None:
            raise Retrace(plan.earlier(entry.raised_at - 1))


@contextmanager
def _tracing() -> Iterator[Modes]:
    """Undo, at the end, the changes that the traced program makes to the thread's modes."""
    before = Modes.now()
    with _DEEP_RECURSION:
        try:
            yield before
        finally:
            restore(before)


def _deepen_recursion() -> Callable[[], object]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    return functools.partial(sys.setrecursionlimit, before)


_DEEP_RECURSION = WhileUsed(_deepen_recursion)


def _root_function(machine: Machine, function: types.FunctionType) -> FunctionValue:
    names = function.__code__.co_freevars
    cells = [
        machine.cell(cell, CellSource(name))
        for name, cell in zip(names, function.__closure__ or (), strict=True)
    ]
    return FunctionValue(
        function.__code__, machine.namespaces.of(function.__globals__), cells=cells
    )


def _root_variables(
    machine: Machine, function: types.FunctionType, arguments: Mapping[str, Any]
) -> dict[str, Value]:
    """The frame's arguments as values. `**kwargs` is a dict of this call alone, so its keys are
    always guarded.
    """
    variables: dict[str, Value] = {}
    for name, object in arguments.items():
        source = LocalSource(name)
        variables[name] = machine.wrap(object, source)
    if function.__code__.co_flags & 0x8:
        keywords = variables[_keywords_name(function.__code__)]
        assert isinstance(keywords, DictValue)
        keywords.keys(machine)
    return variables


def _keywords_name(code: types.CodeType) -> str:
    """The name of the parameter `**kwargs`."""
    index = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x4)
    return code.co_varnames[index]


def _result_of(output: TensorValue | SymbolicValue) -> Any:
    """An output of the graph, on fakes."""
    return output.number if isinstance(output, SymbolicValue) else output.fake


def _finish_graph(
    machine: Machine, outputs: Sequence[TensorValue | SymbolicValue]
) -> fx.GraphModule:
    graph = machine.builder.graph
    values = tuple(_result_of(output) for output in outputs)
    nodes = tuple(
        machine.builder.numbers.node_for(output.number)
        if isinstance(output, SymbolicValue)
        else output.node
        for output in outputs
    )
    output = graph.output(nodes)
    output.meta["val"] = values
    return GraphModule(torch.nn.Module(), graph, class_name="CapturedGraph")
