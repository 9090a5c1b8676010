"""Writes docs/one-function.md, which follows one function through every stage, with what each stage
really makes of it:

    python -m tools.one_function_page
"""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path
from typing import Any

import torch

import fusewright
from fusewright.optimizer import optimize

PAGE = Path(__file__).parents[1] / "docs" / "one-function.md"

PROGRAM = """\
import torch


def centred(x, scale):
    y = torch.relu(x * scale)
    return y - y.mean(-1, keepdim=True)
"""

TEXT = """\
# One function through every stage

This page follows one small function from Python to machine code. What you see is what the
compiler prints (`FUSEWRIGHT_LOG=graphs,guards,functions,aten,loops,kernels,wrapper`);
`python -m tools.one_function_page` writes the page, and a test compares the two.

```python
{program}```

It is compiled for a CPU with AVX2, and called without gradients:

```python
compiled = fusewright.compile(centred, options={{"kernel_target": "avx2"}})
with torch.no_grad():
    compiled(torch.randn(4, 64), torch.randn(64))
```

## Capture

The frame hook sees the call and hands the function to the interpreter, which executes its
bytecode once with stand-ins for the tensors. Each operation on a stand-in becomes a node:

```
{graphs}
```

Whatever the function read on the way becomes a guard. A later call runs the compiled code only if
all of them hold; a C function tests them. Among them are these:

```
{guards}
```

The last two say what `x` and `scale` have to be. The first is there because the program asked the
module `torch` for `relu`, and somebody might put another function there.

When the later stages have compiled the graph, bytecode is written that runs in place of the
function. This is what it means:

```python
{function}
```

It has little to do here. Of a function that changes objects it makes these changes, and behind a
graph break it returns where to go on. If the graph raises, such as for an index out of range, the
call begins again as it was written, so that the exception comes from the program's own line.

## Ahead-of-time autograd

The graph is traced again, at the level of ATen operators. Writes to tensors become values, views
are followed, and if gradients were needed, this stage would add the backward half. Here nothing
needs them:

```
{aten}
```

## Lowering

Each operator becomes a loop body over the elements of its result. A value is kept lazily until
somebody needs it in memory, so that the multiplication and `relu` are one body already. The
comments carry the lines that the program was written on:

```
{loops}
```

## Scheduling

The scheduler decides which bodies share a kernel, in which order loops run, and what lives in
memory. Its passes work on nests of loops around the bodies, which still name buffers
(`fusewright opt --print` shows them after each pass). Fusion has put both bodies under the same
loop:

```
{nests}
```

So everything becomes one group: one row at a time, the sum first, then the subtraction.
`relu(x * scale)` is cheap, so it is computed twice and never stored. `reuse` says that the result
may take over the memory of an argument that nobody needs afterwards; an argument of the program
is somebody else's, so its memory stays:

```
{schedule}
```

## Kernels

The group is written as LLVM's text, with the vector width of the target. Names in a kernel are
canonical, so that two groups that do the same are the same text and are compiled once:

```llvm
{kernel}
```

For a GPU the same group would be written as a Triton kernel.

## The wrapper

What surrounds the kernels is a short list of lines in an intermediate representation of its own:
allocate, launch, call a library, free. The native plan runs those lines from C. Their readable
twin is a Python module, in which the kernel is told that there are 4 rows, and that a thread
should not take fewer than 158 of them:

```python
{wrapper}
```

Programs, nests, groups, kernels and lines parse back into what they were printed from, so that
every stage can be tested by itself. [The small version](the-small-version.md) is the same journey
in fewer than 500 lines of code, and [architecture.md](architecture.md) says where each stage lives.
"""


class _Messages(logging.Handler):
    """Keeps what the compiler says, by the name of the topic."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        topic = record.name.removeprefix("fusewright.")
        self.texts.setdefault(topic, []).append(record.getMessage())


def page() -> str:
    """The text of the page, for which the function is compiled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centred.py"
        path.write_text(PROGRAM)
        texts = _messages(path)
    texts = {
        topic: [text.replace(str(path), path.name) for text in found]
        for topic, found in texts.items()
    }
    program, schedule = texts["loops"][0].split("\nschedule\n")
    nests = dict(optimize(program).after)["fuse"]
    function = texts["functions"][0].partition("\n")[2].partition("\n\n")[0]
    kernel = texts["kernels"][0]
    body = "\n".join(re.findall(r"^  \| ?(.*)$", kernel, flags=re.M)).rstrip()
    wrapper = texts["wrapper"][0]
    call = wrapper[wrapper.index("def call") : wrapper.index("INPUTS")]
    return TEXT.format(
        program=PROGRAM,
        graphs=texts["graphs"][0].strip(),
        guards=_guards(texts["guards"][0]),
        function=function,
        aten=texts["aten"][0].strip(),
        loops=program.strip(),
        nests=nests.removeprefix("steps\n").rstrip(),
        schedule=schedule.rstrip(),
        kernel=body,
        wrapper=call.strip(),
    )


def _messages(path: Path) -> dict[str, list[str]]:
    variables: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), variables)
    logger, messages = logging.getLogger("fusewright"), _Messages()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(messages)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        options = {"kernel_target": "avx2", "strict": True}
        with torch.no_grad():
            fusewright.compile(variables["centred"], options=options)(
                torch.randn(4, 64), torch.randn(64)
            )
    finally:
        logger.removeHandler(messages)
        logger.setLevel(level)
        logger.propagate = propagate
    return messages.texts


def _guards(table: str) -> str:
    """Three rows of the table of guards, without what differs from process to process."""
    wanted = r"kind |tensor  +(?:x|scale) |identity  +torch\.relu "
    rows = [line for line in table.splitlines() if re.match(wanted, line)]
    rows = [re.sub(r" at 0x\w+", "", row).rstrip() for row in rows]
    return "\n".join(re.sub(r" {3,}", "   ", row) for row in rows)


if __name__ == "__main__":
    PAGE.write_text(page())
