"""`fusewright.bisect` and `fusewright.minify`: find where what is computed goes wrong, and write a
small program that shows it.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from torch import fx

from fusewright.bisection.alone import (
    SLOWER,
    compile_seconds,
    described,
    write_graph,
    write_kernel,
)
from fusewright.bisection.captured import check_capture
from fusewright.bisection.graph_text import CannotBeWritten
from fusewright.bisection.kernels import KernelDiffers
from fusewright.bisection.search import GraphCheck, Trouble, build_of, first_trouble, same_trouble
from fusewright.bisection.shrink import Case, shrink
from fusewright.errors import Location, counted
from fusewright.inspect.explanation import shorten_paths
from fusewright.ir.origin import Origin
from fusewright.records import field, record

SHRINKING_SECONDS: Final = 20.0
"""The time for which `bisect` tries to make the graph of a program that it writes smaller."""


@record(kw_only=True)
class FirstFailure:
    """The first thing that goes wrong."""

    stage: str
    """`capture`, `aot`, `decomposition`, `partition`, `lowering`, `scheduling, pass fuse`,
    `kernels`, `wrapper` or `native plan`.
    """

    kernel: str | None
    """The kernel; None where it is no kernel's fault."""

    kind: str
    """`value`, `NaN`, `infinite`, `strides`, `shape`, `dtype`, `type`, `memory` or `crash`."""

    what: str
    """The value that differs: `result 0`, `gradient of input 1`, `input 2 after the call`, or a
    buffer.
    """

    detail: str
    """The difference, or the exception, in words."""

    lines: tuple[Origin | Location, ...]
    """The user's lines that are computed there."""

    error: float | None
    """The largest relative error; None where that is not what differs."""

    eager_error: float | None
    """Eager's."""

    wrong: int
    """The number of elements that differ."""

    elements: int
    program: Path | None
    """A program that shows it by itself; None where none could be written."""

    why_no_program: str = ""

    def __str__(self) -> str:
        where = f"kernel {self.kernel}, stage: {self.stage}" if self.kernel else self.stage
        own = f" above eager's own error ({self.eager_error:.1g})" if self.eager_error else ""
        head = f"first difference{own}: {where}" if self.kind != "crash" else f"crash in: {where}"
        lines = [head, *(f"  at         {_place(line)}" for line in self.lines[:3])]
        if self.error is not None and self.eager_error is not None:
            lines.append(
                f"  eager      largest relative error against float64: {self.eager_error:.1e}"
            )
            lines.append(f"  fusewright {self.error:.1e} in {self._count()}; {self.detail}")
        else:
            lines.append(f"  {self.what}: {self.detail}")
            if self.wrong:
                lines.append(f"  {self._count()} differ ({self.kind})")
        if self.program is not None:
            lines.append(f"  reproduction written to {self.program} (runs alone)")
        elif self.why_no_program:
            lines.append(f"  no reproduction was written: {self.why_no_program}")
        return "\n".join(lines)

    def _count(self) -> str:
        return f"{self.wrong:,} of {self.elements:,} elements of {self.what}"


@record(kw_only=True)
class Bisection:
    """The outcome of `bisect`."""

    finding: FirstFailure | None
    """The first wrong step; None: nothing differs by more than rounding explains."""

    graphs: int
    """Captured graphs that were checked."""

    kernels: int
    """Launches of kernels that were compared."""

    seconds: float

    def __str__(self) -> str:
        if self.finding is not None:
            return str(self.finding)
        graphs, launches = (
            counted(self.graphs, "graph"),
            counted(self.kernels, "kernel launch", "es"),
        )
        return (
            f"nothing differs by more than rounding explains: {graphs}, {launches}, every stage "
            "compared with float64"
        )


class Arguments(NamedTuple):
    """Arguments by position and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as users give them: a tuple or list of positions, a dictionary of names, or one."""
    if isinstance(inputs, Arguments):
        return inputs.args, inputs.kwargs
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    return (inputs,), {}


def bisect(
    target: Callable[..., Any],
    inputs: Any = (),
    *,
    folder: Path | str = ".",
    seconds: float = SHRINKING_SECONDS,
    **keywords: Any,
) -> Bisection:
    """Find the first stage, kernel and line at which a compiled call goes wrong.

    `target` is a function or module, `inputs` its arguments: a tuple, a dictionary of keywords, or
    one value. Each graph that is captured runs eagerly, in double precision, and as far as each
    stage of the compiler; where it requires grad, so do its gradients. `folder`: where a program is
    written that shows the fault by itself; `seconds`: for how long that is made smaller. Other
    keywords are those of `compile`. The target is called on copies, several times. Raises what the
    call itself raises.
    """
    began = time.monotonic()
    search = _Search(folder=Path(folder), seconds=seconds)
    args, kwargs = call_of(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        trouble = check_capture(target, args, kwargs, keywords, search.check)
    finding = search.finding if trouble is None else _finding(trouble, None, "")
    return Bisection(
        finding=finding,
        graphs=search.graphs,
        kernels=sum(search.counts),
        seconds=time.monotonic() - began,
    )


@record(frozen=False, kw_only=True)
class _Search:
    """Checks captured graphs, until one goes wrong."""

    folder: Path
    seconds: float
    finding: FirstFailure | None = None
    graphs: int = 0
    counts: list[int] = field(default_factory=list)
    """The number of launches compared in each call of a checked half."""

    def check(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> None:
        """Check one graph, unless an earlier one went wrong."""
        if self.finding is not None:
            return
        self.graphs += 1
        check = GraphCheck.of(graph, inputs)
        trouble = first_trouble(check, self.counts)
        if trouble is not None:
            self.finding = self._written(check, trouble)

    def _written(self, check: GraphCheck, trouble: Trouble) -> FirstFailure:
        """The finding, with a program that shows it."""
        try:
            if isinstance(trouble.error, KernelDiffers):
                title = f"{trouble.error.kernel}: {trouble.error}"
                path = write_kernel(trouble.error, title, self.folder)
            else:
                path = _write_shrunk(check, trouble, self.folder, self.seconds)
        except (CannotBeWritten, OSError) as error:
            return _finding(trouble, None, str(error))
        return _finding(trouble, path, "")


def _write_shrunk(check: GraphCheck, trouble: Trouble, folder: Path, seconds: float) -> Path:
    shows = functools.partial(same_trouble, trouble, build_of(trouble.stage))
    case = shrink(Case(graph=check.graph, inputs=check.inputs), shows, seconds)
    return write_graph(
        case.graph,
        case.inputs,
        trouble.stage,
        described(trouble),
        folder,
        lambda inputs: shows(case.graph, inputs),
    )


def _finding(trouble: Trouble, program: Path | None, why_no_program: str) -> FirstFailure:
    error = trouble.error
    differs = trouble.differs
    detail = differs.detail if differs else f"{type(error).__name__}: {error}"
    kernel, what = None, trouble.what
    if isinstance(error, KernelDiffers):
        kernel, what = error.kernel, error.buffer or trouble.what
        if error.cause is not None:
            detail = f"{type(error.cause).__name__}: {error.cause}"
    return FirstFailure(
        stage=trouble.stage,
        kernel=kernel,
        kind=trouble.kind,
        what=what,
        detail=detail,
        lines=tuple(dict.fromkeys(map(_with_text, trouble.origins))),
        error=differs.error if differs else None,
        eager_error=differs.eager_error if differs else None,
        wrong=differs.wrong if differs else 0,
        elements=differs.elements if differs else 0,
        program=program,
        why_no_program=why_no_program,
    )


def _with_text(line: Origin | Location) -> Origin | Location:
    is_bare = isinstance(line, Location) and not line.text
    return line.with_text() if is_bare else line  # type: ignore[union-attr]


def _place(line: Origin | Location) -> str:
    return shorten_paths(str(line))


# Minify -------------------------------------------------------------------------------------------


@record(kw_only=True)
class Minified:
    """The smallest graph found that shows a fault."""

    why: str
    """The fault in words."""

    graph: fx.GraphModule
    inputs: tuple[Any, ...]
    operators_before: int
    operators: int
    program: Path | None
    """A program of it that runs alone; None where none could be written."""

    why_no_program: str = ""

    def __str__(self) -> str:
        lines = [self.why, f"  {self.operators_before} operators became {self.operators}"]
        if self.program is not None:
            lines.append(f"  written to {self.program} (runs alone)")
        elif self.why_no_program:
            lines.append(f"  no program was written: {self.why_no_program}")
        return "\n".join(lines)


def minify(
    target: Callable[..., Any],
    inputs: Any = (),
    *,
    slower_than: float | None = None,
    folder: Path | str = ".",
    seconds: float = 60.0,
    **keywords: Any,
) -> Minified | None:
    """The smallest graph found that crashes the compiler, gives a wrong number, or takes more than
    `slower_than` seconds to compile; None where nothing is wrong.

    Arguments are those of `bisect`. The program that is written shows the fault by itself.
    """
    minified: list[Minified] = []

    def check(graph: fx.GraphModule, graph_inputs: Sequence[Any]) -> None:
        if not minified:
            result = _minified(graph, graph_inputs, slower_than, Path(folder), seconds)
            minified.extend([result] if result else [])

    args, kwargs = call_of(inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        check_capture(target, args, kwargs, keywords, check)
    return minified[0] if minified else None


def _minified(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    slower_than: float | None,
    folder: Path,
    seconds: float,
) -> Minified | None:
    case = Case(graph=graph, inputs=tuple(inputs))
    if slower_than is not None:
        limit = slower_than
        why, stage = f"compiling takes more than {limit:g} s", f"{SLOWER}{limit:g} s"

        def shows(module: fx.GraphModule, values: Sequence[Any]) -> bool:
            return compile_seconds(module, values) > limit

        if not shows(graph, inputs):
            return None
    else:
        trouble = first_trouble(GraphCheck.of(graph, inputs), [])
        if trouble is None:
            return None
        why, stage = described(trouble), trouble.stage
        shows = functools.partial(same_trouble, trouble, build_of(stage))
    smallest = shrink(case, shows, seconds)
    path, reason = None, ""
    try:
        path = write_graph(
            smallest.graph,
            smallest.inputs,
            stage,
            why,
            folder,
            lambda values: shows(smallest.graph, values),
        )
    except (CannotBeWritten, OSError) as error:
        reason = str(error)
    return Minified(
        why=why,
        graph=smallest.graph,
        inputs=smallest.inputs,
        operators_before=case.operators,
        operators=smallest.operators,
        program=path,
        why_no_program=reason,
    )
