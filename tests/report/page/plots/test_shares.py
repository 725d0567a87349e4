"""Where time and memory of large calls go, and what their first calls cost."""

import pytest

from pytest_roofline.core.samples import Samples
from pytest_roofline.report.plots import plots_of

from .conftest import runs_of


def one(rows, section, runs=None):
    (plot,) = (plot for plot in plots_of(rows, runs or runs_of(rows)) if plot.section == section)
    return plot


def test_the_shares_of_time_stand_in_one_bar_by_class(bench, checked, traces):
    plot = one(bench.step(), "Where the time goes")
    found = traces(checked(plot))
    # In the order of the classes, so that bars of several runs compare.
    assert ["matrix product", "attention fused", "elementwise", "optimizer", "idle"] == list(found)
    assert 100 == pytest.approx(sum(trace["x"][0] for trace in found.values()))
    assert "stack" == plot.figure["layout"]["barmode"]
    assert (
        "matrix product: 55.0 %<br>77.0 ms a call<br>40 launches in 2 calls" in found["matrix product"]["hovertext"][0]
    )
    assert plot.says.startswith("Most of the time of transformer[small-step] goes into matrix product (55.0 %).")


def test_first_calls_are_multiples_of_the_steady_one(bench, checked, traces):
    plot = one(bench.step(), "First calls")
    calls = traces(checked(plot))["transformer[small-step]"]
    assert [1.76 / 0.14, 0.15 / 0.14] == pytest.approx(calls["y"][:2])
    assert "The first call of transformer[small-step] took 1.76 s, 12.6 x the steady 140 ms." == plot.says
    assert 5 == len(plot.rows)


def test_a_first_call_of_no_time_has_no_place_on_a_logarithmic_axis(bench, checked, traces):
    rows = bench.step(samples=Samples((0.14,), 1, 1e-9, first_calls_s=(1.0, 0.0)))
    assert traces(checked(one(rows, "First calls")))["transformer[small-step]"]["y"][1] is None


def test_many_first_calls_are_thinned_alike_in_figure_and_table_and_said(bench, make, checked):
    samples = Samples((0.14,), 1, 1e-9, first_calls_s=(1.0,) * 400)
    records = [make.measurement(key=make.key(f"step_{number}"), samples=samples) for number in range(9)]
    plot = one(bench.rows(*records), "First calls")
    assert "8 of 9 measurements, those that pay most, are shown" in checked(plot).says
    assert "2000 of 3200 calls are shown" in plot.says
    assert "200 of 3200 rows of the table are shown" in plot.says
    assert {trace["name"] for trace in plot.figure["data"]} == {*(row[0] for row in plot.rows), "steady"}


@pytest.mark.parametrize("warm", [(), (0.0, 0.0)])
def test_first_calls_without_a_factor_to_be_drawn_make_no_plot(bench, warm):
    rows = bench.step(samples=Samples((0.14,), 1, 1e-9, first_calls_s=(0.0, 0.0), warm_calls_s=warm))
    assert "First calls" not in [plot.section for plot in plots_of(rows)]


def test_memory_at_the_peak_stands_in_one_bar_by_category(bench, checked, traces):
    plot = one(bench.step(), "Where the memory goes")
    found = traces(checked(plot))
    assert [300 / 1024] == found["parameters"]["x"]
    assert "peak memory (GiB)" == plot.figure["layout"]["xaxis"]["title"]["text"]
    assert (
        plot.says
        == "The highest peak is that of transformer[small-step], 1.00 GiB; most of it is activations (70.3 %)."
    )
    assert ("transformer[small-step]", "parameters", "300 MiB", "29.3 %") == plot.rows[0]


def test_several_runs_stand_below_each_other_by_name(bench):
    plot = one(bench.step() + bench.step(), "Where the time goes")
    assert ["transformer[small-<br>step], run run-1", "transformer[small-<br>step], run run-2"] == (
        plot.figure["layout"]["yaxis"]["ticktext"]
    )


def test_many_calls_are_thinned_and_said(bench, checked):
    from dataclasses import replace

    rows = bench.step()
    (run,) = runs_of(rows)
    uses = tuple(replace(run.memory_uses[0], test_id=f"test_{number}") for number in range(60))
    plot = one(rows, "Where the memory goes", [replace(run, memory_uses=uses)])
    assert "20 of 60 calls are shown" in checked(plot).says
    assert 20 == len(plot.figure["layout"]["yaxis"]["tickvals"])
