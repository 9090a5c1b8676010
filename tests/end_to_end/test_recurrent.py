"""Recurrent networks beside eager: one compile for any batch and length, trained or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import fusewright
from fusewright import compilations, torch_compat
from fusewright.aot import aot_autograd, aot_module

SIZES = [(2, 5), (3, 7), (6, 2), (4, 4)]
"""Batches and lengths."""

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LSTM": (nn.LSTM, {}),
    "LSTM of doubles": (nn.LSTM, {"dtype": torch.float64, "batch_first": True}),
    "deep LSTM": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "projections": (nn.LSTM, {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
    "without biases": (nn.LSTM, {"proj_size": 2, "bias": False}),
    "GRU": (nn.GRU, {"batch_first": True}),
    "deep GRU": (nn.GRU, {"num_layers": 2, "bidirectional": True, "bias": False}),
    "RNN": (nn.RNN, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "RNN with ReLU": (nn.RNN, {"nonlinearity": "relu"}),
}


def tensors(value: Any) -> list[Tensor]:
    return (
        [value] if isinstance(value, Tensor) else [one for part in value for one in tensors(part)]
    )


def with_gradients(model: nn.Module, call: Any, *inputs: Any) -> list[Tensor]:
    """What a call gives, and the gradients of the model's parameters and of the inputs."""
    results = tensors(call(*inputs))
    loss = torch.stack([(one * torch.linspace(0.5, 1, one.shape[-1])).sum() for one in results])
    wanted = [*model.parameters(), *(one for one in tensors(inputs) if one.requires_grad)]
    return [*results, *torch.autograd.grad(loss.sum(), wanted)]


def assert_alike(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_one_compile_for_any_batch_and_length(kind: str) -> None:
    torch.manual_seed(0)
    cls, options = KINDS[kind]
    model = cls(4, 3, **options)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    for batch, length in SIZES:
        size = (batch, length, 4) if model.batch_first else (length, batch, 4)
        x = torch.randn(size, dtype=options.get("dtype"), requires_grad=True)
        assert_alike(with_gradients(model, compiled, x), with_gradients(model, model, x))
    assert len(compilations(compiled)) == 2
    for batch, length in SIZES:
        size = (batch, length, 4) if model.batch_first else (length, batch, 4)
        x = torch.randn(size, dtype=options.get("dtype"))
        with torch.no_grad():
            found, expected = tensors(compiled(x)), tensors(model(x))
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, check_stride=True)
    assert len(compilations(compiled)) == 3  # that sizes vary is known by now


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU])
def test_states_that_are_given(cls: Any) -> None:
    """States that require grad, the last ones used again, as in truncated backpropagation."""
    model = cls(4, 3)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    for batch, length in SIZES:
        x = torch.randn(length, batch, 4)
        state: Any = torch.randn(1, batch, 3, requires_grad=True)
        state = (state, torch.randn(1, batch, 3, requires_grad=True)) if cls is nn.LSTM else state
        found = with_gradients(model, compiled, x, state)
        assert_alike(found, with_gradients(model, model, x, state))
    assert len(compilations(compiled)) == 2


def test_one_sequence() -> None:
    model = nn.GRU(4, 3)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    for length in (5, 3, 8):
        x = torch.randn(length, 4)
        assert_alike(with_gradients(model, compiled, x), with_gradients(model, model, x))
    assert len(compilations(compiled)) == 2


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU])
def test_dropout_between_layers_draws_as_eager_does(cls: Any) -> None:
    model = cls(4, 3, num_layers=3, dropout=0.5)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    for batch, length in SIZES:
        x = torch.randn(length, batch, 4)
        torch.manual_seed(1)
        expected = [*with_gradients(model, model, x), torch.rand(2)]
        torch.manual_seed(1)
        assert_alike([*with_gradients(model, compiled, x), torch.rand(2)], expected)
    assert len(compilations(compiled)) == 2


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU])
def test_autocast(cls: Any) -> None:
    model = cls(4, 3)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    x = torch.randn(3, 2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        try:
            expected = model(x)
        except RuntimeError:  # oneDNN has no such LSTM for some processors
            with pytest.raises(RuntimeError, match="could not create a primitive"):
                compiled(x)
            return
        found = compiled(x)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.RNNCell(4, 3), nn.GRUCell(3, 3), nn.LSTMCell(3, 3)])

    def forward(self, x: Tensor) -> Any:
        rnn, gru, lstm = self.cells
        return lstm(gru(rnn(x)))


def test_cells() -> None:
    model = Cells()
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    for batch in (2, 3, 7):
        x = torch.randn(batch, 4)
        assert_alike(with_gradients(model, compiled, x), with_gradients(model, model, x))
    assert len(compilations(compiled)) == 2


def test_a_layer_that_stays_a_library_call() -> None:
    compiled = fusewright.compile(nn.LSTM(4, 3), fullgraph=True, options={"strict": True})
    compiled(torch.randn(5, 2, 4))[0].sum().backward()
    record = compilations(compiled)[0].record
    assert record is not None and record.extern_calls == ("subprogram.lstm_layer",)


def test_a_network_without_gates_is_a_library_call_where_no_gradient_is_wanted() -> None:
    model, x = nn.RNN(4, 3, 2, dropout=0.5), torch.randn(5, 2, 4)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    for training, gradients, is_call in (
        (False, False, True),
        (False, True, False),
        (True, False, False),  # dropout draws as eager's does
    ):
        model.train(training)
        with torch.set_grad_enabled(gradients):
            compiled(x)
        record = compilations(compiled)[-1].record
        assert record is not None
        assert (record.extern_calls == ("fusewright.rnn_tanh.default",)) is is_call
        assert ("subprogram.scan" in record.extern_calls) is not is_call


def test_without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compat, "has_onednn_kernels", lambda dtype: False)
    model, x = nn.LSTM(4, 3, 2, dropout=0.5), torch.randn(5, 2, 4)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    torch.manual_seed(1)
    expected = with_gradients(model, model, x)
    torch.manual_seed(1)
    assert_alike(with_gradients(model, compiled, x), expected)
    record = compilations(compiled)[0].record
    assert record is not None and "subprogram.scan" in record.extern_calls


def test_backward_twice() -> None:
    model = nn.LSTM(4, 3)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})
    loss = compiled(torch.randn(5, 2, 4))[0].square().sum()
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    assert_alike(torch.autograd.grad(loss, list(model.parameters())), first)


def test_hooks_on_saved_tensors_see_what_the_library_keeps() -> None:
    """Copies take the place of what is saved: a copy of a tensor without elements that holds the
    library's memory made oneDNN read what is not there.
    """
    model, x = nn.LSTM(4, 3, 2), torch.randn(5, 2, 4)
    compiled = fusewright.compile(model, fullgraph=True, options={"strict": True})

    def pack(tensor: Tensor) -> Tensor:
        return torch.stack([tensor, tensor])

    def unpack(copies: Tensor) -> Tensor:
        return copies[1]

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        found = with_gradients(model, compiled, x)
    assert_alike(found, with_gradients(model, model, x))


def test_an_lstm_in_a_function_that_is_one_node() -> None:
    model, x = nn.LSTM(4, 3), torch.randn(5, 2, 4)

    def eager(module: fx.GraphModule, inputs: Any) -> Any:
        return module.forward

    found = with_gradients(model, aot_module(model, fw_compiler=eager), x)
    assert_alike(found, with_gradients(model, model, x))


class Packed(nn.Module):
    def __init__(self, cls: Any) -> None:
        super().__init__()
        self.layer = cls(4, 3, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x * 2, lengths, batch_first=True, enforce_sorted=False)
        outputs, _ = self.layer(packed)
        return pad_packed_sequence(outputs, batch_first=True)[0] + 1


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU])
def test_packed_sequences_run_eagerly_between_graphs(cls: Any) -> None:
    """Which rows take part in which step is data: there are three breaks, and nothing of a packed
    sequence is compiled.
    """
    model = Packed(cls)
    compiled = fusewright.compile(model)
    for batch, length in SIZES:
        x, lengths = torch.randn(batch, length, 4), torch.randint(1, length + 1, (batch,))
        lengths[0] = length
        found = with_gradients(model, lambda *given: compiled(*given), x, lengths)
        assert_alike(found, with_gradients(model, lambda *given: model(*given), x, lengths))
    assert ", 3 breaks" in str(fusewright.explain(compiled))


def test_a_packed_sequence_in_a_graph_whose_rows_are_known() -> None:
    """Capture breaks there; this is for other graphs."""
    weights = [one.detach() for one in nn.LSTM(4, 3).parameters()]
    states = (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))
    arguments = (torch.tensor([2, 2, 1]), states, weights, True, 1, 0.0, False, False)
    graph = fx.Graph()
    graph.output(graph.call_function(torch.lstm, (graph.placeholder("packed"), *arguments)))
    backend = aot_autograd(fw_compiler=lambda module, _: module.forward)
    x = torch.randn(5, 4, requires_grad=True)
    found = backend(fx.GraphModule({}, graph), [x])(x)[0]
    expected = torch.lstm(x, *arguments)[0]
    assert_alike(found, expected)
    assert_alike(torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x))
