"""A proxy of a module: an object that is the module in everything but how it is called."""

from __future__ import annotations

import copy
import weakref
from abc import ABCMeta
from collections.abc import Callable
from typing import Any, Final

from torch import nn

from fusewright.records import record


@record
class ProxyState:
    """The module of a proxy, and what the proxy does in its place."""

    module: nn.Module
    call: Callable[..., Any]
    """The function that a call of the proxy calls."""

    wrap_another: Callable[[nn.Module], Any]
    """Makes a proxy of the same kind for a copy of the module."""

    reduced: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    """Arguments of pickle's reduce protocol: the function that makes the proxy again, and its
    arguments ahead of the module.
    """

    owner: Any = None
    """The object that made the proxy, such as a compiler, which finds itself here."""


class ModuleProxy:
    """The methods that the class of a proxy adds to the module's class. `_proxy_state` has a slot,
    since the proxy's `__dict__` is the module's.
    """

    __slots__ = ()

    _proxy_state: ProxyState

    def __init_subclass__(cls) -> None:
        """Keep the hook of the module's classes from running: the program made no subclass."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._proxy_state.call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._proxy_state.wrap_another(copy.deepcopy(self._proxy_state.module, memo))

    def __copy__(self) -> Any:
        return self._proxy_state.wrap_another(copy.copy(self._proxy_state.module))

    def __reduce_ex__(self, protocol: Any) -> Any:
        make, arguments = self._proxy_state.reduced()
        return make, (*arguments, self._proxy_state.module)


_PROXY_CLASSES: Final[weakref.WeakValueDictionary[tuple[type, type], type]] = (
    weakref.WeakValueDictionary()
)
"""Classes of proxies by the proxy's kind and the module's class; an entry lasts as long as a proxy
of it.
"""


def proxy_of(kind: type[ModuleProxy], state: ProxyState) -> Any:
    """An object of the module's class and of `kind`, with the same `__dict__` as the module.

    Sharing the dictionary makes every attribute, parameter, buffer, hook and mode the same in
    both, with the module's own keys in `state_dict`.
    """
    key = kind, type(state.module)
    proxy: Any = _PROXY_CLASSES.get(key)
    if proxy is None:
        proxy = _PROXY_CLASSES[key] = _proxy_class(*key)
    instance = object.__new__(proxy)
    object.__setattr__(instance, "__dict__", state.module.__dict__)
    proxy._proxy_state.__set__(instance, state)
    return instance


def _proxy_class(kind: type[ModuleProxy], cls: type[nn.Module]) -> type:
    namespace = {
        "__slots__": ("_proxy_state",),
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
    }
    metaclass = type(cls)  # whose own `__new__` might enter the proxy where it enters classes
    new_class = ABCMeta.__new__ if issubclass(metaclass, ABCMeta) else type.__new__
    return new_class(metaclass, cls.__name__, (kind, cls), namespace)
