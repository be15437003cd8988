"""Gradients of gradients: where a backward pass is differentiated, or batched, itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from mgmem.ops.circumstances import transformed


def wanted_again(pulls: Sequence[Tensor | None]) -> bool:
    """Whether a backward pass, given these, must itself be plain operations.

    That is with ``create_graph``, inside transforms, and with ``is_grads_batched``.
    """
    if torch.is_grad_enabled() or transformed() is not None:
        return True
    return any(pull is not None and is_legacy_batchedtensor(pull) for pull in pulls)


def gradients(
    compute: Callable[[list[Tensor]], Sequence[Tensor]],
    tensors: Sequence[Tensor],
    wanted: Sequence[bool],
    pulls: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients of the wanted tensors by running ``compute``, plain operations, anew.

    ``pulls``: the gradients of its results, None where nothing depends on one.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that a tensor that depends on another of them does not hand on to it here.
        own = [t.view_as(t) if w else t for t, w in zip(tensors, wanted, strict=True)]
        pairs = zip(compute(own), pulls, strict=True)
        used = [(result, pull) for result, pull in pairs if pull is not None]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in used],
                [tensor for tensor, w in zip(own, wanted, strict=True) if w],
                [pull for _, pull in used],
                create_graph=create_graph,
                allow_unused=True,
            )
        )
    return [next(found) if w else None for w in wanted]
