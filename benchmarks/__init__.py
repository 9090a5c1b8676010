"""fusewright beside eager and torch.compile, measured in one run."""
