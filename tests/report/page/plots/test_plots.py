"""The plots of a report: what each draws and says, whatever things are named and however many there are."""

import itertools
import math
from dataclasses import replace

import pytest

from pytest_roofline.core.memory import AllocatorPoint, MemoryPoint, MemoryUse
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.rows import worst_first
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.verdicts import Group, Kind, Reference, TimeLimit
from pytest_roofline.core.work import Work
from pytest_roofline.report.plots import plots_of
from pytest_roofline.report.plots.chart import (
    COLOURS,
    DASHES,
    MOST_SERIES,
    SYMBOLS,
    bar_marker,
    drawable,
    log_axis,
    size_axis,
    thin,
    wrap_label,
)
from pytest_roofline.report.plots.samples import sample_plot

from .conftest import H200, checked, of_section, runs_of, traces

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, GIB]
HOSTILE = '<a href="javascript:alert(1)">x</a><b>%{y}\x1b[31m&lt;'
SWEEPS, WORLDS = "Bandwidth against size", "Collectives by size and world"
MATRIX, ATTENTION, PAIRS = (
    "Copies between devices",
    "Attention by sequence length",
    "Two variants side by side",
)
DEVICES = "Devices side by side"
TIME, MEMORY, ROOFLINE = "Where the time goes", "Where the memory goes", "Roofline"


def texts_of(value):
    """Every text of a figure, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_of(each)


def test_every_kind_has_its_plot_in_its_order_and_what_has_no_content_has_none(bench):
    make = bench.make
    rows = bench.sweep([2**12, 2**16, 2**20], slower=[2**20]) + bench.collectives() + bench.peers(4)
    rows += bench.attention() + bench.step() + bench.streams() + bench.ways()
    sections = [checked(plot).section for plot in plots_of(rows, runs_of(rows))]
    assert [SWEEPS, WORLDS, MATRIX, ATTENTION, PAIRS, TIME, MEMORY, ROOFLINE] == list(
        dict.fromkeys(sections)
    )
    # A single size is a row of the table, two are no sweep, other parameters are no size, two devices no matrix, one
    # back end is beside no other, and FLOPs or bytes alone have no place on a roofline.
    tiles = [
        bench.judged(1e-3, key=make.key("tile", parameters={"tile": tile})) for tile in (16, 32, 64)
    ]
    flops = [
        bench.judged(1e-3, key=make.key(f"f{n}", metric="TFLOPS"), work=Work(flops=10**9))
        for n in range(4)
    ]
    for few in (
        [], bench.sweep([2**20]), bench.sweep(SIZES[:2]), bench.rows(*tiles), bench.rows(*flops),
        bench.collectives(sizes=(2**14, 2**30)), bench.peers(2),
        bench.attention(sequences=(512,), back_ends=("triton",), lacking=()),
        bench.attention(sequences=(512,), back_ends=("eager", "triton"), lacking=("eager", "triton")),
    ):  # fmt: skip
        assert [] == plots_of(few)


def test_a_sweep_stands_in_its_units_below_the_roofline_with_all_that_is_known_of_a_point(
    bench, make
):
    (plot,) = of_section(bench.sweep(SIZES, slower=[64 * MIB]), SWEEPS)
    found, layout = traces(plot), plot.figure["layout"]
    assert ("log", "log", "memcpy_d2d on NVIDIA H200") == (
        layout["xaxis"]["type"],
        layout["yaxis"]["type"],
        plot.title,
    )
    assert "4<br>KiB" in layout["xaxis"]["ticktext"]
    assert "GB/s" in layout["yaxis"]["title"]["text"]
    assert [4800.0, 4800.0] == found["Roofline 4.8 TB/s (datasheet)"]["y"]
    # The median of the two largest of six sizes: 134 MB in 42.7 µs and 2.15 GB in 539 µs.
    assert plot.says.startswith(
        "Plateau 3.57 TB/s, 74.3 % of the datasheet's 4.8 TB/s; 1 of 6 sizes slower"
    )
    assert "worst 64 MiB (+20.0 % time)" in plot.says
    told = found["this run"]["hovertext"][SIZES.index(64 * MIB)].split("<br>")
    assert told[:3] == [
        "this run",
        "64 MiB, 42.7 µs, 3.15 TB/s",
        "65.5 % of the roofline 4.8 TB/s (datasheet)",
    ]
    assert told[3].startswith("+20.0 % time against the baseline, 99 % interval +")
    assert ("3 processes: REGRESSED", True) == (told[4], "test failed" in found)
    assert "x" == found["this run"]["marker"]["symbol"][SIZES.index(64 * MIB)]
    # Plotly's legend shows the mark of the first point, which a failed one would turn into that of what failed.
    (plot,) = of_section(bench.sweep(SIZES, slower=SIZES[:1]), SWEEPS)
    marker, xs = traces(plot)["this run"]["marker"], traces(plot)["this run"]["x"]
    assert (["circle", "x", "circle"], [None, *SIZES]) == (marker["symbol"][:3], xs)
    assert len(xs) == len(marker["size"]) == len(traces(plot)["this run"]["hovertext"])

    # Bars reach from the slowest to the fastest process, of sizes that have a baseline.
    known = {4 * KIB: 1e-6, 64 * KIB: 2e-6, MIB: None, 16 * MIB: 9e-6}
    records = [
        bench.judged(seconds or 4e-6, seconds, key=make.key(size_bytes=size))
        for size, seconds in known.items()
    ]
    # What cannot be trusted is hollow, and what has no rate left out.
    records[1] = bench.judged(2e-6, 2e-6, key=make.key(size_bytes=64 * KIB), invalid="a neighbour")
    short = Samples((1e-9,), iterations=1, tick_s=1e-9, labels=("unresolved",))
    records.append(bench.judged(1e-9, key=make.key(size_bytes=512), samples=short))
    (plot,) = of_section(bench.rows(*records), SWEEPS)
    bars, points = traces(plot)["baseline"], traces(plot)["this run"]
    assert [4 * KIB, 64 * KIB, 16 * MIB] == bars["x"]
    mine = [points["y"][points["x"].index(size)] for size in bars["x"]]
    spans = zip(
        bars["y"], bars["error_y"]["arrayminus"], bars["error_y"]["array"], mine, strict=True
    )
    assert all(y - low < own < y + high for y, low, high, own in spans)
    assert ["circle", "circle-open", "circle", "circle"] == points["marker"]["symbol"]
    assert "INVALID measurement" in traces(plot)
    assert (
        "1 invalid. A bar reaches from the slowest to the fastest process of the baseline."
        in plot.says
    )


def test_runs_lie_over_each_other_and_rooflines_are_one_by_device(bench):
    rows = []
    for name, value in {"before": 30e9, "after": 36e9, "third": 35e9}.items():
        roof = Ceiling("traffic_GBps", value, "measured", "triad")
        rows += bench.sweep(SIZES[:3], ceiling=roof, run_id=name, rate=25e9)
    (plot,) = of_section(rows, SWEEPS)
    found = traces(plot)
    before, after = found["run before"], found["run after"]
    assert (before["marker"]["symbol"], before["line"]["dash"]) != (
        after["marker"]["symbol"],
        after["line"]["dash"],
    )
    assert ("run after: " in plot.says, "of the measured" in plot.says) == (True, True)
    assert [35.0, 35.0] == found["Roofline 35.0 GB/s (measured, median of 3)"]["y"]
    other = bench.sweep(SIZES[:3], ceiling=Ceiling("traffic_GBps", 8e12, "datasheet", "a sheet"))
    rows = bench.sweep(SIZES[:3]) + [replace(row, device="NVIDIA B200") for row in other]
    roofs = {
        name: one
        for name, one in traces(*of_section(rows, SWEEPS)).items()
        if name.startswith("Roofline")
    }
    assert {
        "Roofline 4.8 TB/s (datasheet, NVIDIA H200)",
        "Roofline 8 TB/s (datasheet, NVIDIA B200)",
    } == set(roofs)
    assert 2 == len({one["line"]["dash"] for one in roofs.values()})


def test_whole_programs_are_drawn_by_size_a_line_for_each_world_with_what_is_fixed_and_what_grows(
    bench, make
):
    records = []
    for world, size in itertools.product((2, 4), (2**20, 2**23, 2**27, 2**30)):
        parameters = {"world_size": world, "size_bytes": size}
        key = make.key(
            "all_reduce_job", metric="job_wall_s", timing="wall", parameters=parameters, name="job"
        )
        records.append(
            bench.judged(
                world * (5 + size / 2e9), key=key, work=Work(algbw_bytes=size, busbw_bytes=size)
            )
        )
    (plot,) = of_section(bench.rows(*records), "Whole programs by size and world")
    found = traces(plot)
    assert found["2 ranks"]["y"] == pytest.approx(
        [2 * (5 + size / 2e9) for size in (2**20, 2**23, 2**27, 2**30)]
    )
    assert plot.figure["layout"]["yaxis"]["title"]["text"] == "time of a program (s)"
    assert plot.says.startswith("2 ranks: fits 10.0 s + size at 1.00 GB/s")
    assert "4 ranks: fits 20.0 s + size at 0.5 GB/s" in plot.says


def test_a_limit_that_gates_is_a_mark_at_its_own_rate_and_none_where_it_is_not_known(bench, make):
    # The difference is not of the median alone where a limit holds for the fastest call, or sums up several processes.
    breach = {
        "estimate": 0.1,
        "kind": Kind.REGRESSED,
        "reasons": text_reasons("BELOW THRESHOLD: 4 GB/s"),
    }
    for limit_s in (0.5e-3, None):
        records = [bench.judged(1e-3, key=make.key(size_bytes=size)) for size in SIZES]
        limit = TimeLimit(limit_s, make.published()) if limit_s is not None else None
        records[2][1] = replace(records[2][1], limit=limit, **breach)
        found = traces(*of_section(bench.rows(*records), SWEEPS))
        assert (limit_s is not None) == ("limit that gates" in found)
        if limit_s is not None:
            mark = found["limit that gates"]
            assert ([MIB], [pytest.approx(2 * MIB / limit_s / 1e9)]) == (mark["x"], mark["y"])
            assert "BELOW THRESHOLD: 4 GB/s" in mark["hovertext"][0]


def test_a_sweep_over_another_parameter_and_over_pairs_is_one_too(bench, make):
    records = [
        bench.judged(1e-3, key=make.key("scale", parameters={"size": count, "repeat": 2}),
                     work=Work(read_bytes=4 * count, write_bytes=4 * count))
        for count in (2**16, 2**20, 2**24)
    ]  # fmt: skip
    assert [2**18, 2**22, 2**26] == traces(*of_section(bench.rows(*records), SWEEPS))["repeat 2"][
        "x"
    ]
    rows = [
        replace(row, run="one")
        for size in (2**15, 2**20, 2**29)
        for row in bench.peers(2, size=size)
    ]
    assert {"source 0, target 1", "source 1, target 0"} <= set(traces(*of_section(rows, SWEEPS)))


def test_many_series_benchmarks_and_points_are_cut_to_what_is_read_and_the_rest_is_counted(
    bench, make
):
    def key(way):
        return lambda size: make.key(parameters={"way": f"way {way}", "size_bytes": size})

    first, second = of_section(
        [row for way in range(10) for row in bench.sweep(SIZES[:3], key=key(way))], SWEEPS
    )
    parts = [f"memcpy_d2d on NVIDIA H200, part {number} of 2" for number in (1, 2)]
    assert (parts, True) == (
        [first.title, second.title],
        "5 more series are in the figure" in first.says,
    )
    rows = []
    for number in range(30):
        slower = [MIB] if number == 29 else ()
        of = f"copy_{number}"
        rows += bench.sweep(
            SIZES[:3], slower=slower, key=lambda size, of=of: make.key(of, size_bytes=size)
        )
    plots = of_section(rows, SWEEPS)
    assert (12, True) == (len(plots), any(plot.title.startswith("copy_29 ") for plot in plots))
    assert plots[-1].says.endswith(
        "12 of 30 such plots are drawn; the table of results has the others."
    )
    sizes = [KIB * (index + 1) for index in range(2400)]
    records = (
        make.measurement(1e-6 + size / 1e12, key=make.key(size_bytes=size)) for size in sizes
    )
    (plot,) = of_section(bench.rows(*records), SWEEPS)
    assert (2000, True) == (
        len(traces(plot)["this run"]["x"]),
        "2000 of 2400 points are shown" in plot.says,
    )


def test_collectives_have_a_series_for_each_world_in_an_order_that_failing_does_not_change(bench):
    (plot,) = of_section(
        worst_first(bench.collectives(worlds=(2, 4, 16), slower=[(16, 2**22)])), WORLDS
    )
    found = traces(plot)
    assert ["2 ranks, fp32", "4 ranks, fp32", "16 ranks, fp32"] == [
        name for name in found if name[0].isdigit()
    ]
    assert "bus bandwidth (GB/s)" == plot.figure["layout"]["yaxis"]["title"]["text"]
    assert "algbw 202 GB/s, busbw 379 GB/s" in found["16 ranks, fp32"]["hovertext"][-1]
    # Three sizes make no plateau.
    assert (
        "16 ranks, fp32: 379 GB/s at the largest size, 84.1 % of the datasheet's 450 GB/s"
        in plot.says
    )
    assert "1 of 3 sizes slower than the baseline or limit, worst 4 MiB (+30.0 % time)" in plot.says


def test_pairs_of_devices_are_a_matrix_that_marks_the_slow_and_the_invalid(bench, make):
    (plot,) = of_section(bench.peers(4, slow=[(2, 1)], invalid=[(3, 0)]), MATRIX)
    grid = checked(plot).figure
    assert ("GB/s from ↓ to →", ["0", "1", "2", "3"]) == (grid.corner, grid.columns)
    cells = {name: dict(zip(grid.columns, row, strict=True)) for name, row in grid.rows}
    assert ["", "390", "390", "390"] == [text for text, *_ in cells["0"].values()]
    assert ("inv.", 0.0) == cells["3"]["0"][:2]
    assert ("294 ✕", 0.84) == cells["2"]["1"][:2]
    assert 0 < cells["0"]["1"][1] < 0.1
    assert "390 GB/s" in cells["0"]["1"][2]
    assert plot.title.endswith("auto_payload_GBps on NVIDIA H200, roofline 450 GB/s (datasheet)")
    assert plot.says.startswith(
        "Lowest 294 GB/s for 2→1, median 391 GB/s, highest 393 GB/s for 3→1; 1 of 12 pairs"
    )
    for told in ("worst 2→1 (+32.7 % time)", "✕ marks a failed test", "1 invalid"):
        assert told in plot.says

    # Equals are no collapse; every size and run has its own; and of very many devices those of failed tests come first.
    plots = of_section(bench.peers(3) + bench.peers(3, size=2**15), MATRIX)
    assert [True, True] == [
        size in plot.title for size, plot in zip(("512MiB", "32KiB"), plots, strict=True)
    ]
    assert "run run-2, roofline" in plots[0].title
    assert max(slow for _, row in plots[0].figure.rows for _, slow, _ in row) < 0.1
    (plot,) = of_section(
        bench.peers(3, invalid=list(itertools.product(range(3), repeat=2))), MATRIX
    )
    assert checked(plot).says.startswith("No pair has a valid number")
    keys = [
        make.key("peer_copy", parameters={"source": 2 * at, "target": 2 * at + 1})
        for at in range(300)
    ]
    records = [make.measurement(key=key) for key in keys]
    (plot,) = of_section(bench.rows(*records, failed=[records[-1].test_id]), MATRIX)
    grid = checked(plot).figure
    assert (72, 72, True) == (len(grid.columns), len(grid.rows), "598" in dict(grid.rows))
    assert "72 of 300 pairs are shown" in plot.says


def test_attention_has_its_back_ends_side_by_side_and_marks_where_memory_ran_out(bench, make):
    (plot,) = of_section(bench.attention(), ATTENTION)
    found, layout = traces(plot), plot.figure["layout"]
    assert ("group", ["512", "1024", "2048"]) == (layout["barmode"], layout["xaxis"]["ticktext"])
    assert [600 * (1 - 100 / length) for length in (512, 1024, 2048)] == pytest.approx(
        found["triton"]["y"]
    )
    assert 989.0 == found["Roofline 989 TFLOP/s (datasheet)"]["y"][0]
    assert 3 == len(
        {found[name]["marker"]["pattern"]["shape"] for name in ("triton", "sdpa_flash", "eager")}
    )
    assert plot.title == "flash_attention, forward, causal, head_dim 128 on NVIDIA H200"
    eager = found["eager"]
    assert (0.0, "OOM") == (eager["y"][-1], eager["text"][-1])
    assert (
        "eager, 2048 tokens<br>out of memory<br>asked for 2.00 GiB, 1.00 GiB free"
        == eager["hovertext"][-1]
    )
    assert plot.says.startswith(
        "At 2048 tokens triton is fastest with 571 TFLOP/s, 57.7 % of the roofline 989 TFLOP/s (datasheet), "
        "1.09 times sdpa_flash; none of 8 measurements compared"
    )
    assert "eager runs out of memory (OOM) from 2048 tokens on" in plot.says
    twice = bench.attention(sequences=(512, 1024)) + bench.attention(sequences=(512, 1024))
    assert {"triton, run run-2", "triton, run run-3"} <= set(traces(*of_section(twice, ATTENTION)))

    # A CPU's own unit; and what is INVALID is pale.
    def key(name, sequence):
        return make.key(
            "attention",
            metric="fp32_TFLOPS",
            parameters={"implementation": name, "sequence": sequence},
        )

    work = Work(flops=2 * 10**7)
    records = [
        bench.judged(1e-3, key=key("compiled", sequence), work=work) for sequence in (256, 512)
    ]
    records.append(bench.judged(1e-3, key=key("eager", 512), work=work, invalid="a neighbour"))
    (plot,) = of_section(bench.rows(*records), ATTENTION)
    found = traces(plot)
    assert "GFLOP/s" == plot.figure["layout"]["yaxis"]["title"]["text"]
    assert ([20.0, 20.0], ["20.0", "20.0"]) == (found["compiled"]["y"], found["compiled"]["text"])
    assert ([0.35], ["inv."]) == (found["eager"]["marker"]["opacity"], found["eager"]["text"])
    assert ("compiled is fastest" in plot.says, "1 invalid" in plot.says) == (True, True)


def test_two_values_of_a_parameter_stand_side_by_side_with_their_ratio_at_the_same_work(
    bench, make
):
    (plot,) = of_section(bench.ways(sizes=("small",)), PAIRS)
    assert "transformer: compiled and eager on NVIDIA H200" == plot.title
    assert plot.says.startswith(
        "Compiled is 1.56 times as fast as eager (90.0 ms against 140 ms). `roofline compare"
    )
    found = traces(plot)
    assert ([90.0], [140.0]) == (found["compiled"]["x"], found["eager"]["x"])
    assert ([1], ["small"]) == (found["eager"]["y"], plot.figure["layout"]["yaxis"]["ticktext"])
    (plot,) = of_section(bench.ways(sizes=("small", "large", "huge")), PAIRS)
    assert "Compiled is 1.56 times as fast as eager (median of 3 pairs; 1.40 to 1.75)." in plot.says
    assert ([80.0, 90.0, 100.0], [1, 2, 3]) == (
        traces(plot)["compiled"]["x"],
        traces(plot)["compiled"]["y"],
    )
    # The line between the two of a pair ends before the next pair.
    assert [80.0, 140.0, None] == plot.figure["data"][0]["x"][:3]
    (plot,) = of_section(bench.ways(sizes=("small", "large", "huge"), invalid="busy"), PAIRS)
    assert "No pair of valid numbers." == plot.says
    # More work takes longer, three values are no two, and a value without its other is no pair.
    sizes = [
        bench.judged(1e-3 * n, key=make.key("f", parameters={"n": n}), work=Work(flops=n))
        for n in (1, 2)
    ]
    three = [
        bench.judged(1e-3, key=make.key("f", parameters={"way": way}), work=Work(flops=1))
        for way in "abc"
    ]
    alone = [bench.judged(1e-3, key=make.key("f", parameters={"way": way, "n": n}), work=Work(flops=1))
             for n, way in enumerate("ab")]  # fmt: skip
    assert [[], [], []] == [
        of_section(bench.rows(*records), PAIRS) for records in (sizes, three, alone)
    ]


def test_samples_of_what_failed_stand_beside_the_baseline_and_its_tolerance(bench, make):
    """Three processes a fifth slower than their baseline, each with a block left out, and one that does not count."""

    def samples(seconds):
        blocks = (Block(2), Block(2, "cores taken by the scheduler"), Block(2))
        return Samples(
            (seconds, seconds, 2 * seconds, 2 * seconds, seconds, seconds), 10, 1e-9, blocks=blocks
        )

    times = (1.2e-3, 1.21e-3, 1.22e-3)
    measured = [
        make.measurement(samples=samples(s), process=f"p{at}", round=at)
        for at, s in enumerate(times, 1)
    ]
    measured.append(make.measurement(9e-3, round=4, invalid="a neighbour"))
    (row,) = bench.rows(*measured, make.result(*times).time_verdict, failed=[measured[0].test_id])
    plot = sample_plot(row)
    found, layout = traces(plot), plot.figure["layout"]
    assert ["baseline", "round 1", "round 2", "round 3", "round 4"] == layout["xaxis"]["ticktext"]
    assert "time of a call (ms)" == layout["yaxis"]["title"]["text"]
    assert [1.2, 1.2, 1.21, 1.21, 1.22, 1.22] == pytest.approx(found["block of this run"]["y"][:6])
    assert 15 == len(found["process of the baseline, its median"]["y"])
    levels = [found[name] for name in ("baseline 1.00 ms", "tolerance 5 %: 1.05 ms")]
    assert [1.0, 1.05] == pytest.approx([one["y"][0] for one in levels], rel=1e-4)
    assert 2 == len({one["line"]["dash"] for one in levels})
    left = found["block left out"]
    assert ("circle-open", [2.4, 2.42, 2.44]) == (
        left["marker"]["symbol"],
        pytest.approx(left["y"]),
    )
    assert "left out: cores taken by the scheduler" in left["hovertext"][0]
    assert (
        "3 of 3 processes slower than all 15 processes of the baseline; 3 of 10 blocks left out."
        == plot.says
    )

    (row,) = bench.rows(
        *(make.measurement(seconds, invalid="a neighbour") for seconds in (1e-3, 2e-3))
    )
    assert ["round 1, attempt 1", "round 1, attempt 2"] == sample_plot(row).figure["layout"][
        "xaxis"
    ]["ticktext"]
    assert "2 processes measured." == sample_plot(row).says
    long = Samples(tuple(1e-6 + 1e-12 * index for index in range(5000)), iterations=1, tick_s=1e-9)
    (row,) = bench.rows(make.measurement(samples=long))
    plot = sample_plot(row)
    assert 2000 == len(traces(plot)["block of this run"]["x"])
    assert "2000 of 5000 blocks are shown" in plot.says
    assert "time of a call (µs)" == plot.figure["layout"]["yaxis"]["title"]["text"]


def test_time_and_memory_of_a_call_are_stacked_by_what_they_go_into(bench):
    rows = bench.step()
    (run,) = runs_of(rows)
    (time,), (memory,) = (of_section(rows, section, [run]) for section in (TIME, MEMORY))
    found = traces(time)
    # In the order of the classes, so that bars of several runs compare.
    assert ["matrix product", "attention fused", "elementwise", "optimizer", "idle"] == list(found)
    assert 100 == pytest.approx(sum(trace["x"][0] for trace in found.values()))
    told = "matrix product: 55.0 %<br>77.0 ms a call<br>40 launches in 2 calls"
    assert told in found["matrix product"]["hovertext"][0]
    assert time.says.startswith(
        "Most of the time of transformer[small-step] goes into matrix product (55.0 %)."
    )
    assert [300 / 1024] == traces(memory)["parameters"]["x"]
    assert "peak memory (GiB)" == memory.figure["layout"]["xaxis"]["title"]["text"]
    says = "The highest peak is that of transformer[small-step], 1.00 GiB; most of it is activations (70.3 %)."
    assert says == memory.says
    uses = tuple(replace(run.memory_uses[0], test_id=f"test_{number}") for number in range(60))
    (many,) = of_section(rows, MEMORY, [run.with_lines(MemoryUse, uses)])
    assert (20, True) == (
        len(many.figure["layout"]["yaxis"]["tickvals"]),
        "20 of 60 calls are shown" in many.says,
    )
    both = rows + bench.step()
    (plot,) = of_section(both, TIME, runs_of(both))
    labels = ["transformer[small-<br>step], run run-1", "transformer[small-<br>step], run run-2"]
    assert labels == plot.figure["layout"]["yaxis"]["ticktext"]


def test_points_stand_at_their_intensity_below_roofs_that_meet_at_the_ridge(bench, make):
    rows = bench.streams() + bench.peers(3) + bench.collectives()
    rows += bench.step(ceiling=Ceiling("bf16_TFLOPS", 989e12, "datasheet", "a sheet"))
    (plot,) = of_section(rows, ROOFLINE)
    found, layout = traces(plot), plot.figure["layout"]
    # A FLOP in 24 bytes and two in 32, at 4 TB/s; the copy has no FLOPs, the step no bytes.
    x, y = found["stream"]["x"], found["stream"]["y"]
    assert [1 / 24, 2 / 32] == pytest.approx(x)
    assert [4.0] * 2 == pytest.approx([height / place for place, height in zip(x, y, strict=True)])
    slope, flat = found["memory 4.8 TB/s (datasheet)"], found["bf16 989 TFLOP/s (datasheet)"]
    assert [4.8] * 2 == pytest.approx([y / x for x, y in zip(slope["x"], slope["y"], strict=True)])
    assert (slope["x"][-1], slope["y"][-1]) == pytest.approx((flat["x"][0], flat["y"][0]))
    assert (989.0, True) == (flat["y"][0], slope["line"]["dash"] != flat["line"]["dash"])
    low, high = layout["xaxis"]["range"]
    assert low < math.log10(min(x)) < math.log10(flat["x"][-1]) < high
    assert {"stream", "product"} == set(found) - {
        "memory 4.8 TB/s (datasheet)",
        "bf16 989 TFLOP/s (datasheet)",
    }
    assert plot.says.startswith("3 measurements: nearest to its roof stream[")
    assert "farthest product[8192] (70.8 %)" in plot.says
    assert plot.says.endswith(f" The table has {len(rows) - 3} more, without FLOPs or bytes.")
    # Bytes out of a cache are no share of the memory's roof.
    work, cached = (
        Work(read_bytes=2**40, flops=2**20),
        Samples((1e-3,), 1, 1e-9, labels=("cache_resident",)),
    )
    cases = [
        ({"samples": cached, "ceiling": H200}, "no measurement has a roofline"),
        ({}, "no roofline is known for these measurements"),
        ({"invalid": "a neighbour"}, "no measurement is valid"),
    ]
    for facts, told in cases:
        (plot,) = of_section(bench.rows(bench.judged(1e-3, work=work, **facts)), ROOFLINE)
        assert told in checked(plot).says
    rows = bench.streams()
    part = make.key(hardware=make.hardware(partition="1g.18gb"))
    rows += bench.rows(bench.judged(1e-3, key=part, work=rows[0].measurement.work))
    assert 2 == len({plot.title for plot in of_section(rows, ROOFLINE)})


def test_names_cannot_inject_and_runs_of_one_file_name_are_told_apart(bench, make):
    def hostile(size):
        return make.key(HOSTILE, parameters={"way": HOSTILE, "size_bytes": size}, name=HOSTILE)

    records = [bench.judged(2e-3, 1e-3, key=hostile(size), work=Work(read_bytes=size, flops=size))
               for size in (2**12, 2**16, 2**20)]  # fmt: skip
    rows = bench.rows(*records, failed=[records[0][0].test_id], product=HOSTILE)
    rows += bench.step(label=HOSTILE, test_id=HOSTILE)
    rows += bench.ways(sizes=(HOSTILE, "small"), names=(HOSTILE, "eager"))
    plots = [sample_plot(next(row for row in rows if row.red)), *plots_of(rows, runs_of(rows))]
    assert {"", DEVICES, SWEEPS, PAIRS, TIME, MEMORY, ROOFLINE} == {plot.section for plot in plots}
    for plot in plots:
        if not isinstance(plot.figure, dict):
            # A table, which the page escapes.
            assert (
                "\x1b"
                not in f"{plot.title}{plot.figure.columns}{[name for name, _ in plot.figure.rows]}"
            )
            continue
        texts = list(texts_of(checked(plot).figure))
        assert not any("<" in text.replace("<br>", "") for text in texts)
        assert not any("\x1b" in text for text in [*texts, plot.title, plot.says])
        # A template would fill in what stands in braces.
        assert not any(
            name in trace
            for trace in plot.figure["data"]
            for name in ("hovertemplate", "texttemplate")
        )
    twice = [
        bench.ways() + bench.sweep(SIZES[:3], key=lambda size: make.key("f", size_bytes=size))
        for _ in "ab"
    ]
    titles = [plot.title for plot in of_section([row for rows in twice for row in rows], PAIRS)]
    assert 2 == len(set(titles)) == sum("run run-" in title for title in titles)


def test_no_figure_fails_on_what_a_file_made_by_hand_may_hold(bench, make):
    """Times of calls are bounded; rooflines, differences and limits are not."""
    changes = [{"reference": Reference((Group((1e-9, 1e3)),), "")}]
    for value in (5e-324, 1.7e308):
        limit = TimeLimit(value, make.published())
        changes += [{"limit": limit}, {"estimate": value}, {"tolerance": value}]
    for change in changes:
        roof = Ceiling("traffic_GBps", 4e12, "measured", "")
        keys = [make.key(size_bytes=size) for size in (2**12, 2**16, 2**20)]
        records = [bench.judged(1e-3, 1e-3, key=key, ceiling=roof) for key in keys]
        records[0][1] = replace(records[0][1], processes=3, **change)
        product = make.measurement(
            key=make.key("product", metric="TFLOPS"), work=Work(flops=10**9, read_bytes=1)
        )
        rows = bench.rows(*records, product, failed=[records[0][0].test_id])
        roof = replace(
            roof,
            value=next(value for value in (*change.values(), 1e-300) if isinstance(value, float)),
        )
        rows += [replace(row, measurement=replace(row.measurement, ceiling=roof)) for row in rows]
        assert {SWEEPS, ROOFLINE} == {checked(plot).section for plot in plots_of(rows)}, change
        checked(sample_plot(rows[0]))


def test_looks_differ_and_colours_are_seen_on_black_and_on_white():
    assert MOST_SERIES == len(set(SYMBOLS)) == len(set(DASHES))
    assert 12 == len(
        {(marker["color"], marker["pattern"]["shape"]) for marker in map(bar_marker, range(12))}
    )
    for colour in COLOURS:
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        seen = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert ((seen + 0.05) / 0.05 > 3, 1.05 / (seen + 0.05) > 2) == (True, True), colour


def test_thinning_keeps_what_matters_and_a_label_its_end_which_tells_runs_apart():
    kept = thin(range(1000), 10, lambda number: number in (3, 997))
    assert (10, sorted(kept), True) == (len(kept), kept, {3, 997} <= set(kept))
    assert [0, 1, 2] == thin(range(100), 3, lambda _: True)
    lines = wrap_label(
        "a_benchmark_of_transformers[small-c128-fp32-forward-with-remat], run nightly"
    ).split("<br>")
    assert (4, "a_benchmark_of_", "nightly", True) == (
        len(lines),
        lines[0],
        lines[-1],
        "…" in lines[2],
    )
    assert all(len(line) <= 18 for line in lines)


def test_axes_have_few_round_ticks_written_out_and_leave_out_what_has_no_place():
    assert ["10", "100", "1,000", "10,000"] == log_axis("GB/s", [3.0, 4800.0])["ticktext"]
    assert ["20", "50", "100"] == log_axis("GB/s", [20.0, 90.0])["ticktext"]
    for decades in range(1, 29, 3):
        assert 2 <= len(log_axis("GB/s", [1.0, 10.0**decades])["tickvals"]) <= 8
    for values in ([1e-320, 1e300], [1.7e308], [math.inf, 3.0, 0.0, -1.0, None], [math.inf], []):
        low, high = log_axis("GB/s", values)["range"]
        assert low < high
        assert all(low < math.log10(value) < high for value in values if drawable(value))
    found = size_axis("size", [4096, 2**31])
    assert ("4<br>KiB", 0) == (found["ticktext"][0], found["tickangle"])
    assert all(tick & (tick - 1) == 0 for tick in found["tickvals"])
    assert 4 <= len(found["tickvals"]) <= 7
    for sizes in ([1000], [1000, 1001], [1, 3]):
        low, high = size_axis("size", sizes)["range"]
        assert low < math.log10(min(sizes)) <= math.log10(max(sizes)) < high


def test_devices_stand_side_by_side_as_a_table_and_as_points(bench):
    slow = bench.ways(sizes=("small", "xl"))
    (fast,) = [
        bench.rows(
            bench.judged(0.07, key=slow[0].key, work=slow[0].work), product="AMD Instinct MI300X"
        )
    ]
    table, points = of_section([*slow, *fast], DEVICES)
    assert "transformer: time in ms" == checked(table).title
    assert ("NVIDIA H200", "AMD Instinct MI300X") == table.figure.columns
    # The darker, the further below the best; what was measured on one device alone has none beside it.
    label, ((first, below, _), (second, best, _)) = table.figure.rows[0]
    assert ("transformer[small-eager]", "140", 0.5, "70.0", 0.0) == (
        label,
        first,
        below,
        second,
        best,
    )
    assert ("", 0.0, "") == table.figure.rows[1][1][1]
    assert [70.0] == traces(points)["AMD Instinct MI300X"]["x"]
    # A sweep has its line, and needs no points; of one device there is nothing to compare.
    sizes = [2**12, 2**16, 2**20]
    other = bench.rows(
        *[bench.judged(1e-3, key=bench.make.key(size_bytes=size)) for size in sizes], product="A100"
    )
    rows = [*bench.sweep(sizes), *other]
    assert ["memcpy_d2d: rate in GB/s"] == [plot.title for plot in of_section(rows, DEVICES)]
    assert [] == of_section(bench.ways(), DEVICES)


def test_memory_over_time_is_stacked_by_category_below_what_the_allocator_has(bench):
    (row,) = bench.step()
    points = (
        MemoryPoint(0.0, "forward", {"parameters": 300 * MIB}),
        MemoryPoint(0.1, "backward", {"parameters": 300 * MIB, "activations": 724 * MIB}),
        MemoryPoint(0.2, "optimizer", {"parameters": 300 * MIB}),
    )
    use = MemoryUse(
        row.test, row.label, "process-1", "cuda:0", "", GIB, categories={"parameters": GIB}, over_time=points,
        allocator=(AllocatorPoint(0.0, 300 * MIB, GIB), AllocatorPoint(0.15, GIB, 2 * GIB)),
    )  # fmt: skip
    rows = bench.rows(row.measurement, use)
    _, plot = of_section(rows, MEMORY, runs_of(rows))
    found = traces(plot)
    assert plot.says.startswith(
        "The call begins with 300 MiB, peaks at 1.00 GiB in backward, and ends with 300 MiB. The allocator"
    )
    assert [0, pytest.approx(724 / 1024), 0] == found["activations"]["y"]
    assert ([0.0, 100.0, 200.0], "alive") == (
        found["activations"]["x"],
        found["parameters"]["stackgroup"],
    )
    assert ([1.0, 2.0], [0.0, 150.0]) == tuple(
        found["reserved by the allocator"][end] for end in "yx"
    )
    assert "backward, 100 ms" in found["parameters"]["hovertext"][1]


def test_what_a_kernel_copies_is_a_line_beside_the_driver_s(bench):
    rows = []
    for by, rate in (("", 50e9), ("_triton", 25e9)):
        rows += bench.sweep(
            SIZES,
            known=False,
            rate=rate,
            run_id="one",
            key=lambda size, by=by: bench.make.key(f"memcpy_d2d{by}", size),
        )
    (plot,) = of_section([replace(row, run="one", path=rows[0].path) for row in rows], SWEEPS)
    assert {"this run", "triton"} <= traces(plot).keys()
