"""Programs as people write them around torch: recurrent layers on packed sequences, decoding loops,
signal processing, linear algebra, losses, masks.
"""

# ruff: noqa: UP031, UP032
# (some of these functions are meant to use older forms of the language)

from __future__ import annotations

import copy
import io
import os
import random
import types
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.capture.torch_cases import Cases

X = torch.arange(12.0).reshape(3, 4) / 5 - 1
SEQUENCES = torch.randn(3, 5, 4)

cases = Cases()


@cases(
    lambda: (nn.LSTM(4, 6, batch_first=True), SEQUENCES, torch.tensor([5, 3, 2])),
    breaks="fake-execution",
)
def packed_sequences(m: Any, x: Any, lengths: Any) -> Any:
    p = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=True)
    o, _ = m(p)
    o, sizes = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
    return o, sizes


@torch.compiler.nested_compile_region
def region(x: Any, *, scale: float) -> Any:
    return torch.cos(x) * scale


@cases(X)
def compile_regions(x: Any) -> Any:
    return region(x, scale=2.0) + region(x + 1, scale=3.0)


@cases(X)
def chance_that_nobody_asks(x: Any) -> Any:
    """As models leave out layers in training."""
    for _ in range(2):
        chance = random.uniform(0, 1)
        if x.requires_grad and chance < 0.1:
            continue
        x = x * 2
    return x


@cases(X, breaks="outside-world")
def chance_that_decides(x: Any) -> Any:
    return x * 2 if random.random() < 0.5 else x + 1


@cases(X, breaks="outside-world")
def chance_returned(x: Any) -> Any:
    return x + 1, random.randint(0, 5)


@cases(lambda: (X, random.Random(3)), breaks="outside-world")
def chance_of_a_generator(x: Any, generator: Any) -> Any:
    generator.random()
    return x + 1


@cases(X)
def message_that_nobody_sees(x: Any) -> Any:
    message = f"the sum is {x.sum()} of {x.shape}"
    torch._check_tensor_all(x < 5, lambda: message)
    return x + 1


@cases(X, raises=True)
def check_that_fails(x: Any) -> Any:
    torch._check_tensor_all(x < 1, lambda: f"the largest is {x.max():.1f}")
    return x + 1


@cases(X, breaks="tensor-to-unknown")
def length_of_a_message(x: Any) -> Any:
    message = f"the sum is {x.sum()} of {x.shape}"
    return x + len(message)


@cases(X, types.SimpleNamespace(b=X + 1))
def inputs_that_would_be_called_alike(a_b: Any, a: Any) -> Any:
    return a_b - 2 * a.b


@cases(SEQUENCES)
def padded_sequences(x: Any) -> Any:
    return nn.utils.rnn.pad_sequence([x[0], x[1, :3], x[2, :2]], batch_first=True)


@cases(torch.randn(2, 400))
def spectrogram_and_back(x: Any) -> Any:
    s = torch.stft(x, 64, hop_length=16, window=torch.hann_window(64), return_complex=True)
    return s.abs(), torch.istft(s, 64, hop_length=16, window=torch.hann_window(64))


@cases(torch.randn(400, dtype=torch.double, requires_grad=True))
def spectra_of_every_kind(x: Any) -> Any:
    narrow, s = torch.hamming_window(48, dtype=x.dtype), torch.stft(x, 64, return_complex=True)
    whole = torch.stft(x, 64, 20, 48, narrow, onesided=False, return_complex=True, normalized=True)
    return (
        torch.istft(s, 64),
        s.istft(64, length=500),
        torch.istft(s, 64, center=False, length=450),
        torch.istft(whole, 64, 20, 48, narrow, normalized=True),
        torch.istft(whole, 64, 20, 48, narrow, onesided=False, return_complex=True, length=100),
    )


@cases(torch.randn(2, 400), raises=True)
def windows_that_leave_something_out(x: Any) -> Any:
    s = torch.stft(x, 64, hop_length=16, window=torch.hann_window(64), return_complex=True)
    return torch.istft(s, 64, hop_length=16, window=torch.hann_window(64), center=False)


@cases(torch.randn(2, 400), raises=True)
def spectra_of_another_size(x: Any) -> Any:
    return torch.istft(torch.stft(x, 64, return_complex=True), 60)


@cases(torch.randn(4, 4))
def linear_algebra(x: Any) -> Any:
    a = x @ x.T + torch.eye(4)
    return (
        torch.linalg.cholesky(a),
        torch.linalg.inv(a),
        torch.linalg.det(a),
        torch.linalg.solve(a, x),
        torch.linalg.eigvalsh(a),
        torch.linalg.qr(x)[0].abs(),
        torch.linalg.svdvals(x),
        torch.linalg.matrix_norm(x),
        torch.trace(a),
        torch.linalg.slogdet(a),
    )


@cases(torch.randn(1, 1, 4, 4))
def images(x: Any) -> Any:
    theta = torch.eye(2, 3)[None]
    g = functional.affine_grid(theta, (1, 1, 4, 4), align_corners=False)
    return (
        functional.grid_sample(x, g, align_corners=False),
        functional.pixel_shuffle(x.expand(1, 4, 4, 4), 2),
        functional.unfold(x, 2),
        functional.adaptive_avg_pool2d(x, 2),
        functional.max_pool2d(x, 2, return_indices=True),
        functional.interpolate(x, size=(8, 8), mode="bilinear"),
    )


@cases(
    lambda: (nn.EmbeddingBag(10, 3, mode="sum"), torch.tensor([1, 2, 4, 5]), torch.tensor([0, 2]))
)
def bags_of_words(m: Any, i: Any, o: Any) -> Any:
    return m(i, o)


@cases(
    lambda: (nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6]), X, torch.tensor([0, 4, 8])),
    breaks="fake-execution",  # squeeze of what nonzero found, which may be one
)
def adaptive_softmax(m: Any, x: Any, t: Any) -> Any:
    return m(x, t)


@cases(torch.randn(2, 10))
def nucleus_sampling(logits: Any) -> Any:
    s, i = torch.sort(logits, descending=True)
    c = s.softmax(-1).cumsum(-1)
    rm = c > 0.9
    rm[..., 1:] = rm[..., :-1].clone()
    rm[..., 0] = False
    mask = rm.scatter(1, i, rm)
    logits = logits.masked_fill(mask, float("-inf"))
    logits[mask] = -1e9
    return torch.multinomial(logits.softmax(-1), 1)


@cases(torch.tensor(1.0), breaks="branch-on-tensor")
def loop_while_tensor(x: Any) -> Any:
    n = 0
    while x < 100:
        x = x * 2
        n += 1
    return x, n


@cases(lambda: (nn.Linear(4, 8), X), breaks="branch-on-tensor")
def decoding_loop(m: Any, x: Any) -> Any:
    out = []
    for _ in range(5):
        tok = m(x).argmax(-1)
        out.append(tok)
        if (tok == 3).all():
            break
        x = x + functional.one_hot(tok, 8)[:, :4].float()
    return torch.stack(out, 1)


@cases(X)
def assertions(x: Any) -> Any:
    assert x.shape[0] == 3, "bad"
    assert (x < 10).all()
    torch._assert(x.dim() == 2, "dims")
    return x * 2


@cases(X)
def checked(x: Any) -> Any:
    torch._check(x.shape[0] > 1)
    return x


@cases(X)
def builtins_of_tensors(x: Any) -> Any:
    return sum([x, x, x]), max([1, 2]), torch.stack([*x]).sum(), sorted([3, 1]), any([x.dim() > 1])


@cases(X)
def nested_functions(x: Any) -> Any:
    def outer(f, n):
        def inner(v):
            return f(v) if n == 0 else outer(f, n - 1)(v) * 2

        return inner

    return outer(torch.relu, 3)(x)


@cases(
    lambda: (
        nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
        torch.randn(2, 3, 8),
        torch.randn(2, 4, 8),
    )
)
def transformer(m: Any, a: Any, b: Any) -> Any:
    return m(
        a,
        b,
        tgt_mask=m.generate_square_subsequent_mask(4),
        src_key_padding_mask=torch.tensor([[False, False, True], [False, False, False]]),
    )


@cases(lambda: (nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8)))
def attention_with_mask(m: Any, x: Any) -> Any:
    return m(
        x,
        x,
        x,
        key_padding_mask=torch.tensor([[False, False, True], [False, False, False]]),
        average_attn_weights=False,
    )


@cases(torch.randn(5, 3, 7).log_softmax(-1), breaks="fake-execution")
def connectionist_loss(lp: Any) -> Any:
    return functional.ctc_loss(
        lp, torch.tensor([[1, 2], [3, 1], [2, 2]]), torch.tensor([5, 5, 5]), torch.tensor([2, 2, 2])
    )


@cases(X, breaks="fake-execution")
def sparse_operators(x: Any) -> Any:
    s = x.to_sparse()
    return torch.sparse.mm(s, x.T), s.to_dense().sum()


@cases(X)
def counting(x: Any) -> Any:
    return (
        torch.histc(x, 4),
        torch.bincount(torch.tensor([1, 1, 3])),
        torch.searchsorted(x[0].contiguous(), torch.tensor([0.0])),
        torch.quantile(x, 0.5),
        torch.median(x),
        torch.mode(x),
        torch.kthvalue(x, 2),
        torch.cummax(x, 0),
        torch.diff(x),
        torch.trapz(x),
        torch.unique_consecutive(x),
    )


@cases(X, breaks="unknown-callable")
def saved_and_loaded(x: Any) -> Any:
    b = io.BytesIO()
    torch.save(x, b)
    b.seek(0)
    return torch.load(b) + 1


@cases(lambda: (nn.SyncBatchNorm(4), X))
def synchronised_norm(m: Any, x: Any) -> Any:
    return m.eval()(x)


@cases(
    lambda: (
        nn.Sequential(
            nn.Conv1d(4, 4, 3), nn.InstanceNorm1d(4), nn.PReLU(), nn.AdaptiveMaxPool1d(2)
        ),
        torch.randn(2, 4, 8),
    )
)
def convolution_over_time(m: Any, x: Any) -> Any:
    return m(x)


@cases(X)
def other_types(x: Any) -> Any:
    return (
        x.view(torch.int32) >> 1,
        torch.view_as_complex(x.reshape(3, 2, 2)),
        torch.view_as_real(torch.complex(x, x)),
        x.to(torch.bfloat16).float(),
        (x > 0).byte(),
        torch.frexp(x),
        torch.ldexp(x, torch.tensor(2)),
    )


@cases(X)
def broadcast_and_where(x: Any) -> Any:
    return (
        torch.maximum(x, x[0]),
        torch.lerp(x, x[0], 0.3),
        torch.addcmul(x, x, x[0], value=2),
        torch.where(x > 0),
        torch.outer(x[0], x[1]),
        torch.kron(x, x),
    )


@cases(X)
def closure_changes_tensor(x: Any) -> Any:
    acc = []

    def add(v):
        nonlocal x
        acc.append(v)
        x = x + v

    for i in range(3):
        add(i)
    return x, acc


@cases(X, breaks="grad-required")
def gradient_function(x: Any) -> Any:
    y = x.requires_grad_() * 2
    return y.grad_fn is not None, y


@cases(X)
def match_on_dtype(x: Any) -> Any:
    match x.dtype:
        case torch.float32:
            return x + 1
        case _:
            return x


@cases(X)
def text_of_metadata(x: Any) -> Any:
    return (
        str(x.dtype),
        repr(x.shape),
        f"{x.shape}",
        f"{x.device!s}",
        "%d" % x.dim(),
        "{}".format(x.size(0)),
    )


@cases(X)
def device_queries(x: Any) -> Any:
    return (
        x.cuda() if torch.cuda.is_available() else x.cpu(),
        torch.cuda.device_count(),
        torch.get_num_threads() > 0,
    )


@cases(X)
def named_results(x: Any) -> Any:
    r = torch.max(x, 0)
    _, positions = r
    return r._fields if hasattr(r, "_fields") else positions, r.values, type(r).__name__, tuple(r)


@cases(X)
def results_by_name(x: Any) -> Any:
    largest, ordered = x.max(1), torch.sort(x)
    return largest.values + ordered.values[:, 0], ordered.indices, largest.indices


@cases(X)
def generator_without_gradients(x: Any) -> Any:
    @torch.no_grad()
    def gen():
        for i in range(3):
            yield x * i

    return list(gen())


@cases(X, breaks="random-state")
def generator_of_its_own(x: Any) -> Any:
    g = torch.Generator()
    g.manual_seed(1)
    return torch.rand(3, generator=g)


@cases(X)
def lists_of_tensors(x: Any) -> Any:
    return torch._foreach_add([x, x], 1), torch._foreach_mul([x, x], [x, x])


@cases(X)
def environment(x: Any) -> Any:
    return x * int(os.environ.get("NOPE", "2"))


@cases(X)
def shallow_copy(x: Any) -> Any:
    d = {"a": x, "b": [x, 1]}
    e = copy.copy(d)
    e["a"] = x + 1
    return d, e


@cases(X, breaks="tensor-value")
def deep_copy(x: Any) -> Any:
    return copy.deepcopy({"a": x})


test_program = cases.test()
