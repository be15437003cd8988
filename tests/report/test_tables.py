"""The README's tables come from the records, and stay so."""

from __future__ import annotations

from pathlib import Path

import pytest
from making import make_record

from mgmem.cli import main
from mgmem.errors import UsageError
from mgmem.experiments.records import load_records
from mgmem.report import tables

README = Path(__file__).resolve().parents[2] / "README.md"

RECORDS = [
    make_record("recall-10", [0.4, 0.1, 0.0044], metric="error", hours=0.05),
    make_record("mapping-15-small", [0.3, 0.93, 0.9912]),
    make_record("mapping-9", [0.9, 0.97], seed=1),
    make_record("mapping-9", [0.9, 0.98], seed=0),
]


def test_the_readme_shows_the_recorded_results():
    tables.check_section(README, load_records())


def test_a_row_tells_paper_ours_and_budget():
    row = next(
        line for line in tables.results_table(RECORDS).splitlines() if "mapping-15-small" in line
    )
    assert row == (
        "| `mapping-15-small` | 123,273 | 7,992 | F 0.9983 | F **0.9912** [0.9902, 0.9922] "
        "| 3 | 3,000 | 2.0 |"
    )


def test_rows_follow_the_registry_and_seeds_are_a_mean_and_a_spread():
    lines = tables.results_table(RECORDS).splitlines()[2:]
    names = [line.split("|")[1].strip() for line in lines]
    assert names == ["`mapping-9`", "`mapping-15-small`", "`recall-10`"]
    assert "| - | F **0.9750** ± 0.0071 (2 seeds) |" in lines[0]  # the paper has no such row
    assert "error 0.0030 | error **0.0044** [" in lines[2]
    assert lines[2].endswith("| 0.05 |")


def test_steps_to_marks_of_f_are_reported():
    lines = tables.steps_table(RECORDS).splitlines()
    assert lines[0] == "| environment steps to | F 0.9 | F 0.95 | F 0.99 |"
    assert "| `mapping-15-small` | 2,000 | 3,000 | 3,000 |" in lines
    assert "| `mapping-9` | 1,000 | 2,000 | - |" in lines
    assert tables.steps_table(RECORDS[:1]) == ""


def test_every_row_of_a_table_has_as_many_cells():
    for table in (tables.results_table(RECORDS), tables.steps_table(RECORDS)):
        assert len({line.count("|") for line in table.splitlines()}) == 1


@pytest.fixture
def readme(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(f"# Title\n\n{tables.START}\nold\n{tables.END}\n\nThe end.\n")
    return path


@pytest.fixture
def results(tmp_path):
    for record in RECORDS:
        record.write(tmp_path / "results")
    return tmp_path / "results"


def test_the_command_renews_what_is_between_the_markers_only(readme, results, capsys):
    arguments = ["report", "table", "--readme", str(readme), "--results", str(results)]
    assert main([*arguments, "--check"]) == 2
    assert "mgmem report table" in capsys.readouterr().err
    assert "old" in readme.read_text()
    assert main(arguments) == 0
    text = readme.read_text()
    assert text.startswith(f"# Title\n\n{tables.START}\n| experiment |")
    assert text.endswith(f" |\n{tables.END}\n\nThe end.\n")
    assert "old" not in text
    assert main([*arguments, "--check"]) == 0
    assert main(arguments) == 0
    assert "nothing had changed" in capsys.readouterr().out
    assert readme.read_text() == text


def test_a_changed_record_or_table_fails_the_check(readme, results):
    tables.write_section(readme, load_records(results))
    tables.check_section(readme, load_records(results))
    whole = readme.read_text()
    readme.write_text(whole.replace("0.9912", "0.9999"))
    with pytest.raises(UsageError, match="does not show"):
        tables.check_section(readme, load_records(results))
    readme.write_text(whole)
    make_record("mapping-15-small", [0.5]).write(results)
    with pytest.raises(UsageError, match="does not show"):
        tables.check_section(readme, load_records(results))


def test_no_records_leave_nothing_between_the_markers(readme):
    tables.write_section(readme, [])
    assert f"{tables.START}\n{tables.END}" in readme.read_text()


def test_the_tables_can_be_printed(results, capsys):
    assert main(["report", "table", "--stdout", "--results", str(results)]) == 0
    assert capsys.readouterr().out.strip() == tables.section(load_records(results))


@pytest.mark.parametrize("text", ["", tables.START, f"{tables.END} {tables.START}"])
def test_a_file_without_both_markers_in_order_is_refused(tmp_path, text):
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(UsageError, match="results:start"):
        tables.write_section(path, RECORDS)
    assert path.read_text() == text


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="--readme"):
        tables.check_section(tmp_path / "none.md", [])
