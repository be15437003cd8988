"""Generated command lines: they work or are refused, with exit code 0 or 2 and never a traceback.

A few dozen here; ``MGMEM_COMMANDS=1000`` by hand.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgmem.cli import main

COUNT = int(os.environ.get("MGMEM_COMMANDS", "30"))

VALUES = st.sampled_from(
    ["", "-1", "0", "1", "2", "3", "0.5", "nan", "inf", "-inf", "1e400", "9" * 20, "9" * 5000,
     "x" * 5000, "\udcff", "../x", "[/x]", "[bold]", "None", "true", "1,2", "é", "0:1",
     "0-1:4 0-2:8", "0-20000:4", "0:1 " * 3000, "7-3:1", "0:0", "mapping-9",
     "recall-10", "fast", "paper", ".",
     "/dev/null", "a/b/c", "--help", "--", "-", "world=9", "world=-3", "fov=99", "cpu", "cuda"]
)  # fmt: skip

OPTIONS = {
    "list": [],
    "describe": ["--input", "--base", "--tail", "--kernel", "--peephole", "--norm"],
    "evaluate": ["--results", "--device", "--amp", "--half", "--by", "--task", "--record"],
    "train": [
        *("--task", "--recipe", "--seed", "--until", "--device", "--amp", "--threads"),
        *("--max-minutes", "--checkpoint-seconds", "--no-resume", "--start.init"),
        *(f"--{stage}.{name}" for stage in ("reach", "learn") for name in (
            "batch", "clip", "average", "rate.peak", "rate.final", "rate.warmup", "rate.shape",
            "lesson.chunk", "lesson.groups", "lesson.queries.share", "lesson.queries.limit",
            "lesson.queries.since", "lesson.growth.start", "lesson.growth.factor", "hands-on",
            "optimizer.beta2", "optimizer.weight-decay", "optimizer.gate-rate",
        )),
    ],
    "bench step": ["--batch", "--out", "--names"],
    "bench scaling": ["--figure", "--out"],
    "bench train": ["--batch", "--backends"],
    "report table": ["--readme", "--results", "--check"],
    "report curves": ["--results"],
    "export": ["--batch", "--reader"],
    "show": ["--episode", "--steps", "--format"],
    "nonsense": ["--batch"],
}  # fmt: skip

# What keeps a command that is right short comes last, so that it counts.
ALWAYS = {
    "evaluate": ["--episodes", "2", "--quiet"],
    "train": ["--max-updates", "1", "--folder", "run", "--reach.validation.episodes", "2"],
    "bench step": ["--repeats", "1"],
    "bench scaling": ["--repeats", "1"],
    "bench train": ["--repeats", "0"],
    "report table": ["--stdout"],
    "report curves": ["--out", "/dev/null/x"],
    "export": ["--out", "/dev/null/x.pt2"],
    "show": ["--out", "/dev/null/x", "--no-animation"],
}

FIRST = {
    "train": ["mapping-9", "mapping-9", "recall-10", "nope"],
    "evaluate": ["mapping-9", "recall-10", "nope", "."],
    "describe": ["0-1:4", "0-1:4 0-2:8", "mapping-9"],
    "export": ["mapping-9", "recall-10-dnc"],
    "show": ["recall-10", "nope"],
    "bench step": ["mapping-9"],
    "bench train": ["mapping-9"],
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from([*OPTIONS, "train", "train", "train", "describe"]))
    words = command.split()
    first = FIRST.get(command, [])
    words.append(draw(st.one_of(*[st.sampled_from(first)] * 4, VALUES) if first else VALUES))
    for option in draw(st.lists(st.sampled_from(OPTIONS[command] or ["--x"]), max_size=3)):
        words.append(option)
        words += draw(st.lists(VALUES, min_size=draw(st.sampled_from([0, 1, 1, 1])), max_size=1))
    if command == "bench scaling":
        words += ["--cells", draw(VALUES), "--dnc-cells", draw(VALUES)]
    return words + ALWAYS.get(command, [])


def ended(words: list[str]) -> int | str | None:
    """The exit code of a command, be it ours or the parser's."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


@pytest.mark.usefixtures("two_gigabytes")
def test_only_exits_0_and_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    @settings(max_examples=COUNT, suppress_health_check=list(HealthCheck))
    @given(command_lines())
    def check(words: list[str]) -> None:
        code = ended(words)
        error = capsys.readouterr().err
        assert code in (0, 2), (words, code)
        assert code == 0 or error, words
        assert "Traceback" not in error, words

    check()


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "scaling", "--cells", "0"],
        ["bench", "step", "--batch", "-1"],
        ["bench", "step", "--batch", "9" * 20],
        ["train", "mapping-9", "--learn.optimizer.beta2", "2"],
        ["train", "mapping-9", "--learn.optimizer.weight-decay", "nan"],
        ["train", "mapping-9", "--folder", "x" * 5000],
        ["evaluate", "x" * 5000],
        ["evaluate", "\udcff/\udcfe"],
        ["describe", "0-20000:4"],
        ["describe", "0:" + "9" * 5000],
        ["describe", "0:1", "--kernel", "9" * 4001],
    ],
    ids=lambda words: " ".join(words)[:40].encode(errors="replace").decode(),
)
def test_what_once_was_a_traceback(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ended(words) == 2
    assert capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
