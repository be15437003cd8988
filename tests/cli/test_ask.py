"""``mgmem ask``: stories typed, pasted or piped; answers with the likeliest words."""

import io

import pytest
import torch

from mgmem.cli import main
from mgmem.cli.ask import Listener, sentences
from mgmem.experiments import find
from mgmem.tasks.babi import one_hot
from mgmem.tasks.babi_text import BLANK, NUMBERS
from mgmem.training.weights import save_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of an untrained memory: what is said is chance, how it is said is not."""
    path = tmp_path_factory.mktemp("weights") / "babi.safetensors"
    _, model = find("babi").build(seed=0)
    save_weights(path, model.state_dict(), {"experiment": "babi", "recipe": "fast", "seed": 0})
    return path


def said(capsys):
    return capsys.readouterr().out.splitlines()


def test_an_answer_comes_with_the_five_likeliest_words(weights, capsys):
    story = "Mary went to the office. John went to the park. Where is Mary?"
    assert main(["ask", story, "--what", str(weights)]) == 0
    first, header, *rows = said(capsys)
    assert first.startswith("where is mary? ")
    assert header.split() == ["word", "probability"]
    assert len(rows) == 5
    chances = [float(row.split()[1]) for row in rows]
    assert chances == sorted(chances, reverse=True)
    assert first.split()[-1] == rows[0].split()[0]


def test_every_question_of_a_pasted_story_is_answered(weights, capsys, monkeypatch):
    pasted = (
        "1 Mary went to the office.\n2 Where is Mary? \toffice\t1\n"
        "3 John went to the park\n4 How do you go from the park to the office?\ts,e\t1\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(pasted))
    assert main(["ask", "--what", str(weights), "--words", "2", "--likeliest", "3"]) == 0
    lines = said(capsys)
    assert len(lines) == 10
    assert lines[0].startswith("where is mary? ")
    assert lines[5].startswith("how do you go from the park to the office? ")
    assert len(lines[5].split()[-1].split(",")) == 2
    assert lines[6].split() == ["word", "1", "probability", "word", "2", "probability"]


def test_sentence_by_sentence_is_the_story_at_once():
    _, model = find("babi").build(seed=0)
    model.eval()
    story = "Mary went to the office. John went to the park. Where is Mary?"
    parts = list(sentences(story))
    assert parts[0] == ("mary", "went", "to", "the", "office", ".")
    listener = Listener(model)
    for part in parts[:-1]:
        listener.hear(part)
    answer = listener.answer(parts[-1])
    words = torch.tensor([NUMBERS[word] for part in parts for word in part] + [NUMBERS[BLANK]])
    queries, times = (torch.zeros(1, 1, 0),), torch.tensor([len(words) - 1])
    with torch.no_grad():
        (whole,), _ = model(one_hot(words).unsqueeze(1), queries=queries, times=times)
    torch.testing.assert_close(answer, whole[:, 0].softmax(1), rtol=1e-4, atol=1e-4)
    listener.forget()
    other = listener.answer(parts[-1])
    assert not torch.allclose(other, answer)


@pytest.mark.parametrize(
    ("story", "message"),
    [
        ("Mary went to the office.", "a story without a question: end with one"),
        ("", "an empty story: end with one"),
        ("Zoe went to the moon. Where is Zoe?", "unknown words 'zoe', 'moon'"),
    ],
)
def test_what_can_not_be_answered_is_said_before_anything_is_loaded(
    story, message, capsys, monkeypatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO(story))
    assert main(["ask", "--what", "nowhere"]) == 2
    assert message in capsys.readouterr().err


def test_a_conversation_goes_on_until_it_ends(weights, capsys, monkeypatch):
    lines = iter(["Mary went to the office", "Where is Zoe?", "Where is Mary?", ""])

    def typed(prompt):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", typed)
    assert main(["ask", "--what", str(weights)]) == 0
    out = capsys.readouterr().out
    assert "unknown word 'zoe'" in out
    assert "where is mary? " in out
    assert "another story" in out


def test_other_memories_do_not_read(capsys):
    assert main(["ask", "Where is Mary?", "--what", "recall-10"]) == 2
    assert "recall-10 reads no words" in capsys.readouterr().err


def test_numbers_out_of_range_are_refused(capsys):
    assert main(["ask", "Where is Mary?", "--words", "0"]) == 2
    assert "--words 0" in capsys.readouterr().err
