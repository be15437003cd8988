"""What is left of a multigrid memory without its scales: the paper's ablation and conv-LSTMs.

Each is a mesh with one grid per layer, so the library's own layers compute it, as fast as ours;
what is missing is only the path across scales. Counts follow the multigrid network's:

- ablated: each layer keeps its finest grid, with the channels of all of its grids together.
- thick: the same channels, every layer on the finest grid of all.
- deep: every grid of every layer becomes a layer of its own on the finest grid of all.
"""

from __future__ import annotations

from mgmem.errors import UsageError
from mgmem.spec import LayerSpec, MeshSpec, as_mesh

VARIANTS = ("ablated", "thick", "deep")


def single_scale(spec: str | MeshSpec, variant: str, finest: int | None = None) -> MeshSpec:
    """The single-scale counterpart of a mesh; ``finest``: the level of thick and deep.

    The last layer of a reader's tail, with one grid, keeps its channels in every variant.
    """
    mesh = as_mesh(spec)
    if variant not in VARIANTS:
        raise UsageError(f"no variant {variant!r}: there are {', '.join(VARIANTS)}")
    top = max(layer.highest for layer in mesh) if finest is None else finest
    layers: list[LayerSpec] = []
    for layer in mesh:
        together = layer.channels * len(layer.levels)
        if variant == "ablated":
            layers.append(LayerSpec(layer.highest, layer.highest, together))
        elif variant == "thick":
            layers.append(LayerSpec(top, top, together))
        else:
            layers += [LayerSpec(top, top, layer.channels) for _ in layer.levels]
    return MeshSpec(tuple(layers))
