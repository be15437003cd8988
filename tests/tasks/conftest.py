"""Where the tests find MNIST."""

import os
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def mnist_folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder holding the four files of MNIST, with MGMEM_DATA pointing at its parent."""
    data = Path(os.environ.get("MGMEM_DATA", SHARED_DATA))
    if not (data / "mnist" / "train-images-idx3-ubyte.gz").is_file():
        pytest.skip(f"no MNIST in {data}: set MGMEM_DATA to a folder with mnist/*.gz in it")
    monkeypatch.setenv("MGMEM_DATA", str(data))
    return data / "mnist"
