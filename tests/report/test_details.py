"""What a verdict rests on, in words, for whoever asks with -vv."""

import math
from dataclasses import replace

import pytest

from pytest_roofline.report.explain import detail_lines, difference_text

HOSTILE = "x\x1b[31m\r\ny\u202e"
MILLISECOND = math.log(1e-3)


def kept(make, *seconds, **changes):
    return make.result(*(seconds or (1.25e-3,)), **changes)


def line(row, number):
    """Of the lines behind a verdict: 1 its spreads, 2 its chances of error, 3 its sides."""
    return detail_lines([row])[number].strip()


def test_the_spreads_stand_with_where_each_comes_from(make):
    reference = make.reference(*make.groups(3, process=0.01, centre=MILLISECOND))
    assert line(kept(make, reference=reference), 1) == (
        "spread between processes 0.95% (estimated, 16 degrees of freedom, with prior); sessions 0.41% "
        "(estimated, 3 sessions, with prior)"
    )


def test_what_was_assumed_is_said_to_be_a_prior(make):
    reference = make.reference(make.group(MILLISECOND, device="GPU-2"))
    text = line(kept(make, 1e-3, reference=reference), 1)
    assert text.startswith(
        "spread between processes 1.00% (prior); sessions 1.00% (prior, recorded in one sitting); devices 4.00% (prior"
    )


def test_the_chances_of_error_stand_with_what_could_have_been_seen(make):
    row = make.result(1.25e-3)
    judged = replace(row.judgement, p_adjusted=0.012)
    assert line(replace(row, judgement=judged), 2) == (
        f"standard error 0.55% (10.9 degrees of freedom), p {judged.p:.2g}, "
        f"adjusted for all tests 0.012, would have caught {judged.reach:.1%}"
    )


@pytest.mark.parametrize(
    ("device", "said"), [("GPU-1", "on 1 device (paired)"), ("GPU-2", "on 1 device (another device)")]
)
def test_both_sides_stand_with_processes_sessions_and_devices(make, device, said):
    reference = make.reference(*make.groups(3, process=0.001, centre=MILLISECOND, device=device))
    text = line(kept(make, 1.24e-3, 1.26e-3, reference=reference), 3)
    assert text == f"now 1.25 ms from 2 processes of 1 session; baseline 1.00 ms from 15 processes of 3 sessions {said}"


def test_one_process_of_one_session_is_told_in_the_singular(make):
    text = line(kept(make, 1e-3, reference=make.reference(make.group(MILLISECOND))), 3)
    assert (
        text
        == "now 1.00 ms from 1 process of 1 session; baseline 1.00 ms from 1 process of 1 session on 1 device (paired)"
    )


def test_several_devices_behind_a_baseline_are_counted(make):
    groups = [*make.groups(3, centre=MILLISECOND), *make.groups(3, centre=MILLISECOND, device="GPU-2")]
    assert "from 30 processes of 6 sessions on 2 devices (paired)" in line(
        kept(make, reference=make.reference(*groups)), 3
    )


def test_a_difference_stands_with_its_interval_and_the_tolerance(make):
    judgement = replace(kept(make).judgement, estimate=math.log(1.25), interval=(math.log(1.2), math.log(1.3)))
    assert difference_text(judgement) == "+25.0 % time (99 % interval +20.0 … +30.0 %), tolerance 5 %"


def test_every_compared_measurement_has_its_lines_and_no_other(make):
    results = [make.result(label="one"), make.result(known=False), make.row(make.measurement())]
    lines = detail_lines([*results, make.result(1.25e-3, label="two")])
    assert [line for line in lines if not line.startswith(" ")] == ["one: PASSED", "two: REGRESSED"]
    assert len(lines) == 8


def test_a_hostile_name_cannot_steer_the_terminal(make):
    (first, *_) = detail_lines([make.result(label=HOSTILE)])
    assert not set(first) & set("\x1b\r\n\u202e")
