"""Figures of any program: in its JSON, in its CSV, or by a regular expression in its text."""

import json

import pytest

from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.figures.plan import plan_of_options
from pytest_roofline.figures.reading import parse_path, read_figures

# As `vllm bench serve --save-result` writes it, in part.
VLLM = {
    "model_id": "llama",
    "completed": 200,
    "output_throughput": 2213.4,
    "ttfts": [0.031, 0.029, 0.035],
    "p99_ttft_ms": 31.2,
}
# As NVBench's `--json` writes it, in part.
NVBENCH = {
    "benchmarks": [
        {
            "name": "copy",
            "states": [
                {
                    "name": "Device=0 Elements=2^20",
                    "summaries": [
                        {
                            "tag": "nv/cold/sample_size",
                            "name": "Samples",
                            "data": [{"name": "value", "value": "512"}],
                        },
                        {
                            "tag": "nv/cold/time/gpu/mean",
                            "name": "GPU Time",
                            "data": [{"name": "value", "value": "1.9e-05"}],
                        },
                    ],
                }
            ],
        }
    ]
}
# As tritonbench prints it with `--csv`.
TRITONBENCH = """x_val;eager-latency;triton-latency
(4096, 4096);0.031;0.021
(8192, 8192);0.119;0.082
"""
MBW = """0\tMethod: MEMCPY\tElapsed: 0.0011\tMiB: 8.0\tCopy: 7272.7 MiB/s
1\tMethod: MEMCPY\tElapsed: 0.0012\tMiB: 8.0\tCopy: 6666.7 MiB/s
0\tMethod: DUMB\tElapsed: 0.0021\tMiB: 8.0\tCopy: 3809.5 MiB/s
"""


def read(text, reader, *paths):
    """By name and cases the values of the figures at some paths of which more is better."""
    text = text if isinstance(text, str) else json.dumps(text)
    parsed = [parse_path(reader, "higher", path) for path in paths]
    return {
        (figure.name, *figure.cases.items()): figure.values
        for figure in read_figures(text, reader, parsed)
    }


@pytest.mark.parametrize(
    ("text", "reader", "path", "expected"),
    [
        (VLLM, "json", "output_throughput", {("output_throughput",): (2213.4,)}),
        (VLLM, "json", "tokens/s=output_throughput", {("tokens/s",): (2213.4,)}),
        # A list of numbers is samples of one process.
        (VLLM, "json", "ttfts", {("ttfts",): (0.031, 0.029, 0.035)}),
        (
            {"results": {"a": {"x": 1}, "b": {"x": 2}}},
            "json",
            "results.*.x",
            {("x", ("results", "a")): (1.0,), ("x", ("results", "b")): (2.0,)},
        ),
        # A list of objects is named by the field that tells all apart, and a name may hold dots.
        (
            {"results": [{"name": "llama-3.1", "x": 1}, {"name": "qwen", "x": 2}]},
            "json",
            "results.llama-3.1.x",
            {("x",): (1.0,)},
        ),
        (
            {"rows": [{"name": "a", "id": 7, "x": 1}, {"name": "a", "id": 8, "x": 2}]},
            "json",
            "rows.*.x",
            {("x", ("rows", "7")): (1.0,), ("x", ("rows", "8")): (2.0,)},
        ),
        (
            {"rows": [{"x": 1}, {"x": 2}]},
            "json",
            "rows.1.x",
            {("x",): (2.0,)},
        ),
        (
            [[{"x": 1}], [{"x": 2}]],
            "json",
            "*.*.x",
            {
                ("x", ("part 1", "0"), ("part 2", "0")): (1.0,),
                ("x", ("part 1", "1"), ("part 2", "0")): (2.0,),
            },
        ),
        (
            NVBENCH,
            "json",
            "s=benchmarks.*.states.*.summaries.nv/cold/time/gpu/mean.data.value.value",
            {("s", ("benchmarks", "copy"), ("states", "Device=0 Elements=2^20")): (1.9e-05,)},
        ),
        # An object of several names goes by each.
        (
            NVBENCH,
            "json",
            "s=benchmarks.copy.states.0.summaries.GPU Time.data.value.value",
            {("s",): (1.9e-05,)},
        ),
        # Lines of a log stand around it.
        (f"[1] begins\n{json.dumps(VLLM)}\nends\n", "json", "completed", {("completed",): (200.0,)}),
        ('{"x": 1}\n{"x": 2}\n', "json", "*.x", {("x", ("part 1", "0")): (1.0,), ("x", ("part 1", "1")): (2.0,)}),
        (
            TRITONBENCH,
            "csv",
            "triton-latency",
            {
                ("triton-latency", ("x_val", "(4096, 4096)")): (0.021,),
                ("triton-latency", ("x_val", "(8192, 8192)")): (0.082,),
            },
        ),
        # Without a column of text the first one names the rows; rows of one name are samples.
        (
            "warming up\nN,GB/s\n1,10\n2,20\n1,11\nend",
            "csv",
            "GB/s",
            {("GB/s", ("N", "1")): (10.0, 11.0), ("GB/s", ("N", "2")): (20.0,)},
        ),
        ("command,mean\nsleep 1,1.01\n", "csv", "mean", {("mean",): (1.01,)}),
        (
            MBW,
            "regex",
            r"copy=Method: (?P<method>\w+).*Copy: ([\d.]+)",
            {("copy", ("method", "MEMCPY")): (7272.7, 6666.7), ("copy", ("method", "DUMB")): (3809.5,)},
        ),
        ("a = 1.5, b = 2", "regex", r"a = (?P<a>[\d.]+), b = (?P<b>\d+)", {("a",): (1.5,), ("b",): (2.0,)}),
        ("rate=7", "regex", r"rate=rate=(\d+)", {("rate",): (7.0,)}),
    ],
)  # fmt: skip
def test_a_path_gives_every_figure_that_it_leads_to(text, reader, path, expected):
    assert read(text, reader, path) == expected


@pytest.mark.parametrize(
    ("text", "reader", "path", "reason"),
    [
        (
            VLLM,
            "json",
            "throughput",
            "'throughput' leads to no figure; expected one of completed, output_throughput, ttfts, p99_ttft_ms",
        ),
        (
            {"results": [{"name": "a", "x": 1}, {"name": "b", "x": 1}]},
            "json",
            "results.*.y",
            "'results.*.y' leads to no figure; expected one of results.*.x",
        ),
        ({"x": []}, "json", "x", "'x' leads to no figure; expected one of none at all"),
        (TRITONBENCH, "csv", "speed", "'speed' leads to no figure; expected one of x_val, eager-latency"),
        (MBW, "regex", r"Rate: (?P<rate>\d+)", "leads to no figure; expected one of 0 Method: MEMCPY"),
        ({"x": 0}, "json", "x", "x is 0; expected a number above zero, from 1e-18 to 1e+18"),
        ({"x": [1, -2]}, "json", "x", "x is -2; expected a number above zero"),
        ('{"x": NaN}', "json", "x", "x is nan; expected a number above zero"),
        ('{"x": Infinity}', "json", "x", "x is inf; expected a number above zero"),
        ({"x": True}, "json", "x", "x is True; expected a number above zero"),
        ({"x": None}, "json", "x", "x is None; expected a number above zero"),
        ({"r": {"a": {"x": "fast"}}}, "json", "r.*.x", "r.*.x (r a) is 'fast'; expected a number"),
        (" \n", "csv", "x", "the program printed nothing; expected its figures"),
        ("x" * 200_000, "csv", "x", "the program printed no table that can be read: field larger than"),
        ("no document", "json", "x", "the program printed no JSON; expected a line that begins with { or ["),
        ("no table", "csv", "x", "the program printed no table; expected a line of column names, separated by commas"),
    ],
)  # fmt: skip
def test_what_is_no_figure_is_refused_with_what_there_is(text, reader, path, reason):
    with pytest.raises(BadFile) as refused:
        read(text, reader, path)
    assert reason in " ".join(str(refused.value).replace("\\t", " ").split())


def test_json_of_any_depth_is_refused_in_a_sentence():
    """Somewhere below a thousand levels the document can be decoded, and not be looked through."""
    reasons = set()
    for depth in range(880, 1000, 2):
        with pytest.raises(BadFile) as refused:
            read("[" * depth + "{}" + "]" * depth, "json", "x")
        reasons.add(str(refused.value).partition(";")[0])
    assert "the program printed JSON that is nested too deeply to be read" in reasons


def test_two_figures_of_one_name_are_refused():
    with pytest.raises(
        BadFile, match="two figures are called x; give each figure a name of its own with NAME=PATH"
    ):
        read({"a": {"x": 1}, "b": {"x": 2}}, "json", "a.x", "b.x")
    assert read({"a": {"x": 1}, "b": {"x": 2}}, "json", "a.x", "other=b.x").keys() == {
        ("x",),
        ("other",),
    }


def test_two_figures_without_a_name_are_refused_in_a_whole_sentence():
    paths = [parse_path("regex", "higher", path) for path in (r"a (\d)", r"b (\d)")]
    with pytest.raises(BadFile, match=r"^two figures have no name; give each figure a name of its"):
        read_figures("a 1 b 2", "regex", paths)
    cases = [
        parse_path("regex", "higher", path) for path in (r"(?P<of>a) (\d)", r"(?P<of>\w) (\d)")
    ]
    with pytest.raises(BadFile, match=r"^two figures are called \(of a\); "):
        read_figures("a 1", "regex", cases)


@pytest.mark.parametrize("digits", ["9" * 5000, "٣"])
def test_a_number_of_devices_that_is_no_number_is_refused(digits):
    with pytest.raises(BadInput, match="expected a whole number"):
        plan_of_options(f"osu,devices={digits}", (), ())


@pytest.mark.parametrize(
    ("reader", "text", "reason"),
    [
        ("json", "", "--higher is ''; expected PATH or NAME=PATH"),
        ("json", "=x", "--higher is '=x'; expected PATH or NAME=PATH"),
        ("json", "x=", "--higher is 'x='; expected PATH or NAME=PATH"),
        ("regex", "(", r"'\(' is no regular expression: "),
        (
            "regex",
            "rate",
            "'rate' has 0 groups without a name; expected one unnamed group for the figure",
        ),
        ("regex", "(.)(.)", r"'\(.\)\(.\)' has 2 groups without a name"),
        ("regex", "x{99999999999}(.)", "is no regular expression: "),
        ("regex", "(" * 8000 + ")" * 8000, "is no regular expression: "),
    ],
)
def test_a_path_that_cannot_be_one_is_refused(reader, text, reason):
    with pytest.raises(BadInput, match=reason):
        parse_path(reader, "higher", text)
