"""Copies between devices as heat maps."""

from pytest_roofline.report.plots import plots_of


def matrices(rows):
    return [plot for plot in plots_of(rows) if plot.section == "Copies between devices"]


def test_sources_are_rows_from_the_top_targets_columns_and_every_cell_has_its_number(bench, checked):
    (plot,) = matrices(bench.peers(4))
    trace, layout = checked(plot).figure["data"][0], plot.figure["layout"]
    assert ["0", "1", "2", "3"] == trace["x"] == trace["y"]
    assert "reversed" == layout["yaxis"]["autorange"]
    assert ["", "390", "390", "390"] == trace["text"][0]
    assert trace["z"][0][0] is None
    assert 393.0 == round(trace["z"][3][0])
    assert "390 GB/s" in trace["hovertext"][0][1]
    assert plot.title.endswith("auto_payload_GBps on NVIDIA H200, roofline 450 GB/s (datasheet)")


def test_the_slowest_pair_is_named_and_marked_and_stands_out_by_colour(bench, checked):
    (plot,) = matrices(bench.peers(4, slow=[(2, 1)]))
    trace = checked(plot).figure["data"][0]
    assert plot.says.startswith(
        "Lowest 294 GB/s for 2→1, median 391 GB/s, highest 393 GB/s for 3→0; 1 of 12 pairs slower"
    )
    assert "worst 2→1 (+32.7 % time)" in plot.says
    assert "✕ marks a failed test" in plot.says
    assert "294<br>✕" == trace["text"][2][1]
    assert trace["zmin"] < trace["z"][2][1] < 0.8 * trace["zmax"]


def test_pairs_that_are_nearly_equal_do_not_look_like_a_collapse(bench):
    (plot,) = matrices(bench.peers(4))
    trace = plot.figure["data"][0]
    assert trace["zmin"] == 0.7 * trace["zmax"]


def test_an_invalid_pair_has_no_number(bench, checked):
    (plot,) = matrices(bench.peers(3, invalid=[(1, 0)]))
    trace = checked(plot).figure["data"][0]
    assert trace["z"][1][0] is None
    assert "" == trace["text"][1][0]
    (mark,) = plot.figure["layout"]["annotations"]
    assert ("0", "1", "inv.") == (mark["x"], mark["y"], mark["text"])
    assert "1 invalid" in plot.says


def test_two_pairs_are_read_in_the_table(bench):
    assert [] == matrices(bench.peers(2))


def test_sizes_and_runs_have_a_matrix_each(bench):
    titles = [plot.title for plot in matrices(bench.peers(3) + bench.peers(3, size=2**15))]
    assert 2 == len(titles)
    assert "512MiB" in titles[0]
    assert titles[0].endswith("run run-1, roofline 450 GB/s (datasheet)")
    assert "32KiB" in titles[1]


def test_a_matrix_of_nothing_to_be_trusted_says_so(bench, checked):
    every = [(source, target) for source in range(3) for target in range(3)]
    (plot,) = matrices(bench.peers(3, invalid=every))
    assert checked(plot).says.startswith("No pair has a number to be trusted")


def test_more_pairs_than_rows_of_a_table_are_thinned_and_said_and_red_ones_kept(bench, checked):
    (plot,) = matrices(bench.peers(16, slow=[(15, 14), (15, 13)]))
    assert 200 == len(checked(plot).rows)
    assert "200 of 240 rows of the table are shown" in plot.says
    assert {("15", "14"), ("15", "13")} <= {row[:2] for row in plot.rows}


def test_a_figure_has_at_most_so_many_devices_and_says_so(bench, make, checked):
    records = [
        make.measurement(key=make.key("peer_copy", parameters={"source": 2 * number, "target": 2 * number + 1}))
        for number in range(300)
    ]
    (plot,) = matrices(bench.rows(*records, failed=[records[-1].test_id]))
    trace = checked(plot).figure["data"][0]
    assert 72 == len(trace["x"]) == len(trace["y"])
    assert plot.figure["layout"]["height"] < 2000
    assert "598" in trace["y"]
    assert "72 of 300 pairs are shown" in plot.says
