"""Compiles a small model with each of the examples, and prints what they have to tell.

python -m examples.backends
"""

import torch
from torch import nn

import fusewright
from examples.backends import counting, loop_operations, python_kernels

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Softmax(-1), nn.Linear(8, 3))
x = torch.randn(5, 4)

with torch.no_grad():
    for example in (counting, loop_operations, python_kernels):
        name = example.__name__.rpartition(".")[2]
        result = fusewright.compile(model, backend=name, options={"strict": True})(x)
        print(f"{name}: as eager to {(result - model(x)).abs().max():.0e}")

print("torch's functions:", dict(counting.calls))
for text, operations in loop_operations.programs:
    print(text)
    print("operations an element:", operations)
