"""Random programs of views, writes and results over inputs that share memory, compiled and in
eager; all is compared that a caller can see: values, which memory each result shows, versions,
gradients.

    python -m tests.end_to_end.aliasing_programs --first 0 --count 1000
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F

import fusewright

MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "plain": nullcontext,
    "grad": nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}

VIEWS = (
    "{a}[1:]", "{a}[::2]", "{a}[..., 0]", "{a}[..., 1:]", "{a}[None]", "{a}[0]", "{a}[-1:]",
    "{a}.t()", "{a}.transpose(0, -1)", "{a}.reshape(-1)", "{a}.view(-1)", "{a}.flatten()",
    "{a}.unsqueeze(-1)", "{a}.squeeze()", "{a}.detach()", "{a}.diagonal()", "{a}.unfold(-1, 2, 1)",
    "{a}.unfold(-1, 1, 2)", "{a}.expand(2, *{a}.shape)", "{a}.expand_as({b})", "{a}.contiguous()",
    "{a}.narrow(0, 1, 1)", "{a}.chunk(2)[-1]", "{a}.view_as({a})", "{a}.unflatten(0, (-1, 2))",
    "{a}.as_strided((2,), (1,))", "F.dropout({a}, 0.5, False)", "{a}.movedim(0, -1)",
    "{a}.view(torch.int32).view(torch.float32)", "{a}.T",
)  # fmt: skip

VALUES = (
    "{a} * 2", "{a}.sin()", "{a}.clone()", "{a} + {b}", "{a}.sum(0)", "{a}.sum()",
    "torch.cat([{a}, {b}])", "torch.where({a} > 0, {a}, {b})", "{a}.exp()",
    "{a}.mean(-1, keepdim=True)", "{a}.t().clone()", "torch.add({a}, 1, out=torch.empty(0))",
)  # fmt: skip

WRITES = (
    "{a}.mul_(2)", "{a}.add_({b})", "{a}.add_(1)", "{a}.zero_()", "{a}.fill_(3)", "{a}.copy_({b})",
    "{a}.sin_()", "{a}[0] = {b}.sum()", "{a}[..., 1:] = 2", "{a}[...] = {b}",
    "{a}.sub_({b}.mean())", "{a}.masked_fill_({a} > 1, 0)", "{a}.clamp_(-1, 1)",
    "{a}.fill_diagonal_(5)", "{a}.addcmul_({b}, {b})", "{a}.index_fill_(0, torch.tensor([0]), 4)",
    "torch.add({b}, 1, out={a})", "{a}.index_add_(0, torch.tensor([0]), {b}[:1])",
    "F.dropout({a}, 0.0, inplace=True)", "{a}.neg_()", "F.relu({a}, inplace=True)",
)  # fmt: skip

SCOPE = {"torch": torch, "F": F}


def inputs(seed: int, mode: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Inputs, and the leaves above them. Some share memory, in some program each way."""
    choose = random.Random(seed)
    values = torch.linspace(-2, 2, 24) + torch.arange(24) % 5
    leaf = values.clone().requires_grad_(mode == "grad")
    base = leaf * 1
    other = (values[:12].clone().requires_grad_(mode == "grad")) * 1
    grid = base.view(4, 6)
    kinds: list[Callable[[], torch.Tensor]] = [
        lambda: grid,
        lambda: grid[1:, ::2],
        lambda: base[3:15],
        lambda: grid.t(),
        lambda: base[2:20].view(3, 6),
        lambda: other.view(3, 4),
        lambda: other[:4].expand(3, 4),
        lambda: other,
        lambda: grid[0],
    ]
    count = choose.randint(1, 3)
    return [choose.choice(kinds)() for _ in range(count)], [leaf, base, other]


def generate(seed: int, mode: str) -> str:
    """The source of a program `f`, none of whose steps raises in eager."""
    choose = random.Random(seed + 1)
    given, _ = inputs(seed, mode)
    scope: dict[str, Any] = {**SCOPE, **{f"x{n}": one for n, one in enumerate(given)}}
    names = [f"x{n}" for n in range(len(given))]
    lines = [f"def f({', '.join(names)}):"]
    with MODES[mode]():
        for step in range(choose.randint(2, 9)):
            kind = choose.choices((VIEWS, VALUES, WRITES), (4, 2, 4))[0]
            text = choose.choice(kind).format(a=choose.choice(names), b=choose.choice(names))
            text = text if kind is WRITES else f"v{step} = {text}"
            if kind is WRITES and is_ambiguous(text, scope):
                continue
            try:
                exec(text, scope)
            except Exception:
                continue
            if kind is not WRITES:
                names.append(f"v{step}")
            lines.append("    " + text)
    results = [choose.choice(names) for _ in range(choose.randint(1, 3))]
    return "\n".join([*lines, f"    return ({', '.join(results)},)"])


def is_ambiguous(text: str, scope: dict[str, Any]) -> bool:
    """Whether what a statement writes depends on the order in which eager goes over elements: some
    are one in memory, or it reads others of those that it writes.
    """
    tensors = [scope[name] for name in re.findall(r"\bx\d+|\bv\d+", text)]
    if any(len(places(one).unique()) < one.numel() for one in tensors):
        return True
    return any(
        not torch.equal(places(one), places(other))
        and bool(torch.isin(places(one), places(other)).any())
        for one, other in itertools.combinations(tensors, 2)
    )


def places(tensor: torch.Tensor) -> torch.Tensor:
    """The place of each element of a tensor in memory."""
    place = torch.tensor([tensor.data_ptr()])
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        place = (place[:, None] + torch.arange(size) * stride * tensor.itemsize).flatten()
    return place


def strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: of dimensions of several elements."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1]


def build(source: str) -> Callable[..., Any]:
    scope: dict[str, Any] = dict(SCOPE)
    exec(compile(source, f"program {abs(hash(source))}", "exec"), scope)
    return scope["f"]  # type: ignore[no-any-return]


def outcome(function: Callable[..., Any], seed: int, mode: str) -> dict[str, Any]:
    """What the caller of a program sees."""
    given, leaves = inputs(seed, mode)
    seen = [*given, *leaves]
    try:
        with MODES[mode]():
            results = function(*given)
    except (RuntimeError, IndexError) as error:
        return {"raised": type(error).__name__, "values": [one.detach() for one in seen]}
    every = [*results, *seen]
    pointers = [one.untyped_storage().data_ptr() for one in every]
    found: dict[str, Any] = {
        "values": [one.detach().clone() for one in every],
        "identity": [next(n for n, one in enumerate(every) if one is each) for each in every],
        "memory": [pointers.index(one) for one in pointers],
        "geometry": [(tuple(one.shape), strides(one), one.dtype) for one in every],
        "offsets": [
            one.storage_offset()
            for one, pointer in zip(every, pointers, strict=True)
            if pointer in pointers[len(results) :]
        ],
        "gradient wanted": [one.requires_grad for one in results],
        "versions": [mode != "inference" and one._version > 0 for one in given],
    }
    if mode == "grad":
        found |= gradients(results, given, leaves)
    return found


def gradients(results: Any, given: Any, leaves: Any) -> dict[str, Any]:
    try:
        losses = [
            (one * torch.linspace(0.5, 1.5, one.numel()).view(one.shape)).sum()
            for one in (*results, *given, leaves[1], leaves[2])
            if one.requires_grad
        ]
        sum(losses).backward()  # type: ignore[union-attr]
    except RuntimeError as error:
        return {"backward": str(error)[:40]}
    return {"gradients": [leaves[0].grad]}


def differences(seed: int, mode: str, strict: bool = True) -> tuple[str, list[str]]:
    """A program, and in what its compiled version differs from eager."""
    source = generate(seed, mode)
    expected = outcome(build(source), seed, mode)
    options = {"strict": True} if strict and "raised" not in expected else {}
    function = fusewright.compile(build(source), options=options)
    found = [outcome(function, seed, mode) for _ in range(2)]
    return source, [text for each in found for text in compare(expected, each)]


def compare(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    texts = []
    for name in expected.keys() | found.keys():
        wanted, given = expected.get(name), found.get(name)
        try:
            torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-4, equal_nan=True)
        except (AssertionError, TypeError, ValueError):
            if given != wanted if name not in ("values", "gradients") else True:
                texts.append(f"{name}: eager {wanted}, compiled {given}")
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--fallbacks", action="store_true", help="tell of what is not compiled")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong = eager = 0
    for seed in range(options.first, options.first + options.count):
        mode = list(MODES)[seed % len(MODES)]
        try:
            source, texts = differences(seed, mode)
        except fusewright.errors.FusewrightError as error:
            eager += 1
            source, texts = differences(seed, mode, strict=False)
            if options.fallbacks:
                print(f"--- {seed} {mode} is not compiled: {error}\n{source}", flush=True)
        if texts:
            wrong += 1
            print(
                f"=== {seed} {mode}\n{source}\n" + "\n".join(text[:600] for text in texts[:3]),
                flush=True,
            )
    print(f"{options.count} programs, {wrong} differ, {eager} not compiled whole")


if __name__ == "__main__":
    main()
