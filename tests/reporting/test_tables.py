import re

import pytest
from rich.cells import cell_len

from pytest_roofline.core.records import Ceiling
from pytest_roofline.judging.comparing import Row
from pytest_roofline.judging.proposals import Change
from pytest_roofline.judging.verdicts import Kind, Policy, Reference, Verdict, judge
from pytest_roofline.reporting.messages import Result
from pytest_roofline.reporting.tables import changes_table, comparison_table, results_table, roofline_note

HOSTILE = [
    "[red]",
    "[/red]",
    "[bold]x[/]",
    "a[pinned]",
    "\x1b[31mx",
    "two\nlines",
    "\r",
    ":smile:",
    "x" * 300,
    "\u202e",
    "宽" * 60,
]
EXTREMES = [1e-12, 1e-3, 1e6]


def result(make, seconds=1e-3, benchmark="memcpy_d2d", reference_s=1e-3, verdict=True, **changes):
    key = make.key(benchmark, parameters=changes.pop("parameters", {"size_bytes": 2_101_346_305}))
    measurement = make.measurement(seconds, key=key, work=make.copy(2_101_346_305), **changes)
    found = judge((seconds,), Reference((reference_s,), "b"), Policy(), invalid=measurement.invalid)
    return Result(measurement, found if verdict else None, {})


def row(make, label, old_s=1e-3, new_s=1e-3):
    return Row(make.key(), label, old_s, new_s, judge((new_s,), Reference((old_s,), "b"), Policy()))


def change(make, benchmark="memcpy_d2d", before_s=1.0, after_s=2.0, **changes):
    return Change(make.measured(key=make.key(benchmark), **changes), before_s, after_s)


def hostile_tables(make, text, seconds=1e-3, width=80):
    ceiling = Ceiling("traffic_GBps", 1e9, "measured", text)
    return {
        "benchmark": lambda: results_table([result(make, seconds, text, ceiling=ceiling)], width, False),
        "parameter": lambda: results_table([result(make, seconds, parameters={"memory": text})], width, False),
        "comparison": lambda: comparison_table([row(make, text, 1e-3, seconds)], width, False),
        "change": lambda: changes_table([change(make, text, 1e-3, seconds)], width, False),
        "published": lambda: changes_table(
            [Change(make.published("reference", metric="peak_bytes", unit=text), None, None)], width, False
        ),
    }


TABLES = ("benchmark", "parameter", "comparison", "change", "published")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seconds", EXTREMES)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_line_is_wider_than_80_columns(make, table, seconds, text):
    lines = hostile_tables(make, text, seconds)[table]().split("\n")
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("text", HOSTILE)
def test_a_plain_table_holds_no_control_characters(make, table, text):
    assert not set(hostile_tables(make, text)[table]()) & set("\x1b\r\u202e\x07")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("text", ["[red]", "[/red]", "a[pinned]", ":smile:", "[link=x]y"])
def test_markup_in_a_name_is_shown_as_it_is(make, table, text):
    assert text in hostile_tables(make, text, width=120)[table]()


@pytest.mark.parametrize("seconds", EXTREMES)
@pytest.mark.parametrize("name", ["memcpy_d2d", "a" * 60])
def test_the_verdict_is_never_cut(make, seconds, name):
    one = result(make, seconds, name)
    assert one.word in results_table([one], 80, False)


@pytest.mark.parametrize("name", ["memcpy_h2d", "x" * 100])
def test_a_long_name_folds_and_loses_nothing(make, name):
    text = results_table([result(make, benchmark=name)], 80, False)
    assert name == "".join(line.split(" ")[0] for line in text.split("\n")[2:])


def test_a_table_names_test_size_time_rate_baseline_difference_and_verdict(make):
    ceiling = Ceiling("traffic_GBps", 8.4e12, "datasheet", "vendor")
    one = result(make, 2e-3, parameters={"memory": "pinned", "size_bytes": 2_101_346_305}, ceiling=ceiling)
    last = results_table([one], 100, False).split("\n")[-1]
    assert re.sub(r" +", " ", last) == "memcpy_d2d[pinned] 2101346305 B 2.00 ms 2101 25% 1.00 ms +100.0 % REGRESSED"


def test_a_share_of_a_measured_roofline_is_marked(make):
    ceiling = Ceiling("traffic_GBps", 8.4e12, "measured", "triad")
    assert "50%*" in results_table([result(make, ceiling=ceiling)], 80, False)


def test_results_stand_worst_first_when_one_failed(make):
    results = [
        result(make, 1e-3, "passed"),
        result(make, 1.2e-3, "slower"),
        result(make, 3e-3, "slowest"),
        result(make, 1e-3, "failed", verdict=False),
    ]
    text = results_table(results, 100, False)
    assert [line.split()[0] for line in text.split("\n")[2:]] == ["failed", "slowest", "slower", "passed"]


def test_results_stay_in_the_order_of_the_run_when_none_failed(make):
    text = results_table([result(make, benchmark=name) for name in ("c", "a", "b")], 80, False)
    assert [line.split()[0] for line in text.split("\n")[2:]] == ["c", "a", "b"]


def test_a_terminal_gets_colour(make):
    assert "\x1b[1;31mREGRESSED" in results_table([result(make, 3e-3)], 80, True)


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM"])
def test_a_plain_table_stays_plain_whatever_the_surroundings_ask_for(make, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert "\x1b" not in results_table([result(make, 3e-3)], 80, False)


def test_the_width_is_the_callers_not_the_terminals(make, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert max(map(len, results_table([result(make)], 80, False).split("\n"))) > 40


def test_no_line_ends_in_spaces(make):
    lines = comparison_table([row(make, "a")], 80, False).split("\n")
    assert lines == [line.rstrip() for line in lines]


def test_a_comparison_shows_both_times_the_difference_and_its_interval(make):
    last = comparison_table([row(make, "memcpy", 1e-3, 2e-3)], 100, False).split("\n")[-1]
    assert re.sub(r" +", " ", last) == "memcpy 1.00 ms 2.00 ms +100.0 % +92.8 … +107.4 % 1 REGRESSED"


def test_a_comparison_without_a_baseline_leaves_its_cells_empty(make):
    one = Row(make.key(), "memcpy", None, 1e-3, Verdict(Kind.NO_BASELINE, 0.05, "none"))
    last = comparison_table([one], 80, False).split("\n")[-1]
    assert re.sub(r" +", " ", last) == "memcpy 1.00 ms NO BASELINE"


def test_a_change_shows_before_after_and_what_stands_behind_it(make):
    last = changes_table([change(make)], 80, False).split("\n")[-1]
    assert re.sub(r" +", " ", last) == "memcpy_d2d[64MiB] 1.00 s 2.00 s +100.0 % 1 process"


def test_a_new_entry_is_said_to_be_new(make):
    last = changes_table([change(make, before_s=None)], 80, False).split("\n")[-1]
    assert re.sub(r" +", " ", last) == "memcpy_d2d[64MiB] new 2.00 s 1 process"


def test_the_roofs_are_explained_once_each(make):
    ceiling = Ceiling("traffic_GBps", 4.8e12, "datasheet", "vendor\n")
    note = roofline_note([result(make, ceiling=ceiling), result(make, ceiling=ceiling)])
    assert note == "roof: traffic_GBps 4800 GB/s, datasheet: vendor\\n"


def test_without_a_roof_there_is_nothing_to_explain(make):
    assert roofline_note([result(make)]) == ""
