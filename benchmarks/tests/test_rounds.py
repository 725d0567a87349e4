"""The page of rounds: what it makes of times whose difference, spread and correlation are known."""

import math
import random

import pytest

TESTS = ("file.py::test_body[slower]", "file.py::test_body[same]")
PARENTS = 40
FACTS = {"cpu": "a processor", "cores": "2", "torch": "2.13", "before": "0.0"}


@pytest.fixture(scope="module")
def made(program):
    return program("rounds")


@pytest.fixture
def rounds(made):
    """Of 120 processes a kind: one test is 5 % slower where it is forked, the other shares half of its variance."""
    chance, measured = random.Random(1), []
    for parent in range(PARENTS):
        shared = chance.gauss(0, 0.01)
        for position in range(3):
            fresh = {test: math.exp(chance.gauss(0, 0.01)) for test in TESTS}
            forked = {
                TESTS[0]: 1.05 * math.exp(chance.gauss(0, 0.01)),
                TESTS[1]: math.exp(shared + chance.gauss(0, 0.01)),
            }
            measured += [
                made.Round(made.FRESH, 3 * parent + position, fresh, 6.0),
                made.Round(made.FORKED, 3 * parent + position, forked, 2.0),
            ]
    return measured


def test_a_shift_between_the_kinds_is_found_and_what_is_alike_is_not_called_apart(made, rounds):
    slower, same = (made.compare(rounds, test) for test in TESTS)
    assert slower.difference == pytest.approx(math.log(1.05), abs=0.005)
    assert (slower.differs, same.differs) == (True, False)
    assert slower.processes == 120


def test_what_rounds_of_a_parent_share_is_told(made, rounds):
    slower, same = (made.compare(rounds, test) for test in TESTS)
    assert slower.shared == pytest.approx(0.0, abs=0.2)
    assert same.shared == pytest.approx(0.5, abs=0.2)
    assert same.shared_fresh == pytest.approx(0.0, abs=0.2)


def test_the_page_names_the_tests_that_differ_and_the_ratio_of_seconds(made, rounds):
    alone = [
        made.Round(made.FRESH, 0, {made.ONE: 1.0}, 6.0),
        made.Round(made.FORKED, 0, {made.ONE: 1.0}, 2.0),
    ]
    text = made.part([made.compare(rounds, test) for test in TESTS], alone, FACTS)
    assert "A forked round of one test takes 2.0 s, a fresh process 6.0 s: 0.33 times as long." in (
        " ".join(text.split())
    )
    assert "The centres of slower differ by more than 1%." in " ".join(text.split())
