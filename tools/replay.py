"""Keeps the code that the compiler generates, and compares it after a change of the compiler:

    python -m tools.replay keep DIR
    python -m tools.replay compare DIR

A refactoring shows by it that nothing changed, and a change of a cost or a rule what it changed.
The programs are those of `tools/replay_programs.py`: `--models`, `--samples` and `--goldens` choose
among them, `--part K/N` every N-th, and `--language triton` writes the kernels for a GPU. No kernel
is run, and texts hold nothing of the machine, so that they may be kept on one and compared on
another.

DIR holds one text file a program. `compare` prints a diff for each that differs, and ends with 1 if
there is one.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools.replay_programs import CORPORA, LANGUAGES, REFUSALS, Generate, without_places

Texts = Iterator[tuple[str, str]]
"""Names of programs, each with the text generated for it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.replay", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("action", choices=["keep", "compare"])
    parser.add_argument("folder", type=Path, metavar="DIR")
    for corpus in CORPORA:
        parser.add_argument(f"--{corpus}", dest="corpora", action="append_const", const=corpus)
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N")
    parser.add_argument("--language", choices=list(LANGUAGES), default="cpu")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="programs with a WORD in the name"
    )
    options = parser.parse_args(arguments)

    corpora = options.corpora or list(CORPORA)
    every = {
        f"{corpus}/{name}": generate
        for corpus in corpora
        for name, generate in CORPORA[corpus]().items()
        if any(word in f"{corpus}/{name}" for word in options.only)
    }
    number, count = options.part
    chosen = dict(list(every.items())[number - 1 :: count])
    texts = ((name, text_of(name, chosen[name], options.language)) for name in chosen)
    if options.action == "keep":
        return keep(options.folder, texts)
    kept = {
        name
        for corpus in corpora
        for name in kept_names(options.folder, corpus)
        if any(word in name for word in options.only)
    }
    gone = sorted(kept - set(every)) if number == 1 else []
    return compare(options.folder, texts, gone)


def part(text: str) -> tuple[int, int]:
    """`2/8` as the second of eight parts. ValueError: it is no part."""
    number, count = map(int, text.split("/"))
    if not 1 <= number <= count:
        raise ValueError(f"{text}: the first part is 1/{count}, the last {count}/{count}")
    return number, count


def text_of(name: str, generate: Generate, language: str) -> str:
    """What is generated for a program, or the error with which the compiler refuses it. Any other
    error is raised, with a note that names the program.
    """
    try:
        text = generate(LANGUAGES[language])
    except REFUSALS as error:
        text = f"{type(error).__name__}: {error}"
    except Exception as error:
        error.add_note(f"while the code of {name} was generated")
        raise
    return without_places(text).rstrip("\n") + "\n"


def keep(folder: Path, texts: Texts) -> int:
    """Write each text to its file."""
    count = 0
    for name, text in texts:
        path = file_of(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        count += 1
    print(f"{count} programs kept in {folder}")
    return 0


def compare(
    folder: Path, texts: Texts, gone: Sequence[str], write: Callable[[str], object] = print
) -> int:
    """Print how texts differ from those that were kept, and which were kept of programs that are
    `gone`; return 1 if anything differs.
    """
    count = 0
    different = list(gone)
    for name in gone:
        write(f"{name}: was kept, and is no program any more")
    for name, text in texts:
        count += 1
        path = file_of(folder, name)
        if not path.exists():
            different.append(name)
            write(f"{name}: was not kept")
            continue
        kept = path.read_text()
        if text != kept:
            different.append(name)
            write(difference(name, kept, text))
    write(f"{len(different)} of {count} programs differ from those in {folder}")
    return int(bool(different))


def difference(name: str, before: str, after: str) -> str:
    """A diff under the program's name."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} kept", f"{name} now", lineterm=""
    )
    return "\n".join(lines)


def file_of(folder: Path, name: str) -> Path:
    """Where the text of a program is kept."""
    return folder / f"{name}.txt"


def kept_names(folder: Path, corpus: str) -> set[str]:
    """Names of a corpus's programs of which a text was kept."""
    files = (folder / corpus).rglob("*.txt")
    return {str(path.relative_to(folder).with_suffix("")) for path in files}


if __name__ == "__main__":
    sys.exit(main())
