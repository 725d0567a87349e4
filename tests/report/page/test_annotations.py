"""Workflow commands: at most ten, worst first, and nothing in them that begins another command."""

import re
from dataclasses import replace

import pytest

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.core.records import Outcome
from pytest_roofline.report.summary import LONGEST_MESSAGE, LONGEST_PROPERTY, MOST, annotations

COMMAND = re.compile(r"::(error|warning) ((?:[a-z]+=[^,:\r\n]*,?)+)::([^\r\n]*)")


def parsed(line):
    """A command as GitHub's runner reads it: kind, properties, message."""
    kind, properties, data = COMMAND.fullmatch(line).groups()
    pairs = dict(pair.split("=", 1) for pair in properties.split(","))
    return kind, {name: decoded(value) for name, value in pairs.items()}, decoded(data)


def decoded(text):
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


@pytest.fixture
def lines(make, tmp_path):
    def of(*records, **options):
        rows = rows_of_run(make.run(tmp_path / "run.jsonl", *records))
        return annotations(
            rows, options.pop("place_of", lambda test_id: ("test_a.py", 7)), **options
        )

    return of


def test_a_regression_is_an_error_where_its_test_stands(lines, report):
    (line,) = lines(*report.compared("REGRESSED", label="copy[64MiB]"))
    kind, properties, message = parsed(line)
    assert ("error", {"file": "test_a.py", "line": "7", "title": "REGRESSED copy[64MiB]"}) == (
        kind,
        properties,
    )
    assert message.startswith(
        "+22.1 % time (112 GB/s, baseline 134 GB/s), 99 % interval +20.9 % … +23.4 %, tolerance 5 %"
    )
    assert message.endswith("; driver 550.54 → 570.86")


def test_what_could_not_be_judged_is_a_warning_what_is_green_silent_and_what_failed_an_error(
    lines, report, make
):
    kinds = {
        "INVALID": ["warning"],
        "INCONCLUSIVE": ["warning"],
        "NO BASELINE": ["warning"],
        "PASSED": [],
        "IMPROVED": [],
    }
    for word, kind in kinds.items():
        assert kind == [parsed(line)[0] for line in lines(*report.compared(word))]
    torn = make.outcome(make.measurement(), "failed", reason="in teardown")
    (line,) = lines(*report.compared("PASSED", outcome=torn))
    kind, properties, message = parsed(line)
    assert ("error", "FAILED memcpy_d2d[64MiB]") == (kind, properties["title"])
    assert message.endswith("; in teardown")
    failed = make.outcome(make.measurement(), "failed", by_verdict=True)
    assert ["error"] == [
        parsed(line)[0] for line in lines(*report.compared("INVALID", outcome=failed))
    ]


def test_there_are_at_most_ten_the_worst_first_and_a_word_on_the_rest(lines, report):
    records = [
        record
        for index in range(12)
        for word, change in (("INVALID", 0.0), ("REGRESSED", 0.01 * index))
        for record in report.compared(word, label=f"{word[:3]}{index}", change=change)
    ]
    *commands, rest = lines(*records)
    assert [("error", f"REGRESSED REG{index}") for index in range(11, 1, -1)] == [
        (kind, properties["title"]) for kind, properties, _ in map(parsed, commands)
    ]
    assert ("roofline: 14 more annotations left out, the worst 10 are shown", 10) == (rest, MOST)


def test_a_test_is_told_once_by_its_worst(lines, report, make):
    first = report.compared("PASSED", key=make.key(name="read"), test_id="test_a.py::t")
    second = report.compared("REGRESSED", key=make.key(name="write"), test_id="test_a.py::t")
    first[1], second[1] = (replace(one[1], subject=make.subject(one[0])) for one in (first, second))
    (line,) = lines(first[0], second[0], first[1], second[1], second[2])
    assert "REGRESSED memcpy_d2d[64MiB].write" == parsed(line)[1]["title"]


def test_beside_a_plugin_that_tells_of_failures_only_warnings_are_left(lines, report):
    found = lines(
        *report.compared("REGRESSED", label="a"),
        *report.compared("INVALID", label="b"),
        errors=False,
    )
    assert [("warning", "INVALID b")] == [
        (kind, properties["title"]) for kind, properties, _ in map(parsed, found)
    ]


def test_what_is_not_known_of_the_place_is_left_out(lines, report):
    for place in (None, ("a.py", None)):
        (line,) = lines(*report.compared("REGRESSED"), place_of=lambda test_id, place=place: place)
        assert {"title", *(["file"] if place else [])} == set(parsed(line)[1])


def test_no_text_begins_a_command_or_ends_a_property(lines):
    for hostile in (
        "a\n::error::b", "a\r\n::set-output name=x::y", "a%0A::error::b", "a::b,c=d", "a\u2028::error::b", "%25%"
    ):  # fmt: skip
        ended = Outcome(f"test_a.py::test_x[{hostile}]", "failed", reason=hostile)
        (line,) = lines(ended, place_of=lambda test_id, hostile=hostile: (f"{hostile}.py", 1))
        assert 1 == len(line.splitlines())
        escaped = hostile.replace("\n", "\\n").replace("\r", "\\r").replace("\u2028", "\\u2028")
        told = {"file": f"{escaped}.py", "line": "1", "title": f"FAILED test_x[{escaped}]"}
        assert ("error", told, escaped) == parsed(line)


def test_what_is_long_is_cut_by_the_bytes_that_are_written_and_between_characters(lines):
    for text in ("a", "é", "\U0001f4a5", "%", "a:", "a%é,"):
        (line,) = lines(Outcome(f"test_a.py::test_x[{text * 9999}]", "failed", reason=text * 9999))
        properties, message = re.fullmatch("::error (.*?)::(.*)", line).groups()
        title = properties.rpartition("title=")[2]
        assert LONGEST_MESSAGE - 8 <= len(message.encode()) <= LONGEST_MESSAGE
        assert LONGEST_PROPERTY - 8 <= len(title.encode()) <= LONGEST_PROPERTY
        assert ["…"] * 2 == [message[-1], title[-1]]
        assert set(text) == set(parsed(line)[2].removesuffix("…"))
