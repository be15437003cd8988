"""Recorded results: what stands in results/ can be run again and is what is shipped."""

import shlex
from pathlib import Path

import pytest

from mgmem.cli.train import _parse
from mgmem.experiments import find
from mgmem.experiments.records import load_records, shipped_weights
from mgmem.training.recipe import Recipe

ROOT = Path(__file__).resolve().parents[2]
RECORDS = load_records()


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.experiment)
def test_a_record_s_command_gives_the_settings_it_was_trained_with(record):
    program, verb, *words = shlex.split(record.command)
    options = _parse(words)
    assert (program, verb, options.name) == ("mgmem", "train", record.experiment)
    assert (options.recipe, options.seed) == (record.recipe, record.seed)
    # What a run did not know yet had its default's effect.
    assert options.settings == Recipe(**record.settings)
    for earlier in record.earlier:
        program, verb, *words = shlex.split(earlier)
        if program == "python":
            assert (ROOT / verb).is_relative_to(ROOT / "examples")
            assert (ROOT / verb).is_file()
        else:
            assert (program, verb, _parse(words).name) == ("mgmem", "train", record.experiment)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.experiment)
def test_a_record_is_of_fresh_episodes_and_has_an_interval(record):
    assert record.episodes >= 5000
    key = find(record.experiment).task().new_score().key
    estimate = record.estimate(key)
    assert estimate.low <= estimate.value <= estimate.high
    assert record.curve


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.experiment)
def test_a_record_has_its_weights_in_the_package(record):
    assert shipped_weights(record.experiment) is not None
