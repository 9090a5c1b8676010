"""OpenVINO as a column of the comparison: `pip install 'fusewright[peers]'`."""

from __future__ import annotations

from typing import Any

import openvino
import torch
from torch import nn


class OpenVinoModel:
    """A module that OpenVINO runs on the CPU, in single precision and for fixed sizes; its weights
    are constants. It is converted at the first call.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._compiled: Any = None

    def __call__(self, **inputs: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of the module's result, in order."""
        if self._compiled is None:
            self._compiled = self._converted(inputs)
        results = self._compiled({name: value.numpy() for name, value in inputs.items()})
        return [torch.from_numpy(results[place]) for place in range(len(results))]

    def _converted(self, inputs: dict[str, torch.Tensor]) -> Any:
        model = openvino.convert_model(self._module, example_input=dict(inputs))
        names = [parameter.get_any_name() for parameter in model.inputs]
        model.reshape({name: list(inputs[name].shape) for name in names})
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        return openvino.compile_model(model, "CPU", settings)
