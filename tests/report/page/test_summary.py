"""The summary: the verdict first, below a mebibyte whatever happens, and nothing in it that is not text."""

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from pytest_roofline.core.records import Outcome
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.units import printable
from pytest_roofline.core.verdicts import ExactVerdict
from pytest_roofline.report.summary import LONGEST, MOST_BYTES, code, line, summary


@pytest.fixture
def text(make, tmp_path):
    def of(*records, **changes):
        return summary([make.run(tmp_path / "run.jsonl", *records, **changes)])

    return of


def tokens(markdown):
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)


def cells(markdown):
    """The table of a text as a Markdown reader sees it: rows of (kind of token, content)."""
    rows = []
    for token in tokens(markdown):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and token.level == 4 and rows:
            rows[-1].append([(child.type, child.content) for child in token.children])
    return rows


def kinds(markdown):
    """Every kind of token in a text."""
    found = tokens(markdown)
    return {token.type for token in found} | {
        child.type for token in found for child in token.children or ()
    }


def test_the_heading_is_the_sentence_with_which_the_run_ended(text, report, make):
    for words, heading in (
        (("PASSED", "REGRESSED"), "RED: 1 REGRESSED, 1 of 2 fast enough"),
        (("PASSED", "INCONCLUSIVE"), "GREY: 1 of 2 fast enough, 1 undecided (copy[1] +22.1 %)"),
        (("NO BASELINE", "NO BASELINE"), "GREY: nothing was compared (2 NO BASELINE)"),
        ((), "GREY: nothing was compared, since 0 of 0 tests measured anything"),
    ):
        records = [
            one
            for index, word in enumerate(words)
            for one in report.compared(word, label=f"copy[{index}]")
        ]
        assert f"## roofline: `{heading}`" == text(*records).splitlines()[0]
    of_two_sides = report.compared("REGRESSED", outcome=make.outcome(make.measurement(), "passed"))
    assert text(*of_two_sides).startswith("## roofline: `RED: 1 REGRESSED, 0 of 1 fast enough`\n")
    ended = text(*report.compared("PASSED"), make.footer(exit_status=1)).splitlines()[0]
    assert ended.endswith("; but pytest ended with status 1 (other tests failed)`")
    watched = text(*report.compared("PASSED"), make.footer(shadow=("t.py::a",)))
    assert ", 1 test would have failed (shadow gate)" in watched


def test_of_several_runs_each_has_its_sentence(report, make, tmp_path):
    runs = [
        make.run(tmp_path / f"{name}.jsonl", *report.compared(word))
        for name, word in (("a", "PASSED"), ("b", "REGRESSED"))
    ]
    assert summary(runs).splitlines()[:4] == [
        "## roofline: 2 runs",
        "",
        "* `a: GREEN: 1 of 1 fast enough`",
        "* `b: RED: 1 REGRESSED, 0 of 1 fast enough`",
    ]


def test_counts_and_rows_come_worst_first_with_both_rates_the_difference_and_what_may_explain_it(
    text, report, make
):
    words = {"PASSED": "a", "REGRESSED": "b", "INVALID": "c", "INCONCLUSIVE": "d"}
    found = text(
        *[record for word, label in words.items() for record in report.compared(word, label=label)]
    )
    assert "**1 REGRESSED, 1 INVALID, 1 INCONCLUSIVE, 1 PASSED**" in found.splitlines()
    assert ["b", "c", "d", "a"] == [row[1][0][1] for row in cells(found)[1:]]
    row = "| **REGRESSED** | `b` | `112 GB/s` | `134 GB/s` | `+22.1 %` | `+20.9 % … +23.4 %` |"
    since = "baseline of 2026-01-01; driver 550.54 → 570.86"
    assert [line for line in found.splitlines() if line.startswith(row)] == [f"{row} `{since}` |"]
    found = text(
        *report.compared(
            "PASSED", outcome=make.outcome(make.measurement(), "failed", reason="in teardown")
        )
    )
    assert "**1 FAILED**" in found.splitlines()
    (row,) = [line for line in found.splitlines() if line.startswith("| **FAILED**")]
    assert row.endswith(" `in teardown` |")


def test_the_machine_and_the_run_are_named_and_how_it_ended(text, report, make):
    facts = (
        "* `NVIDIA H200`, driver `570.86`, torch `2.13.0`, on `node`, run `run` of `2026-01-02T03:04:05Z`, "
        "tolerance 5 %"
    )
    for footer, words in (
        ([make.footer()], ""),
        ([make.footer(exit_status=2)], ", which ended with status 2"),
        ([], ", **which did not finish**"),
    ):
        assert facts + words in text(*report.compared("PASSED"), *footer).splitlines()


def test_what_changed_since_the_baseline_is_told_once_with_how_many_it_concerns(text, report):
    first, second = report.compared("PASSED", label="a"), report.compared("PASSED", label="b")
    assert "* `driver 550.54 → 570.86`" in text(*first, *second).splitlines()
    second[1] = replace(
        second[1],
        subject=replace(second[1].subject, clock_hz=1.5e9, changed=("torch 2.4 → 2.5",)),
        reference=replace(second[1].reference, clock_hz=1.8e9),
    )
    lines = text(*first, *second).splitlines()
    assert "* `driver 550.54 → 570.86` (1 of 2 results)" in lines
    assert "* `torch 2.4 → 2.5` (1 of 2 results)" in lines
    clock = "the clock explains the change: 1800 → 1500 MHz (-16.7 %), in cycles +1.8 %"
    assert f"* `{clock}` (1 of 2 results)" in lines
    assert "No recorded fact" not in text(*first, *second)
    second[1] = first[1] = replace(first[1], subject=replace(first[1].subject, changed=()))
    assert "No recorded fact of this machine changed since the baseline." in text(*first, *second)


def test_whatever_a_result_remarks_on_nobody_says_that_nothing_changed(text, report):
    records = report.everything()
    exact = next(record for record in records if isinstance(record, ExactVerdict))
    found = text(*report.compared("PASSED", label="a"), *(replace(record, remarks=("triton 3.8 → 3.9",))
        if record is exact else record for record in records))  # fmt: skip
    assert "* `triton 3.8 → 3.9` (1 of 3 results)" in found.splitlines()
    assert "No recorded fact" not in found


def test_tests_that_were_skipped_are_told_by_their_reasons_and_fill_no_rows(text, report):
    skipped = [
        Outcome(f"test_a.py::test_{n}", "skipped", reason=f"needs {n % 12} GPUs") for n in range(49)
    ]
    lines = text(*report.compared("PASSED"), *skipped).splitlines()
    assert 1 == len(
        [line for line in lines if line.startswith("| ") and not line.startswith("| verdict")]
    )
    assert "**1 PASSED, 49 SKIPPED**" in lines
    assert "* 5 skipped: `needs 0 GPUs`" in lines
    assert "* and 8 more for other reasons" in lines


def test_words_and_labels_of_any_length_leave_room_for_the_rest(text, report):
    long = [report.compared("REGRESSED", label=f"{n}{'`' * 400_000}") for n in range(3)]
    found = text(*[record for records in long for record in records])
    assert 10_000 > len(found.encode())
    assert "**3 REGRESSED**" in found.splitlines()


def test_replaced_and_profiled_numbers_are_not_passed_off_as_real(text, make):
    one = make.measurement(samples=Samples((1e-3,), 1, 1e-9, labels=("replaced", "profiled")))
    found = text(one)
    assert "as in a drill" in found
    assert "measured under a profiler are never judged" in found


def test_it_says_how_to_look_closer_in_words_that_a_shell_takes_as_they_stand(
    make, report, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = make.run(
        tmp_path / ".roofline/runs/night.jsonl", *report.compared("REGRESSED", label="copy[64MiB]")
    )
    assert "roofline explain night 'copy[64MiB]'" in summary([run]).splitlines()
    run = make.run(tmp_path / "else where/night.jsonl", *report.compared("REGRESSED", label="copy"))
    assert (
        f"roofline explain '{tmp_path}/else where/night.jsonl' copy" in summary([run]).splitlines()
    )
    run.path.unlink()
    assert "The run file could not be saved" in summary([run])


def test_several_runs_are_told_apart_and_of_very_many_the_first(make, report, tmp_path):
    runs = [
        make.run(tmp_path / f"{name}.jsonl", *report.compared("PASSED")) for name in ("old", "new")
    ]
    found = summary(runs)
    assert 2 == found.count("* `NVIDIA H200`")
    assert ["old", "new"] == [row[-1][0][1] for row in cells(found)[1:]]
    runs = [make.run(tmp_path / f"r{index}.jsonl", make.measurement()) for index in range(25)]
    assert "* and 5 more runs" in summary(runs).splitlines()


def test_hostile_text_stays_text(text, report):
    found = text(*report.everything())
    assert {"html_inline", "html_block", "link_open", "image", "html_entity"}.isdisjoint(
        kinds(found)
    )
    table = cells(found)
    assert {7} == {len(row) for row in table}
    (row,) = [row for row in table if "script" in str(row)]
    shown = printable(report.hostile)
    assert ("code_inline", f"test_hostile[{shown}]".replace("\\|", "\\\\|")) == row[1][0]


def test_a_hostile_machine_stays_text(text, make, report):
    found = text(make.measurement(), product=report.hostile, driver=report.hostile)
    assert {"html_inline", "html_block", "link_open"}.isdisjoint(kinds(found))
    assert not re.search(r"^::", found, re.MULTILINE)


def test_a_code_span_shows_its_text_and_what_is_very_long_is_cut():
    for content in (
        "`",
        "``a`",
        "a`",
        " a",
        "a ",
        "`` ` ``",
        "a|b",
        "a\\b",
        "\\",
        "<b>&amp;",
        "*_~#",
    ):
        (inline,) = [token for token in tokens(code(content)) if token.type == "inline"]
        assert [("code_inline", content)] == [
            (child.type, child.content) for child in inline.children
        ]
    assert ["", "", ""] == [code(content) for content in ("", " ", "   ")]
    assert LONGEST + 2 == len(code("a" * 10_000))


def test_a_bar_ends_no_cell_however_many_backslashes_stand_before_it():
    for slashes in range(5):
        table = f"| a | b |\n|---|---|\n{line([code('x' + slashes * chr(92) + '|y'), 'z'])}\n"
        # Readers differ in whether they pair backslashes; after an odd number both take the bar for text.
        before = re.search(r"(\\+)\|y", table)[1]
        assert (1, 2) == (len(before) % 2, len(cells(table)[1]))


@pytest.fixture
def failing(make, tmp_path):
    """Return a run of so many tests, all failed."""

    def run(count):
        ended = (
            Outcome(f"test_a.py::test_{index:05}[{'µ' * 60}]", "failed", reason="é" * 90)
            for index in range(count)
        )
        return make.run(tmp_path / "run.jsonl", *ended)

    return run


def test_ten_thousand_results_stay_below_a_mebibyte_in_whole_rows(failing):
    found = summary([failing(10_000)])
    assert 2**20 - 1000 < len(found.encode()) <= MOST_BYTES < 2**20
    rows = [line for line in found.splitlines() if line.startswith("| **FAILED**")]
    assert {line.count("|") for line in rows} == {8}
    (told,) = [line for line in found.splitlines() if "are not shown here" in line]
    assert f"{10_000 - len(rows)} more rows are not shown here" in told
    assert "`results.csv`" in told


def test_it_never_exceeds_the_room_there_is(failing):
    # Without a limit four times the largest of these.
    run = failing(500)
    for most_bytes in (2_000, 5_000, 5_001, 5_002, 50_000):
        text = summary([run], most_bytes=most_bytes)
        assert most_bytes - 800 < len(text.encode()) <= most_bytes
    assert ["", "", ""] == [summary([run], most_bytes=most_bytes) for most_bytes in (-5, 0, 100)]
