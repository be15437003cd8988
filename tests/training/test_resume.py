"""A run killed at any moment goes on to the same weights as one never killed."""

import os
import random
import signal
import subprocess
import threading
import time
from contextlib import contextmanager

from runs import assert_identical, command, final, train, updates

from mgmem.training.folder import writing

KILLS = int(os.environ.get("MGMEM_TEST_KILLS", "1"))
"""How often the run is killed; more with MGMEM_TEST_KILLS=20."""


def test_a_run_killed_at_random_moments_ends_in_bit_identical_weights(tmp_path):
    length = updates(5 + 15 * KILLS, 2 + 5 * KILLS)
    whole = train(tmp_path / "whole", *length)
    assert whole.returncode == 0, whole.stderr
    moments = random.Random(1)
    killed = 0
    while killed < KILLS:
        often = (*length, "--checkpoint-seconds", "0.05")
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
    last = train(tmp_path / "killed", *length)
    assert last.returncode == 0, last.stderr
    assert_identical(final(tmp_path / "whole"), final(tmp_path / "killed"))


def test_a_run_does_not_go_on_with_other_settings(tmp_path):
    short = (*updates(2), "--max-updates", "3")
    assert train(tmp_path, *short).returncode == 0
    before = {path: path.read_bytes() for path in tmp_path.glob("*.ckpt")}
    other = train(tmp_path, *short, "--reach.rate.peak", "0.5")
    assert other.returncode == 2
    assert "stages.0.rate.peak = 0.005, now it is 0.5" in other.stderr
    assert "Traceback" not in other.stderr
    unused = train(tmp_path, *short, "--no-resume")
    assert unused.returncode == 2
    assert {path: path.read_bytes() for path in tmp_path.glob("*.ckpt")} == before


def test_stages_that_a_run_has_not_come_to_may_change(tmp_path):
    assert train(tmp_path, *updates(2), "--max-updates", "3").returncode == 0
    assert train(tmp_path, *updates(5, 4)).returncode == 0
    at_once = tmp_path / "once"
    assert train(at_once, *updates(5, 4)).returncode == 0
    assert_identical(final(tmp_path), final(at_once))


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


def test_a_folder_has_one_writer(tmp_path):
    with writing(tmp_path):
        second = train(tmp_path, *updates(2))
    assert second.returncode == 2
    assert f"another training (process {os.getpid()})" in second.stderr
    assert not list(tmp_path.glob("checkpoint-*"))


def unheard(number, frame):
    raise AssertionError("nothing listens to SIGTERM")


@contextmanager
def sigterm_after_a_checkpoint(folder):
    """This process is asked to end once a run in it has saved."""
    over = threading.Event()

    def strike():
        while not list(folder.glob("checkpoint-*")):
            if over.wait(0.02):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, unheard)
    striker = threading.Thread(target=strike)
    striker.start()
    try:
        yield
    finally:
        over.set()
        striker.join()
        signal.signal(signal.SIGTERM, before)


def test_a_run_saves_and_ends_cleanly_on_sigterm(tmp_path):
    started = time.monotonic()
    limits = ("--checkpoint-seconds", "0.05", "--max-minutes", "2")  # should it not listen
    with sigterm_after_a_checkpoint(tmp_path):
        ended = train(tmp_path, *updates(100_000), *limits)
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - started < 60
    done = updates_of(tmp_path)
    assert done > 0
    more = ("--max-updates", str(done + 1))
    assert train(tmp_path, *updates(100_000), *more).returncode == 0
    assert updates_of(tmp_path) == done + 1
