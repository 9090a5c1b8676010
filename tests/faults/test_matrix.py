"""Whatever happens in whichever stage of a compile, the program goes on: by eager with one warning
(under `strict` the error says what happened), by compiled code where a stage can do without what is
lost, or by the exception that was asked for. Nothing of the process stays changed, no file is left
half written, no lock is held, and the next compile, on another thread, works.

A row is a stage, a column a fault that strikes before or behind it. A training step passes all
stages; those of its backward half are struck at their second call.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import itertools
import os
import resource
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import fusewright
from fusewright import generation, pipeline, plans
from fusewright.capture import frame_capture
from fusewright.errors import FusewrightError
from fusewright.runtime import llvm_engine
from fusewright.runtime.kept_files import KeptFiles
from tests.leftovers import nothing_left_changed

SECONDS = 60
"""How long another thread, or a forked process, may take."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A function that a compile calls, where it is looked up."""

    owner: Any
    name: str
    call: int = 1
    """Which of its calls is struck: the second belongs to the backward half."""


STAGES: dict[str, Stage] = {
    "capture": Stage(frame_capture, "_trace"),
    "aot": Stage(pipeline, "trace_training"),
    "partition": Stage(pipeline, "min_cut_rematerialization_partition"),
    "lower": Stage(generation, "lower"),
    "schedule": Stage(generation, "fuse"),
    "kernels": Stage(generation, "define_kernels"),
    "wrapper": Stage(generation, "generate_lines"),
    "emit": Stage(generation, "emit_module"),
    "load": Stage(pipeline, "load_module"),
    "machine code": Stage(llvm_engine.MachineCodeCompiler, "object_code"),
    "keep machine code": Stage(KeptFiles, "write"),
    "native plan": Stage(plans, "load_plan"),
    "lower backward": Stage(generation, "lower", 2),
    "machine code of backward": Stage(llvm_engine.MachineCodeCompiler, "object_code", 2),
    "native plan of backward": Stage(plans, "load_plan", 2),
}


class Injected(RuntimeError):
    """What a fault raises."""


_FACTORS = itertools.count(2)


class Trial:
    """A function that nobody has compiled, and its cache folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.forked: list[int] = []
        """The processes that were forked."""

        self.is_fork = False
        self.cleanups: list[Callable[[], object]] = []
        factor = next(_FACTORS)

        def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return (x * factor).sin().matmul(w).cumsum(0).square().mul(factor).mean()

        self.program = program

    def step(self, strict: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The result and the gradient of a step; compiled anew unless `strict` is None."""
        x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
        w = torch.linspace(0, 1, 20, dtype=torch.float64).reshape(4, 5).requires_grad_()
        program: Any = self.program
        if strict is not None:
            program = fusewright.compile(program, options={"strict": strict})
        result = program(x, w)
        return result.detach(), torch.autograd.grad(result, w)[0]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens in a stage."""

    strike: Callable[[Trial], object]
    goes_on: str = "eagerly"
    """How: "eagerly", with a warning; "compiled", with none; or "not": what it raises passes."""

    in_thread: bool = False
    """Whether it strikes another thread, which compiles the same first."""

    @property
    def ways(self) -> tuple[bool, ...]:
        """Values of `strict` under which the program goes on differently."""
        return (False, True) if self.goes_on == "eagerly" else (False,)


def raising(error: BaseException) -> Callable[[Trial], None]:
    def strike(trial: Trial) -> None:
        raise error

    return strike


def fill_disk(trial: Trial) -> None:
    """No file may grow from now on: what a full disk does, for real."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    trial.cleanups.append(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))


def lose_folder(trial: Trial) -> None:
    """Nothing can be read from, or written to, the cache folder: it is a file."""
    if trial.folder.is_dir():
        shutil.rmtree(trial.folder)
        trial.folder.write_text("no folder")


def refuse_writes(trial: Trial) -> None:
    """A disk that is only read. Permissions do not stop an administrator, who may run this."""
    real = os.open

    def opened(path: Any, flags: int, *rest: Any, **keywords: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *rest, **keywords)

    patch = mock.patch.object(os, "open", opened)
    patch.start()
    trial.cleanups.append(patch.stop)


def plant_files(trial: Trial) -> None:
    """Others write to the folder: every file in it is theirs, or a link to a folder of theirs."""
    trial.folder.chmod(0o777)
    for path in sorted(trial.folder.rglob("*")):
        if path.is_file():
            path.write_bytes(b"raise SystemExit('planted')\n" * 40)
            path.chmod(0o666)
    theirs = trial.folder.with_name(trial.folder.name + "-theirs")
    objects = trial.folder / "objects"
    if objects.is_dir() and not objects.is_symlink():
        objects.rename(theirs)
        objects.symlink_to(theirs)


def fork(trial: Trial) -> None:
    """From here on two processes go on."""
    child = os.fork()
    trial.is_fork = child == 0
    if trial.is_fork:
        signal.alarm(SECONDS)
    trial.forked.append(child)


def end_thread(trial: Trial) -> None:
    """The thread that compiles ends."""
    assert threading.current_thread() is not threading.main_thread()
    raise SystemExit


FAULTS: dict[str, Fault] = {
    "an exception": Fault(raising(Injected("here"))),
    "no memory": Fault(raising(MemoryError("here"))),
    "no memory of torch": Fault(raising(torch.OutOfMemoryError("here"))),
    "recursion": Fault(raising(RecursionError("here"))),
    "an error of the system": Fault(raising(OSError(errno.EMFILE, "here"))),
    "an exit": Fault(raising(SystemExit(3)), "not"),
    "an interrupt": Fault(lambda trial: signal.raise_signal(signal.SIGINT), "not"),
    "a full disk": Fault(fill_disk, "compiled"),
    "a read-only disk": Fault(refuse_writes, "compiled"),
    "no folder": Fault(lose_folder, "compiled"),
    "a hostile folder": Fault(plant_files, "compiled"),
    "a fork": Fault(fork, "compiled"),
    "a thread that ends": Fault(end_thread, "compiled", in_thread=True),
    "a collection": Fault(lambda trial: gc.collect(), "compiled"),
}


@contextmanager
def struck(stage: Stage, trial: Trial, strike: Callable[[Trial], object], before: bool) -> Any:
    """A fault strikes before or behind one call of a stage."""
    original = getattr(stage.owner, stage.name)
    calls: list[None] = []

    def call(*arguments: Any, **keywords: Any) -> Any:
        calls.append(None)
        strikes = len(calls) == stage.call
        if strikes and before:
            strike(trial)
        result = original(*arguments, **keywords)
        if strikes and not before:
            strike(trial)
        return result

    with mock.patch.object(stage.owner, stage.name, call):
        try:
            yield
        finally:
            for clean_up in trial.cleanups:
                clean_up()
            trial.cleanups.clear()
    assert len(calls) >= stage.call, "the fault has struck"


@pytest.fixture
def trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Trial]]:
    """Gives trials with cache folders of their own, in which nothing is left half written, and
    which nobody has locked at the end.
    """
    folders: list[Path] = []

    def new() -> Trial:
        folders.append(tmp_path / f"cache{len(folders)}")
        folders[-1].mkdir(mode=0o700)
        monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(folders[-1]))
        return Trial(folders[-1])

    yield new
    for folder in filter(Path.is_dir, folders):
        assert not [*folder.rglob("*.tmp")], "a file is left half written"
        for path in folder.rglob("*.lock"):
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def ended_well(trial: Trial) -> bool:
    """Whether each forked process did."""
    statuses = [os.waitpid(child, 0)[1] for child in trial.forked]
    trial.forked.clear()
    return all(os.waitstatus_to_exitcode(status) == 0 for status in statuses)


def run(trial: Trial, stage: Stage, fault: Fault, *, before: bool, strict: bool) -> None:
    """One compile that is struck, and what has to hold of it."""
    error: BaseException | None = None
    result: Any = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with struck(stage, trial, fault.strike, before):
            try:
                if fault.in_thread:
                    in_thread(lambda: trial.step(strict))
                result = trial.step(strict)
            except BaseException as raised:
                error = raised
    expected = trial.step(None)
    if trial.is_fork:
        os._exit(0 if error is None and _close(result, expected) else 1)
    ours = [str(warning.message) for warning in caught if "eagerly" in str(warning.message)]
    match fault.goes_on:
        case "not":
            assert isinstance(error, (SystemExit, KeyboardInterrupt)) and not ours
        case "eagerly" if strict:
            assert isinstance(error, FusewrightError), error
            assert any(word in str(error) for word in ("here", "recursion")), error
        case _:
            assert error is None and _close(result, expected), error
            assert len(ours) == (fault.goes_on == "eagerly"), ours
    assert ended_well(trial)


def in_thread(function: Callable[[], object]) -> Any:
    """What a function gives on a thread of its own; None where that ends."""
    results: list[Any] = []

    def target() -> None:
        with suppress(SystemExit):
            results.append(function())

    thread = threading.Thread(target=target)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "it waits for ever"
    return results[0] if results else None


def _close(result: Any, expected: Any) -> bool:
    return all(torch.allclose(*pair, rtol=1e-5) for pair in zip(result, expected, strict=True))


@pytest.fixture(autouse=True, scope="module")
def what_compiling_loads_stays() -> None:
    """Collections, and processes that are forked, leave alone what the first compile has made."""
    Trial(Path()).step(strict=True)
    gc.collect()
    gc.freeze()


ONLY_BEFORE = ("no memory", "no memory of torch", "recursion", "an error of the system")
"""Errors that strike no place but one in front of a stage: they differ in who handles them, who is
the same behind it; what it leaves there is seen with "an exception".
"""

EVERYTHING = os.environ.get("FUSEWRIGHT_TEST_ALL") == "1"
"""Whether a fault strikes a stage on both sides, instead of on one: behind every other stage, and
in front of those between.
"""

EVERY: int = 11
"""One case of so many is in `make test`, each stage and each fault among them."""


def is_tried(stage: str, fault: str, before: bool) -> bool:
    if fault in ONLY_BEFORE:
        return before
    return EVERYTHING or before == (([*STAGES].index(stage) + [*FAULTS].index(fault)) % 2 == 0)


CASES = [
    pytest.param(
        *case,
        id="-".join(case[:2]) + ("-before" if case[2] else "-behind"),
        marks=() if number % EVERY == 0 else pytest.mark.thorough,
    )
    for number, case in enumerate(
        case for case in itertools.product(STAGES, FAULTS, (True, False)) if is_tried(*case)
    )
]


@pytest.mark.parametrize(("stage", "fault", "before"), CASES)
def test_the_program_goes_on(
    trials: Callable[[], Trial], stage: str, fault: str, before: bool
) -> None:
    for strict in FAULTS[fault].ways:
        trial = trials()
        with nothing_left_changed():
            run(trial, STAGES[stage], FAULTS[fault], before=before, strict=strict)
    assert _close(in_thread(partial(trial.step, strict=True)), trial.step(None))
