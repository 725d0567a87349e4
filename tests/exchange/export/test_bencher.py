"""Bencher's metric format, held against its published schema."""

import ast
import re
from pathlib import Path

import pytest

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.units import slug
from pytest_roofline.core.work import rate_suffix
from roofline_kernels.gemm import KINDS
from roofline_kernels.training.precisions import PRECISIONS

SCHEMA = "bencher-metric-format"


def test_every_measure_has_its_unit_and_bounds_in_its_own_direction(exported, processes, validate):
    found = exported("bencher", *processes([1e-3], [1.25e-3], [1.1e-3]))
    validate(SCHEMA, found.document)
    near = pytest.approx
    assert {
        "memcpy_d2d[64MiB]": {
            "latency": {"value": near(1.1e6), "lower_value": near(1e6), "upper_value": near(1.25e6)},
            "throughput": {"value": near(1 / 1.1e-3), "lower_value": near(800), "upper_value": near(1000)},
            "traffic-gbps": {
                "value": near(0.134217728 / 1.1e-3),
                "lower_value": near(0.134217728 / 1.25e-3),
                "upper_value": near(134.217728),
            },
            "roofline-share": {
                "value": near(13.4217728 / 1.1),
                "lower_value": near(13.4217728 / 1.25),
                "upper_value": near(13.4217728),
            },
        }
    } == found.document


def test_memory_stands_in_bytes_where_it_was_asked_for(exported, make, validate):
    found = exported("bencher", make.measurement(peak_bytes=4096, held_bytes=0))
    validate(SCHEMA, found.document)
    measures = found.document["memcpy_d2d[64MiB]"]
    assert ({"value": 4096.0}, {"value": 0.0}) == (measures["peak-memory"], measures["held-memory"])


def test_a_single_median_has_no_bounds(exported, make):
    assert {"value": 1e6} == exported("bencher", make.measurement()).document["memcpy_d2d[64MiB]"]["latency"]


def test_blocks_give_a_single_process_its_bounds(exported, make):
    samples = Samples((1e-3, 2e-3), 10, 1e-9, blocks=(Block(1), Block(1)))
    metric = exported("bencher", make.measurement(samples=samples)).document["memcpy_d2d[64MiB]"]["latency"]
    assert pytest.approx(1.5e6) == metric["value"]
    assert (pytest.approx(1e6), pytest.approx(2e6)) == (metric["lower_value"], metric["upper_value"])


def test_a_time_without_a_rate_has_the_two_measures_that_bencher_knows(exported, make, validate):
    found = exported("bencher", make.measurement(2.0, key=make.key("job", metric="job_wall_s")))
    validate(SCHEMA, found.document)
    assert ["latency", "throughput"] == list(found.document["job[64MiB]"])


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("", "0 bytes; Bencher takes 1 to 1024"),
        ("x" * 1025, "1025 bytes; Bencher takes 1 to 1024"),
        # It counts bytes, not characters.
        ("ü" * 513, "1026 bytes; Bencher takes 1 to 1024"),
        ("copy-bencher-ignore", "ends in -bencher-ignore, which Bencher takes away, and then never alerts"),
        ("copy_bencher_ignore", "ends in _bencher_ignore, which Bencher takes away, and then never alerts"),
        ("TestCopy.fastBencherIgnore", "ends in BencherIgnore, which Bencher takes away, and then never alerts"),
    ],
    ids=["empty", "long", "bytes", "kebab", "snake", "pascal"],
)
def test_a_name_that_bencher_would_change_is_left_out(exported, make, label, why):
    found = exported("bencher", make.measurement(label=label), make.measurement(key=make.key(size_bytes=1)))
    assert [label] == [one.label for one in found.left_out]
    assert why in found.left_out[0].reason


def test_a_name_of_any_characters_stays_as_it_is(exported, make, validate):
    label = 'x["\\ü\n</script>]'
    found = exported("bencher", make.measurement(label=label))
    validate(SCHEMA, found.document)
    assert [label] == list(found.document)


@pytest.mark.parametrize("label", ["x" * 1024, "ü" * 512, "copy_bencher_ignore[64MiB]", "BencherIgnored"])
def test_the_longest_name_and_one_that_only_holds_such_words_go_out(exported, make, label):
    assert (label,) == exported("bencher", make.measurement(label=label)).names


ROOT = Path(__file__).parents[3]
# What the suite fills into the name of a metric.
FILLED_IN = {"{memory}": ("pinned", "pageable")}


def named_metrics(path):
    """The metrics whose names stand in a file of the suite."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        text = ast.unparse(node).removeprefix("f").strip("'\"")
        if re.fullmatch(r"[\w{}]+", text) and rate_suffix(text):
            (hole,) = re.findall(r"\{.*?\}", text) or ("",)
            yield from (text.replace(hole, word) for word in FILLED_IN[hole]) if hole else (text,)


def test_the_page_has_the_measure_of_every_metric_of_the_suite():
    page = (ROOT / "docs" / "exchange.md").read_text(encoding="utf-8")
    table = page.partition("| measure | unit |")[2].partition("\n\n")[0]
    told = {name for row in table.splitlines() for name in re.findall("`(.*?)`", row.partition(" | ")[0])}
    suite = {metric for path in (ROOT / "perf_tests").glob("test_*.py") for metric in named_metrics(path)}
    assert {"pageable_auto_payload_GBps", "sm_traffic_GBps", "bidir_sum_auto_payload_GBps"} < suite
    # Where a test names none, its work does.
    suite |= {one.metric for one in (*PRECISIONS.values(), *KINDS.values())} | {
        "traffic_GBps",
        "busbw_GBps",
        "algbw_GBps",
        "TFLOPS",
    }
    ours = {"latency", "throughput", "roofline-share", "peak-memory", "held-memory"}
    assert ours | {slug(metric) for metric in suite} == told
