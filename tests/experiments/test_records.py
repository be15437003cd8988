"""Recorded results: what stands in results/ can be run again and is what is shipped."""

import json
import shlex

import pytest

from mgmem.cli.train import parse
from mgmem.errors import UsageError
from mgmem.experiments import find
from mgmem.experiments.records import load_records, read_record, shipped_checksum
from mgmem.training.recipe import flattened

RECORDS = load_records()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.experiment)
def test_a_record_s_one_command_gives_the_recipe_it_was_trained_with(record):
    if record.schema == 1:
        assert record.commands  # of the time before stages: kept as they were
        return
    for place, command in enumerate(record.commands):
        program, verb, *words = shlex.split(command)
        options, recipe = parse(words)
        assert (program, verb, options.name) == ("mgmem", "train", record.experiment)
        assert (options.recipe, options.seed) == (record.recipe, record.seed)
        assert options.go_on is (place > 0)  # all but the first go on where the one before ended
    # Setting by setting: what is off now (0, None, an empty list) may not have existed then.
    now, then = dict(flattened(recipe.plain())), dict(flattened(record.settings))
    assert {k: v for k, v in now.items() if v or k in then} == then


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.experiment)
def test_a_record_is_of_fresh_episodes_and_has_an_interval(record):
    assert record.episodes >= 5000
    metric = find(record.experiment).task().metric
    assert (record.metric, record.higher_is_better) == (metric.name, metric.higher_is_better)
    estimate = record.estimate()
    assert estimate.low <= estimate.value <= estimate.high
    assert record.curve


def test_every_experiment_that_was_recorded_ships_weights_of_one_of_its_records():
    for name in {record.experiment for record in RECORDS}:
        assert shipped_checksum(name) in {r.weights for r in RECORDS if r.experiment == name}


@pytest.mark.parametrize(
    "damage",
    [
        {"date": "[/x]"},
        {"metrics": {"g": {"value": 1.0, "low": 1.0, "high": 1.0}}},
        {"seed": "0/../../../x"},
        {"recipe": "../x"},
        {"curve": [{"update": 3}]},
        {"seconds": None},
        {"updates": True},
        {"commands": [1]},
        {"more": 1},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_a_bad_record_is_named_and_passed_over(tmp_path, damage):
    RECORDS[0].write(tmp_path)
    path = RECORDS[1].write(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(UsageError, match="is not a record"):
        read_record(path)
    with pytest.warns(UserWarning, match="passed over"):
        assert load_records(tmp_path) == [RECORDS[0]]
