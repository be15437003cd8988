"""Table 2: algorithmic tasks."""

from __future__ import annotations

from collections.abc import Callable

from mgmem.experiments import baselines as base
from mgmem.experiments import multigrid as mg
from mgmem.experiments import recipes_sequences as recipes
from mgmem.experiments.experiment import Experiment, PaperRow
from mgmem.experiments.multigrid import Builder
from mgmem.tasks import AssociativeRecall, MnistRecall, MnistSort, PrioritySort, Task

MULTIGRID = [
    Experiment(
        "sort-20",
        "20 vectors of 9 bits, in order of priority",
        "multigrid",
        lambda: PrioritySort(20),
        mg.encoder_decoder(mg.SMALL, mg.SORT_TAIL, 2),
        recipes.FAST_SORT,
        recipes.paper_sequence(20),
        PaperRow(2, 0.12, 7.99, {"error": 0.0043}),
    ),
    # The paper does not say how its priorities were drawn; evenly spaced ones are the easy case.
    Experiment(
        "sort-20-even",
        "20 vectors of 9 bits, in order of evenly spaced priorities",
        "multigrid",
        lambda: PrioritySort(20, spread=4.0, priorities="even"),
        mg.encoder_decoder(mg.SMALL, mg.SORT_TAIL, 2),
        recipes.EVEN_SORT,
        recipes.paper_sequence(20),
    ),
    Experiment(
        "sort-50",
        "50 vectors of 9 bits, in order of priority",
        "multigrid",
        lambda: PrioritySort(50),
        mg.encoder_decoder(mg.LARGE, mg.LARGE_VECTOR_TAIL, 2),
        recipes.FAST_SORT,
        recipes.paper_sequence(50),
        PaperRow(2, 0.89, 76.97, {"error": 0.0067}),
    ),
    Experiment(
        "recall-10",
        "10 vectors of 9 bits, then one again: which followed it?",
        "multigrid",
        lambda: AssociativeRecall(10),
        mg.reader_writer(mg.SMALL, mg.SMALL_VECTOR_TAIL, input=1),
        recipes.FAST_SEQUENCE,
        recipes.paper_sequence(10),
        PaperRow(2, 0.13, 7.99, {"error": 0.0030}),
    ),
    Experiment(
        "recall-20",
        "20 vectors of 9 bits, then one again: which followed it?",
        "multigrid",
        lambda: AssociativeRecall(20),
        mg.reader_writer(mg.LARGE, mg.LARGE_VECTOR_TAIL, input=1),
        recipes.LARGE_RECALL,
        recipes.paper_sequence(20),
        PaperRow(2, 0.65, 76.97, {"error": 0.0056}),
    ),
    Experiment(
        "mnist-recall",
        "10 digits, then one again: the class of the one that followed",
        "multigrid",
        lambda: MnistRecall(10, distort=True),
        mg.digit_reader(),
        recipes.FAST_DIGITS,
        recipes.paper_sequence(10),
        PaperRow(2, 0.21, 7.56, {"error": 0.0736}),
    ),
    Experiment(
        "mnist-sort",
        "20 digits: their classes in increasing order",
        "multigrid",
        lambda: MnistSort(20, distort=True),
        mg.digit_sorter(),
        recipes.FAST_DIGITS,
        recipes.paper_sequence(20),
        PaperRow(2, 0.29, 7.56, {"error": 0.0864}),
    ),
]


def _baseline(
    name: str,
    title: str,
    system: str,
    task: Callable[[], Task],
    model: Builder,
    row: PaperRow | None = None,
) -> Experiment:
    fast = recipes.FAST_SEQUENCE_FLAT
    if isinstance(task(), MnistRecall | MnistSort):
        fast = recipes.FAST_DIGITS_FLAT
    elif isinstance(task(), PrioritySort):
        fast = recipes.FAST_SORT_FLAT
    paper = recipes.paper_sequence(task().episode_length, rate=1e-4)
    return Experiment(name, title, system, task, model, fast, paper, row)


BASELINES = [
    _baseline(
        "sort-20-dnc",
        "20 vectors in order of priority, DNC",
        "dnc",
        lambda: PrioritySort(20),
        base.dnc(372),
        PaperRow(2, 0.76, 8.00, {"error": 0.0039}),
    ),
    _baseline(
        "recall-10-dnc",
        "10 vectors, which followed? DNC",
        "dnc",
        lambda: AssociativeRecall(10),
        base.dnc(380),
        PaperRow(2, 0.76, 8.00, {"error": 0.0044}),
    ),
    _baseline(
        "recall-10-lstm",
        "10 vectors, which followed? LSTM",
        "lstm",
        lambda: AssociativeRecall(10),
        base.plain_lstm(170),
    ),
    _baseline(
        "recall-10-transformer",
        "10 vectors, which followed? causal transformer",
        "transformer",
        lambda: AssociativeRecall(10),
        base.transformer(72, 2),
    ),
    _baseline(
        "mnist-sort-dnc",
        "20 digits in increasing order, DNC",
        "dnc",
        lambda: MnistSort(20, distort=True),
        base.dnc(145),
        PaperRow(2, 1.05, 8.00, {"error": 0.1659}),
    ),
    _baseline(
        "mnist-recall-dnc",
        "10 digits, class of the next, DNC",
        "dnc",
        lambda: MnistRecall(10, distort=True),
        base.dnc(125),
        PaperRow(2, 0.90, 8.00, {"error": 0.2016}),
    ),
]
