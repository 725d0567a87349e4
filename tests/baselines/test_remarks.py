"""Since when a test is slower: where its baseline is from, when it passed last, and what changed since then."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.remarks import since_lines
from pytest_roofline.core.verdicts import LastPass


@pytest.fixture
def slower(make):
    """A verdict that is REGRESSED against a baseline of one session."""
    reference = make.reference(make.group(0.0, started="2026-11-20T03:00:00Z"))
    return make.verdict(make.measurement(), "REGRESSED", estimate=0.2, reference=reference)


def test_a_baseline_is_named_by_its_day_and_by_what_it_tells_of_commit_driver_and_torch(slower):
    assert since_lines(slower) == ["baseline of 2026-11-20"]
    told = {"commit": "abc1234567", "driver": "550.54", "torch": "2.13.0"}
    known = replace(slower, reference=replace(slower.reference, **told))
    assert since_lines(known) == [
        "baseline of 2026-11-20 (abc1234567, driver 550.54, torch 2.13.0)"
    ]


@pytest.mark.parametrize(
    ("changed", "since"),
    [(("driver 550.54 → 570.86", "torch 2.12 → 2.13"), "driver 550.54 → 570.86, torch 2.12 → 2.13"),
     ((), "no recorded fact changed")],
)  # fmt: skip
def test_the_last_pass_is_named_with_what_changed_since_then(slower, changed, since):
    last_pass = LastPass("nightly-41", "2026-11-26", changed)
    verdict = replace(slower, subject=replace(slower.subject, last_pass=last_pass))
    assert since_lines(verdict)[1:] == [
        "last PASSED 2026-11-26 in nightly-41",
        f"since then: {since}",
    ]


@pytest.mark.feature("bisect")
@pytest.mark.parametrize(
    ("changed", "now", "ends"),
    [
        (("driver 550.54 → 570.86", "torch 2.12 → 2.13"), "nightly-42", None),
        (
            ("package triton 3.7.1 → 3.7.2 #ab12",),
            "nightly-42",
            "with:triton==3.7.1 with:triton==3.7.2",
        ),
        (("package triton 1 → 2", "package numpy 1 → 2"), "", None),
        (("package triton 1 → 2", "package numpy 1 → 2"), "nightly-42", "nightly-41 nightly-42"),
        (("$NCCL_ALGO Tree → Ring", "driver 1 → 2"), "nightly-42", "nightly-41 nightly-42"),
        (("package triton 1 → 2", "package torch 3 #ab → 4"), "", "with:torch==3 with:torch==4"),
        (
            ("code abc1234567 → def1234567 with changes 4c37", "package torch 3 → 4"),
            "nightly-42",
            "abc1234567 .",
        ),
    ],
)
def test_what_can_be_switched_here_has_the_command_that_searches_it(slower, changed, now, ends):
    last_pass = LastPass("nightly-41", "2026-11-26", changed, now)
    subject = replace(slower.subject, last_pass=last_pass, test_id="tests/test_it.py::test_it[a b]")
    (line,) = since_lines(replace(slower, subject=subject))[3:] or [None]
    expected = f"find which: roofline bisect {ends} -- 'tests/test_it.py::test_it[a b]'"
    assert line == (expected if ends else None)


def test_a_test_that_is_not_slower_has_no_beginning(slower):
    assert since_lines(replace(slower, kind=type(slower.kind).PASSED)) == []
