"""Graph networks, by PyTorch Geometric."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.libraries.program import Compile, Run, program
from benchmarks.libraries.programs.common import gradients, perceptron

NODES, EDGES, WIDTH = 80, 400, 16


def _edges(nodes: int = NODES, edges: int = EDGES) -> torch.Tensor:
    return torch.randint(nodes, (2, edges))


def _stacked(layers: list[nn.Module], compile: Compile) -> Run:
    """Layers of one kind with ReLU between, trained on random nodes and edges."""

    class Stacked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x, edges).relu()
            return x

    module = Stacked()
    compiled = compile(module)
    x, edges = torch.randn(NODES, WIDTH), _edges()
    return lambda: gradients(module, compiled(x, edges).square().mean())


@program("torch_geometric")
def convolutional(compile: Compile) -> Run:
    """Two GCN layers."""
    from torch_geometric.nn import GCNConv

    return _stacked([GCNConv(WIDTH, 32), GCNConv(32, WIDTH)], compile)


@program("torch_geometric")
def attention(compile: Compile) -> Run:
    """Two GATv2 layers of four heads."""
    from torch_geometric.nn import GATv2Conv

    return _stacked([GATv2Conv(WIDTH, 8, heads=4), GATv2Conv(32, 8)], compile)


@program("torch_geometric")
def sampled(compile: Compile) -> Run:
    """Two GraphSAGE layers with the mean and the maximum of neighbours."""
    from torch_geometric.nn import SAGEConv

    return _stacked([SAGEConv(WIDTH, 32), SAGEConv(32, WIDTH, aggr="max")], compile)


@program("torch_geometric")
def isomorphism(compile: Compile) -> Run:
    """Two GIN layers, each with a perceptron."""
    from torch_geometric.nn import GINConv

    layers: list[nn.Module] = [GINConv(perceptron(WIDTH, 32, WIDTH)) for _ in range(2)]
    return _stacked(layers, compile)


@program("torch_geometric")
def message_passing_of_ones_own(compile: Compile) -> Run:
    """A MessagePassing class as the tutorial writes it, with features of edges."""
    from torch_geometric.nn import MessagePassing

    class Layer(MessagePassing):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(aggr="add")
            self.body = perceptron(2 * WIDTH + 4, 32, WIDTH)

        def forward(self, x: torch.Tensor, edges: torch.Tensor, kinds: torch.Tensor) -> Any:
            return self.propagate(edges, x=x, kinds=kinds)

        def message(self, x_i: torch.Tensor, x_j: torch.Tensor, kinds: torch.Tensor) -> Any:
            return self.body(torch.cat([x_i, x_j - x_i, kinds], -1))

    module = Layer()
    compiled = compile(module)
    x, edges, kinds = torch.randn(NODES, WIDTH), _edges(), torch.randn(EDGES, 4)
    return lambda: gradients(module, compiled(x, edges, kinds).square().mean())


@program("torch_geometric")
def batches_of_graphs(compile: Compile) -> Run:
    """Graphs of several sizes in a batch, pooled to one row each; batches vary."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GraphConv, global_max_pool, global_mean_pool

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GraphConv(WIDTH, 32), GraphConv(32, 32)
            self.head = nn.Linear(64, 3)

        def forward(self, data: Any) -> torch.Tensor:
            x = self.first(data.x, data.edge_index).relu()
            x = self.second(x, data.edge_index).relu()
            pooled = global_mean_pool(x, data.batch), global_max_pool(x, data.batch)
            return self.head(torch.cat(pooled, -1))

    def graph(nodes: int) -> Any:
        return Data(x=torch.randn(nodes, WIDTH), edge_index=_edges(nodes, 4 * nodes))

    batches = [Batch.from_data_list([graph(n), graph(n + 3), graph(2 * n)]) for n in (7, 9, 12)]
    module = Classifier()
    compiled = compile(module)
    return lambda: [gradients(module, compiled(one).square().mean()) for one in batches]


@program("torch_geometric")
def nodes_of_several_kinds(compile: Compile) -> Run:
    """A heterogeneous convolution over dictionaries of nodes and edges."""
    from torch_geometric.nn import HeteroConv, SAGEConv

    kinds = [("user", "buys", "item"), ("item", "bought_by", "user")]
    module = HeteroConv({kind: SAGEConv((WIDTH, WIDTH), 8) for kind in kinds}, aggr="sum")
    compiled = compile(module)
    x = {"user": torch.randn(NODES, WIDTH), "item": torch.randn(NODES, WIDTH)}
    edges = {kind: _edges() for kind in kinds}

    def run() -> Any:
        out = compiled(x, edges)
        return gradients(module, sum(one.square().mean() for one in out.values()))

    return run


@program("torch_geometric")
def autoencoder_of_a_graph(compile: Compile) -> Run:
    """A variational graph autoencoder with its reconstruction loss."""
    from torch_geometric.nn import VGAE, GCNConv

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = GCNConv(WIDTH, 32)
            self.mean, self.log_deviation = GCNConv(32, 8), GCNConv(32, 8)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> Any:
            x = self.body(x, edges).relu()
            return self.mean(x, edges), self.log_deviation(x, edges)

    module = VGAE(Encoder())
    x, edges, absent = torch.randn(NODES, WIDTH), _edges(), _edges()

    @compile
    def loss(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        latent = module.encode(x, edges)
        return module.recon_loss(latent, edges, absent) + module.kl_loss() / NODES

    return lambda: gradients(module, loss(x, edges))


@program("torch_geometric")
def points_by_distance(compile: Compile) -> Run:
    """SchNet's continuous filters over molecules, as energies and forces."""
    from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock

    class Energy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kind = nn.Embedding(10, 32)
            self.distance = GaussianSmearing(0.0, 5.0, 16)
            self.blocks = nn.ModuleList(InteractionBlock(32, 16, 32, 5.0) for _ in range(2))
            self.head = perceptron(32, 16, 1)

        def forward(self, z: torch.Tensor, at: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            length = (at[edges[0]] - at[edges[1]]).norm(dim=-1)
            features, x = self.distance(length), self.kind(z)
            for block in self.blocks:
                x = x + block(x, edges, length, features)
            return self.head(x).sum()

    module = Energy()
    compiled = compile(module)
    z, positions = torch.randint(10, (12,)), torch.randn(12, 3)
    edges = torch.combinations(torch.arange(12)).T.contiguous()

    def run() -> Any:
        at = positions.clone().requires_grad_()
        energy = compiled(z, at, edges)
        return energy.detach(), torch.autograd.grad(energy, at)

    return run


@program("torch_geometric")
def edges_dropped_at_random(compile: Compile) -> Run:
    """Self-loops added, duplicate edges joined and edges dropped within what is compiled."""
    from torch_geometric.nn import GCNConv
    from torch_geometric.utils import add_self_loops, coalesce, dropout_edge

    module = GCNConv(WIDTH, WIDTH, add_self_loops=False)

    @compile
    def loss(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        edges, _ = dropout_edge(coalesce(edges), p=0.2, training=module.training)
        edges, _ = add_self_loops(edges, num_nodes=NODES)
        return module(x, edges).square().mean()

    x, edges = torch.randn(NODES, WIDTH), _edges()
    return lambda: gradients(module, loss(x, edges))
