"""Backends: what can stand behind `fusewright.compile` and `torch.compile`."""
