"""Two processes are one with the whole batch."""

import torch
from runs import final, torchrun, train


def test_two_processes_end_in_the_weights_of_one_after_8_updates(tmp_path, monkeypatch):
    # Without growth: the training score that decides on it is averaged over processes.
    steady = ["--max-updates", "8", "--reach.updates", "1"]
    one = train(tmp_path / "one", *steady)
    assert one.returncode == 0, one.stderr
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torchrun(tmp_path / "two", 2, *steady)
    expected, given = final(tmp_path / "one"), final(tmp_path / "two")
    for name, tensor in expected["model"].items():
        torch.testing.assert_close(given["model"][name], tensor, rtol=1e-5, atol=1e-5)
    assert len(given["stage"]["states"]) == 2
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("one", "two")]
    assert len(logs[0]) == len(logs[1])  # one of the two processes tells
