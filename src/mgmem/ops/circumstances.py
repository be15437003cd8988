"""Under which circumstances PyTorch must see plain operations, and why."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def transformed() -> str | None:
    """Why only the equations themselves will do here: what no written backward pass supports."""
    if torch._C._are_functorch_transforms_active():
        return "inside a torch.func transform"
    if forward_ad._current_level >= 0:
        return "inside forward-mode differentiation"
    return None


def watched() -> str | None:
    """Why kernels that PyTorch does not see may not run here, whatever the tensors."""
    if torch.is_autocast_enabled("cpu"):
        return "under autocast"
    if torch._C._len_torch_dispatch_stack():
        return "inside a mode that looks at every operation"
    return None
