"""The command `fusewright`; each subcommand is one function here."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer

    from fusewright import opgen as generator
except ModuleNotFoundError as error:
    raise SystemExit(f"{error}: pip install 'fusewright[opgen]'") from None
from fusewright.compiler import compilers_made
from fusewright.errors import FusewrightError
from fusewright.inspect.explanation import explain_compiler

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """A compiler for PyTorch programs, and tools around it."""


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def explain(
    program: Annotated[Path, typer.Argument(help="A Python program.", exists=True, dir_okay=False)],
    arguments: Annotated[list[str] | None, typer.Argument(help="What it is called with.")] = None,
) -> None:
    """Run a program as it is, and tell what its compiled functions did: graphs, breaks, recompiles,
    each with the line and the reason.
    """
    sys.argv = [str(program), *(arguments or [])]
    sys.path.insert(0, str(program.resolve().parent))
    with compilers_made() as made:
        try:
            runpy.run_path(str(program), run_name="__main__")
        finally:
            told = [compiler for compiler in made if compiler.events]
            for compiler in told:
                typer.echo(f"\n{explain_compiler(compiler, next(iter(compiler.events)).function)}")
            if not told:
                typer.echo("nothing was compiled: no compiled function was called")


@app.command()
def opgen(
    description: Annotated[
        Path | None, typer.Argument(help="The backend's YAML file.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("generated"),
    target: Annotated[
        list[str], typer.Option(help="What to generate: cpp, python; repeat for both.")
    ] = list(generator.TARGETS),  # noqa: B006  typer copies it
    callable_operators: Annotated[
        bool,
        typer.Option("--callable", help="Also define C++ functions at::<backend>::<operator>."),
    ] = False,
    per_file: Annotated[
        int, typer.Option(min=1, help="About how many operators stand in one C++ file.")
    ] = generator.PER_FILE,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite files that were edited by hand.")
    ] = False,
    survey: Annotated[
        bool, typer.Option("--survey", help="Print totals over all of torch's operators instead.")
    ] = False,
) -> None:
    """Generate the variants of a backend's operators from one kernel each."""
    if survey:
        typer.echo(generator.survey(generator.read_declarations()))
        return
    if description is None:
        raise typer.BadParameter("name a YAML file, or pass --survey")
    try:
        made = generator.read_plan(_read(description), str(description))
        files = generator.emit(
            made, targets=target, callable_operators=callable_operators, per_file=per_file
        )
        written = generator.write_files(files, out, force=force)
    except (FusewrightError, ValueError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(generator.summary(made))
    typer.echo(f"{len(written)} of {len(files)} files changed in {out}")
    for path in written:
        typer.echo(f"  {path.name}")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error.reason}, at byte {error.start}: not UTF-8") from error


if __name__ == "__main__":
    app()
