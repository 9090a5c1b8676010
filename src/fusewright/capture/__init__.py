"""A running Python frame becomes torch-level FX graphs, guards and new bytecode."""
