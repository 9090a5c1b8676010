"""A second face of a module: an object that is the module in everything but how it is called."""

from __future__ import annotations

import copy
import weakref
from abc import ABCMeta
from collections.abc import Callable
from typing import Any, Final

from torch import nn

from fusewright.records import record


@record
class Behind:
    """What stands behind a face, whose `__dict__` is the module's."""

    module: nn.Module
    call: Callable[..., Any]
    """What a call of the face does."""

    of_copy: Callable[[nn.Module], Any]
    """Makes such a face of a copy of the module."""

    reduced: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    """What pickle is told: what makes the face again, and the arguments ahead of the module."""

    detail: Any = None
    """What the maker wants to know again."""


class ModuleFace:
    """What the class of a face adds to the module's class; `_behind` stands in a slot of that
    class.
    """

    __slots__ = ()

    _behind: Behind

    def __init_subclass__(cls) -> None:
        """The module's classes are not told of the face, which is none of the program's."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._behind.call(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._behind.of_copy(copy.deepcopy(self._behind.module, memo))

    def __copy__(self) -> Any:
        return self._behind.of_copy(copy.copy(self._behind.module))

    def __reduce_ex__(self, protocol: Any) -> Any:
        make, arguments = self._behind.reduced()
        return make, (*arguments, self._behind.module)


_FACE_CLASSES: Final[weakref.WeakValueDictionary[tuple[type, type], type]] = (
    weakref.WeakValueDictionary()
)
"""By the face's kind and the module's class; an entry lasts as long as a face of it."""


def second_face(kind: type[ModuleFace], behind: Behind) -> Any:
    """An object of the module's class and of `kind`, with the same `__dict__` as the module.

    Sharing the dictionary makes every attribute, parameter, buffer, hook and mode the same in
    both, with the module's own keys in `state_dict`.
    """
    key = kind, type(behind.module)
    face: Any = _FACE_CLASSES.get(key)
    if face is None:
        face = _FACE_CLASSES[key] = _face_class(*key)
    made = object.__new__(face)
    object.__setattr__(made, "__dict__", behind.module.__dict__)
    face._behind.__set__(made, behind)
    return made


def _face_class(kind: type[ModuleFace], cls: type[nn.Module]) -> type:
    namespace = {"__slots__": ("_behind",), "__module__": cls.__module__, "__doc__": cls.__doc__}
    metaclass = type(cls)  # whose own `__new__` might enter the face where it enters classes
    new_class = ABCMeta.__new__ if issubclass(metaclass, ABCMeta) else type.__new__
    return new_class(metaclass, cls.__name__, (kind, cls), namespace)
