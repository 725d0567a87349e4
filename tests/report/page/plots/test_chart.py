"""What all plots share."""

import json
import math

import pytest

from pytest_roofline.report.plots.chart import (
    COLOURS,
    MOST_SERIES,
    bar_marker,
    drawable,
    lines_of,
    log_axis,
    median_of,
    plain_figure,
    safe,
    size_axis,
    style,
    thinned,
    wrapped,
)

LINK = '<a href="javascript:alert(1)">x</a>'


def luminance(colour):
    """Of WCAG 2: 0 is black, 1 is white."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_that_plotly_would_read_as_tags_or_entities_is_escaped():
    assert '&lt;a href="javascript:alert(1)"&gt;x&lt;/a&gt;' == safe(LINK)
    assert "&amp;lt;b&amp;gt;" == safe("&lt;b&gt;")
    assert "\\x1b[31m" == safe("\x1b[31m")


def test_only_our_own_line_breaks_are_tags():
    assert "&lt;br&gt;<br>b" == lines_of(["<br>", "", "b"])
    assert "&lt;b&gt;bold&lt;/b&gt;<br>and long" == wrapped("<b>bold</b> and long", width=12)


def test_series_of_one_figure_differ_in_symbol_and_dash_and_neighbours_in_colour():
    colours, symbols, dashes = zip(*map(style, range(MOST_SERIES)), strict=True)
    assert MOST_SERIES == len(set(symbols)) == len(set(dashes))
    assert all(one != other for one, other in zip(colours, colours[1:], strict=False))


def test_bars_differ_in_pattern_where_they_share_a_colour():
    looks = {(marker["color"], marker["pattern"]["shape"]) for marker in map(bar_marker, range(12))}
    assert 12 == len(looks)


@pytest.mark.parametrize("colour", COLOURS)
def test_colours_are_seen_on_black_and_on_white(colour):
    assert (luminance(colour) + 0.05) / 0.05 > 3
    assert 1.05 / (luminance(colour) + 0.05) > 2


def test_thinning_keeps_what_matters_and_the_order():
    numbers = list(range(1000))
    kept = thinned(numbers, 10, lambda number: number in (3, 997))
    assert 10 == len(kept)
    assert kept == sorted(kept)
    assert {3, 997} <= set(kept)
    assert thinned(numbers[:10], 10) == numbers[:10]


def test_thinning_holds_where_more_matters_than_there_is_room():
    assert [0, 1, 2] == thinned(range(100), 3, lambda _: True)


def test_a_figure_is_plain_and_has_no_template_even_where_a_person_has_set_one():
    import plotly.io as pio

    usual = pio.templates.default
    pio.templates.default = "plotly_dark"
    try:
        figure = plain_figure([{"type": "scatter", "x": (1.0, 2.0), "y": [None, 2.0]}], {"barmode": "group"})
    finally:
        pio.templates.default = usual
    assert [1.0, 2.0] == figure["data"][0]["x"]
    assert "template" not in figure["layout"]
    assert "rgba(0,0,0,0)" == figure["layout"]["paper_bgcolor"]
    assert figure == json.loads(json.dumps(figure, allow_nan=False))


def test_a_property_that_plotly_does_not_know_is_no_figure():
    with pytest.raises(ValueError, match="colour"):
        plain_figure([{"type": "scatter", "colour": "red"}], {})


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 4800.0], ["3", "10", "30", "100", "300", "1,000", "3,000", "10,000"]), ([20.0, 29.0], ["20", "30", "40"])],
)
def test_ticks_of_rates_are_round_numbers_written_out(values, expected):
    found = log_axis("GB/s", values)
    assert expected == found["ticktext"]
    assert len(found["tickvals"]) == len(found["ticktext"])


@pytest.mark.parametrize("decades", range(1, 40, 3))
def test_ticks_are_few_however_far_apart_the_numbers_are(decades):
    assert 1 <= len(log_axis("GB/s", [1.0, 10.0**decades])["tickvals"]) <= 10


@pytest.mark.parametrize(
    "values", [[1e-320, 1e300], [5e-324], [1.7e308], [math.inf, 3.0, 0.0, -1.0, None], [math.inf], []]
)
def test_an_axis_stays_in_log_space_and_leaves_out_what_has_no_place(values):
    found = log_axis("GB/s", values)
    low, high = found["range"]
    assert low < high
    for value in values:
        assert not drawable(value) or low < math.log10(value) < high
    assert all(map(drawable, found.get("tickvals", [])))


def test_a_median_of_the_largest_numbers_is_one():
    assert [1.65e308, 2, 2.5] == pytest.approx(
        [median_of(values) for values in ([1.7e308, 1.6e308], [3, 1, 2], [2, 3])]
    )


def test_a_long_label_keeps_its_end_which_tells_runs_apart():
    label = "a_benchmark_of_transformers[small-c128-fp32-forward-with-remat], run nightly"
    lines = wrapped(label).split("<br>")
    assert (4, "nightly") == (len(lines), lines[-1])
    assert lines[0] == "a_benchmark_of_"
    assert all(len(line) <= 18 for line in lines)
    assert "…" in lines[2]


def test_ticks_of_sizes_are_powers_of_two_in_binary_units():
    found = size_axis("size", [4096, 2**31])
    assert ("4<br>KiB", 0) == (found["ticktext"][0], found["tickangle"])
    assert all(tick & (tick - 1) == 0 for tick in found["tickvals"])
    assert 4 <= len(found["tickvals"]) <= 7


@pytest.mark.parametrize("sizes", [[1000], [1000, 1001], [1, 3]])
def test_sizes_that_are_near_each_other_have_an_axis_too(sizes):
    low, high = size_axis("size", sizes)["range"]
    assert low < math.log10(min(sizes)) <= math.log10(max(sizes)) < high
