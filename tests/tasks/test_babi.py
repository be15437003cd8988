"""bAbI: finding it, reading it word by word, keeping its splits apart, cutting it into batches."""

import gzip
import io
import shutil
import tarfile
from functools import lru_cache

import numpy as np
import pytest
import torch

from mgmem.errors import UsageError
from mgmem.tasks import SeedStream, babi_data
from mgmem.tasks.babi import LONGEST, Babi
from mgmem.tasks.babi_data import NAMES, encode, load_stories
from mgmem.tasks.babi_text import BLANK, VOCABULARY, check_known, parse_stories, split_words
from mgmem.tasks.story_scores import NUMBERED

pytestmark = pytest.mark.xdist_group("babi")  # read once, by one worker

ARCHIVE = "tasks_1-20_v1-2.tar.gz"

# The first test story of every task, up to its first question, as it stands in the file.
FIRST_QUESTIONS = {
    1: (
        "john travelled to the hallway . mary journeyed to the bathroom . where is john ?",
        "hallway",
    ),
    2: (
        "mary got the milk there . john moved to the bedroom . sandra went back to the kitchen . "
        "mary travelled to the hallway . where is the milk ?",
        "hallway",
    ),
    4: (
        "the hallway is east of the bathroom . the bedroom is west of the bathroom . "
        "what is the bathroom east of ?",
        "bedroom",
    ),
    5: (
        "fred picked up the football there . fred gave the football to jeff . "
        "what did fred give to jeff ?",
        "football",
    ),
    6: ("mary got the milk there . john moved to the bedroom . is john in the kitchen ?", "no"),
    7: (
        "mary got the milk there . john moved to the bedroom . "
        "how many objects is mary carrying ?",
        "one",
    ),
    8: ("mary got the milk there . john moved to the bedroom . what is mary carrying ?", "milk"),
    9: ("john is in the hallway . sandra is in the kitchen . is sandra in the bedroom ?", "no"),
    10: ("mary is in the school . bill is in the kitchen . is bill in the bedroom ?", "no"),
    11: (
        "john journeyed to the hallway . after that he journeyed to the garden . where is john ?",
        "garden",
    ),
    12: (
        "john and mary travelled to the hallway . sandra and mary journeyed to the bedroom . "
        "where is mary ?",
        "bedroom",
    ),
    13: (
        "john and mary went back to the hallway . then they went to the bathroom . where is john ?",
        "bathroom",
    ),
    14: (
        "this morning mary moved to the kitchen . this afternoon mary moved to the cinema . "
        "yesterday bill went to the bedroom . yesterday mary journeyed to the school . "
        "where was mary before the cinema ?",
        "kitchen",
    ),
    15: (
        "wolves are afraid of mice . sheep are afraid of mice . winona is a sheep . "
        "mice are afraid of cats . cats are afraid of wolves . jessica is a mouse . "
        "emily is a cat . gertrude is a wolf . what is emily afraid of ?",
        "wolf",
    ),
    16: (
        "lily is a swan . bernhard is a lion . greg is a swan . bernhard is white . "
        "brian is a lion . lily is gray . julius is a rhino . julius is gray . greg is gray . "
        "what color is brian ?",
        "white",
    ),
    17: (
        "the pink rectangle is to the left of the triangle . the triangle is to the left of the "
        "red square . is the pink rectangle to the right of the red square ?",
        "no",
    ),
    18: (
        "the suitcase fits inside the box . the chocolate fits inside the box . the container is "
        "bigger than the box of chocolates . the container is bigger than the suitcase . the box "
        "is bigger than the box of chocolates . the container is bigger than the chocolate . the "
        "chocolate fits inside the container . the chocolate fits inside the suitcase . the "
        "chocolate fits inside the chest . the suitcase fits inside the container . "
        "does the box fit in the chocolate ?",
        "no",
    ),
    19: (
        "the garden is west of the bathroom . the bedroom is north of the hallway . the office is "
        "south of the hallway . the bathroom is north of the bedroom . the kitchen is east of the "
        "bedroom . how do you go from the bathroom to the hallway ?",
        "s s",
    ),
    20: ("jason is thirsty . where will jason go ?", "kitchen"),
}  # fmt: skip


@pytest.fixture
def babi_folder(monkeypatch, data_folder):
    folder = data_folder / "babi"
    if not (folder / ARCHIVE).is_file():
        pytest.skip(f"no bAbI in {folder}: put {ARCHIVE} there")
    monkeypatch.setenv("MGMEM_DATA", str(data_folder))
    return folder


@pytest.fixture
def nothing_loaded(monkeypatch):
    """Nothing was read before, and what is read here is forgotten."""
    for name in ("_read_archive", "_training", "_test"):
        read = getattr(babi_data, name).__wrapped__
        monkeypatch.setattr(babi_data, name, lru_cache(maxsize=1)(read))


def told(stories, number):
    """A story as text."""
    return " ".join(VOCABULARY[word] for word in stories.of(number)[0])


def all_told(split):
    stories = load_stories(split)
    return [stories.of(number)[0].tobytes() for number in range(len(stories))], stories.task


def test_the_twenty_tasks_have_the_papers_159_words_and_61046_training_stories(babi_folder):
    splits = {split: load_stories(split) for split in ("train", "valid", "test")}
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 159
    used = {word for stories in splits.values() for part in (stories.words, stories.answers)
            for word in np.unique(part).tolist()}  # fmt: skip
    assert used == set(range(159))
    assert len(splits["train"]) + len(splits["valid"]) == 61_046
    assert sum(int(splits[s].lengths.sum()) for s in ("train", "valid")) == 4_938_140
    assert max(int(stories.lengths.max()) for stories in splits.values()) == LONGEST
    assert len(NAMES) == 20


def test_every_task_has_10000_questions_to_learn_from_and_1000_to_be_tested_on(babi_folder):
    def questions(split):
        stories = load_stories(split)
        return np.bincount(stories.task, stories.questions)[1:]

    learned = questions("train") + questions("valid")
    assert learned.tolist() == [10_000 if task != 3 else 1_925 for task in range(1, 21)]
    assert questions("test").tolist() == [1_000] * 20
    assert "task 3" in babi_data.note()
    assert "385" in babi_data.note()


@pytest.mark.parametrize("task", FIRST_QUESTIONS)
def test_the_first_test_story_of_every_task_reads_as_in_its_file(babi_folder, task):
    stories = load_stories("test")
    first = int(np.flatnonzero(stories.task == task)[0])
    words, answer = FIRST_QUESTIONS[task]
    blanks = " ".join([BLANK] * len(answer.split()))
    assert told(stories, first).startswith(f"{words} {blanks}")
    _, own = stories.of(first)
    asked = [VOCABULARY[word] for word in stories.answers[own][stories.question[own] == 0]]
    assert asked == answer.split()
    place = int(stories.places[own][0])
    assert place == len(words.split())


def test_the_first_test_story_of_task_3_is_read_to_its_fifth_question(babi_folder):
    stories = load_stories("test")
    first = int(np.flatnonzero(stories.task == 3)[0])
    text = told(stories, first)
    assert text.startswith("mary got the milk . john moved to the bedroom . daniel journeyed to")
    assert "john discarded the apple there . where was the apple before the bathroom ? -" in text
    assert VOCABULARY[stories.answers[stories.of(first)[1]][0]] == "office"
    assert stories.questions[first] == 5


def test_answers_of_several_words_are_as_many_places_of_one_question(babi_folder):
    stories = load_stories("test")
    lists = int(np.flatnonzero(stories.task == 8)[0])
    _, own = stories.of(lists)
    wanted = [VOCABULARY[word] for word in stories.answers[own]]
    assert wanted == ["milk", "football", "football", "football", "apple", "football", "apple"]
    assert stories.question[own].tolist() == [0, 1, 2, 3, 3, 4, 4]
    assert "what is john carrying ? - - sandra travelled" in told(stories, lists)
    paths = stories.task == 19
    each = np.diff(stories.first_answer)[paths]
    assert set(each.tolist()) == {2}
    others = ~np.isin(stories.task, (8, 19))
    assert (np.diff(stories.first_answer)[others] == stories.questions[others]).all()


def test_a_tenth_of_the_training_stories_is_for_validation_whatever_repeats(babi_folder):
    train, train_task = all_told("train")
    valid, valid_task = all_told("valid")
    assert not set(train) & set(valid)
    shares = np.bincount(valid_task, minlength=21)[1:] / (
        np.bincount(train_task, minlength=21)[1:] + np.bincount(valid_task, minlength=21)[1:]
    )
    assert ((shares > 0.07) & (shares < 0.13)).all()


def test_test_stories_are_not_in_the_training_files_but_where_tasks_have_few_different_ones(
    babi_folder,
):
    learned = set(all_told("train")[0]) | set(all_told("valid")[0])
    told_in_test, task = all_told("test")
    repeated = [int(t) for story, t in zip(told_in_test, task, strict=True) if story in learned]
    # Its own training file holds the same two-sentence stories, drawn again.
    assert set(repeated) <= {4}


@lru_cache(maxsize=1)
def packed(archive):
    """The files of en-10k, as they are packed."""
    with tarfile.open(archive) as old:
        files = [member for member in old if member.isfile() and "en-10k" in member.name]
        return [(member, old.extractfile(member).read()) for member in files]


def rezipped(folder, change):
    """An archive with some files changed: change(name, content) gives content or None."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as new:
        for member, content in packed(folder / ARCHIVE):
            changed = change(member.name, content)
            if changed is not None:
                entry = tarfile.TarInfo(member.name)
                entry.size = len(changed)
                new.addfile(entry, io.BytesIO(changed))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: (folder / ARCHIVE).read_bytes()[:100_000], "no archive of bAbI"),
        (lambda folder: gzip.compress(b"something else"), "no archive of bAbI"),
        (
            lambda folder: rezipped(folder, lambda n, c: None if "qa7_" in n else c),
            "holds no tasks_1-20_v1-2/en-10k/qa7_counting_train.txt",
        ),
        (
            lambda folder: rezipped(folder, lambda n, c: c[:-1] if "qa5_" in n else c),
            "git blob id of its tasks_1-20_v1-2/en-10k/qa5_three-arg-relations_train.txt",
        ),
    ],
    ids=["cut short", "foreign", "a file missing", "a file changed"],
)
def test_a_damaged_or_foreign_archive_is_refused_by_name(
    babi_folder, tmp_path, monkeypatch, nothing_loaded, make, message
):
    (tmp_path / "babi").mkdir()
    (tmp_path / "babi" / ARCHIVE).write_bytes(make(babi_folder))
    monkeypatch.setenv("MGMEM_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=f"damaged: .*{message}.*; replace it"):
        load_stories("train")


def test_an_archive_packed_in_another_way_is_as_good(
    babi_folder, tmp_path, monkeypatch, nothing_loaded
):
    (tmp_path / "babi").mkdir()
    (tmp_path / "babi" / ARCHIVE).write_bytes(rezipped(babi_folder, lambda _, content: content))
    monkeypatch.setenv("MGMEM_DATA", str(tmp_path))
    assert len(load_stories("test")) == 6_267


def test_a_missing_archive_says_where_it_should_be(tmp_path, monkeypatch, nothing_loaded):
    monkeypatch.setenv("MGMEM_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=f"no {tmp_path}/babi/{ARCHIVE}: put the file from https"):
        load_stories("train")


def test_without_a_network_it_says_what_to_do(tmp_path, monkeypatch, nothing_loaded):
    monkeypatch.delenv("MGMEM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(UsageError, match=r"could not download .* put it at .*/babi/"):
        load_stories("train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "file is empty"),
        ("1 Mary went to the office.\n", "story 1 asks nothing"),
        ("1 Where is Mary?\toffice\t1\n1 Mary went to the office.\n", "story 2 asks nothing"),
        ("1 Where is Mary?\n", "line 1: a question without an answer"),
        ("1 Where is Mary?\t\t1\n", "line 1: a question without an answer"),
        ("1 Where is Mary?\toffice,\t1\n", "line 1: a question without an answer"),
        ("2 Where is Mary?\toffice\t1\n", "line 1 begins with '2'"),
        ("1 Mary went to the office.\n3 Where is Mary?\toffice\t1\n", "line 2 begins with '3'"),
        ("Mary went to the office.\n", "line 1 begins with 'Mary'"),
        ("1 \n", "line 1: there are no words"),
        ("1 Zoe went to the moon.\n", "line 1: unknown words 'zoe', 'moon'"),
        ("1 Where is Mary?\tmars\t1\n", "line 1: unknown word 'mars'"),
        ("1 Where is - ?\toffice\t1\n", "line 1: unknown word '-'"),
    ],
)  # fmt: skip
def test_a_broken_file_is_an_error_that_names_the_line(text, message):
    with pytest.raises(UsageError, match=f"file.*{message}|{message}"):
        parse_stories(text, "file")


def test_a_story_becomes_words_and_places_of_answers():
    (story,) = parse_stories(
        "1 Mary got the milk.\n2 What is Mary carrying? \tmilk,apple\t1\n", "s"
    )
    words, places, answers, question = encode(story)
    text = "mary got the milk . what is mary carrying ? - -"
    assert [VOCABULARY[word] for word in words] == text.split()
    assert places == [10, 11]
    assert [VOCABULARY[word] for word in answers] == ["milk", "apple"]
    assert question == [0, 0]
    assert split_words("Where is  Mary?") == ("where", "is", "mary", "?")
    check_known(["mary", "?"])


def test_a_batch_pads_stories_and_asks_each_at_places_of_its_own(babi_folder):
    task = Babi()
    stories = task.stories("test")
    numbers = np.array([int(np.flatnonzero(stories.task == k)[0]) for k in (4, 8)])
    episodes = task.chosen("test", numbers)
    batch = episodes.batch(0, episodes.length)
    length = int(stories.lengths[numbers[1]])
    assert batch.inputs.shape == (length, 2, 159, 1)
    assert batch.lengths.tolist() == stories.lengths[numbers].tolist()
    assert batch.inputs.sum((0, 2, 3)).tolist() == batch.lengths.tolist()
    assert batch.weight.sum(1).tolist() == [[1, 7]]
    assert batch.times[0, 0] == batch.times[6, 0] == batch.lengths[0] - 1
    assert (batch.episode // NUMBERED).tolist() == [4, 8]
    asked = batch.inputs[batch.times[:, 1], 1, :, 0]
    assert (asked.argmax(1) == VOCABULARY.index(BLANK)).all()
    assert VOCABULARY[batch.targets[0][4, 1]] == "apple"


def test_pieces_of_stories_ask_what_the_whole_asks(babi_folder):
    episodes = Babi().episodes(SeedStream(0, "test"), 300, 5)
    whole = episodes.batch(0, episodes.length)
    for column in range(5):
        expected = whole.times[whole.weight[0, :, column] > 0, column]
        found = []
        for start in range(0, episodes.length, 30):
            piece = episodes.batch(start, min(start + 30, episodes.length))
            found += [start + t for t in piece.times[piece.weight[0, :, column] > 0, column]]
        assert found == expected.tolist()


def test_long_stories_are_cut_after_a_whole_answer(babi_folder):
    task = Babi()
    stories = task.stories("train")
    for longest in (10, 20, 53, 100, 800):
        lengths = stories.cut(longest)
        assert (lengths <= np.minimum(longest, stories.lengths)).all()
        whole = stories.lengths <= longest
        assert (lengths[whole] == stories.lengths[whole]).all()
        for number in np.flatnonzero(lengths > 0)[::5_000].tolist():
            words, own = stories.of(number)
            assert words[lengths[number] - 1] == VOCABULARY.index(BLANK)
            kept = stories.places[own] < lengths[number]
            asked = stories.question[own]
            assert not set(asked[kept]) & set(asked[~kept])
    assert (stories.cut(800) > 0).mean() > 0.999
    each = stories.cut(tuple(range(20, 40)))  # its own length for every task
    for task in (1, 5, 20):
        own = stories.task == task
        assert (each[own] == stories.cut(19 + task)[own]).all()


def test_no_story_asks_before_it_has_told_something(babi_folder):
    stories = Babi().stories("train")
    assert stories.soonest.min() == 10
    assert (stories.cut(1_400)[stories.soonest > 20] > 0).all()
    soon = stories.soonest <= 50
    assert (stories.cut(50) > 0)[~soon].mean() == 0


def test_a_story_that_asks_nothing_within_its_words_is_refused(babi_folder):
    task = Babi()
    stories = task.stories("train")
    with pytest.raises(UsageError, match="asks nothing within 10 words"):
        task.chosen("train", np.flatnonzero(stories.cut(10) == 0)[:1], 10)


def test_validation_comes_in_rounds_of_every_task_short_stories_first(babi_folder):
    task = Babi()
    assert task.size("test") == 6_267
    seen, lengths = [], []
    for first in range(0, 950, 50):
        batch = task.episodes(SeedStream(0, "valid"), first, 50).batch(0, 1)
        seen += (batch.episode // NUMBERED).tolist()
    counts = np.bincount(seen, minlength=21)[1:]
    assert (np.delete(counts, 2)[:15] >= 30).all()
    everything = task.episodes(SeedStream(0, "test"), 0, 6_267)
    lengths = everything.lengths[:1_000]
    assert (lengths.diff() >= 0).all()
    with pytest.raises(UsageError, match="has stories 0 to 6266"):
        task.episodes(SeedStream(0, "test"), 6_267, 1)


def test_some_tasks_alone_are_a_task_too(babi_folder):
    task = Babi((1, 16))
    episodes = task.episodes(SeedStream(0, "valid"), 0, 100)
    assert set((episodes.batch(0, 1).episode // NUMBERED).tolist()) == {1, 16}
    with pytest.raises(UsageError, match="give some of 1 to 20"):
        Babi((0, 21))


def test_times_can_not_be_chosen(babi_folder):
    episodes = Babi().episodes(SeedStream(0, "test"), 0, 2)
    with pytest.raises(UsageError, match="leave the times out"):
        episodes.batch(0, 5, torch.tensor([2]))


def test_shipped_words_need_no_data(monkeypatch, tmp_path, nothing_loaded):
    monkeypatch.setenv("MGMEM_DATA", str(tmp_path / "nowhere"))
    shutil.rmtree(tmp_path / "nowhere", ignore_errors=True)
    assert Babi().shapes.input == (159, 1)
    assert Babi().shapes.answers == ((159,),)
