"""The catalogue of reasons for which a program cannot be captured: what happened, why, and what to
change.

One row a reason. `what` and `why` may name details in braces, which the place that raises the
reason fills in.
"""

from __future__ import annotations

from typing import Final

from fusewright.records import record


@record(kw_only=True)
class Reason:
    """One way in which a program steps out of what capture understands."""

    name: str
    """Stable short name, for logs, tests and documentation."""

    what: str
    """The message: an account of what the program did, with details in braces."""

    why: str
    """Why that cannot be captured."""

    remedy: str
    """The advice to the user: a change that avoids the break."""

    def text(self, **details: object) -> str:
        """The message with its explanation, the details filled in."""
        return f"{self.what.format(**details)}: {self.why.format(**details)}"


BRANCH_ON_TENSOR: Final = Reason(
    name="branch-on-tensor",
    what="the truth of a tensor decides what runs next",
    why="its value is not known until the graph has run",
    remedy="use torch.where, or compile the two sides as separate functions",
)
TENSOR_VALUE: Final = Reason(
    name="tensor-value",
    what="`{operation}` reads a tensor's value into Python",
    why="the value is not known until the graph has run",
    remedy="keep the value in a tensor, or compute it outside the compiled function; "
    "options={'capture_scalar_outputs': True} keeps integers in the graph",
)
TENSORS_COMPARED: Final = Reason(
    name="tensors-compared",
    what="`{function}` compares the values of tensors",
    why="they are not known until the graph has run; even a tensor is not equal to itself where it "
    "holds NaN",
    remedy="ask `a is b` first where they may be one tensor, keep the answer in a tensor "
    "with (a == b).all(), or compare outside the compiled function",
)
FAKE_EXECUTION: Final = Reason(
    name="fake-execution",
    what="`{function}` cannot be run without its data",
    why="{detail}",
    remedy="move the call outside the compiled function",
)
INPUT_CHANGES: Final = Reason(
    name="input-changes",
    what="`{function}` gives a tensor that existed before another geometry or history",
    why="what a graph may change of its inputs is their values",
    remedy="call the method without the underscore and use its result, or call it outside the "
    "compiled function",
)
NO_DERIVATIVE: Final = Reason(
    name="no-derivative",
    what="`{function}` of a tensor that requires grad",
    why="torch has no derivative of it, which eager tells when backward asks for it",
    remedy="give it a detached tensor, or call it under torch.no_grad()",
)
SPARSE_GRADIENT: Final = Reason(
    name="sparse-gradient",
    what="`{function}` with a sparse gradient",
    why="a compiled backward gives dense tensors",
    remedy="leave out sparse=True, or call it outside the compiled function",
)
UNKNOWN_CALLABLE: Final = Reason(
    name="unknown-callable",
    what="a call of `{function}`",
    why="it is not written in Python and capture does not know what it does",
    remedy="call it outside the compiled function, or wrap it in a custom operator (torch.library)",
)
TENSOR_TO_UNKNOWN: Final = Reason(
    name="tensor-to-unknown",
    what="`{function}` was given {argument}",
    why="capture knows its result only for arguments that are known when compiling",
    remedy="call it outside the compiled function",
)
UNKNOWN_OPCODE: Final = Reason(
    name="unknown-opcode",
    what="the bytecode instruction {opcode}",
    why="{why}",
    remedy="rewrite the statement, or move it outside the compiled function",
)
UNSUPPORTED_ATTRIBUTE: Final = Reason(
    name="unsupported-attribute",
    what="attribute `{name}` of {object}",
    why="capture does not know how to read it or write it",
    remedy="do this outside the compiled function",
)
NO_REBUILD: Final = Reason(
    name="no-rebuild",
    what="{object} outlives the compiled function",
    why="capture cannot make this kind of object again after the graph has run",
    remedy="return tensors, containers or plain objects instead",
)
OUTSIDE_INPUT: Final = Reason(
    name="outside-input",
    what="`{function}` shows memory beyond the elements of an input of the graph",
    why="a graph is given the elements of its inputs; what else their storage holds may differ"
    " from call to call",
    remedy="give the compiled function the tensor whose elements these are",
)
OVERLAPPING_STORAGES: Final = Reason(
    name="overlapping-storages",
    what="a graph that writes to its inputs has inputs of different storages over the same memory",
    why="which writes which reads see cannot be told, nor guarded",
    remedy="make the tensors views of one tensor, or give the graph copies",
)
OWN_HASH: Final = Reason(
    name="own-hash",
    what="{key} as a key of an existing dict",
    why="its class says itself what its hash is and what equals it, which no guard may ask",
    remedy="use keys that are strings, numbers, enums or frozen dataclasses",
)
NOT_KNOWN: Final = Reason(
    name="not-known",
    what="the value of {object} is needed",
    why="it is not known until the compiled code runs",
    remedy="move the statement outside the compiled function",
)
CLASS_MADE: Final = Reason(
    name="class-made",
    what="class `{name}` is made while the program runs",
    why="capture does not follow {what} into it",
    remedy="define the class outside the compiled function",
)
OUTSIDE_WORLD: Final = Reason(
    name="outside-world",
    what="a call of `{function}`",
    why="{detail}",
    remedy="call it outside the compiled function",
)
TRITON_KERNEL: Final = Reason(
    name="triton-kernel",
    what="a launch of the Triton kernel `{kernel}`",
    why="{detail}",
    remedy="make the launch a custom operator (torch.library.custom_op): that stays in the graph",
)
INTERNAL_ERROR: Final = Reason(
    name="internal-error",
    what="capture failed with {error}",
    why="that is a defect of fusewright",
    remedy="please report it with this function; the statement may also be moved outside",
)
TOO_DEEP: Final = Reason(
    name="too-deep",
    what="calls nest deeper than {limit}",
    why="each is inlined into the graph",
    remedy="compile an inner function instead, or use a loop",
)
TOO_LONG: Final = Reason(
    name="too-long",
    what="more than {limit} instructions of Python",
    why="each would be executed while capturing, which takes many times as long; what follows in "
    "this function runs as it is",
    remedy="compute this outside the compiled function, or compile the functions that it calls",
)
TOO_NESTED: Final = Reason(
    name="too-nested",
    what="an object holds itself, or others nested deeper than Python's recursion limit",
    why="capture reads all that such an object holds",
    remedy="keep such an object outside the compiled function, or raise the recursion limit",
)
ASYNCHRONOUS: Final = Reason(
    name="asynchronous",
    what="an asynchronous function or generator was called",
    why="its suspension points lie outside the frame",
    remedy="await it outside the compiled function",
)
GENERATOR_ESCAPES: Final = Reason(
    name="generator-escapes",
    what="`{function}` is {kind}",
    why="its caller resumes it piece by piece",
    remedy="compile a function that it calls, or one that uses it up",
)
EXISTING_ITERATOR: Final = Reason(
    name="existing-iterator",
    what="the next item of an existing {iterator}",
    why="how far it has come differs from call to call, or cannot be seen",
    remedy="mend what breaks the graph inside the loop, or loop over the container itself",
)
FINALIZER: Final = Reason(
    name="finalizer",
    what="{object} is dropped",
    why="only an object that exists runs what has to run then",
    remedy="use a generator up or close it; keep an object that has `__del__`, or make it outside "
    "the compiled function",
)
TORCH_FUNCTION_MODE: Final = Reason(
    name="torch-function-mode",
    what="a torch function or dispatch mode is active",
    why="it changes what torch functions do",
    remedy="leave the mode before calling the compiled function",
)
GRAD_REQUIRED: Final = Reason(
    name="grad-required",
    what="`{operation}`",
    why="it changes gradients, or follows a history, outside of the graph",
    remedy="call it outside the compiled function, or use torch.autograd.grad on what is computed "
    "inside",
)
RANDOM_STATE: Final = Reason(
    name="random-state",
    what="`{operation}`",
    why="it needs a random generator itself, which a graph does not hold",
    remedy="draw from the default generator, or do this outside the compiled function",
)
WRITES_OUTSIDE: Final = Reason(
    name="writes-outside",
    what="{function} writes to a tensor that exists outside of it",
    why="a function that a transform or a condition is given has a graph of its own, which only "
    "computes",
    remedy="return the new value instead",
)
SUBPROGRAM_VARIES: Final = Reason(
    name="subprogram-varies",
    what="{function} computes something else when it is called again",
    why="a function that a transform or a condition is given has one graph for all calls",
    remedy="let it depend on its arguments alone",
)
LEAVES_FUNCTION: Final = Reason(
    name="leaves-function",
    what="a tensor is used outside of the function that computed it",
    why="a function that a transform or a condition is given has a graph of its own, which gives "
    "back what it returns",
    remedy="return the tensor",
)
FUNCTION_TRANSFORM: Final = Reason(
    name="function-transform",
    what="`{transform}`",
    why="it calls a function on tensors of its own kind, which a graph does not hold",
    remedy="apply the transform outside the compiled function",
)
INSIDE_TRANSFORM: Final = Reason(
    name="inside-transform",
    what="a transform of torch.func calls the compiled function",
    why="its tensors are of a kind that a graph does not hold",
    remedy="compile the function that applies the transform, or what it returns",
)
PARAMETER_MADE: Final = Reason(
    name="parameter-made",
    what="a parameter was made",
    why="it is a leaf of autograd of its own, which a graph cannot give back",
    remedy="make modules and parameters outside the compiled function",
)
TENSOR_KIND: Final = Reason(
    name="tensor-kind",
    what="`{operation}` on {tensor}",
    why="a graph holds plain tensors: strided, not quantised, of torch.Tensor's own class",
    remedy="convert it outside the compiled function",
)
USER_BREAK: Final = Reason(
    name="user-break",
    what="fusewright.graph_break() was called",
    why="{message}",
    remedy="remove the call to keep one graph",
)
DISABLED: Final = Reason(
    name="disabled",
    what="`{function}` is not to be compiled",
    why="{why}",
    remedy="call it outside the compiled function, or take `disable` from it",
)
DISALLOWED: Final = Reason(
    name="disallowed",
    what="`{function}` is not to stand in a graph",
    why="disallow_in_graph was called for it",
    remedy="call it outside the compiled function",
)

VARYING_VALUE: Final = Reason(
    name="varying-value",
    what="`{source}` was another value in each version of the function so far",
    why="this version is for every value, and does not know it",
    remedy="use a tensor, or a number that is only computed with; "
    "options={'recompile_limit': …} allows for more versions that know it",
)
LASTING: Final = frozenset(
    reason.name
    for reason in (
        BRANCH_ON_TENSOR,
        TENSOR_VALUE,
        TENSORS_COMPARED,
        FAKE_EXECUTION,
        UNKNOWN_CALLABLE,
        OUTSIDE_WORLD,
        TRITON_KERNEL,
        USER_BREAK,
        DISABLED,
        DISALLOWED,
    )
)
"""Reasons that lie in what a call does, and not in what capture knew or did before it: capture
fails as well when it begins inside that call.
"""
