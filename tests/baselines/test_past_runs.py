"""Since when a test is slower: the last run here in which it passed, and what changed since then."""

import pytest

from pytest_roofline.baselines.past_runs import MOST_RUNS, PastRuns
from pytest_roofline.core.verdicts import LastPass
from pytest_roofline.hardware import key_of

NOW = "2026-11-28T03:00:00Z"
OLD, NEW = "550.54", "570.86"


@pytest.fixture
def last_pass(make, tmp_path):
    """Write runs of one test, each of a day, a driver and a verdict; return the last of them in which it passed."""
    measurement = make.measurement()

    def written(*runs, product="NVIDIA H200", before=NOW, now=NEW):
        for day, driver, word in runs:
            make.save(
                tmp_path / "runs" / f"day-{day}.jsonl",
                measurement,
                make.verdict(measurement, word),
                make.outcome(measurement),
                make.footer(),
                ended=False,
                started=f"2026-11-{day}T03:00:00Z",
                driver=driver,
                product=product,
            )
        past = PastRuns(tmp_path, key_of(make.environment()), before)
        facts = make.environment(driver=now).everything()
        return past.last_pass(measurement.test_id, measurement.key.name, facts)

    return written


def test_the_newest_run_in_which_a_test_passed_is_found_with_what_changed_since(last_pass):
    runs = ("24", OLD, "PASSED"), ("26", OLD, "PASSED"), ("27", NEW, "REGRESSED")
    assert last_pass(*runs) == LastPass("day-26", "2026-11-26", (f"driver {OLD} → {NEW}",))


def test_nothing_changed_where_the_environment_is_that_of_the_last_pass(last_pass):
    assert last_pass(("26", NEW, "IMPROVED")) == LastPass("day-26", "2026-11-26", ())


@pytest.mark.parametrize("more", [{"product": "NVIDIA A100"}, {"before": "2026-11-26T03:00:00Z"}])
def test_runs_of_other_hardware_and_later_ones_tell_nothing(last_pass, more):
    assert last_pass(("26", OLD, "PASSED"), **more) is None


def test_a_damaged_file_is_passed_over(last_pass, tmp_path):
    found = last_pass(("25", OLD, "PASSED"), ("26", OLD, "PASSED"))
    assert found.run == "day-26"
    path = tmp_path / "runs" / "day-26.jsonl"
    first, *_, last = path.read_text().splitlines()
    path.write_text(f"{first}\n{{broken\n{last}\n")
    assert last_pass().run == "day-25"


def test_no_more_than_the_newest_runs_are_read(last_pass, make, tmp_path):
    for number in range(MOST_RUNS):
        make.save(
            tmp_path / "runs" / f"other-{number}.jsonl",
            make.footer(),
            ended=False,
            started=f"2026-11-27T03:{number:02}:00Z",
        )
    assert last_pass(("26", OLD, "PASSED")) is None
