"""The worst test that failed, unless others are named; nothing is guessed."""

import math

import pytest

from pytest_roofline.baselines.rows import rows_of_run
from pytest_roofline.bundle.choosing import chosen
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.records import Judgement


@pytest.fixture
def rows(make, tmp_path):
    """A green test, and two red ones of which the second is slower."""
    records = []
    for name, slower in (("green", 0.0), ("red", 0.2), ("redder", 0.9)):
        one = make.measurement(key=make.key(name))
        word = "REGRESSED" if slower else "PASSED"
        judged = Judgement(one.test_id, one.label, word, 0.05, estimate=math.log1p(slower))
        records += [one, judged, make.outcome(one, "failed" if slower else "passed", by_verdict=bool(slower))]
    return rows_of_run(make.run(tmp_path / "r.jsonl", *records))


def labels(rows, *tests):
    return [rows[index].label for index in chosen(rows, tests, "r.jsonl")]


def test_the_worst_that_failed_is_chosen(rows):
    assert ["redder[64MiB]"] == labels(rows)


def test_named_tests_are_chosen_worst_first_and_each_once(rows):
    assert ["redder[64MiB]", "green[64MiB]"] == labels(rows, "green", "redder", "test_memcpy.py::test_redder[64MiB]")


def test_a_part_of_a_name_chooses_all_that_hold_it_and_a_whole_one_itself(rows):
    assert ["redder[64MiB]", "red[64MiB]"] == labels(rows, "red")
    assert ["red[64MiB]"] == labels(rows, "red[64MiB]")


@pytest.mark.parametrize("name", ["nonsense", ""])
def test_a_name_that_fits_nothing_is_refused_with_those_that_there_are(rows, name):
    with pytest.raises(BadInput, match=rf"no test whose name holds {name!r}; it has green\[64MiB\], red\[64MiB\]"):
        labels(rows, name)


def test_where_nothing_failed_a_test_must_be_named(rows):
    with pytest.raises(BadInput, match=r"no test of r\.jsonl failed.*name one with --test: green\[64MiB\]"):
        labels(rows[:1])


def test_all_measurements_of_the_worst_test_are_meant(make, tmp_path):
    two = [make.measurement(key=make.key(name=name), test_id="t.py::test_two") for name in ("a", "b")]
    rows = rows_of_run(make.run(tmp_path / "r.jsonl", *two, make.outcome(two[0], "failed")))
    assert ["memcpy_d2d[64MiB].a", "memcpy_d2d[64MiB].b"] == labels(rows)
