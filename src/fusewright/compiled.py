"""Compiled functions and modules: compiled when they are called, and otherwise what they were."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import secrets
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from fusewright.capture.directives import TORCH_ORIGINAL, compiled_by_torch
from fusewright.capture.handlers import handles
from fusewright.capture.module_proxy import ModuleProxy, ProxyState, proxy_of
from fusewright.capture.trace import CALL_MODULE, root_call
from fusewright.compiler import Compiler
from fusewright.native import CompiledCall
from fusewright.records import record

Recompile = Callable[[Any], Any]
"""Compiles another target with the settings of this one: `compile` with its keywords bound."""


captured_by_torch: Final = torch.compiler.is_dynamo_compiling
"""True while torch.compile captures: compiled code that it meets belongs to its graph."""


class CompiledFunction(CompiledCall):
    """A callable that is compiled when it is called. Attributes are those of the original, which
    is `__wrapped__`.
    """

    def __init__(self, function: Callable[..., Any], compiler: Compiler, again: Recompile) -> None:
        root, bound, _ = root_call(function, (), {})
        super().__init__(compiler.frames, root, *bound)
        functools.update_wrapper(self, function)
        self.__wrapped__ = function
        self.compiler = compiler
        self._again = again
        compiler.root = root.__code__
        # By these names torch.compile finds what to compile in place of a wrapper.
        self._torchdynamo_orig_callable = function
        self._torchdynamo_wrapper_id = id(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls go past this: it is for torch.compile, in whose graph compiled code belongs, and
        for programs that name the method.
        """
        if captured_by_torch():
            return self.__wrapped__(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction:
        """A function is its own copy, as in Python; a method or an object with state is not."""
        copied = copy.deepcopy(self.__wrapped__, memo)
        if copied is self.__wrapped__:
            return self
        return _shared_function(self._again, self.compiler, copied)

    def __reduce__(self) -> Any:
        """Pickle the name where the name leads here, as for a decorated function; else the original
        and how it was compiled.
        """
        if _named_object(self) is self:
            return self.__qualname__
        return _unpickled, (self._again, _token(self.compiler), self.__wrapped__)

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"


def _named_object(function: Any) -> Any:
    """The object of a function's module and qualified name; None where there is none."""
    try:
        item: Any = importlib.import_module(function.__module__)
        for name in function.__qualname__.split("."):
            item = getattr(item, name)
    except (AttributeError, ImportError, TypeError, ValueError):
        return None
    return item


@record
class HowCompiled:
    """How a module was compiled, as its proxy knows it."""

    compiler: Compiler
    again: Recompile


class CompiledModule(ModuleProxy):
    """A module with a compiled call."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = self._proxy_state
        if captured_by_torch():
            return state.module(*args, **kwargs)
        return state.call(*args, **kwargs)


def compiled_module(
    module: torch.nn.Module, compiler: Compiler, again: Recompile
) -> torch.nn.Module:
    """A proxy of `module`, which is called compiled. Copies of it share the compiler."""
    state = ProxyState(
        module=module,
        call=CompiledCall(compiler.frames, CALL_MODULE, module),
        wrap_another=lambda copied: compiled_module(copied, compiler, again),
        reduced=lambda: (_unpickled, (again, _token(compiler))),
        owner=HowCompiled(compiler, again),
    )
    return proxy_of(CompiledModule, state)  # type: ignore[no-any-return]


def _shared_function(again: Recompile, compiler: Compiler, copied: Any) -> CompiledFunction:
    """A copy of a method or object with the compiled code of the original; compiled anew where
    other code runs when it is called.
    """
    root, _, _ = root_call(copied, (), {})
    if root.__code__ is not compiler.root:
        return again(copied)  # type: ignore[no-any-return]
    return CompiledFunction(copied, compiler, again)


_PICKLED: Final[weakref.WeakValueDictionary[str, Compiler]] = weakref.WeakValueDictionary()
"""The compilers of what this process has pickled, by a name that no other process uses."""


def _token(compiler: Compiler) -> str:
    """The name of a compiler in `_PICKLED`."""
    if compiler.token is None:
        compiler.token = secrets.token_hex(8)
    return _PICKLED.setdefault(compiler.token, compiler).token or ""


def _unpickled(again: Recompile, token: str, target: Any) -> Any:
    """The compiled form of an unpickled target: it shares the code of what was pickled, where that
    was in this process and is still there.
    """
    compiler = _PICKLED.get(token)
    if compiler is None:
        return again(target)
    if isinstance(target, torch.nn.Module):
        return compiled_module(target, compiler, again)
    return _shared_function(again, compiler, target)


def compiler_of(target: Any) -> Compiler:
    """The compiler behind a compiled function, method or module. TypeError: it is none of these."""
    match target:
        case CompiledFunction():
            return target.compiler
        case CompiledModule():
            return target._proxy_state.owner.compiler  # type: ignore[no-any-return]
        case types.MethodType(__func__=CompiledFunction(compiler=compiler)):
            return compiler
        case _:
            raise TypeError(f"{target!r} is not what fusewright.compile returned")


def recompile_of(target: Any) -> Recompile:
    """Compiles another target as this one was. TypeError: it is not compiled."""
    if isinstance(target, CompiledModule):
        return target._proxy_state.owner.again  # type: ignore[no-any-return]
    compiler_of(target)
    return getattr(target, "__func__", target)._again  # type: ignore[no-any-return]


def is_compiled(target: Any) -> bool:
    """Whether `compiler_of` knows a target."""
    return isinstance(getattr(target, "__func__", target), CompiledFunction | CompiledModule)


def original_of(target: Any) -> Any:
    """The target as it was before it was compiled, by us or by torch.compile."""
    match target:
        case CompiledFunction():
            return target.__wrapped__
        case CompiledModule():
            return target._proxy_state.module
        case types.MethodType(__func__=CompiledFunction() as compiled):
            return types.MethodType(compiled.__wrapped__, target.__self__)
        case torch.nn.Module():
            return getattr(target, "_orig_mod", target)
        case _ if compiled_by_torch(target):
            return getattr(target, TORCH_ORIGINAL)
        case _:
            return target


def suspended_kind(function: Callable[..., Any]) -> str | None:
    """The kind of a function whose frame its caller resumes piece by piece, which cannot be
    compiled, in words; None for others.
    """
    flags: Mapping[int, str] = {
        inspect.CO_GENERATOR: "a generator",
        inspect.CO_COROUTINE: "a coroutine",
        inspect.CO_ASYNC_GENERATOR: "an asynchronous generator",
    }
    root, _, _ = root_call(function, (), {})
    return next((kind for flag, kind in flags.items() if root.__code__.co_flags & flag), None)


@handles(CompiledFunction.__call__)
def _inline_compiled_function(interpreter: Any, compiled: Any, *args: Any, **kwargs: Any) -> Any:
    """Compiled code met while capturing belongs to the capture: its original is inlined."""
    original = interpreter.attribute(compiled, "__wrapped__")
    return interpreter.call(original, list(args), kwargs)


@handles(CompiledModule.__call__)
def _inline_compiled_module(interpreter: Any, compiled: Any, *args: Any, **kwargs: Any) -> Any:
    call, source = interpreter.class_attribute(torch.nn.Module, "__call__")
    bound = interpreter.bind(call, source, compiled, compiled.python_type())
    return interpreter.call(bound, list(args), kwargs)
