"""A backend that supplies only a kernel emitter: each fused group becomes loops in Python. What the
emitter refuses makes its graph run eagerly, with a warning.
"""

import functools
import math

import fusewright
from fusewright.backends.torch_dynamo import kernel_backend
from fusewright.errors import Unsupported
from fusewright.ir.group import Reduce, Store
from fusewright.ir.index import as_index
from fusewright.ir.value import Apply, Constant, Load
from fusewright.kernels import KernelLanguage, Work

OPERATIONS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "neg": "-{}",
    "reciprocal": "1.0 / {}",
    "fma": "{} * {} + {}",
    "maximum": "max({}, {})",
    "exp": "exp({})",
}
REDUCTIONS = {"sum": "{} + {}", "max": "max({}, {})"}
START = {"sum": 0.0, "max": "-inf"}


def expression(value):
    match value:
        case Load(buffer=buffer, index=index, indirect=()):
            return f"{buffer}[{index.text}]"
        case Constant(value=number):
            return str(number)
        case Apply(operation=name, arguments=arguments) if name in OPERATIONS:
            return f"({OPERATIONS[name].format(*map(expression, arguments))})"
    raise Unsupported(f"Python kernels do not know {getattr(value, 'operation', value)}")


def statement(action):
    match action:
        case Store(buffer=buffer, index=index, value=value):
            return f"{buffer}[{index.text}] = {expression(value)}"
        case Reduce(targets=(target,), kind=kind, value=value) if kind in REDUCTIONS:
            return f"{target}[0] = " + REDUCTIONS[kind].format(f"{target}[0]", expression(value))
    raise Unsupported(f"Python kernels do not know {action}")


def write(group, tensors, sizes):
    """A function of flat arrays and sizes: loops around stages, which have loops of their own."""
    rows = [f"def kernel({', '.join([*tensors, *map(str, sizes), 'units', 'grain'])}):"]
    rows += loops(group.outer, depth=1)
    depth = len(rows)
    for local in group.locals:
        length = " * ".join(f"({size.text})" for size in local.size) or "1"
        rows.append(" " * depth + f"{local.name} = [0.0] * ({length})")
    for stage in group.stages:
        for action in filter(lambda one: isinstance(one, Reduce), stage.actions):
            rows.append(" " * depth + f"{action.targets[0]}[0] = {START.get(action.kind)}")
        rows += loops(stage.inner, depth)
        rows += [" " * (depth + len(stage.inner)) + statement(one) for one in stage.actions]
    return "\n".join(rows), Work(units=as_index(1))


def loops(symbols, depth):
    rows = (f"for {symbol.name} in range({symbol.extent.text}):" for symbol in symbols)
    return [" " * at + row for at, row in enumerate(rows, depth)]


def load(sources):
    return tuple(functools.partial(launch, source) for source in sources.values())


def launch(source, *arguments):
    exec(source.text, variables := dict(vars(math)))
    memory = [flat(tensor) for tensor in arguments[: source.tensors]]
    variables["kernel"](*memory, *arguments[source.tensors :])


def flat(tensor):
    """The memory of a tensor, from its first element on."""
    spans = ((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((1 + sum(spans),), (1,)).numpy()


language = KernelLanguage(name="python", write=write, load=load)
fusewright.register_backend(kernel_backend(language), name="python_kernels")
