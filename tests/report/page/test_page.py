"""The report's page as text: what it says, in which order, and that nothing in it can be taken for markup."""

import base64
import hashlib
import html
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from pytest_roofline.baselines.run_rows import rows_of, rows_of_run
from pytest_roofline.core.memory import FailedAllocation, OutOfMemory
from pytest_roofline.core.profiles import Figure
from pytest_roofline.core.records import Ceiling, Outcome
from pytest_roofline.core.resources import Resources
from pytest_roofline.core.rows import worst_first
from pytest_roofline.core.samples import Samples
from pytest_roofline.report.page import (
    SHOWN_ROWS,
    asset,
    for_script,
    kernels_table,
    machine_table,
    page,
    results_table,
)
from pytest_roofline.report.page_text import (
    MOST_DETAILED,
    MOST_DRAWN,
    MOST_LINES,
    MOST_OF_A_TEST,
    changed_lines,
    drill_line,
    inside_of,
    left_out_reds,
    published_of,
    reds,
    run_lines,
)
from pytest_roofline.report.sentences import sentences

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
def run(make, tmp_path_factory):
    return everything(make, tmp_path_factory.mktemp("page") / "full.jsonl")


@pytest.fixture(scope="module")
def full(run):
    return page([run])


def texts(table):
    """Rows as dictionaries from heading to text, without what is empty."""
    names = [column.name for column in table.columns]
    return [
        {name: cell.text for name, cell in zip(names, row, strict=True) if cell.text}
        for row in table.rows
    ]


def test_the_page_is_sound_markup_in_its_order_with_every_link_and_name_answered(full):
    reader = Reader(full)
    assert (reader.open, reader.crossed) == ([], [])
    assert [{"lang": "en"}] == reader.all("html")
    ids = [attributes["id"] for _, attributes in reader.found if "id" in attributes]
    assert sorted(set(ids)) == sorted(ids)
    links = [attributes["href"].removeprefix("#") for attributes in reader.all("a")]
    names = ("aria-labelledby", "aria-describedby", "data-figure")
    asked = [
        attributes[name] for _, attributes in reader.found for name in names if name in attributes
    ]
    assert {*links, *asked} <= set(ids)
    levels = [int(tag[1]) for tag, _ in reader.found if re.fullmatch("h[1-6]", tag)]
    assert (1, 1) == (levels[0], levels.count(1))
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    order = [attributes["id"] for attributes in reader.all("section")]
    plots = [name for name in order if name.startswith("plots-")]
    assert ["red", "results", *plots, "inside", "kernels", "machine", "reading"] == order
    # Every plot says what it shows beside it, and is told by its title.
    canvases = [one for one in reader.all("div") if "data-figure" in one]
    # Two of what failed, and all sections but the matrix.
    assert (9, 8) == (len(canvases), len(reader.all("figure")))
    assert all(
        one["role"] == "img" and one["aria-label"] and one["aria-describedby"] for one in canvases
    )


def test_nothing_is_loaded_and_exactly_the_pages_own_scripts_run(full, make, tmp_path):
    reader = Reader(full)
    assert not [
        value
        for _, found in reader.found
        for name, value in found.items()
        if name in ("src", "data", "action")
    ]
    assert [{"rel": "icon", "href": "data:,"}] == reader.all("link")
    assert not re.search(r"url\(|@import", asset("page.css"))
    policy = next(
        one["content"]
        for one in reader.all("meta")
        if one.get("http-equiv") == "Content-Security-Policy"
    )
    scripts = re.findall(r"<script>(.*?)</script>", full, re.DOTALL)
    digests = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    assert (2, digests) == (len(scripts), re.findall("'sha256-([^']+)'", policy))
    assert ("default-src 'none'" in policy, "unsafe-eval" in policy) == (True, False)


def test_a_page_of_a_hundred_rows_weighs_less_than_a_megabyte_and_a_half_and_without_plots_nothing(
    make, tmp_path
):
    text = page([many(make, tmp_path / "many.jsonl", 100, red=12)])
    assert MOST_DRAWN < text.count('data-figure="') < 40
    assert len(text.encode()) <= 1_500_000
    assert len(page([make.run(tmp_path / "run.jsonl", make.footer())])) < 100_000


def test_json_in_a_script_comes_back_as_it_was_and_cannot_end_it():
    for text in ("</script>", "<!--", "]]>", "&lt;", "\u2028\u2029", "\ud800", "'\"`${x}"):
        told = for_script({"text": text})
        assert {"text": text} == json.loads(told)
        assert not set(told) & set("<>&\u2028\u2029")
    with pytest.raises(ValueError, match="JSON compliant"):
        for_script({"y": [float("nan")]})


def test_hostile_texts_are_nothing_but_text(make, tmp_path):
    run = hostile(make, tmp_path / "hostile.jsonl")
    failed = Outcome("t.py::test_a", "failed", reason="no file \udce9")
    odd = replace(run, lines=(*run.lines, failed))
    text = page([odd])
    assert text.encode("utf-8")
    reader = Reader(text)
    assert (reader.open, reader.crossed, reader.all("img")) == ([], [], [])
    assert [] == [
        name for _, attributes in reader.found for name in attributes if name.startswith("on")
    ]
    # Two that run, and the data of plots.
    kinds = Counter(one.get("type") for one in reader.all("script"))
    assert ({None, "application/json"}, 2) == (set(kinds), kinds[None])
    shown = html.unescape(re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    assert ("{{7*7}}" in shown, "{{49}}" in shown) == (True, False)
    assert not set(text) & set("\u202e\x1b\x00\u2028")
    assert "\\u202e\\x1b[31m\\x00" in shown
    assert "no file \\udce9" in shown


def test_a_red_test_is_told_with_its_plot_its_cause_behind_a_fold_and_a_command(
    make, run, full, tmp_path
):
    red = html.unescape(full[full.index('id="red"') : full.index('id="results"')])
    assert "▲</span> REGRESSED</span> memcpy_d2d[512KiB]" in red
    assert re.search(r"roofline explain \S+full\.jsonl 'memcpy_d2d\[512KiB\]'", red)
    # The difference is told once, and statistics stand behind a fold, a line each.
    card = next(part for part in red.split("<article")[1:] if "memcpy_d2d[512KiB]</h3>" in part)
    shown, _, folded = card.partition("<details>")
    assert ("+30 % time" in shown, "+30.0 % time" in card) == (True, False)
    assert (
        "standard error" in shown,
        "\n  session of 2026-01-01T03:04:05Z on GPU-1: 5 pro" in folded,
    ) == (False, True)
    assert "note: driver 550.54 → 570.86\n" in folded
    assert "3 of 3 processes slower than all 15 processes of the baseline." in shown
    assert 'data-figure="plot-2"' in card
    found = {one.row.label: one for one in reds(rows_of_run(run))}
    explained = found["memcpy_d2d[512KiB]"].explained
    assert (3, 3) == tuple(
        sum(line.startswith(start) for line in explained) for start in ("  round ", "  session of")
    )
    bare = found["test_data"]
    assert (("AssertionError: the copy differs in 3 of 4096 values",), None) == (
        bare.message,
        bare.plot,
    )
    assert ("python -m pytest test_own.py::test_data",) == bare.commands
    # A run that was never saved is not named in a command.
    assert "roofline explain" not in page([replace(run, path=tmp_path / "gone.jsonl")])


def test_commands_are_what_somebody_can_type(make, tmp_path):
    def commands(*records):
        return [
            red.commands for red in reds(rows_of_run(make.run(tmp_path / "run.jsonl", *records)))
        ]

    assert [()] == commands(Outcome("device health", "failed", reason="DEGRADED: power limit"))
    ran_out = OutOfMemory(
        "test_big.py::test_big",
        "big",
        {},
        "big[9]",
        "cuda:0",
        FailedAllocation("tried to allocate"),
        name="",
    )
    found = commands(ran_out, Outcome("test_big.py::test_big", "failed", reason="out of memory"))
    assert [("python -m pytest test_big.py::test_big",)] == found
    one = make.measurement(test_id="test_a.py::test_\x07", label="copy")
    assert [(f"roofline explain {tmp_path / 'run.jsonl'} copy",)] == commands(
        one, make.outcome(one, "failed")
    )


def test_of_very_many_failed_tests_and_measurements_some_are_told_and_the_others_counted(
    make, tmp_path
):
    text = page([many(make, tmp_path / "many.jsonl", MOST_DETAILED + 9, red=MOST_DETAILED + 3)])
    assert (MOST_DETAILED, True) == (
        text.count('<article class="red"'),
        "… and 3 more failed tests, in the" in text,
    )
    assert MOST_DRAWN == text.count('data-figure="plot-')
    run, one = many(make, tmp_path / "many.jsonl", 60, red=60), "test_own.py::test_sixty"
    verdicts = [
        replace(found, subject=replace(found.subject, test_id=one, name=found.subject.label))
        for found in run.verdicts
    ]
    measured = [replace(m, test_id=one, key=replace(m.key, name=m.label)) for m in run.measurements]
    ended = (
        Outcome(one, "failed", ("REGRESSED",), by_verdict=True),
        Outcome("test_own.py::test_other", "failed"),
    )
    rows = rows_of_run(replace(run, lines=(*measured, *verdicts, *ended)))
    assert {"REGRESSED": MOST_OF_A_TEST, "FAILED": 1} == Counter(
        red.row.verdict for red in reds(rows)
    )
    assert (
        f"… and {60 - MOST_OF_A_TEST} more measurements of the tests above, in the table"
        in left_out_reds(rows)
    )
    assert "" == left_out_reds([])


def test_a_result_fills_every_column_and_what_is_empty_everywhere_has_none(make, tmp_path):
    def results(*records):
        return texts(
            results_table(
                rows_of_run(make.run(tmp_path / "run.jsonl", *records)), has_several_runs=False
            )
        )

    one = make.measurement(
        1.25e-3, ceiling=Ceiling("traffic_GBps", 4.8e11, "datasheet", "datasheet"), peak_bytes=2**20
    )
    (found,) = results(
        one, judged(make, 1.24e-3, 1.25e-3, 1.26e-3, test_id=one.test_id, label=one.label)
    )
    assert found.pop("99 %").startswith("+2")
    assert {
        "test": "memcpy_d2d[64MiB]", "size": "64 MiB", "time": "1.25 ms", "rate": "107 GB/s", "roof": "22%",
        "baseline": "1.00 ms", "peak": "1.00 MiB", "diff %": "+25.0", "n": "3:15", "verdict": "REGRESSED",
    } == found  # fmt: skip
    roof = Ceiling("traffic_GBps", 2.68e11, "measured", "triad")
    cached = Samples((1e-3,), 10, 1e-9, labels=("cache_resident",))
    shares = results(
        make.measurement(1e-3, ceiling=roof),
        make.measurement(key=make.key("cached"), samples=cached, ceiling=roof),
        make.measurement(1e-3, key=make.key("beyond"), ceiling=replace(roof, value=1e9)),
        make.measurement(
            samples=Samples((2e-8,), 1, 1e-8, labels=("unresolved",)), key=make.key("short")
        ),
    )
    assert ["50%*", "cache", ">999%", None] == [row.get("roof") for row in shares]
    assert "rate" not in shares[3]


def test_cells_carry_the_number_they_are_sorted_by_and_rows_their_test_id(make, tmp_path):
    one = make.measurement(2e-3, test_id='test_a.py::test_"copy"')
    text = page([make.run(tmp_path / "run.jsonl", one, make.footer())])
    assert '<td data-v="0.002">2.00 ms</td>' in text
    assert '<td data-v="67108864">64 MiB</td>' in text
    assert '<th scope="row" title="test_a.py::test_&#34;copy&#34;">memcpy_d2d[64MiB]</th>' in text


def test_kernels_what_ran_out_of_memory_and_what_calls_go_into_are_told(run, full):
    worse, fine = texts(kernels_table(worst_first(rows_of_run(run))))
    assert "registers 198 → 255, spill_stores 0 → 12" == worse["changed"]
    assert ("sm_80", "198", "112 KiB", "0", "24") == tuple(
        fine[name] for name in ("target", "registers", "shared", "spills", "matrix")
    )
    unread = replace(run.resources[0], figures={"registers": 10}, unread="no disassembler")
    (row,) = texts(kernels_table(rows_of_run(run.with_lines(Resources, [unread]))))
    assert ("10", "?", "?") == (row["registers"], row["spills"], row["matrix"])
    inside = dict(inside_of([run]))
    assert ["transformer_ranks[2]: efficiency 87.3 %"] == inside["transformer_ranks[2]"]
    assert any("matrix product 60.0 %" in line for line in inside["transformer[small-eager]"])
    assert any("724 MiB" in line for line in inside["transformer_memory[small]"])
    for told in (
        "asked for 64.0 GiB, 40.0 GiB free, during the calls",
        "58514</td>",
        "NVIDIA H200",
        "softmax_kernel",
    ):
        assert told in html.unescape(full)


def test_the_header_says_run_date_host_and_drill_and_whatever_is_long_is_cut_with_a_word(
    make, run, full, tmp_path
):
    (line,) = run_lines([run], rows_of([run]))
    assert (
        "run full · 2026-01-02 03:04:05 UTC · node · 40 measured, 2 not measured · tolerance 5 %"
        == line
    )
    watched = make.footer(exit_status=1, measured=1, shadow=("t.py::a",))
    told = "1 measured · 1 test would have failed (shadow gate)"
    assert run_lines([make.run(tmp_path / "w.jsonl", watched)], ())[0].endswith(told)
    header = full[full.index("<header>") : full.index("</header>")]
    for told in (
        "Roofline report: NVIDIA H200",
        line,
        '<p class="sentence bad">RED: 1 FAILED, 3 REGRESSED, 14 of 54 fast',
    ):
        assert told in header
    runs = [
        make.run(tmp_path / f"{number}.jsonl", make.footer(measured=number)) for number in range(12)
    ]
    lines = run_lines(runs, ())
    assert (True, "… and 4 more runs") == (lines[7].endswith("7 measured"), lines[-1])
    cut = make.run(tmp_path / "c.jsonl", make.measurement(), ended=False)
    assert run_lines([cut], ())[0].endswith("cut before its end; the results until then follow")
    others = [
        make.run(tmp_path / f"{name}.jsonl", make.footer(), product=name) for name in ("A", "B")
    ]
    assert ["run A", "A"] == run_lines(others, ())[0].split(" · ")[:4:3]
    notes = [Figure("t", f"f{number}", "p", "loss", 0.5, "x") for number in range(MOST_LINES + 3)]
    assert ("… and 3 more in the run file", []) == inside_of(
        [make.run(tmp_path / "n.jsonl", *notes)]
    )[-1]
    assert "" == drill_line([run])
    samples = Samples((1e-3,), 10, 1e-9, labels=("replaced",))
    slowed = make.run(tmp_path / "d.jsonl", make.measurement(samples=samples))
    told = "This was a drill: the measured functions were slowed down or replaced on purpose"
    for command, by in ((("pytest",), "."), (("pytest", "--roofline-drill=10%"), ", by 10%."),
                        (("pytest", "--roofline-drill", "0.2", "a"), ", by 0.2.")):  # fmt: skip
        one = replace(slowed, header=replace(slowed.header, command=command))
        assert told + by == drill_line([one])
    assert told in page([slowed])


def test_the_environment_has_units_and_what_differs_between_runs_says_so(make, run, tmp_path):
    facts = {row["fact"]: row["full"] for row in texts(machine_table([run]))}
    assert ("64.0 GiB", "570.86", "2.13.0") == tuple(
        facts[name] for name in ("host memory", "device driver", "software torch")
    )
    assert "device power limit" not in facts
    assert "2026-01-02T03:04:05Z, exit status 0" == facts["finished"]
    runs = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        runs.append(
            make.run(
                tmp_path / name / "n.jsonl",
                make.measurement(),
                make.footer(measured=1),
                driver=name,
            )
        )
    table = machine_table(runs)
    assert ["fact", "a/n", "b/n", "between runs"] == [column.name for column in table.columns]
    drivers = next(row for row in texts(table) if row["fact"] == "device driver")
    assert ("a", "b", "differs") == (drivers["a/n"], drivers["b/n"], drivers["between runs"])
    assert ["run a/n", "run b/n"] == [line.split(" · ")[0] for line in run_lines(runs, ())]
    assert ["a/n", "b/n"] == [
        row["run"] for row in texts(results_table(rows_of(runs), has_several_runs=True))
    ]


def test_what_changed_figures_and_published_numbers_are_told(make, run, tmp_path):
    lines = ["driver 550.54 → 570.86 (16 of 20 results)", "triton 3.8.0 → 3.9.0 (1 of 20 results)"]
    assert lines == changed_lines(rows_of_run(run))
    one = make.measurement()
    figures = (make.published("reference", value=4000.0, source="a vendor"),)
    told = judged(make, 1e-3, test_id=one.test_id, label=one.label, published=figures)
    own = make.run(
        tmp_path / "run.jsonl", one, told, Figure("t", "ranks[2]", "p", "efficiency", 0.5, "share")
    )
    assert [("ranks[2]", ["ranks[2]: efficiency 50.0 %"])] == inside_of([own])
    assert [
        "memcpy_d2d[64MiB]: reference 4000 GB/s (read + write; a vendor), confidence high"
    ] == published_of(rows_of_run(own))


def test_of_very_many_rows_the_first_stand_in_the_page_and_all_of_them_without_javascript(
    make, tmp_path
):
    text = page([many(make, tmp_path / "many.jsonl", SHOWN_ROWS + 50)])
    at_once, _, rest = text[text.index('id="results-table"') : text.index('id="plots-')].partition(
        "<noscript>"
    )
    assert (SHOWN_ROWS, 50) == (
        at_once.count('<tr data-verdict="'),
        rest.count('<tr data-verdict="'),
    )


def test_the_sentence_of_each_run_is_that_with_which_it_ended(make, run, tmp_path):
    def made(name, *records):
        return make.run(tmp_path / f"{name}.jsonl", *records)

    one, two = (make.measurement(1e-3, key=make.key(size_bytes=2**power)) for power in (20, 21))
    slow, fine = (
        judged(make, s, s, s, test_id=m.test_id, label=m.label)
        for m, s in ((one, 1.3e-3), (two, 1e-3))
    )
    red = make.outcome(one, "failed", verdicts=("REGRESSED",), by_verdict=True)
    runs = [made("slow", one, two, slow, fine, red), made("fine", two, fine), made("new", one)]
    runs.append(made("broken", Outcome("t.py::test_a", "failed", reason="boom")))
    runs.append(made("others", two, fine, make.footer(exit_status=1)))
    sick = Outcome("device health", "failed", ("DEGRADED",), "half the links", by_verdict=True)
    runs.append(made("sick", two, fine, sick))
    assert [
        "slow: RED: 1 REGRESSED, 1 of 2 fast enough",
        "fine: GREEN: 1 of 1 fast enough",
        "new: GREY: nothing was compared (1 NO BASELINE)",
        "broken: RED: 1 FAILED, 0 of 1 fast enough",
        "others: GREEN: 1 of 1 fast enough; but pytest ended with status 1 (other tests failed)",
        "sick: RED: 1 DEGRADED, 1 of 1 fast enough",
    ] == sentences(runs, rows_of(runs))
    reader = Reader(page([]))
    assert ([], [], True) == (
        reader.open,
        reader.crossed,
        "GREY: nothing was compared" in "".join(reader.texts["p"]),
    )


def luminance(colour):
    """Of sRGB, as WCAG 2 defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_colour_can_be_read_in_both_lights_as_wcag_asks_and_none_stands_outside_of_the_palette():
    colours = {found: pair for found, *pair in COLOUR.findall(asset("page.css"))}
    least = dict.fromkeys(("text", "muted", "link", "bad", "doubt", "good", "plain"), 4.5) | {
        "control": 3.0
    }
    for name, ratio in least.items():
        for ground in ("page", "raised"):
            for mode in (0, 1):
                assert contrast(colours[name][mode], colours[ground][mode]) >= ratio, (
                    name,
                    ground,
                    mode,
                )
    assert (21.0, 1.0) == (
        pytest.approx(contrast("#ffffff", "#000000")),
        contrast("#777777", "#777777"),
    )
    assert [] == re.findall(r"#[0-9a-fA-F]{3,8}\b", asset("page.css").partition("}")[2])
    # A browser of some years ago knows no such function.
    assert "light-dark(" not in asset("page.css").partition("*/")[2]
