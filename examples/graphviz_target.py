"""A target that draws: wrapper lines to a picture of kernels, calls and memory, for Graphviz.

`python -m examples.graphviz_target` prints one; `dot -Tsvg` draws it.
"""

import torch

import fusewright
from fusewright.ir import lines as wrapper
from fusewright.ir.forms import buffers_defined, buffers_overwritten, buffers_read
from fusewright.ir.text_parts import print_layout


def emit_graphviz(lines):
    """The text of a directed graph: boxes are work, ellipses what a call is given and returns,
    and edges the tensors between them. Dashed: memory whose earlier values are not read.
    """
    drawing = Drawing()
    for line in lines:
        drawing.emit(line)
    return "\n".join(["digraph {", *drawing.rows, "}"]) + "\n"


class Drawing:
    """Collects rows."""

    def __init__(self):
        self.rows = []
        self.kernels = {}
        self.layouts = {}  # by buffer, as text
        self.writers = {}  # by buffer, the node that wrote it last

    def emit(self, line):
        """Draw what a line says. Lines that neither compute nor name memory draw nothing."""
        match line:
            case wrapper.TakeInput(buffer=buffer) | wrapper.TakeConstant(buffer=buffer):
                self.layouts[buffer.name] = print_layout(buffer.layout)
                self.writers[buffer.name] = self.node(buffer.name, "ellipse")
            case wrapper.Allocate(buffer=buffer):
                self.layouts[buffer.name] = print_layout(buffer.layout)
            case (
                wrapper.View(buffer=buffer, source=source)
                | wrapper.Reuse(buffer=buffer, source=source)
            ):
                self.layouts[buffer.name] = print_layout(buffer.layout)
                self.writers[buffer.name] = self.writers.get(source)
            case wrapper.DefineKernel(kernel=kernel):
                self.kernels[kernel.name] = kernel
            case wrapper.DefineChoice(name=name):
                self.kernels[name] = line
            case wrapper.CallKernel(launch=launch):
                self.launch(launch.kernel, launch.buffers)
            case wrapper.CallChoice(choice=choice, buffers=buffers):
                self.launch(choice, buffers)
            case wrapper.CallExtern(operator=name) | wrapper.CallExternOut(operator=name):
                self.call(name, line)
            case wrapper.CallProgram(name=name):
                self.call(name, line)
            case wrapper.CopyInto():
                self.call("copy", line)
            case wrapper.Return():
                self.work("result", buffers_read(line), [], "ellipse")

    def launch(self, kernel, buffers):
        pairs = list(zip(self.kernels[kernel].arguments, buffers, strict=True))
        read = [buffer for argument, buffer in pairs if argument.is_read]
        written = [buffer for argument, buffer in pairs if argument.is_written]
        self.work(kernel, read, written)

    def call(self, name, line):
        self.work(name, buffers_read(line), [*buffers_defined(line), *buffers_overwritten(line)])

    def work(self, name, read, written, shape="box"):
        node = self.node(name, shape)
        for buffer in dict.fromkeys([*read, *written]):
            if self.writers.get(buffer) is not None:
                self.edge(buffer, node, "solid" if buffer in read else "dashed")
        self.writers.update(dict.fromkeys(written, node))

    def node(self, label, shape):
        name = f"n{len(self.rows)}"
        self.rows.append(f'  {name} [label="{label}", shape={shape}]')
        return name

    def edge(self, buffer, node, style):
        label = f"{buffer} {self.layouts.get(buffer, '')}".strip()
        self.rows.append(f'  {self.writers[buffer]} -> {node} [label="{label}", style={style}]')


if __name__ == "__main__":
    compiled = fusewright.compile(lambda x, w: torch.relu(x @ w).softmax(-1) @ w)
    compiled(torch.randn(32, 8), torch.randn(8, 8))
    print(emit_graphviz(fusewright.compilations(compiled)[0].compiled.record.lines), end="")
