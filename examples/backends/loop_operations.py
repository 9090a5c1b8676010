"""A backend that takes the loops program: it tells how much arithmetic a model is, and runs the
program by its reference evaluation.
"""

from fusewright import register_backend
from fusewright.aot import trace_inference, with_results
from fusewright.context import CompileContext
from fusewright.ir.program import ComputedBuffer
from fusewright.ir.reference import evaluate_call
from fusewright.ir.text import print_program
from fusewright.ir.value import Apply, postorder
from fusewright.lower import calling_order, lower

programs = []
"""The text of each program that was compiled, and the operations that an element of each buffer
takes.
"""


@register_backend
def loop_operations(graph_module, example_inputs):
    """Torch calls to ATen operators (`graph`), to loops (`program`), to something that runs."""
    context = CompileContext()
    graph = trace_inference(graph_module, example_inputs, context)
    program = lower(graph, context)
    programs.append((print_program(program), operations(program)))

    def call(inputs):
        return evaluate_call(program, inputs, graph.constants)

    run = with_results(graph, calling_order(graph.placeholders, program).around(call))
    return lambda *inputs: run(list(inputs))


def operations(program):
    """By the name of each computed buffer. Library calls are not loops, and do not count."""
    computed = [step for step in program.statements if isinstance(step, ComputedBuffer)]
    return {
        step.outputs[0].name: sum(isinstance(one, Apply) for one in postorder((step.body.value,)))
        for step in computed
    }
