"""Campaigns: processes that crash and hang, folders to go on from, programs made smaller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fusewright
from fusewright.cli import app
from fusewright.fuzz import workers
from fusewright.fuzz.campaign import GENERATORS, Campaign, CampaignPlan, generate
from fusewright.fuzz.checking import CheckResult, check
from fusewright.fuzz.comparison import Finding
from fusewright.fuzz.program import ENDING, RandomProgram
from fusewright.fuzz.shrink import shrink

PROGRAM = """\
import os
import time

import torch

from fusewright.fuzz import fill, show

RUN = int(os.environ.get("RUN_OF_A_TEST", "0"))
os.environ["RUN_OF_A_TEST"] = str(RUN + 1)
{more}


def make():
    return [fill(1, (3,))]


def f(x0):
    v0 = x0 + 1
    return (v0,)
"""
MORE = {
    0: "",
    1: "if RUN % 2:\n    os.abort()",
    2: "if RUN % 2:\n    time.sleep(60)",
    3: "if RUN % 2 == 0:\n    os.abort()",
}
"""What a program does when it is run eagerly (even) and compiled (odd): nothing, crash, hang; and
crash in eager, which is no finding.
"""


def unruly(kind: str, seed: int) -> RandomProgram:
    return RandomProgram(kind, seed, PROGRAM.format(more=MORE[seed]) + ENDING)


def test_a_crash_and_a_hang_are_findings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workers, "TIME_LIMIT", 1.0)
    monkeypatch.setattr(workers, "LIFETIME", 1)
    monkeypatch.delenv("RUN_OF_A_TEST", raising=False)
    heard: list[int] = []
    plan = CampaignPlan(kinds=("tensors",), count=4, jobs=2)
    campaign = Campaign(plan, lambda found: heard.append(found.seed))
    groups = campaign.run(unruly)
    assert sorted(heard) == [1, 2]
    told = {group.kind: [verdict.seed for verdict in group.verdicts] for group in groups}
    assert told == {"crash": [1], "hang": [2]}
    assert "SIGABRT" in str(groups[0].verdicts[0].worst)
    assert campaign.outcomes == {
        ("tensors", "right"): 1,
        ("tensors", "found"): 2,
        ("tensors", "discarded"): 1,
    }
    report = campaign.report()
    assert "2 findings of 2 sorts: crash 1, hang 1" in report
    assert "fusewright fuzz --kind tensors --seed 1 --count 1" in report


def test_a_failure_of_the_fuzzer_is_told() -> None:
    def fails(kind: str, seed: int) -> RandomProgram:
        raise ValueError("no such operator")

    campaign = Campaign(CampaignPlan(kinds=("tensors",), count=2))
    assert campaign.run(fails) == []
    assert "the fuzzer failed 2 times: tensors 0" in campaign.report()
    assert "no such operator" in campaign.report()


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = Campaign(CampaignPlan(kinds=("tensors",), seed=5, count=1, folder=tmp_path))
    first.run()
    second = Campaign(CampaignPlan(kinds=("tensors",), seed=5, count=2, folder=tmp_path))
    second.run()
    assert len((tmp_path / "cases.jsonl").read_text().splitlines()) == 2
    assert sum(second.outcomes.values()) == 2


def test_checks_of_memory_are_on_while_it_runs() -> None:
    def noting(kind: str, seed: int) -> RandomProgram:
        needs = (
            "assert os.environ['FUSEWRIGHT_GARBAGE'] and not os.environ['CUDA_VISIBLE_DEVICES']\n"
            "RUN ="
        )
        return RandomProgram(kind, seed, unruly(kind, 0).source.replace("RUN =", needs))

    plan = CampaignPlan(kinds=("tensors",), count=1, garbage=True, guard_pages=True)
    campaign = Campaign(plan)
    campaign.run(noting)
    assert campaign.outcomes == {("tensors", "right"): 1}
    assert plan.options == " --guard-pages --garbage"
    assert "FUSEWRIGHT_GARBAGE" not in os.environ


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_seed_tells_the_program(kind: str) -> None:
    sources = [generate(kind, seed).source for seed in range(20)]
    assert sources == [generate(kind, seed).source for seed in range(20)]
    assert len(set(sources)) == 20


def test_a_program_runs_alone(tmp_path: Path) -> None:
    file = tmp_path / "tensors_0.py"
    file.write_text(generate("tensors", 0).source)
    environment = os.environ | {"PYTHONPATH": str(Path(fusewright.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "eager, call 1" in done.stdout and "compiled, call 1" in done.stdout


def test_shrinking_keeps_what_matters() -> None:
    """A fault that shows where a program computes a cosine."""
    source = """\
import torch

from fusewright.fuzz import fill, show

MODE = "plain"
CALLS = [dict(N=4), dict(N=9)]


def make(N):
    x0 = fill(7, (N, 3), torch.float32, "special", "transposed")
    x1 = fill(8, (N, 3), torch.float32)
    return [x0, x1]


def f(x0, x1):
    v0 = torch.sin(x0)
    v1 = torch.cos(v0 + x1)
    v2 = v1.sum()
    if x1.shape[0] > 2:
        v3 = v0 * 2
    return (v0, v2,)
"""

    def check_for_cosine(program: RandomProgram) -> CheckResult:
        eager = check(program, lambda function, dynamic: function)
        if "cos(" not in program.source or eager.outcome != "right":
            return eager
        return CheckResult("tensors", 1, "found", (Finding("wrong_value", 0, "result[0]", ""),))

    program = RandomProgram("tensors", 1, source + ENDING)
    smaller, verdict = shrink(program, check_for_cosine(program), check_for_cosine, 30.0)
    assert verdict.outcome == "found"
    assert smaller.source.endswith(ENDING)
    body = smaller.source.partition("def f(")[2].partition(ENDING)[0]
    assert "cos(" in body and len(body.splitlines()) <= 3 and "sin" not in body
    assert "special" not in smaller.source and "transposed" not in smaller.source


def test_the_command_says_what_it_does_not_know() -> None:
    result = CliRunner().invoke(app, ["fuzz", "--kind", "tensor"])
    assert result.exit_code == 2 and "tensors" in result.output
