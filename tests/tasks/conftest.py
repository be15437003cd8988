"""Where the tests find data."""

import os
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def data_folder() -> Path:
    """The folder that MGMEM_DATA names, or the one beside the repository."""
    return Path(os.environ.get("MGMEM_DATA", SHARED_DATA))


@pytest.fixture
def mnist_folder(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder holding the four files of MNIST, with MGMEM_DATA pointing at its parent."""
    if not (data_folder / "mnist" / "train-images-idx3-ubyte.gz").is_file():
        pytest.skip(f"no MNIST in {data_folder}: set MGMEM_DATA to a folder with mnist/*.gz in it")
    monkeypatch.setenv("MGMEM_DATA", str(data_folder))
    return data_folder / "mnist"
