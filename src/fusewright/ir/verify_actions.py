"""The legality of a group's actions, and of the types that reductions and scans have."""

from __future__ import annotations

from fusewright.ir.dtype import DType
from fusewright.ir.group import Accumulate, Action, Gather, Group, Reduce, ScanStore, Stage, Store
from fusewright.ir.index import LoopSymbol, integer, product
from fusewright.ir.neutral import NEUTRAL_ELEMENTS
from fusewright.ir.ops import REDUCTION_KINDS, SCAN_KINDS
from fusewright.ir.verify_values import Memory, ValueScope

SCATTER_MODES = ("store", "add", "min", "max")


def reduction_types(
    kind: str, dtype: DType, over: tuple[LoopSymbol, ...]
) -> tuple[DType, ...] | str:
    """The types of a reduction's results, or what is wrong with it."""
    if kind not in REDUCTION_KINDS:
        return f"there is no reduction {kind}"
    if kind in ("any", "all") and dtype is not DType.BOOL:
        return f"{kind} takes bool, not {dtype}"
    if kind == "xor" and dtype.is_float:
        return f"xor does not take {dtype}"
    if dtype.compute is not dtype:
        return f"{kind} of {dtype}: reductions of half types are done in f32"
    if kind == "welford":
        return (dtype, dtype) if dtype.is_float else f"welford does not take {dtype}"
    if kind in ("max", "min", "argmax", "argmin") and any(s.extent == 0 for s in over):
        return f"the {kind} of nothing"
    return (DType.I64,) if kind in ("argmax", "argmin") else (dtype,)


def scan_types(kind: str, dtype: DType, held: DType) -> str | None:
    """Why results of a scan over values of `dtype` cannot be held as `held`."""
    if kind not in SCAN_KINDS:
        return f"there is no scan {kind}"
    if dtype.compute is not dtype or dtype is DType.BOOL:
        return f"scans of {dtype} are done in a type that counts"
    if kind == "logsumexp" and not dtype.is_float:
        return f"logsumexp does not take {dtype}"
    if held is DType.BOOL or held.is_float != dtype.is_float:
        return different_types((dtype,), (held,))
    return None


def different_types(wanted: tuple[DType, ...], held: tuple[DType, ...]) -> str | None:
    """How the types that a value gives differ from those that its targets hold, or None."""
    if wanted == held:
        return None
    gives, holds = (", ".join(map(str, types)) for types in (wanted, held))
    return f"the value gives {gives}, the target holds {holds}"


def wrong_action(
    action: Action,
    stage: Stage,
    group: Group,
    memory: dict[str, Memory],
    locals_: dict[str, Memory],
    writable: set[str],
    scope: ValueScope,
) -> str | None:
    """What is wrong with an action of a stage, or None. `writable`: what the group writes."""
    if isinstance(action, Reduce):
        return _reduce(action, stage, locals_)
    if isinstance(action, Gather):
        wrong = _gather(action, stage, group, locals_)
        if wrong is not None:
            return wrong
    name = action.buffer
    if name not in writable and name not in locals_:
        return f"{name} is not written by this group"
    target = (memory | locals_)[name]
    if isinstance(action, ScanStore):
        wrong = scan_types(action.kind, action.value.dtype, target.dtype)
        wrong = wrong or (None if stage.inner else "a scan without a loop")
    else:
        wrong = different_types((action.value.dtype,), (target.dtype,))
    if wrong is not None:
        return wrong
    if isinstance(action, Accumulate) and (action.mode not in SCATTER_MODES or name in locals_):
        return f"cannot {action.mode} into {name}"
    if isinstance(action, Store | ScanStore) and name in locals_:
        return _store_local(action, stage, scope, target)
    if isinstance(action, Store | ScanStore):
        missing = [
            s for s in group.outer if s.extent not in (0, 1) and s not in action.index.free()
        ]
        if missing:
            return f"points that differ in {missing[0]} store to the same element of {name}"
    scope.memory = {**scope.memory, name: target}
    indirect = action.indirect if isinstance(action, Accumulate) else ()
    return scope.access(name, action.index, indirect=indirect)


def _gather(action: Gather, stage: Stage, group: Group, locals_: dict[str, Memory]) -> str | None:
    """Why a group cannot gather along its walked loops."""
    name, named = action.buffer, action.index.free()
    walked = tuple(symbol for symbol in group.outer if symbol not in named)
    types = reduction_types(action.kind, action.value.dtype, walked)
    if isinstance(types, str):
        return types
    if action.kind not in NEUTRAL_ELEMENTS:
        return f"{action.kind} cannot be gathered from nothing on"
    if name in locals_:
        return f"{name} is a local, which only one point has"
    if any(name == buffer.name for buffer in group.reads):
        return f"{name} is read before it is gathered"
    actions = [a for own in group.stages for a in own.actions if not isinstance(a, Reduce)]
    beside = [a for a in actions if a.buffer == name and a is not action]
    if any(a not in stage.actions or not isinstance(a, Gather) for a in beside):
        return f"{name} is gathered, and written beside that"
    if not walked or walked != group.walked or walked != group.outer[-len(walked) :]:
        return f"{name} is not gathered along the innermost of the outer loops"
    missing = [s for s in stage.inner if s.extent not in (0, 1) and s not in named]
    if missing:
        return f"points that differ in {missing[0]} are gathered to the same element of {name}"
    points = product(s.extent for s in (*group.outer, *stage.inner) if s not in walked)
    (layout,) = (buffer.layout for buffer in group.writes if buffer.name == name)
    excess = (points * (1 + len(beside)) - product(layout.size)).lower
    if excess is not None and excess > 0:
        return f"some element of {name} is gathered twice"
    return None


def _store_local(
    action: Store | ScanStore, stage: Stage, scope: ValueScope, target: Memory
) -> str | None:
    stray = action.index.free() - set(stage.inner) - scope.sizes
    if stray:
        return f"the row {action.buffer} is indexed by {', '.join(sorted(map(str, stray)))}"
    scope.memory = {**scope.memory, action.buffer: target}
    return scope.access(action.buffer, action.index)


def _reduce(action: Reduce, stage: Stage, locals_: dict[str, Memory]) -> str | None:
    for name in action.targets:
        if name not in locals_ or locals_[name].capacity != integer(1):
            return f"{name} is no scalar local"
    wanted = reduction_types(action.kind, action.value.dtype, stage.inner)
    if isinstance(wanted, str):
        return wanted
    return different_types(wanted, tuple(locals_[name].dtype for name in action.targets))
