"""The parts of torch's optimizers that read counters and other numbers out of tensors."""

from __future__ import annotations

import torch
from torch.optim import (
    _adafactor,
    adagrad,
    adam,
    asgd,
    optimizer,
    radam,
    sgd,
)

optimizer_number = optimizer._get_value
"""How optimizers read a counter of steps: `item()`, except where they are compiled."""

optimizer_stack = optimizer._stack_if_compiling
"""What optimizers make of a list of numbers computed from counters."""

foreach_addcmul_ = torch._foreach_addcmul_
foreach_addcdiv_ = torch._foreach_addcdiv_

FUSED_OPTIMIZERS = (adam.adam, sgd.sgd, adagrad.adagrad)
"""Steps that have a form in one operator, where `fused`, beside the one on lists of tensors."""

BRANCHING_OPTIMIZERS = (
    radam._single_tensor_radam,
    radam._multi_tensor_radam,
    asgd._single_tensor_asgd,
    asgd._multi_tensor_asgd,
)
"""Steps that ask a counter what to do, unless `capturable`; the list of counters is the last
argument given by position.
"""

READING_OPTIMIZERS = (_adafactor._single_tensor_adafactor, _adafactor._multi_tensor_adafactor)
"""Steps that read norms as well as counters into numbers, and choose the larger or smaller."""

foreach_lerp_ = torch._foreach_lerp_
