"""A report as one page of HTML that needs no other file and no network.

Read in this order: `contents` (what it shows), `graphs`, `layout`, `memory`, `sources` (parts of
that); then `page.html.j2`, `page.css` and `page.js`, which show it.
"""

from __future__ import annotations

import datetime
import html
import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch

try:
    import jinja2
    import markupsafe
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: pip install 'fusewright[tools]'") from None

from fusewright import __version__
from fusewright.inspect.explanation import Explanation, merged_breaks, shorten_paths
from fusewright.inspect.machine import copy_bandwidth
from fusewright.inspect.report.contents import Contents, contents_of, short_kernel

__all__ = ["page", "write_page"]


def write_page(
    explanations: Sequence[Explanation],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    time: bool = False,
) -> None:
    """Write the report of what was compiled. `time`: kernels and library calls are measured on
    random inputs. Raises: OSError.
    """
    Path(path).write_text(page(explanations, title=title, time=time), encoding="utf-8")


def page(explanations: Sequence[Explanation], *, title: str = "", time: bool = False) -> str:
    """The report as text."""
    contents = contents_of(explanations, time=time)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        bytes=bytes_text,
        operations=operations_text,
        seconds=seconds_text,
        short=shorten_paths,
        kernel=short_kernel,
        ticks=with_code,
    )
    names = dict.fromkeys(explanation.function for explanation in explanations)
    return environment.get_template("page.html.j2").render(
        title=title or ", ".join(names) or "nothing",
        contents=contents,
        stages=_stages(contents),
        span=_span(contents),
        css=_file("page.css"),
        script=_file("page.js"),
        data=_json([program.data for program in contents.programs]),
        about=_about(),
        bandwidth=copy_bandwidth() if time else None,
        with_plural=with_plural,
        merged=merged_breaks,
    )


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _json(value: Any) -> str:
    """JSON that may stand in a script element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _about() -> str:
    now = datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
    threads = with_plural(torch.get_num_threads(), "thread")
    return f"fusewright {__version__}, torch {torch.__version__}, {threads}, {now}"


def _stages(contents: Contents) -> list[tuple[str, float]]:
    """Seconds by stage, all compiles together."""
    totals: dict[str, float] = {}
    for row in contents.rows:
        for bar in row.bars:
            totals[bar.stage] = totals.get(bar.stage, 0.0) + bar.seconds
    return list(totals.items())


def _span(contents: Contents) -> float:
    """Seconds from the first compile's begin to the last one's end."""
    ends = [bar.begin + bar.seconds for row in contents.rows for bar in row.bars]
    return max(ends, default=0.0) or 1.0


def with_plural(count: int, thing: str, plural: str = "s") -> str:
    """`1 graph`, `2 graphs`."""
    return f"{count:,} {thing}{'' if count == 1 else plural}"


def bytes_text(count: float) -> str:
    """`12.3 MB`."""
    return _scaled(count, "B")


def operations_text(count: float) -> str:
    """`12.3 GFLOP`."""
    return _scaled(count, "FLOP")


def _scaled(count: float, unit: str) -> str:
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {prefix}{unit}"
    return f"{count:.0f} {unit}"


def seconds_text(seconds: float) -> str:
    """`12.3 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def with_code(text: str) -> str:
    """Text as HTML, what stands between backticks as code."""
    parts = (html.escape(part) for part in text.split("`"))
    shown = (f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
    return markupsafe.Markup("".join(shown))
