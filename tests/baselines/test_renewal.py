"""Renewing: noise neither tightens nor loosens a baseline, a sure difference replaces it, the rest stays untouched."""

import json
import math
import multiprocessing
import random
from dataclasses import replace
from statistics import fmean

import pytest
from filelock import SoftFileLock

from pytest_roofline.baselines.files import read_baseline, write_baseline
from pytest_roofline.baselines.pruning import Unused
from pytest_roofline.baselines.renewal import MOST_SESSIONS, approve, changes, newest, renew, select
from pytest_roofline.cli.upkeep import _remove
from pytest_roofline.core import writing
from pytest_roofline.core.entries import Baseline, Session
from pytest_roofline.core.errors import BadFile, BadInput, CannotStore
from pytest_roofline.core.work import Work
from pytest_roofline.stats.spread import priors


def session(number, *medians, device="GPU-1", **changes):
    started = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T03:00:00Z"
    return Session(f"run-{number}", started, medians or (1.0,), device, **changes)


def nights(first, *medians, **changes):
    """Sessions of one process each, a night after the other."""
    return tuple(session(first + number, value, **changes) for number, value in enumerate(medians))


def entry(make, *sessions, benchmark="memcpy_d2d", **changes):
    return make.measured(key=make.key(benchmark), sessions=sessions, **changes)


STEADY = (1.0, 1.003, 0.998, 1.001, 0.999)


@pytest.fixture
def before(make):
    """Five nights that agree."""
    return entry(make, *nights(0, *STEADY))


def medians(change):
    return change.entry.medians


def test_an_entry_that_is_not_there_is_new(make):
    change = renew(entry(make, session(0, 2.0)), None, priors())
    assert (change.action, change.before_s, change.after_s) == ("new", None, pytest.approx(2.0))


def test_sessions_that_differ_by_noise_join(make, before):
    change = renew(entry(make, session(9, 1.01)), before, priors())
    assert (change.action, change.why) == ("joined", "")
    assert medians(change) == (*STEADY, 1.01)


def test_a_sure_improvement_replaces_the_old_sessions_whole(make, before):
    change = renew(entry(make, *nights(9, 0.85, 0.851)), before, priors())
    assert (change.action, change.why) == ("replaced", "IMPROVED -15.0 %")
    assert medians(change) == (0.85, 0.851)


def test_a_sure_slowdown_that_a_person_proposes_replaces_them_too(make, before):
    change = renew(entry(make, *nights(9, 1.2, 1.201)), before, priors())
    assert (change.action, change.why) == ("replaced", "slower +20.0 %")
    assert medians(change) == (1.2, 1.201)


@pytest.mark.parametrize("factor", [1.04, 1 / 1.04])
def test_a_difference_within_the_tolerance_joins_however_sure(make, before, factor):
    many = [factor * value for value in STEADY * 3]
    assert renew(entry(make, *nights(9, *many)), before, priors()).action == "joined"


@pytest.mark.parametrize("factor", [1.07, 1 / 1.07])
def test_a_difference_beyond_the_tolerance_that_chance_may_have_made_joins(make, factor):
    before = entry(make, *nights(0, 1.0, 1.08, 0.93))
    assert renew(entry(make, session(9, factor)), before, priors()).action == "joined"


@pytest.mark.parametrize(("tolerance", "action"), [(0.5, "joined"), (None, "replaced")])
def test_the_entrys_own_tolerance_decides(make, before, tolerance, action):
    change = renew(entry(make, *nights(9, 1.2, 1.201)), replace(before, tolerance=tolerance), priors())
    assert (change.action, change.entry.tolerance) == (action, tolerance)


@pytest.mark.parametrize("value", [0.5, 1.0, 2.0])
def test_on_request_the_new_sessions_replace_whatever_was_found(make, before, value):
    change = renew(entry(make, session(9, value)), before, priors(), replaces=True)
    assert (change.action, change.why, medians(change)) == ("replaced", "--replace", (value,))


def test_changed_work_replaces_since_the_times_are_of_something_else(make, before):
    change = renew(entry(make, session(9, 1.0), work=make.copy(2**27)), before, priors())
    assert (change.action, change.why, medians(change)) == ("replaced", "its work changed", (1.0,))


@pytest.mark.parametrize(("old", "new"), [((), ("host_bound",)), (("host_bound",), ())])
def test_another_achieved_mode_replaces(make, old, new):
    before = entry(make, *nights(0, *STEADY, achieved=old))
    change = renew(entry(make, session(9, 1.0, achieved=new)), before, priors())
    assert (change.action, change.why, medians(change)) == ("replaced", "timed in another mode", (1.0,))


def test_sessions_that_are_there_already_change_nothing(make, before):
    change = renew(entry(make, *before.sessions[1:3]), before, priors())
    assert (change.action, change.entry) == ("unchanged", before)


def test_only_what_is_new_of_a_proposal_is_judged_and_no_run_counts_twice(make, before):
    """Whoever proposes all nightlies again must not water the newest down with those that the baseline has."""
    change = renew(entry(make, *before.sessions, *nights(9, 1.01, 1.0)), before, priors())
    assert change.action == "joined"
    assert [s.run_id for s in change.entry.sessions] == ["run-0", "run-1", "run-2", "run-3", "run-4", "run-9", "run-10"]
    month = entry(make, *nights(0, *STEADY * 4))
    assert renew(entry(make, *month.sessions, *nights(20, 0.85, 0.851)), month, priors()).action == "replaced"


def test_a_run_that_was_summarised_anew_takes_the_place_of_its_old_self(make, before):
    change = renew(entry(make, replace(before.sessions[0], process_medians=(1.0005, 1.0006))), before, priors())
    assert medians(change) == (1.0005, 1.0006, *STEADY[1:])


@pytest.mark.parametrize("value", [0.5, 0.85, 1.0, 1.2, 2.0])
@pytest.mark.parametrize("replaces", [False, True])
def test_approving_the_same_again_changes_nothing(make, before, value, replaces):
    proposed = entry(make, before.sessions[4], *nights(9, value, value))
    first = renew(proposed, before, priors(), replaces=replaces)
    assert renew(proposed, first.entry, priors(), replaces=replaces).action == "unchanged"


def test_the_newest_thirty_sessions_are_kept(make):
    before = entry(make, *nights(0, *[1.0] * 29))
    change = renew(entry(make, *nights(29, *[1.001] * 5)), before, priors())
    assert [s.run_id for s in change.entry.sessions] == [f"run-{number}" for number in range(4, 34)]
    assert len(change.entry.sessions) == MOST_SESSIONS


def test_sessions_older_than_the_thirty_newest_change_nothing(make):
    before = entry(make, *nights(20, *[1.0] * 30))
    assert renew(entry(make, *nights(0, 0.5, 0.5)), before, priors()).action == "unchanged"


def test_a_session_without_a_date_counts_as_the_oldest():
    undated = replace(session(40), started="some day")
    assert newest([session(1), undated, session(0)]) == (undated, session(0), session(1))


def test_a_new_session_is_judged_on_its_own_device(make):
    """Devices lie several percent apart: six percent on a known device are sure, on an unknown one they are not."""
    before = entry(make, *nights(0, *STEADY, *STEADY), *nights(15, *[1.3 * value for value in STEADY], device="GPU-2"))
    slow = [entry(make, *nights(30, 1.09, 1.091, 1.09, device=device)) for device in ("GPU-1", "GPU-3")]
    assert [renew(one, before, priors()).action for one in slow] == ["replaced", "joined"]
    mixed = entry(make, session(29, 1.0, device="GPU-3"), *slow[0].sessions)
    assert renew(mixed, before, priors()).action == "replaced"


def test_a_published_figure_is_replaced_by_its_successor(make):
    change = renew(make.published(value=120.0), make.published(value=100.0), priors())
    assert (change.action, change.entry.value) == ("replaced", 120.0)
    assert renew(make.published(), make.published(), priors()).action == "unchanged"


@pytest.mark.parametrize(("own", "kept"), [(None, 0.2), (0.1, 0.1)])
@pytest.mark.parametrize("value", [1.0, 3.0])
def test_a_persons_tolerance_survives_a_renewal_that_names_none(make, before, own, kept, value):
    proposed = entry(make, *nights(9, value, value), tolerance=own)
    assert renew(proposed, replace(before, tolerance=0.2), priors()).entry.tolerance == kept


def test_a_tolerance_alone_is_a_change(make, before):
    change = renew(replace(before, tolerance=0.1), before, priors())
    assert (change.action, change.why, change.entry.tolerance) == ("replaced", "tolerance", 0.1)


# Ten renewals of unchanged code, a night each; σ of a night is that of session and process together.
RENEWALS, CHAINS, SIGMA = 10, 120, 0.01 * math.sqrt(2)


def chain(make, dice, tolerance):
    """The log centre after the renewals, and what min(old, new) would have made of the same nights, in σ."""
    logs = [dice.gauss(0, 0.01) + dice.gauss(0, 0.01) for _ in range(RENEWALS + 1)]
    held = entry(make, session(0, math.exp(logs[0])), tolerance=tolerance)
    for number, value in enumerate(logs[1:], 1):
        held = renew(entry(make, session(number, math.exp(value))), held, priors()).entry
    return fmean(map(math.log, held.medians)) / SIGMA, min(logs) / SIGMA


@pytest.mark.parametrize("tolerance", [0.05, 0.002])
def test_ten_renewals_of_unchanged_code_drift_nowhere_while_the_minimum_would(make, tolerance):
    """Also where the tolerance is far below the noise, so that chance replaces a baseline now and then."""
    dice = random.Random(4)
    renewed, luckiest = zip(*(chain(make, dice, tolerance) for _ in range(CHAINS)), strict=True)
    spread = math.sqrt(fmean(value**2 for value in renewed) / CHAINS)
    assert abs(fmean(renewed)) < 4 * spread
    # The mean of eleven nights is known to 0.3 σ; what is replaced now and then, a little less well.
    assert math.sqrt(fmean(value**2 for value in renewed)) < 0.5
    assert fmean(luckiest) == pytest.approx(-1.55, abs=0.15)


def test_an_approval_makes_the_file_of_the_family(make, tmp_path):
    path = approve(Baseline("h200", (make.measured(),)), tmp_path / "baselines")
    assert path == tmp_path / "baselines" / "h200.json"
    assert read_baseline(path) == Baseline("h200", (make.measured(),))


@pytest.fixture
def folder(make, before, tmp_path):
    """A folder with three entries; those of a.json would all be replaced by the proposal's."""
    write_baseline(tmp_path / "h200.json", Baseline("h200", (before, entry(make, session(0, 7.0), benchmark="other"))))
    return tmp_path


def held(folder):
    return {one.label: one.medians for one in read_baseline(folder / "h200.json").entries}


def test_an_approval_touches_only_the_entries_that_it_names(make, tmp_path):
    kept = (make.measured(7.0, key=make.key("other"), tolerance=0.2), make.published())
    write_baseline(tmp_path / "h200.json", Baseline("h200", (*kept, make.measured(1.0))))
    before = (tmp_path / "h200.json").read_text()
    approve(Baseline("h200", (make.measured(0.5),)), tmp_path)
    after = (tmp_path / "h200.json").read_text()
    changed = [(old, new) for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new]
    assert [(old.strip(), new.strip()) for old, new in changed] == [("1.0", "0.5")]


def proposal(make):
    return Baseline(
        "h200",
        (
            entry(make, *nights(9, 3.0, 3.0)),
            entry(make, *nights(9, 8.0, 8.0), benchmark="other"),
            entry(make, session(9, 5.0), benchmark="new"),
        ),
    )


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ((), [(3.0, 3.0), (8.0, 8.0), (5.0,)]),
        (("memcpy",), [(3.0, 3.0), (7.0,), None]),
        (("memcpy_d2d[64MiB]",), [(3.0, 3.0), (7.0,), None]),
        (("new", "other"), [STEADY, (8.0, 8.0), (5.0,)]),
        (("64MiB",), [(3.0, 3.0), (8.0, 8.0), (5.0,)]),
    ],
)
def test_only_the_selected_entries_are_approved(make, folder, only, expected):
    approve(proposal(make), folder, only=only, accept_slower=True)
    found = held(folder)
    assert [found.get(f"{name}[64MiB]") for name in ("memcpy_d2d", "other", "new")] == expected


def test_a_selection_that_no_label_has_is_refused_and_nothing_is_written(make, folder):
    text = (folder / "h200.json").read_text()
    with pytest.raises(BadInput, match=r"no entry has 'nonsense' in its label; there are memcpy_d2d\[64MiB\], other"):
        approve(proposal(make), folder, only=("memcpy", "nonsense"))
    assert (folder / "h200.json").read_text() == text


def test_a_refused_selection_among_many_names_a_few(make):
    many = [make.measured(key=make.key(f"t{number}")) for number in range(40)]
    with pytest.raises(BadInput, match=r"t4\[64MiB\] and 35 more$"):
        select(many, ["x"])


def test_what_would_change_is_told_for_every_entry_before_it_is_done(make, folder):
    text = (folder / "h200.json").read_text()
    found = [
        (c.entry.benchmark, c.action, c.before_s, c.after_s)
        for c in changes(proposal(make), folder, accept_slower=True)
    ]
    assert found == [
        ("memcpy_d2d", "replaced", pytest.approx(1.0, rel=0.01), pytest.approx(3.0)),
        ("other", "replaced", pytest.approx(7.0), pytest.approx(8.0)),
        ("new", "new", None, pytest.approx(5.0)),
    ]
    assert (folder / "h200.json").read_text() == text


def test_a_proposal_changes_nothing_before_it_is_approved(make, tmp_path):
    changes(Baseline("h200", (make.measured(),)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_after_an_approval_all_is_unchanged(make, folder):
    approve(proposal(make), folder, accept_slower=True)
    assert {change.action for change in changes(proposal(make), folder)} == {"unchanged"}


def test_an_approved_file_is_sorted_and_ends_in_a_newline(make, tmp_path):
    entries = tuple(make.measured(key=make.key(name)) for name in ("c", "a", "b"))
    text = approve(Baseline("h200", entries), tmp_path).read_text()
    assert [one["benchmark"] for one in json.loads(text)["entries"]] == ["a", "b", "c"]
    assert text.endswith("}\n")


def test_a_damaged_baseline_is_not_replaced(make, tmp_path):
    (tmp_path / "h200.json").write_text("{")
    with pytest.raises(BadFile):
        approve(Baseline("h200", (make.measured(),)), tmp_path)
    assert (tmp_path / "h200.json").read_text() == "{"


def test_work_that_began_to_state_its_tokens_joins_and_states_them_from_then_on(make):
    before = entry(make, *nights(0, *STEADY), work=Work(flops=8))
    change = renew(entry(make, session(9, 1.01), work=Work(flops=8, tokens=5)), before, priors())
    assert (change.action, change.entry.work) == ("joined", Work(flops=8, tokens=5))


def test_the_same_sessions_with_tokens_change_nothing(make):
    before = entry(make, *nights(0, *STEADY), work=Work(flops=8))
    change = renew(replace(before, work=Work(flops=8, tokens=5)), before, priors())
    assert (change.action, change.entry) == ("unchanged", before)


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


def labels(folder):
    return sorted(one.benchmark for one in read_baseline(folder / "h200.json").entries)


@pytest.mark.parametrize("pair", range(5))
def test_of_two_approvals_at_once_none_loses_an_entry(make, tmp_path, pair):
    first, second = (Baseline("h200", (entry(make, session(1), benchmark=name),)) for name in ("one", "other"))
    at_once(lambda: approve(first, tmp_path), lambda: approve(second, tmp_path))
    assert labels(tmp_path) == ["one", "other"]


def remove(folder, benchmark):
    path = folder / "h200.json"
    gone = next(one for one in read_baseline(path).entries if one.benchmark == benchmark)
    _remove({path: [Unused(gone, benchmark_known=False)]})


@pytest.mark.parametrize("pair", range(3))
def test_a_removal_beside_an_approval_or_another_removal_loses_nothing_and_brings_nothing_back(make, tmp_path, pair):
    known = Baseline("h200", tuple(entry(make, session(1), benchmark=name) for name in ("kept", "old", "older")))
    write_baseline(tmp_path / "h200.json", known)
    new = Baseline("h200", (entry(make, session(1), benchmark="new"),))
    at_once(lambda: approve(new, tmp_path), lambda: remove(tmp_path, "old"), lambda: remove(tmp_path, "older"))
    assert labels(tmp_path) == ["kept", "new"]


def test_nothing_is_left_beside_the_file(make, tmp_path):
    approve(Baseline("h200", (entry(make, session(1)),)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["h200.json"]


def test_a_file_that_another_process_holds_is_named_with_its_lock(make, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "PATIENCE_S", 0.05)
    told = r"h200\.json is being changed by another process.*\.h200\.json\.lock.*remove that file"
    with SoftFileLock(tmp_path / ".h200.json.lock"), pytest.raises(CannotStore, match=told):
        approve(Baseline("h200", (entry(make, session(1)),)), tmp_path)
    assert not (tmp_path / "h200.json").exists()
