"""The tensors that a layer computes with, whatever its lists of parameters have been made into."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook


def listed(parameters: nn.ParameterList) -> list[Tensor]:
    """The tensors in order: parameters, or what parametrisations and pruning make of them."""
    plain = _plain(parameters)
    if plain is not None:
        return plain
    # Pruning computes in a hook before the forward pass, which a list does not have.
    for hook in list(parameters._forward_pre_hooks.values()):
        hook(parameters, ())
    return [getattr(parameters, name) for name in _names(len(parameters))]


def plain_parameters(layers: Sequence[nn.Module], kind: type[nn.Module]) -> list[Tensor] | None:
    """The layers' parameters in order; None where calling a layer may do more than its forward.

    That is a layer of another class, with a norm, with hooks, or whose tensors are made anew for
    each use.
    """
    if _has_any_global_hook():
        return None
    found: list[Tensor] = []
    for layer in layers:
        if type(layer) is not kind or layer._forward_hooks or layer._forward_pre_hooks:
            return None
        for child in layer._modules.values():
            plain = _plain(child) if isinstance(child, nn.ParameterList) else None
            if plain is None:
                return None
            found += plain
    return found


def _plain(parameters: nn.ParameterList) -> list[Tensor] | None:
    """The parameters by their numbers: one that was taken out and put back stands last."""
    if type(parameters) is not nn.ParameterList or parameters._forward_pre_hooks:
        return None
    held = parameters._parameters
    try:
        found = [held[name] for name in _names(parameters._size)]
    except KeyError:
        return None
    return [parameter for parameter in found if parameter is not None]


@lru_cache(maxsize=64)
def _names(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
