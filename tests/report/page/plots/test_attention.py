"""Attention by sequence length."""

import pytest

from pytest_roofline.core.work import Work
from pytest_roofline.report.plots import plots_of


def plots(rows):
    return [plot for plot in plots_of(rows) if plot.section == "Attention by sequence length"]


def test_back_ends_stand_side_by_side_by_sequence_below_the_dashed_roofline(bench, checked, traces):
    (plot,) = plots(bench.attention())
    found, layout = traces(checked(plot)), plot.figure["layout"]
    assert {"triton", "sdpa_flash", "eager", "Roofline 989 TFLOP/s (datasheet)"} == set(found)
    assert "group" == layout["barmode"]
    assert ["512", "1024", "2048"] == layout["xaxis"]["ticktext"]
    assert [600 * (1 - 100 / length) for length in (512, 1024, 2048)] == pytest.approx(found["triton"]["y"])
    assert ("dash", 989.0) == (found["Roofline 989 TFLOP/s (datasheet)"]["line"]["dash"],
                              found["Roofline 989 TFLOP/s (datasheet)"]["y"][0])  # fmt: skip
    assert 3 == len({found[name]["marker"]["pattern"]["shape"] for name in ("triton", "sdpa_flash", "eager")})
    assert plot.title == "flash_attention, forward, causal, head_dim 128 on NVIDIA H200"


def test_memory_that_ran_out_is_a_mark_and_is_said(bench, traces):
    (plot,) = plots(bench.attention())
    eager = traces(plot)["eager"]
    assert (0.0, "OOM") == (eager["y"][-1], eager["text"][-1])
    assert "eager, 2048 tokens<br>out of memory<br>asked for 2.00 GiB, 1.00 GiB were free" == eager["hovertext"][-1]
    assert "eager runs out of memory (OOM) from 2048 tokens on" in plot.says
    assert ("eager", "2048", "OUT OF MEMORY") == tuple(plot.rows[2][index] for index in (0, 1, -1))


def test_the_fastest_at_the_longest_sequence_is_named(bench):
    (plot,) = plots(bench.attention())
    assert plot.says.startswith(
        "At 2048 tokens triton is fastest with 571 TFLOP/s, 57.7 % of the roofline 989 TFLOP/s (datasheet), "
        "1.09 times sdpa_flash; none of 8 measurements compared"
    )


def test_runs_stand_beside_each_other_by_name(bench, checked, traces):
    (plot,) = plots(bench.attention(sequences=(512, 1024)) + bench.attention(sequences=(512, 1024)))
    assert {"triton, run run-1", "triton, run run-2"} <= set(traces(checked(plot)))


def test_one_back_end_at_one_length_makes_no_plot(bench):
    assert [] == plots(bench.attention(sequences=(512,), back_ends=("triton",), lacking=()))


def test_nothing_but_memory_that_ran_out_makes_no_plot(bench):
    assert [] == plots(bench.attention(sequences=(512,), back_ends=("eager", "triton"), lacking=("eager", "triton")))


def test_invalid_numbers_are_pale_and_named(bench, make, traces):
    records = [
        bench.judged(1e-3, key=make.key("attention", metric="fp32_TFLOPS",
                                        parameters={"implementation": name, "sequence": 512}),
                     work=Work(flops=10**10), invalid="a neighbour" * (name == "eager"))
        for name in ("eager", "compiled")
    ]  # fmt: skip
    (plot,) = plots(bench.rows(*records))
    eager = traces(plot)["eager"]
    assert ([0.35], ["inv."]) == (eager["marker"]["opacity"], eager["text"])
    assert "compiled is fastest" in plot.says
    assert "1 invalid" in plot.says


def test_a_cpus_rates_are_in_its_own_unit(bench, make, checked, traces):
    records = [
        bench.judged(1e-3, key=make.key("attention", metric="fp32_TFLOPS",
                                        parameters={"implementation": "eager", "sequence": sequence}),
                     work=Work(flops=2 * 10**7))
        for sequence in (256, 512)
    ]  # fmt: skip
    (plot,) = plots(bench.rows(*records))
    assert "GFLOP/s" == checked(plot).figure["layout"]["yaxis"]["title"]["text"]
    assert ([20.0, 20.0], ["20.0", "20.0"]) == (traces(plot)["eager"]["y"], traces(plot)["eager"]["text"])
