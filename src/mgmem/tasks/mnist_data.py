"""MNIST, from its four original files, in three splits that share no image."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mgmem.tasks.data import DataFile, read_data_file
from mgmem.tasks.seeds import Split

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"

VALID_IMAGES = 5_000

_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
_IMAGE_HEADER_BYTES = 16
_LABEL_HEADER_BYTES = 8


@dataclass(frozen=True)
class Digits:
    """Images (N, 28, 28) uint8 with their classes (N,) int64."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)


def load_digits(split: Split) -> Digits:
    """The images a split may use.

    "train": the first 55,000 of the 60,000 training images; "valid": the last 5,000 of them;
    "test": the 10,000 test images.
    """
    if split == "test":
        return _read("t10k")
    digits = _read("train")
    part = slice(None, -VALID_IMAGES) if split == "train" else slice(-VALID_IMAGES, None)
    return Digits(digits.images[part], digits.labels[part])


@lru_cache(maxsize=2)
def _read(prefix: str) -> Digits:
    # Files pass an md5 check before they get here, so their headers hold nothing unexpected.
    images = np.frombuffer(_unpacked(f"{prefix}-images-idx3-ubyte.gz"), np.uint8)
    labels = np.frombuffer(_unpacked(f"{prefix}-labels-idx1-ubyte.gz"), np.uint8)
    return Digits(
        images[_IMAGE_HEADER_BYTES:].reshape(-1, 28, 28),
        labels[_LABEL_HEADER_BYTES:].astype(np.int64),
    )


def _unpacked(name: str) -> bytes:
    return gzip.decompress(read_data_file(DataFile("mnist", name, _MD5[name], f"{MIRROR}/{name}")))
