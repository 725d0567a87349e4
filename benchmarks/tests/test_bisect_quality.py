"""The quality of `roofline bisect`: what is drawn, what counts as right, and what the page says."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs/results/bisect-quality.md"


@pytest.fixture(scope="module")
def quality(program):
    return program("bisect_quality")


def test_a_history_rises_at_its_steps_and_nowhere_else(quality):
    for name, count in {"+5 %": 1, "two steps, +5 % each": 2, "none": 0}.items():
        history = quality.draw_history(name, np.random.default_rng(1))
        rises = np.nonzero(np.diff(history.levels))[0] + 1
        assert (tuple(rises), len(rises)) == (history.steps, count)
    broken = quality.draw_history("+5 %, one in ten broken", np.random.default_rng(1)).broken
    assert 1 <= len(broken) <= 15
    assert not {(0,), (quality.STEPS,)} & broken


def test_a_range_is_right_if_it_holds_the_step_and_two_steps_need_two(quality):
    gap = quality.Gap
    assert quality._holds([gap(3, 6, 1.0)], (5,))
    assert not quality._holds([gap(3, 6, 1.0)], (3,))
    assert not quality._holds([gap(3, 6, 1.0)], (5, 9))
    assert quality._holds([gap(3, 6, 1.0), gap(8, 9, 1.0)], (5, 9))


def test_few_draws_already_part_the_rules(quality):
    tallied = quality.tally("+5 %", 20, seed=3)
    assert tallied.ends[quality.OURS][quality.RIGHT] >= 18
    assert all(tallied.ends[rule][quality.RIGHT] <= 17 for rule in quality.PEERS)
    nothing = quality.tally("+1.2 %", 20, seed=3)
    assert nothing.ends[quality.OURS] == Counter({quality.NOTHING: 20})


def test_a_goal_that_is_missed_is_named(quality):
    tallied = quality.Tally({quality.OURS: Counter(right=90, wrong=10)}, [80])
    goals = quality.findings({"+5 %": tallied}, {"one": [(True, 200), (True, 400)]})
    assert [good for *_, good in goals] == [False, False, False, False]
    assert quality.conclusion(goals).startswith(
        "Of histories with a step of +5 % the right version is named in 90.0 %, and a wrong one in 10.0 %. "
        "**4 of 4 goals are missed**: +5 %: right at least 95 %: 90.0 %; "
    )


def test_the_page_reaches_every_goal():
    text = PAGE.read_text(encoding="utf-8")
    assert "**All 16 goals are reached.**" in text
    assert text.count("| reached |") == 16


def test_the_section_of_another_program_is_the_end_of_the_page(quality, program):
    wheels = program("triton_wheels")
    section = wheels.section("roofline bisect: a line\nkernel is slower since with:triton==3.9.0\n")
    page = f"# Title\n\ntext\n\n{section}"
    assert quality.wheels_section(page) == section
    assert quality.wheels_section("# Title\n") == ""
    assert "\n$ roofline bisect 'with:triton==3.6.*' 'with:triton==3.9.*' -- perf_tests/" in section


def test_a_long_line_is_broken_between_words_and_loses_none(program):
    wheels = program("triton_wheels")
    line = " ".join(["word"] * 60)
    broken = wheels._wrap(line)
    assert broken.split() == line.split()
    assert max(map(len, broken.splitlines())) <= 118
