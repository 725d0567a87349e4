from pytest_roofline.reporting.report.plots import plots_of

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = [4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, GIB]


def sweep_plots(rows):
    return [plot for plot in plots_of(rows) if plot.section == "Bandwidth against size"]


def test_a_sweep_has_log_axes_in_bytes_and_gigabytes_a_second_and_the_roofline_dashed(bench, checked, traces):
    (plot,) = sweep_plots(bench.sweep(SIZES))
    checked(plot)
    layout = plot.figure["layout"]
    assert ("log", "log") == (layout["xaxis"]["type"], layout["yaxis"]["type"])
    assert "4 KiB" in layout["xaxis"]["ticktext"]
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
