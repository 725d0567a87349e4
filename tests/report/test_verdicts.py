"""Sentences about one verdict: the word of a verbose run, a red test's message, what may explain it, and `explain`."""

import math
import re
from dataclasses import replace

from rich.cells import cell_len

from pytest_roofline.baselines.remarks import remarks as remarks_on
from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.core.facts import Finding
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.verdicts import Kind, TimeLimit
from pytest_roofline.report.explain import detail_lines, explanation
from pytest_roofline.report.verdicts import failure_message, health_message, status_word
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy

HOSTILE = "x\x1b[31m\r\ny\u202e"
STEERS = set("\x1b\r\n\u202e")
INTERVAL = r"[+-]\d+\.\d … [+-]\d+\.\d %"
MILLISECOND = math.log(1e-3)
LABEL = "memcpy_d2d[64MiB]"


def vague(make):
    """A reference around a millisecond whose processes lie far apart."""
    return make.reference(*make.groups(1, 5, process=0.05, centre=MILLISECOND))


def breach(make, *seconds, **changes):
    return make.result(
        *(seconds or (1.25e-3,)),
        known=False,
        limits=[Limit(TimeLimit(1e-3, make.published()))],
        **changes,
    )


def on_clock(make, seconds, before_hz, after_hz):
    """A result whose device ran at another clock than the baseline's."""
    samples = Samples((seconds,), 1, 1e-9, blocks=(Block(1, clock_hz=after_hz),))
    reference = make.reference(
        *make.groups(3, process=0.001, centre=MILLISECOND), clock_hz=before_hz
    )
    return make.result(seconds, reference=reference, samples=samples)


def remarks(row):
    return list(remarks_on(row.time_verdict)) if row.time_verdict is not None else []


def test_the_status_word_is_the_number_the_difference_its_interval_and_the_processes(make):
    cases = [(Kind.REGRESSED, 1.25e-3, {}), (Kind.PASSED, 1.001e-3, {}), (Kind.IMPROVED, 0.5e-3, {}),
             (Kind.INCONCLUSIVE, 1.04e-3, {"reference": vague(make)})]  # fmt: skip
    for kind, seconds, facts in cases:
        one = make.result(seconds, **facts)
        word = f" {kind.value}" if kind is not Kind.PASSED else ""
        behind = f"{one.processes} against {one.baseline_processes}"
        assert re.fullmatch(
            rf"[\d.]+ GB/s [+-]\d+\.\d % \({INTERVAL}, {behind}\){word}", status_word(one)
        )
    word = status_word(breach(make))
    assert re.fullmatch(rf"107 GB/s \+25\.0 % \({INTERVAL}, 1 process\w*\) REGRESSED", word)
    assert status_word(make.result(known=False)) == "134 GB/s NO BASELINE"
    assert status_word(make.row(make.measurement(1e-3))) == "134 GB/s"


def test_a_failure_begins_with_the_difference_and_goes_on_with_what_changed_and_where_to_look(make):
    # The rates are those of the centres that were compared: of several processes, and of this device's sessions alone.
    own, other = (make.groups(3, process=0.001, centre=MILLISECOND + shift, device=device)
                  for shift, device in ((0.0, "GPU-1"), (0.5, "GPU-2")))  # fmt: skip
    for one in (
        make.result(1.25e-3),
        make.result(1.24e-3, 1.25e-3, 1.26e-3, reference=make.reference(*own, *other)),
    ):
        first = failure_message(one, "runs/r.jsonl").split("\n")[0]
        pattern = (
            r"memcpy_d2d\[64MiB\]: \+25\.0 % time \(107 GB/s, baseline 134 GB/s\) REGRESSED, tolerance 5 %, "
            rf"99 % interval {INTERVAL}, 3 against (15|30) processes"
        )
        assert re.fullmatch(pattern, first)
    _, second, third, fourth = failure_message(make.result(1.25e-3), "runs/r.jsonl").split("\n")
    assert second == (
        "  baseline of 2026-01-03; driver 550.54 → 570.86; 15 of 15 processes of the baseline were faster."
    )
    assert third == (
        "  Details: runs/r.jsonl; accept the change with `pytest … --roofline-record --roofline-accept-slower=REASON`."
    )
    assert fourth == "  roofline explain runs/r.jsonl 'memcpy_d2d[64MiB]'"
    _, second, *_ = failure_message(on_clock(make, 1.25e-3, 2e9, 1.6e9), "r").split("\n")
    assert second.startswith(
        "  baseline of 2026-01-03; the clock explains the change: 2000 → 1600 MHz (-20.0 %), in cycles +0.0 %; "
    )
    one = make.result(*[1.35e-3] * 5, reference=make.reference(*make.groups(1, centre=MILLISECOND)))
    second = failure_message(one, "r").split("\n")[1]
    sitting = "; the baseline was recorded within six hours, so the spread between sessions is assumed (0.75 %); "
    assert sitting in second
    assert second.endswith("; 5 of 5 processes of the baseline were faster.")
    sick = failure_message(make.result(1.25e-3), "r", degraded=("PCIe x8 of x16", "hot\n"))
    assert "the device is DEGRADED: PCIe x8 of x16; hot\\n" in sick
    assert sick.count("\n") == 4
    assert "The run could not be saved" in failure_message(make.result(1.25e-3), "")
    assert "tolerance 2.5 %" in failure_message(
        make.result(1.25e-3, policy=Policy(tolerance=0.025)), "r"
    )


def test_a_failure_without_a_difference_says_why_and_what_to_do(make):
    first, second = failure_message(make.result(1.04e-3, reference=vague(make)), "r").split("\n")
    assert re.search(
        rf"INCONCLUSIVE, tolerance 5 %, 99 % interval {INTERVAL}, 1 against 5 processes", first
    )
    assert re.match(r"  the change may be .*(needs|record)", second)
    first, second = failure_message(make.result(known=False), "r").split("\n")
    assert first == f"{LABEL}: NO BASELINE (no baseline recorded), and a baseline is required"
    assert "record a baseline with `pytest … --roofline-record`" in second
    first, second = failure_message(make.result(invalid="5 of 8 blocks were spoiled"), "r").split(
        "\n"
    )
    assert first == f"{LABEL}: INVALID (5 of 8 blocks were spoiled)"
    assert "measured 134 GB/s, an invalid number" in second
    for seconds, behind in (((1.25e-3,), "1 process"), ((1.25e-3,) * 3, "3 processes")):
        first, _ = failure_message(breach(make, *seconds), "r").split("\n")
        pattern = (
            r"memcpy_d2d\[64MiB\]: \+25\.0 % time beyond the limit \(107 GB/s\) REGRESSED, BELOW THRESHOLD: threshold "
            rf"100 GB/s \(read \+ write; the vendor's guide\), {behind} \(spread [0-9.]+ %: .*prior\), "
            rf"99 % interval {INTERVAL}"
        )
        assert re.fullmatch(pattern, first)


def test_hostile_text_cannot_break_out_of_the_lines_of_a_failure(make):
    facts = {"label": HOSTILE, "environment": {"driver": HOSTILE}, "before": {"driver": "old\n"}}
    old = make.reference(*make.groups(3, centre=MILLISECOND))
    published = make.published(source=HOSTILE, convention=HOSTILE)
    slower = make.result(2e-3, reference=old, **facts)
    for one in (
        slower,
        make.result(1.04e-3, reference=vague(make), **facts),
        make.result(known=False, why_none=HOSTILE, **facts),
        make.result(invalid=HOSTILE, **facts),
        make.result(2e-3, known=False, limits=[Limit(TimeLimit(1e-3, published))], **facts),
    ):
        message = failure_message(one, "r")
        breaks = 3 if one is slower else 1
        assert (breaks, set()) == (message.count("\n"), set(message) & set("\x1b\r\u202e"))


def test_a_clock_that_moved_is_said_first_and_whether_it_explains_the_difference(make):
    for seconds, after_hz, said in (
        (1.32e-3, 1.5e9, "explains the change: 1980 → 1500 MHz (-24.2 %), in cycles +0.0 %"),
        (
            1.6e-3,
            1.5e9,
            "explains only a part of the change: 1980 → 1500 MHz (-24.2 %), in cycles +21.2 %",
        ),
        (
            1.25e-3,
            2.2e9,
            "explains only a part of the change: 1980 → 2200 MHz (+11.1 %), in cycles +38.9 %",
        ),
        (
            1.249e-3,
            1.5e9,
            "explains the change and more: 1980 → 1500 MHz (-24.2 %), in cycles -5.4 %",
        ),
        (0.97e-3, 2.2e9, "explains the change and more: 1980 → 2200 MHz"),
        (0.8e-3, 1.5e9, "explains only a part of the change: 1980 → 1500 MHz"),
    ):
        assert remarks(on_clock(make, seconds, 1.98e9, after_hz))[0].startswith(f"the clock {said}")
    # One that stayed or was not probed is not mentioned.
    for after_hz in (1.98e9, 1.975e9, None):
        assert remarks(on_clock(make, 1.25e-3, 1.98e9, after_hz)) == []


def test_what_changed_since_the_baseline_is_named_with_both_versions_whatever_the_verdict(make):
    groups = make.groups(3, process=0.001, centre=MILLISECOND)
    reference = make.reference(*groups)
    one = make.result(
        1.25e-3,
        reference=reference,
        before={"driver": "550.54", "torch": "2.12"},
        environment={"driver": "570.86", "torch": "2.13", "kernel": "6.8"},
    )
    assert remarks(one) == ["driver 550.54 → 570.86", "torch 2.12 → 2.13"]
    assert [["driver 550.54 → 570.86"]] * 2 == [
        remarks(make.result(seconds)) for seconds in (1e-3, 1.25e-3)
    ]
    for known, said in (("events", ["timed by events → graph"]), ("graph", []), (None, [])):
        before = {"timed by": known} if known else {}
        facts = {"before": before, "environment": {"timed by": "graph"}}
        assert remarks(make.result(1.25e-3, reference=reference, **facts)) == said
    for shift, said in (
        (
            0.03,
            [
                "all tests of this run changed together; this common part, +3.0 %, is subtracted from each test"
            ],
        ),
        (4e-4, []),
    ):
        assert remarks(make.result(1.25e-3, reference=make.reference(*groups, shift=shift))) == said
    facts = {"before": {HOSTILE: HOSTILE}, "environment": {HOSTILE: "1"}, "left_out": (HOSTILE,)}
    said = remarks(make.result(1.25e-3, reference=reference, **facts))
    assert (2, set()) == (len(said), set("".join(said)) & STEERS)


FAST, SLOW = math.log(22.5e-3), math.log(25.5e-3)


def on_three_days(make, *logs):
    """A reference of three sessions that these processes are dealt out to."""
    return make.reference(
        *(make.group(*logs[day::3], started=f"2026-01-0{day + 1}T03:00:00Z") for day in range(3))
    )


def test_modes_of_either_side_are_told_with_the_share_of_each_in_the_slow_one(make):
    for before, now, said in (
        ((9, 5), (0, 1), "5 of 14 baseline processes and 3 of 3 new ones"),
        ((12, 3), (1, 5), "3 of 15 baseline processes and 5 of 6 new ones"),
        ((15, 0), (2, 5), "0 of 15 baseline processes and 5 of 7 new ones"),
        ((14, 1), (0, 5), "1 of 15 baseline processes and 5 of 5 new ones"),
    ):
        old, new = (
            [*make.spaced(fast, 0.002, FAST), *make.spaced(slow, 0.002, SLOW)]
            for fast, slow in (before, now)
        )
        one = make.result(*map(math.exp, new), reference=on_three_days(make, *old))
        assert f"{said} are in the slow mode, at 25.5 ms; the others take 22.5 ms" in remarks(one)
    for percent, spread in ((2, 0.002), (4, 0.01), (6, 0.002), (12, 0.002), (12, 0.01)):
        old, new = make.spaced(15, spread), make.spaced(12, spread, math.log1p(percent / 100))
        one = make.result(*map(math.exp, new), reference=on_three_days(make, *old))
        assert "slow mode" not in "".join(remarks(one))


def test_a_slowdown_against_one_sitting_says_what_is_assumed_and_what_to_record(make):
    sitting = (
        "the baseline was recorded within six hours, so the spread between sessions is assumed (0.75 %); "
        "record the baseline on three days"
    )
    one_sitting = make.reference(*make.groups(1, centre=MILLISECOND))
    for seconds, processes, verdict in ((1.25e-3, 5, "REGRESSED"), (1.06e-3, 1, "INCONCLUSIVE")):
        one = make.result(*[seconds] * processes, reference=one_sitting)
        assert (verdict, [sitting]) == (one.verdict, remarks(one))
    twice = [make.group(MILLISECOND, MILLISECOND, started=f"2026-01-0{day}T0{hour}:00:00Z") for day, hour in
             ((1, 1), (1, 2), (2, 1))]  # fmt: skip
    said = sitting.replace("within six hours", "with several sessions on one day")
    assert remarks(make.result(*[1.25e-3] * 5, reference=make.reference(*twice))) == [said]
    # Two sittings that lie far apart tell it themselves.
    apart = make.reference(*make.groups(2, session=0.05, centre=MILLISECOND))
    assert remarks(make.result(*[1.5e-3] * 5, reference=apart)) == []
    # What does not look slow needs no word of it, nor do sessions of three days.
    fine = [make.result(seconds, reference=one_sitting) for seconds in (1e-3, 0.5e-3, 1.03e-3)]
    fine.append(make.result(1.25e-3, reference=make.reference(*make.groups(3, centre=MILLISECOND))))
    assert [[]] * 4 == list(map(remarks, fine))


def test_restless_processes_another_device_and_what_was_left_out_are_told(make):
    one_sitting = make.reference(*make.groups(1, centre=MILLISECOND))
    restless = make.result(1.1e-3, 1.3e-3, 1.2e-3, 1.4e-3, 1.6e-3, reference=one_sitting)
    assert (
        "the new processes differ more from each other than the baseline's processes (spread 14.4%)"
        in remarks(restless)
    )
    other = make.groups(3, process=0.001, centre=MILLISECOND, device="GPU-2")
    (said,) = remarks(make.result(1.6e-3, reference=make.reference(*other)))
    assert said.startswith(
        "the baseline does not hold this device: spread between devices 4.0% (prior, 1 device"
    )
    left = make.result(1.25e-3, left_out=("neighbours", "heat"), environment={})
    assert remarks(left) == ["2 processes left out: heat"]
    assert [[], []] == [
        remarks(one) for one in (make.result(known=False), make.row(make.measurement()))
    ]


def timed(make, *seconds, number=1, blocks=(), **changes):
    samples = Samples(seconds, 1, 1e-9, blocks=blocks)
    return make.measurement(samples=samples, process=f"{number:032d}", round=number, **changes)


def judged(make, *seconds, **changes):
    """The verdict on processes of so many seconds, as the end of a run writes it."""
    judged = make.result(*seconds, **changes).time_verdict
    return replace(judged, p_adjusted=min(1.0, 2 * judged.p)) if judged.p is not None else judged


def explained(make, folder, *records, width=80):
    rows = rows_of_run(make.run(folder / "r.jsonl", *records))
    return [line for row in rows if row.label == LABEL for line in explanation(row, width)]


def test_every_process_is_explained_with_its_samples_and_blocks_and_where_they_lie(make, tmp_path):
    one = timed(make, 1e-3, 1e-3, 1.2e-3, blocks=(Block(2), Block(1)))
    spoiled = timed(make, 2e-3, number=2, blocks=(Block(1, "heat"),), invalid="neighbours")
    other = timed(make, 5e-3, key=make.key("other"))
    lines = explained(make, tmp_path, one, spoiled, other, judged(make, 1.1e-3))
    assert lines[:2] == [
        f"{LABEL} in {tmp_path / 'r.jsonl'}",
        "samples by process, each strip from 1.00 ms to 2.00 ms:",
    ]
    assert re.match(
        r"  round 1, process 000000: 1\.10 ms \|.{8,32}\| 3 samples in 2 blocks$", lines[2]
    )
    assert re.match(r"  round 2, .*\| 1 sample in 1 block; left out: neighbours$", lines[3])
    assert lines[4] == "      blocks left out: 1 by heat"
    fast, slow = timed(make, *[1e-3] * 9, 1.999e-3), timed(make, *[2e-3] * 10, number=2)
    for width, strips in (
        (200, ["█" + " " * 30 + "▁", " " * 31 + "█"]),
        (40, ["█      ▁", "       █"]),
    ):
        lines = explained(make, tmp_path, fast, slow, judged(make, 1e-3, 2e-3), width=width)
        assert strips == [re.search(r"\|(.*)\|", line)[1] for line in lines[2:4]]
    alike = explained(make, tmp_path, timed(make, 1e-3, 1e-3), judged(make, 1e-3), width=200)
    assert "|█" + " " * 31 + "|" in alike[2]
    usual = timed(make, *[1.234e-3] * 100, blocks=(Block(10),) * 10, number=12)
    assert cell_len(explained(make, tmp_path, usual, judged(make, 1e-3))[2]) <= 80


def test_the_baseline_is_explained_session_by_session_and_the_rule_step_by_step(make, tmp_path):
    groups = [
        *make.groups(1, 1, centre=MILLISECOND),
        *make.groups(1, 3, process=0.01, centre=MILLISECOND, device="GPU-2"),
    ]
    groups.append(make.group(MILLISECOND, device="", started=""))
    lines = explained(
        make, tmp_path, timed(make, 1e-3), judged(make, 1e-3, reference=make.reference(*groups))
    )
    assert lines[3:7] == [
        "baseline h200.json:",
        "  session of 2026-01-01T03:04:05Z on GPU-1: 1 process, 1.00 ms",
        "  session of 2026-01-01T03:04:05Z on GPU-2: 3 processes, 1.00 ms (990 µs … 1.01 ms)",
        "  session of an unknown time: 1 process, 1.00 ms",
    ]
    for seconds, verdict, slower, surely in (
        (1.25e-3, "REGRESSED", "more", "yes"),
        (1e-3, "PASSED", "not more", "no"),
        (0.5e-3, "IMPROVED", "not more", "no"),
    ):
        lines = explained(make, tmp_path, timed(make, seconds), judged(make, seconds))
        processes = "3 processes" if verdict == "REGRESSED" else "1 process"
        for pattern in (
            rf"difference [+-]\d+\.\d % time \(99 % interval {INTERVAL}\), tolerance 5 %$",
            rf"now .* from {processes} .*; baseline 1\.00 ms from 15 processes of 3 sessions",
            rf"is this slower than the tolerance\? [+-]\d+\.\d % is {slower} than 5 %$",
            rf"is this surely more than the smallest effect worth reporting, 2 %\? {surely}: p .* limit 0\.05$",
        ):
            assert any(re.match(pattern, line) for line in lines), pattern
        assert ("note: driver 550.54 → 570.86" in lines, lines[-1]) == (True, verdict)


def test_what_was_not_compared_or_stays_open_is_explained_by_its_reason(make, tmp_path):
    open_one = judged(make, 1.04e-3, reference=vague(make), policy=Policy(analyses=Analyses(12)))
    last = explained(make, tmp_path, timed(make, 1.04e-3), open_one)[-1]
    assert re.match(
        r"INCONCLUSIVE: the change may be .* % after 1 process .*; .*(needs|record)", last
    )
    limited = judged(make, 1.25e-3, known=False, limits=[Limit(TimeLimit(1e-3, make.published()))])
    text = "\n".join(explained(make, tmp_path, timed(make, 1.25e-3), limited))
    assert "REGRESSED: BELOW THRESHOLD" in text
    assert re.search(rf"\+25\.0 % time \(99 % interval {INTERVAL}\).* 1 process\b", text)
    one = timed(make, 1e-3)
    for records, told in (
        ((judged(make, 1e-3, known=False),), "NO BASELINE: no baseline recorded"),
        ((judged(make, 1e-3, invalid="wrong data"),), "INVALID: wrong data"),
        ((), "no verdict: the test failed before its verdict, or the run was cut before its end"),
        ((make.outcome(one, "failed", reason="AssertionError: bits flipped"),),
         "no verdict: the test failed before its verdict: AssertionError: bits flipped"),
    ):  # fmt: skip
        lines = explained(make, tmp_path, one, *records)
        assert (told, True) == (lines[-1], "1.00 ms" in lines[2])


def test_text_from_a_file_cannot_steer_the_terminal(make, tmp_path):
    samples = Samples((1e-3, 1e-3), 1, 1e-9, blocks=(Block(1), Block(1, HOSTILE)))
    measurement = make.measurement(samples=samples, process=HOSTILE, invalid=HOSTILE)
    known = judged(make, 1.25e-3)
    group = replace(known.reference.groups[0], device=HOSTILE, started=HOSTILE)
    process = replace(known.difference.process, origin=HOSTILE)
    told = replace(
        known,
        reference=replace(known.reference, groups=(group,), source=HOSTILE),
        difference=replace(known.difference, process=process),
        reasons=text_reasons(HOSTILE),
        subject=replace(known.subject, changed=(HOSTILE,), left_out=text_reasons(HOSTILE)),
    )
    lines = [
        *explained(make, tmp_path, measurement, told),
        *detail_lines([make.result(label=HOSTILE)]),
    ]
    assert not set("".join(lines)) & STEERS


def test_behind_every_compared_verdict_stand_its_spreads_its_chances_and_its_sides(make):
    def lines(*seconds, **changes):
        return [line.strip() for line in detail_lines([make.result(*seconds, **changes)])]

    steady = make.reference(*make.groups(3, process=0.01, centre=MILLISECOND))
    assert lines(1.25e-3, reference=steady)[1] == (
        "spread between processes 1.00% (estimated, 14 degrees of freedom, with prior); sessions 0.50% "
        "(estimated, 3 sessions, with prior)"
    )
    assert lines(1e-3, reference=make.reference(make.group(MILLISECOND, device="GPU-2")))[
        1
    ].startswith(
        "spread between processes 1.00% (prior); sessions 0.75% (prior, recorded within six hours); "
        "devices 4.00% (prior"
    )
    row = make.result(1.25e-3)
    told = replace(row, time_verdict=replace(row.time_verdict, p_adjusted=0.012))
    assert detail_lines([told])[2].strip() == (
        f"standard error 0.65% (385 degrees of freedom), p {row.time_verdict.p:.2g}, "
        f"adjusted for all tests 0.012, detects {row.time_verdict.reach:.1%}"
    )
    for device, said in (
        ("GPU-1", "on 1 device (paired)"),
        ("GPU-2", "on 1 device (another device)"),
    ):
        reference = make.reference(
            *make.groups(3, process=0.001, centre=MILLISECOND, device=device)
        )
        assert lines(1.24e-3, 1.26e-3, reference=reference)[3] == (
            f"now 1.25 ms from 2 processes of 1 session; baseline 1.00 ms from 15 processes of 3 sessions {said}"
        )
    assert lines(1e-3, reference=make.reference(make.group(MILLISECOND)))[3] == (
        "now 1.00 ms from 1 process of 1 session; baseline 1.00 ms from 1 process of 1 session on 1 device (paired)"
    )
    both = [
        *make.groups(3, centre=MILLISECOND),
        *make.groups(3, centre=MILLISECOND, device="GPU-2"),
    ]
    assert (
        "from 30 processes of 6 sessions on 2 devices (paired)"
        in lines(1.25e-3, reference=make.reference(*both))[3]
    )
    several = [make.result(label="one"), make.result(known=False), make.row(make.measurement())]
    found = detail_lines([*several, make.result(1.25e-3, label="two")])
    assert (["one: PASSED", "two: REGRESSED"], 8) == (
        [line for line in found if line[0] != " "],
        len(found),
    )


def test_a_sick_device_is_told_cause_first_with_every_remedy():
    gpu = "GPU 0 (NVIDIA H100 80GB HBM3)"
    power = Finding(
        "degraded",
        gpu,
        "power limit 400 W, default 700 W",
        "clocks fall",
        "nvidia-smi -i 0 -pl 700",
    )
    missing = Finding(
        "degraded", "GPUs", "7 × H100, expected 8", "the node differs from another", "nvidia-smi -L"
    )
    assert health_message([power]).split("\n") == [
        "DEGRADED: power limit 400 W, default 700 W (GPU 0, NVIDIA H100 80GB HBM3)",
        f"  {gpu}: power limit 400 W, default 700 W: clocks fall. Remedy: nvidia-smi -i 0 -pl 700.",
    ]
    first, worst, other, _ = health_message([missing, power, missing]).split("\n")
    assert first.endswith("(GPUs), and 2 more")
    assert ("nvidia-smi -L" in worst, "-pl 700" in other) == (True, True)
    for subject, flat in (
        ("GPU 1 (AMD Radeon (TM) Pro)", "GPU 1, AMD Radeon (TM) Pro"),
        ("GPUs", "GPUs"),
    ):
        finding = replace(power, subject=subject, observed="seen")
        assert health_message([finding]).split("\n")[0] == f"DEGRADED: seen ({flat})"
    hostile = health_message([Finding("degraded", *[HOSTILE] * 4)])
    assert (2, set()) == (len(hostile.split("\n")), set(hostile) & set("\x1b\r\u202e"))
    assert health_message([]) == ""
