"""A verdict as a run file keeps it: everything that it rests on, plain enough for JSON."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.core.records import Judgement, SessionRecord
from pytest_roofline.stats.judgements import judgement_of
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.looks import Looks
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import judge

MILLISECOND = math.log(1e-3)
logs = st.floats(-0.5, 0.5)
sessions = st.lists(st.lists(logs, min_size=1, max_size=3), min_size=1, max_size=3)


def test_a_judgement_holds_everything_that_the_verdict_rests_on(make):
    new = make.group(*map(math.log, (1.24e-3, 1.25e-3, 1.26e-3)))
    verdict = judge([new], make.reference(*make.groups(3, process=0.001, centre=MILLISECOND)), Policy())
    kept, found = judgement_of(verdict, "copy", name="two", test_id="test_a.py::test_b"), verdict.difference
    assert (kept.test_id, kept.label, kept.name, kept.verdict) == ("test_a.py::test_b", "copy", "two", "REGRESSED")
    names = "tolerance reason estimate interval p p_adjusted mde reach processes new_medians_s fewest siblings"
    for name in names.split():
        assert getattr(kept, name) == getattr(verdict, name)
    for name in ("error", "freedom", "new_s", "reference_s", "paired", "unequal"):
        assert getattr(kept, name) == getattr(found, name)
    assert kept.source == "h200.json"
    assert (kept.process_spread.value, kept.process_spread.origin) == (found.process.value, found.process.origin)


def test_the_reference_is_kept_session_by_session(make):
    groups = make.groups(2, 2, centre=MILLISECOND)
    kept = make.result(reference=make.reference(*groups)).judgement.reference
    assert kept == tuple(SessionRecord(group.medians_s, group.device, group.started) for group in groups)


def test_a_spread_that_is_taken_as_known_has_no_degrees_of_freedom(make):
    """JSON has no infinity."""
    kept = make.result(reference=make.reference(make.group(MILLISECOND))).judgement
    groups = [
        make.group(MILLISECOND + step, started=f"2026-01-0{day}T03:00:00Z") for day, step in enumerate((0, 0.01), 1)
    ]
    known = make.result(reference=make.reference(*groups)).judgement
    assert (known.session_spread.value, known.session_spread.freedom) == (0.0, None)
    assert (kept.session_spread.value, kept.session_spread.freedom) == (0.01, 4.0)
    assert kept.process_spread.freedom == 4.0


@pytest.mark.parametrize(("device", "kept"), [("GPU-1", False), ("GPU-2", True)])
def test_the_spread_between_devices_is_kept_where_it_was_added(make, device, kept):
    reference = make.reference(*make.groups(3, centre=MILLISECOND, device=device))
    judgement = make.result(reference=reference).judgement
    assert (judgement.device_spread is not None, judgement.paired) == (kept, not kept)


def test_what_was_not_compared_keeps_its_verdict_and_reason_alone(make):
    kept = make.result(known=False).judgement
    assert kept == Judgement(
        test_id=kept.test_id, label="memcpy_d2d[64MiB]", verdict="NO BASELINE", tolerance=0.05,
        reason="no baseline recorded", processes=1,
    )  # fmt: skip


def test_a_breach_keeps_its_estimate_and_interval(make):
    kept = make.result(1.25e-3, known=False, limits=[Limit(make.published(), 1e-3)]).judgement
    assert (kept.estimate, kept.processes) == (pytest.approx(math.log(1.25)), 1)
    assert kept.interval[0] < kept.estimate < kept.interval[1]
    assert kept.reason.startswith("BELOW THRESHOLD")
    assert (kept.limit_s, kept.limit, kept.limit_source) == (1e-3, "published", "the vendor's guide")


def test_a_limit_that_is_met_is_kept_and_a_baseline_has_none(make):
    met = make.result(0.5e-3, known=False, limits=[Limit(make.published(), 1e-3)]).judgement
    assert (met.verdict, met.limit_s) == ("PASSED", 1e-3)
    assert make.result().judgement.limit_s is None


@given(st.lists(logs, min_size=1, max_size=4), sessions, st.sampled_from([1, 12]), st.sampled_from([1, 200]))
def test_every_verdict_can_be_written_down(make, new, old, most, comparisons):
    """However little is known: no infinity reaches the file."""
    policy = Policy(looks=Looks(most), comparisons=comparisons)
    reference = make.reference(*(make.group(*side) for side in old))
    one = make.result(*map(math.exp, new), reference=reference, policy=policy)
    assert encode_line(one.judgement).startswith('{"type": "judgement", ')
