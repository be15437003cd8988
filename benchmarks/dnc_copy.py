"""Train a small DNC to copy random bit vectors and record the bit error it reaches.

Sequences of 1 to `--longest` vectors go in, then the same number of empty "go on" steps asks for
them back in order. Training stops early once the error on the longest sequences is zero.

    python benchmarks/dnc_copy.py --out results/dnc-copy.json
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from mgmem.baselines.dnc import DNC
from mgmem.baselines.flat import FlatModel, flat_input_size


def build(bits: int, hidden: int, slots: int, width: int, read_heads: int) -> FlatModel:
    shapes = {"input_shape": (bits, 1, 1), "query_shapes": [(1, 1, 1)], "answer_shapes": [(bits,)]}
    size = flat_input_size(shapes["input_shape"], shapes["query_shapes"])
    core = DNC(size, hidden, slots=slots, width=width, read_heads=read_heads)
    return FlatModel(core, reads="after", **shapes)


def logits_and_targets(
    model: FlatModel, length: int, batch: int, bits: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Logits and 0/1 targets of one fresh batch, both (length, batch, bits)."""
    targets = torch.randint(0, 2, (length, batch, bits), generator=generator).float()
    inputs = targets[..., None, None]
    queries = (torch.zeros(length, batch, 1, 1, 1),)
    times = torch.full((length,), length - 1)
    (logits,), _ = model(inputs, queries=queries, times=times)
    return logits, targets


@torch.no_grad()
def bit_error(model: FlatModel, length: int, bits: int, seed: int, batch: int = 200) -> float:
    """Fraction of wrong bits over `batch` sequences of `length` that training never sees."""
    generator = torch.Generator().manual_seed(seed)
    logits, targets = logits_and_targets(model, length, batch, bits, generator)
    return ((logits > 0) != targets.bool()).float().mean().item()


def train(args: argparse.Namespace) -> dict:
    torch.manual_seed(args.seed)
    model = build(args.bits, args.hidden, args.slots, args.width, args.read_heads)
    optimiser = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    generator = torch.Generator().manual_seed(args.seed + 1)
    start, curve, solved = time.monotonic(), [], 0
    for update in range(1, args.updates + 1):
        length = int(torch.randint(1, args.longest + 1, (), generator=generator))
        logits, targets = logits_and_targets(model, length, args.batch, args.bits, generator)
        loss = F.binary_cross_entropy_with_logits(logits, targets)
        optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0, error_if_nonfinite=True)
        optimiser.step()
        if update % args.every == 0:
            seconds = time.monotonic() - start
            error = bit_error(model, args.longest, args.bits, seed=args.seed + 2)
            curve.append({"update": update, "seconds": round(seconds, 1), "bit_error": error})
            print(
                f"{update:6d}  {seconds:6.0f}s  loss {loss.item():.4f}  norm {norm.item():.3f}  "
                f"error at length {args.longest}: {error:.4f}",
                flush=True,
            )
            solved = solved + 1 if error == 0.0 else 0
            if solved == 3 or seconds > 60 * args.minutes:
                break
    errors = {n: bit_error(model, n, args.bits, args.seed + 3) for n in range(1, args.longest + 1)}
    return {
        "what": "copy random bit vectors with a DNC",
        "settings": {k: v for k, v in vars(args).items() if k != "out"},
        "parameters": sum(p.numel() for p in model.parameters()),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "seconds": round(time.monotonic() - start, 1),
        "updates": update,
        "bit_error_by_length": errors,
        "bit_error": sum(errors.values()) / len(errors),
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the result there as JSON")
    parser.add_argument("--longest", type=int, default=10, help="vectors in the longest sequence")
    parser.add_argument("--bits", type=int, default=6, help="bits per vector")
    parser.add_argument("--hidden", type=int, default=100, help="units of the controller")
    parser.add_argument("--slots", type=int, default=64, help="memory slots")
    parser.add_argument("--width", type=int, default=16, help="numbers per slot")
    parser.add_argument("--read-heads", type=int, default=1, help="read heads")
    parser.add_argument("--batch", type=int, default=16, help="sequences per update")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of Adam")
    parser.add_argument("--updates", type=int, default=20_000, help="at most so many")
    parser.add_argument("--minutes", type=float, default=14.0, help="at most so long")
    parser.add_argument("--every", type=int, default=100, help="updates between tests")
    parser.add_argument("--seed", type=int, default=0, help="of weights and sequences")
    args = parser.parse_args()
    result = train(args)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "curve"}, indent=1))


if __name__ == "__main__":
    main()
