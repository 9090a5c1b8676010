"""The benchmark of decoding generates what eager does, and counts programs and weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.decode import MODELS, main, measure, weights_of_a_token


@pytest.mark.parametrize(("cache", "programs"), [("dynamic", 3), ("static", 2)])
def test_a_tiny_model(cache: str, programs: int) -> None:
    row = measure("tiny", cache, "float32", prompt=4, tokens=6, rounds=1)
    assert row.same == row.tokens == 6
    assert row.programs == programs
    assert 0 < row.forward < row.first and 0 < row.compiled < row.first


def test_embeddings_are_picked_from() -> None:
    model = MODELS["tiny"]()
    whole = sum(parameter.nbytes for parameter in model.parameters())
    (table,) = (module for module in model.modules() if isinstance(module, nn.Embedding))
    assert weights_of_a_token(model) == whole - table.weight.nbytes


def test_a_tiny_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "decode.json"
    options = ["--caches", "static", "--dtypes", "bfloat16", "--tokens", "4", "--rounds", "1"]
    threads = torch.get_num_threads()
    try:
        assert main(["--models", "tiny", "--processor-time", *options, "--json", str(file)]) == 0
    finally:
        torch.set_num_threads(threads)
    assert "GB/s" in capsys.readouterr().out and file.exists()
