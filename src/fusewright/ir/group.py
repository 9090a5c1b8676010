"""A Group: bodies fused into one kernel. What scheduling produces and kernel emitters consume.

All stages run inside the same `outer` loops, whose points are independent of each other and may run
in any order and in parallel. Within a point the stages run in order; each has inner loops of its
own (none, pointwise or reduction). Softmax over rows of 128:

```
group max_sub_exp_sum_div [i0<32]
  local m: f32
  local e: f32
  stage over [r0<128]
    t0 = load x[128*i0 + r0]
    reduce m = max t0
  stage over [r0<128]
    t0 = load x[128*i0 + r0]
    t1 = load m[0]
    t2 = sub t0, t1
    t3 = exp t2
    reduce e = sum t3
  stage over [r0<128]
    ...
    store y[128*i0 + r0] = t5
```
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewright.ir.dtype import DType
from fusewright.ir.forms import buffers_read
from fusewright.ir.index import Index, LoopSymbol
from fusewright.ir.origin import Origin
from fusewright.ir.program import Buffer, CallOperator, CallSubprogram, Program, RowStatement
from fusewright.ir.value import Load, Value
from fusewright.records import field, record


@record(kw_only=True)
class Local:
    """Storage that lives for one point of the outer loops: a scalar (size ()), or a row kept in
    cache or registers.
    """

    name: str
    dtype: DType
    size: tuple[Index, ...] = ()
    """Row-major; loads and stores use element indices, `0` for a scalar. A row's index uses inner
    loops only.
    """


@record(kw_only=True)
class Store:
    """Write `value` to element `index` of a buffer or local. Its type is the buffer's."""

    buffer: str
    index: Index
    value: Value


@record(kw_only=True)
class Reduce:
    """Gather `value` over all inner loops of the stage into scalar locals.

    The targets may be read by later stages only. A result that memory needs is stored by a later
    stage without inner loops.
    """

    targets: tuple[str, ...]
    kind: str
    value: Value


@record(kw_only=True)
class Accumulate:
    """Combine `value` into element `index` (with loaded symbols) of a buffer that was initialised
    before: a scatter.
    """

    buffer: str
    index: Index
    indirect: tuple[Value, ...]
    mode: str
    """store, add, min or max; atomic where points may collide."""

    value: Value


@record(kw_only=True)
class ScanStore:
    """Write to element `index` of a buffer or row local what `value` gathers to over this point of
    the stage's inner loops and all before it, in their order; converted to the buffer's type.

    Later stages may read it.
    """

    buffer: str
    index: Index
    kind: str
    """A key of `ops.SCAN_KINDS`."""

    value: Value


@record(kw_only=True)
class Gather:
    """Write to element `index` of a buffer what `value` gathers to over all points of the walked
    loops: the innermost of the outer ones, none of which the index mentions. One point after the
    other adds to a row that is carried along; the last one writes it, so that no stage reads it.
    """

    buffer: str
    index: Index
    kind: str
    """A key of `neutral.NEUTRAL_ELEMENTS`."""

    value: Value


Action = Store | Reduce | Accumulate | ScanStore | Gather


def action_roots(*actions: Action) -> tuple[Value, ...]:
    """The values that actions evaluate, in order."""
    roots: list[Value] = []
    for action in actions:
        if isinstance(action, Accumulate):
            roots += action.indirect
        roots.append(action.value)
    return tuple(roots)


@record(kw_only=True)
class Stage:
    """One loop nest inside the outer loops. Its actions see the same point and run in order."""

    inner: tuple[LoopSymbol, ...]
    """Named r0, r1, …, outermost first; empty for actions done once a point of the outer loops."""

    actions: tuple[Action, ...]


@record(kw_only=True)
class Group:
    """One kernel's work. Structure-equal groups (equal canonical text) become one kernel."""

    name: str
    """Made of what it computes: `add_gelu_layer_norm`; left out of structural equality."""

    outer: tuple[LoopSymbol, ...]
    """Named i0, i1, …, outermost first; empty when there is one point only."""

    locals: tuple[Local, ...] = ()
    stages: tuple[Stage, ...]
    reads: tuple[Buffer, ...]
    """Buffers in memory that stages load, in order of first use; and those taken over."""

    writes: tuple[Buffer, ...]
    """Buffers in memory that stages store or accumulate into."""

    reuses: tuple[tuple[str, str], ...] = ()
    """Pairs (written, read): the written buffer may take the memory of the read one, because each
    point reads it before it writes the same element."""

    origins: tuple[Origin, ...] = field(default=(), compare=False)

    @property
    def device(self) -> str:
        """Where the kernel runs: the device of what it writes, and of all that it reads."""
        return self.writes[0].layout.device

    @property
    def walked(self) -> tuple[LoopSymbol, ...]:
        """The outer loops whose points are walked over in order, since something is gathered along
        them; they are the innermost.
        """
        actions = (action for stage in self.stages for action in stage.actions)
        gathered = next((action for action in actions if isinstance(action, Gather)), None)
        if gathered is None:
            return ()
        named = gathered.index.free()
        return tuple(symbol for symbol in self.outer if symbol not in named)

    @property
    def scanned_rows(self) -> frozenset[str]:
        """The locals that are rows which scans fill: no stage can compute them again."""
        rows = {local.name for local in self.locals if local.size}
        actions = (action for stage in self.stages for action in stage.actions)
        scans = (action.buffer for action in actions if isinstance(action, ScanStore))
        return frozenset(rows.intersection(scans))

    @property
    def taken_over(self) -> tuple[tuple[str, str], ...]:
        """The pairs of `reuses` that are required: a scatter combines into memory that begins as
        its base, or as a copy of it.
        """
        actions = (action for stage in self.stages for action in stage.actions)
        combined = {action.buffer for action in actions if isinstance(action, Accumulate)}
        return tuple(pair for pair in self.reuses if pair[0] in combined)


StepWork = Group | RowStatement
"""One step of a schedule: a kernel's work, a library call or a copy."""


def kept_buffers(works: Sequence[StepWork]) -> frozenset[str]:
    """Buffers that somebody outside may hold at any time behind the call that is given them: their
    memory is nobody else's to take, also when the program is done with it.
    """
    kept: set[str] = set()
    for work in reversed(works):
        if isinstance(work, CallOperator | CallSubprogram) and work.may_keep_arguments:
            kept.update(buffers_read(work))
        if isinstance(work, CallOperator):
            kept.update(base for alias, base in work.aliases if alias in kept)
    return frozenset(kept)


@record(kw_only=True)
class ScheduledStep:
    """A kernel, library call or copy at its place in the order, and whose memory ends with it."""

    work: StepWork

    takes_over: tuple[tuple[str, str], ...] = ()
    """Pairs (written, read), chosen from the group's `reuses`: the written buffer lies in the
    memory of the read one, which nothing uses afterwards under its old name.
    """

    last_uses: tuple[str, ...] = ()
    """Buffers that nothing uses after this step, in order of use; without those taken over, and
    without constants, which live as long as the compiled program.
    """

    @property
    def does_nothing(self) -> bool:
        """Whether it would write each element of memory that it takes over to where it is."""
        group, sources = self.work, dict(self.takes_over)
        if not isinstance(group, Group):
            return False
        layouts = {buffer.name: buffer.layout for buffer in (*group.reads, *group.writes)}
        return all(
            isinstance(action, Store)
            and isinstance(action.value, Load)
            and action.index == action.value.index
            and action.value.buffer == sources.get(action.buffer)
            and layouts[action.buffer] == layouts[action.value.buffer]
            for stage in group.stages
            for action in stage.actions
        )


@record(kw_only=True)
class Schedule:
    """The decisions of scheduling: kernels, library calls and copies in order."""

    program: Program
    """The program as it was scheduled, without dead statements: the next stages read its inputs,
    constants, sizes and outputs.
    """

    steps: tuple[ScheduledStep, ...]

    in_pieces: frozenset[str] = frozenset()
    """Buffers that are too large to be whole at any time: kernels have to hand them on piece by
    piece.
    """

    @property
    def works(self) -> tuple[StepWork, ...]:
        """The work of each step."""
        return tuple(step.work for step in self.steps)
