"""Everything on one roofline."""

import pytest

from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.plots import plots_of

H200 = Ceiling("traffic_GBps", 4.8e12, "datasheet", "the datasheet", "high")


def plots(rows):
    return [plot for plot in plots_of(rows) if plot.section == "Roofline"]


def test_points_stand_at_their_intensity_below_the_roofs(bench, checked, traces):
    (plot,) = plots(bench.streams())
    found = traces(checked(plot))
    # A FLOP in 24 bytes and two in 32.
    assert [1 / 24, 2 / 32] == pytest.approx(found["stream"]["x"][:2])
    assert [4 / 24, 4 * 2 / 32] == pytest.approx(found["stream"]["y"][:2])
    slope, flat = found["memory 4.8 TB/s (datasheet)"], found["bf16 989 TFLOP/s (datasheet)"]
    assert [4.8] * 3 == pytest.approx([y / x for x, y in zip(slope["x"], slope["y"], strict=True)])
    assert (989.0, 989.0) == tuple(flat["y"])
    # They meet at the ridge.
    assert slope["x"][-1] == pytest.approx(flat["x"][0])
    assert slope["y"][-1] == pytest.approx(flat["y"][0])
    assert ("log", "log") == tuple(plot.figure["layout"][name]["type"] for name in ("xaxis", "yaxis"))


def test_the_nearest_and_the_farthest_are_named(bench):
    (plot,) = plots(bench.streams())
    assert plot.says.startswith("4 measurements: nearest to its roof stream[")
    assert "farthest product[8192] (70.8 %)" in plot.says


def test_bytes_alone_stand_in_a_strip_as_far_below_the_slope_as_their_rate_is(bench, checked, traces):
    (plot,) = plots(bench.streams())
    found = traces(checked(plot))
    (x,), (y,) = ([values[index] for index in (2,)] for values in (found["stream"]["x"], found["stream"]["y"]))
    (strip,) = plot.figure["layout"]["shapes"]
    assert strip["x0"] < x < strip["x1"] < 1 / 24
    # 4 of 4.8 TB/s, on the very slope that goes on to the left.
    assert 4.0 == pytest.approx(y / x)
    assert found["memory 4.8 TB/s (datasheet)"]["x"][0] == pytest.approx(strip["x0"])
    assert "bytes<br>only" in plot.figure["layout"]["xaxis"]["ticktext"]
    assert "1 without FLOPs, such as copies, at the left end" in plot.says
    assert ("stream[copy]", "", "", "4000 GB/s", "83.3 %") == next(row for row in plot.rows if "copy" in row[0])[:5]


def test_flops_alone_stand_in_a_strip_at_the_right_below_their_roof(bench, checked, traces):
    (plot,) = plots(bench.step(ceiling=Ceiling("bf16_TFLOPS", 989e12, "datasheet", "a sheet")))
    found = traces(checked(plot))
    (strip,) = plot.figure["layout"]["shapes"]
    assert strip["x0"] < found["transformer"]["x"][0] < strip["x1"]
    assert [1 / 0.14] == pytest.approx(found["transformer"]["y"])
    assert found["bf16 989 TFLOP/s (datasheet)"]["x"][-1] == pytest.approx(strip["x1"])
    assert "FLOPs<br>only" in plot.figure["layout"]["xaxis"]["ticktext"]
    assert "1 with FLOPs whose bytes nobody counted, at the right end." in plot.says
    assert "0.7 %" == plot.rows[0][4]


def test_copies_over_a_link_have_the_slope_of_their_own_roof(bench, checked, traces):
    rows = bench.streams() + bench.peers(3) + bench.collectives()
    (plot,) = plots(rows)
    found = traces(checked(plot))
    assert len(rows) == len(plot.rows) == sum(len(found[name]["x"]) for name in
                                              ("stream", "product", "peer_copy_one_way", "all_reduce"))  # fmt: skip
    for name in ("link 450 GB/s (datasheet)", "bus 450 GB/s (datasheet)"):
        assert [0.45] * 3 == pytest.approx([y / x for x, y in zip(found[name]["x"], found[name]["y"], strict=True)])
        assert found[name]["x"][-1] < 1 / 24
    assert next(row for row in plot.rows if row[0].startswith("peer"))[4] == "86.7 %"


def test_hundreds_of_points_in_a_strip_each_have_a_place(bench, make, checked, traces):
    records = [make.measurement(1e-3, key=make.key(size_bytes=2**12 + 64 * number)) for number in range(300)]
    (plot,) = plots(bench.rows(*records, make.measurement(key=make.key("product"), work=Work(flops=10**9))))
    found = traces(checked(plot))["memcpy_d2d"]
    assert 300 == len(set(found["x"]))
    assert {6} == set(found["marker"]["size"])


def test_bytes_from_a_cache_are_no_share_of_the_memorys_roof(bench, make):
    samples = Samples((1e-3,), 1, 1e-9, labels=("cache_resident",))
    work = Work(read_bytes=2**40, flops=2**20)
    (plot,) = plots(bench.rows(bench.judged(1e-3, samples=samples, work=work, ceiling=H200)))
    assert "" == plot.rows[0][4]
    assert "none of them can be held to a roof" in plot.says


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
    rows = bench.rows(bench.judged(1e-3, work=Work(read_bytes=2**20, flops=2**20)))
    (plot,) = plots(rows)
    assert "no roof is known for what is shown" in checked(plot).says


def test_a_figure_of_nothing_to_be_trusted_says_so(bench, make, checked):
    (plot,) = plots(bench.rows(bench.judged(1e-3, work=Work(read_bytes=2**20, flops=2**20), invalid="a neighbour")))
    assert "none of them to be trusted" in checked(plot).says


@pytest.mark.parametrize("factor", [1, 10, 10**3, 10**9])
def test_numbers_between_the_strips_are_few_and_even_and_leave_their_names_room(bench, make, checked, factor):
    works = [
        Work(flops=10**4),
        Work(read_bytes=2**20),
        *(Work(read_bytes=2**20, flops=2**20 * by) for by in (1, factor)),
    ]
    (plot,) = plots(bench.rows(*(make.measurement(key=make.key(f"b{n}"), work=work) for n, work in enumerate(works))))
    axis = checked(plot).figure["layout"]["xaxis"]
    assert ["bytes<br>only", "FLOPs<br>only"] == axis["ticktext"][-2:]
    assert 1 <= len(axis["ticktext"]) - 2 <= 3
    left, right = plot.figure["layout"]["shapes"]
    assert all(left["x1"] < tick < right["x0"] for tick in axis["tickvals"][:-2])


def test_devices_have_a_plot_each(bench):
    rows = bench.streams()
    bench.runs = 9
    other = bench.rows(
        bench.judged(
            1e-3, key=bench.make.key(hardware=bench.make.hardware(partition="1g.18gb")), work=rows[0].measurement.work
        )
    )
    assert 2 == len({plot.title for plot in plots(rows + other)})
