"""ONNX Runtime as a column of the comparison: `pip install 'fusewright[peers]'`."""

from __future__ import annotations

from typing import Any

import onnxruntime
import torch
from torch import nn


class OnnxRuntimeModel:
    """A module that ONNX Runtime runs on the CPU, for fixed sizes; its weights are constants. It is
    exported at the first call.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._session: Any = None

    def __call__(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of the module's result, in order."""
        if self._session is None:
            self._session = self._exported(inputs)
        results = self._session.run(None, {name: value.numpy() for name, value in inputs.items()})
        return [torch.from_numpy(result) for result in results]

    def _exported(self, inputs: dict[str, torch.Tensor]) -> Any:
        program = torch.onnx.export(
            self._module, (), kwargs=dict(inputs), dynamo=True, verbose=False
        )
        assert program is not None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(
            program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
