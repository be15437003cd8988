"""MNIST: finding it, keeping its splits apart, recall and sort."""

import gzip
import shutil

import numpy as np
import pytest
import torch

from mgmem.errors import UsageError
from mgmem.tasks import MnistRecall, MnistSort, SeedStream, Task, distortion, mnist_data
from mgmem.tasks.data import cache_folder
from mgmem.tasks.mnist_data import load_digits

NAMES = [
    f"{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
]


@pytest.fixture
def nothing_loaded():
    """Forget what earlier tests read, and let later ones forget what this one did."""
    mnist_data._read.cache_clear()
    yield
    mnist_data._read.cache_clear()


@pytest.fixture
def empty_cache(monkeypatch, tmp_path, nothing_loaded):
    """No MGMEM_DATA and a fresh cache folder."""
    monkeypatch.delenv("MGMEM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mgmem" / "mnist"


def raw_images(folder, part):
    """Image bytes -> class, straight from the files."""
    images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
    return [(images[784 * i : 784 * (i + 1)], labels[i]) for i in range(len(labels))]


def image_bytes(tensor):
    """(..., 28, 28) in [0, 1] -> list of bytes."""
    pixels = (tensor * 255).round().to(torch.uint8).reshape(-1, 784).numpy()
    return [row.tobytes() for row in pixels]


def test_splits_have_their_sizes_and_share_no_image(mnist_folder):
    splits = {split: load_digits(split) for split in ("train", "valid", "test")}
    assert [len(digits) for digits in splits.values()] == [55_000, 5_000, 10_000]
    train, valid, test = (
        {image.tobytes() for image in digits.images} for digits in splits.values()
    )
    assert not train & test
    assert not train & valid
    assert not valid & test


@pytest.mark.parametrize("task", [MnistRecall(10), MnistSort(20)], ids=lambda task: task.name)
def test_sequences_draw_from_their_own_split_only(mnist_folder, task):
    training, testing = raw_images(mnist_folder, "train"), raw_images(mnist_folder, "t10k")
    allowed = {
        "train": {image for image, _ in training[:55_000]},
        "valid": {image for image, _ in training[55_000:]},
        "test": {image for image, _ in testing},
    }
    for split, own in allowed.items():
        episodes = task.episodes(SeedStream(0, split), 0, 500)
        drawn = set(image_bytes(episodes.batch(0, task.length).inputs))
        assert len(drawn) > 2_000
        assert drawn <= own
        for other, foreign in allowed.items():
            assert other == split or not drawn & foreign


@pytest.mark.parametrize("questions", [1, 9])
def test_recall_wants_the_class_of_the_successor(mnist_folder, questions):
    classes = dict(raw_images(mnist_folder, "train"))
    task = MnistRecall(10).practice(10, questions)
    batch = task.episodes(SeedStream(1, "train"), 0, 50).batch(0, 10)
    for sequence in range(50):
        images = image_bytes(batch.inputs[:, sequence])
        assert len(set(images)) == 10
        asked = image_bytes(batch.queries[0][:, sequence])
        assert len(set(asked)) == questions
        for question, image in enumerate(asked):
            follower = images[images.index(image) + 1]
            assert batch.targets[0][question, sequence] == classes[follower]


@pytest.mark.parametrize("kind", [MnistRecall, MnistSort])
def test_distorted_digits_are_near_their_originals_and_in_training_only(mnist_folder, kind):
    plain, varied = kind(10), kind(10, distort=True)
    for split in ("train", "valid", "test"):
        stream = SeedStream(1, split)
        old = plain.episodes(stream, 0, 30).batch(0, 10)
        new = varied.episodes(stream, 0, 30).batch(0, 10)
        assert torch.equal(new.targets[0], old.targets[0])
        assert torch.equal(new.inputs, old.inputs) == (split != "train")
        if split == "train":
            pairs = torch.stack([old.inputs.flatten(), new.inputs.flatten()])
            assert 0.5 < torch.corrcoef(pairs)[0, 1] < 0.95
            ink = new.inputs.sum((3, 4)) / old.inputs.sum((3, 4))
            assert 0.7 < ink.min() < 0.9 < 1.1 < ink.max() < 1.4
            alone = varied.episodes(stream, 7, 1).batch(0, 10)
            assert torch.equal(alone.inputs, new.inputs[:, 7:8])


def test_a_distorted_digit_is_asked_for_as_it_was_shown(mnist_folder):
    batch = MnistRecall(10, distort=True).episodes(SeedStream(2, "train"), 0, 20).batch(0, 10)
    for sequence in range(20):
        shown = image_bytes(batch.inputs[:, sequence])
        assert image_bytes(batch.queries[0][:, sequence])[0] in shown[:-1]


def test_a_turned_digit_is_turned_about_its_middle(monkeypatch):
    monkeypatch.setattr(distortion, "SCALE", 0.0)
    monkeypatch.setattr(distortion, "PIXELS", 0.0)
    image = torch.zeros(1, 1, 1, 28, 28)
    image[..., 13:15, 2:26] = 1  # a bar across the middle
    turned = distortion.distorted(image, SeedStream(0, "train").keys(0, 1))[0, 0, 0]
    assert not torch.allclose(turned, image[0, 0, 0], atol=0.1)
    torch.testing.assert_close(turned, turned.flip(0, 1), atol=1e-4, rtol=0)


def test_sort_wants_the_classes_in_increasing_order(mnist_folder):
    classes = dict(raw_images(mnist_folder, "t10k"))
    batch = MnistSort(20).episodes(SeedStream(1, "test"), 0, 50).batch(0, 20)
    assert not batch.queries[0].any()
    for sequence in range(50):
        images = image_bytes(batch.inputs[:, sequence])
        assert len(set(images)) == 20
        expected = sorted(classes[image] for image in images)
        assert batch.targets[0][:, sequence].tolist() == expected


@pytest.mark.parametrize("task", [MnistRecall(10), MnistSort(20)], ids=lambda task: task.name)
def test_batches_have_the_shapes_the_task_states(mnist_folder, task: Task):
    batch = task.episodes(SeedStream(0, "train"), 3, 2).batch(0, task.episode_length)
    asked = 1 if task.name == "mnist-recall" else 20
    assert batch.inputs.shape == (task.episode_length, 2, *task.shapes.input)
    assert batch.queries[0].shape == (asked, 2, *task.shapes.queries[0])
    assert batch.targets[0].shape == (asked, 2)
    assert batch.targets[0].dtype == torch.int64
    assert task.shapes.answers == ((10,),)
    assert (batch.inputs.min(), batch.inputs.max()) == (0, 1)
    alone = task.episodes(SeedStream(0, "train"), 4, 1).batch(0, task.episode_length)
    assert torch.equal(alone.inputs, batch.inputs[:, 1:])
    assert torch.equal(alone.targets[0], batch.targets[0][:, 1:])


def test_building_a_task_needs_no_data(empty_cache):
    assert MnistRecall().shapes == MnistSort().shapes
    assert not empty_cache.exists()


def test_missing_files_are_downloaded_once_and_checked(mnist_folder, empty_cache, monkeypatch):
    monkeypatch.setattr(mnist_data, "MIRROR", mnist_folder.as_uri())
    first = load_digits("train")
    assert sorted(path.name for path in empty_cache.iterdir()) == sorted(
        name for name in NAMES if name.startswith("train")
    )
    mnist_data._read.cache_clear()
    monkeypatch.setattr(mnist_data, "MIRROR", "file:///nowhere")
    assert np.array_equal(load_digits("train").images, first.images)


def test_without_network_the_message_says_what_to_do(empty_cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(mnist_data, "MIRROR", "http://127.0.0.1:9/mnist")
    with pytest.raises(UsageError, match="could not download") as caught:
        MnistRecall().episodes(SeedStream(0, "test"), 0, 1)
    assert "MGMEM_DATA" in str(caught.value)
    assert str(empty_cache / "t10k-images-idx3-ubyte.gz") in str(caught.value)


def test_a_wrong_download_is_not_kept(empty_cache, monkeypatch, tmp_path):
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"<html>sign in first</html>")
    monkeypatch.setattr(mnist_data, "MIRROR", tmp_path.as_uri())
    with pytest.raises(UsageError, match="should be 9fb629c4189551a2d022fa330f9573f3"):
        load_digits("test")
    assert not empty_cache.exists()


def test_a_cache_that_can_not_be_written_is_named(mnist_folder, empty_cache, monkeypatch):
    monkeypatch.setattr(mnist_data, "MIRROR", mnist_folder.as_uri())
    empty_cache.parent.mkdir(parents=True)
    empty_cache.write_text("a file where the folder should be")
    with pytest.raises(UsageError, match="could not write"):
        load_digits("test")


def test_a_damaged_file_is_named(mnist_folder, monkeypatch, tmp_path, nothing_loaded):
    monkeypatch.setenv("MGMEM_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    for name in NAMES:
        shutil.copyfile(mnist_folder / name, tmp_path / "mnist" / name)
    damaged = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert len(load_digits("train")) == 55_000
    with pytest.raises(UsageError, match=r"t10k-labels-idx1-ubyte\.gz is damaged"):
        load_digits("test")


def test_a_data_folder_without_the_files_is_named(monkeypatch, tmp_path, nothing_loaded):
    monkeypatch.setenv("MGMEM_DATA", str(tmp_path))
    with pytest.raises(UsageError, match="unset MGMEM_DATA"):
        load_digits("train")


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/mgmem"),
        ("linux", {}, "/home/me/.cache/mgmem"),
        ("darwin", {}, "/home/me/Library/Caches/mgmem"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/mgmem/cache"),
    ],
)
def test_the_cache_is_where_the_platform_wants_it(monkeypatch, platform, variables, expected):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setattr("sys.platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder().as_posix() == expected


@pytest.mark.parametrize("length", [1, 5001])
def test_impossible_lengths_are_refused(length):
    with pytest.raises(UsageError, match=str(length)):
        MnistRecall(length)
