"""Losses and scores, held against counting by hand and against simulation."""

import math

import numpy as np
import pytest
import torch

from mgmem.errors import UsageError
from mgmem.tasks import (
    AssociativeRecall,
    Batch,
    BitErrorScore,
    ClassErrorScore,
    Mapping,
    Metric,
    MnistSort,
    PixelScore,
    PrioritySort,
)
from mgmem.tasks.scores import ratio_estimate


def batch_of(*targets, weight=None, episode=None):
    """A batch of which only the targets matter."""
    return Batch(
        inputs=torch.zeros(1, targets[0].shape[1], 1, 1, 1),
        reset=None,
        times=torch.zeros(len(targets[0]), dtype=torch.int64),
        queries=(),
        targets=targets,
        weight=weight,
        episode=episode,
    )


def random_bits(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, generator=generator) < 0.3).float()


def random_logits(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_precision_recall_and_f_pool_all_counted_pixels():
    targets = random_bits(4, 3, 1, 5, 5), random_bits(4, 3, 1, 5, 5, seed=2)
    answers = random_logits(4, 3, 1, 5, 5), random_logits(4, 3, 1, 5, 5, seed=3)
    weight = torch.ones(2, 4, 3)
    weight[1, :2] = 0
    hits, alarms, misses = np.zeros((3, 2))
    for reader in range(2):
        for q in range(4):
            for b in range(3):
                if reader == 1 and q < 2:
                    continue
                for said, true in zip(
                    torch.sigmoid(answers[reader][q, b]).flatten().tolist(),
                    targets[reader][q, b].flatten().tolist(),
                    strict=True,
                ):
                    hits[reader] += said >= 0.5 and true == 1
                    alarms[reader] += said >= 0.5 and true == 0
                    misses[reader] += said < 0.5 and true == 1
    score = PixelScore(("3x3", "9x9"))
    score.add(answers, batch_of(*targets, weight=weight))
    result = score.result()
    for suffix, h, a, m in [
        ("", hits.sum(), alarms.sum(), misses.sum()),
        ("/3x3", hits[0], alarms[0], misses[0]),
        ("/9x9", hits[1], alarms[1], misses[1]),
    ]:
        precision, recall = h / (h + a), h / (h + m)
        assert result["precision" + suffix].value == pytest.approx(precision)
        assert result["recall" + suffix].value == pytest.approx(recall)
        harmonic = 2 * precision * recall / (precision + recall)
        assert result["f" + suffix].value == pytest.approx(harmonic)


def test_one_reader_needs_no_names():
    score = Mapping(9).new_score()
    score.add((random_logits(2, 2, 1, 4, 4),), batch_of(random_bits(2, 2, 1, 4, 4)))
    assert set(score.result()) == {"precision", "recall", "f"}
    assert Mapping(9).metric == Metric("f", higher_is_better=True)


def test_bit_errors_per_element_and_per_item():
    target = random_bits(6, 4, 1, 3, 3)
    answer = (target * 2 - 1).clone()
    answer[0, 0, 0, 0, 0] *= -1
    answer[0, 0, 0, 2, 1] *= -1
    answer[3, 2, 0, 1, 1] *= -1
    score = PrioritySort(6).new_score()
    assert isinstance(score, BitErrorScore)
    score.add((answer,), batch_of(target))
    result = score.result()
    assert result["error"].value == 3 / (24 * 9)
    assert result["item_error"].value == 2 / 24
    assert PrioritySort(6).metric == Metric("error", higher_is_better=False)


def test_class_errors():
    target = torch.arange(12).reshape(3, 4) % 10
    answer = torch.nn.functional.one_hot(target, 10).float()
    answer[2, 1] = answer[2, 1].roll(1)
    score = MnistSort(3).new_score()
    assert isinstance(score, ClassErrorScore)
    score.add((answer,), batch_of(target))
    assert score.result()["error"].value == 1 / 12
    assert score.result()["item_error"].value == 1 / 12


@pytest.mark.parametrize("make", [lambda: PixelScore(("3x3",)), BitErrorScore])
def test_an_episode_is_one_unit_in_however_many_pieces_it_comes(make):
    target, answer = random_bits(8, 5, 1, 4, 4), random_logits(8, 5, 1, 4, 4)
    numbers = torch.arange(100, 105)
    whole, pieces, strangers = make(), make(), make()
    whole.add((answer,), batch_of(target, episode=numbers))
    for part in (slice(0, 3), slice(3, 8)):
        pieces.add((answer[part],), batch_of(target[part], episode=numbers))
        strangers.add((answer[part],), batch_of(target[part]))
    assert pieces.result() == whole.result()
    assert strangers.result() != whole.result()  # ten sequences, not five


def test_a_score_of_nothing_is_refused():
    with pytest.raises(UsageError, match="nothing"):
        PixelScore(("3x3",)).result()


def test_intervals_stay_open_when_nothing_is_known_and_honest_when_nothing_went_wrong():
    nothing = ratio_estimate(np.zeros(5, int), np.zeros(5, int))
    assert (nothing.low, nothing.high) == (0, 1)
    perfect = ratio_estimate(np.full(5000, 7), np.full(5000, 7))
    assert perfect.value == perfect.high == 1
    assert 1 - 5 / 5000 < perfect.low < 1 - 3 / 5000
    single = ratio_estimate(np.array([70]), np.array([100]))
    assert single.high - single.low > 0.7


def test_intervals_of_independent_trials_are_those_of_wilson():
    wrong = np.zeros(400, int)
    wrong[:60] = 1
    estimate = ratio_estimate(wrong, np.ones(400, int))
    n, p, z = 399, 0.15, 1.96
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert estimate.low == pytest.approx(centre - half, abs=1e-5)
    assert estimate.high == pytest.approx(centre + half, abs=1e-5)


def test_intervals_hold_the_truth_19_times_in_20_although_episodes_vary():
    random = np.random.default_rng(0)
    held = 0
    for _ in range(1000):
        quality = random.beta(8, 2, 100)  # episodes differ far more than pixels within them do
        sizes = random.integers(50, 150, 100)
        estimate = ratio_estimate(random.binomial(sizes, quality), sizes)
        held += estimate.low <= 0.8 <= estimate.high
    assert 925 <= held <= 975


def test_bits_loss_sums_over_pixels_and_averages_over_counted_queries():
    targets = random_bits(4, 3, 1, 5, 5), random_bits(4, 3, 1, 5, 5, seed=2)
    answers = random_logits(4, 3, 1, 5, 5), random_logits(4, 3, 1, 5, 5, seed=3)
    weight = torch.ones(2, 4, 3)
    weight[1, :2] = 0
    total, counted = 0.0, 0
    for reader in range(2):
        for q in range(4):
            for b in range(3):
                if weight[reader, q, b] == 0:
                    continue
                counted += 1
                p = torch.sigmoid(answers[reader][q, b].double())
                y = targets[reader][q, b].double()
                total -= (y * p.log() + (1 - y) * (1 - p).log()).sum().item()
    loss = Mapping(15, queries=(3, 9)).loss(answers, batch_of(*targets, weight=weight))
    assert counted == 18
    assert loss.item() == pytest.approx(total / counted, rel=1e-5)


def test_loss_without_weights_is_the_mean_over_all_queries():
    target, answer = random_bits(1, 7, 1, 3, 3), random_logits(1, 7, 1, 3, 3)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(answer, target) * 9
    assert AssociativeRecall(10).loss((answer,), batch_of(target)).item() == pytest.approx(
        expected.item(), rel=1e-5
    )


def test_class_loss_is_softmax_cross_entropy_per_answer():
    target = torch.arange(12).reshape(3, 4) % 10
    answer = random_logits(3, 4, 10)
    expected = -answer.double().log_softmax(2).gather(2, target[..., None]).mean()
    loss = MnistSort(3).loss((answer,), batch_of(target))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_loss_is_zero_with_zero_gradients_when_nothing_counts():
    answer = random_logits(2, 3, 1, 4, 4).requires_grad_()
    batch = batch_of(random_bits(2, 3, 1, 4, 4), weight=torch.zeros(1, 2, 3))
    loss = Mapping(9).loss((answer,), batch)
    loss.backward()
    assert loss.item() == 0
    assert answer.grad is not None
    assert not answer.grad.any()


def test_a_batch_moves_with_all_its_parts():
    batch = batch_of(random_bits(2, 3, 1, 4, 4), weight=torch.ones(1, 2, 3)).to("meta")
    parts = (batch.inputs, batch.times, batch.targets[0], batch.weight)
    assert all(part is not None and part.is_meta for part in parts)
