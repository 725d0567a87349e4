"""What was published elsewhere stands beside a result in a line, and what cannot be true is never a target."""

from dataclasses import replace

from pytest_roofline.core.entries import OUT_OF_MEMORY
from pytest_roofline.core.keys import JOB_METRIC
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.verdicts import TimeLimit
from pytest_roofline.report.published import figure_texts, idle_lines, limit_lines, published_lines
from pytest_roofline.stats.limits import Limit

HOSTILE = "x\x1b[31m\r\ny\u202e"


def beside(make, *entries, seconds=1e-3, label="copy", idle=()):
    """A copy of 134 GB/s (64 MiB each way in a millisecond) with published figures."""
    return make.row(make.measurement(seconds, label=label), published=entries, idle=idle)


def figure(make, value, **changes):
    return make.published("reference", value=value, **({"source": "S"} | changes))


def line(make, *entries, **changes):
    (only,) = published_lines([beside(make, *entries, **changes)])
    return only


def test_figures_stand_as_one_or_a_span_with_whose_the_nearest_is(make):
    out_of_memory = figure(make, OUT_OF_MEMORY)
    spread = [figure(make, value, source=f"of {value:g}") for value in (200.0, 130.0, 90.0)]
    noted = [figure(make, 100.0), figure(make, 50.0, note="by another engine")]
    doubted = figure(make, 9e9, implausible="above the memory's peak")
    shown = ", shown, never gating"
    for entries, told in (
        ([figure(make, 100.0)], f"published 100 GB/s (1 figure; S){shown}"),
        (spread, f"published 90.0 … 200 GB/s (3 figures; nearest of 130){shown}"),
        (noted, f"published 50.0 … 100 GB/s (2 figures, 1 with a note (-v); nearest S){shown}"),
        ([figure(make, (90.0, 200.0))], f"published 90.0 … 200 GB/s (1 figure; nearest S){shown}"),
        ([figure(make, 2e-3, metric="time_s", unit="s")], f"published 67.1 GB/s (1 figure; S){shown}"),
        ([out_of_memory], f"published out of memory (S){shown}"),
        ([figure(make, 2.0, metric="TFLOPS", unit="TFLOP/s")], f"published counted differently (1 figure){shown}"),
        ([figure(make, 100.0), doubted],
         f"published 100 GB/s (1 figure; S){shown} (1 implausible figure left out: above the memory's peak)"),
        ([doubted, replace(doubted, note="again")],
         "no plausible published figure (2 implausible figures left out: above the memory's peak)"),
    ):  # fmt: skip
        assert line(make, *entries) == f"copy: 134 GB/s; {told}"
    for metric, unit in (("traffic_GBps", "GB/s"), ("time_s", "s")):
        below = figure(make, (0.0, 1e4), metric=metric, unit=unit, source="B")
        assert f"published 100 GB/s (1 figure; S), less than 10000 {unit} (B)" in line(
            make, figure(make, 100.0), below
        )
        assert "published less than 10000" in line(make, below)
    assert len(line(make, figure(make, 100.0, source="s" * 500))) < 160


def test_times_and_whole_programs_are_told_as_such(make):
    key = make.key(metric="time_s")
    entries = tuple(
        figure(make, value, metric="time_s", unit="s", source=f"{value}") for value in (3e-3, 2e-3)
    )
    (told,) = published_lines([make.row(make.measurement(1e-3, key=key), published=entries)])
    assert "1.00 ms; published 2.00 … 3.00 ms (2 figures" in told
    entry = figure(make, 2.0, metric=JOB_METRIC, unit="s")
    (told,) = published_lines(
        [make.row(make.measurement(1.0, key=make.key(metric=JOB_METRIC)), published=(entry,))]
    )
    assert (
        "1.00 s; published 2.00 s (1 figure; S; times of whole programs, not comparable with a steady-state time)"
        in told
    )


def test_what_lags_behind_all_figures_comes_first_and_the_rest_keep_the_order_of_the_run(make):
    slow = {"near": 1.1e-3, "fast": 0.5e-3, "slowest": 4e-3, "slow": 2e-3}
    results = [
        beside(make, figure(make, 134.2), seconds=seconds, label=label)
        for label, seconds in slow.items()
    ]
    assert [told.partition(":")[0] for told in published_lines(results)] == [
        "slowest",
        "slow",
        "near",
        "fast",
    ]


def test_at_most_twelve_measurements_are_told_and_the_rest_counted(make):
    results = [beside(make, figure(make, 100.0), label=f"m{number}") for number in range(14)]
    lines = published_lines(results)
    assert (len(lines), lines[-1]) == (
        13,
        "… and published figures for 2 more measurements (-v shows all)",
    )
    assert len(published_lines(results, verbose=True)) == 28
    assert published_lines([beside(make)]) == []


def test_every_figure_is_told_in_full_with_note_reason_and_why_it_does_not_gate(make):
    limit = make.published(statistic="best", note="on a site's own nodes")
    result = beside(
        make, figure(make, 100.0, implausible="too fast"), idle=((limit, "samples are batched"),)
    )
    assert figure_texts(result) == (
        "reference 100 GB/s (read + write; S), confidence high, IMPLAUSIBLE: too fast",
        "threshold 100 GB/s (read + write; fastest call; the vendor's guide), confidence high, "
        "does not gate: samples are batched, note: on a site's own nodes",
    )


def test_hostile_text_cannot_steer_the_terminal(make):
    entry = figure(make, 100.0, source=HOSTILE, note=HOSTILE)
    doubted = figure(make, 1.0, implausible=HOSTILE)
    result = beside(make, entry, doubted, label=HOSTILE, idle=((make.published(), HOSTILE),))
    held = make.result(
        known=False, limits=[Limit(TimeLimit(1.0, make.published(source=HOSTILE)))], label=HOSTILE
    )
    lines = [*published_lines([result], verbose=True), *limit_lines([held])]
    lines += idle_lines([result])
    assert len(lines) == 6
    assert not set("".join(lines)) & set("\x1b\r\n\u202e")


def held(make, label, source="the maker"):
    return make.result(
        known=False, limits=[Limit(TimeLimit(1.0, make.published(source=source)))], label=label
    )


def test_limits_are_named_by_whose_they_are_with_the_tests_they_stood_behind(make):
    peak = Ceiling("traffic_GBps", 4.8e12, "datasheet", "sheet", "high")
    share = Limit(TimeLimit(1.0, peak=peak, share=0.8))
    results = [held(make, f"m{number}") for number in range(5)]
    results += [
        make.result(known=False, limits=[share], label="roofed"),
        make.result(label="compared"),
    ]
    assert limit_lines(results) == [
        "limit: the maker: m0, m1, m2 and 2 more",
        "limit: 80 % of the roofline (--roofline-min-percent): roofed",
    ]
    lines = limit_lines([held(make, "copy", f"source {number}") for number in range(7)])
    assert (len(lines), lines[-1]) == (5, "… and limits of 3 more sources")


def test_limits_that_do_not_gate_are_told_once_for_each_reason(make):
    idle = ((make.published(), "samples are batched"),)
    for count in (1, 5):
        (told,) = idle_lines(beside(make, label=f"m{number}", idle=idle) for number in range(count))
        assert told.startswith(
            "a published limit cannot fail these tests, since samples are batched: m0 (100 GB/s)"
        )
        assert told.endswith(" and 2 more") == (count == 5)


def test_published_memory_stands_beside_a_peak_that_was_looked_for(make):
    entries = (
        figure(make, 130.0),
        figure(make, 2.0 * 2**20, metric="peak_bytes", unit="B", source="M"),
    )
    for peak, ours, theirs in (
        (None, "", ""),
        (3 * 2**20, ", peak 3.00 MiB", ", peak 2.00 MiB (1 figure; M)"),
    ):
        row = make.row(make.measurement(1e-3, label="copy", peak_bytes=peak), published=entries)
        told = (
            f"copy: 134 GB/s{ours}; published 130 GB/s (1 figure; S){theirs}, shown, never gating"
        )
        assert [told] == published_lines([row])
