"""Two processes are one with the whole batch."""

import pytest
import torch
from runs import final, torchrun, train


@pytest.mark.parametrize(
    "options", [(), ("--optimizer", "rmsprop", "--lr", "0.001")], ids=["adamw", "rmsprop"]
)
def test_two_processes_end_in_the_weights_of_one_after_20_updates(tmp_path, options):
    # Without growth: the training score that decides on it is averaged over processes.
    steady = ("--updates", "20", "--horizon", "0", *options)
    one = train(tmp_path / "one", *steady)
    assert one.returncode == 0, one.stderr
    two = torchrun(tmp_path / "two", 2, *steady)
    assert two.returncode == 0, two.stderr
    expected, given = final(tmp_path / "one"), final(tmp_path / "two")
    for name, tensor in expected["model"].items():
        torch.testing.assert_close(given["model"][name], tensor, rtol=1e-5, atol=1e-5)
    assert len(given["states"]) == 2
