"""The private names of torch that fusewright cannot do without, each with its reason and the
versions it was seen in.

A new release of torch is this folder's work. Everything here was seen in torch 2.11, 2.12 and 2.13
unless a line says otherwise; no file under `src` outside of this folder may use a name of torch
that begins with an underscore.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._higher_order_ops import scan as scan
from torch._higher_order_ops import while_loop as while_loop
from torch.utils import _python_dispatch

from fusewright.torch_version import refused_version, unknown_version, version_of

if _refusal := refused_version(torch.__version__):
    raise ImportError(_refusal)
if _doubt := unknown_version(torch.__version__):
    warnings.warn(_doubt, RuntimeWarning, stacklevel=2)

# Behind the look at the version: a torch that is too old is refused in one sentence, and not by the
# first name that it lacks.
from fusewright.torch_compat import autograd as autograd
from fusewright.torch_compat import cuda as cuda
from fusewright.torch_compat import distributed as distributed
from fusewright.torch_compat import states as states
from fusewright.torch_compat.without_dynamo import (
    keeps_dynamo_out as keeps_dynamo_out,
)
from fusewright.torch_compat.without_dynamo import (
    run_references_without_dynamo as run_references_without_dynamo,
)

RecordFunction = torch._C._profiler._RecordFunctionFast
"""A context manager in C that stands in the traces of torch's profiler under a name."""

OpOverload = torch._ops.OpOverload
"""Public in all but name: the type of `torch.ops.aten.add.Tensor`."""

# Under this name its package has the operator, not the module.
_invoke_subgraph = importlib.import_module("torch._higher_order_ops.invoke_subgraph")
call_compile_region = _invoke_subgraph.invoke_subgraph_placeholder
"""The function that calls what `torch.compiler.nested_compile_region` marks."""

OPERATOR_TYPES = (type(torch.ops.aten.add), OpOverload)
"""The types of `torch.ops.aten.add` and of `torch.ops.aten.add.Tensor`."""


class TorchDispatchMode(_python_dispatch.TorchDispatchMode):
    """A mode under which `__torch_dispatch__` is given each ATen operator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's hook that keeps it from importing dynamo (1.3 s) to wrap `__torch_dispatch__`."""
        return False


READS_SYMBOLS_AS_NUMBERS = (torch.rms_norm, torch.nn.functional.rms_norm)
"""Functions that hand a list of symbolic sizes to a kernel for GPUs as if it were one of plain
numbers, without asking for those: the kernel sees addresses.
"""

# Before 2.13, `scan` stacks the results of its steps along the first dimension, whichever it walks.
SCAN_STACKS_ALONG_ITS_DIMENSION = version_of(torch.__version__) >= (2, 13)

disabled_torch_function = torch._C._disabled_torch_function_impl
"""Value of `__torch_function__` for a subclass that is interested in dispatch alone."""


def without_torch_functions() -> AbstractContextManager[Any]:
    """Context in which `__torch_function__` of subclasses is not called."""
    return torch._C.DisableTorchFunctionSubclass()


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
    return torch.Tensor._make_wrapper_subclass(
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


def is_refusal_to_resize(error: RuntimeError) -> bool:
    """Whether `error` is what torch raises where an `out=` argument has symbolic sizes and the
    result has others.
    """
    return "directly modify sizes for customized tensor" in str(error)


def python_kernels() -> AbstractContextManager[None]:
    """Context in which operators with a Python implementation in torch use that: many of those in
    C++ take no symbolic sizes.
    """
    dispatch = torch._dispatch.python  # type: ignore[attr-defined]
    return dispatch.enable_python_dispatcher()  # type: ignore[no-any-return]


def without_python_kernels() -> AbstractContextManager[Any]:
    """Inside `python_kernels`, the operators as they are in C++."""
    return torch._C._DisablePythonDispatcher()


def current_dispatch_mode() -> Any:
    """The innermost dispatch mode of this thread; None without one."""
    if not torch._C._len_torch_dispatch_stack():
        return None
    return _python_dispatch._get_current_dispatch_mode()


def storage_key(tensor: torch.Tensor) -> int:
    """A number shared by exactly the living tensors that share one storage; works on the meta
    device.
    """
    key: int = torch._C._storage_id(tensor)  # type: ignore[attr-defined]
    return key


def viewed_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that `tensor` is a view of, as autograd sees it; itself, if it is none."""
    base = tensor._base
    return tensor if base is None else base


def has_no_derivative(tensor: torch.Tensor) -> bool:
    """Whether a result requires grad of an operator that torch cannot differentiate: asking for its
    gradient raises.
    """
    history = tensor.grad_fn
    return history is not None and history.name().endswith("NotImplemented")


_SPARSE_OPTIONS = {
    "EmbeddingBackward0": "_saved_sparse",
    "EmbeddingBagBackward0": "_saved_sparse",
    "GatherBackward0": "_saved_sparse_grad",
}
"""By name of an autograd node: where it keeps whether its gradient is sparse."""


def has_sparse_gradient(tensor: torch.Tensor) -> bool:
    """Whether a result is of an operator that was asked to have a sparse gradient."""
    history = tensor.grad_fn
    option = None if history is None else _SPARSE_OPTIONS.get(history.name())
    return option is not None and bool(getattr(history, option))


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
    key: int = storage._cdata
    return key


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
    torch._C._set_conj(tensor, like.is_conj())
    torch._C._set_neg(tensor, like.is_neg())


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
    backend = torch._C._select_conv_backend(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, bias_sizes
    )
    determine = torch._C._conv_determine_backend_memory_format
    return determine(x, weight, backend)


def without_torch_dispatch() -> Any:
    """Context in which operators ignore modes and subclasses: they touch the wrapper's own
    metadata.
    """
    return torch._C._DisableTorchDispatch()


# -- operator schemas -----------------------------------------------------------------------------


def declaration_of(op: OpOverload) -> str:
    """All that torch was told of an operator: its name, schema and tags; for one that is not
    torch's own the schemas of all its overloads, since one may write to given memory.
    """
    declared = f"{op} {op._schema} {sorted(map(str, op.tags))}"
    if op.namespace == "aten":
        return declared
    packet = op._overloadpacket
    return f"{declared} {sorted(str(getattr(packet, name)._schema) for name in packet.overloads())}"


@functools.cache
def operator_arguments(op: OpOverload) -> tuple[Any, ...]:
    """The schema's arguments: each has `.name`, `.type`, `.kwarg_only`, `.default_value`,
    `.alias_info`.
    """
    return tuple(op._schema.arguments)


def is_of_torch(op: OpOverload) -> bool:
    """True for an operator that is torch's own, False for a custom one."""
    return op.namespace in ("aten", "prims", "quantized")


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


def not_in_place(op: OpOverload) -> OpOverload:
    """`add.Tensor` for `add_.Tensor`: the operator of the same arguments that writes to none."""
    packet = getattr(getattr(torch.ops, op.namespace), op.overloadpacket.__name__.removesuffix("_"))
    return getattr(packet, op._overloadname)  # type: ignore[no-any-return]


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
    """The result of a composite operator, by the operators that it is made of.

    Torch's Python writing of `dropout` gives a copy where that in C++ gives its argument itself;
    that of resampling to the nearest keeps the layout of rows, and those that weigh neighbours
    subtract them, which gives NaN where one is infinite.
    """
    in_cpp = op is torch.ops.aten.dropout.default
    in_cpp |= op in _RESAMPLING and not has_symbolic_geometry(args[0])
    if in_cpp:
        return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
    return op.decompose(*args, **kwargs)


_RESAMPLING = frozenset(
    getattr(torch.ops.aten, name).vec
    for name in str.split(
        """
        upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
        upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
        """
    )
)


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

set_grad_enabled = torch._C._set_grad_enabled
"""What `torch.no_grad` and its kin call in the end, and captured graphs too."""


# -- tensor layout, for the native floor ----------------------------------------------------------


def _those_there_are(*names: str) -> tuple[Callable[..., Any], ...]:
    """Functions that libraries call and this package does not: a torch may do without them."""
    return tuple(getattr(torch._C, name) for name in names if hasattr(torch._C, name))


SIZE_INFERENCE = _those_there_are("_infer_size")
"""Functions that give the size of what two sizes are broadcast to. Seen in 2.13."""

TRANSFORM_QUERIES = _those_there_are("_are_functorch_transforms_active")
"""Functions that ask whether a function transform is running. Seen in 2.13."""

LIBRARY_FILE: str = torch._C.__file__
"""The shared library from which all of torch's libraries can be reached."""


def implementation_address(tensor: torch.Tensor) -> int:
    """Where the tensor's implementation stands in memory."""
    return tensor._cdata


def key_set(tensor: torch.Tensor) -> int:
    """The tensor's dispatch key set: a bit for each functionality and backend."""
    keys: int = torch._C._dispatch_keys(tensor).raw_repr()
    return keys


# -- what capture has to know by identity ---------------------------------------------------------

TORCH_FUNCTION_QUERIES: tuple[Callable[..., bool], ...] = (
    torch._C._has_torch_function,
    torch._C._has_torch_function_unary,
    torch._C._has_torch_function_variadic,
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

_apply = vars(torch.autograd.Function)["apply"]
apply_autograd_function = getattr(_apply, "__func__", _apply)  # since 2.14 it is written in C
"""What `Function.apply` of every autograd function runs, given the class."""

group_tensors = torch._C._group_tensors_by_device_and_dtype
"""What optimizers and the clipping of gradients call before the operators on lists of tensors."""

log_api_usage = torch._C._log_api_usage_once

assert_true = torch._assert
check = torch._check
"""Tells what holds of a size that depends on data, or raises."""

check_tensor_all = torch._check_tensor_all
"""Raises if not all of a tensor of bool are true. Seen in 2.11 to 2.13."""

assert_async = torch._assert_async
"""An assertion of a tensor of one element, as an operator: on a GPU nobody waits for it."""


TENSOR_CLASSES: tuple[type, ...] = (torch.Tensor, *torch._tensor_classes)
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
    """Whether `function` only marks a module as just created.

    Once torch's own front end was used in a process, every `nn.Module.__init__` calls it. It has no
    meaning for the program.
    """
    names = ("GenerationTracker.tag", "_GenerationTracker.tag")  # the second from torch 2.15 on
    return getattr(function, "__qualname__", "") in names and getattr(
        function, "__module__", ""
    ).endswith(".mutation_guard")


# -- what operators run under, and kernels --------------------------------------------------------

without_autocast = torch._C._DisableAutocast
"""Context in which operators run in the types of their arguments."""

is_autocast_on = torch._C._is_any_autocast_enabled
"""Whether this thread casts for any device."""


def external_device_name() -> str:
    """Torch's name of the device of the key PrivateUse1."""
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


PACKED_CONVOLUTION = overload_by_name("mkldnn", "_convolution_pointwise", "")
"""oneDNN's convolution of a weight that `pack_convolution_weight` gives; it takes an activation,
too. None where torch is built without oneDNN.
"""


def pack_convolution_weight(
    weight: torch.Tensor,
    padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    size: Sequence[int] | None,
) -> torch.Tensor:
    """A weight in the layout that oneDNN's kernel for inputs of a `size` wants, which no strides
    describe. It does for other sizes as well; None: for any.
    """
    packed: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(
        weight, padding, stride, dilation, groups, size
    )
    return packed


def has_onednn_kernels(dtype: torch.dtype) -> bool:
    """Whether oneDNN's recurrent layers are used for a type on this processor. 2.11 to 2.13."""
    onednn = torch.backends.mkldnn
    if not (onednn.is_available() and onednn.enabled):
        return False
    is_lower = dtype is torch.bfloat16
    return dtype is torch.float32 or (is_lower and torch.ops.mkldnn._is_mkldnn_bf16_supported())
