"""What operators assume of the sizes of their inputs, beyond that two are equal: the samples of
torch, run on fakes of symbolic sizes. A size that is assumed to stay as it is costs a compile for
each.

    python -m tests.symbolic.size_guards [operator …]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

from fusewright.ir.index import Symbol
from fusewright.ir.relations import Relation, RelationKind
from fusewright.symbolic.relations import RealRelation
from tests.operators.samples import samples
from tests.symbolic_inputs import SymbolicInputs


def assumptions(operator: Any, args: Any, kwargs: Any) -> Iterator[Relation | RealRelation]:
    """What a call assumes."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    inputs = SymbolicInputs.of(tensors)
    if not inputs.fakes:
        return
    fakes = iter(inputs.fakes)
    args, kwargs = tree_map(
        lambda leaf: next(fakes) if isinstance(leaf, Tensor) else leaf, (tuple(args), kwargs)
    )
    mode = inputs.fakes[0].fake_mode
    with torch.no_grad(), mode:
        mode.call(operator, args, kwargs)
    yield from (each.relation for each in inputs.facts.assumptions)


def is_plain(relation: Relation | RealRelation) -> bool:
    """Whether it says that two sizes are equal or not, as broadcasting does."""
    if isinstance(relation, RealRelation) or relation.kind is RelationKind.NOT_NEGATIVE:
        return False
    sides = [atoms for _, atoms in relation.difference.terms]
    symbols = all(len(atoms) == 1 and isinstance(atoms[0], Symbol) for atoms in sides)
    return symbols and len(sides) == 2 and not relation.difference.constant


def main() -> None:
    wanted = set(sys.argv[1:])
    for operator in op_db:
        if torch.float32 not in operator.dtypes or (wanted and operator.name not in wanted):
            continue
        found: dict[str, int] = defaultdict(int)
        for args, kwargs in samples(operator, torch.float32, 30):
            try:
                for relation in assumptions(operator.op, args, kwargs):
                    if not is_plain(relation):
                        found[str(relation)] += 1
            except Exception as error:
                found[f"{type(error).__name__}: {str(error)[:80]}"] += 1
        for text, times in sorted(found.items(), key=lambda each: -each[1])[:4]:
            print(operator.name, text, times, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
