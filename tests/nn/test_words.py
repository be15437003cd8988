"""A memory for words: it answers where it is asked, and reads word by word or all at once."""

import pytest
import torch

from mgmem import ops
from mgmem.errors import UsageError
from mgmem.model import at_times
from mgmem.nn import MultigridMemory
from mgmem.nn.words import WordMemory

WORDS = 11
MESH, TAIL = "0:6 0-1:5 0-2:4 0-3:4", "0-2:6 0-1:6"


def story(time=9, batch=3):
    inputs = torch.zeros(time, batch, WORDS, 1)
    inputs.scatter_(2, torch.randint(WORDS, (time, batch, 1, 1)), 1.0)
    return inputs


def asked(model, inputs, times, **more):
    queries = (torch.zeros(len(times), inputs.shape[1], 0),)
    (answers,), state = model(inputs, queries=queries, times=times, **more)
    return answers, state


@pytest.mark.parametrize("norm", ["none", "causal"])
@pytest.mark.parametrize("embedding", [0, 7])
def test_word_by_word_gives_the_answers_of_the_whole_story(norm, embedding):
    model = WordMemory(WORDS, MESH, TAIL, norm=norm, embedding=embedding).eval()
    inputs = story()
    whole, end = asked(model, inputs, torch.arange(9))
    state, answers = None, []
    with torch.no_grad():
        for word in inputs:
            answer, state = asked(model, word[None], torch.tensor([0]), state=state)
            answers.append(answer)
    torch.testing.assert_close(torch.cat(answers), whole, rtol=1e-4, atol=1e-4)
    for name, tensor in end.tensors().items():
        torch.testing.assert_close(state.tensors()[name], tensor, rtol=1e-4, atol=1e-4)


def test_the_shipped_mesh_streams_a_long_story_to_float32_accuracy():
    from mgmem.experiments import find

    _, model = find("babi").build()
    model.eval()
    inputs = torch.zeros(200, 1, 159, 1)
    inputs.scatter_(2, torch.randint(159, (200, 1, 1, 1)), 1.0)
    places = torch.tensor([20, 99, 199])
    with torch.no_grad():
        whole, _ = asked(model, inputs, places)
        state, said = None, {}
        for step, word in enumerate(inputs):
            answer, state = asked(model, word[None], torch.tensor([0]), state=state)
            said[step] = answer[0]
    for place, expected in zip(places.tolist(), whole, strict=True):
        torch.testing.assert_close(said[place], expected, rtol=1e-4, atol=1e-4)


def test_every_story_is_asked_at_places_of_its_own():
    model = WordMemory(WORDS, MESH, TAIL)
    inputs, times = story(), torch.tensor([[0, 3, 8], [4, 3, 8]])
    everywhere, _ = asked(model, inputs, torch.arange(9))
    answers, _ = asked(model, inputs, times)
    torch.testing.assert_close(answers, at_times(everywhere, times), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm", ["none", "sequence", "causal"])
@pytest.mark.parametrize("backend", ["auto", "scan", "reference"])
def test_padding_changes_nothing_before_a_story_ends(norm, backend):
    torch.manual_seed(1)
    model = WordMemory(WORDS, MESH, TAIL, norm=norm).eval()
    inputs, lengths = story(), torch.tensor([9, 6, 4])
    with ops.backend(backend):
        together, state = asked(model, inputs, (lengths - 1)[None], lengths=lengths)
        for column, length in enumerate(lengths.tolist()):
            alone = inputs[:length, column : column + 1]
            expected, end = asked(model, alone, torch.tensor([length - 1]))
            torch.testing.assert_close(together[0, column], expected[0, 0], rtol=1e-4, atol=1e-4)
            for name, tensor in end.tensors().items():
                kept = state.tensors()[name][column]
                torch.testing.assert_close(kept, tensor[0], rtol=1e-4, atol=1e-4)


def test_without_lengths_what_follows_a_story_does_not_reach_back():
    model = WordMemory(WORDS, MESH, TAIL, norm="causal")
    inputs = story()
    padded = torch.cat([inputs, torch.zeros(5, 3, WORDS, 1)])
    times = torch.tensor([2, 8])
    torch.testing.assert_close(asked(model, padded, times)[0], asked(model, inputs, times)[0])


def test_the_sequence_norm_knows_the_end_and_the_causal_one_does_not():
    inputs = story()
    for norm, same in (("causal", True), ("sequence", False)):
        model = WordMemory(WORDS, MESH, TAIL, norm=norm)
        whole, _ = asked(model, inputs, torch.tensor([3]))
        part, _ = asked(model, inputs[:4], torch.tensor([3]))
        assert torch.allclose(whole, part, atol=1e-5) == same


@pytest.mark.parametrize("norm", ["sequence", "causal"])
def test_norms_of_a_sequence_normalise_what_they_say(norm):
    memory = MultigridMemory(3, "0-1:4", base=(2,), norm=norm, residual=False)
    h, _ = memory(torch.randn(7, 2, 3, 2))
    over = (0, 3) if norm == "sequence" else (2, 3)
    for grid in h[0]:
        variance, mean = torch.var_mean(grid, over, correction=0)
        torch.testing.assert_close(mean, torch.zeros_like(mean), rtol=0, atol=1e-5)
        # A quiet layer's variance is no larger than what keeps the root from zero.
        assert (variance < 1.001).all()
        assert (variance > 0.3).all()


@pytest.mark.parametrize("norm", ["none", "sequence", "causal"])
def test_gradients_agree_between_backends(norm):
    inputs, lengths = story(), torch.tensor([9, 6, 4])
    found = {}
    for backend in ("auto", "reference"):
        torch.manual_seed(2)
        model = WordMemory(WORDS, MESH, TAIL, norm=norm)
        with ops.backend(backend):
            answers, _ = asked(model, inputs, (lengths - 1)[None], lengths=lengths)
            answers.square().mean().backward()
        found[backend] = {name: p.grad for name, p in model.named_parameters()}
    for name, gradient in found["reference"].items():
        torch.testing.assert_close(found["auto"][name], gradient, rtol=1e-3, atol=1e-5)


def test_dropout_is_for_training_only():
    model = WordMemory(WORDS, MESH, TAIL, dropout=0.5)
    inputs, times = story(), torch.tensor([8])
    assert not torch.equal(asked(model, inputs, times)[0], asked(model, inputs, times)[0])
    model.eval()
    assert torch.equal(asked(model, inputs, times)[0], asked(model, inputs, times)[0])


def test_a_tail_that_leaves_a_grid_unread_is_refused():
    with pytest.raises(UsageError, match="does not reach level 3"):
        WordMemory(WORDS, MESH, "0-1:6")
    with pytest.raises(UsageError, match="does not reach level 2"):
        WordMemory(WORDS, MESH, "0-2:6")


def test_norms_and_settings_that_do_not_exist_are_refused():
    with pytest.raises(UsageError, match="norm 'layer': give 'none'"):
        WordMemory(WORDS, MESH, TAIL, norm="layer")
    with pytest.raises(UsageError, match="embedding -1"):
        WordMemory(WORDS, MESH, TAIL, embedding=-1)
    with pytest.raises(UsageError, match="no norm whose statistics"):
        MultigridMemory(3, "0-1:4", base=(2,), norm="sequence", checkpoint_every=2)
    MultigridMemory(3, "0-1:4", base=(2,), norm="causal", checkpoint_every=2)
