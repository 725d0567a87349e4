"""Rates against size: copies, and collectives by world."""

from dataclasses import replace

import pytest

from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.rows import worst_first
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.plots import plots_of

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, GIB]


def sweep_plots(rows):
    return [plot for plot in plots_of(rows) if plot.section == "Bandwidth against size"]


def test_a_sweep_has_log_axes_in_bytes_and_gigabytes_a_second_and_the_roofline_dashed(bench, checked, traces):
    (plot,) = sweep_plots(bench.sweep(SIZES))
    checked(plot)
    layout = plot.figure["layout"]
    assert ("log", "log") == (layout["xaxis"]["type"], layout["yaxis"]["type"])
    assert "4<br>KiB" in layout["xaxis"]["ticktext"]
    assert "GB/s" in layout["yaxis"]["title"]["text"]
    roof = traces(plot)["Roofline 4.8 TB/s (datasheet)"]
    assert "dash" == roof["line"]["dash"]
    assert [4800.0, 4800.0] == roof["y"]
    assert "memcpy_d2d on NVIDIA H200" == plot.title


def test_the_sentence_names_the_plateau_its_share_and_the_worst_size(bench):
    (plot,) = sweep_plots(bench.sweep(SIZES, slower=[64 * MIB]))
    # The median of the two largest of six sizes: 134 MB in 42.7 µs and 2.15 GB in 539 µs.
    assert plot.says.startswith("Plateau 3.57 TB/s, 74.3 % of the datasheet's 4.8 TB/s; 1 of 6 sizes slower")
    assert "worst 64 MiB (+20.0 % time)" in plot.says


def test_two_sizes_make_no_plot(bench):
    assert [] == sweep_plots(bench.sweep(SIZES[:2]))


def test_this_run_lies_in_the_band_of_the_baselines_processes(bench, traces):
    (plot,) = sweep_plots(bench.sweep(SIZES))
    band, points = traces(plot)["baseline"], traces(plot)["this run"]
    assert "toself" == band["fill"]
    assert len(band["x"]) == 2 * len(SIZES)
    upper, lower = band["y"][: len(SIZES)], band["y"][len(SIZES) :][::-1]
    assert all(low < high for low, high in zip(lower, upper, strict=True))
    assert all(low < y < high for low, y, high in zip(lower, points["y"], upper, strict=True))
    assert "A band reaches from the slowest to the fastest process" in plot.says


def test_a_band_leaves_sizes_out_that_have_no_baseline_and_is_seen_at_one_alone(bench, make, checked, traces):
    known = {4 * KIB: 1e-6, 64 * KIB: 2e-6, MIB: None, 16 * MIB: 9e-6}
    records = [bench.judged(seconds or 4e-6, seconds, key=make.key(size_bytes=size)) for size, seconds in known.items()]
    (plot,) = sweep_plots(bench.rows(*records))
    xs = traces(checked(plot))["baseline"]["x"]
    first, second = xs[: xs.index(None)], xs[xs.index(None) + 1 :]
    assert [4 * KIB, 64 * KIB, 64 * KIB, 4 * KIB] == first
    assert min(second) < 16 * MIB < max(second)


def test_failed_points_have_a_mark_of_their_own_and_invalid_ones_are_open(bench, make, traces):
    records = [bench.judged(1e-5 * index, 1e-5 * index, key=make.key(size_bytes=size)) for index, size in
               enumerate(SIZES, 1)]  # fmt: skip
    records[0] = bench.judged(2e-5, 1e-5, key=make.key(size_bytes=SIZES[0]))
    records[1] = bench.judged(2e-5, 1e-5, key=make.key(size_bytes=SIZES[1]), invalid="a neighbour")
    (plot,) = sweep_plots(bench.rows(*records, failed=[records[0][0].test_id]))
    assert ["x", "circle-open", "circle", "circle", "circle", "circle"] == traces(plot)["this run"]["marker"]["symbol"]
    assert {"test failed", "INVALID: not to be trusted"} <= set(traces(plot))
    assert "1 invalid" in plot.says


def test_what_stands_beside_a_point_is_all_that_is_known_of_it(bench, traces):
    (plot,) = sweep_plots(bench.sweep(SIZES, slower=[64 * MIB]))
    told = traces(plot)["this run"]["hovertext"][SIZES.index(64 * MIB)].split("<br>")
    assert told[:3] == ["this run", "64 MiB, 42.7 µs, 3.15 TB/s", "65.5 % of the roofline 4.8 TB/s (datasheet)"]
    assert told[3].startswith("+20.0 % time against the baseline, 99 % interval +")
    assert told[4] == "3 processes: REGRESSED"


def test_runs_are_laid_over_each_other_by_their_ids(bench, checked, traces):
    rows = bench.sweep(SIZES, run_id="before") + bench.sweep(SIZES, rate=3e12, run_id="after")
    (plot,) = sweep_plots(rows)
    found = traces(checked(plot))
    assert {"run before", "run after"} <= set(found)
    assert found["run before"]["marker"]["symbol"] != found["run after"]["marker"]["symbol"]
    assert found["run before"]["line"]["dash"] != found["run after"]["line"]["dash"]
    assert "run after: plateau" in plot.says


def test_a_measured_roofline_is_dashed_and_called_measured(bench, make, traces):
    values = iter((35.3e9, 29.9e9, 35.6e9))
    records = [
        bench.judged(
            1e-3, key=make.key(size_bytes=size), ceiling=Ceiling("traffic_GBps", next(values), "measured", "triad")
        )
        for size in SIZES[:3]
    ]
    (plot,) = sweep_plots(bench.rows(*records))
    roof = traces(plot)["Roofline 35.3 GB/s (measured, median of 3)"]
    assert ("dash", 35.3) == (roof["line"]["dash"], roof["y"][0])
    assert "of the measured" in plot.says


def test_measured_rooflines_of_several_runs_are_one_line_that_tells_each(bench, make, traces):
    rows = []
    for name, value in {"first": 30e9, "second": 36e9, "third": 35e9}.items():
        roof = Ceiling("traffic_GBps", value, "measured", "triad")
        rows += bench.sweep(SIZES[:3], ceiling=roof, run_id=name, rate=25e9)
    (plot,) = sweep_plots(rows)
    (roof,) = (trace for name, trace in traces(plot).items() if name.startswith("Roofline"))
    assert ("Roofline 35.0 GB/s (measured in 3 runs)", [35.0, 35.0]) == (roof["name"], roof["y"])
    assert ["run first: 30.0 GB/s", "run second: 36.0 GB/s", "run third: 35.0 GB/s"] == roof["hovertext"].split("<br>")[
        1:
    ]


def test_rooflines_of_several_devices_name_theirs(bench, traces):
    rows = bench.sweep(SIZES[:3]) + bench.sweep(
        SIZES[:3], ceiling=Ceiling("traffic_GBps", 8e12, "datasheet", "a sheet")
    )
    rows[-3:] = [replace(row, device="NVIDIA B200") for row in rows[-3:]]
    (plot,) = sweep_plots(rows)
    found = {name for name in traces(plot) if name.startswith("Roofline")}
    assert {"Roofline 4.8 TB/s (datasheet, NVIDIA H200)", "Roofline 8 TB/s (datasheet, NVIDIA B200)"} == found


def test_a_limit_that_gates_is_a_mark_at_its_own_rate(bench, make, traces):
    records = [bench.judged(1e-3, key=make.key(size_bytes=size)) for size in SIZES]
    measured, judged = records[2]
    # The difference is not of the median alone where a limit holds for the fastest call, or sums up several processes.
    breach = {"limit_s": 0.5e-3, "estimate": 0.1, "verdict": "REGRESSED", "reason": "BELOW THRESHOLD: 4 GB/s"}
    records[2] = [measured, replace(judged, **breach)]
    (plot,) = sweep_plots(bench.rows(*records))
    mark = traces(plot)["limit that gates"]
    assert [MIB] == mark["x"]
    assert [2 * MIB / 0.5e-3 / 1e9] == pytest.approx(mark["y"])
    assert "BELOW THRESHOLD: 4 GB/s" in mark["hovertext"][0]


def test_where_no_limit_is_kept_none_is_drawn(bench, make, traces):
    """Runs from before it was: the difference alone does not tell from what."""
    records = [bench.judged(1e-3, key=make.key(size_bytes=size)) for size in SIZES]
    records[2][1] = replace(records[2][1], estimate=0.1, verdict="REGRESSED", reason="BELOW THRESHOLD: 4 GB/s")
    (plot,) = sweep_plots(bench.rows(*records))
    assert "limit that gates" not in traces(plot)


def test_sizes_without_a_rate_are_counted(bench, make):
    short = Samples((1e-9,), iterations=1, tick_s=1e-9, labels=("unresolved",))
    records = [bench.judged(1e-3, key=make.key(size_bytes=size)) for size in SIZES]
    records.append(bench.judged(1e-9, key=make.key(size_bytes=512), samples=short))
    (plot,) = sweep_plots(bench.rows(*records))
    assert "1 without a rate to be drawn, as below the clock's resolution" in plot.says


def test_a_sweep_over_another_parameter_than_bytes_is_one_too(bench, make, checked, traces):
    records = [
        bench.judged(1e-3, key=make.key("scale", parameters={"size": count, "repeat": 2}),
                     work=Work(read_bytes=4 * count, write_bytes=4 * count))
        for count in (2**16, 2**20, 2**24)
    ]  # fmt: skip
    (plot,) = sweep_plots(bench.rows(*records))
    assert [2**18, 2**22, 2**26] == traces(checked(plot))["repeat 2"]["x"]


def test_parameters_that_are_no_size_make_no_sweep(bench, make):
    records = [bench.judged(1e-3, key=make.key("tile", parameters={"tile": tile})) for tile in (16, 32, 64)]
    assert [] == sweep_plots(bench.rows(*records))


def test_more_series_than_anybody_tells_apart_take_several_plots(bench, make, checked):
    def variants(number):
        return bench.sweep(
            SIZES[:3], key=lambda size: make.key(parameters={"way": f"way {number}", "size_bytes": size})
        )

    plots = sweep_plots([row for number in range(10) for row in variants(number)])
    assert ["memcpy_d2d on NVIDIA H200, part 1 of 2", "memcpy_d2d on NVIDIA H200, part 2 of 2"] == [
        p.title for p in plots
    ]
    for plot in plots:
        checked(plot)
    assert "5 more series are in the figure" in plots[0].says


def test_many_benchmarks_are_cut_to_a_few_plots_with_the_red_ones_kept(bench, make):
    def of(number):
        return bench.sweep(SIZES[:3], slower=[MIB] if number == 29 else (),
                           key=lambda size: make.key(f"copy_{number}", size_bytes=size))  # fmt: skip

    plots = sweep_plots([row for number in range(30) for row in of(number)])
    assert 12 == len(plots)
    assert any(plot.title.startswith("copy_29 ") for plot in plots)
    assert plots[-1].says.endswith("12 of 30 such plots are drawn; the table of results has the others.")


def test_a_long_sweep_is_thinned_and_says_so(bench, make, checked):
    sizes = [KIB * (index + 1) for index in range(2400)]
    rows = bench.rows(*(make.measurement(1e-6 + size / 1e12, key=make.key(size_bytes=size)) for size in sizes))
    (plot,) = sweep_plots(rows)
    checked(plot)
    points = next(trace for trace in plot.figure["data"] if trace["name"] == "this run")
    assert 2000 == len(points["x"])
    assert 200 == len(plot.rows)
    assert "2000 of 2400 points are shown" in plot.says
    assert "200 of 2400 rows of the table are shown" in plot.says


def test_collectives_have_a_series_for_each_world(bench, checked, traces):
    plots = plots_of(bench.collectives(slower=[(4, 2**22)]))
    (plot,) = (plot for plot in plots if plot.section == "Collectives by size and world")
    found = traces(checked(plot))
    assert {"2 ranks, fp32", "4 ranks, fp32", "8 ranks, fp32", "Roofline 450 GB/s (datasheet)"} <= set(found)
    assert "bus bandwidth (GB/s)" == plot.figure["layout"]["yaxis"]["title"]["text"]
    told = found["8 ranks, fp32"]["hovertext"][-1]
    assert "algbw 216 GB/s, busbw 378 GB/s" in told
    # Three sizes make no plateau.
    assert "8 ranks, fp32: 378 GB/s at the largest size, 84.1 % of the datasheet's 450 GB/s" in plot.says
    assert "1 of 3 sizes slower than the baseline or limit, worst 4 MiB (+30.0 % time)" in plot.says
    assert [] == sweep_plots(bench.collectives())


def test_the_order_of_series_does_not_depend_on_what_failed(bench, traces):
    rows = worst_first(bench.collectives(worlds=(2, 4, 16), slower=[(16, 2**22)]))
    (plot,) = (plot for plot in plots_of(rows) if plot.section == "Collectives by size and world")
    assert ["2 ranks, fp32", "4 ranks, fp32", "16 ranks, fp32"] == [name for name in traces(plot) if name[0].isdigit()]


def test_pairs_of_devices_are_told_by_both(bench, traces):
    rows = [replace(row, run="one") for size in (2**15, 2**20, 2**29) for row in bench.peers(2, size=size)]
    (plot,) = sweep_plots(rows)
    assert {"source 0, target 1", "source 1, target 0"} <= set(traces(plot))
