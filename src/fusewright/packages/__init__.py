"""Packages: compiled programs as files, which run without the compiler.

The file:
container        sections with digests, written whole or not at all
structure        nested arguments and results as data, and back
constants        what a native plan calls and holds, as data, and back
sizes            relations between sizes, as data, and whether they hold
tensors          rows that describe tensors, and their memory
processors       levels of processors that machine code is for
gpu_kernels      machine code for GPUs, and what launches it

Making one, with the compiler:
building         a program to a package
calls            what a call of the program is given and returns, as its manifest has it
frozen_values    what is computed of weights alone, stored in their place
standalone       the section that runs an entry point without Python
standalone_plan  its operations, translated from a native plan
cpp_source       an entry point as C++

Using one, without it:
loading          a package to what is called
running          `fusewright run-package`

Beside them:
caches           `fusewright cache`, whose exported file is of the same format
"""
