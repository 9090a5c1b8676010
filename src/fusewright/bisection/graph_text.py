"""A captured graph as the text of a Python function, and tensors as expressions."""

from __future__ import annotations

import base64
import re
import types
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import fx

FUNCTION: Final = "program"
"""The name of the function."""

WIDTH: Final = 100
"""The longest line of a text in base 85."""


class CannotBeWritten(Exception):
    """A graph, or a tensor, has no text that stands alone; says why."""


def function_text(graph: fx.GraphModule) -> tuple[str, str]:
    """The imports that a graph needs, and the function that computes it. CannotBeWritten: it calls
    what no import leads to.
    """
    attribute = next(iter(graph.graph.find_nodes(op="get_attr")), None)
    if attribute is not None:
        raise CannotBeWritten(f"it reads the attribute {attribute.target}")
    code = graph.graph.python_code("self")
    imports = ["import torch"]
    used = set(re.findall(r"[A-Za-z_]\w*", code.src))
    for name, value in code.globals.items():
        if name not in used:
            continue
        line = _import_of(name, value)
        if line is not None and line not in imports:
            imports.append(line)
    lines = [line.rstrip() for line in code.src.strip("\n").split("\n")]
    start = next(place for place, line in enumerate(lines) if line.startswith("def forward("))
    head = lines[start].replace("def forward(self, ", f"def {FUNCTION}(")
    head = head.replace("def forward(self)", f"def {FUNCTION}()")
    head = head.split(") -> ")[0] + "):" if ") -> " in head else head
    body = [_without_release(line) for line in lines[start + 1 :]]
    return "\n".join(imports), "\n".join([head, *(line for line in body if line.strip())])


def _without_release(line: str) -> str:
    """A line without the `; x = None` behind it, by which fx frees values."""
    return line.split(";  ")[0].rstrip()


def _import_of(name: str, value: Any) -> str | None:
    """The line that gives a name its meaning; None where it needs none."""
    if value is torch:
        return None
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}"
    if name in ("inf", "nan"):
        return f"from math import {name}"
    if value is type(None):
        return f"{name} = type(None)"
    module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if value is torch.device:
        return "from torch import device" if name == "device" else f"{name} = torch.device"
    if module and qualified and "<" not in qualified and module != "__main__":
        imported: Any = __import__(module, fromlist=["_"])
        for part in qualified.split("."):
            imported = getattr(imported, part, None)
        if imported is value:
            first, *rest = qualified.split(".")
            if rest:
                return f"from {module} import {first}\n{name} = {qualified}"
            return f"from {module} import {qualified} as {name}"
    raise CannotBeWritten(f"it calls {value!r}, which no import leads to")


def tensor_text(value: Any, *, seed: int | None = None) -> str:
    """An expression that makes a value; `seed`: floating tensors are drawn anew, like these.
    CannotBeWritten: it has none.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value, seed)
    if isinstance(value, bool | int | float | complex | str | None):
        return repr(value)
    raise CannotBeWritten(f"an input is a {type(value).__name__}")


def _tensor(value: torch.Tensor, seed: int | None) -> str:
    if value.layout is not torch.strided:
        raise CannotBeWritten(f"an input has the layout {value.layout}")
    parts = [f"{tuple(value.shape)}", str(value.dtype)]
    dense = torch.empty_like(value, memory_format=torch.contiguous_format)
    if value.stride() != dense.stride():
        parts.append(f"stride={value.stride()}")
    if value.device.type != "cpu":
        parts.append(f"device={str(value.device)!r}")
    if value.requires_grad:
        parts.append("requires_grad=True")
    if seed is not None and value.is_floating_point() and value.numel() > 8:
        wide = value.detach().double()
        mean, deviation = float(wide.mean()), float(wide.std())
        parts.append(f"seed={seed}, mean={mean:.4g}, deviation={deviation:.4g}")
        return f"tensor({', '.join(parts)})"
    elements = value.detach().cpu().contiguous().flatten()
    if elements.numel() <= 16 and not elements.is_complex() and _reads_back(elements):
        parts.append(f"elements={elements.tolist()}")
        return f"tensor({', '.join(parts)})"
    data = zlib.compress(elements.view(torch.uint8).numpy().tobytes(), 9)
    text = base64.b85encode(data).decode()
    rows = [text[start : start + WIDTH] for start in range(0, len(text), WIDTH)]
    quoted = "\n".join(f'    r"{row}"' for row in rows)
    return f"tensor({', '.join(parts)}, data=(\n{quoted}\n))"


def _reads_back(elements: torch.Tensor) -> bool:
    """Whether the numbers are the same when they are read from text."""
    return bool(torch.isfinite(elements.double()).all())


def tensor(
    size: Sequence[int],
    dtype: torch.dtype,
    *,
    stride: Sequence[int] | None = None,
    device: str = "cpu",
    requires_grad: bool = False,
    elements: Sequence[Any] | None = None,
    data: str | None = None,
    seed: int | None = None,
    mean: float = 0.0,
    deviation: float = 1.0,
) -> torch.Tensor:
    """The tensor that `tensor_text` wrote: of these elements, of bytes in base 85, or drawn."""
    if elements is not None:
        values = torch.tensor(elements, dtype=dtype)
    elif data is not None:
        decoded = bytearray(zlib.decompress(base64.b85decode(data)))
        values = torch.frombuffer(decoded, dtype=dtype) if decoded else torch.empty(0, dtype=dtype)
    else:
        random = torch.Generator().manual_seed(seed or 0)
        count = torch.Size(size).numel()
        drawn = torch.randn(count, generator=random, dtype=torch.float64)
        values = (drawn * deviation + mean).to(dtype)
    values = values.reshape(tuple(size))
    if stride is not None:
        laid_out = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype)
        values = laid_out.copy_(values) if 0 not in stride else _repeated(values, size, stride)
    values = values.to(device)
    return values.requires_grad_() if requires_grad else values


def _repeated(values: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """A tensor some dimensions of which repeat one element."""
    once = values
    for dimension, step in enumerate(stride):
        if step == 0:
            once = once.narrow(dimension, 0, 1)
    return once.expand(tuple(size))


Program = Callable[..., Any]
