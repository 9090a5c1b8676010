"""`nn.Module` objects: plain objects with a fast way to parameters, buffers and submodules."""

from __future__ import annotations

import torch

from fusewright import torch_compat
from fusewright.capture.guards import GuardKind
from fusewright.capture.sources import DictItemSource, GlobalSource, InstanceSource
from fusewright.capture.values.base import MISSING, Machine, Value
from fusewright.capture.values.objects import ObjectValue, instance_dictionary

TABLES = ("_parameters", "_buffers", "_modules")

_module_getattr = torch.nn.Module.__getattr__


class ModuleValue(ObjectValue):
    """An existing nn.Module whose class keeps `nn.Module.__getattr__`.

    Its setters keep a name in one of the three tables and out of the others and out of `__dict__`,
    so one read of the
    table that has the name replaces the chain of misses that Python would go through.
    """

    __slots__ = ()

    def generic_attribute(self, machine: Machine, name: str) -> Value:
        if self.shared is None and not self.changed_tables():
            entry = self._table_entry(machine, name)
            if entry is not None:
                return entry
        return super().generic_attribute(machine, name)

    def changed_tables(self) -> bool:
        """Whether the traced program replaced or changed one of the tables themselves."""
        attributes, written = self.known, self.written
        for name in TABLES:
            table = attributes.get(name)
            if name in written or (table is not None and getattr(table, "changed", False)):
                return True
        return False

    def _table_entry(self, machine: Machine, name: str) -> Value | None:
        dictionary = instance_dictionary(self.object) or {}
        if name in dictionary or machine.class_attribute(self.cls, name)[0] is not MISSING:
            return None
        for table in TABLES:
            entries = dictionary.get(table)
            if entries and name in entries:
                origin = InstanceSource(self.required_source(machine), table)
                return machine.wrap(entries[name], DictItemSource(origin, name))
        return None

    def has_hooks(self, machine: Machine) -> bool:
        """Whether a call runs hooks. A module without any is guarded to stay so."""
        if self.object is MISSING:
            return True
        dictionary = instance_dictionary(self.object) or {}
        source = self.required_source(machine)
        for name in torch_compat.MODULE_HOOK_TABLES:
            if name in self.known or self.shared is not None or dictionary.get(name):
                return True
            machine.guard(GuardKind.LENGTH, InstanceSource(source, name), 0)
        for name in torch_compat.GLOBAL_HOOK_TABLES:
            table = vars(torch.nn.modules.module)[name]
            if table or getattr(machine.known_value(table), "changed", False):
                return True
            machine.guard(GuardKind.LENGTH, GlobalSource(name, "torch.nn.modules.module"), 0)
        return False


def keeps_module_getattr(machine: Machine, cls: type) -> bool:
    """Whether a class of modules looks attributes up as nn.Module does; guarded."""
    return (
        machine.class_attribute(cls, "__getattr__")[0] is _module_getattr
        and machine.class_attribute(cls, "__getattribute__")[0] is object.__getattribute__
    )
