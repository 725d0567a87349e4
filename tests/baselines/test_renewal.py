"""Renewing: noise neither tightens nor loosens a baseline, a sure difference replaces it, and nothing creeps."""

import datetime
import itertools
import json
import multiprocessing
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import SoftFileLock

from pytest_roofline.baselines.files import read_baseline, write_baseline
from pytest_roofline.baselines.renewal import (
    MOST_RENEWALS,
    MOST_SESSIONS,
    anchor_of,
    approve,
    changes,
    newest,
    renew,
    select,
)
from pytest_roofline.cli.pruning import _remove
from pytest_roofline.core import writing
from pytest_roofline.core.entries import Baseline, Renewal, Session
from pytest_roofline.core.errors import BadFile, BadInput, CannotStore
from pytest_roofline.stats.spread import priors

STEADY = (1.0, 1.003, 0.998, 1.001, 0.999)
WEEKS = 26
FIRST = datetime.date(2026, 1, 5)


def session(number, *medians, device="GPU-1", **changes):
    started = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T03:00:00Z"
    return Session(f"run-{number}", started, medians or (1.0,), device, **changes)


def nights(first, *medians, **changes):
    """Sessions of one process each, a night after the other."""
    return tuple(session(first + number, value, **changes) for number, value in enumerate(medians))


def entry(make, *sessions, benchmark="memcpy_d2d", **changes):
    return make.measured(key=make.key(benchmark), sessions=sessions, **changes)


@pytest.fixture
def before(make):
    """Five nights that agree."""
    return entry(make, *nights(0, *STEADY))


def told(change):
    return change.action, change.why, change.entry.medians


def test_what_surely_differs_by_more_than_the_tolerance_replaces_and_the_rest_joins(make, before):
    new = renew(entry(make, session(0, 2.0)), None, priors())
    assert (new.action, new.before_s, new.after_s) == ("new", None, pytest.approx(2.0))
    for medians, expected in [
        ((1.01,), ("joined", "", (*STEADY, 1.01))),
        ((0.85, 0.851), ("replaced", "IMPROVED -15.0 %", (0.85, 0.851))),
        ((1.2, 1.201), ("replaced", "slower +20.0 %", (1.2, 1.201))),
    ]:
        assert told(renew(entry(make, *nights(9, *medians)), before, priors())) == expected
    # Within the tolerance however sure; beyond it where chance may have made it.
    vague = entry(make, *nights(0, 1.0, 1.08, 0.93))
    sure = [[factor * value for value in STEADY * 3] for factor in (1.04, 1 / 1.04)]
    for medians, known in [
        *((many, before) for many in sure),
        ((1.07,), vague),
        ((1 / 1.07,), vague),
    ]:
        assert renew(entry(make, *nights(9, *medians)), known, priors()).action == "joined", medians
    for tolerance, action in [(0.5, "joined"), (None, "replaced")]:
        change = renew(
            entry(make, *nights(9, 1.2, 1.201)), replace(before, tolerance=tolerance), priors()
        )
        assert (change.action, change.entry.tolerance) == (action, tolerance)


def test_what_is_of_something_else_or_asked_for_replaces_whatever_was_found(make, before):
    for value in (0.5, 1.0, 2.0):
        change = renew(entry(make, session(9, value)), before, priors(), replaces=True)
        assert told(change) == ("replaced", "--replace", (value,))
    change = renew(entry(make, session(9, 1.0), work=make.copy(2**27)), before, priors())
    assert told(change) == ("replaced", "its work changed", (1.0,))
    for old, new in [((), ("host_bound",)), (("host_bound",), ())]:
        known = entry(make, *nights(0, *STEADY, achieved=old))
        change = renew(entry(make, session(9, 1.0, achieved=new)), known, priors())
        assert told(change) == ("replaced", "timed in another mode", (1.0,))
    change = renew(make.published(value=120.0), make.published(value=100.0), priors())
    assert (change.action, change.entry.value) == ("replaced", 120.0)
    assert renew(make.published(), make.published(), priors()).action == "unchanged"


def test_sessions_that_are_there_already_change_nothing_and_only_new_ones_are_judged(make, before):
    change = renew(entry(make, *before.sessions[1:3]), before, priors())
    assert (change.action, change.entry) == ("unchanged", before)
    # Whoever proposes all nightlies again must not water the newest down with those that the baseline has.
    change = renew(entry(make, *before.sessions, *nights(9, 1.01, 1.0)), before, priors())
    assert change.action == "joined"
    assert [s.run_id for s in change.entry.sessions] == [
        "run-0",
        "run-1",
        "run-2",
        "run-3",
        "run-4",
        "run-9",
        "run-10",
    ]
    month = entry(make, *nights(0, *STEADY * 4))
    assert (
        renew(entry(make, *month.sessions, *nights(20, 0.85, 0.851)), month, priors()).action
        == "replaced"
    )
    # A run that was summarised anew takes the place of its old self.
    again = entry(make, replace(before.sessions[0], process_medians=(1.0005, 1.0006)))
    assert renew(again, before, priors()).entry.medians == (1.0005, 1.0006, *STEADY[1:])
    for value, replaces in itertools.product([0.5, 0.85, 1.0, 1.2, 2.0], [False, True]):
        proposed = entry(make, before.sessions[4], *nights(9, value, value))
        first = renew(proposed, before, priors(), replaces=replaces)
        assert renew(proposed, first.entry, priors(), replaces=replaces).action == "unchanged", (
            value,
            replaces,
        )


def test_the_newest_thirty_sessions_are_kept(make):
    known = entry(make, *nights(0, *[1.0] * 29))
    change = renew(entry(make, *nights(29, *[1.001] * 5)), known, priors())
    assert [s.run_id for s in change.entry.sessions] == [f"run-{number}" for number in range(4, 34)]
    assert len(change.entry.sessions) == MOST_SESSIONS
    full = entry(make, *nights(20, *[1.0] * 30))
    assert renew(entry(make, *nights(0, 0.5, 0.5)), full, priors()).action == "unchanged"
    undated = replace(session(40), started="some day")
    assert newest([session(1), undated, session(0)]) == (undated, session(0), session(1))


def test_a_new_session_is_judged_on_its_own_device(make):
    """Devices lie several percent apart: six percent on a known device are sure, on an unknown one they are not."""
    known = entry(
        make,
        *nights(0, *STEADY, *STEADY),
        *nights(15, *[1.3 * value for value in STEADY], device="GPU-2"),
    )
    slow = [
        entry(make, *nights(30, 1.09, 1.091, 1.09, device=device)) for device in ("GPU-1", "GPU-3")
    ]
    assert [renew(one, known, priors()).action for one in slow] == ["replaced", "joined"]
    mixed = entry(make, session(29, 1.0, device="GPU-3"), *slow[0].sessions)
    assert renew(mixed, known, priors()).action == "replaced"


def test_a_persons_tolerance_survives_a_renewal_that_names_none_and_alone_is_a_change(make, before):
    for (own, kept), value in itertools.product([(None, 0.2), (0.1, 0.1)], [1.0, 3.0]):
        proposed = entry(make, *nights(9, value, value), tolerance=own)
        assert renew(proposed, replace(before, tolerance=0.2), priors()).entry.tolerance == kept, (
            own,
            value,
        )
    change = renew(replace(before, tolerance=0.1), before, priors())
    assert (change.action, change.why, change.entry.tolerance) == ("replaced", "tolerance", 0.1)


def test_an_approval_makes_the_file_of_the_family_and_touches_only_the_entries_that_it_names(
    make, tmp_path
):
    path = approve(Baseline("h200", (make.measured(),)), tmp_path / "baselines")
    assert path == tmp_path / "baselines" / "h200.json"
    assert read_baseline(path) == Baseline("h200", (make.measured(),))
    assert [one.name for one in path.parent.iterdir()] == ["h200.json"]
    kept = (make.measured(7.0, key=make.key("other"), tolerance=0.2), make.published())
    write_baseline(tmp_path / "h200.json", Baseline("h200", (*kept, make.measured(1.0))))
    old = (tmp_path / "h200.json").read_text()
    changes(Baseline("h200", (make.measured(0.5),)), tmp_path)
    assert (tmp_path / "h200.json").read_text() == old
    approve(Baseline("h200", (make.measured(0.5),)), tmp_path)
    after = (tmp_path / "h200.json").read_text()
    changed = [
        (a.strip(), b.strip())
        for a, b in zip(old.splitlines(), after.splitlines(), strict=True)
        if a != b
    ]
    assert changed == [("1.0", "0.5")]
    assert [one["benchmark"] for one in json.loads(after)["entries"]] == [
        "memcpy_d2d",
        "memcpy_d2d",
        "other",
    ]
    assert after.endswith("}\n")
    (tmp_path / "h200.json").write_text("{")
    with pytest.raises(BadFile):
        approve(Baseline("h200", (make.measured(),)), tmp_path)
    assert (tmp_path / "h200.json").read_text() == "{"


def test_only_the_selected_entries_are_approved_and_what_would_change_is_told_before(
    make, before, tmp_path
):
    proposed = [(3.0, 3.0), (8.0, 8.0), (5.0,)]
    names = ("memcpy_d2d", "other", "new")
    entries = [
        entry(make, *nights(9, *medians), benchmark=name)
        for name, medians in zip(names, proposed, strict=True)
    ]
    proposal, path = Baseline("h200", tuple(entries)), tmp_path / "h200.json"
    for only, expected in [
        ((), proposed),
        (("memcpy_d2d[64MiB]",), [(3.0, 3.0), (7.0,), None]),
        (("new", "other"), [STEADY, (8.0, 8.0), (5.0,)]),
    ]:
        write_baseline(
            path, Baseline("h200", (before, entry(make, session(0, 7.0), benchmark="other")))
        )
        text = path.read_text()
        with pytest.raises(
            BadInput,
            match=r"no entry has 'nonsense' in its label; the labels are memcpy_d2d\[64MiB\], oth",
        ):
            approve(proposal, tmp_path, only=("memcpy", "nonsense"))
        found = [
            (one.entry.benchmark, one.action, one.after_s)
            for one in changes(proposal, tmp_path, accept_slower=True)
        ]
        assert found == [
            *(
                ("memcpy_d2d", "replaced", pytest.approx(3.0)),
                ("other", "replaced", pytest.approx(8.0)),
            ),
            ("new", "new", pytest.approx(5.0)),
        ]
        assert path.read_text() == text
        approve(proposal, tmp_path, only=only, accept_slower=True)
        held = {one.benchmark: one.medians for one in read_baseline(path).entries}
        assert [held.get(name) for name in names] == expected, only
    many = [make.measured(key=make.key(f"t{number}")) for number in range(40)]
    with pytest.raises(BadInput, match=r"t4\[64MiB\] and 35 more$"):
        select(many, ["x"])


AT_ONCE = multiprocessing.get_context("fork")


def at_once(*jobs):
    """Run functions in processes of their own that all begin at the same moment."""
    gate = AT_ONCE.Barrier(len(jobs))

    def run(job):
        gate.wait(30)
        job()

    processes = [AT_ONCE.Process(target=run, args=(job,)) for job in jobs]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(jobs)


def test_of_approvals_and_removals_at_once_none_loses_an_entry_or_brings_one_back(make, tmp_path):
    def holding(*names):
        return Baseline("h200", tuple(entry(make, session(1), benchmark=name) for name in names))

    def remove(folder, benchmark):
        path = folder / "h200.json"
        gone = next(one for one in read_baseline(path).entries if one.benchmark == benchmark)
        _remove(path, {gone.identity})

    for folder in (tmp_path / "one", tmp_path / "two"):
        write_baseline(folder / "h200.json", holding("kept", "old", "older"))
        at_once(
            lambda folder=folder: approve(holding("new"), folder),
            lambda folder=folder: approve(holding("other"), folder),
            lambda folder=folder: remove(folder, "old"),
            lambda folder=folder: remove(folder, "older"),
        )
        held = sorted(one.benchmark for one in read_baseline(folder / "h200.json").entries)
        assert held == ["kept", "new", "other"]


def test_a_file_that_another_process_holds_is_named_with_its_lock(make, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "PATIENCE_S", 0.05)
    words = (
        r"h200\.json is being changed by another process.*\.h200\.json\.lock.*remove the lock file"
    )
    with SoftFileLock(tmp_path / ".h200.json.lock"), pytest.raises(CannotStore, match=words):
        approve(Baseline("h200", (entry(make, session(1)),)), tmp_path)
    assert not (tmp_path / "h200.json").exists()


def test_a_lock_that_a_crash_left_empty_is_taken_over(make, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "EMPTY_S", 0.05)
    (tmp_path / ".h200.json.lock").touch()
    at_once(
        *(
            lambda name=name: approve(
                Baseline("h200", (entry(make, session(1), benchmark=name),)), tmp_path
            )
            for name in ("one", "two", "three")
        )
    )
    names = sorted(one.benchmark for one in read_baseline(tmp_path / "h200.json").entries)
    assert names == ["one", "three", "two"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h200.json"]


def test_an_empty_lock_that_is_another_by_now_or_has_its_holder_stays(tmp_path):
    lock = tmp_path / ".h200.json.lock"
    lock.touch()
    first = writing._empty_file(lock)
    lock.rename(tmp_path / "first")
    lock.touch()
    writing._remove_empty(lock, first)
    second = writing._empty_file(lock)
    assert second not in (None, first)
    lock.write_text("4711\nnode7\n")
    assert writing._empty_file(lock) is None
    writing._remove_empty(lock, second)
    assert lock.read_text() == "4711\nnode7\n"
    # Neither is a link's target, nor where there is none.
    (tmp_path / "link").symlink_to(tmp_path / "first")
    assert [writing._empty_file(tmp_path / name) for name in ("link", "absent")] == [None, None]


def test_a_held_lock_names_its_process_whatever_filelock_writes(tmp_path, monkeypatch):
    acquire = SoftFileLock.acquire

    def acquire_as_before(lock, *arguments, **named):
        acquire(lock, *arguments, **named)
        Path(lock.lock_file).write_text("")

    monkeypatch.setattr(SoftFileLock, "acquire", acquire_as_before)
    with writing.lock_file(tmp_path / "h200.json"):
        assert (tmp_path / ".h200.json.lock").read_text().split()[0] == str(os.getpid())
    assert list(tmp_path.iterdir()) == []


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


def weekly(make, growth=0.0, weeks=WEEKS, **how):
    return [week(make, number, growth, **how) for number in range(weeks)]


def approve_weekly(folder, weeks, **how):
    """How many weeks were approved before the first refusal, and its sentence."""
    for number, proposal in enumerate(weeks):
        try:
            approve(proposal, folder, **how)
        except BadInput as error:
            return number, str(error)
    return len(weeks), ""


def held(folder):
    (one,) = read_baseline(folder / "h200.json").entries
    return one


def ids(sessions):
    return [session.run_id for session in sessions]


def test_one_percent_a_week_is_refused_as_soon_as_it_is_beyond_the_tolerance(make, tmp_path):
    weeks = weekly(make, 0.01)
    approved, sentence = approve_weekly(tmp_path, weeks)
    assert (approved, "since 2026-01-05, over 5 renewals" in sentence) == (5, True)
    text = (tmp_path / "h200.json").read_text()
    with pytest.raises(BadInput, match="accept the change with --accept-slower"):
        approve(weeks[-1], tmp_path, replaces=True)
    assert (tmp_path / "h200.json").read_text() == text
    assert approve_weekly(tmp_path / "replacing", weeks, replaces=True)[0] == 5
    # The entry's own tolerance counts.
    assert approve_weekly(tmp_path / "wide", weekly(make, 0.01, tolerance=0.08))[0] == 8
    # One step beyond it is refused too.
    one = tmp_path / "one"
    approve(week(make, 0), one)
    with pytest.raises(
        BadInput, match=r"takes \+8\.0 % time since 2026-01-05, over 1 renewal \(tolerance 5 %\)"
    ):
        changes(week(make, 1, 0.08), one)
    (change,) = changes(week(make, 1, 0.08), one, accept_slower=True)
    assert (change.action, change.why, change.entry.anchor) == ("replaced", "slower +8.0 %", ())


def test_the_chain_tells_of_each_renewal_how_far_it_went(make, tmp_path):
    path = approve(week(make, 0), tmp_path)
    # Without the fields the oldest sessions are the anchor.
    assert not {"anchor", "renewals"} & set(json.loads(path.read_text())["entries"][0])
    assert ids(anchor_of(held(tmp_path))) == ["run-0", "run-1", "run-2"]
    approve(week(make, 1, 0.01), tmp_path)
    assert "anchor" not in json.loads(path.read_text())["entries"][0]
    approve(week(make, 2, 0.01), tmp_path)
    first, second = held(tmp_path).renewals
    assert (first.sessions, first.accepted_slower) == (7, False)
    assert (first.change, first.drift) == (pytest.approx(0.01), pytest.approx(0.01))
    assert (second.change, second.drift) == (pytest.approx(0.015, abs=1e-4), pytest.approx(0.0201))
    assert datetime.datetime.fromisoformat(second.approved)


def test_slower_code_that_is_accepted_is_the_new_anchor_and_says_so_each_time(make, tmp_path):
    weeks = weekly(make, 0.01)
    assert approve_weekly(tmp_path, weeks)[0] == 5
    approve(weeks[5], tmp_path, accept_slower=True)
    assert ids(held(tmp_path).anchor) == ["run-35", "run-36", "run-37"]
    assert [renewal.accepted_slower for renewal in held(tmp_path).renewals] == [False] * 4 + [True]
    assert approve_weekly(tmp_path, weeks[6:])[0] == 4
    # Where nothing is too slow the anchor stays.
    approve_weekly(tmp_path / "kept", weeks[:5], accept_slower=True)
    assert ids(anchor_of(held(tmp_path / "kept"))) == ["run-0", "run-1", "run-2"]


def test_faster_code_and_times_of_something_else_begin_a_chain_of_their_own(make, tmp_path):
    for replaces in (False, True):
        folder = tmp_path / f"{replaces}"
        approve_weekly(folder, weekly(make, 0.01, weeks=3))
        approve(week(make, 3, -0.04), folder, replaces=replaces)
        assert (held(folder).anchor, held(folder).renewals) == ((), ())
        assert anchor_of(held(folder))[0].run_id == "run-21"
    approve_weekly(tmp_path, weekly(make, weeks=3))
    approve(week(make, 3, 0.5, work=make.copy(2**27)), tmp_path)
    assert (held(tmp_path).anchor, held(tmp_path).renewals) == ((), ())


def test_one_entry_that_crept_stops_the_whole_approval(make, tmp_path):
    both = [
        Baseline(
            "h200",
            week(make, number).entries + week(make, number, rate, key=make.key("other")).entries,
        )
        for number, rate in ((0, 0.0), (1, 0.06))
    ]
    approve(both[0], tmp_path)
    text = (tmp_path / "h200.json").read_text()
    with pytest.raises(BadInput, match=r"^other\[64MiB\] takes \+6\.0 % time"):
        approve(both[1], tmp_path)
    assert (tmp_path / "h200.json").read_text() == text
    approve(both[1], tmp_path, only=["memcpy"])


def test_an_anchor_grows_to_three_sessions_and_sixty_renewals_are_kept(make):
    sessions = [
        session for number in range(6) for session in week(make, number).entries[0].sessions
    ]
    young = make.measured(sessions=sessions[:1])
    for one in sessions[1:]:
        young = renew(make.measured(sessions=(one,)), young, priors()).entry
    assert (ids(young.anchor), young.sessions[0].run_id) == (["run-0", "run-1", "run-2"], "run-12")
    old = tuple(
        Renewal("2025-01-01T00:00:00Z", number, 0.0, 0.0) for number in range(MOST_RENEWALS)
    )
    known = make.measured(sessions=week(make, 0).entries[0].sessions, renewals=old)
    after = renew(week(make, 1).entries[0], known, priors()).entry
    assert (after.renewals[:-1], len(after.renewals)) == (old[1:], MOST_RENEWALS)
    with pytest.raises(
        BadInput,
        match="a threshold entry has anchor; only entries of another kind may have these fields",
    ):
        make.published(anchor=(make.session(),))
