"""Looking into what was compiled: `explain`."""
