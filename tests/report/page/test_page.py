"""The report's page as text: what it says, in which order, and that nothing in it can be taken for markup."""

import base64
import hashlib
import html
import json
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from pytest_roofline.baselines.rows import rows_of_run
from pytest_roofline.core.records import Judgement, Outcome
from pytest_roofline.core.rows import worst_first
from pytest_roofline.report.page import page, rendered
from pytest_roofline.report.page_assets import asset, json_for_script, plotly_script
from pytest_roofline.report.page_plots import drawn, legend, sections
from pytest_roofline.report.page_red import MOST_DETAILED, MOST_OF_A_TEST, not_told, reds
from pytest_roofline.report.page_summary import sentence
from pytest_roofline.report.page_tables import SHOWN_ROWS, Cell, number, plain_table, quantity
from pytest_roofline.report.plots import plots_of
from pytest_roofline.report.plots.chart import Plot
from pytest_roofline.report.plots.samples import INVALID_SECTION, SECTION

from .page_runs import everything, hostile, judged, many

VOID = {"meta", "link", "input", "br", "img"}
COLOUR = re.compile(r"--([a-z]+): var\(--light, (#[0-9a-f]{6})\) var\(--dark, (#[0-9a-f]{6})\);")


class Reader(HTMLParser):
    """The elements of a page with their attributes, text by element, scripts, and whether all are closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.texts, self.open, self.crossed = [], {}, [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.crossed.append(tag)

    def handle_data(self, data):
        for tag in set(self.open):
            self.texts.setdefault(tag, []).append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def full(make, tmp_path_factory):
    return page([everything(make, tmp_path_factory.mktemp("page") / "full.jsonl")])


def rows_of(run):
    return worst_first(rows_of_run(run))


def said(run):
    return sentence(rows_of(run))


def test_the_page_is_sound_markup_in_which_everything_is_closed(full):
    reader = Reader(full)
    assert (reader.open, reader.crossed) == ([], [])
    assert [{"lang": "en"}] == reader.all("html")


def test_every_id_is_there_once_and_every_link_within_the_page_has_one(full):
    reader = Reader(full)
    ids = [attributes["id"] for _, attributes in reader.found if "id" in attributes]
    assert sorted(set(ids)) == sorted(ids)
    links = {attributes["href"] for attributes in reader.all("a")}
    assert links <= {f"#{name}" for name in ids}
    named = {attributes["aria-labelledby"] for _, attributes in reader.found if "aria-labelledby" in attributes}
    assert named <= set(ids)


def test_headings_are_in_order_and_there_is_one_of_the_first(full):
    levels = [int(tag[1]) for tag, _ in Reader(full).found if re.fullmatch("h[1-6]", tag)]
    assert (1, 1) == (levels[0], levels.count(1))
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))


def test_verdicts_come_first_then_what_failed_then_all_results_then_plots_and_the_machine_last(full):
    order = [attributes["id"] for attributes in Reader(full).all("section")]
    plots = [name for name in order if name.startswith("plots-")]
    assert [
        "red",
        "samples",
        "results",
        *plots,
        "steps",
        "inside",
        "kernels",
        "exhausted",
        "machine",
        "reading",
    ] == order
    assert plots
    assert full.index('class="sentence"') < full.index('id="red"')


def test_nothing_is_loaded_from_anywhere(full):
    reader = Reader(full)
    loading = [
        value
        for _, attributes in reader.found
        for name, value in attributes.items()
        if name in ("src", "data", "action")
    ]
    assert [] == loading
    assert [{"rel": "icon", "href": "data:,"}] == reader.all("link")
    assert "url(" not in asset("page.css")
    assert "@import" not in asset("page.css")


def test_the_policy_lets_exactly_the_pages_own_scripts_run(full):
    reader = Reader(full)
    policy = next(one["content"] for one in reader.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    allowed = re.findall("'sha256-([^']+)'", policy)
    scripts = re.findall(r"<script>(.*?)</script>", full, re.DOTALL)
    assert [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts] == allowed
    assert ("default-src 'none'" in policy, "unsafe-eval" in policy) == (True, False)
    assert 2 == len(scripts)


def test_plotly_stays_out_of_a_page_without_plots(make, tmp_path):
    run = make.run(tmp_path / "run.jsonl", make.footer())
    assert len(page([run])) < 100_000 < len(plotly_script())


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\ud800", "'\"`${x}"])
def test_json_in_a_script_comes_back_as_it_was_and_cannot_end_it(text):
    told = json_for_script({"text": text})
    assert {"text": text} == json.loads(told)
    assert not set(told) & set("<>&\u2028\u2029")


def test_a_figure_with_a_number_that_json_does_not_have_is_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        json_for_script({"y": [float("nan")]})


def test_hostile_texts_are_nothing_but_text(make, tmp_path):
    text = page([hostile(make, tmp_path / "hostile.jsonl")])
    reader = Reader(text)
    assert (reader.open, reader.crossed) == ([], [])
    assert [] == reader.all("img")
    assert [] == [name for _, attributes in reader.found for name in attributes if name.startswith("on")]
    # Two that run, and the data of plots.
    assert {None, "application/json"} == {one.get("type") for one in reader.all("script")}
    assert 2 == sum(one.get("type") is None for one in reader.all("script"))
    shown = html.unescape(re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    assert ("{{7*7}}" in shown, "{{49}}" in shown) == (True, False)
    assert not set(text) & set("\u202e\x1b\x00\u2028")
    assert "\\u202e\\x1b[31m\\x00" in shown


def test_a_lone_surrogate_does_not_keep_the_page_from_being_written(make, tmp_path):
    run = make.run(tmp_path / "run.jsonl", Outcome("test_own.py::test_a", "failed", reason="no file"))
    odd = replace(run, outcomes=(replace(run.outcomes[0], reason="no file \udce9"),))
    text = page([odd])
    assert "no file \\udce9" in text
    assert text.encode("utf-8")


def test_a_red_test_is_told_with_its_interval_its_grounds_its_processes_and_a_command(full):
    red = html.unescape(full[full.index('id="red"') : full.index('id="samples"')])
    assert "▲</span> REGRESSED</span> memcpy_d2d[512KiB]" in red
    assert "difference +30.0 % time (99 % interval +27.8 … +32.4 %), tolerance 5 %" in red
    assert "driver 550.54 → 570.86" in red
    assert "session of 2026-01-01T03:04:05Z on GPU-1" in red
    assert re.search(r"roofline explain \S+full\.jsonl 'memcpy_d2d\[512KiB\]'", red)
    assert "AssertionError: the copy differs in 3 of 4096 values" in red


def test_a_run_that_was_never_saved_is_not_named_in_a_command(make, tmp_path):
    run = everything(make, tmp_path / "full.jsonl")
    run.path.unlink()
    assert "roofline explain" not in page([run])


def test_transformer_kernels_memory_and_environment_have_their_tables(full):
    text = html.unescape(full)
    assert "58514</td>" in text
    assert ">12.0 x" in text or "12.0 x the steady 140 ms" in text
    assert "registers 198 → 255, spill_stores 0 → 12" in text
    assert "softmax_kernel" in text
    assert "724 MiB" in text
    assert "64.0 GiB" in text
    assert "NVIDIA H200" in text
    assert "transformer_ranks[2]: efficiency 87.3 %" in text


def test_several_runs_stand_beside_each_other_and_what_differs_says_so(make, tmp_path):
    runs = [make.run(tmp_path / f"{name}.jsonl", make.measurement(), make.footer(), driver=name) for name in ("a", "b")]
    reader = Reader(page(runs))
    assert {"a", "b", "differs"} <= {text.strip() for text in reader.texts["td"]} | {
        text.strip() for text in reader.texts["th"]
    }
    headings = [text.strip() for text in reader.texts["thead"]]
    assert ["test", "run", "size"] == [text for text in headings if text][:3]
    drivers = re.search(
        r"device driver</th><td class=\"t\">a</td><td class=\"t\">b</td><td class=\"t\">differs", page(runs)
    )
    assert drivers is not None


def test_of_very_many_rows_the_first_stand_in_the_page_and_all_of_them_without_javascript(make, tmp_path):
    text = page([many(make, tmp_path / "many.jsonl", SHOWN_ROWS + 50)])
    table = text[text.index('id="results-table"') : text.index('id="plots-')]
    at_once, _, rest = table.partition("<noscript>")
    assert (SHOWN_ROWS, 50) == (at_once.count('<tr data-verdict="'), rest.count('<tr data-verdict="'))


def test_cells_carry_the_number_that_they_are_sorted_by(make, tmp_path):
    text = page([make.run(tmp_path / "run.jsonl", make.measurement(2e-3), make.footer())])
    assert '<td data-v="67108864">64 MiB</td><td data-v="0.002">2.00 ms</td>' in text


def test_a_row_is_known_by_its_test_id_too(make, tmp_path):
    one = make.measurement(test_id='test_a.py::test_"copy"')
    text = page([make.run(tmp_path / "run.jsonl", one, make.footer())])
    assert '<th scope="row" title="test_a.py::test_&#34;copy&#34;">memcpy_d2d[64MiB]</th>' in text


def test_a_number_beyond_all_bounds_is_sorted_as_text():
    assert (Cell("endless"), Cell("2 s", 2.0)) == (number("endless", math.inf), number("2 s", 2.0))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.50 ms", 1.5e-3),
        ("2 MiB", 2.0**21),
        ("3.9 TB/s", 3.9e12),
        ("989 TFLOP/s", 9.89e14),
        ("-1.2 … +3.4 %", -1.2),
        ("1,024", 1024.0),
        (">+999 %", 999.0),
        ("12 processes", 12.0),
        ("PASSED", None),
        ("", None),
        ("sm_90", None),
        ("2ranks", None),
    ],
)
def test_an_amount_is_sorted_by_what_it_is(text, value):
    assert value == pytest.approx(quantity(text)) if value is not None else quantity(text) is None


def test_a_column_of_amounts_is_one_of_numbers_and_any_other_is_text():
    table = plain_table("Copies", ("size", "back end", "time"), [("2 MiB", "sdpa", "1.5 ms"), ("512 KiB", "8", "")])
    assert [True, False, True] == [column.number for column in table.columns]
    assert [[2.0**21, None, 1.5e-3], [2.0**19, None, None]] == [[cell.value for cell in row] for row in table.rows]


def test_of_very_many_failed_tests_the_worst_are_told_and_the_others_counted(make, tmp_path):
    text = page([many(make, tmp_path / "many.jsonl", MOST_DETAILED + 9, red=MOST_DETAILED + 3)])
    assert (MOST_DETAILED, True) == (text.count('<article class="red"'), "… and 3 more failed tests, in the" in text)


def test_a_failed_test_of_very_many_measurements_leaves_room_for_others_and_counts_as_one(make, tmp_path):
    run = many(make, tmp_path / "many.jsonl", 60, red=60)
    one = "test_own.py::test_sixty"
    measurements = [replace(found, test_id=one) for found in run.measurements]
    judgements = [replace(found, test_id=one, name=found.label) for found in run.judgements]
    measurements = [replace(m, key=replace(m.key, name=j.name)) for m, j in zip(measurements, judgements, strict=True)]
    ended = (Outcome(one, "failed", ("REGRESSED",), by_verdict=True), Outcome("test_own.py::test_other", "failed"))
    run = replace(run, measurements=tuple(measurements), judgements=tuple(judgements), outcomes=ended)
    rows = rows_of(run)
    assert {"REGRESSED": MOST_OF_A_TEST, "FAILED": 1} == Counter(red.row.verdict for red in reds(rows))
    assert (
        f"… and {60 - MOST_OF_A_TEST} more measurements of the tests above, in the table of all results."
        == not_told(rows)
    )
    assert "" == not_told([])


def test_a_page_of_no_run_at_all_is_a_page():
    reader = Reader(page([]))
    assert ([], []) == (reader.open, reader.crossed)
    assert "Nothing was timed." in "".join(reader.texts["p"])


def test_plots_of_one_section_stand_together_wherever_they_come_from():
    plots = drawn([Plot(section, title, "", {"data": []}) for section, title in (("a", "1"), ("b", "2"), ("a", "3"))])
    found = [(name, [one.plot.title for one in those]) for name, those in sections(plots, apart="b")]
    assert [("a", ["1", "3"])] == found


def test_a_plot_has_its_sentence_a_description_and_the_same_content_as_a_table(make, tmp_path):
    run = make.run(tmp_path / "run.jsonl", make.footer())
    plot = Plot(
        "Copies",
        "How <fast>",
        "It is fast.",
        {"data": [{"y": [1]}], "layout": {"height": 300}},
        ("size", "rate"),
        [("1 MiB", "2 GB/s")],
    )
    text = rendered([run], [], [plot])
    (canvas,) = [one for one in Reader(text).all("div") if "data-figure" in one]
    assert ("group", "plot-1-title", "plot-1-says plot-1-keys") == tuple(
        canvas[name] for name in ("role", "aria-labelledby", "aria-describedby")
    )
    assert '<h3 id="plot-1-title">How &lt;fast&gt;</h3>\n<p id="plot-1-says">It is fast.</p>' in text
    assert "What the plot says when pointed at stands in the table below.</p>" in text
    assert 'style="height:300px"' in text
    assert '<script type="application/json" id="figure-1">{"data":[{"y":[1]}],"layout":{"height":300}}</script>' in text
    assert '<th scope="row" data-v="1048576">1 MiB</th><td data-v="2e+09">2 GB/s</td>' in text


def test_a_run_that_was_cut_says_so(make, tmp_path):
    assert "the run was cut before its end" in page([make.run(tmp_path / "run.jsonl", make.measurement(), ended=False)])


def test_the_sentence_counts_what_is_slower_among_what_was_compared(make, tmp_path):
    measurements = [make.measurement(1e-3, key=make.key(size_bytes=2**power)) for power in (20, 21, 22)]
    told = [
        judged(make, seconds, test_id=one.test_id, label=one.label)
        for one, seconds in zip(measurements, (1.3e-3, 1.2e-3, 1e-3), strict=True)
    ]
    run = make.run(tmp_path / "run.jsonl", *measurements, *told)
    assert "2 of 3 measurements are slower: worst memcpy_d2d[1MiB], +30.0 % time." == said(run)


def test_the_sentence_of_a_sound_run_says_what_was_not_shown(make, tmp_path):
    one = make.measurement()
    run = make.run(tmp_path / "run.jsonl", one, judged(make, 1e-3, 1e-3, 1e-3, test_id=one.test_id, label=one.label))
    assert "None of 1 measurement is shown to be slower." == said(run)


def test_the_sentence_of_a_run_that_compared_nothing_gives_the_reason(make, tmp_path):
    one = make.measurement()
    run = make.run(tmp_path / "run.jsonl", one, judged(make, 1e-3, known=False, test_id=one.test_id, label=one.label))
    assert "Nothing was compared: no baseline recorded." == said(run)


def test_reasons_that_differ_in_their_numbers_alone_are_one_in_the_sentence(make, tmp_path):
    one = make.measurement()
    told = [f"others kept {cores} of 2 cores busy" for cores in (0.9, 1.6)]
    spoiled = [
        Judgement(f"t.py::test_{at}", one.label, "INVALID", 0.05, reason=reason) for at, reason in enumerate(told)
    ]
    measured = [replace(one, test_id=judgement.test_id, invalid=judgement.reason) for judgement in spoiled]
    run = make.run(tmp_path / "run.jsonl", *measured, *spoiled, make.footer())
    assert f"Nothing was compared: {told[0]}." == said(run)


def test_the_sentence_of_a_run_without_numbers_says_so(make, tmp_path):
    assert "Nothing was timed." == said(make.run(tmp_path / "a.jsonl", make.footer()))
    failed = make.run(tmp_path / "b.jsonl", Outcome("test_own.py::test_a", "failed", reason="boom"))
    assert "1 test failed otherwise (FAILED): test_a. Nothing was timed." == said(failed)


def test_the_sentence_of_a_run_without_verdicts_does_not_call_that_a_reason(make, tmp_path):
    run = make.run(tmp_path / "run.jsonl", make.measurement(), make.footer())
    assert "Nothing was compared: the run holds no verdicts." == said(run)


@pytest.mark.parametrize(
    ("outcome", "reason", "told"),
    [
        (
            "failed",
            "boom",
            "1 test failed otherwise (FAILED): memcpy_d2d[64MiB]. Nothing was compared: the test ended as FAILED.",
        ),
        ("failed", "xfail: known", "Nothing was compared: the test ended as XFAIL."),
        ("skipped", "no room", "Nothing was compared: the test ended as SKIPPED."),
    ],
)
def test_why_a_test_failed_is_not_why_nothing_was_compared(make, tmp_path, outcome, reason, told):
    one = make.measurement()
    assert told == said(make.run(tmp_path / "run.jsonl", one, make.outcome(one, outcome, reason=reason)))


def test_kernels_are_worse_and_not_slower(make, tmp_path):
    told = said(everything(make, tmp_path / "full.jsonl"))
    assert "2 of 15 measurements are slower" in told
    assert "1 of 2 compiled kernels is worse: flash_forward[sm_90]." in told


def luminance(colour):
    """Of sRGB, as WCAG 2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["page", "raised"])
@pytest.mark.parametrize(
    ("name", "least"),
    [(name, 4.5) for name in ("text", "muted", "link", "bad", "doubt", "good", "plain")] + [("control", 3.0)],
)
def test_every_colour_can_be_read_on_both_grounds_as_wcag_asks(name, least, ground, mode):
    colours = {found: pair for found, *pair in COLOUR.findall(asset("page.css"))}
    assert contrast(colours[name][mode], colours[ground][mode]) >= least


def test_the_reference_contrasts_are_those_that_wcag_names():
    assert (21.0, 1.0) == (pytest.approx(contrast("#ffffff", "#000000")), contrast("#777777", "#777777"))


def test_no_colour_stands_outside_of_the_palette():
    rules = asset("page.css").partition("}")[2]
    assert [] == re.findall(r"#[0-9a-fA-F]{3,8}\b", rules)


def test_colours_need_no_browser_of_the_last_years():
    assert "light-dark(" not in asset("page.css").partition("*/")[2]


def trace(name, **changes):
    return {"type": "scatter", "name": name} | changes


@pytest.mark.parametrize(
    ("traces", "expected"),
    [
        ([trace("a"), trace("b")], [("a", [0]), ("b", [1])]),
        ([trace("a")], []),
        ([trace("a", showlegend=True)], [("a", [0])]),
        ([trace("a", type="heatmap")], []),
        ([trace("band", legendgroup="x", showlegend=False), trace("b"), trace("a", legendgroup="x")],
         [("a", [0, 2]), ("b", [1])]),
        ([trace("baseline", legendgroup="x"), trace("this run", legendgroup="x"), trace("&lt;i&gt;")],
         [("baseline, this run", [0, 1]), ("<i>", [2])]),
        ([{"type": "scatter"}, trace("a"), trace("b")], [("a", [1]), ("b", [2])]),
    ],
)  # fmt: skip
def test_a_legend_has_the_entries_that_plotly_gives_it(traces, expected):
    assert expected == legend({"data": traces})


def test_samples_of_what_cannot_be_trusted_stand_behind_the_results(make, tmp_path):
    run = make.run(tmp_path / "run.jsonl", make.footer())
    plots = [Plot(section, "", "", {"data": []}) for section in (SECTION, INVALID_SECTION)]
    order = [attributes["id"] for attributes in Reader(rendered([run], [], plots)).all("section")]
    assert ["samples", "results", "plots-samples-of-what-cannot-be-trusted"] == order[:3]


def test_plots_that_nobody_can_trust_are_the_last(make, tmp_path):
    sizes = [2**power for power in (20, 22, 24)]
    good = [make.measurement(key=make.key(size_bytes=size), test_id=f"t.py::test_copy[{size}]") for size in sizes]
    bad = make.measurement(key=make.key("stream", size_bytes=sizes[0]), invalid="busy")
    run = make.run(tmp_path / "run.jsonl", *good, bad, make.footer())
    order = [plot.section for plot in plots_of(rows_of_run(run))]
    assert (True, INVALID_SECTION) == (INVALID_SECTION not in order[:-1] and len(order) > 1, order[-1])
