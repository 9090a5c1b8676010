"""The fuzzer: random programs run eagerly and compiled, and everything compared that can be seen.

    program.py      what a random program is: a Python file that runs alone
    tensors.py      generates programs of torch operators; operators.py is their table
    python.py       generates programs of Python's statements; python_phrases.py is their table
    modules.py      generates modules and training steps; module_phrases.py is their table
    loops.py        generates programs of the loop IR; loop_programs.py makes files of them
    inputs.py       the tensors that programs begin with
    execution.py    runs a program; observation.py flattens what can be seen of it
    comparison.py   what differs; judge.py tells rounding from wrong
    gpu_choices.py  what is open in the results of a GPU's kernels
    conversions.py  conversions of programs that run in double precision
    eager_faults.py, overlooked_writes.py, repeated_writes.py
                    programs of which eager's result means nothing, found by their
                    calls of torch (watched_calls.py)
    checking.py     all of that for one program
    workers.py      programs in processes of their own, where they may crash and hang
    campaign.py     many programs: seeds, time, results in a folder
    shrink.py       makes a program smaller that shows a finding
    report.py       the table at the end

`fusewright fuzz` is its command.
"""

from __future__ import annotations

from fusewright.fuzz.alone import show
from fusewright.fuzz.inputs import fill, leaf, weights

__all__ = ["fill", "leaf", "show", "weights"]
