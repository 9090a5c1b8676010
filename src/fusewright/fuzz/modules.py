"""Random modules and their training steps: modules in modules, buffers that are written to, shared
parameters, hooks, checkpoints, optimisers and schedulers, over some steps.

Parameters, their gradients, buffers, and the state of the optimiser are compared after each step.
"""

from __future__ import annotations

import random
import re
from typing import Final

from fusewright.fuzz.module_phrases import (
    BETWEEN,
    BRANCHES,
    DEFINITIONS,
    LEAVES,
    LOSSES,
    OPTIMIZERS,
    SCHEDULERS,
)
from fusewright.fuzz.program import ENDING, RandomProgram

HEAD: Final = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fusewright.fuzz import fill, leaf, show, weights
"""

FORMS: Final = ("module", "function", "step")
"""The callables that are compiled: the module, a function that calls it and computes the loss, or
that and the optimiser's step.
"""


def generate(seed: int) -> RandomProgram:
    """The program of a seed."""
    return RandomProgram("modules", seed, _Writer(random.Random(f"modules {seed}")).text())


class _Writer:
    """Writes one program."""

    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self.width = generator.choice([2, 4, 4, 6, 8, 16])

    def text(self) -> str:
        """The program as a file."""
        model = self._module(0)
        definitions = [
            "\n" + text.rstrip()
            for name, text in DEFINITIONS.items()
            if re.search(rf"\b{name}\(", model)
        ]
        form = self.random.choices(FORMS, [5, 4, 2])[0]
        trains = form == "step" or self.random.random() < 0.85
        if "Checkpointed(" in model and re.search("BatchNorm|Counter|Memory|Hooked", model):
            # What writes to its module in a checkpoint does so twice in eager.
            model = model.replace("Checkpointed(", "nn.Sequential(")
        model = f"nn.Sequential({model}, nn.Linear({self.width}, {self.width}))"
        setting = [f"MODEL = weights({model}, {self.random.randrange(1000)})"]
        if trains:
            setting.append(f"OPTIMIZER = {self.random.choice(OPTIMIZERS)}")
        has_scheduler = trains and self.random.random() < 0.3
        if has_scheduler:
            setting.append(f"SCHEDULER = {self.random.choice(SCHEDULERS)}")
        state = ["MODEL"] + ["OPTIMIZER"] * trains
        dynamic = self.random.choices(["None", "True", "False"], [6, 2, 2])[0]
        setting += [
            'MODE = "plain"',
            f"DYNAMIC = {dynamic}",
            f"CALLS = [{self._calls()}]",
            f"STATE = ({', '.join(map(repr, state))},)",
        ]
        return "\n".join(
            [
                HEAD,
                *definitions,
                "",
                *setting,
                "",
                "",
                *self._functions(form, trains, has_scheduler),
                ENDING,
            ]
        )

    def _module(self, depth: int) -> str:
        is_branch = depth < 3 and self.random.random() < (0.9, 0.5, 0.3)[depth]
        phrase = self.random.choice(BRANCHES if is_branch else LEAVES)
        text = phrase.replace("{n}", str(self.width))
        while "{module}" in text:
            text = text.replace("{module}", self._module(depth + 1), 1)
        return text

    def _calls(self) -> str:
        rank = self.random.choices([1, 2], [8, 2])[0]
        first = tuple(self.random.choice([2, 3, 4, 7, 9]) for _ in range(rank))
        calls = []
        for _ in range(self.random.choice([1, 2, 2, 3])):
            if self.random.random() < 0.3:
                first = tuple(self.random.choice([2, 3, 4, 7, 9]) for _ in range(rank))
            shape = (*first, self.width)
            calls.append(f"dict(seed={self.random.randrange(100)}, shape={shape})")
        return ", ".join(calls)

    def _functions(self, form: str, trains: bool, has_scheduler: bool) -> list[str]:
        loss = self.random.choice(LOSSES).replace("{n}", str(self.width))
        wants = self.random.random() < 0.4
        kind = self.random.choice(['"normal"', '"normal"', '"integers"', '"positive"'])
        tensor = f"fill(seed, shape, torch.float32, {kind}{', grad=True' if wants else ''})"
        make = ["def make(seed, shape):", f"    return [{tensor}]", "", ""]
        between = f"    {self.random.choice(BETWEEN)}" if self.random.random() < 0.3 else None
        after = [
            *([between] if between and trains else []),
            *(["    OPTIMIZER.step()"] if trains and form != "step" else []),
            *(["    SCHEDULER.step()"] if has_scheduler else []),
        ]
        zero = ["    OPTIMIZER.zero_grad()"] if trains and self.random.random() < 0.8 else []
        if form == "module":
            f = ["f = MODEL"]
            body = ["    out = f(x)", f"    loss = {loss}", "    loss.backward()"]
        elif form == "function":
            f = ["def f(x):", "    out = MODEL(x)", f"    return out, {loss}"]
            body = ["    out, loss = f(x)", "    loss.backward()"]
        else:
            f = [
                "def f(x):",
                "    out = MODEL(x)",
                f"    loss = {loss}",
                "    loss.backward()",
                "    OPTIMIZER.step()",
                "    return out.detach(), loss.detach()",
            ]
            body = ["    out, loss = f(x)"]
        drive = ["def drive(f, x):", *zero, *body, *after, "    return out.detach(), loss.detach()"]
        return [*make, *f, "", "", *drive]
