"""The parts that random modules are made of. `{n}` is the width of the features, `{module}` another
module of the same width; each takes and returns a tensor whose last dimension is that width.
"""

from __future__ import annotations

from typing import Final

LEAVES: Final = (
    *("nn.Linear({n}, {n})",) * 4,
    "nn.Linear({n}, {n}, bias=False)",
    "nn.ReLU()",
    "nn.ReLU(inplace=True)",
    "nn.GELU()",
    "nn.SiLU()",
    "nn.Tanh()",
    "nn.Mish()",
    "nn.ELU()",
    "nn.Softplus()",
    "nn.LeakyReLU(0.1)",
    "nn.PReLU()",
    "nn.Hardswish()",
    "nn.Identity()",
    "nn.Dropout(0.0)",
    "nn.LayerNorm({n})",
    "nn.LayerNorm({n}, elementwise_affine=False)",
    "nn.RMSNorm({n})",
    "nn.GroupNorm(2, {n})",
    "nn.BatchNorm1d({n})",
    "nn.BatchNorm1d({n}, momentum=None)",
    "nn.BatchNorm1d({n}, affine=False)",
    "nn.BatchNorm1d({n}, track_running_stats=False)",
    "nn.utils.parametrizations.weight_norm(nn.Linear({n}, {n}))",
    "nn.Sequential(nn.Linear({n}, 2 * {n}), nn.GELU(), nn.Linear(2 * {n}, {n}))",
    "nn.Sequential(nn.Unflatten(-1, (1, {n})), nn.Conv1d(1, 1, 3, padding=1), nn.Flatten())",
    "Scale({n})",
    "Tied({n})",
    "Gate({n})",
    "Counter({n})",
    "Memory({n})",
    "Attention({n})",
    "Straight()",
    "Choice({n})",
    "Written()",
)

BRANCHES: Final = (
    "nn.Sequential({module}, {module})",
    "nn.Sequential({module}, {module}, {module})",
    "Residual({module})",
    "Residual({module}, 0.5)",
    "Branches({module}, {module})",
    "Stack([{module}, {module}, {module}])",
    "Checkpointed({module})",
    "Hooked({module})",
    "Autocast({module})",
    "Repeated({module})",
    "NoGrad({module})",
)

DEFINITIONS: Final[dict[str, str]] = {
    "Scale": """class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(n))
        self.table = nn.ParameterList([nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))])

    def forward(self, x):
        if x.dim() > 2:
            return x * self.gain.exp() - self.table[1]
        return x * self.gain + self.table[0]
""",
    "Tied": """class Tied(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.first = nn.Linear(n, n)
        self.second = nn.Linear(n, n)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))
""",
    "Gate": """class Gate(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.value = nn.Linear(n, n)
        self.gate = nn.Linear(n, n, bias=False)

    def forward(self, x, *, sharp=1.0):
        return self.value(x) * torch.sigmoid(self.gate(x) * sharp)
""",
    "Counter": """class Counter(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("last", torch.zeros(n), persistent=False)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        self.last = x.detach().reshape(-1, x.shape[-1])[-1]
        return x * (1 + 0.1 * self.seen)
""",
    "Memory": """class Memory(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x.reshape(-1, x.shape[-1]).mean(0), alpha=0.1)
        return x - self.mean
""",
    "Attention": """class Attention(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.mix = nn.Linear(n, 3 * n)

    def forward(self, x):
        q, k, v = self.mix(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v)
""",
    "Straight": """class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1.5).to(gradient.dtype)


class Straight(nn.Module):
    def forward(self, x):
        return Clipped.apply(x)
""",
    "Choice": """class Choice(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.parts = nn.ModuleDict({"odd": nn.Linear(n, n), "even": nn.Linear(n, n)})

    def forward(self, x):
        return self.parts["even" if x.shape[0] % 2 == 0 else "odd"](x)
""",
    "Written": """class Written(nn.Module):
    def forward(self, x):
        y = x * 2
        y[..., 0] = 1
        y[..., 1:].mul_(0.5)
        return y
""",
    "Residual": """class Residual(nn.Module):
    def __init__(self, inner, scale=1.0):
        super().__init__()
        self.inner = inner
        self.scale = scale

    def forward(self, x):
        return x + self.inner(x * 1) * self.scale
""",
    "Branches": """class Branches(nn.Module):
    def __init__(self, left, right):
        super().__init__()
        self.parts = nn.ModuleDict({"left": left, "right": right})

    def forward(self, x):
        total = 0
        for name, part in self.parts.items():
            total = total + part(x * 1) * (2.0 if name == "left" else 1.0)
        return total
""",
    "Stack": """class Stack(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        kept = []
        for i, part in enumerate(self.parts):
            x = part(x)
            if i % 2 == 1:
                kept.append(x * 1)
        return sum(kept, start=x)
""",
    "Checkpointed": """class Checkpointed(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x * 1, use_reentrant=False)
""",
    "Hooked": """class Hooked(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.seen = 0
        inner.register_forward_pre_hook(self.before)
        inner.register_forward_hook(self.after)

    def before(self, module, args):
        self.seen += 1
        return (args[0] * 0.9,)

    def after(self, module, args, out):
        self.seen += 100
        return out + 0.1

    def forward(self, x):
        return self.inner(x * 1)
""",
    "Autocast": """class Autocast(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            return self.inner(x * 1)
""",
    "Repeated": """class Repeated(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, times=2):
        for _ in range(times):
            x = self.inner(x * 1)
        return x
""",
    "NoGrad": """class NoGrad(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.no_grad():
            y = self.inner(x * 1)
        return x + y
""",
}
"""Classes that the parts name, each as text."""

LOSSES: Final = (
    "out.square().mean()",
    "out.logsumexp(-1).mean()",
    "F.smooth_l1_loss(out, out.detach() * 0.5 + 1)",
    "F.cross_entropy(out.flatten(0, -2), torch.arange(out.flatten(0, -2).shape[0]) % {n})",
    "F.mse_loss(out, torch.zeros_like(out))",
    "(out * torch.linspace(0, 1, {n})).sum()",
    "F.huber_loss(out, torch.ones_like(out))",
)

OPTIMIZERS: Final = (
    "torch.optim.SGD(MODEL.parameters(), lr=0.01)",
    "torch.optim.SGD(MODEL.parameters(), lr=0.01, momentum=0.9, nesterov=True)",
    "torch.optim.SGD(MODEL.parameters(), lr=0.01, momentum=0.9, weight_decay=0.1, foreach=False)",
    "torch.optim.Adam(MODEL.parameters(), lr=0.01, eps=0.01)",
    "torch.optim.Adam(MODEL.parameters(), lr=0.01, eps=0.01, foreach=True)",
    "torch.optim.AdamW(MODEL.parameters(), lr=0.01, eps=0.01, amsgrad=True)",
    "torch.optim.RMSprop(MODEL.parameters(), lr=0.01, eps=0.01)",
    "torch.optim.RMSprop(MODEL.parameters(), lr=0.01, eps=0.01, centered=True, momentum=0.5)",
    "torch.optim.Adagrad(MODEL.parameters(), lr=0.01, eps=0.01)",
    "torch.optim.Adamax(MODEL.parameters(), lr=0.01, eps=0.01)",
    "torch.optim.NAdam(MODEL.parameters(), lr=0.01, eps=0.01)",
    "torch.optim.RAdam(MODEL.parameters(), lr=0.01, eps=0.01)",
)

SCHEDULERS: Final = (
    "torch.optim.lr_scheduler.StepLR(OPTIMIZER, 1, 0.5)",
    "torch.optim.lr_scheduler.ExponentialLR(OPTIMIZER, 0.9)",
    "torch.optim.lr_scheduler.CosineAnnealingLR(OPTIMIZER, 5)",
    "torch.optim.lr_scheduler.LambdaLR(OPTIMIZER, lambda step: 1 / (step + 1))",
)

BETWEEN: Final = (
    "torch.nn.utils.clip_grad_norm_(MODEL.parameters(), 1.0)",
    "torch.nn.utils.clip_grad_value_(MODEL.parameters(), 0.5)",
    "MODEL.train(not MODEL.training)",
    "MODEL.eval()",
    "for parameter in list(MODEL.parameters())[:1]:\n        parameter.requires_grad_(False)",
)
"""Statements that a training step may have between its backward and its step."""
