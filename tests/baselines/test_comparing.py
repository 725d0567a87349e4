"""The offline comparison of two sides, by the same verdicts as a live run, and only of what was timed alike."""

import itertools
import math
from statistics import fmean

import pytest

from pytest_roofline.baselines.comparators import BaselineComparator, RunComparator
from pytest_roofline.baselines.comparing import compare
from pytest_roofline.baselines.files import Entries, read_baseline, write_baseline
from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.baselines.renewal import approve
from pytest_roofline.baselines.rows import odd_behind
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadInput, OtherHardware
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import CANARIES, CANARY_BENCHMARK
from pytest_roofline.core.reasons import ReasonCode
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.samples import ACHIEVED, Samples
from pytest_roofline.core.verdicts import Kind
from pytest_roofline.report.comparison import comparison_as_json, comparison_lines
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import judge, other_mode


def words(rows):
    return [(row.label.partition("[")[0], row.verdict) for row in rows]


def pair(make, folder, old, new):
    return [make.save(folder / "old.jsonl", *old)], [make.save(folder / "new.jsonl", *new)]


def times(make, rounds=1, **seconds):
    return [
        make.measurement(value, key=make.key(name), process=f"process-{number}")
        for name, value in seconds.items()
        for number in range(rounds)
    ]


def test_rows_stand_worst_first_each_held_against_the_others(make, tmp_path):
    old = times(make, 5, same=1.0, bad=1.0, better=1.0, worse=1.0, unsure=1.0, gone=1.0)
    new = times(make, 5, same=1.0, bad=1.2, better=0.5, worse=2.0, unsure=1.03, unknown=1.0)
    compared = compare(*pair(make, tmp_path, old, new))
    assert words(compared.rows) == [
        *(("worse", "REGRESSED"), ("bad", "REGRESSED"), ("unsure", "INCONCLUSIVE")),
        *(("unknown", "NO BASELINE"), ("better", "IMPROVED"), ("same", "PASSED")),
    ]
    assert compared.only_old == ("gone[64MiB]",)
    worst = compared.rows[0]
    assert (worst.baseline_time_s, worst.time_s, worst.change) == pytest.approx((1.0, 2.0, 1.0))
    judged = [row.time_verdict for row in compared.rows if row.time_verdict.p is not None]
    assert all(one.p_adjusted >= one.p for one in judged)
    assert any(one.p_adjusted > one.p for one in judged)
    same = times(make, a=1.0, b=2.0)
    rows = compare(*pair(make, tmp_path, same, same)).rows
    assert words(rows) == [("a", "PASSED"), ("b", "PASSED")]
    # The same difference decides alone, and not among three hundred.
    slow, others = times(make, 5, a=1.12), {f"b{number}": 1.0 for number in range(300)}
    among = pair(
        make, tmp_path, times(make, 5, a=1.0, **others), [*slow, *times(make, 5, **others)]
    )
    assert compare(*among).rows[0].verdict == Kind.INCONCLUSIVE
    assert (
        compare(*pair(make, tmp_path, times(make, 5, a=1.0), slow)).rows[0].verdict
        == Kind.REGRESSED
    )


def test_the_tolerance_is_the_entrys_then_the_callers_and_a_cpu_has_the_spread_of_a_cpu(
    make, tmp_path
):
    (row,) = compare(
        *pair(make, tmp_path, times(make, a=1.0), times(make, a=1.2)), tolerance=0.5
    ).rows
    assert (row.verdict, row.tolerance) == (Kind.PASSED, 0.5)
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(1.0, tolerance=0.5),)))
    new = make.save(tmp_path / "new.jsonl", make.measurement(1.2))
    (row,) = compare([tmp_path / "h200.json"], [new], tolerance=0.01).rows
    assert (row.verdict, row.tolerance) == (Kind.PASSED, 0.5)
    cpu = make.key(hardware=HardwareKey("amd-epyc", "24gib", "2-cores", 1, "none"))
    old, new = ([make.measurement(value, key=cpu)] for value in (1.0, 1.3))
    assert compare(*pair(make, tmp_path, old, new)).rows[0].verdict == Kind.INCONCLUSIVE


def test_what_cannot_be_compared_is_refused_with_the_reason(make, tmp_path):
    other = make.measurement(
        key=make.key(hardware=make.hardware(product="h100-sxm", memory="80gb"))
    )
    old, new = pair(make, tmp_path, [other], [make.measurement()])
    with pytest.raises(OtherHardware) as error:
        compare(old, new)
    assert str(error.value) == (
        f"{new[0]} was measured on h200-sxm, 141gb, but {old[0]} holds only h100-sxm, 80gb; "
        "expected the same hardware on both sides"
    )
    key = make.key(CANARY_BENCHMARK, name=CANARIES[0])
    canary = make.measurement(key=key, invalid="neighbours")
    spoiled = [
        make.measurement(1.0, key=make.key(name), invalid="neighbours") for name in ("a", "b")
    ]
    for before, after, words_ in [
        (
            times(make, a=1.0),
            times(make, b=1.0),
            "share no measurement; expected runs of the same tests",
        ),
        (
            times(make, a=1.0, b=1.0),
            spoiled,
            r"have no valid measurement in common: a\[64MiB\]: neighbours; and 1 more$",
        ),
        # What is of no test is shared by all runs.
        ([canary], [canary], "share no measurement"),
        ([], times(make, a=1.0), "share no measurement"),
        (times(make, a=1.0), [], "share no measurement"),
    ]:
        with pytest.raises(BadInput, match=words_):
            compare(*pair(make, tmp_path, before, after))


def test_one_process_on_both_sides_is_refused_whatever_its_file_is_called(make, tmp_path):
    first, other = (make.save(tmp_path / f"{name}.jsonl", *times(make, 3, a=1.0)) for name in "ab")
    (tmp_path / "copy.jsonl").write_bytes(first.read_bytes())
    kernel = Resources(ResourceKey("flash", {}, "sm_90"), "test", "flash", "", {"registers": 9})
    compiled = make.save(tmp_path / "compiled.jsonl", kernel)
    for old, new, told in (
        ([first], [first], "run a is on both sides"),
        ([first], [other, first], "run a is on both sides"),
        (
            [first, other],
            [tmp_path / "copy.jsonl"],
            r"the run in .*a\.jsonl and .*copy\.jsonl is on both",
        ),
        ([compiled], [compiled], "run compiled is on both sides"),
    ):
        with pytest.raises(BadInput, match=told):
            compare(old, new)
    held = [make.session(1.0, run_id=f"day-{day}", started=f"2026-01-0{day}") for day in (1, 2)]
    for name, sessions in (("all", held), ("copy", held), ("first", held[:1])):
        entries = (make.measured(sessions=tuple(sessions)),)
        write_baseline(tmp_path / f"{name}.json", Baseline("h200", entries))
    run = make.save(
        tmp_path / "day-2.jsonl", make.measurement(), run_id="day-2", started="2026-01-02"
    )
    for old, new in ((["all.json"], ["copy.json"]), (["all.json"], ["day-2.jsonl"])):
        with pytest.raises(BadInput, match=r"hold the same sessions|is a session of"):
            compare([tmp_path / path for path in old], [tmp_path / path for path in new])
    # A baseline that has grown by a session is another one.
    assert words(compare([tmp_path / "first.json"], [tmp_path / "all.json"]).rows)
    assert compare([tmp_path / "first.json"], [run]).rows
    # Made anew by the same command it is another run.
    assert words(compare([first], [other]).rows) == [("a", "PASSED")]


def test_changed_work_and_what_is_invalid_are_shown_as_such(make, tmp_path):
    changed = make.measurement(2.0, key=make.key("b"), work=make.copy(2**27))
    rows = compare(
        *pair(make, tmp_path, times(make, a=1.0, b=1.0), [*times(make, a=1.0), changed])
    ).rows
    assert words(rows) == [("b", "NO BASELINE"), ("a", "PASSED")]
    assert "the test's work changed" in rows[0].reason
    bad = make.measurement(1.0, key=make.key("b"), invalid="wrong data")
    rows = compare(
        *pair(make, tmp_path, times(make, a=1.0, b=1.0), [*times(make, a=1.0), bad])
    ).rows
    assert words(rows) == [("b", "INVALID"), ("a", "PASSED")]


OLD_DAYS, NEW_DAYS = ("2026-01-02", "2026-01-03", "2026-01-04"), ("2026-02-01", "2026-02-02")


def nights(make, folder, side, days, *process_percents, **environment):
    """A run a day, whose processes are slower than a second by these."""
    return [
        make.save(
            folder / f"{side}-{day}.jsonl",
            *(
                make.measurement(1 + percent / 100, process=f"{side}-{day}-{number}")
                for number, percent in enumerate(process_percents)
            ),
            started=f"{day}T03:00:00Z",
            **environment,
        )
        for day in days
    ]


def test_sets_of_runs_are_compared_by_all_their_processes_each_run_a_session(make, tmp_path):
    old = nights(make, tmp_path, "old", OLD_DAYS, -1, 0, 1)
    compared = compare(old, nights(make, tmp_path, "new", NEW_DAYS, 9, 11))
    (row,) = compared.rows
    counts = row.processes, row.baseline_processes, row.baseline_sessions, len(compared.runs)
    assert (row.verdict, counts) == (Kind.REGRESSED, (4, 9, 3, 5))
    # The same from a baseline of three nights.
    sessions = tuple(
        make.session(0.99, 1.0, 1.01, run_id=day, started=day, device_uuid="GPU-1")
        for day in OLD_DAYS
    )
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(sessions=sessions),)))
    (row,) = compare([tmp_path / "h200.json"], nights(make, tmp_path, "new", NEW_DAYS, 9, 10)).rows
    assert (row.verdict, row.processes, row.baseline_processes, row.baseline_sessions) == (
        Kind.REGRESSED,
        4,
        9,
        3,
    )
    for name, seconds in (("old.json", 1.0), ("new.json", 2.0)):
        write_baseline(
            tmp_path / name, Baseline("h200", (make.measured(seconds), make.published()))
        )
    rows = compare([tmp_path / "old.json"], [tmp_path / "new.json"]).rows
    assert words(rows) == [("memcpy_d2d", "REGRESSED")]


def test_the_centre_of_a_set_of_runs_is_that_of_all_its_processes_and_changes_sign_when_turned(
    make, tmp_path
):
    old, new = (
        nights(make, tmp_path, "old", OLD_DAYS, 0, 4),
        nights(make, tmp_path, "new", NEW_DAYS, 2, 9),
    )
    (row,) = compare(old, new).rows
    centres = [fmean(map(math.log, side)) for side in ((1.0, 1.04), (1.02, 1.09))]
    assert (math.log(row.baseline_time_s), math.log(row.time_s)) == pytest.approx(centres)
    assert row.time_verdict.estimate == pytest.approx(centres[1] - centres[0])
    assert compare(new, old).rows[0].time_verdict.estimate == pytest.approx(centres[0] - centres[1])


def test_the_same_device_is_compared_paired_and_another_one_with_what_lies_between_devices(
    make, tmp_path
):
    old = nights(make, tmp_path, "old", OLD_DAYS, -1, 0, 1)
    for uuid, kind in [("GPU-1", Kind.REGRESSED), ("GPU-2", Kind.INCONCLUSIVE)]:
        judged = (
            compare(old, nights(make, tmp_path, uuid, NEW_DAYS, 8, 9, 10, uuid=uuid))
            .rows[0]
            .time_verdict
        )
        same = uuid == "GPU-1"
        assert (judged.kind, judged.difference.paired, judged.difference.device is None) == (
            *(kind, same, same),
        )


def test_a_slow_process_cannot_be_rerun_into_green_offline_either(make, tmp_path):
    """As in the run itself: of the attempts of a process the slowest sound one stands."""
    slow = [make.measurement(1.3, process=name) for name in "abc"]
    reruns = [make.measurement(1.0, process=name) for name in "abc" for _ in range(3)]
    new = make.save(tmp_path / "new.jsonl", *slow, *reruns)
    (row,) = compare(nights(make, tmp_path, "old", OLD_DAYS, -1, 0, 1), [new]).rows
    assert (row.verdict, row.change) == (Kind.REGRESSED, pytest.approx(0.3, rel=0.01))


AS_ASKED, BOUND = (), ("host_bound",)
# As asked, by each label, and by two of them at once.
MODES = [AS_ASKED, *((label,) for label in ACHIEVED), ("host_bound", "wall_clock")]
OTHER_THINGS = "the two times are not comparable"


def timed(make, seconds, labels=AS_ASKED, mode="events", **changes):
    return make.measurement(
        samples=Samples((seconds,), 1, 1e-9, labels=labels, mode=mode), **changes
    )


def saved(make, path, *measurements):
    """A file that holds measurements: a run, or the baseline made of one, by its suffix."""
    run = make.save(path.with_suffix(".jsonl"), *measurements)
    if path.suffix == ".json":
        write_baseline(path, propose([make.run(run, *measurements)]).baseline)
    return path


def compared(make, folder, old, new, suffix=".jsonl"):
    sides = (
        saved(make, (folder / "old").with_suffix(suffix), *old),
        saved(make, folder / "new.jsonl", *new),
    )
    (row,) = compare([sides[0]], [sides[1]]).rows
    return row


def test_what_was_timed_in_another_mode_is_invalid_however_fast_and_in_the_same_judged(
    make, tmp_path
):
    for before, after in [
        *((AS_ASKED, mode) for mode in MODES[1:]),
        (BOUND, AS_ASKED),
        (("graph",), BOUND),
    ]:
        row = compared(make, tmp_path, [timed(make, 1.0, before)], [timed(make, 0.5, after)])
        assert (row.verdict, OTHER_THINGS in row.reason) == (Kind.INVALID, True), (before, after)
    for suffix, before, after in itertools.product(
        (".json", ".jsonl"), (AS_ASKED, BOUND), (AS_ASKED, BOUND)
    ):
        row = compared(
            make, tmp_path, [timed(make, 1.0, before)], [timed(make, 1.0, after)], suffix
        )
        assert row.verdict == (Kind.PASSED if before == after else Kind.INVALID), (
            suffix,
            before,
            after,
        )
    for mode, factor, kind in [
        (BOUND, 0.5, Kind.IMPROVED),
        (("graph",), 1.0, Kind.PASSED),
        (BOUND, 2.0, Kind.REGRESSED),
    ]:
        old, new = (
            [timed(make, seconds, mode, process=f"p{number}") for number in range(count)]
            for count, seconds in ((5, 1.0), (5, factor))
        )
        assert compared(make, tmp_path, old, new).verdict == kind, (mode, factor)
    # Labels that do not change what was timed do not matter, nor does another clock alone.
    for old, new in [
        (timed(make, 1.0, ("drifting", "noisy")), timed(make, 1.0, ("noisy",))),
        (timed(make, 1.0), timed(make, 1.0, mode="host")),
    ]:
        assert compared(make, tmp_path, [old], [new]).verdict == Kind.PASSED
    # One host-bound night may not hide among others that were timed as asked.
    nightly = nights(make, tmp_path, "new", NEW_DAYS, 0)
    odd = make.save(tmp_path / "bound.jsonl", timed(make, 1.0, BOUND, process="bound"))
    (row,) = compare(nights(make, tmp_path, "old", OLD_DAYS, 0), [*nightly, odd]).rows
    assert row.verdict == Kind.INVALID


def test_a_graphs_replay_and_its_calls_one_by_one_are_kept_apart(make, tmp_path):
    # What lies between two launches, a third of a short kernel, is in the one and not in the other.
    told = {"events": "timed as asked", "graph": "timed by replaying a graph"}
    for before, after in [("events", "graph"), ("graph", "events")]:
        row = compared(
            make, tmp_path, [timed(make, 1.0, mode=before)], [timed(make, 1.3, mode=after)], ".json"
        )
        assert row.verdict == Kind.INVALID
        assert (
            f"this run is {told[after]}, the baseline is {told[before]}, so {OTHER_THINGS}"
            in row.reason
        )
    # A proposal takes the mode of most processes and says so.
    names, ways = (
        {"g": "graph", "e": "events"},
        {"graph": "by replaying a graph", "events": "call by call"},
    )
    for modes, kept in [("geg", "graph"), ("gee", "events"), ("ge", "graph")]:
        runs = [
            make.run(tmp_path / f"{n}.jsonl", timed(make, 1.0, mode=names[mode], process=f"p{n}"))
            for n, mode in enumerate(modes)
        ]
        proposal = propose(runs)
        sessions = [session for entry in proposal.baseline.entries for session in entry.sessions]
        more = sum(names[mode] == kept for mode in modes)
        assert [session.environment["timed by"] for session in sessions] == [kept] * more
        other = "events" if kept == "graph" else "graph"
        assert proposal.left_out == (
            f"memcpy_d2d[64MiB]: {len(modes) - more} of {len(modes)} processes timed the test "
            f"{ways[other]}, the others "
            f"{ways[kept]}; the two modes are not comparable, so the baseline holds only the other {more} processes",
        )


def test_a_change_of_mode_is_told_in_words_with_what_to_do(make, tmp_path):
    def text(mode, *before):
        reference = make.reference(achieved=before)
        return reason_text(judge([], reference, Policy(), invalid=other_mode(mode, reference)))

    assert text(BOUND, AS_ASKED) == (
        "this run is host-bound, the baseline is timed as asked, so the two times are not comparable; find out "
        "why the mode changed, or record the baseline again"
    )
    back = text(AS_ASKED, ("cache_resident", "wall_clock"))
    assert back.startswith("this run is timed as asked, the baseline is cache-resident, wall-clock")
    assert other_mode(BOUND, None) == ()
    # A host-bound run among others widens the spread until a time that has doubled is merely INCONCLUSIVE.
    runs = [
        make.run(tmp_path / "one.jsonl", timed(make, 1.0)),
        make.run(tmp_path / "two.jsonl", timed(make, 9.0, BOUND, process="process-2")),
    ]
    for after in (AS_ASKED, BOUND):
        (reason,) = other_mode(after, RunComparator(runs).reference(make.key()))
        assert reason.code is ReasonCode.OTHER_MODE


def test_runs_timed_in_different_modes_never_become_one_entry(make, tmp_path):
    runs = [
        make.run(tmp_path / f"{labels}.jsonl", timed(make, 1.0, labels))
        for labels in (AS_ASKED, BOUND)
    ]
    with pytest.raises(BadInput) as error:
        propose(runs)
    assert str(error.value) == (
        f"memcpy_d2d[64MiB] was timed as asked in {runs[0].path} and host_bound in {runs[1].path}, so these times "
        "cannot form one entry; find out why they differ, and propose only runs that agree"
    )
    with pytest.raises(BadInput, match="host_bound"):
        propose([make.run(tmp_path / "r.jsonl", timed(make, 1.0), timed(make, 1.0, BOUND))])


def test_a_baseline_keeps_how_it_was_timed_from_proposal_to_comparison(make, tmp_path):
    for mode in (AS_ASKED, BOUND):
        path = approve(
            propose([make.run(tmp_path / "r.jsonl", timed(make, 1.0, mode))]).baseline,
            tmp_path / f"{mode}",
        )
        assert [
            session.achieved for entry in read_baseline(path).entries for session in entry.sessions
        ] == [mode]
        assert BaselineComparator(Entries.from_files([path])).reference(make.key()).achieved == (
            mode,
        )
    # A baseline of old is one that was timed as asked.
    old = make.measured(sessions=(make.session(1.0, device_uuid="GPU-1"),))
    write_baseline(tmp_path / "h200.json", Baseline("h200", (old,)))
    assert "achieved" not in (tmp_path / "h200.json").read_text()
    new = saved(make, tmp_path / "new.jsonl", timed(make, 1.0))
    assert compare([tmp_path / "h200.json"], [new]).rows[0].verdict == Kind.PASSED


def odd_night(make, folder, slow=1.2):
    """Five nights of twelve tests; on the third five of them were slower."""
    paths = []
    for night in range(1, 6):
        seconds = {
            f"t{number}": (1 + 0.001 * night) * (slow if night == 3 and number < 5 else 1)
            for number in range(12)
        }
        started = f"2020-01-{night:02}T03:00:00Z"
        path = folder / f"{folder.name}{night}.jsonl"
        paths.append(make.save(path, *times(make, **seconds), started=started))
    return paths


NIGHT = "session of 3 Jan 2020: 5 of 12 tests are 20 % slower"


@pytest.mark.parametrize("stored", [False, True])
def test_a_night_that_is_strange_in_many_tests_is_set_aside_in_these_and_named(
    make, tmp_path, stored
):
    old = odd_night(make, tmp_path)
    if stored:
        entries = propose([read_run(path) for path in old], accept_slower=True).baseline
        write_baseline(tmp_path / "h200.json", entries)
        old = [tmp_path / "h200.json"]
    new = {f"t{number}": 1.1 if number in (0, 11) else 1.0 for number in range(12)}
    compared = compare(old, [make.save(tmp_path / "new.jsonl", *times(make, 8, **new))])
    verdicts = {row.key.benchmark: row.verdict for row in compared.rows}
    assert verdicts.pop("t0") == verdicts.pop("t11") == Kind.REGRESSED
    assert set(verdicts.values()) == {Kind.PASSED}
    assert {row.key.benchmark: row.baseline_processes for row in compared.rows} == {
        f"t{number}": 4 if number < 5 else 5 for number in range(12)
    }
    assert [session.text for session in odd_behind(compared.rows)] == [NIGHT]
    assert f"{NIGHT}; left out" in comparison_lines(compared, (), ())
    told = {row["benchmark"]: row["odd_sessions"] for row in comparison_as_json(compared)}
    assert told == {f"t{number}": [NIGHT] if number < 5 else [] for number in range(12)}


def test_strange_nights_of_the_new_side_are_what_is_compared(make, tmp_path):
    old, new = (
        odd_night(make, tmp_path / side, slow) for side, slow in (("old", 1.0), ("new", 1.2))
    )
    rows = compare(old, new).rows
    assert {row.processes for row in rows} == {5}


def test_of_tests_that_never_had_the_night_nothing_is_named(make, tmp_path):
    old = odd_night(make, tmp_path)
    new = make.save(tmp_path / "new.jsonl", *times(make, 3, t10=1.0, t11=1.0))
    assert odd_behind(compare(old, [new]).rows) == []
