"""The plots of a report: what each draws and says, whatever things are named and however many there are."""

import itertools
import json
import math
from dataclasses import replace

import pytest

from pytest_roofline.baselines.run_rows import rows_of
from pytest_roofline.core.judgements import SessionRecord
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.rows import worst_first
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.plots import plots_of
from pytest_roofline.report.plots.chart import (
    COLOURS,
    DASHES,
    MOST_SERIES,
    SYMBOLS,
    bar_marker,
    drawable,
    lines_of,
    log_axis,
    plain_figure,
    safe,
    size_axis,
    thinned,
    wrapped,
)

from .conftest import H200, checked, of_section, runs_of, traces

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, GIB]
HOSTILE = '<a href="javascript:alert(1)">x</a><b>%{y}\x1b[31m&lt;'
SWEEPS, WORLDS = "Bandwidth against size", "Collectives by size and world"
FAILED, INVALID = "Samples of what failed", "Samples of what cannot be trusted"
PAIRS, ATTENTION = "Copies between devices", "Attention by sequence length"
TIME, MEMORY, FIRST, ROOFLINE = "Where the time goes", "Where the memory goes", "First calls", "Roofline"


def texts_of(value):
    """Every text of a figure, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_of(each)


def test_every_kind_has_its_plot_in_its_order_and_nothing_has_none(bench):
    rows = bench.sweep([2**12, 2**16, 2**20], slower=[2**20]) + bench.collectives() + bench.peers(4)
    rows += bench.attention() + bench.step() + bench.streams()
    rows += bench.rows(bench.judged(1e-3, key=bench.make.key("odd"), invalid="a neighbour"))
    sections = [checked(plot).section for plot in plots_of(rows, runs_of(rows))]
    order = [FAILED, SWEEPS, WORLDS, PAIRS, ATTENTION, TIME, FIRST, MEMORY, ROOFLINE, INVALID]
    assert order == list(dict.fromkeys(sections))
    assert [] == plots_of([])
    # A single size is a row of the table, two are no sweep, and other parameters are no size.
    tiles = [bench.judged(1e-3, key=bench.make.key("tile", parameters={"tile": tile})) for tile in (16, 32, 64)]
    for few in (bench.sweep([2**20]), bench.sweep(SIZES[:2]), bench.rows(*tiles)):
        assert [] == plots_of(few)


def test_a_sweep_stands_in_its_units_below_the_roofline_with_all_that_is_known_of_a_point(bench):
    (plot,) = of_section(bench.sweep(SIZES, slower=[64 * MIB]), SWEEPS)
    found, layout = traces(plot), plot.figure["layout"]
    assert ("log", "log", "memcpy_d2d on NVIDIA H200") == (layout["xaxis"]["type"], layout["yaxis"]["type"], plot.title)
    assert "4<br>KiB" in layout["xaxis"]["ticktext"]
    assert "GB/s" in layout["yaxis"]["title"]["text"]
    roof = found["Roofline 4.8 TB/s (datasheet)"]
    assert ("dash", [4800.0, 4800.0]) == (roof["line"]["dash"], roof["y"])
    # The median of the two largest of six sizes: 134 MB in 42.7 µs and 2.15 GB in 539 µs.
    assert plot.says.startswith("Plateau 3.57 TB/s, 74.3 % of the datasheet's 4.8 TB/s; 1 of 6 sizes slower")
    assert "worst 64 MiB (+20.0 % time)" in plot.says
    told = found["this run"]["hovertext"][SIZES.index(64 * MIB)].split("<br>")
    assert told[:3] == ["this run", "64 MiB, 42.7 µs, 3.15 TB/s", "65.5 % of the roofline 4.8 TB/s (datasheet)"]
    assert told[3].startswith("+20.0 % time against the baseline, 99 % interval +")
    assert told[4] == "3 processes: REGRESSED"
    assert "x" == found["this run"]["marker"]["symbol"][SIZES.index(64 * MIB)]
    assert "test failed" in found


def test_bars_reach_from_the_slowest_to_the_fastest_process_of_sizes_that_have_a_baseline(bench, make):
    known = {4 * KIB: 1e-6, 64 * KIB: 2e-6, MIB: None, 16 * MIB: 9e-6}
    records = [bench.judged(seconds or 4e-6, seconds, key=make.key(size_bytes=size)) for size, seconds in known.items()]
    (plot,) = of_section(bench.rows(*records), SWEEPS)
    bars, points = traces(plot)["baseline"], traces(plot)["this run"]
    assert [4 * KIB, 64 * KIB, 16 * MIB] == bars["x"]
    up, down = bars["error_y"]["array"], bars["error_y"]["arrayminus"]
    mine = [points["y"][points["x"].index(size)] for size in bars["x"]]
    assert all(y - low < own < y + high for y, low, high, own in zip(bars["y"], down, up, mine, strict=True))
    assert "A bar reaches from the slowest to the fastest process of the baseline." in plot.says


def test_invalid_points_are_open_and_those_of_no_rate_are_left_out(bench, make):
    records = [bench.judged(1e-5 * at, 1e-5 * at, key=make.key(size_bytes=size)) for at, size in enumerate(SIZES, 1)]
    records[1] = bench.judged(2e-5, 1e-5, key=make.key(size_bytes=SIZES[1]), invalid="a neighbour")
    short = Samples((1e-9,), iterations=1, tick_s=1e-9, labels=("unresolved",))
    records.append(bench.judged(1e-9, key=make.key(size_bytes=512), samples=short))
    (plot,) = of_section(bench.rows(*records), SWEEPS)
    assert ["circle", "circle-open", *["circle"] * 4] == traces(plot)["this run"]["marker"]["symbol"]
    assert "INVALID: not to be trusted" in traces(plot)
    assert "1 invalid" in plot.says


def test_runs_lie_over_each_other_and_measured_rooflines_are_one_by_device(bench):
    rows = []
    for name, value in {"before": 30e9, "after": 36e9, "third": 35e9}.items():
        roof = Ceiling("traffic_GBps", value, "measured", "triad")
        rows += bench.sweep(SIZES[:3], ceiling=roof, run_id=name, rate=25e9)
    (plot,) = of_section(rows, SWEEPS)
    found = traces(plot)
    before, after = found["run before"], found["run after"]
    assert (before["marker"]["symbol"], before["line"]["dash"]) != (after["marker"]["symbol"], after["line"]["dash"])
    assert "run after: " in plot.says
    assert "of the measured" in plot.says
    assert [35.0, 35.0] == found["Roofline 35.0 GB/s (measured, median of 3)"]["y"]
    other = bench.sweep(SIZES[:3], ceiling=Ceiling("traffic_GBps", 8e12, "datasheet", "a sheet"))
    rows = bench.sweep(SIZES[:3]) + [replace(row, device="NVIDIA B200") for row in other]
    (plot,) = of_section(rows, SWEEPS)
    assert {"Roofline 4.8 TB/s (datasheet, NVIDIA H200)", "Roofline 8 TB/s (datasheet, NVIDIA B200)"} == {
        name for name in traces(plot) if name.startswith("Roofline")
    }


def test_a_limit_that_gates_is_a_mark_at_its_own_rate_and_none_where_it_is_not_kept(bench, make):
    # The difference is not of the median alone where a limit holds for the fastest call, or sums up several processes.
    breach = {"estimate": 0.1, "verdict": "REGRESSED", "reason": "BELOW THRESHOLD: 4 GB/s"}
    for limit_s in (0.5e-3, None):
        records = [bench.judged(1e-3, key=make.key(size_bytes=size)) for size in SIZES]
        records[2][1] = replace(records[2][1], limit_s=limit_s, **breach)
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
    assert [2**18, 2**22, 2**26] == traces(*of_section(bench.rows(*records), SWEEPS))["repeat 2"]["x"]
    rows = [replace(row, run="one") for size in (2**15, 2**20, 2**29) for row in bench.peers(2, size=size)]
    assert {"source 0, target 1", "source 1, target 0"} <= set(traces(*of_section(rows, SWEEPS)))


def test_many_series_benchmarks_and_points_are_cut_to_what_is_read_and_the_rest_is_counted(bench, make):
    def key(way):
        return lambda size: make.key(parameters={"way": f"way {way}", "size_bytes": size})

    first, second = of_section([row for way in range(10) for row in bench.sweep(SIZES[:3], key=key(way))], SWEEPS)
    assert ["memcpy_d2d on NVIDIA H200, part 1 of 2", "memcpy_d2d on NVIDIA H200, part 2 of 2"] == [
        first.title,
        second.title,
    ]
    assert "5 more series are in the figure" in first.says
    rows = []
    for number in range(30):
        slower = [MIB] if number == 29 else ()
        of = f"copy_{number}"
        rows += bench.sweep(SIZES[:3], slower=slower, key=lambda size, of=of: make.key(of, size_bytes=size))
    plots = of_section(rows, SWEEPS)
    assert (12, True) == (len(plots), any(plot.title.startswith("copy_29 ") for plot in plots))
    assert plots[-1].says.endswith("12 of 30 such plots are drawn; the table of results has the others.")
    sizes = [KIB * (index + 1) for index in range(2400)]
    records = (make.measurement(1e-6 + size / 1e12, key=make.key(size_bytes=size)) for size in sizes)
    (plot,) = of_section(bench.rows(*records), SWEEPS)
    assert 2000 == len(traces(plot)["this run"]["x"])
    assert "2000 of 2400 points are shown" in plot.says


def test_collectives_have_a_series_for_each_world_in_an_order_that_failing_does_not_change(bench):
    (plot,) = of_section(worst_first(bench.collectives(worlds=(2, 4, 16), slower=[(16, 2**22)])), WORLDS)
    found = traces(plot)
    assert ["2 ranks, fp32", "4 ranks, fp32", "16 ranks, fp32"] == [name for name in found if name[0].isdigit()]
    assert "bus bandwidth (GB/s)" == plot.figure["layout"]["yaxis"]["title"]["text"]
    assert "algbw 202 GB/s, busbw 379 GB/s" in found["16 ranks, fp32"]["hovertext"][-1]
    # Three sizes make no plateau.
    assert "16 ranks, fp32: 379 GB/s at the largest size, 84.1 % of the datasheet's 450 GB/s" in plot.says
    assert "1 of 3 sizes slower than the baseline or limit, worst 4 MiB (+30.0 % time)" in plot.says


def test_pairs_of_devices_are_a_heat_map_that_marks_the_slow_and_the_invalid(bench):
    (plot,) = of_section(bench.peers(4, slow=[(2, 1)], invalid=[(3, 0)]), PAIRS)
    ((trace,), layout) = checked(plot).figure["data"], plot.figure["layout"]
    assert ["0", "1", "2", "3"] == trace["x"] == trace["y"]
    assert "reversed" == layout["yaxis"]["autorange"]
    assert ["", "390", "390", "390"] == trace["text"][0]
    assert (None, None, "") == (trace["z"][0][0], trace["z"][3][0], trace["text"][3][0])
    assert [("0", "3", "inv.")] == [(mark["x"], mark["y"], mark["text"]) for mark in layout["annotations"]]
    assert "390 GB/s" in trace["hovertext"][0][1]
    assert plot.title.endswith("auto_payload_GBps on NVIDIA H200, roofline 450 GB/s (datasheet)")
    assert plot.says.startswith("Lowest 294 GB/s for 2→1, median 391 GB/s, highest 393 GB/s for 3→1; 1 of 12 pairs")
    for told in ("worst 2→1 (+32.7 % time)", "✕ marks a failed test", "1 invalid"):
        assert told in plot.says
    assert "294<br>✕" == trace["text"][2][1]
    assert trace["zmin"] < trace["z"][2][1] < 0.8 * trace["zmax"]


def test_a_heat_map_of_equals_is_no_collapse_and_has_a_size_and_a_run_each(bench, make):
    plots = of_section(bench.peers(3) + bench.peers(3, size=2**15), PAIRS)
    assert [True, True] == [size in plot.title for size, plot in zip(("512MiB", "32KiB"), plots, strict=True)]
    assert plots[0].title.endswith("run run-1, roofline 450 GB/s (datasheet)")
    (trace,) = plots[0].figure["data"]
    assert trace["zmin"] == 0.7 * trace["zmax"]
    assert [] == of_section(bench.peers(2), PAIRS)
    every = list(itertools.product(range(3), repeat=2))
    (plot,) = of_section(bench.peers(3, invalid=every), PAIRS)
    assert checked(plot).says.startswith("No pair has a number to be trusted")
    keys = [make.key("peer_copy", parameters={"source": 2 * at, "target": 2 * at + 1}) for at in range(300)]
    records = [make.measurement(key=key) for key in keys]
    (plot,) = of_section(bench.rows(*records, failed=[records[-1].test_id]), PAIRS)
    (trace,) = checked(plot).figure["data"]
    assert (72, 72, True) == (len(trace["x"]), len(trace["y"]), "598" in trace["y"])
    assert "72 of 300 pairs are shown" in plot.says


def test_attention_has_its_back_ends_side_by_side_and_marks_where_memory_ran_out(bench):
    (plot,) = of_section(bench.attention(), ATTENTION)
    found, layout = traces(plot), plot.figure["layout"]
    assert ("group", ["512", "1024", "2048"]) == (layout["barmode"], layout["xaxis"]["ticktext"])
    assert [600 * (1 - 100 / length) for length in (512, 1024, 2048)] == pytest.approx(found["triton"]["y"])
    assert 989.0 == found["Roofline 989 TFLOP/s (datasheet)"]["y"][0]
    assert 3 == len({found[name]["marker"]["pattern"]["shape"] for name in ("triton", "sdpa_flash", "eager")})
    assert plot.title == "flash_attention, forward, causal, head_dim 128 on NVIDIA H200"
    eager = found["eager"]
    assert (0.0, "OOM") == (eager["y"][-1], eager["text"][-1])
    assert "eager, 2048 tokens<br>out of memory<br>asked for 2.00 GiB, 1.00 GiB free" == eager["hovertext"][-1]
    assert plot.says.startswith(
        "At 2048 tokens triton is fastest with 571 TFLOP/s, 57.7 % of the roofline 989 TFLOP/s (datasheet), "
        "1.09 times sdpa_flash; none of 8 measurements compared"
    )
    assert "eager runs out of memory (OOM) from 2048 tokens on" in plot.says
    twice = bench.attention(sequences=(512, 1024)) + bench.attention(sequences=(512, 1024))
    assert {"triton, run run-2", "triton, run run-3"} <= set(traces(*of_section(twice, ATTENTION)))
    alone = bench.attention(sequences=(512,), back_ends=("triton",), lacking=())
    lost = bench.attention(sequences=(512,), back_ends=("eager", "triton"), lacking=("eager", "triton"))
    assert [[], []] == [of_section(rows, ATTENTION) for rows in (alone, lost)]


def test_attention_on_a_cpu_is_in_its_own_unit_and_invalid_numbers_are_pale(bench, make):
    def key(name, sequence):
        return make.key("attention", metric="fp32_TFLOPS", parameters={"implementation": name, "sequence": sequence})

    work = Work(flops=2 * 10**7)
    records = [bench.judged(1e-3, key=key("compiled", sequence), work=work) for sequence in (256, 512)]
    records.append(bench.judged(1e-3, key=key("eager", 512), work=work, invalid="a neighbour"))
    (plot,) = of_section(bench.rows(*records), ATTENTION)
    assert "GFLOP/s" == plot.figure["layout"]["yaxis"]["title"]["text"]
    assert ([20.0, 20.0], ["20.0", "20.0"]) == (traces(plot)["compiled"]["y"], traces(plot)["compiled"]["text"])
    assert ([0.35], ["inv."]) == (traces(plot)["eager"]["marker"]["opacity"], traces(plot)["eager"]["text"])
    assert "compiled is fastest" in plot.says
    assert "1 invalid" in plot.says


@pytest.fixture
def failed(bench, make):
    """Three processes a fifth slower than their baseline, each with a block left out, and one that does not count."""

    def samples(seconds):
        blocks = (Block(2), Block(2, "cores taken by the scheduler"), Block(2))
        return Samples((seconds, seconds, 2 * seconds, 2 * seconds, seconds, seconds), 10, 1e-9, blocks=blocks)

    times = (1.2e-3, 1.21e-3, 1.22e-3)
    measured = [make.measurement(samples=samples(s), process=f"p{at}", round=at) for at, s in enumerate(times, 1)]
    measured.append(make.measurement(9e-3, round=4, invalid="a neighbour"))
    return bench.rows(*measured, make.result(*times).judgement, failed=[measured[0].test_id])


def test_samples_of_what_failed_stand_beside_the_baseline_and_its_tolerance(failed):
    (plot,) = of_section(failed, FAILED)
    found, layout = traces(plot), plot.figure["layout"]
    assert ["baseline", "round 1", "round 2", "round 3", "round 4"] == layout["xaxis"]["ticktext"]
    assert "time of a call (ms)" == layout["yaxis"]["title"]["text"]
    assert [1.2, 1.2, 1.21, 1.21, 1.22, 1.22] == pytest.approx(found["block of this run"]["y"][:6])
    assert 15 == len(found["process of the baseline, its median"]["y"])
    levels = [found[name]["y"][0] for name in ("baseline 1.00 ms", "tolerance 5 %: 1.05 ms")]
    assert [1.0, 1.05] == pytest.approx(levels, rel=1e-4)
    left = found["block left out"]
    assert ("circle-open", [2.4, 2.42, 2.44]) == (left["marker"]["symbol"], pytest.approx(left["y"]))
    assert "left out: cores taken by the scheduler" in left["hovertext"][0]
    assert plot.says.startswith(
        "+21.0 % time against the baseline; 3 of 3 processes slower than all 15 of the baseline"
    )
    assert "3 of 10 blocks left out" in plot.says


def test_samples_of_what_is_invalid_stand_elsewhere_ten_of_each_and_the_others_counted(bench, make):
    records = [make.measurement(key=make.key(f"copy_{number}"), invalid="a neighbour") for number in range(12)]
    rows = bench.rows(*records, failed=[records[0].test_id])
    assert (1, 10) == (len(of_section(rows, FAILED)), len(of_section(rows, INVALID)))
    assert "1 more cannot be trusted; `roofline explain` shows the samples" in of_section(rows, INVALID)[-1].says
    records = [bench.judged(1e-3 * (1.2 + number / 100), 1e-3, key=make.key(f"copy_{number}")) for number in range(13)]
    found = of_section(bench.rows(*records, failed=[one.test_id for one, _ in records]), FAILED)
    assert 10 == len(found)
    assert found[0].title.startswith("copy_12[64MiB] on NVIDIA H200: REGRESSED")
    assert found[-1].says.endswith("3 more failed; `roofline explain` shows the samples of each.")
    again = bench.rows(*(make.measurement(seconds, invalid="a neighbour") for seconds in (1e-3, 2e-3)))
    (plot,) = of_section(again, INVALID)
    assert ["round 1, attempt 1", "round 1, attempt 2"] == plot.figure["layout"]["xaxis"]["ticktext"]
    long = Samples(tuple(1e-6 + 1e-12 * index for index in range(5000)), iterations=1, tick_s=1e-9)
    (plot,) = of_section(bench.rows(make.measurement(samples=long, invalid="a neighbour")), INVALID)
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
    assert (
        "matrix product: 55.0 %<br>77.0 ms a call<br>40 launches in 2 calls" in found["matrix product"]["hovertext"][0]
    )
    assert time.says.startswith("Most of the time of transformer[small-step] goes into matrix product (55.0 %).")
    assert [300 / 1024] == traces(memory)["parameters"]["x"]
    assert "peak memory (GiB)" == memory.figure["layout"]["xaxis"]["title"]["text"]
    assert "The highest peak is that of transformer[small-step], 1.00 GiB; most of it is activations (70.3 %)." == (
        memory.says
    )
    uses = tuple(replace(run.memory_uses[0], test_id=f"test_{number}") for number in range(60))
    (many,) = of_section(rows, MEMORY, [replace(run, memory_uses=uses)])
    assert (20, True) == (len(many.figure["layout"]["yaxis"]["tickvals"]), "20 of 60 calls are shown" in many.says)
    both = rows + bench.step()
    (plot,) = of_section(both, TIME, runs_of(both))
    labels = ["transformer[small-<br>step], run run-1", "transformer[small-<br>step], run run-2"]
    assert labels == plot.figure["layout"]["yaxis"]["ticktext"]


def test_first_calls_are_multiples_of_the_steady_one(bench, make):
    (plot,) = of_section(bench.step(), FIRST)
    assert [1.76 / 0.14, 0.15 / 0.14] == pytest.approx(traces(plot)["transformer[small-step]"]["y"][:2])
    assert "The first call of transformer[small-step] took 1.76 s, 12.6 x the steady 140 ms." == plot.says
    samples = Samples((0.14,), 1, 1e-9, first_calls_s=(1.0,) * 400)
    records = [make.measurement(key=make.key(f"step_{number}"), samples=samples) for number in range(9)]
    (plot,) = of_section(bench.rows(*records), FIRST)
    assert "8 of 9 measurements, those that pay most, are shown" in plot.says
    assert MOST_SERIES + 1 == len(checked(plot).figure["data"])
    for first, warm, drawn in (((1.0, 0.0), (), True), ((0.0, 0.0), (), False), ((0.0, 0.0), (0.0, 0.0), False)):
        rows = bench.step(samples=Samples((0.14,), 1, 1e-9, first_calls_s=first, warm_calls_s=warm))
        plots = of_section(rows, FIRST)
        assert drawn == bool(plots)
        # What takes no time has no place on a logarithmic axis.
        assert not drawn or traces(*plots)["transformer[small-step]"]["y"][1] is None


def test_points_stand_at_their_intensity_and_what_has_none_in_a_strip_below_its_own_roof(bench):
    rows = bench.streams() + bench.peers(3) + bench.collectives()
    rows += bench.step(ceiling=Ceiling("bf16_TFLOPS", 989e12, "datasheet", "a sheet"))
    (plot,) = of_section(rows, ROOFLINE)
    found, layout = traces(plot), plot.figure["layout"]
    # A FLOP in 24 bytes and two in 32; 4 of 4.8 TB/s on the very slope that goes on to the left.
    x, y = found["stream"]["x"], found["stream"]["y"]
    assert [1 / 24, 2 / 32] == pytest.approx(x[:2])
    assert [4.0] * 3 == pytest.approx([height / place for place, height in zip(x, y, strict=True)])
    left, right = layout["shapes"]
    assert left["x0"] < x[2] < left["x1"] < 1 / 24
    assert right["x0"] < found["transformer"]["x"][0] < right["x1"]
    assert [1 / 0.14] == pytest.approx(found["transformer"]["y"])
    slope, flat = found["memory 4.8 TB/s (datasheet)"], found["bf16 989 TFLOP/s (datasheet)"]
    assert [4.8] * 3 == pytest.approx([y / x for x, y in zip(slope["x"], slope["y"], strict=True)])
    assert (989.0, 989.0) == tuple(flat["y"])
    # They meet at the ridge and reach to both ends.
    assert (slope["x"][-1], slope["y"][-1]) == pytest.approx((flat["x"][0], flat["y"][0]))
    assert (slope["x"][0], flat["x"][-1]) == pytest.approx((left["x0"], right["x1"]))
    for name in ("link 450 GB/s (datasheet)", "bus 450 GB/s (datasheet)"):
        assert [0.45] * 3 == pytest.approx([y / x for x, y in zip(found[name]["x"], found[name]["y"], strict=True)])
        assert found[name]["x"][-1] < 1 / 24
    assert ["bytes<br>only", "FLOPs<br>only"] == layout["xaxis"]["ticktext"][-2:]
    numbers = layout["xaxis"]["tickvals"][:-2]
    assert 1 <= len(numbers) <= 3
    assert all(left["x1"] < tick < right["x0"] for tick in numbers)
    assert plot.says.startswith(f"{len(rows)} measurements: nearest to its roof peer_copy_one_way[")
    assert "farthest all_reduce[2-16KiB-fp32]" in plot.says or "farthest transformer" in plot.says
    assert "without FLOPs, such as copies, at the left end. 1 with FLOPs whose bytes nobody counted" in plot.says


def test_a_share_of_the_roof_is_of_the_lower_one_and_none_out_of_a_cache(bench, make):
    (plot,) = of_section(bench.streams(), ROOFLINE)
    assert "4 measurements: nearest to its roof stream[" in plot.says
    assert "farthest product[8192] (70.8 %)" in plot.says
    work = Work(read_bytes=2**40, flops=2**20)
    cached = Samples((1e-3,), 1, 1e-9, labels=("cache_resident",))
    cases = [
        ({"samples": cached, "ceiling": H200}, "none of them can be held to a roof"),
        ({}, "no roof is known for what is shown"),
        ({"invalid": "a neighbour"}, "none of them to be trusted"),
    ]
    for facts, told in cases:
        (plot,) = of_section(bench.rows(bench.judged(1e-3, work=work, **facts)), ROOFLINE)
        assert told in checked(plot).says
    assert [] == of_section(bench.sweep(SIZES), ROOFLINE)


def test_hundreds_of_points_in_a_strip_each_have_a_place_and_devices_a_plot_each(bench, make):
    records = [make.measurement(1e-3, key=make.key(size_bytes=2**12 + 64 * number)) for number in range(300)]
    product = make.measurement(key=make.key("product"), work=Work(flops=10**9))
    found = traces(*of_section(bench.rows(*records, product), ROOFLINE))["memcpy_d2d"]
    assert (300, {6}) == (len(set(found["x"])), set(found["marker"]["size"]))
    rows = bench.streams()
    part = make.key(hardware=make.hardware(partition="1g.18gb"))
    rows += bench.rows(bench.judged(1e-3, key=part, work=rows[0].measurement.work))
    assert 2 == len({plot.title for plot in of_section(rows, ROOFLINE)})


def test_names_cannot_inject(bench, make):
    def hostile(size):
        return make.key(HOSTILE, parameters={"way": HOSTILE, "size_bytes": size}, name=HOSTILE)

    records = [bench.judged(2e-3, 1e-3, key=hostile(size), work=Work(read_bytes=size, flops=size))
               for size in (2**12, 2**16, 2**20)]  # fmt: skip
    rows = bench.rows(*records, failed=[records[0][0].test_id], product=HOSTILE)
    rows += bench.step(label=HOSTILE, test_id=HOSTILE)
    plots = plots_of(rows, runs_of(rows))
    assert {FAILED, SWEEPS, FIRST, TIME, MEMORY, ROOFLINE} <= {plot.section for plot in plots}
    for plot in plots:
        texts = list(texts_of(checked(plot).figure))
        assert not any("<" in text.replace("<br>", "") for text in texts)
        assert not any("\x1b" in text for text in [*texts, plot.title, plot.says])
        # A template would fill in what stands in braces.
        assert {None} == {
            trace.get(name) for trace in plot.figure["data"] for name in ("hovertemplate", "texttemplate")
        }
    assert ('&lt;a href="x"&gt;', "&amp;lt;") == (safe('<a href="x">'), safe("&lt;"))
    assert "&lt;br&gt;<br>b" == lines_of(["<br>", "", "b"])
    assert "&lt;b&gt;bold&lt;/b&gt;<br>and long" == wrapped("<b>bold</b> and long", width=12)


def test_runs_of_one_file_name_are_told_apart_in_all_plots(make, bench, tmp_path):
    facts = {"ceiling": Ceiling("traffic_GBps", 4e12, "measured", ""), "invalid": "a neighbour"}
    runs = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        keys = (make.key(size_bytes=size) for size in (2**12, 2**16, 2**20))
        records = itertools.chain(*(bench.judged(2e-3, 1e-3, key=key, **facts) for key in keys))
        runs.append(make.run(tmp_path / folder / "n.jsonl", *records))
    plots = plots_of(rows_of(runs))
    titles = [plot.title for plot in plots]
    assert len(set(titles)) == len(titles)
    for name in ("run a/n", "run b/n"):
        assert any(name in text for plot in plots for text in [plot.title, *texts_of(plot.figure)])


def test_no_figure_fails_on_what_a_file_made_by_hand_may_hold(bench, make):
    """Times of calls are bounded; rooflines, differences and limits are not."""
    values = [
        (
            "reference",
            (
                SessionRecord(
                    (1e-9, 1e3),
                ),
            ),
        )
    ]
    values += [(name, value) for name in ("limit_s", "estimate", "tolerance") for value in (5e-324, 1.7e308)]
    for name, value in values:
        roof = Ceiling("traffic_GBps", 4e12, "measured", "")
        keys = [make.key(size_bytes=size) for size in (2**12, 2**16, 2**20)]
        records = [bench.judged(1e-3, 1e-3, key=key, ceiling=roof) for key in keys]
        records[0][1] = replace(records[0][1], processes=3, **{name: value})
        product = make.measurement(key=make.key("product", metric="TFLOPS"), work=Work(flops=10**9))
        rows = bench.rows(*records, product, failed=[records[0][0].test_id])
        roof = replace(roof, value=value if isinstance(value, float) else 1e-300)
        rows += [replace(row, measurement=replace(row.measurement, ceiling=roof)) for row in rows]
        assert {FAILED, SWEEPS, ROOFLINE} == {checked(plot).section for plot in plots_of(rows)}, name


def test_looks_differ_and_colours_are_seen_on_black_and_on_white():
    assert MOST_SERIES == len(set(SYMBOLS)) == len(set(DASHES))
    assert 12 == len({(marker["color"], marker["pattern"]["shape"]) for marker in map(bar_marker, range(12))})
    for colour in COLOURS:
        parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        seen = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert ((seen + 0.05) / 0.05 > 3, 1.05 / (seen + 0.05) > 2) == (True, True), colour


def test_thinning_keeps_what_matters_and_the_order():
    kept = thinned(range(1000), 10, lambda number: number in (3, 997))
    assert (10, sorted(kept), True) == (len(kept), kept, {3, 997} <= set(kept))
    assert list(range(10)) == thinned(range(10), 10)
    assert [0, 1, 2] == thinned(range(100), 3, lambda _: True)


def test_a_figure_is_plain_data_without_anybodys_template_and_of_known_properties(monkeypatch):
    import plotly.io as pio

    monkeypatch.setattr(pio.templates, "default", "plotly_dark")
    figure = plain_figure([{"type": "scatter", "x": (1.0, 2.0), "y": [None, 2.0]}], {"barmode": "group"})
    assert [1.0, 2.0] == figure["data"][0]["x"]
    assert ("template" in figure["layout"], figure["layout"]["paper_bgcolor"]) == (False, "rgba(0,0,0,0)")
    assert figure == json.loads(json.dumps(figure, allow_nan=False))
    with pytest.raises(ValueError, match="colour"):
        plain_figure([{"type": "scatter", "colour": "red"}], {})


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


def test_a_long_label_keeps_its_end_which_tells_runs_apart():
    lines = wrapped("a_benchmark_of_transformers[small-c128-fp32-forward-with-remat], run nightly").split("<br>")
    assert (4, "a_benchmark_of_", "nightly") == (len(lines), lines[0], lines[-1])
    assert all(len(line) <= 18 for line in lines)
    assert "…" in lines[2]
