"""Creep: code that becomes slower a little a week is refused once it is beyond the tolerance, whatever joined."""

import datetime
import json
import random

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.baselines.renewal import MOST_RENEWALS, MOST_SESSIONS, anchor_of, approve, changes, renew
from pytest_roofline.core.entries import Baseline, Renewal, Session
from pytest_roofline.core.errors import BadInput
from pytest_roofline.stats.spread import priors

WEEKS = 26
FIRST = datetime.date(2026, 1, 5)


def week(make, number, growth=0.0, noise=0.0, **changes):
    """Seven nights of the code of a week, which grew by a share each week before."""
    dice = random.Random(f"{number} of {changes.pop('seed', 0)}")
    sessions = tuple(
        Session(
            f"run-{7 * number + day}",
            f"{FIRST + datetime.timedelta(7 * number + day)}T03:00:00Z",
            ((1 + growth) ** number * (1 + dice.gauss(0, noise)),),
            "GPU-1",
        )
        for day in range(7)
    )
    return Baseline("h200", (make.measured(sessions=sessions, **changes),))


def approve_weekly(folder, weeks, **how):
    """How many weeks were approved before the first refusal, and its sentence."""
    for number, proposal in enumerate(weeks):
        try:
            approve(proposal, folder, **how)
        except BadInput as error:
            return number, str(error)
    return len(weeks), ""


def held(folder):
    (entry,) = read_baseline(folder / "h200.json").entries
    return entry


@pytest.mark.parametrize(("noise", "seed"), [(0.0, 0), (0.01, 1)])
def test_one_percent_a_week_is_refused_as_soon_as_it_is_beyond_the_tolerance(make, tmp_path, noise, seed):
    weeks = [week(make, number, 0.01, noise, seed=seed) for number in range(WEEKS)]
    approved, told = approve_weekly(tmp_path, weeks)
    assert approved in (5, 6)
    assert "since 2026-01-05, over " in told
    text = (tmp_path / "h200.json").read_text()
    with pytest.raises(BadInput, match="accept it with --accept-slower"):
        approve(weeks[-1], tmp_path, replaces=True)
    assert (tmp_path / "h200.json").read_text() == text


def test_noise_moves_that_by_a_week_or_two_at_most(make, tmp_path):
    """An anchor of three nights of 1 % is known to 0.6 %, which is half a week's creep.

    Of twenty such anchors one has nights so far apart that only more creep tells it from chance.
    """
    first = [
        approve_weekly(tmp_path / f"{seed}", [week(make, number, 0.01, 0.01, seed=seed) for number in range(WEEKS)])[0]
        for seed in range(20)
    ]
    assert sum(number in (4, 5, 6, 7) for number in first) >= 19
    assert max(first) < WEEKS
    assert sum(number in (5, 6) for number in first) >= 15


@pytest.mark.parametrize("seed", range(5))
def test_unchanged_noisy_code_is_never_refused(make, tmp_path, seed):
    weeks = [week(make, number, noise=0.01, seed=seed) for number in range(WEEKS)]
    assert approve_weekly(tmp_path, weeks) == (WEEKS, "")
    entry = held(tmp_path)
    assert len(entry.sessions) == MOST_SESSIONS
    assert [session.run_id for session in entry.anchor] == ["run-0", "run-1", "run-2"]
    assert len(entry.renewals) == WEEKS - 1
    assert max(abs(renewal.drift) for renewal in entry.renewals) < 0.03


def test_the_chain_tells_of_each_renewal_how_far_it_went(make, tmp_path):
    approve_weekly(tmp_path, [week(make, number, 0.01) for number in range(3)])
    first, second = held(tmp_path).renewals
    assert (first.sessions, first.change, first.drift, first.accepted_slower) == (
        7,
        pytest.approx(0.01),
        pytest.approx(0.01),
        False,
    )
    assert (second.change, second.drift) == (pytest.approx(0.015, abs=1e-4), pytest.approx(0.0201))
    assert datetime.datetime.fromisoformat(second.approved)


def test_slower_code_that_is_accepted_is_the_new_anchor(make, tmp_path):
    weeks = [week(make, number, 0.01) for number in range(WEEKS)]
    assert approve_weekly(tmp_path, weeks)[0] == 5
    approve(weeks[5], tmp_path, accept_slower=True)
    assert [session.run_id for session in held(tmp_path).anchor] == ["run-35", "run-36", "run-37"]
    assert [renewal.accepted_slower for renewal in held(tmp_path).renewals] == [False] * 4 + [True]
    approved, told = approve_weekly(tmp_path, weeks[6:])
    assert (approved, "takes +5.1 % time since 2026-02-09, over 5 renewals" in told) == (4, True)


def test_accepting_where_nothing_is_too_slow_keeps_the_anchor(make, tmp_path):
    approve_weekly(tmp_path, [week(make, number, 0.01) for number in range(5)], accept_slower=True)
    assert [session.run_id for session in anchor_of(held(tmp_path))] == ["run-0", "run-1", "run-2"]


def test_always_accepting_says_so_each_time(make, tmp_path):
    weeks = [week(make, number, 0.01) for number in range(WEEKS)]
    assert approve_weekly(tmp_path, weeks, accept_slower=True) == (WEEKS, "")
    accepted = [number for number, renewal in enumerate(held(tmp_path).renewals, 1) if renewal.accepted_slower]
    assert accepted == [5, 10, 15, 20, 25]


def test_one_step_beyond_the_tolerance_is_refused_too(make, tmp_path):
    approve(week(make, 0), tmp_path)
    with pytest.raises(BadInput, match=r"takes \+8\.0 % time since 2026-01-05, over 1 renewal \(tolerance 5 %\)"):
        changes(week(make, 1, 0.08), tmp_path)
    (change,) = changes(week(make, 1, 0.08), tmp_path, accept_slower=True)
    assert (change.action, change.why, change.entry.anchor) == ("replaced", "slower +8.0 %", ())


@pytest.mark.parametrize("replaces", [False, True])
def test_faster_code_begins_a_chain_of_its_own(make, tmp_path, replaces):
    approve_weekly(tmp_path, [week(make, number, 0.01) for number in range(3)])
    approve(week(make, 3, -0.04), tmp_path, replaces=replaces)
    assert (held(tmp_path).anchor, held(tmp_path).renewals) == ((), ())
    assert anchor_of(held(tmp_path))[0].run_id == "run-21"


def test_replacing_by_slower_code_weekly_creeps_no_further(make, tmp_path):
    weeks = [week(make, number, 0.01) for number in range(WEEKS)]
    assert approve_weekly(tmp_path, weeks, replaces=True)[0] == 5


def test_times_of_something_else_are_held_against_nothing(make, tmp_path):
    approve_weekly(tmp_path, [week(make, number) for number in range(3)])
    approve(week(make, 3, 0.5, work=make.copy(2**27)), tmp_path)
    assert (held(tmp_path).anchor, held(tmp_path).renewals) == ((), ())


def test_the_entrys_own_tolerance_counts(make, tmp_path):
    weeks = [week(make, number, 0.01, tolerance=0.08) for number in range(WEEKS)]
    assert approve_weekly(tmp_path, weeks)[0] == 8


def test_one_entry_that_crept_stops_the_whole_approval(make, tmp_path):
    both = [
        Baseline("h200", week(make, number).entries + week(make, number, rate, key=make.key("other")).entries)
        for number, rate in ((0, 0.0), (1, 0.06))
    ]
    approve(both[0], tmp_path)
    text = (tmp_path / "h200.json").read_text()
    with pytest.raises(BadInput, match=r"^other\[64MiB\] takes \+6\.0 % time"):
        approve(both[1], tmp_path)
    assert (tmp_path / "h200.json").read_text() == text
    approve(both[1], tmp_path, only=["memcpy"])


def test_a_file_without_the_fields_loads_unchanged_and_its_oldest_sessions_are_the_anchor(make, tmp_path):
    path = approve(week(make, 0), tmp_path)
    (plain,) = json.loads(path.read_text())["entries"]
    assert not {"anchor", "renewals"} & set(plain)
    assert [session.run_id for session in anchor_of(held(tmp_path))] == ["run-0", "run-1", "run-2"]
    approve(week(make, 1, 0.01), tmp_path)
    (plain,) = json.loads(path.read_text())["entries"]
    assert ("anchor" in plain, len(plain["renewals"])) == (False, 1)


def test_the_anchor_of_a_young_entry_grows_to_three_sessions(make):
    sessions = [session for number in range(6) for session in week(make, number).entries[0].sessions]
    held = make.measured(sessions=sessions[:1])
    for session in sessions[1:]:
        held = renew(make.measured(sessions=(session,)), held, priors()).entry
    assert [session.run_id for session in held.anchor] == ["run-0", "run-1", "run-2"]
    assert held.sessions[0].run_id == "run-12"


def test_the_newest_sixty_renewals_are_kept(make):
    old = tuple(Renewal("2025-01-01T00:00:00Z", number, 0.0, 0.0) for number in range(MOST_RENEWALS))
    before = make.measured(sessions=week(make, 0).entries[0].sessions, renewals=old)
    after = renew(week(make, 1).entries[0], before, priors()).entry
    assert after.renewals[:-1] == old[1:]
    assert len(after.renewals) == MOST_RENEWALS


def test_published_figures_have_no_anchor(make):
    with pytest.raises(BadInput, match="a threshold entry has an anchor, renewals or peak_bytes; expected them"):
        make.published(anchor=(make.session(),))
