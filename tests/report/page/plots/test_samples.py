"""The samples of whatever failed."""

import pytest

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.report.plots import plots_of


def plots(rows, section="Samples of what failed"):
    return [plot for plot in plots_of(rows) if plot.section == section]


def not_trusted(rows):
    return plots(rows, "Samples of what cannot be trusted")


@pytest.fixture
def failed(bench, make):
    """Three processes a fifth slower than their baseline of a millisecond, each with a block that does not count."""

    def samples(seconds):
        blocks = (Block(2), Block(2, "cores taken by the scheduler"), Block(2))
        return Samples((seconds, seconds, 2 * seconds, 2 * seconds, seconds, seconds), 10, 1e-9, blocks=blocks)

    times = (1.2e-3, 1.21e-3, 1.22e-3)
    measured = [
        make.measurement(samples=samples(seconds), process=f"process-{number}", round=number)
        for number, seconds in enumerate(times, 1)
    ]
    return bench.rows(*measured, make.result(*times).judgement, failed=[measured[0].test_id])


def test_every_process_stands_beside_those_of_the_baseline_and_its_tolerance(failed, checked, traces):
    (plot,) = plots(failed)
    found, layout = traces(checked(plot)), plot.figure["layout"]
    assert ["baseline", "round 1", "round 2", "round 3"] == layout["xaxis"]["ticktext"]
    assert "time of a call (ms)" == layout["yaxis"]["title"]["text"]
    assert [1.2, 1.2, 1.21, 1.21, 1.22, 1.22] == pytest.approx(found["block of this run"]["y"])
    assert 15 == len(found["process of the baseline, its median"]["y"])
    assert 1.05 == pytest.approx(found["tolerance 5 %: 1.05 ms"]["y"][0], rel=1e-4)
    assert 1.0 == pytest.approx(found["baseline 1.00 ms"]["y"][0], rel=1e-4)


def test_blocks_that_do_not_count_are_hollow_and_say_why(failed, traces):
    (plot,) = plots(failed)
    left = traces(plot)["block left out"]
    assert "circle-open" == left["marker"]["symbol"]
    assert [2.4, 2.42, 2.44] == pytest.approx(left["y"])
    assert "left out: cores taken by the scheduler" in left["hovertext"][0]
    assert "3 of 9 blocks left out" in plot.says
    assert ("round 1", "1.20 ms", "3", "1") == tuple(plot.rows[0][:4])


def test_the_sentence_says_how_the_processes_lie_to_the_baselines(failed):
    (plot,) = plots(failed)
    assert plot.says.startswith(
        "+21.0 % time against the baseline; 3 of 3 processes slower than all 15 of the baseline"
    )


def test_what_passed_has_no_such_plot(bench):
    assert [] == plots(bench.sweep([2**12, 2**16, 2**20]))


def test_what_is_invalid_and_did_not_fail_stands_under_a_heading_of_its_own(bench, make):
    records = [make.measurement(key=make.key(f"copy_{number}"), invalid="a neighbour") for number in range(12)]
    rows = bench.rows(*records)
    assert [] == plots(rows)
    assert 10 == len(not_trusted(rows))
    assert not_trusted(rows)[-1].says.endswith(
        "2 more cannot be trusted; `roofline explain` shows the samples of each."
    )


def test_what_is_invalid_and_failed_is_among_what_failed(bench, make):
    measured = make.measurement(invalid="a neighbour")
    rows = bench.rows(measured, failed=[measured.test_id])
    assert (1, 0) == (len(plots(rows)), len(not_trusted(rows)))


def test_processes_that_do_not_count_are_not_held_against_the_baseline(bench, make):
    times = (1.2e-3, 1.21e-3, 1.22e-3)
    measured = [make.measurement(seconds, round=number) for number, seconds in enumerate(times, 1)]
    measured.append(make.measurement(9e-3, round=4, invalid="a neighbour"))
    (plot,) = plots(bench.rows(*measured, make.result(*times).judgement, failed=[measured[0].test_id]))
    assert "3 of 3 processes slower than all 15 of the baseline" in plot.says
    assert 4 == len(plot.rows)


def test_attempts_of_one_round_are_told_apart(bench, make):
    first, again = (make.measurement(seconds, invalid="a neighbour") for seconds in (1e-3, 2e-3))
    (plot,) = not_trusted(bench.rows(first, again))
    assert ["round 1, attempt 1", "round 1, attempt 2"] == [row[0] for row in plot.rows]
    assert plot.says.startswith("2 processes measured. ")


def test_ten_of_many_are_drawn_the_worst_first_and_the_others_counted(bench, make):
    records = [bench.judged(1e-3 * (1.2 + number / 100), 1e-3, key=make.key(f"copy_{number}")) for number in range(13)]
    found = plots(bench.rows(*records, failed=[one.test_id for one, _ in records]))
    assert 10 == len(found)
    assert found[0].title.startswith("copy_12[64MiB] on NVIDIA H200: REGRESSED")
    assert found[-1].says.endswith("3 more failed; `roofline explain` shows the samples of each.")


def test_many_blocks_are_thinned_and_said(bench, make, checked):
    samples = Samples(tuple(1e-6 + 1e-12 * index for index in range(5000)), iterations=1, tick_s=1e-9)
    (plot,) = not_trusted(bench.rows(make.measurement(samples=samples, invalid="a neighbour")))
    (strip,) = (trace for trace in checked(plot).figure["data"] if trace["name"] == "block of this run")
    assert 2000 == len(strip["x"])
    assert "2000 of 5000 blocks are shown" in plot.says
    assert "time of a call (µs)" == plot.figure["layout"]["yaxis"]["title"]["text"]
