# wrong_value: call 1, gradient 0: torch.float32 6 of 6 values, at [0, 0]: eager 2.5, compiled 0.5, in double 2.5
import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import operator
import weakref
import torch
from torch import nn
from fusewright import graph_break
from fusewright.fuzz import fill, show

G_INT = 3
G_LIST = [1, 2]
LOG = []


class Entered:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = (name, swallow)

    def __enter__(self):
        LOG.append("enter " + self.name)
        return self

    def __exit__(self, kind, value, trace):
        LOG.append(f"exit {self.name} {(kind.__name__ if kind else None)} {value}")
        return self.swallow and kind is not None and issubclass(kind, ValueError)


@contextlib.contextmanager
def managed(tag):
    LOG.append(f"open {tag}")
    try:
        yield (tag + 1)
    finally:
        LOG.append(f"close {tag}")


class Meta:
    shared = 2

    def __init__(self, n=1):
        self.n = n
        self.items = [n, n + 1]
        self.flag = True
        self.table = {"k": n}

    @property
    def double(self):
        return self.n * 2

    @double.setter
    def double(self, value):
        LOG.append(f"set {value}")
        self.n = value // 2

    def bump(self, by=1):
        self.n = (self.n + by) % 9
        return self.n

    @classmethod
    def make(cls, n):
        return cls(n)

    @staticmethod
    def twice(v):
        return v * 2

    def apply(self, t, k=1):
        return t + self.n + k

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

    def __setitem__(self, i, v):
        self.items[i] = v

    def __iter__(self):
        return iter(self.items[:9])

    def __call__(self, v):
        return v + self.n

    def __eq__(self, other):
        return isinstance(other, Meta) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __add__(self, other):
        return self.n + (other.n if isinstance(other, Meta) else other)

    def __bool__(self):
        return self.n != 0

    def __repr__(self):
        return f"{type(self).__name__}({self.n})"


class Mod(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2
        self.weight = nn.Parameter(torch.tensor(3.0))
        self.register_buffer("count", torch.tensor(0.0))

    def forward(self, t):
        if self.training:
            self.count += 1
            return t + self.scale
        return t + self.scale + self.weight.detach()


def rec(n):
    return 1 if n <= 0 else n + rec(n - 1)


def gen(n):
    try:
        for i in range(n):
            got = yield (i * 2)
            if got:
                yield got
    finally:
        LOG.append(f"gen {n} closed")


def helper(t, a):
    return t + a


def twice(function, t):
    return function(function(t))


mod = Mod()
G_FUNCTION = helper
LST = [1, 2, 3]
D = {"a": 1, "b": 4}
OBJ = Meta(2)
MODE = "grad"
DYNAMIC = None
CALLS = [dict(seed=92, fl=0.5)]
STATE = ("LOG", "LST", "D", "OBJ", "G_INT", "G_LIST", "G_TEXT", "mod")


def outer():
    cell = 4

    def scaled(t, a):
        return t + a + cell

    def f(x, n, s, lst, d, obj, *rest, k=2, flag=False, fl=1.5, **kw):
        global G_INT, G_TEXT
        nonlocal cell
        with Entered("a"):
            with torch.no_grad():
                if operator.lt(len(rest), obj.n ^ 3):
                    x[0] += 1
                    obj.cache = torch.add(x, x.view(x.shape), alpha=2).clamp(-40, 40)
                    l1 = x.flatten()[:2].int().tolist()
                with torch.no_grad():
                    obj.table["q"] = f"{n:>3}|{s!r}".count("a")
                    lst.append(int([1, 2] == list(d.values())[:6]))
                    del lst[-1:]
                t2 = torch.stack([x + x, x.clone()]).sum(0)
            for i3 in range(-abs(k) % 4):
                for i4 in range(x.shape[-1] % 4):
                    LOG.extend(sorted(d))
        G_TEXT = ("yes" if "k" in d else "no")[:5]
        if [len(key) for key in d] < [len(key) for key in d]:
            OBJ.n = int("12") ^ 3
            b5 = "{} {}".format(2, f"{fl:.2f}")[:9].startswith("a")
        x += torch.add(sum([x, x]), x, alpha=2).clamp(-40, 40)
        part = gen(3)
        next(part)
        part.close()
        try:
            G_TEXT = str(hasattr(obj, "cache")).replace("a", "b")[:5]
            for row in x:
                LOG.append(row.dim())
                if len(list(itertools.islice(itertools.count(G_INT), 3))) > 2:
                    Meta.shared += 1
                    part = iter([len(key) for key in d][::-1])
                    i6 = sum(part)
                else:
                    d.setdefault("z", int(x.max().item()) % 7)
                    print(math.gcd(divmod(d["b"], 3)[1], 6))
                    d["k"] = len(kw)
            sys_state = torch.is_grad_enabled()
            LOG.append(sys_state)
        except (KeyError, IndexError) as error:
            LOG.append(repr(error))
            obj.n += 1
        lst.extend([][:4])
        if [i for i, v in enumerate([]) if v] < x.flatten()[:2].int().tolist():
            OBJ.n = [rec(obj[0] % 5), len(obj)].pop()
        elif None is not obj:
            i7 = int(bool(obj))
            with managed(obj[0]) as i8:
                x[0] += 1
                part = gen(3)
                next(part)
                part.close()
                part = gen(3)
                next(part)
                part.close()
            lst.append(math.gcd(len(kw), 6))
        elif obj.double > x.dim():
            try:
                LOG.append(abs(len(obj)))
            except ValueError as error:
                LOG.append(str(error))
            LOG.append(repr(obj).zfill(4).title())
            try:
                l9 = lst
                o10 = obj
            except AttributeError:
                t11 = functools.reduce(
                    torch.maximum,
                    [
                        getattr(x, "abs")(),
                        obj.apply(sum([x, x]), k=dataclasses.replace(Point(0), y=3).y),
                    ],
                )
                for_later = weakref.ref(obj)
                LOG.append(for_later() is obj)
            else:
                mod.scale = len(rest)
            finally:
                LOG.append("end")
        else:
            LOG.append(next(iter(d), None))
            try:
                sys_state = torch.is_grad_enabled()
                LOG.append(sys_state)
            except Exception as error:
                LOG.append(type(error).__name__)
            count = 0
            while count < 3:
                count += 1
                LOG.append(list(sorted(set([t.dim() for t in x.unbind(0)]))))
                Meta.shared += 1
                if None is not obj:
                    break
        return (x, s, obj)

    def peek():
        return cell

    return (f, peek)


f, peek = outer()


def make(seed, n=2, s="ab", rest=(), **keywords):
    return [fill(seed, (3, 2), torch.float32, "integers", grad=True), n, s, rest, keywords]


def drive(f, x, n, s, rest, keywords):
    try:
        return f(x * 1, n, s, LST, D, OBJ, *rest, **keywords)
    finally:
        LOG.append(peek())


if __name__ == "__main__":
    show(__file__)
