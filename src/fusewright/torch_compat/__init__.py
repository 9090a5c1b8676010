"""The private names of torch that fusewright cannot do without, each with its reason and the
versions it was seen in.

A new release of torch is this folder's work. Everything here was seen in torch 2.11, 2.12 and 2.13
unless a line says otherwise; no file under `src` outside of this folder may use a name of torch
that begins with an underscore.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._higher_order_ops import scan as scan
from torch._higher_order_ops import while_loop as while_loop
from torch.utils import _python_dispatch
from torch.utils._device import DeviceContext

from fusewright.torch_compat.without_dynamo import (
    keeps_dynamo_out as keeps_dynamo_out,
)
from fusewright.torch_compat.without_dynamo import (
    run_references_without_dynamo as run_references_without_dynamo,
)
from fusewright.torch_version import unsupported_version, version_of

if _refusal := unsupported_version(torch.__version__):
    raise ImportError(_refusal)

OpOverload = torch._ops.OpOverload
"""Public in all but name: the type of `torch.ops.aten.add.Tensor`."""


class TorchDispatchMode(_python_dispatch.TorchDispatchMode):
    """A mode under which `__torch_dispatch__` is given each ATen operator."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's hook that keeps it from importing dynamo (1.3 s) to wrap `__torch_dispatch__`."""
        return False


# Before 2.13, `scan` stacks the results of its steps along the first dimension, whichever it walks.
SCAN_STACKS_ALONG_ITS_DIMENSION = version_of(torch.__version__) >= (2, 13)

disabled_torch_function = torch._C._disabled_torch_function_impl
"""Value of `__torch_function__` for a subclass that is interested in dispatch alone."""


def make_wrapper(
    subclass: type[torch.Tensor],
    meta: torch.Tensor,
    device: torch.device,
    requires_grad: bool = False,
    storage_bytes: int | None = None,
) -> Any:
    """A tensor of `subclass` without data that reports `device` and the dtype, sizes and strides of
    `meta`.

    `storage_bytes`: what the storage of symbolic sizes is to report; torch takes 100 us to find it.
    """
    return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
        subclass,
        meta.size(),
        meta.stride(),
        meta.storage_offset(),
        dtype=meta.dtype,
        device=device,
        requires_grad=requires_grad,
        storage_size=storage_bytes,
    )


def has_symbolic_geometry(tensor: torch.Tensor) -> bool:
    """Whether a size, a stride or the offset of `tensor` is a `torch.SymInt`."""
    return tensor._has_symbolic_sizes_strides


def is_symbolic_refusal(error: RuntimeError) -> bool:
    """Whether `error` is what torch raises when C++ code asks for the sizes of a tensor whose sizes
    are symbolic, or is given such sizes where it takes none.
    """
    refusals = (
        "on tensor with symbolic sizes/strides",
        "expected to contain only concrete integers",
    )
    return any(text in str(error) for text in refusals)


def python_kernels() -> AbstractContextManager[None]:
    """Context in which operators with a Python implementation in torch use that: many of those in
    C++ take no symbolic sizes.
    """
    dispatch = torch._dispatch.python  # type: ignore[attr-defined]
    return dispatch.enable_python_dispatcher()  # type: ignore[no-any-return]


def storage_key(tensor: torch.Tensor) -> int:
    """A number shared by exactly the living tensors that share one storage; works on the meta
    device.
    """
    return torch._C._storage_id(tensor)  # type: ignore[attr-defined]


def viewed_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """What `tensor` is a view of, as autograd sees it; itself, if it is none."""
    base = tensor._base
    return tensor if base is None else base


def has_no_derivative(tensor: torch.Tensor) -> bool:
    """Whether a result requires grad of an operator that torch cannot differentiate: asking for its
    gradient raises.
    """
    history = tensor.grad_fn
    return history is not None and history.name().endswith("NotImplemented")


def is_stale_history(error: Exception) -> bool:
    """Whether the engine raised an error because a tensor that it needs was written to."""
    return isinstance(error, RuntimeError) and str(error).startswith(_STALE_HISTORY)


_STALE_HISTORY = (
    "one of the variables needed for gradient computation has been modified by an inplace"
)


def is_view_made_without_gradients(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view that was made with gradients off. Asking it for its history raises
    where it, or what it shows, was written to since.
    """
    kind = torch._C._autograd.CreationMeta.NO_GRAD_MODE
    return tensor._is_view() and torch._C._autograd._get_creation_meta(tensor) == kind


def without_base(value: Any) -> Any:
    """`value`, or where it is a tensor that autograd holds for a view, a tensor of the same memory
    that is none.
    """
    is_view = isinstance(value, torch.Tensor) and value._base is not None
    return value.detach() if is_view else value


def storage_object_key(storage: torch.UntypedStorage) -> int:
    """`storage_key` of the tensors in `storage`, whose number belongs to no other storage while
    this one lives.
    """
    return storage._cdata


def conjugate_view(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a complex tensor with its conjugate bit flipped."""
    return torch._conj(tensor)


def negative_view(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a tensor with its negative bit flipped."""
    return torch._neg_view(tensor)


def without_math_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of `tensor` as it is: a view with neither the conjugate nor the negative bit."""
    if tensor.is_conj():
        tensor = conjugate_view(tensor)
    return negative_view(tensor) if tensor.is_neg() else tensor


def is_read_of_fake(error: Exception) -> bool:
    """Whether `error` is what torch raises when C++ code asks a tensor without memory, as fakes
    are, for its elements. 2.11 to 2.13.
    """
    return isinstance(error, RuntimeError) and "data is not allocated yet" in str(error)


def is_transformed(tensor: torch.Tensor) -> bool:
    """Whether a tensor belongs to a function transform (`torch.func`, batches of gradients),
    current or left: it wraps another and has no memory of its own. 2.11 to 2.13.
    """
    kinds = torch._C._functorch
    return kinds.is_functorch_wrapped_tensor(tensor) or kinds.is_legacy_batchedtensor(tensor)


def is_transforming() -> bool:
    """Whether a function transform is running what is called now. Seen in 2.11 to 2.13."""
    return torch._C._functorch.maybe_current_level() is not None


def forward_level() -> int:
    """How many levels of forward differentiation this process is in, less one."""
    return torch.autograd.forward_ad._current_level


def has_forward_tangent(tensor: torch.Tensor) -> bool:
    """Whether forward differentiation goes through `tensor`."""
    if forward_level() < 0:
        return False
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is the kind of zeros without memory that autograd makes."""
    return tensor._is_zerotensor()


def set_math_bits(tensor: torch.Tensor, like: torch.Tensor) -> None:
    """Give `tensor` itself the conjugate and the negative bit of `like`."""
    torch._C._set_conj(tensor, like.is_conj())  # type: ignore[attr-defined]
    torch._C._set_neg(tensor, like.is_neg())  # type: ignore[attr-defined]


def convolution_memory_format(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> torch.memory_format:
    """The layout of `aten.convolution`'s result, which depends on the library that would run it on
    the device of `x`.
    """
    bias_sizes = None if bias is None else bias.shape
    backend = torch._C._select_conv_backend(  # type: ignore[attr-defined]
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, bias_sizes
    )
    determine = torch._C._conv_determine_backend_memory_format  # type: ignore[attr-defined]
    return determine(x, weight, backend)  # type: ignore[no-any-return]


def without_torch_dispatch() -> Any:
    """Context in which operators ignore modes and subclasses: they touch the wrapper's own
    metadata.
    """
    return torch._C._DisableTorchDispatch()  # type: ignore[attr-defined]


# -- operator schemas -----------------------------------------------------------------------------


@functools.cache
def operator_arguments(op: OpOverload) -> tuple[Any, ...]:
    """The schema's arguments: each has `.name`, `.type`, `.kwarg_only`, `.default_value`,
    `.alias_info`.
    """
    return tuple(op._schema.arguments)


def arguments_text(op: OpOverload) -> str:
    """The schema's arguments as text: `Tensor(a0!) x, float by`."""
    text = str(op._schema)
    return text[text.index("(") + 1 : text.rindex(") -> ")]


@functools.cache
def operator_returns(op: OpOverload) -> tuple[Any, ...]:
    """The schema's results, in order."""
    return tuple(op._schema.returns)


@functools.cache
def written_arguments(op: OpOverload) -> tuple[str, ...]:
    """Names of the arguments that the operator writes to: `self` of `add_`, `out` of `add.out`."""
    return tuple(
        argument.name
        for argument in operator_arguments(op)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


@functools.cache
def is_view_operator(op: OpOverload) -> bool:
    """True when a result may share storage with an argument that is not written to."""
    return any(
        argument.alias_info is not None and not argument.alias_info.is_write
        for argument in operator_arguments(op)
    )


@functools.cache
def is_composite(op: OpOverload) -> bool:
    """True for an operator that is only a C++ composition of others (`aten.linear`,
    `aten.reshape`).
    """
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), torch._C.DispatchKey.CompositeImplicitAutograd
    )


def decompose(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a composite operator gives, by the operators that it is made of.

    Torch's Python writing of `dropout` gives a copy where that in C++ gives its argument itself.
    """
    if op is torch.ops.aten.dropout.default:
        return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
    return op.decompose(*args, **kwargs)


@functools.cache
def has_effect(op: OpOverload) -> bool:
    """True for an operator that does more than give results: one without any (an assert), or one
    that draws random numbers, since the next draw depends on how many there were.
    """
    if op is torch.ops.aten._assert_tensor_metadata.default:
        return False  # looks only at what is known while tracing
    return not operator_returns(op) or torch.Tag.nondeterministic_seeded in op.tags


def overload_by_name(namespace: str, name: str, overload: str) -> OpOverload | None:
    """The operator `namespace::name.overload`, or None where this torch has none of that name."""
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return getattr(packet, overload or "default", None) if packet is not None else None


promise_size = torch._check_is_size
"""Tells that a number which depends on data is a size."""

set_grad_enabled = torch._C._set_grad_enabled  # type: ignore[attr-defined]
"""What `torch.no_grad` and its kin call in the end, and captured graphs too."""


# -- tensor layout and global state, for the native floor and for guards --------------------------

LIBRARY_FILE: str = torch._C.__file__
"""The shared library from which all of torch's libraries can be reached."""


def implementation_address(tensor: torch.Tensor) -> int:
    """Where the tensor's implementation stands in memory."""
    return tensor._cdata


def key_set(tensor: torch.Tensor) -> int:
    """The tensor's dispatch key set: a bit for each functionality and backend."""
    keys: int = torch._C._dispatch_keys(tensor).raw_repr()  # type: ignore[attr-defined]
    return keys


def thread_state_readers() -> tuple[tuple[str, Callable[[], Any]], ...]:
    """What guards on a thread's dispatch state read where it cannot be read from memory: name and
    reader.
    """
    return (
        ("inference mode", torch.is_inference_mode_enabled),
        ("whether autocast is on", torch._C._is_any_autocast_enabled),  # type: ignore[attr-defined]
        ("the number of dispatch modes", torch._C._len_torch_dispatch_stack),
        ("the functorch level", torch._C._functorch.maybe_current_level),
    )


def _function_state() -> str:
    if torch._C._is_torch_function_all_disabled():  # type: ignore[attr-defined]
        return "off"
    enabled = torch._C._is_torch_function_enabled()  # type: ignore[attr-defined]
    return "on" if enabled else "off for subclasses"


STATES: dict[str, tuple[str, Callable[[], Any]]] = {
    "default_dtype": ("the default dtype", torch.get_default_dtype),
    "deterministic_algorithms": (
        "deterministic mode",
        torch._C._get_deterministic_algorithms,
    ),
    "deterministic_warn_only": (
        "whether deterministic mode only warns",
        torch._C._get_deterministic_algorithms_warn_only,
    ),
    "deterministic_fill": (
        "whether new tensors are filled",
        torch._C._get_deterministic_fill_uninitialized_memory,  # type: ignore[attr-defined]
    ),
    "cuda_matmul_precision": (
        "the precision of float32 matmul on CUDA",
        functools.partial(torch._C._get_fp32_precision_getter, "cuda", "matmul"),  # type: ignore[attr-defined]
    ),
    "cpu_matmul_precision": (
        "the precision of float32 matmul on the CPU",
        functools.partial(torch._C._get_fp32_precision_getter, "mkldnn", "matmul"),  # type: ignore[attr-defined]
    ),
    "function_modes": (
        "the number of function modes",
        torch._C._len_torch_function_stack,
    ),
    "function_state": (
        "how far __torch_function__ is on",
        _function_state,
    ),
}
"""State that every captured graph depends on, by the native floor's name of it: the name in words,
and a reader for where the native floor has none.
"""


def mode_readers() -> tuple[tuple[str, Callable[[], Any]], ...]:
    """State that graphs depend on while function modes or autocast are active: name and reader."""
    readers: list[tuple[str, Callable[[], Any]]] = []
    for i in range(torch._C._len_torch_function_stack()):
        readers.append((f"function mode {i}", functools.partial(_function_mode, i)))
    if torch._C._is_any_autocast_enabled():  # type: ignore[attr-defined]
        for device in ("cpu", "cuda"):
            dtype = functools.partial(torch.get_autocast_dtype, device)
            readers.append((f"the autocast dtype of {device}", dtype))
        readers.append(("the autocast cache", torch.is_autocast_cache_enabled))
    return tuple(readers)


# -- what capture has to know by identity --------------------------------------------------------

STATE_QUERIES: tuple[Callable[..., Any], ...] = (
    torch._C._get_tracing_state,
    torch._C._is_tracing,
    torch._C._len_torch_dispatch_stack,
    torch._C._len_torch_function_stack,
    torch._C._is_torch_function_enabled,  # type: ignore[attr-defined]
    torch._C._is_autocast_available,  # type: ignore[attr-defined]
    torch._C._is_torch_function_mode_enabled,
    torch._C._get_privateuse1_backend_name,
)
"""Functions that ask for a state which guards on the global state cover."""

set_default_dtype = torch._C._set_default_dtype  # type: ignore[attr-defined]
"""What `torch.set_default_dtype` calls."""


enter_inference_mode = torch.autograd.grad_mode._enter_inference_mode
leave_inference_mode = torch.autograd.grad_mode._exit_inference_mode
"""What captured graphs call to enter and to leave inference mode."""


def function_modes() -> list[Any]:
    """The torch function modes of the thread, innermost last; `with torch.device(…)` is one."""
    count = torch._C._len_torch_function_stack()
    return [torch._C._get_function_stack_at(i) for i in range(count)]


def set_function_modes(modes: Iterable[Any]) -> None:
    """Put other torch function modes in place of the thread's own."""
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)  # type: ignore[attr-defined]


push_function_mode: Callable[[Any], None] = torch._C._push_on_torch_function_stack  # type: ignore[attr-defined]
pop_function_mode: Callable[[], Any] = torch._C._pop_torch_function_stack
"""What entering and leaving a torch function mode call."""


def is_index_mode(cls: type) -> bool:
    """Whether `cls` is the function mode in which `x[i]`, with a tensor `i` of no dimension, is
    `aten.index`; told by name, since importing it imports torch's own front end. 2.11 to 2.13.
    """
    module = "torch._dynamo._trace_wrapped_higher_order_op"
    return cls.__module__ == module and cls.__qualname__ == "TransformGetItemToIndex"


def has_foreign_modes() -> bool:
    """Whether a torch function or dispatch mode is active that may change what functions do: any
    but a default device.
    """
    if torch._C._len_torch_dispatch_stack():
        return True
    return any(not isinstance(mode, DeviceContext) for mode in function_modes())


@functools.cache
def device_constructors() -> frozenset[Callable[..., Any]]:
    """The functions that make tensors on the default device."""
    return frozenset(torch.utils._device._device_constructors())


def _function_mode(index: int) -> Any:
    """A function mode of the thread for comparison: the device of a default device, the class of
    another one, under which nothing is captured. Either is a new object each time it is entered.
    """
    mode = torch._C._get_function_stack_at(index)
    return mode.device if isinstance(mode, DeviceContext) else type(mode)


TORCH_FUNCTION_QUERIES: tuple[Callable[..., bool], ...] = (
    torch._C._has_torch_function,  # type: ignore[attr-defined]
    torch._C._has_torch_function_unary,  # type: ignore[attr-defined]
    torch._C._has_torch_function_variadic,  # type: ignore[attr-defined]
)
"""Functions that ask whether an argument overrides torch functions; plain tensors do not."""

MODULE_CALLS: tuple[Callable[..., Any], ...] = (
    torch.nn.Module._call_impl,
    torch.nn.Module._wrapped_call_impl,
)
"""What a call of an nn.Module runs."""

MethodInC = type(vars(torch.jit.ScriptFunction)["save_to_buffer"])
"""The class of methods of torch's classes in C++, which binds what it wraps: `__func__`."""

_called = vars(torch.jit.ScriptFunction)["__call__"]  # torch.testing puts a function there
CALL_SCRIPTED: Callable[..., Any] = getattr(_called, "__func__", _called)
SCRIPTED_SOURCE = "_torchdynamo_inline"
"""What a call of a function made by `torch.jit.script` runs, and the attribute of it that holds the
one in Python that it was made from. 2.11 to 2.13.
"""

einsum_along: Callable[..., Any] = torch._VF.einsum  # type: ignore[attr-defined]
"""`torch.einsum(equation, tensors, path=positions)`: in the order of a path. 2.11 to 2.13."""

MODULE_HOOK_TABLES = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
)
"""Attributes of an nn.Module with its own hooks."""

GLOBAL_HOOK_TABLES = tuple(f"_global{name}" for name in MODULE_HOOK_TABLES)
"""Variables of `torch.nn.modules.module` with the hooks that every module runs."""

BackwardHook: type = torch.utils.hooks.BackwardHook
"""What a module with backward hooks puts around its inputs and outputs."""

apply_autograd_function = vars(torch.autograd.Function)["apply"].__func__
"""What `Function.apply` of every autograd function runs, given the class."""

group_tensors = torch._C._group_tensors_by_device_and_dtype  # type: ignore[attr-defined]
"""What optimizers and the clipping of gradients call before the operators on lists of tensors."""

log_api_usage = torch._C._log_api_usage_once

assert_true = torch._assert
check = torch._check
"""Tells what holds of a size that depends on data, or raises."""

check_tensor_all = torch._check_tensor_all
"""Raises if not all of a tensor of bool are true. Seen in 2.11 to 2.13."""

assert_async = torch._assert_async
"""The same of a tensor of one element, as an operator: on a GPU nobody waits for it."""


TENSOR_CLASSES: tuple[type, ...] = (torch.Tensor, *torch._tensor_classes)  # type: ignore[attr-defined]
"""The classes whose calls make tensors: `torch.Tensor([1, 2])`, `torch.LongTensor(3)`."""

GRAPH_MODULES = ("torch.functional", "torch.nn.functional", "torch._linalg_utils", "torch._lowrank")
"""Modules of torch whose Python functions compute tensors from tensors."""

_OPERATOR_MODULES = frozenset(
    f"torch._C._{name}" for name in ("nn", "fft", "linalg", "special", "sparse", "nested")
)


def is_operator_in_c(function: Any) -> bool:
    """Whether a function written in C is an operator of torch: `torch.add`, `torch._C._nn.gelu`."""
    owner = function.__self__
    if owner is None:  # a static method of the class that holds most of them
        return str(function.__qualname__).startswith("_VariableFunctionsClass.")
    return getattr(owner, "__name__", None) in _OPERATOR_MODULES


def is_module_bookkeeping(function: object) -> bool:
    """Whether `function` only marks a module as just created (torch 2.11 to 2.13).

    Once torch's own front end was used in a process, every `nn.Module.__init__` calls it. It has no
    meaning for the program.
    """
    return getattr(function, "__qualname__", "") == "GenerationTracker.tag" and getattr(
        function, "__module__", ""
    ).endswith(".mutation_guard")


# -- the autograd engine --------------------------------------------------------------------------


def latest_autograd_number() -> int:
    """The sequence number of the autograd node that this thread made last."""
    return torch._C._autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]


def running_backward_number() -> int | None:
    """The sequence number of the autograd node that the engine runs in this thread; None outside
    backward.
    """
    node = torch._C._current_autograd_node()  # type: ignore[attr-defined]
    return None if node is None else node._sequence_nr()


def runs_backward_of(kinds: tuple[str, ...]) -> bool:
    """Whether the engine runs, in this thread, the backward of a built-in autograd node whose name
    begins with one of `kinds`.
    """
    node = torch._C._current_autograd_node()  # type: ignore[attr-defined]
    is_own = isinstance(node, torch.autograd.function.BackwardCFunction)
    return node is not None and not is_own and node.name().startswith(kinds)


def wanted_gradient_size(kind: str, position: int) -> tuple[int, ...] | None:
    """In a backward of an autograd node whose name begins with `kind`: the sizes that its gradient
    number `position` is to have; None elsewhere, and where none is wanted. 2.11 to 2.13.
    """
    if not runs_backward_of((kind,)):
        return None
    node = torch._C._current_autograd_node()  # type: ignore[attr-defined]
    consumer, number = node.next_functions[position]
    return None if consumer is None else tuple(consumer._input_metadata[number].shape)


without_autocast = torch._C._DisableAutocast  # type: ignore[attr-defined]
"""Context in which operators run in the types of their arguments."""

is_autocast_on = torch._C._is_any_autocast_enabled  # type: ignore[attr-defined]
"""Whether this thread casts for any device."""


def apply_function(function: type[torch.autograd.Function], *args: Any) -> Any:
    """`function.apply(*args)` without the look at functorch's levels, which costs some 100 ns an
    argument. Not for use inside functorch transforms.
    """
    return super(torch.autograd.Function, function).apply(*args)  # type: ignore[misc]


def formula_of_gradient(node: Any) -> Callable[..., Any]:
    """The formula of an autograd function's node: its `backward`, or `vjp`. 2.11 to 2.13."""
    vjp = node._forward_cls.vjp
    return vjp if vjp is not torch.autograd.Function.vjp else node._forward_cls.backward  # type: ignore[no-any-return]


def geometry_of_edge(node: Any, index: int) -> tuple[list[Any], torch.dtype, torch.device]:
    """Size, dtype and device of the gradient that a node takes as number `index`. 2.11 to 2.13."""
    like = node._input_metadata[index]
    return list(like.shape), like.dtype, like.device


def gradients(outputs: Sequence[Any], tangents: Sequence[Any], edges: Sequence[Any]) -> Any:
    """`torch.autograd.grad(outputs, edges, tangents, allow_unused=True)`, without the comparison of
    sizes for which that imports sympy.
    """
    engine = torch.autograd.Variable._execution_engine
    return engine.run_backward(
        tuple(outputs),
        tuple(tangents),
        False,  # keep_graph
        False,  # create_graph
        tuple(edges),
        allow_unreachable=True,
        accumulate_grad=False,
    )


def external_device_name() -> str:
    """What torch calls the device of the key PrivateUse1."""
    return torch._C._get_privateuse1_backend_name()


def has_internal_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements of a tensor certainly share memory."""
    return torch._debug_has_internal_overlap(tensor) == 1


def has_kernel(name: str, *keys: str) -> bool:
    """Whether an operator of ATen has a kernel of its own under one of the dispatch keys, or one
    that serves every device. `name`: without namespace, `add.Tensor`.
    """
    return any(
        torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key)
        for key in (*keys, *_EVERY_DEVICE)
    )


_EVERY_DEVICE = (
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)
_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def run_cpu_kernel(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run an operator's kernel for the CPU on tensors of any device: right for operators that
    touch geometry alone, such as views.
    """
    return op.redispatch(_CPU_KEYS, *args, **kwargs)


functional_call = torch.nn.utils.stateless._functional_call
"""`(module, state, args, kwargs)`: the module's result with other parameters and buffers. The
public one stands in functorch.
"""


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Context in which autograd saves tensors themselves, whatever hooks the user has set."""
    before = torch._C._autograd._saved_tensors_hooks_set_tracing(True)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(before)  # type: ignore[attr-defined]


def saved_tensor(ctx: Any, number: int, is_read: bool) -> torch.Tensor:
    """One of `ctx.saved_tensors`, which checks that none of all was written to. This one is checked
    if it `is_read`, or packed by a hook. Seen in 2.13.
    """
    saved = ctx._raw_saved_tensors[number]
    if not is_read and isinstance(saved.data, torch.Tensor):
        return saved.data
    tensor: torch.Tensor = saved.unpack()
    return tensor


UNPACKS_ONE_BY_ONE = hasattr(torch._C._autograd.SavedTensor, "unpack")
"""Whether there are `saved_tensor` and `saved_by_node`."""


def saved_by_node(node: Any) -> Iterator[torch.Tensor]:
    """What an autograd node has saved, unchecked: tensors that share memory and version with those
    that the operator was given, or gave. Seen in 2.13; nothing before.
    """
    if not UNPACKS_ONE_BY_ONE:
        return
    kind: Any = type(node)
    for name in _names_of_saved(kind):
        saved = getattr(node, name)
        for one in saved if isinstance(saved, tuple) else (saved,):
            if isinstance(one.data, torch.Tensor):
                yield one.data


@functools.cache
def _names_of_saved(kind: type) -> tuple[str, ...]:
    """The attributes of a kind of autograd node that hold what it has saved."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


class SavedVersion:
    """Tells whether a tensor is written to from now on. Keeps no memory alive but that of leaves,
    which somebody else holds more often than not.
    """

    __slots__ = ("_size", "_tensor", "_version", "_witness")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._version = tensor._version
        if tensor.is_leaf:
            self._witness = tensor
            return
        self._tensor, self._size = weakref.ref(tensor), tensor.shape
        self._witness = tensor.detach()  # keeps its version when it is given other memory
        self._witness.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)

    def check(self, told: int) -> None:
        """Raise what the engine does with a saved tensor that was written to; the message is to
        call the version that it had `told`.
        """
        writes = self._witness._version - self._version
        if writes:
            raise RuntimeError(
                f"{_STALE_HISTORY} operation: {self._words()} is at version {told + writes}; "
                f"expected version {told} instead. Hint: enable anomaly detection to find the "
                "operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True, check_nan=False)."
            )

    def _words(self) -> str:
        """The tensor as messages have it: as it is now, or if it is gone, as it was."""
        tensor = self._tensor() if hasattr(self, "_tensor") else self._witness
        if tensor is None:
            return f"[{self._witness.type()} {list(self._size)}]"
        node, words = tensor.grad_fn, f"[{tensor.type()} {list(tensor.shape)}]"
        return f"{words}, which is output {tensor.output_nr} of {node.name()}," if node else words


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written to, or one that shows its memory, as autograd counts."""
    return tensor._version


def share_version(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a write to one of two tensors is one to the other, as autograd counts."""
    before = tensor._version
    with torch.autograd._unsafe_preserve_version_counter(other):
        torch.autograd.graph.increment_version([other])
        return tensor._version != before


def without_modes() -> AbstractContextManager[Any]:
    """Context in which no dispatch mode is on."""
    return _python_dispatch._disable_current_modes()


@contextmanager
def outside_transforms() -> Iterator[None]:
    """Context in which neither dispatch modes nor transforms of torch.func see operators."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode)
    keys = keys.add(torch._C.DispatchKey.FuncTorchDynamicLayerBackMode)
    with torch._C._ExcludeDispatchKeyGuard(keys), without_torch_dispatch():
        yield


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor inside of those that transforms of torch.func put around it."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def has_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a storage; a subclass that wraps other tensors may have none."""
    return torch._C._has_storage(tensor)


def has_onednn_kernels(dtype: torch.dtype) -> bool:
    """Whether oneDNN's recurrent layers are used for a type on this processor. 2.11 to 2.13."""
    onednn = torch.backends.mkldnn
    if not (onednn.is_available() and onednn.enabled):
        return False
    is_lower = dtype is torch.bfloat16
    return dtype is torch.float32 or (is_lower and torch.ops.mkldnn._is_mkldnn_bf16_supported())
