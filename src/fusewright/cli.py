"""The command `fusewright`; each subcommand is one function here."""

from __future__ import annotations

import importlib
import runpy
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

try:
    import typer
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: pip install 'fusewright[tools]'") from None
from fusewright.compiler import Compiler, compilers_made
from fusewright.errors import FusewrightError
from fusewright.inspect.explanation import Explanation, explain_compiler
from fusewright.ir.text import print_schedule

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",  # which wraps lines anew
    pretty_exceptions_enable=False,
)

UNDERSTAND: Final = "Understand a program"
MEND: Final = "Find what is wrong"
DEPLOY: Final = "Take a program elsewhere"
DEVELOP: Final = "Develop fusewright, or hardware"


@app.callback()
def main() -> None:
    """A compiler for PyTorch programs, and tools around it.

    Commands that take a PROGRAM run it as Python would; what follows its name is the program's.
    """


OF_A_PROGRAM: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Settings of commands that run a program: what follows its name is the program's."""

NOTHING: Final = (
    "nothing was compiled: the program called no function or module that fusewright.compile gave it"
    "\n  torch.compile's are another compiler's: put fusewright.compile in its place"
)

ProgramPath = Annotated[Path, typer.Argument(help="A Python program.", exists=True, dir_okay=False)]
Arguments = Annotated[list[str] | None, typer.Argument(help="What it is called with.")]


def _run(program: Path, arguments: list[str] | None) -> None:
    """Run a program as Python would, its uncaught exception included: that is printed without the
    lines of this command, and the exit status is 1.
    """
    sys.argv = [str(program), *(arguments or [])]
    sys.path.insert(0, str(program.resolve().parent))
    try:
        runpy.run_path(str(program), run_name="__main__")
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != str(program):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        raise typer.Exit(1) from None


def _explanations(compilers: list[Compiler]) -> list[Explanation]:
    """Explanations of the compilers that have compiled anything."""
    return [
        explain_compiler(compiler, next(iter(compiler.events)).function)
        for compiler in compilers
        if compiler.events
    ]


@app.command(context_settings=OF_A_PROGRAM, rich_help_panel=UNDERSTAND)
def explain(program: ProgramPath, arguments: Arguments = None) -> None:
    """Tell which graphs, breaks and recompiles a program has.

    The program runs as it is; then each graph break and recompile is told of with its line, its
    reason and what to change.
    """
    with compilers_made() as compilers:
        try:
            _run(program, arguments)
        finally:
            explanations = _explanations(compilers)
            for explanation in explanations:
                typer.echo(f"\n{explanation}")
            if not explanations:
                typer.echo(NOTHING)


@app.command(context_settings=OF_A_PROGRAM, rich_help_panel=UNDERSTAND)
def report(
    program: ProgramPath,
    arguments: Arguments = None,
    out: Annotated[Path, typer.Option(help="The page to write.", dir_okay=False)] = Path(
        "fusewright.html"
    ),
    timed: Annotated[
        bool, typer.Option("--time", help="Measure each kernel and library call.")
    ] = False,
) -> None:
    """Write a page of HTML about all that a program compiled.

    The program runs as it is. The page shows a timeline, breaks and recompiles in the source,
    graphs before and after fusion, kernels, memory and guards; it needs no network and no other
    file.
    """
    pages = importlib.import_module("fusewright.inspect.report")  # `--help` does without.
    with compilers_made() as compilers:
        try:
            _run(program, arguments)
        finally:
            explanations = _explanations(compilers)
            pages.write_page(explanations, out, title=program.name, time=timed)
            count = pages.with_plural(len(explanations), "compiled function")
            typer.echo(f"{count} told of in {out}" if explanations else NOTHING)


@app.command(context_settings=OF_A_PROGRAM, rich_help_panel=UNDERSTAND)
def profile(program: ProgramPath, arguments: Arguments = None) -> None:
    """Print where the time of a program goes, and what to change.

    The program runs as it is. The ten kernels and library calls of compiled code that take most of
    its time are printed, with the bytes that they move and how near that comes to what the machine
    can do.
    """
    profiling = importlib.import_module("fusewright.runtime.profiling")  # `--help` does without.
    costs = importlib.import_module("fusewright.inspect.costs")
    with compilers_made() as compilers, profiling.recording() as spent:
        try:
            _run(program, arguments)
        finally:
            costliest = costs.profile_of(spent, _explanations(compilers), time.perf_counter())
            typer.echo(f"\n{program.name}  {costliest}")


@app.command(context_settings=OF_A_PROGRAM, rich_help_panel=MEND)
def bisect(
    program: ProgramPath,
    arguments: Arguments = None,
    folder: Annotated[Path, typer.Option(help="Where small programs are written.")] = Path("."),
    seconds: Annotated[float, typer.Option(help="How long each is made smaller.")] = 20.0,
) -> None:
    """Find where a program's compiled functions go wrong.

    The program runs eagerly. Each function and module that it compiles is run as far as each stage
    of the compiler, beside float64: the first stage, kernel and line that are wrong are named, and
    a small program that shows it is written. The exit status is 1 where something is wrong.
    """
    programs = importlib.import_module("fusewright.bisection.programs")  # `--help` does without.
    bisection = programs.ProgramBisection(folder=folder, seconds=seconds)
    try:
        with programs.compile_calls_bisected(bisection):
            _run(program, arguments)
    finally:
        for text in bisection.texts():
            typer.echo(f"\n{text}")
        if not bisection.found:
            typer.echo(NOTHING)
    raise typer.Exit(int(bisection.goes_wrong))


@app.command(rich_help_panel=MEND)
def doctor() -> None:
    """Say what is installed and works here, and what to do about the rest.

    That is the processor, the speed of memory, threads, GPU, Triton, torch and caches. The exit
    status is 1 where programs cannot be compiled.
    """
    doctors = importlib.import_module("fusewright.inspect.doctor")  # `--help` does without.
    findings = doctors.examine(importlib.import_module("fusewright.api").compile)
    for finding in findings:
        typer.echo(finding)
    typer.echo(f"\n{doctors.summary(findings)}")
    raise typer.Exit(int(any(finding.kind == "failure" for finding in findings)))


@app.command(rich_help_panel=DEVELOP)
def opt(
    program: Annotated[
        Path, typer.Argument(help="A program of the loop IR, as text.", exists=True, dir_okay=False)
    ],
    passes: Annotated[
        list[str] | None,
        typer.Option("--pass", help="Run this pass; repeat for several. All of them."),
    ] = None,
    stop_after: Annotated[
        str | None, typer.Option(help="The last pass that runs, in the scheduler's order.")
    ] = None,
    print_each: Annotated[
        bool, typer.Option("--print", help="Print the program, or its steps, after each pass.")
    ] = False,
) -> None:
    """Run passes of the scheduler on a program's text, and print the schedule.

    Steps may stand behind the program, as `--print` shows them: passes then go on from there. What
    each pass gives is verified.
    """
    optimizer = importlib.import_module("fusewright.optimizer")  # `--help` does without.
    try:
        result = optimizer.optimize(_read(program), passes, stop_after)
    except (FusewrightError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    for name, text in result.after if print_each else ():
        typer.echo(f"# after {name}\n{text}")
    typer.echo(print_schedule(result.schedule), nl=False)


@app.command(rich_help_panel=DEPLOY)
def package(
    program: Annotated[
        Path,
        typer.Argument(
            help="A Python program that defines `model`, `args` or `kwargs`, and, where sizes "
            "vary, `dynamic_shapes`.",
            exists=True,
            dir_okay=False,
        ),
    ],
    path: Annotated[Path, typer.Argument(help="The file to write.")],
    processor: Annotated[
        list[str] | None,
        typer.Option(help="What to compile for: avx512, avx2, scalar, sm_90; repeat for several."),
    ] = None,
    weights: Annotated[
        bool, typer.Option(help="Store the weights in it; else they are given at loading.")
    ] = True,
    freeze: Annotated[
        bool, typer.Option(help="Store what is computed of weights alone in their place.")
    ] = False,
    tune: Annotated[
        bool, typer.Option(help="Write kernels in several ways, and time them on this machine.")
    ] = False,
    cpp: Annotated[
        Path | None,
        typer.Option(help="A folder for readable C++ of the model, and its kernels' object code."),
    ] = None,
) -> None:
    """Compile a model ahead of time to a file that runs without the compiler."""
    building = importlib.import_module("fusewright.packages.building")  # `--help` does without.
    sys.path.insert(0, str(program.resolve().parent))
    defined = runpy.run_path(str(program), run_name="__package_program__")
    if "model" not in defined:
        raise typer.BadParameter(f"{program} defines no `model`")
    try:
        building.aot_compile(
            defined["model"],
            defined.get("args", ()),
            defined.get("kwargs"),
            path,
            dynamic_shapes=defined.get("dynamic_shapes"),
            processors=processor or (),
            store_weights=weights,
            options={"freeze": freeze, "tune": tune},
            cpp=cpp or "",
        )
        typer.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
        # It is refused where nobody would load it, as in a folder that others may write to.
        container = importlib.import_module("fusewright.packages.container")
        entries = container.read_package(path, b"").manifest["entries"]
    except (FusewrightError, ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    for name, entry in entries.items():
        if entry["needs_python"]:
            typer.echo(f"{name} runs in Python alone: {entry['needs_python']}")


@app.command("run-package", rich_help_panel=DEPLOY)
def run_package(
    path: Annotated[Path, typer.Argument(help="A package.", exists=True, dir_okay=False)],
    inputs: Annotated[
        Path | None,
        typer.Option(
            help="Arguments by name, a dict of tensors as torch.save keeps it; random ones without."
        ),
    ] = None,
    entry: Annotated[str, typer.Option(help="The entry point to call.")] = "forward",
    size: Annotated[int, typer.Option(help="What sizes are that vary.", min=1)] = 8,
    repeat: Annotated[int, typer.Option(help="How often it is timed.", min=1)] = 20,
) -> None:
    """Load a package without the compiler, call it, and print its results and times."""
    running = importlib.import_module("fusewright.packages.running")
    try:
        report = running.run(path, inputs, entry, size, repeat)
    except (FusewrightError, OSError, AttributeError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(report, nl=False)


cache = typer.Typer(no_args_is_help=True, help="Machine code that is kept for later processes.")
app.add_typer(cache, name="cache", rich_help_panel=DEPLOY)


def _caches() -> Any:
    return importlib.import_module("fusewright.packages.caches")  # `--help` does without.


@cache.command("info")
def cache_info() -> None:
    """Where it is, how much there is, and how much there may be."""
    typer.echo(_caches().info(), nl=False)


@cache.command("clear")
def cache_clear() -> None:
    """Remove all of it; what is needed is compiled again."""
    _caches().clear()


@cache.command("export")
def cache_export(path: Annotated[Path, typer.Argument(help="The file to write.")]) -> None:
    """Write it to one file, for other machines."""
    try:
        typer.echo(f"{_caches().export_to(path)} files written to {path}")
    except OSError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@cache.command("import")
def cache_import(
    path: Annotated[Path, typer.Argument(help="A file of `cache export`.", exists=True)],
) -> None:
    """Take over what such a file holds; its machine code will be run."""
    try:
        typer.echo(f"{_caches().import_from(path)} files read from {path}")
    except (FusewrightError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


@app.command(rich_help_panel=DEVELOP)
def opgen(
    description: Annotated[
        Path | None, typer.Argument(help="The backend's YAML file.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("generated"),
    target: Annotated[
        list[str] | None, typer.Option(help="What to generate: cpp or python. Both.")
    ] = None,
    callable_operators: Annotated[
        bool,
        typer.Option("--callable", help="Also define C++ functions at::<backend>::<operator>."),
    ] = False,
    per_file: Annotated[
        int | None,
        typer.Option(min=1, help="About how many operators stand in one C++ file.", metavar="N"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that were edited by hand.")
    ] = False,
    survey: Annotated[
        bool, typer.Option("--survey", help="Print totals over all of torch's operators instead.")
    ] = False,
) -> None:
    """Generate the variants of a backend's operators from one kernel each."""
    try:
        generator = importlib.import_module("fusewright.opgen")  # Others do without.
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error}: pip install 'fusewright[opgen]'") from None
    if survey:
        typer.echo(generator.survey(generator.read_declarations()))
        return
    if description is None:
        raise typer.BadParameter("name a YAML file, or pass --survey")
    try:
        plan = generator.read_plan(_read(description), str(description))
        files = generator.emit(
            plan,
            targets=target or generator.TARGETS,
            callable_operators=callable_operators,
            per_file=per_file or generator.PER_FILE,
        )
        written = generator.write_files(files, out, force=force)
    except (FusewrightError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(generator.summary(plan))
    typer.echo(f"{len(written)} of {len(files)} files changed in {out}")
    for path in written:
        typer.echo(f"  {path.name}")


@app.command(rich_help_panel=DEVELOP)
def fuzz(
    kind: Annotated[
        list[str] | None,
        typer.Option(help="tensors, python, modules or loops; repeat for several. All of them."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Programs of each kind.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first program; others follow.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    resume: Annotated[
        Path | None,
        typer.Option(help="A folder for results, where a later run goes on.", file_okay=False),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="A class that counts as a finding; repeat for more.")
    ] = None,
    dynamic: Annotated[bool, typer.Option("--dynamic", help="Sizes are symbols always.")] = False,
    device: Annotated[str, typer.Option(help="Where programs run: cpu or cuda.")] = "cpu",
    guard_pages: Annotated[
        bool, typer.Option("--guard-pages", help="Kernels run between pages not to be touched.")
    ] = False,
    garbage: Annotated[
        bool, typer.Option("--garbage", help="New memory of compiled code is filled with NaN.")
    ] = False,
) -> None:
    """Run random programs eagerly and compiled, and compare.

    The exit status is 1 where they differ; docs/fuzzing.md says how to read the table.
    """
    campaign = importlib.import_module("fusewright.fuzz.campaign")  # `--help` does without.
    try:
        plan = campaign.plan_from(
            kinds=kind,
            count=count,
            seconds=seconds,
            seed=seed,
            jobs=jobs,
            folder=resume,
            only=only,
            dynamic=dynamic,
            device=device,
            guard_pages=guard_pages,
            garbage=garbage,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    run = campaign.Campaign(
        plan, lambda found: typer.echo(f"{found.kind} {found.seed}: {found.worst}", err=True)
    )  # Whoever ends the command early has read what was found by then.
    groups = run.run()
    typer.echo(run.report())
    if run.broken or groups:
        raise typer.Exit(3 if run.broken else 1)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error.reason}, at byte {error.start}: not UTF-8") from error


if __name__ == "__main__":
    app()
