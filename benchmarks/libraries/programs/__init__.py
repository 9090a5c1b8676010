"""The programs of the sweep, a file for each library or part of torch."""
