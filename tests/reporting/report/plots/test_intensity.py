"""Everything on one roofline."""

import pytest

from pytest_roofline.reporting.report.plots import plots_of


def plots(rows):
    return [plot for plot in plots_of(rows) if plot.section == "Roofline"]


def test_points_stand_at_their_intensity_below_the_roofs(bench, checked, traces):
    (plot,) = plots(bench.streams())
    found = traces(checked(plot))
    # A FLOP in 24 bytes and two in 32.
    assert [1 / 24, 2 / 32] == pytest.approx(found["stream"]["x"])
    assert [4 / 24, 4 * 2 / 32] == pytest.approx(found["stream"]["y"])
    slope, flat = found["memory 4.8 TB/s (datasheet)"], found["bf16 989 TFLOP/s (datasheet)"]
    assert [4.8, 4.8, 4.8] == pytest.approx([y / x for x, y in zip(slope["x"], slope["y"], strict=True)])
    assert (989.0, 989.0) == tuple(flat["y"])
    # They meet at the ridge.
    assert slope["x"][-1] == pytest.approx(flat["x"][0])
    assert slope["y"][-1] == pytest.approx(flat["y"][0])
    assert ("log", "log") == tuple(plot.figure["layout"][name]["type"] for name in ("xaxis", "yaxis"))


def test_the_nearest_and_the_farthest_are_named_and_what_is_not_shown(bench):
    (plot,) = plots(bench.streams())
    assert "3 measurements: nearest to its roof stream[" in plot.says
    assert "farthest product[8192] (70.8 %)" in plot.says
    assert "Not shown: 1 without FLOPs, such as copies." in plot.says


def test_a_share_is_of_the_lower_roof(bench):
    (plot,) = plots(bench.streams())
    rows = {row[0]: row for row in plot.rows}
    # 4 of 4.8 TB/s; 700 of 989 TFLOP/s.
    assert "83.3 %" == rows["stream[triad]"][4]
    assert "70.8 %" == rows["product[8192]"][4]
    assert "4000 GB/s" == rows["stream[triad]"][3]


def test_without_flops_there_is_no_such_plot(bench):
    assert [] == plots(bench.sweep([2**12, 2**16, 2**20]))


def test_points_without_any_roof_are_shown_and_said(bench, make, checked):
    from pytest_roofline.core.work import Work

    rows = bench.rows(bench.judged(1e-3, work=Work(read_bytes=2**20, flops=2**20)))
    (plot,) = plots(rows)
    assert "no roof is known for what is shown" in checked(plot).says


def test_devices_have_a_plot_each(bench):
    rows = bench.streams()
    bench.runs = 9
    other = bench.rows(
        bench.judged(
            1e-3, key=bench.make.key(hardware=bench.make.hardware(partition="1g.18gb")), work=rows[0].measurement.work
        )
    )
    assert 2 == len({plot.title for plot in plots(rows + other)})
