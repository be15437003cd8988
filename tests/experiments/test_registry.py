"""What every registered experiment must pass, whatever its task and model."""

import pytest
import torch

from mgmem.errors import UsageError
from mgmem.experiments import EXPERIMENTS, count_parameters, find
from mgmem.model import ask
from mgmem.nn import EncoderDecoder
from mgmem.tasks import SeedStream
from mgmem.training.optim import RMSprop
from mgmem.training.weights import fill, load_weights, save_weights

NAMES = list(EXPERIMENTS)
every = pytest.mark.parametrize("name", NAMES)


def pieces(task, batch=2, steps=3):
    """Random inputs and queries in the task's shapes; no data needed."""
    inputs = torch.rand(steps, batch, *task.shapes.input)
    asked = 2
    times = torch.full((asked,), steps - 1) if task.reads == "after" else torch.tensor([1, 2])
    queries = tuple(torch.rand(asked, batch, *shape) for shape in task.shapes.queries)
    return inputs, {"queries": queries, "times": times}


def asked_nothing(task, batch=2):
    empty = tuple(torch.zeros(0, batch, *shape) for shape in task.shapes.queries)
    return {"queries": empty, "times": torch.zeros(0, dtype=torch.int64)}


def skip_if_it_reads_only_whole_sequences(run):
    if run.name == "babi-sequence":
        pytest.skip("its norm looks over whole sequences: parts of one are others")


@every
def test_counts_round_to_the_papers(name):
    experiment = find(name)
    if experiment.row is None:
        pytest.skip("not a row of the paper's tables")
    with torch.device("meta"):
        _, model = experiment.build()
    # The paper prints two decimals of millions and of thousands.
    assert round(count_parameters(model) / 1e6, 2) == experiment.row.parameters
    # In whole cells: 2,855 of them are 2.86K, while a float of 2.855 would round down.
    assert abs(model.cells - round(1e3 * experiment.row.memory)) <= 5


class Run:
    """An experiment's model, asked once about random inputs: what came out, and what it left."""

    def __init__(self, name):
        torch.manual_seed(0)
        self.name = name
        self.task, self.model = find(name).build()
        self.model.eval()
        self.inputs, self.asked = pieces(self.task)
        self.answers, self.state = self.model(self.inputs, **self.asked)


# One experiment after another, each on one worker, so that each is run once for all that follows.
@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in NAMES],
)
def run(request):
    return Run(request.param)


def test_answers_have_the_tasks_shape_and_gradients_reach_every_parameter(run):
    shapes = [tuple(shape) for shape in run.task.shapes.answers]
    assert [tuple(answer.shape[2:]) for answer in run.answers] == shapes
    assert all(answer.shape[:2] == (2, 2) for answer in run.answers)
    sum(answer.square().sum() for answer in run.answers).backward()
    for parameter, tensor in run.model.named_parameters():
        assert tensor.grad is not None, parameter
        assert torch.isfinite(tensor.grad).all(), parameter


@torch.no_grad()
def test_steps_in_two_calls_are_one_call(run):
    skip_if_it_reads_only_whole_sequences(run)
    task, model, inputs, asked = run.task, run.model, run.inputs, run.asked
    if task.reads != "after":
        first = {"queries": tuple(q[:1] for q in asked["queries"]), "times": asked["times"][:1]}
        rest = {
            "queries": tuple(q[1:] for q in asked["queries"]),
            "times": asked["times"][1:] - 2,
        }
        one, state = model(inputs[:2], **first)
        two, state = model(inputs[2:], state, **rest)
        parts = tuple(torch.cat(pair) for pair in zip(one, two, strict=True))
    else:
        if isinstance(model, EncoderDecoder):
            _, state = model.encoder(model._fitted(inputs[:2]))
        else:
            _, state = model(inputs[:2], **asked_nothing(task))
        parts, state = model(inputs[2:], state, **{**asked, "times": asked["times"] - 2})
    for expected, given in zip(run.answers, parts, strict=True):
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)
    for key, tensor in run.state.tensors().items():
        torch.testing.assert_close(state.tensors()[key], tensor, rtol=1e-4, atol=1e-4)


def test_the_state_survives_as_named_tensors(run):
    tensors = {name: tensor.clone() for name, tensor in run.state.detach().tensors().items()}
    again = run.model.state_from_tensors(tensors)
    assert again.tensors().keys() == run.state.tensors().keys()
    for key, tensor in run.state.tensors().items():
        assert torch.equal(again.tensors()[key], tensor)


@torch.no_grad()
def test_a_reset_is_a_fresh_start(run):
    skip_if_it_reads_only_whole_sequences(run)
    task, model, inputs, asked = run.task, run.model, run.inputs, run.asked
    reset = torch.zeros(len(inputs), 2, dtype=torch.bool)
    reset[2] = True
    if task.reads != "after":
        asked = {
            "queries": tuple(q[1:] for q in asked["queries"]),
            "times": asked["times"][1:],
        }
    used = None if isinstance(model, EncoderDecoder) else run.state.detach()
    one, _ = model(inputs, used, **asked, reset=reset)
    two, _ = model(inputs[2:], **{**asked, "times": asked["times"] - 2})
    for expected, given in zip(two, one, strict=True):
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


def test_weights_are_saved_and_loaded(run, tmp_path):
    name, model = run.name, run.model
    path = tmp_path / "weights.safetensors"
    about = {"experiment": name, "recipe": "fast", "seed": 0}
    checksum = save_weights(path, model.state_dict(), about)
    weights = load_weights(path)
    _, other = find(name).build(seed=2)
    fill(other, weights.tensors, path)
    assert (weights.about, weights.sha256) == (about, checksum)
    for key, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[key], tensor)


@every
def test_the_same_seed_builds_the_same_weights_and_another_does_not(name):
    first, same, other = (find(name).build(seed)[1].state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(tensor, same[key]) for key, tensor in first.items())
    assert any(not torch.equal(tensor, other[key]) for key, tensor in first.items())


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("mnist", "babi"))])
def test_task_and_model_fit_together_on_real_episodes(name):
    task, model = find(name).build()
    episodes = task.episodes(SeedStream(0, "train"), 0, 2)
    if task.reads == "during":
        batch = episodes.batch(0, 4, torch.tensor([1, 3]))
    else:
        batch = episodes.batch(0, episodes.length)
    with torch.no_grad():
        answers, _ = ask(model, batch)
        assert torch.isfinite(task.loss(answers, batch))
    score = task.new_score()
    score.add(answers, batch)
    assert 0 <= score.result()[task.metric.name].value <= 1


def test_options_change_the_task_and_add_a_reader_for_each_kind_of_query():
    task, model = find("mapping-15-small").build(options={"world": "13", "queries": "3,9"})
    assert task.world == 13
    inputs, asked = pieces(task)
    answers, _ = model(inputs, **asked)
    assert [tuple(answer.shape) for answer in answers] == [(2, 2, 1, 24, 24)] * 2


def test_recipes_are_called_fast_and_paper():
    experiment = find("mapping-15-small")
    names = [stage.name for stage in experiment.recipe("fast").stages]
    assert names == ["reach", "learn", "finish"]
    (stage,) = experiment.recipe("paper").stages
    assert (stage.optimizer, stage.batch, stage.rate.peak) == (RMSprop(), 32, 1e-3)
    assert (stage.lesson.chunk, stage.lesson.queries.share) == (20, 1.0)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False)])
def test_a_task_option_that_is_a_switch_is_true_or_false(text, value):
    task, _ = find("mnist-recall").build(options={"distort": text})
    assert task.distort is value
    with pytest.raises(UsageError, match="give true or false"):
        find("mnist-recall").build(options={"distort": "1"})
