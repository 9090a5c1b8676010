"""Types of the C extension; the docstrings stand in the C files."""

from collections.abc import Callable
from types import CellType, CodeType, FunctionType
from typing import Any, Literal, NamedTuple

import torch

Step = tuple[Any, ...]
Test = tuple[str, Any]

def attach_torch(
    path: str,
    tensor_type: type,
    parameter_type: type,
    samples: tuple[tuple[torch.Tensor, int, int], ...],
    key_set_of: Callable[[torch.Tensor], int],
    /,
) -> bool: ...
def dispatch_state() -> tuple[int, int] | None: ...
def torch_states() -> dict[str, int]: ...
def read_tensor(
    tensor: torch.Tensor, /
) -> tuple[int, int, int, int, bool, tuple[int, ...], tuple[int, ...]]: ...
def first_elsewhere(inputs: list[Any], addresses: bytes, /) -> int: ...
def holders_of(
    tensors: tuple[torch.Tensor, ...],
    storages: tuple[torch.UntypedStorage, ...],
    implementations: tuple[int, ...],
    /,
) -> bytes: ...
def use_of(
    tensors: tuple[torch.Tensor, ...], storages: tuple[torch.UntypedStorage, ...], known: bytes, /
) -> Literal[0, 1, 2]: ...
def names_of(tensors: tuple[torch.Tensor, ...], /) -> list[torch.Tensor]: ...
def is_installed() -> bool: ...
def checksum(memory: bytes | bytearray | memoryview, /) -> bytes: ...
def draw_bernoulli(
    generator: torch.Generator, result: torch.Tensor, count: int, probability: float, /
) -> None: ...
def set_profiler(begin: Callable[[str | None, int, Any], Any] | None, forced: bool, /) -> None: ...
def lacking_features(names: tuple[str, ...], /) -> list[str]: ...
def size_of(tensor: torch.Tensor, dimension: int, /) -> int: ...
def stride_of(tensor: torch.Tensor, dimension: int, /) -> int: ...
def history_forward(node: Any, call: HistoryCall, /, *inputs: Any) -> tuple[Any, ...]: ...
def history_backward(node: Any, /, *gradients: Any) -> tuple[Any, ...]: ...
def run_only(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
) -> Any: ...

class CpuKernel:
    name: str
    tensor_count: int
    size_count: int
    def __init__(
        self, address: int, tensor_count: int, size_count: int, name: str, owner: object = None
    ) -> None: ...
    def __call__(self, *arguments: Any) -> None: ...
    def run_guarded(self, arguments: int, begin: int, end: int, /) -> int | None: ...

class MachineCode:
    def __init__(self, file: bytes | memoryview) -> None: ...
    def address(self, name: str, /) -> int: ...

class CallPlan:
    def __init__(
        self,
        operations: tuple[tuple[str, int, tuple[int | None, ...]], ...],
        inputs: int,
        slots: int,
        numbers: tuple[int, ...],
        constants: tuple[Any, ...],
        variables: dict[str, Any],
        file: str,
    ) -> None: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...
    def run_into(
        self, inputs: list[Any], memory: list[torch.Tensor | None], /
    ) -> tuple[Any, ...]: ...

class History:
    def __init__(
        self,
        apply: Callable[..., Any],
        inputs: tuple[int, ...],
        tangents: tuple[int, ...],
        numbers: tuple[int, ...],
        saved: tuple[int, ...],
        strides: tuple[tuple[int, ...], ...] | None,
        is_special: bool,
        can_be_repeated: bool,
        checks_versions: bool,
    ) -> None: ...
    def add(self, inputs: tuple[Any, ...], outputs: list[Any], /) -> None: ...

class HistoryCall: ...

class TrainingCall:
    def __init__(
        self,
        forward: Callable[[list[Any]], Any],
        histories: tuple[History, ...],
        outputs: int,
        without_base: Callable[[Any], Any],
        add_otherwise: Callable[[tuple[Any, ...], list[Any]], bool] | None,
        measure: Callable[[tuple[Any, ...], list[Any]], None] | None,
    ) -> None: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

class GpuKernel:
    name: str
    tensor_count: int
    def __init__(
        self,
        name: str,
        tensor_count: int,
        kinds: str,
        driver: tuple[int, int, int],
        get_stream: Callable[[int], int],
        prepare: Callable[[int, bool], tuple[int, ...] | None],
        eager: Callable[..., None],
        widths: bytes = b"",
        first_values: bytes = b"",
    ) -> None: ...
    def __call__(self, *arguments: Any) -> None: ...

class GuardProgram:
    local_names: tuple[str, ...]
    test_count: int
    def __init__(
        self, local_names: tuple[str, ...], nodes: tuple[tuple[int, Step, tuple[Test, ...]], ...]
    ) -> None: ...
    def check(self, locals: dict[str, Any], function: FunctionType | None = None, /) -> bool: ...
    def explain(
        self, locals: dict[str, Any], function: FunctionType | None = None, /
    ) -> tuple[int, tuple[()] | tuple[Any]] | None: ...
    def is_dead(self) -> bool: ...

class Entry:
    function: FunctionType
    guards: GuardProgram | None
    detail: Any
    continues: bool
    on_return: Callable[[], Any] | None
    outcome: tuple[bool, int, int, bool] | None
    def __init__(
        self,
        function: FunctionType,
        guards: GuardProgram | None,
        detail: Any = None,
        continues: bool = False,
        on_return: Callable[[], Any] | None = None,
        tried: bool = False,
        hooks: Callable[[bool], Any] | None = None,
    ) -> None: ...

class CompiledCall:
    def __init__(
        self, compiler: FrameCompiler, function: FunctionType, first: Any = ...
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Continuation:
    function: FunctionType
    arguments: tuple[Any, ...]
    entry: Entry | None
    def __init__(
        self, function: FunctionType, arguments: tuple[Any, ...], entry: Entry = ..., /
    ) -> None: ...

class Frame(NamedTuple):
    function: FunctionType
    code: CodeType
    globals: dict[str, Any]
    builtins: dict[str, Any]
    closure: tuple[CellType, ...] | None
    locals: dict[str, Any]
    entries: tuple[Entry, ...]

class FrameCompiler:
    callback: Callable[[Frame], Entry | Literal[False] | None]
    on_limit: Callable[[Frame, bool], Any] | None
    recompile_limit: int
    accumulated_limit: int
    def __init__(
        self,
        callback: Callable[[Frame], Entry | Literal[False] | None],
        recompile_limit: int = 8,
        accumulated_limit: int = 256,
        on_limit: Callable[[Frame, bool], Any] | None = None,
    ) -> None: ...
    def call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        /,
    ) -> Any: ...
    def entries(self, code: CodeType, /) -> tuple[Entry, ...]: ...
    def reset(self) -> None: ...

class Disabled:
    def __init__(self, function: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
