"""Two numbers are held against each other only where the same thing was timed: by the device or by its host, in memory
or in a cache."""

import itertools

import pytest

from pytest_roofline.baselines.comparators import BaselineComparator, RunComparator
from pytest_roofline.baselines.comparing import compare
from pytest_roofline.baselines.files import Entries, read_baseline, write_baseline
from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.renewal import approve
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.samples import ACHIEVED, Samples
from pytest_roofline.stats.curves import summarise
from pytest_roofline.stats.verdicts import Kind, other_mode

AS_ASKED = ()
BOUND = ("host_bound",)
# As asked, by each label, and by two of them at once.
MODES = [AS_ASKED, *((label,) for label in ACHIEVED), ("host_bound", "wall_clock")]
DIFFERENT = list(itertools.permutations(MODES, 2))
# Of the time before: what would be an improvement, no change and a regression.
FACTORS = (0.5, 1.0, 2.0)
OTHER_THINGS = "two different things were timed"


def timed(make, seconds, labels=AS_ASKED, **changes):
    samples = Samples((seconds,), 1, 1e-9, labels=labels, mode=changes.pop("mode", "events"))
    return make.measurement(samples=samples, **changes)


def rounds(make, count, seconds, labels):
    return [timed(make, seconds, labels, process=f"process-{number}") for number in range(count)]


def saved(make, path, *measurements):
    """A file that holds measurements: a run, or the baseline made of one, by its suffix."""
    run = make.save(path.with_suffix(".jsonl"), *measurements)
    if path.suffix == ".json":
        write_baseline(path, propose([make.run(run, *measurements)]).baseline)
    return path


def compared(old, new):
    (row,) = compare([old], [new]).rows
    return row


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("before", "after"), DIFFERENT)
def test_what_was_timed_in_another_mode_is_invalid_however_fast(make, tmp_path, before, after, factor):
    old = saved(make, tmp_path / "old.jsonl", timed(make, 1.0, before))
    new = saved(make, tmp_path / "new.jsonl", timed(make, factor, after))
    assert compared(old, new).verdict == Kind.INVALID


@pytest.mark.parametrize("suffixes", list(itertools.product([".json", ".jsonl"], repeat=2)))
@pytest.mark.parametrize(("before", "after"), [(AS_ASKED, BOUND), (BOUND, AS_ASKED)])
def test_runs_and_baselines_know_alike_how_they_were_timed(make, tmp_path, before, after, suffixes):
    old = saved(make, (tmp_path / "old").with_suffix(suffixes[0]), timed(make, 1.0, before))
    new = saved(make, (tmp_path / "new").with_suffix(suffixes[1]), timed(make, 1.0, after))
    found = compared(old, new)
    assert found.verdict == Kind.INVALID
    assert OTHER_THINGS in found.reason


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("factor", "kind"), list(zip(FACTORS, (Kind.IMPROVED, Kind.PASSED, Kind.REGRESSED), strict=True))
)
def test_what_was_timed_in_the_same_mode_is_judged(make, tmp_path, mode, factor, kind, suffix):
    old = saved(make, (tmp_path / "old").with_suffix(suffix), *rounds(make, 5, 1.0, mode))
    new = saved(make, tmp_path / "new.jsonl", *rounds(make, 3, factor, mode))
    assert compared(old, new).verdict == kind


@pytest.mark.parametrize(("before", "after"), [(("noisy",), AS_ASKED), (("drifting", "noisy"), ("noisy",))])
def test_labels_that_do_not_change_what_was_timed_do_not_matter(make, tmp_path, before, after):
    old = saved(make, tmp_path / "old.jsonl", timed(make, 1.0, before))
    new = saved(make, tmp_path / "new.jsonl", timed(make, 1.0, after))
    assert compared(old, new).verdict == Kind.PASSED


def test_another_clock_alone_does_not_keep_times_apart(make, tmp_path):
    old = saved(make, tmp_path / "old.jsonl", timed(make, 1.0))
    new = saved(make, tmp_path / "new.jsonl", timed(make, 1.0, mode="host"))
    assert compared(old, new).verdict == Kind.PASSED


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
@pytest.mark.parametrize(("before", "after"), [("events", "graph"), ("graph", "events")])
def test_a_graphs_replay_and_its_calls_one_by_one_are_kept_apart(make, tmp_path, before, after, suffix):
    # What lies between two launches, a third of a short kernel, is in the one and not in the other.
    old = saved(make, (tmp_path / "old").with_suffix(suffix), *[timed(make, 1.0, mode=before)])
    new = saved(make, tmp_path / "new.jsonl", timed(make, 1.3, mode=after))
    found = compared(old, new)
    words = {"events": "timed as asked", "graph": "timed by replaying a graph"}
    assert found.verdict == Kind.INVALID
    assert f"this is {words[after]}, the baseline {words[before]}: {OTHER_THINGS}" in found.reason


@pytest.mark.parametrize(("modes", "kept"), [("geg", "graph"), ("gee", "events"), ("ge", "graph"), ("eegge", "events")])
def test_a_proposal_takes_the_mode_of_most_processes_and_says_so(make, tmp_path, modes, kept):
    names = {"g": "graph", "e": "events"}
    runs = [
        make.run(tmp_path / f"{n}.jsonl", timed(make, 1.0, mode=names[mode], process=f"p{n}"))
        for n, mode in enumerate(modes)
    ]
    proposal = propose(runs)
    sessions = [session for entry in proposal.baseline.entries for session in entry.sessions]
    more = sum(names[mode] == kept for mode in modes)
    assert [session.environment["timed by"] for session in sessions] == [kept] * more
    ways = {"graph": "by replaying a graph", "events": "call by call"}
    other = "events" if kept == "graph" else "graph"
    assert proposal.left_out == (
        f"memcpy_d2d[64MiB]: {len(modes) - more} of {len(modes)} processes timed it {ways[other]}, the others "
        f"{ways[kept]}, which is another thing; the baseline takes the {more}, and runs follow it",
    )


def test_a_change_of_mode_is_told_in_words_with_what_to_do(make):
    reference = make.reference(achieved=frozenset([AS_ASKED]))
    assert other_mode(BOUND, reference) == (
        "this is host-bound, the baseline timed as asked: two different things were timed; find out why it changed, "
        "or record the baseline anew"
    )


def test_a_change_back_names_what_the_baseline_was(make):
    reference = make.reference(achieved=frozenset([("cache_resident", "wall_clock")]))
    assert other_mode(AS_ASKED, reference).startswith("this is timed as asked, the baseline cache-resident, wall-clock")


def test_without_a_reference_there_is_no_other_mode():
    for mode in MODES:
        assert other_mode(mode, None) == "", mode


@pytest.mark.parametrize("after", [AS_ASKED, BOUND])
def test_runs_of_two_modes_together_are_no_reference_for_either(make, tmp_path, after):
    """A host-bound run among others widens the spread until a time that has doubled is merely INCONCLUSIVE."""
    runs = [
        make.run(tmp_path / "one.jsonl", timed(make, 1.0)),
        make.run(tmp_path / "two.jsonl", timed(make, 9.0, BOUND, process="process-2")),
    ]
    assert OTHER_THINGS in other_mode(after, RunComparator(runs).reference(make.key()))


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_runs_timed_in_different_modes_never_become_one_entry(make, tmp_path, first, second):
    runs = [
        make.run(tmp_path / f"{number}.jsonl", timed(make, 1.0, labels))
        for number, labels in enumerate([first, second])
    ]
    with pytest.raises(BadInput, match="cannot stand in one entry"):
        propose(runs)


def test_the_refusal_names_both_runs_and_both_modes(make, tmp_path):
    runs = [make.run(tmp_path / f"{labels}.jsonl", timed(make, 1.0, labels)) for labels in (AS_ASKED, BOUND)]
    with pytest.raises(BadInput) as error:
        propose(runs)
    assert str(error.value) == (
        f"memcpy_d2d[64MiB] was timed as asked in {runs[0].path} and host_bound in {runs[1].path}, so its times "
        "cannot stand in one entry; find out why, and propose runs of one kind"
    )


def test_a_rerun_in_another_mode_is_refused_too(make, tmp_path):
    run = make.run(tmp_path / "r.jsonl", timed(make, 1.0), timed(make, 1.0, BOUND))
    with pytest.raises(BadInput, match="host_bound"):
        propose([run])


@pytest.mark.parametrize("mode", MODES)
def test_a_baseline_keeps_what_was_achieved_from_proposal_to_comparison(make, tmp_path, mode):
    proposal = propose([make.run(tmp_path / "r.jsonl", timed(make, 1.0, mode))]).baseline
    path = approve(proposal, tmp_path)
    assert [session.achieved for entry in read_baseline(path).entries for session in entry.sessions] == [mode]
    assert BaselineComparator(Entries.merged([path])).reference(make.key()).achieved == {mode}


def test_a_baseline_keeps_by_which_clock_each_session_was_timed(make, tmp_path):
    runs = [
        make.run(tmp_path / f"{mode}.jsonl", timed(make, 1.0, mode=mode, process=mode)) for mode in ("events", "host")
    ]
    path = approve(propose(runs).baseline, tmp_path)
    reference = BaselineComparator(Entries.merged([path])).reference(make.key())
    assert [facts["timed by"] for facts in reference.environments] == ["events", "host"]


def test_every_process_of_a_run_says_by_which_clock_it_was_timed(make, tmp_path):
    modes = ("events", "graph")
    run = make.run(tmp_path / "r.jsonl", *(timed(make, 1.0, mode=mode, process=mode) for mode in modes))
    reference = RunComparator([run]).reference(make.key())
    assert [facts["timed by"] for facts in reference.environments] == ["events", "graph"]


def test_a_baseline_of_old_is_one_that_was_timed_as_asked(make, tmp_path):
    session = make.session(1.0, device_uuid="GPU-1")
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(sessions=(session,)),)))
    assert "achieved" not in (tmp_path / "h200.json").read_text()
    new = saved(make, tmp_path / "new.jsonl", timed(make, 1.0))
    assert compared(tmp_path / "h200.json", new).verdict == Kind.PASSED


@pytest.mark.parametrize(("labels", "count"), [(AS_ASKED, 1), (("unresolved",), 0)])
def test_a_sweep_of_unresolved_times_has_no_curve(make, labels, count):
    sizes = [make.key(size_bytes=2**power) for power in range(10, 16)]
    assert len(summarise(timed(make, 1e-3, labels, key=key) for key in sizes)) == count
