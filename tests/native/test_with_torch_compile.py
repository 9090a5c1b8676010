"""The frame hook beside torch.compile's: each inside the other, in turns and in threads.

In a process of its own: importing the other compiler changes what tests of import costs see.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import threading
import torch
from fusewright import native
from fusewright.native import Entry, FrameCompiler, _extension

compiled_by_peer = []

def backend(graph_module, example_inputs):
    compiled_by_peer.append(graph_module)
    return graph_module.forward

def original(x):
    return x + 1

def ours(x):
    return x + 100

def theirs(x):
    return x * 2

def both(x):
    return original(theirs_compiled(x))

def everything_callback(frame):
    return Entry(ours, None, continues=True) if frame.code is original.__code__ else None

def callback(frame):
    return Entry(ours, None) if frame.code is original.__code__ else None

theirs_compiled = torch.compile(theirs, backend=backend)
everything, root = FrameCompiler(everything_callback), FrameCompiler(callback)
x = torch.ones(2)

# theirs inside ours: their function is compiled by them, ours by us, and the hook goes away again
for _ in range(3):
    assert everything.call(both, (x,), None).tolist() == [102.0, 102.0]
    assert root.call(original, (theirs_compiled(x),), None).tolist() == [102.0, 102.0]
    assert not _extension.is_installed()
assert len(compiled_by_peer) == 1

# ours inside theirs, where they break their graph
@torch.compiler.disable
def call_ours(x):
    return root.call(original, (x,), None)

@torch.compile(backend=backend)
def outside(x):
    return call_ours(x * 3) * 2

for _ in range(3):
    assert outside(x).tolist() == [206.0, 206.0]
    assert not _extension.is_installed()

# in threads, installed and taken away in any order
failures = []

def work(index):
    for _ in range(200):
        result = theirs_compiled(x) if index % 2 else root.call(original, (x,), None)
        if result[0].item() not in ((2.0,) if index % 2 else (101.0, 2.0)):
            failures.append(result)

threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures[:3]
assert root.call(original, (x,), None).tolist() == [101.0, 101.0]
assert theirs_compiled(x).tolist() == [2.0, 2.0]
assert original(x).tolist() == [2.0, 2.0]
assert not _extension.is_installed()
print("done")
"""


@pytest.mark.thorough
def test_each_inside_the_other() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0 and result.stdout.endswith("done\n"), result.stderr[-4000:]
