"""Packages: compiled ahead of time, loaded without the compiler, equal to eager; what is refused,
and in which words.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fusewright
from fusewright.errors import PackageRefused, Unsupported, WrongArgument, WrongShape
from fusewright.packages import container, loading
from tests.packages.branches import Branches

SOURCE = Path(fusewright.__file__).parents[1]
DIM = torch.export.Dim


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    pooled: torch.Tensor | None = None


class Model(torch.nn.Module):
    """Kernels, products, library calls, a constant, a buffer, tied weights; nested containers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.last = torch.nn.Linear(32, 16)
        self.last.weight = torch.nn.Parameter(self.first.weight.t().contiguous())
        self.norm = torch.nn.LayerNorm(32)
        self.register_buffer("table", torch.arange(32.0))

    def forward(self, x: Any, mask: Any = None, *, scale: float = 2.0) -> Any:
        y = self.norm(torch.relu(self.first(x["x"]))) * scale + self.table
        if mask is not None:
            y = y * mask[0]
        y = y * torch.tensor([1.0, 2.0] * 16)
        return Output(hidden=self.last(y)), {"sorted": y.sort(-1)[0], "rows": x["x"].shape[0]}

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x))


def arguments(rows: int = 5) -> tuple[Any, Any]:
    torch.manual_seed(rows)
    return ({"x": torch.randn(rows, 16)},), {"mask": [torch.rand(rows, 1)]}


def same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    elif isinstance(expected, Output):
        same(found.hidden, expected.hidden)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        same(list(found.values()), list(expected.values()))
    elif isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == expected


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def path(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packages") / "model.fwp"
    args, kwargs = arguments()
    rows = DIM("rows", min=3, max=64)
    shapes = {"x": {"x": {0: rows}}, "mask": [{0: rows}]}
    assert fusewright.aot_compile(model, args, kwargs, path, dynamic_shapes=shapes) == path
    return path


@pytest.mark.parametrize("rows", [3, 5, 64])
def test_results_are_eagers(model: Model, path: Path, rows: int) -> None:
    args, kwargs = arguments(rows)
    with torch.no_grad():
        expected = model(*args, **kwargs)
    package = fusewright.load(path)
    same(package(*args, **kwargs), expected)
    same(package.forward(args[0], kwargs["mask"]), expected)
    assert expected[1]["rows"] == rows


LOADED = """
import sys, time, torch, fusewright
began = time.process_time()
package = fusewright.load(sys.argv[1])
seconds = time.process_time() - began
torch.manual_seed(5)
x, mask = torch.randn(5, 16), torch.rand(5, 1)
hidden, rest = package({"x": x}, mask=[mask])
names = [name for name in sys.modules if name.split(".")[0] in ("llvmlite", "triton")]
names += [name for name in sys.modules if name.split(".")[:2] in [["fusewright", one] for one in
    ("aot", "capture", "lower", "schedule", "kernels", "wrapper", "pipeline", "compiler", "fake")]]
print(names, hidden.hidden.sum().item(), rest["rows"], type(hidden).__name__, seconds < 0.1)
"""


def test_it_is_loaded_without_the_compiler(model: Model, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PATH": ""},  # no compiler of C either
    )
    args, kwargs = arguments()
    with torch.no_grad():
        expected = model(*args, **kwargs)[0].hidden.sum().item()
    names, total, rows, cls, is_quick = done.stdout.rsplit(maxsplit=4)
    assert (names, rows, cls, is_quick) == ("[]", "5", "Named", "True")
    assert float(total) == pytest.approx(expected, rel=1e-4)


# Arguments --------------------------------------------------------------------------------------

X, MASK = {"x": torch.ones(5, 16)}, [torch.ones(5, 1)]


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((X,), {}, "argument mask is missing"),
        ((), {}, "argument x is missing"),
        ((X, MASK, 3), {}, "forward: too many positional arguments"),
        ((X, MASK), {"scale": 3.0}, r"argument scale has to be 2.0, .* not 3.0"),
        ((torch.ones(5, 16), MASK), {}, r"argument x has to be a dict with the keys \['x'\]"),
        (
            ({"x": torch.ones(5, 17)}, MASK),
            {},
            r"argument x\['x'\] has size \(5, 17\).*\(any, 16\)",
        ),
        (({"x": torch.ones(5)}, MASK), {}, r"argument x\['x'\] has size \(5\)"),
        (({"x": torch.ones(5, 16).double()}, MASK), {}, r"argument x\['x'\] .*of torch.float64"),
        (({"x": torch.ones(65, 16)}, [torch.ones(65, 1)]), {}, r"x\['x'\].size\(0\) is 65.*64 >= "),
        (({"x": torch.ones(2, 16)}, [torch.ones(2, 1)]), {}, r"argument x\['x'\].size\(0\) is 2"),
        (
            (X, [torch.ones(4, 1)]),
            {},
            r"x\['x'\].size\(0\) is 5; argument mask\[0\].size\(0\) is 4",
        ),
        (({"x": X["x"].clone().requires_grad_()}, MASK), {}, "requires grad, and packages compute"),
        (({"x": X["x"].to_sparse()}, MASK), {}, "has to be a plain tensor"),
    ],
)
def test_wrong_arguments_are_named(path: Path, args: Any, kwargs: Any, words: str) -> None:
    package = fusewright.load(path)
    with pytest.raises(WrongArgument, match=words):
        package(*args, **kwargs)


def test_arguments_in_another_layout(model: Model, path: Path) -> None:
    package = fusewright.load(path)
    x, mask = torch.randn(16, 5).t(), torch.rand(5, 2)[:, :1]
    with torch.no_grad():
        same(package({"x": x}, [mask]), model({"x": x}, [mask]))
        needs = x.clone().requires_grad_()
        same(package({"x": needs}, [mask]), model({"x": x}, [mask]))
        parameter = torch.nn.Parameter(x.clone())
        same(package({"x": parameter}, [mask]), model({"x": x}, [mask]))


def test_modes_do_not_change_it(model: Model, path: Path) -> None:
    args, kwargs = arguments()
    package = fusewright.load(path)
    with torch.no_grad():
        expected = model(*args, **kwargs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(package(*args, **kwargs), expected)
    with torch.inference_mode():
        same(package(*args, **kwargs), expected)


def test_threads_share_one(model: Model, path: Path) -> None:
    package = fusewright.load(path)
    failures: list[BaseException] = []

    def run(rows: int) -> None:
        try:
            args, kwargs = arguments(rows)
            with torch.no_grad():
                expected = model(*args, **kwargs)
            for _ in range(20):
                same(package(*args, **kwargs), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rows,)) for rows in (3, 9, 33, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# Weights, entry points, levels ------------------------------------------------------------------


def test_weights_are_stored_shared_or_swapped(model: Model, path: Path, tmp_path: Path) -> None:
    args, kwargs = arguments()
    other = Model().eval()
    with torch.no_grad():
        expected, expected_of_other = model(*args, **kwargs), other(*args, **kwargs)
    package = fusewright.load(path)
    assert set(package.weights) == set(dict(model.named_parameters())) | {"table"}
    same(package(*args, **kwargs), expected)
    package.use_weights(other)
    same(package(*args, **kwargs), expected_of_other)
    package.use_weights(model.state_dict())
    same(package(*args, **kwargs), expected)
    shared = fusewright.load(path, weights=other)
    assert shared.weights["first.weight"].data_ptr() == other.first.weight.data_ptr()
    same(shared(*args, **kwargs), expected_of_other)
    small = tmp_path / "small.fwp"
    fusewright.aot_compile(model, args, kwargs, small, store_weights=False)
    with pytest.raises(PackageRefused, match=r"weight first.weight is not stored .*weights=…"):
        fusewright.load(small)
    same(fusewright.load(small, weights=model)(*args, **kwargs), expected)
    wrong = {**model.state_dict(), "table": torch.arange(32)}
    with pytest.raises(PackageRefused, match=r"its weight table is torch.float32 .*torch.int64"):
        fusewright.load(small, weights=wrong)


def test_writing_to_a_loaded_weight_changes_no_file(path: Path) -> None:
    before = path.read_bytes()
    package = fusewright.load(path)
    package.weights["table"].fill_(7)
    assert path.read_bytes() == before


def test_several_entry_points_share_weights(model: Model, tmp_path: Path) -> None:
    args, kwargs = arguments()
    x = torch.randn(4, 16)
    rows = DIM("rows")
    path = fusewright.aot_compile(
        model,
        args,
        kwargs,
        tmp_path / "p",
        entry_points={
            "encode": fusewright.EntryPoint(model.encode, (x,), None, {"x": {0: rows}}),
            "twice": fusewright.EntryPoint(lambda a, *rest, **more: a * 2 + rest[0], (x, x)),
        },
    )
    package = fusewright.load(path)
    x = torch.randn(9, 16)
    torch.testing.assert_close(package.encode(x), model.encode(x).detach())
    torch.testing.assert_close(package.twice(x[:4], x[:4]), x[:4] * 3)
    assert len(list(package.manifest["weights"])) == 7
    assert "launch " in package.text("encode") and "kernel cpu_" in package.text()
    with pytest.raises(AttributeError, match=r"no entry point 'other'; it has \['forward', 'enc"):
        _ = package.other


def test_levels_of_processors(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args, kwargs = arguments()
    with torch.no_grad():
        expected = model(*args, **kwargs)
    path = fusewright.aot_compile(
        model, args, kwargs, tmp_path / "p", processors=("scalar", "avx2", "avx512")
    )
    real = loading.lacking_features
    for hidden in ((), ("avx512f",), ("avx512f", "avx2")):
        monkeypatch.setattr(
            loading,
            "lacking_features",
            lambda names, hidden=hidden: [one for one in names if one in hidden] or real(names),
        )
        same(fusewright.load(path)(*args, **kwargs), expected)
    path = fusewright.aot_compile(model, args, kwargs, tmp_path / "p", processors=("avx2",))
    with pytest.raises(PackageRefused, match="this processor lacks avx2, which it needs"):
        fusewright.load(path)
    with pytest.raises(ValueError, match=r"processors are among avx512, .*sm_90, not 'sse'"):
        fusewright.aot_compile(model, args, kwargs, tmp_path / "p", processors=("sse",))


# What results may be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x, y + 1, x),
        lambda x, y: [x.t(), (x + 1)[0], {"view": x[1:]}],
        lambda x, y: (y * 2).t(),
        lambda x, y: {"n": 3, "none": None, "size": x.shape, "sum": x.sum()},
        lambda x, y: (x > 0, y.argmax(), x.to(torch.bfloat16)),
        lambda x, y: torch.nonzero(x > 0),
        lambda x, y: torch.cat([x, y]).var(0),
        lambda x, y: (),
    ],
)
def test_results_of_every_kind(function: Callable[..., Any], tmp_path: Path) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    path = fusewright.aot_compile(function, (x, y), None, tmp_path / "p")
    for _ in range(2):
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        found, expected = fusewright.load(path)(x, y), function(x, y)
        if isinstance(expected, dict) and "size" in expected:
            found["size"] = torch.Size(found["size"])
        same(found, expected)


def test_an_argument_that_is_returned_is_the_very_tensor(tmp_path: Path) -> None:
    function = lambda x: (x, x + 1)  # noqa: E731
    package = fusewright.load(
        fusewright.aot_compile(function, (torch.ones(3, 4),), None, tmp_path / "p")
    )
    for x in (torch.randn(3, 4), torch.randn(4, 3).t()):
        same_x, y = package(x)
        assert same_x is x
        torch.testing.assert_close(y, x + 1)


def test_sizes_among_results(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> Any:
        return x.shape[0], x.shape[0] * 2 + 1, x.reshape(-1), list(x.shape)

    path = fusewright.aot_compile(
        function, (torch.ones(4, 3),), None, tmp_path / "p", dynamic_shapes={"x": {0: DIM("n")}}
    )
    package = fusewright.load(path)
    for rows in (2, 7):
        same(package(torch.ones(rows, 3)), function(torch.ones(rows, 3)))


# Writes -----------------------------------------------------------------------------------------


class Counter(torch.nn.Module):
    """Writes to a buffer, to an argument, and to one through a view; returns two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = torch.nn.Buffer(torch.zeros(2))
        self.mean = torch.nn.Buffer(torch.zeros(4))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> Any:
        self.calls += 1
        self.mean.lerp_(x.mean(0), 0.25)
        cache[1].copy_(x[0] * self.calls[0])
        x.mul_(2).sub_(self.mean)
        return x, x.t(), cache.sum(), self.mean * 1


@pytest.mark.parametrize("stored", [True, False], ids=["stored weights", "shared weights"])
@pytest.mark.parametrize("transposed", [False, True])
def test_writes_are_eagers(stored: bool, transposed: bool, tmp_path: Path) -> None:
    """To arguments, also those that are laid out otherwise, and to buffers, call after call."""
    own, shared = Counter().eval(), Counter().eval()
    inputs = (torch.ones(3, 4), torch.zeros(2, 4))
    path = fusewright.aot_compile(own, inputs, None, tmp_path / "p")
    assert own.calls.tolist() == [0, 0] and inputs[1].count_nonzero() == 0
    package = fusewright.load(path, weights=None if stored else shared)
    for step in range(3):
        torch.manual_seed(step)
        x = torch.randn(4, 3).t() if transposed else torch.randn(3, 4)
        cache = torch.randn(2, 4)
        ours, version = (
            (x.clone(memory_format=torch.preserve_format), cache.clone()),
            cache._version,
        )
        with torch.no_grad():
            expected = own(x, cache)
        results = package(*ours)
        same(results, expected)
        same(ours, (x, cache))
        assert results[0] is ours[0] and ours[1]._version > 0 and cache._version > version
        if not transposed:
            assert results[1].data_ptr() == ours[0].data_ptr()
    assert stored == (shared.calls.tolist() == [0, 0])
    same(package.weights["calls"], own.calls)


def test_memory_that_is_written_is_not_shared(tmp_path: Path) -> None:
    path = fusewright.aot_compile(
        writes_to_shared, (torch.ones(3), torch.ones(3)), None, tmp_path / "p"
    )
    package = fusewright.load(path)
    x = torch.arange(6.0)
    same(package(x[:3], x[3:]), torch.tensor([3.0, 5.0, 7.0]))
    for y in (x[:3], x[1:4]):
        with pytest.raises(WrongArgument, match="argument x is written to, and argument y lies in"):
            package(x[:3], y)
    assert x.tolist() == [3.0, 5.0, 7.0, 3.0, 4.0, 5.0]
    with pytest.raises(Unsupported, match="writes to memory that two of its tensors share"):
        fusewright.aot_compile(lambda x, y: x.neg_() + y, (x[:3], x[1:4]), None, tmp_path / "p")


def test_one_tensor_at_two_places_stands_for_two(tmp_path: Path) -> None:
    """Also one that is a weight, too: a package is made for any tensors of that kind."""
    x, y, weight = torch.rand(3, 3), torch.rand(3, 3), torch.nn.Linear(3, 3).eval()
    path = fusewright.aot_compile(lambda x, y: x - y, (x, x), None, tmp_path / "p")
    package = fusewright.load(path)
    same(package(x, y), x - y)
    given = weight.weight.detach()
    function = lambda x: torch.nn.functional.linear(x, given)  # noqa: E731
    package = fusewright.load(fusewright.aot_compile(function, (given,), None, tmp_path / "q"))
    same(package(y), y @ given.t())


# Conditions and loops ---------------------------------------------------------------------------


def test_conditions_and_loops_are_eagers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Branches().eval()
    inputs = (torch.randn(5, 4), torch.tensor(2))
    path = fusewright.aot_compile(
        model, inputs, None, tmp_path / "p", dynamic_shapes={"x": {0: DIM("rows")}, "steps": None}
    )
    package = fusewright.load(path)
    for rows, shift, steps in ((5, 0.5, 2), (3, 9.0, 0), (7, -3.0, 3), (2, 5.0, 1)):
        x = torch.randn(rows, 4) + shift
        with torch.no_grad():
            same(package(x, torch.tensor(steps)), model(x, torch.tensor(steps)))


# Refusals ---------------------------------------------------------------------------------------


def resizes(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze_(0)


def writes_to_shared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y)


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (resizes, r"changes the size of a tensor that it was given.*\n.*return the new value"),
        (branches, r"test_packages.py:\d+  return x \+ 1 if x.sum"),
        (lambda x: object(), "the result is an object of class object, which no package returns"),
        (torch.sin, "written in C, have no names.*\n.*package a function that calls it"),
        (torch.nn.Dropout(), "a package does not train, and the module is in training mode"),
    ],
)
def test_what_no_package_is_made_of(
    function: Callable[..., Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(Unsupported, match=words):
        fusewright.aot_compile(function, (torch.ones(3),), None, tmp_path / "p")
    assert os.listdir(tmp_path) == []


def test_gradients_are_refused(tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(Unsupported, match="a package computes no gradients, and an argument"):
        fusewright.aot_compile(lambda x: x.sin(), (x,), None, tmp_path / "p")


def test_calls_of_python_are_refused(tmp_path: Path) -> None:
    layer = torch.nn.LSTM(4, 4)

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(layer(x)[0].sum(), x)[0]

    with pytest.raises(Unsupported, match="the call lstm_layer, which runs as Python"):
        fusewright.aot_compile(program, (torch.ones(2, 3, 4),), None, tmp_path / "p")


def test_wrong_words_about_sizes(tmp_path: Path) -> None:
    with pytest.raises(WrongShape, match="and dynamic_shapes says at most 2"):
        fusewright.aot_compile(
            lambda x: x + 1, (torch.ones(3),), None, tmp_path / "p",
            dynamic_shapes={"x": {0: DIM("n", max=2)}},
        )  # fmt: skip


def altered(path: Path, change: Callable[[dict[str, Any]], None], target: Path) -> Path:
    """The package with another manifest, otherwise right."""
    file = container.read_package(path, b"")
    manifest = json.loads(json.dumps(dict(file.manifest)))
    sections = [(row["name"], bytes(file.section(row["name"]))) for row in manifest.pop("sections")]
    change(manifest)
    container.write_package(target, manifest, sections, b"")
    return target


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(torch="2.1"), r"made with torch 2.1, and this is \d"),
        (lambda m: m.update(machine="riscv64"), r"it is for riscv64, and this is "),
        (lambda m: m.update(devices=["cuda:7"], gpus=[90]), "made for cuda:7, of sm_90, and "),
        (
            lambda m: [level["features"].append("avx9") for level in m["levels"]],
            "this processor lacks avx9",
        ),
    ],
)
def test_packages_for_others_are_refused(
    path: Path, tmp_path: Path, change: Any, words: str
) -> None:
    with pytest.raises(PackageRefused, match=words):
        fusewright.load(altered(path, change, tmp_path / "p"))


def test_operators_that_are_not_there(path: Path, tmp_path: Path) -> None:
    file = container.read_package(path, b"")
    sections = [
        (row["name"], bytes(file.section(row["name"]))) for row in file.manifest["sections"]
    ]
    sections = [
        (name, content.replace(b'"aten","sort"', b'"aten","sorr"')) for name, content in sections
    ]
    manifest = {name: value for name, value in file.manifest.items() if name != "sections"}
    container.write_package(tmp_path / "p", manifest, sections, b"")
    with pytest.raises(PackageRefused, match=r"calls the operator aten.sorr.default, which is not"):
        fusewright.load(tmp_path / "p")


def test_damage_is_refused_before_anything_is_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("machine code was loaded")

    monkeypatch.setattr(loading, "MachineCode", never)
    content = path.read_bytes()
    generator, damaged = random.Random(0), tmp_path / "damaged"
    for _ in range(200):
        flipped = bytearray(content)
        flipped[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        damaged.write_bytes(flipped)
        with pytest.raises(PackageRefused, match=str(damaged)):
            fusewright.load(damaged)
    damaged.write_bytes(content[:-100])
    with pytest.raises(PackageRefused, match="cut off"):
        fusewright.load(damaged)
    with pytest.raises(FileNotFoundError):
        fusewright.load(tmp_path / "none")


def test_two_writers_leave_one_whole_file(model: Model, tmp_path: Path) -> None:
    args, kwargs = arguments()
    path = tmp_path / "p"
    threads = [
        threading.Thread(target=fusewright.aot_compile, args=(model, args, kwargs, path))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["p"]
    with torch.no_grad():
        same(fusewright.load(path)(*args, **kwargs), model(*args, **kwargs))


def test_a_key_is_asked_for(model: Model, tmp_path: Path) -> None:
    args, kwargs = arguments()
    path = fusewright.aot_compile(model, args, kwargs, tmp_path / "p", key="secret")
    fusewright.load(path, key="secret")
    with pytest.raises(PackageRefused, match="signed with another key"):
        fusewright.load(path, key="guess")


def test_transformers_results(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64,
        vocab_size=100, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    batch, length = DIM("batch", max=8), DIM("length", max=64)
    shapes = {"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}}
    ids = torch.randint(0, 100, (2, 12))
    path = fusewright.aot_compile(
        model, (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, tmp_path / "p",
        dynamic_shapes=shapes,
    )  # fmt: skip
    package = fusewright.load(path)
    for size in ((2, 12), (5, 33)):
        ids, mask = torch.randint(0, 100, size), torch.ones(size, dtype=torch.int64)
        mask[:, -2:] = 0
        with torch.no_grad():
            expected = model(ids, mask)
        found = package(input_ids=ids, attention_mask=mask)
        assert type(found) is type(expected)
        torch.testing.assert_close(found.last_hidden_state, expected.last_hidden_state)
        torch.testing.assert_close(found[1], expected.pooler_output)


def test_the_page_about_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (SOURCE.parent / "docs" / "packages.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example.py", "exec"), {})
