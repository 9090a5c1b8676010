"""The key of a graph: all that decides its plan is in it, and nothing else."""

from __future__ import annotations

import ast
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import fusewright
from fusewright import graph_key
from fusewright.aot import AtenGraph, trace_inference
from fusewright.config import ALLOWED, Options
from fusewright.context import CompileContext
from fusewright.errors import Location
from fusewright.graph_key import META_READ, NotKept, differences, key_of
from fusewright.ir.index import Index, RealSymbol
from fusewright.ir.relations import at_least, equal, not_equal
from fusewright.records import replace
from fusewright.symbolic.facts import ShapeFacts
from fusewright.symbolic.relations import RealRelation

SOURCE = Path(fusewright.__file__).parent
STAGES = ("lower", "schedule", "kernels", "wrapper", "generation.py")
"""What runs behind the key."""

X = torch.ones(4, 6)


def graph_of(
    body: Callable[[Any], Any] = lambda x: (x.sin() * 2 + 1.0,), x: torch.Tensor = X
) -> AtenGraph:
    """The functional graph of a function of one tensor."""
    module = fx.GraphModule(torch.nn.Module(), fx.Graph())
    node = module.graph.placeholder("x")
    results = body(fx.Proxy(node, fx.proxy.GraphAppendingTracer(module.graph)))
    module.graph.output(tuple(result.node for result in results))
    module.recompile()
    with torch.no_grad():
        return trace_inference(module, [x], CompileContext())


def digest(graph: AtenGraph, *, half: str = "", **options: Any) -> str:
    """The key under these options."""
    context = CompileContext(options=Options(**options))
    with torch.no_grad():
        return key_of(graph, context, half=half).digest


def test_equal_graphs_have_equal_keys() -> None:
    assert digest(graph_of()) == digest(graph_of())


BODIES: dict[str, Callable[[Any], Any]] = {
    "another operator": lambda x: (x.cos() * 2 + 1.0,),
    "another number": lambda x: (x.sin() * 3 + 1.0,),
    "a float for an integer": lambda x: (x.sin() * 2.0 + 1.0,),
    "an integer for a float": lambda x: (x.sin() * 2 + 1,),
    "another order": lambda x: ((x.sin() + 1.0) * 2,),
    "another result": lambda x: (x.sin() * 2 + 1.0, x.sin()),
    "one more": lambda x: (x.sin().sin() * 2 + 1.0,),
}

INPUTS = {
    "sizes": torch.ones(4, 7),
    "dimensions": torch.ones(24),
    "strides": torch.ones(6, 4).t(),
    "offset": torch.ones(5, 6)[1:],
    "type": torch.ones(4, 6, dtype=torch.float64),
    "half type": torch.ones(4, 6, dtype=torch.float16),
    "conjugate": torch.ones(4, 6, dtype=torch.complex64).conj(),
    "device": torch.ones(4, 6, device="meta"),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_what_a_graph_computes_is_in_its_key(body: Callable[[Any], Any]) -> None:
    assert digest(graph_of(body)) != digest(graph_of())


def test_numbers_that_compare_as_equal_differ() -> None:
    bodies = [lambda x, n=n: (torch.full_like(x, n),) for n in (0, 0.0, -0.0, False, float("nan"))]
    assert len({digest(graph_of(body)) for body in bodies}) == len(bodies)


def test_layouts_are_in_the_key() -> None:
    keys = [digest(graph_of(x=x)) for x in (X, *INPUTS.values())]
    assert len(set(keys)) == len(keys)


CHANGED_META = {
    "location": Location("other.py", 7, "y = x"),
    "module_path": "encoder.layer",
    "is_released": True,
    "reads_moved": True,
    "val": torch.ones(4, 6, requires_grad=True),
}


def test_every_entry_of_meta_that_is_read_is_in_the_key() -> None:
    assert set(CHANGED_META) == META_READ
    for name, value in CHANGED_META.items():
        for place in range(len(list(graph_of().graph.nodes)) - 1):
            graph = graph_of()
            list(graph.graph.nodes)[place].meta[name] = value
            assert digest(graph) != digest(graph_of()), (name, place)


def test_names_and_roles_are_in_the_key() -> None:
    graph = graph_of()
    next(iter(graph.graph.nodes)).name = "other"
    assert digest(graph) != digest(graph_of())
    assert len({digest(graph_of(), half=half) for half in ("", "forward", "backward")}) == 3
    written = replace(graph_of(), replaced_inputs=(0,))
    assert digest(written) != digest(graph_of())


def other_value(option: dataclasses.Field[Any]) -> Any:
    """A value that an option may have, and not the one that it has."""
    default: Any = option.default
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return type(default)(default / 2 if isinstance(default, float) else default + 1)
    for value in ("scalar", "python", "print", "graph", "off", "some"):
        _, allows = ALLOWED.get(option.name, ("", lambda value: True))
        if value != default and allows(value):
            return value
    raise AssertionError(option.name)


DECISIVE = [
    option for option in dataclasses.fields(Options) if option.name not in graph_key.NOT_DECISIVE
]


@pytest.mark.parametrize("option", DECISIVE, ids=lambda option: option.name)
def test_options_are_in_the_key(option: dataclasses.Field[Any]) -> None:
    graph = graph_of()
    assert digest(graph, **{option.name: other_value(option)}) != digest(graph)


@pytest.mark.parametrize("mode", graph_key.MODES)
def test_modes_are_in_the_key(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(graph_of())
    monkeypatch.setitem(graph_key.MODES, mode, lambda: "another")
    assert digest(graph_of()) != before


def test_modes_are_asked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of()
    keys = {digest(graph)}
    monkeypatch.setenv("FUSEWRIGHT_GARBAGE", "1")
    keys.add(digest(graph))
    for set_mode, other, own in (
        (torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
        (torch.use_deterministic_algorithms, True, False),
        (torch.set_default_dtype, torch.float64, torch.float32),
        (precision(torch.backends.mkldnn), "bf16", "none"),
        (precision(torch.backends.cuda), "tf32", "none"),
    ):
        set_mode(other)
        try:
            keys.add(digest(graph))
        finally:
            set_mode(own)
    assert len(keys) == 7


def precision(backend: Any) -> Callable[[str], None]:
    """What sets the precision of a backend's products of float32, and of no other's. Torch has no
    word for all of them then.
    """
    return lambda value: setattr(backend.matmul, "fp32_precision", value)


@pytest.mark.parametrize("name", ["_versions", "_processor"])
def test_versions_and_the_processor_are_in_the_key(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of()
    before = digest(graph)
    real = getattr(graph_key, name)
    for part in real() if name == "_versions" else real("auto"):
        monkeypatch.setattr(
            graph_key, name, lambda *given, part=part: {**real(*given), part: "another"}
        )
        assert digest(graph) != before, part


def test_gpus_are_named_where_kernels_are_chosen_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_key, "device_text", lambda device: f"a GPU as {device}")
    assert graph_key._gpus({"cuda:1"}, Options(multi_kernel="on")) == {"cuda:1": "a GPU as cuda:1"}
    assert graph_key._gpus({"cuda:1"}, Options()) == {}


def test_the_sources_are_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "lower").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "lower" / "b.py").write_text("y = 1\n")
    monkeypatch.setattr(graph_key, "__file__", str(tmp_path / "graph_key.py"))

    def sources() -> str:
        graph_key.sources_digest.cache_clear()
        return graph_key.sources_digest()

    try:
        first = sources()
        assert sources() == first  # As it was kept.
        os.utime(tmp_path / "a.py", ns=(1, 1))
        assert sources() == first  # Of what is in them, however old.
        (tmp_path / "lower" / "b.py").write_text("y = 2\n")
        second = sources()
        (tmp_path / "lower" / "c.py").write_text("")
        assert len({first, second, sources()}) == 3
    finally:
        graph_key.sources_digest.cache_clear()


def test_sources_that_cannot_be_read_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of()
    monkeypatch.setattr(graph_key, "__file__", str(tmp_path / "archive.zip" / "graph_key.py"))
    graph_key.sources_digest.cache_clear()
    with pytest.raises(NotKept, match="own files cannot be read"):
        digest(graph)
    monkeypatch.undo()
    assert digest(graph)


# -- Nothing else is read --------------------------------------------------------------------------


def stage_trees() -> list[tuple[Path, ast.AST]]:
    paths = [path for stage in STAGES for path in (SOURCE / stage).rglob("*.py")]
    paths += [SOURCE / stage for stage in STAGES if stage.endswith(".py")]
    assert len(paths) > 100
    return [(path, ast.parse(path.read_text())) for path in paths]


def test_stages_read_no_other_meta_of_a_graph() -> None:
    read = set()
    for path, tree in stage_trees():
        if path.name == "fx_graph.py":  # It writes a graph of its own.
            continue
        for node in ast.walk(tree):
            match node:
                case (
                    ast.Subscript(value=ast.Attribute(attr="meta"), slice=ast.Constant(value=name))
                    | ast.Call(
                        func=ast.Attribute(value=ast.Attribute(attr="meta"), attr="get"),
                        args=[ast.Constant(value=name), *_],
                    )
                ):
                    read.add(name)
    assert read == META_READ


def test_stages_read_no_option_that_is_not_in_the_key() -> None:
    read = {
        node.attr
        for _, tree in stage_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("options")
    }
    assert "multi_kernel" in read
    assert read & graph_key.NOT_DECISIVE == {"verify"}  # Under which no plan is looked for.


AMBIENT = {
    "torch.get_num_threads": "threads",
    "torch.are_deterministic_algorithms_enabled": "deterministic",
    "torch.cuda.is_current_stream_capturing": "",  # While tuning, of which no plan is kept.
}
"""Questions about the state of torch that stages ask, and the mode in the key; empty: it does not
decide what is generated."""


def test_stages_ask_for_no_mode_that_is_not_in_the_key() -> None:
    asked = set()
    for _, tree in stage_trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                words = text.split(".")
                if words[0] == "os" and words[-1] in ("environ", "getenv", "cpu_count"):
                    asked.add(text)
                if words[0] == "torch" and (
                    words[-1].startswith(("get_", "is_", "are_"))
                    or "backends" in words[:2]
                    or words[-1].endswith("_enabled")
                ):
                    asked.add(text)
    assert asked == set(AMBIENT)
    assert set(AMBIENT.values()) <= {*graph_key.MODES, ""}


# -- What has no text ------------------------------------------------------------------------------


def test_objects_without_a_text_are_named() -> None:
    graph = graph_of()
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    node.args = (*node.args, object())
    with pytest.raises(NotKept, match="an object of class object"):
        digest(graph)


def test_functions_of_python_are_named() -> None:
    graph = graph_of()
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    node.target = test_functions_of_python_are_named
    with pytest.raises(NotKept, match="it calls test_functions_of_python_are_named"):
        digest(graph)


def test_a_difference_is_said_in_words() -> None:
    graph, context = graph_of(), CompileContext(options=Options(kernel_target="scalar"))
    with torch.no_grad():
        old = key_of(graph, CompileContext(), half="")
        new = key_of(graph_of(x=torch.ones(3, 6)), context, half="")
    assert old.program == new.program
    assert differences(old, old.parts) == []
    said = " and ".join(differences(new, old.parts))
    assert "the sizes and types of its tensors" in said
    assert "options (kernel_target: auto, now scalar)" in said
    assert "the processor (name: " in said


# -- Sizes that vary -------------------------------------------------------------------------------


def facts_with(change: Callable[[ShapeFacts, Index, Index, RealSymbol], object]) -> str:
    """The text of facts about two sizes and a real number, after a change."""
    facts = ShapeFacts()
    first, second = facts.size(8), facts.size(6)
    real = facts.real(1.5)
    change(facts, first, second, real)
    return facts.text(
        {*facts.resolve(first).free(), *facts.resolve(second).free(), *first.free(), real}
    )


CHANGES: dict[str, Callable[[ShapeFacts, Index, Index, RealSymbol], object]] = {
    "nothing": lambda facts, a, b, f: None,
    "another size seen": lambda facts, a, b, f: facts.hints.update(s0=9),
    "a bound": lambda facts, a, b, f: facts.assume(at_least(a, 3)),
    "a divisor": lambda facts, a, b, f: facts.assume(equal(a % 4, 0)),
    "one size by the other": lambda facts, a, b, f: facts.assume(equal(a, b + 2)),
    "a number": lambda facts, a, b, f: facts.assume(equal(a, 8)),
    "a relation": lambda facts, a, b, f: facts.assume(at_least(a, b)),
    "another relation": lambda facts, a, b, f: facts.assume(not_equal(a, b)),
    "a relation of products": lambda facts, a, b, f: facts.assume(at_least(a * b, 12)),
    "a real number": lambda facts, a, b, f: facts.assume(RealRelation("is", f, 1.5)),
    "a further size": lambda facts, a, b, f: facts.size(4),
    "the guards are made": lambda facts, a, b, f: setattr(facts, "is_closed", True),
    "a question of layouts": lambda facts, a, b, f: setattr(facts, "of_layout", True),
    "sums of data": lambda facts, a, b, f: facts.assume(
        equal(facts.unknown_size() + facts.unknown_size(), a)
    ),
    "sizes of data": lambda facts, a, b, f: (facts.unknown_size(), facts.unknown_size()),
}


def test_all_that_is_known_of_sizes_is_in_their_text() -> None:
    texts = {name: facts_with(change) for name, change in CHANGES.items()}
    assert texts == {name: facts_with(change) for name, change in CHANGES.items()}
    assert len(set(texts.values())) == len(CHANGES), texts


def test_assumptions_are_made_again() -> None:
    relations = [
        lambda a, b: at_least(a, 3), lambda a, b: equal(a % 2, 0), lambda a, b: equal(a, b * 2),
        lambda a, b: not_equal(b, 5),
    ]  # fmt: skip
    first, second = ShapeFacts(lambda: Location("a.py", 1)), ShapeFacts()
    sizes = [(facts.size(8), facts.size(4)) for facts in (first, second)]
    for relation in relations:
        first.assume(relation(*sizes[0]))
    second.assume_again(first.assumptions)
    assert second.assumptions == first.assumptions
    symbols = [*sizes[0][0].free(), *sizes[0][1].free()]
    assert second.text(symbols) == first.text(symbols)
    assert second.where() is None
