"""All plots of a report together: what runs of every kind give, whatever they are named."""

import itertools
from dataclasses import replace

import pytest

from pytest_roofline.baselines.rows import rows_of
from pytest_roofline.core.errors import LARGEST, SMALLEST
from pytest_roofline.core.facts import DeviceFacts
from pytest_roofline.core.records import Ceiling, SessionRecord
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.plots import plots_of

from .conftest import runs_of

HOSTILE = '<a href="javascript:alert(1)">x</a><b>%{y}\x1b[31m&lt;'


def texts_of(value):
    """Every text of a figure, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_of(each)


def test_an_empty_report_has_no_plots():
    assert [] == plots_of([])


def test_a_single_size_is_a_row_of_the_table_and_no_plot(bench):
    assert [] == plots_of(bench.sweep([2**20]))


def test_every_kind_has_its_plot_and_all_are_valid(bench, checked):
    rows = bench.sweep([2**12, 2**16, 2**20], slower=[2**20]) + bench.collectives() + bench.peers(4)
    rows += bench.attention() + bench.step() + bench.streams()
    sections = [checked(plot).section for plot in plots_of(rows, runs_of(rows))]
    assert [
        "Samples of what failed",
        "Bandwidth against size",
        "Collectives by size and world",
        "Copies between devices",
        "Attention by sequence length",
        "Where the time goes",
        "First calls",
        "Where the memory goes",
        "Roofline",
    ] == list(dict.fromkeys(sections))


def test_names_cannot_inject(bench, make, checked):
    def hostile(size):
        return make.key(HOSTILE, parameters={"way": HOSTILE, "size_bytes": size}, name=HOSTILE)

    records = [bench.judged(2e-3, 1e-3, key=hostile(size), work=Work(read_bytes=size, flops=size))
               for size in (2**12, 2**16, 2**20)]  # fmt: skip
    rows = bench.rows(*records, failed=[records[0][0].test_id], product=HOSTILE)
    rows += bench.step(label=HOSTILE, test_id=HOSTILE)
    plots = plots_of(rows, runs_of(rows))
    assert {"Samples of what failed", "Bandwidth against size", "First calls", "Where the memory goes", "Roofline"} <= {
        plot.section for plot in plots
    }
    for plot in plots:
        texts = list(texts_of(checked(plot).figure))
        assert not any("<" in text.replace("<br>", "") for text in texts)
        assert not any("\x1b" in text for text in [*texts, plot.title, plot.says, *itertools.chain(*plot.rows)])
        # A template would fill in what stands in braces.
        templates = [trace.get(name) for trace in plot.figure["data"] for name in ("hovertemplate", "texttemplate")]
        assert {None} == set(templates)


@pytest.mark.parametrize("device", [DeviceFacts("cpu", "AMD EPYC"), DeviceFacts("mps", "Apple M3")])
def test_any_device_is_named_as_it_calls_itself(bench, checked, device):
    rows = bench.sweep([2**12, 2**16, 2**20], known=False, ceiling=None)
    rows = [replace(row, device=device.product) for row in rows]
    (plot,) = plots_of(rows)
    assert f"memcpy_d2d on {device.product}" == checked(plot).title
    assert "none of 3 sizes compared" in plot.says


# Times of calls are bounded, differences and limits are not.
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("new_s", "reference_s", "reference") for value in (SMALLEST, LARGEST)),
        *((name, value) for name in ("limit_s", "estimate", "interval", "tolerance") for value in (5e-324, 1.7e308)),
    ],
)
def test_no_figure_fails_on_what_a_verdict_in_a_file_may_hold(bench, make, checked, name, value):
    value = (SessionRecord((value, 1e-3)),) if name == "reference" else (value, value) if name == "interval" else value
    roof = Ceiling("traffic_GBps", 4e12, "measured", "")
    records = [bench.judged(1e-3, 1e-3, key=make.key(size_bytes=size), ceiling=roof) for size in (2**12, 2**16, 2**20)]
    records[0][1] = replace(records[0][1], processes=3, **{name: value})
    product = make.measurement(key=make.key("product", metric="TFLOPS"), work=Work(flops=10**9))
    plots = plots_of(bench.rows(*records, product, failed=[records[0][0].test_id]))
    sections = {checked(plot).section for plot in plots}
    assert {"Samples of what failed", "Roofline"} <= sections


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e300, 1.7e308])
def test_no_figure_fails_on_any_roofline(bench, make, checked, value):
    rows = [*bench.sweep([2**12, 2**16, 2**20]), *bench.sweep([2**12, 2**16, 2**20]), *bench.streams()]
    rows += [*bench.collectives(), *bench.peers(3), *bench.attention()]
    changed = []
    for index, row in enumerate(rows):
        one = row.measurement
        if one is not None:
            roof = replace(one.ceiling, value=value if index % 2 else 1.6e308, source="measured", limit=None)
            row = replace(row, measurement=replace(one, ceiling=roof))
        changed.append(row)
    assert 5 == len({checked(plot).section for plot in plots_of(changed)})
    mixed = [
        row for row in changed if row.measurement is not None and row.measurement.key.benchmark in ("stream", "product")
    ]
    assert ["Roofline"] == [checked(plot).section for plot in plots_of([*mixed[::-1], *changed[:1]])]


@pytest.mark.parametrize("seconds", [0.0, 1e-320, 1e300])
def test_no_figure_fails_on_any_first_call(bench, checked, seconds):
    for first, warm in (((seconds, 1.0), ()), ((1.0, seconds), (seconds, seconds))):
        samples = Samples((0.14,), 1, 1e-9, first_calls_s=first, warm_calls_s=warm)
        assert all(checked(plot) for plot in plots_of(bench.step(samples=samples)))


def test_a_share_beyond_all_numbers_is_left_out_and_counted(bench, checked):
    (row,) = bench.step()
    (run,) = runs_of([row])
    first, *others = run.profiles[0].classes
    profile = replace(run.profiles[0], classes=(replace(first, share=1.7e308), *others))
    plots = plots_of([row], [replace(run, profiles=(profile,))])
    (plot,) = [plot for plot in plots if plot.section == "Where the time goes"]
    assert "4 of 5 shares are shown" in checked(plot).says


def test_what_has_no_place_on_an_axis_is_counted_in_the_sentence(bench, make, checked):
    records = [bench.judged(1e-3, 1e-3, key=make.key(size_bytes=2**size)) for size in (12, 16, 20, 24)]
    one = records[0][0]
    records[0][0] = replace(one, samples=replace(one.samples, labels=("unresolved",)))
    (plot,) = [plot for plot in plots_of(bench.rows(*records)) if plot.section == "Bandwidth against size"]
    assert "1 without a rate to be drawn" in checked(plot).says


def test_runs_of_one_file_name_are_told_apart_in_all_plots(make, bench, tmp_path):
    facts = {"ceiling": Ceiling("traffic_GBps", 4e12, "measured", ""), "invalid": "a neighbour"}
    keys = [make.key(size_bytes=size) for size in (2**12, 2**16, 2**20)]
    runs = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        records = itertools.chain(*(bench.judged(2e-3, 1e-3, key=key, **facts) for key in keys))
        runs.append(make.run(tmp_path / folder / "n.jsonl", *records))
    plots = plots_of(rows_of(runs))
    for name in ("run a/n", "run b/n"):
        texts = [text for plot in plots for text in [plot.title, *texts_of(plot.figure)]]
        assert any(name in text for text in texts)
    titles = [plot.title for plot in plots]
    assert len(set(titles)) == len(titles)
