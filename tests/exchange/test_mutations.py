"""A file with another digit is refused, or its numbers are those that the tool printed; `tests/fuzz` does the rest."""

import functools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import rate

FILES = {
    "a100-all_reduce.log": "nccl-tests",
    "mi300x-all_reduce.log": "nccl-tests",
    "gb10-two-nodes-all_gather.log": "nccl-tests",
    "readme-nvbandwidth.json": "nvbandwidth",
    "a6000-nvbandwidth.json": "nvbandwidth",
    "mi300x-babelstream.csv": "babelstream",
    "pytest-benchmark-storage-0030.json": "pytest-benchmark",
}


def rates(imported):
    """Rate, or seconds where there is none, by label, for every sound reading."""
    return {
        (number, reading.label): rate(reading.work, reading.metric, reading.seconds[0]) or reading.seconds[0]
        for number, one in enumerate(imported)
        for reading in one.readings
    }


def taken(take, changed, name):
    """What a changed file gives; None where it is refused, by name and in one line."""
    try:
        return take(changed, name)
    except BadFile as refused:
        told = str(refused)
    assert told.startswith("file")
    assert "\n" not in told
    return None


@pytest.fixture(scope="session")
def unchanged(text, take):
    """The rates of a file as it is, read once."""
    return functools.cache(lambda name: rates(take(text(name), FILES[name])))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("other", FILES)
def test_a_file_is_recognised_as_one_format_and_no_other(name, other, text, take):
    if FILES[name] == FILES[other]:
        assert take(text(name), FILES[other], operation=None)
    else:
        with pytest.raises(BadFile):
            take(text(name), FILES[other])


# By how much a rate may have moved unseen, as a share: what the figures beside it were rounded by. Of nvbandwidth it is
# the rounding of all numbers behind one sum.
ROUNDING = {"a100-all_reduce.log": 2e-3, "mi300x-all_reduce.log": 2e-3, "readme-nvbandwidth.json": 2e-4}
ROUNDING |= {"mi300x-babelstream.csv": 2e-5, "gb10-two-nodes-all_gather.log": 2e-3}


def checked_digits(name, text):
    """Where the digits stand that figures beside them can be held against, in rows of 10 GB/s or more."""
    if name.endswith(".log"):
        for row in re.finditer(r"^ +\d+ +\d+ .*$", text, re.MULTILINE):
            if float(row[0].split()[-7]) >= 10:
                yield from (row.start() + match.start() for match in re.finditer(r"\d", row[0]))
    elif name.endswith(".json"):
        yield from (match.start(1) + at for match in re.finditer(r'"([\d.]+)"', text) for at in digits(match[1]))
    else:
        for match in re.finditer(r"^\w+,50,268435456,8,([^,]+,[^,]+),", text, re.MULTILINE):
            yield from (match.start(1) + at for at in digits(match[1]))


def digits(number):
    return [match.start() for match in re.finditer(r"\d", number)]


@pytest.mark.parametrize("name", ROUNDING)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_changed_digit_is_refused_or_within_what_was_rounded(name, text, take, unchanged, data):
    whole = text(name)
    at = data.draw(st.sampled_from(list(checked_digits(name, whole))))
    digit = data.draw(st.sampled_from([other for other in "0123456789" if other != whole[at]]))
    found = taken(take, whole[:at] + digit + whole[at + 1 :], FILES[name])
    if found is None:
        return
    before, after = unchanged(name), rates(found)
    assert after.keys() == before.keys()
    moved = [label for label in before if "slowest" not in label[1] and "mean" not in label[1].rpartition(".")[2]]
    moved = moved if name.endswith(".csv") else list(before)
    assert {label: after[label] for label in moved} == pytest.approx(
        {label: before[label] for label in moved}, rel=ROUNDING[name]
    )


def test_the_digits_that_are_changed_above_are_there(text):
    found = {name: len(list(checked_digits(name, text(name)))) for name in ROUNDING}
    assert all(count > 40 for count in found.values()), found
