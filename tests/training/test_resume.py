"""A run killed at any moment goes on to the same weights as one never killed."""

import os
import random
import signal
import subprocess
import time

from runs import assert_identical, command, final, train, updates

KILLS = int(os.environ.get("MGMEM_TEST_KILLS", "1"))
"""How often the run is killed; more with MGMEM_TEST_KILLS=20."""


def test_a_run_killed_at_random_moments_ends_in_bit_identical_weights(tmp_path):
    often = (*updates(10 + 15 * KILLS, 5 + 5 * KILLS), "--checkpoint-seconds", "0.05")
    whole = train(tmp_path / "whole", *often)
    assert whole.returncode == 0, whole.stderr
    moments = random.Random(1)
    killed = 0
    while killed < KILLS:
        run = subprocess.Popen(command(tmp_path / "killed", *often))
        deadline = time.monotonic() + 300
        before = set((tmp_path / "killed").glob("checkpoint-*"))
        # Let it get past its start and save at least once more, then strike at any moment.
        while set((tmp_path / "killed").glob("checkpoint-*")) <= before:
            assert time.monotonic() < deadline
            assert run.poll() is None, "the run ended before it was killed often enough"
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.3))
        run.send_signal(signal.SIGKILL)
        run.wait()
        killed += 1
    # What was killed leaves no lock: this one may write.
    last = train(tmp_path / "killed", *often)
    assert last.returncode == 0, last.stderr
    assert_identical(final(tmp_path / "whole"), final(tmp_path / "killed"))


def test_a_run_does_not_go_on_with_other_settings(tmp_path):
    short = (*updates(2), "--max-updates", "3")
    assert train(tmp_path, *short).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.glob("*.ckpt")}
    other = train(tmp_path, *short, "--learn.rate.peak", "0.5")
    assert other.returncode == 2
    assert "stages.1.rate.peak = 0.005, now it is 0.5" in other.stderr
    assert "Traceback" not in other.stderr
    unused = train(tmp_path, *short, "--no-resume")
    assert unused.returncode == 2
    assert {path: path.read_bytes() for path in tmp_path.glob("*.ckpt")} == before


def test_a_damaged_newest_checkpoint_is_passed_over_aloud(tmp_path):
    assert train(tmp_path, *updates(2), "--max-updates", "3").returncode == 0
    assert train(tmp_path, *updates(2), "--max-updates", "4").returncode == 0
    path = tmp_path / "checkpoint-4.ckpt"
    path.write_bytes(path.read_bytes()[:-100])
    run = train(tmp_path, *updates(2), "--no-quiet")
    assert run.returncode == 0, run.stderr
    said = run.stderr.replace("\n", "")
    assert "damaged" in said
    assert "resumed" in said
    assert "at update 3" in said


def updates_of(folder):
    """Updates done so far, in all stages."""
    content = final(folder)
    return content["progress"]["updates"] + content["stage"]["update"]


def test_a_folder_has_one_writer_which_saves_and_ends_cleanly_on_sigterm(tmp_path):
    first = subprocess.Popen(command(tmp_path, *updates(100_000), "--checkpoint-seconds", "0.05"))
    while not list(tmp_path.glob("checkpoint-*")):
        assert first.poll() is None
        time.sleep(0.02)
    second = train(tmp_path, *updates(100_000))
    assert second.returncode == 2
    assert f"another training (process {first.pid})" in second.stderr
    first.terminate()
    assert first.wait(timeout=60) == 0
    done = updates_of(tmp_path)
    assert done > 0
    more = ("--max-updates", str(done + 1))
    assert train(tmp_path, *updates(100_000), *more).returncode == 0
    assert updates_of(tmp_path) == done + 1
