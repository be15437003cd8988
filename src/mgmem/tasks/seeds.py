"""Random numbers that belong to an episode, whichever batch or worker makes it.

A numpy ``Generator`` per episode would be slow, and one per batch would tie an episode's content
to its neighbours. Here a random number is a pure function of (episode key, purpose, counter), a
splitmix64-style hash evaluated on whole arrays at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from mgmem.errors import UsageError

Split = Literal["train", "valid", "test"]
Keys = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

SPLITS: tuple[Split, ...] = ("train", "valid", "test")

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_KEY_BITS = 62
_KEY_MASK = np.uint64(2**_KEY_BITS - 1)
_FULL_MASK = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class SeedStream:
    """The endless numbered episodes of one split.

    The split is written into the two highest bits of every key, so a test episode has another
    key than any training episode, whatever the two roots. The other 62 bits are a bijection of
    the episode number, so no two episodes of a stream share a key either.
    """

    root: int
    split: Split
    stage: int = 0
    """Part of training: each has a stream of its own."""

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise UsageError(f"unknown split {self.split!r}: choose one of {', '.join(SPLITS)}")
        if self.root < 0:
            raise UsageError(f"the seed is {self.root}: give an integer of at least 0")

    def seeds(self, *purpose: int) -> np.random.SeedSequence:
        """Seeds that belong to this stream; another lot for every purpose."""
        stage = (self.stage,) if self.stage else ()
        return np.random.SeedSequence(self.root, spawn_key=(*purpose, *stage))

    def keys(self, first: int, count: int) -> Keys:
        """Keys of episodes first, ..., first + count - 1: (count,) uint64, all different."""
        if first < 0 or count < 1:
            raise UsageError(
                f"asked for {count} episodes from number {first}: "
                "give a first number of at least 0 and a count of at least 1"
            )
        numbers = np.arange(first, first + count, dtype=np.uint64)
        start = self.seeds().generate_state(1, np.uint64)
        mixed = _mix(start + _STEP * numbers, _KEY_MASK)
        return mixed | np.uint64(SPLITS.index(self.split) << _KEY_BITS)


def draw(keys: Keys, purpose: str, counters: npt.ArrayLike) -> Bits:
    """64 random bits for every (key, counter), another lot for every purpose.

    keys: (B,). counters: integers >= 0 that broadcast against keys, such as (n, 1) for (n, B).
    """
    own = _mix(keys + _purpose_number(purpose))
    return _mix(own + _STEP * np.atleast_1d(np.asarray(counters, dtype=np.uint64)))


def below(bits: Bits, limit: npt.ArrayLike) -> Ints:
    """Uniform integers 0 <= value < limit (limit < 2**32, at least 1) from random bits."""
    half = np.uint64(32)
    return (((bits >> half) * np.asarray(limit, dtype=np.uint64)) >> half).astype(np.int64)


def distinct(keys: Keys, purpose: str, count: int, limit: int) -> Ints:
    """`count` different uniform integers below `limit` per key, in random order: (count, B)."""
    remaining = limit - np.arange(count)[:, None]
    ranks = below(draw(keys, purpose, np.arange(count)[:, None]), remaining)
    chosen = np.empty_like(ranks)
    for i in range(count):
        # The rank counts the values still free; step over the taken ones that lie below it.
        taken = np.sort(chosen[:i], axis=0) - np.arange(i)[:, None]
        chosen[i] = ranks[i] + (taken <= ranks[i]).sum(axis=0)
    return chosen


def _mix(values: Bits, mask: np.uint64 = _FULL_MASK) -> Bits:
    """Scramble integers below mask + 1 (a power of two) one to one."""
    values = values & mask
    values = ((values ^ (values >> np.uint64(30))) * _FIRST_FACTOR) & mask
    values = ((values ^ (values >> np.uint64(27))) * _SECOND_FACTOR) & mask
    return values ^ (values >> np.uint64(31))


@cache
def _purpose_number(purpose: str) -> np.uint64:
    digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
