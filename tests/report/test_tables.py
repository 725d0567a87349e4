import itertools
import math
import re

import pytest
from rich.cells import cell_len

from pytest_roofline.baselines.rows import compared_row
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report.tables import comparison_table, results_table, roofline_note
from pytest_roofline.stats.judgements import judgement_of
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.looks import Looks
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import Kind, Verdict, judge

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
# As a machine might: a hundred times faster and a thousand times slower than the baseline.
WILD = [1e-5, 1e-3, 1.0]


def result(make, *seconds, benchmark="memcpy_d2d", reference_s=1e-3, verdict=True, **changes):
    key = make.key(benchmark, parameters=changes.pop("parameters", {"size_bytes": 2_101_346_305}))
    changes = {"work": make.copy(2_101_346_305), "environment": {}} | changes
    reference = changes.pop("reference", make.reference(make.group(math.log(reference_s))))
    found = make.result(*seconds, key=key, reference=reference, **changes)
    return found if verdict else make.row(found.measurement)


def row(make, label, old_s=1e-3, new_s=1e-3):
    verdict = judge([make.group(math.log(new_s))], make.reference(make.group(math.log(old_s))), Policy())
    return compared(make, verdict, label, new_s)


def compared(make, verdict, label="m", new_s=1e-3):
    return compared_row(make.key(), make.copy(), judgement_of(verdict, label), new_s)


def hostile_tables(make, text, seconds=1e-3, width=80):
    ceiling = Ceiling("traffic_GBps", 1e9, "measured", text)
    return {
        "benchmark": lambda: results_table([result(make, seconds, benchmark=text, ceiling=ceiling)], width, False),
        "parameter": lambda: results_table([result(make, seconds, parameters={"memory": text})], width, False),
        "comparison": lambda: comparison_table([row(make, text, 1e-3, seconds)], width, False),
    }


def test_a_table_keeps_to_80_columns_and_holds_no_control_characters_whatever_is_in_it(make):
    for text, seconds in itertools.product(HOSTILE, EXTREMES):
        for table in hostile_tables(make, text, seconds).values():
            lines = table().split("\n")
            assert max(map(cell_len, lines)) <= 80, (text, seconds)
            assert not set("".join(lines)) & set("\x1b\r\u202e\x07"), (text, seconds)


def test_markup_in_a_name_is_shown_as_it_is(make):
    for text in ("[red]", "[/red]", "a[pinned]", ":smile:", "[link=x]y"):
        assert all(text in table() for table in hostile_tables(make, text, width=120).values()), text


def names(text):
    """The first column below the rule, put together from what was folded."""
    _, _, rows = text.partition("──\n")
    return "".join(line.split(" ")[0] for line in rows.split("\n"))


@pytest.mark.parametrize("seconds", WILD)
@pytest.mark.parametrize("name", ["memcpy_d2d", "a" * 60])
def test_the_verdict_is_never_cut(make, seconds, name):
    one = result(make, seconds, benchmark=name)
    assert one.verdict in results_table([one], 80, False)


@pytest.mark.parametrize("name", ["memcpy_h2d", "x" * 100])
def test_a_long_name_folds_and_loses_nothing(make, name):
    text = results_table([result(make, benchmark=name)], 80, False)
    assert name == names(text)


def cells(text):
    """The columns of the last line."""
    return re.split(r"  +", text.split("\n")[-1])


def test_a_table_names_test_size_time_rate_roof_difference_interval_processes_and_verdict(make):
    ceiling = Ceiling("traffic_GBps", 8.4e12, "datasheet", "vendor")
    steady = make.reference(*make.groups(3, process=0.001, centre=math.log(1e-3)))
    parameters = {"memory": "pinned", "size_bytes": 2_101_346_305}
    one = result(make, 2e-3, 2e-3, 2e-3, parameters=parameters, ceiling=ceiling, reference=steady)
    text = results_table([one], 120, False)
    assert re.split(r"  +", text.split("\n")[0]) == [
        "test", "size", "time", "GB/s", "roof", "diff %", "99 %", "n", "verdict",
    ]  # fmt: skip

    assert cells(text) == [
        "memcpy_d2d[pinned]", "2101346305 B", "2.00 ms", "2101", "25%", "+100.0", "+96.6…+103.5", "3:15", "REGRESSED",
    ]  # fmt: skip


@pytest.mark.parametrize("seconds", [1.25e-3, 1e-3, 0.5e-3, 1.04e-3])
@pytest.mark.parametrize("processes", [1, 12])
def test_every_verdict_stands_with_its_interval_and_its_processes(make, seconds, processes):
    reference = make.reference(*make.groups(1, 5, process=0.02, centre=math.log(1e-3)))
    one = result(make, *[seconds] * processes, reference=reference)
    *_, interval, counts, word = cells(results_table([one], 100, False))
    assert re.fullmatch(r"[+-]\d+\.\d…[+-]\d+\.\d", interval)
    assert (counts, word) == (f"{one.processes}:5", one.verdict)


def test_a_breach_stands_with_its_interval_and_its_processes(make):
    """There is nothing on the other side but the limit."""
    one = make.result(1.25e-3, 1.25e-3, known=False, limits=[Limit(make.published(), 1e-3)])
    *_, difference, interval, counts, word = cells(results_table([one], 100, False))
    assert (difference, word) == ("+25.0", "REGRESSED")
    assert re.fullmatch(r"\+\d+\.\d…\+\d+\.\d", interval)
    assert counts.startswith("2")


@pytest.mark.parametrize(("width", "line"), [(120, "3502 GB/s PASSED"), (70, "memcpy_h2d 3502 GB/s")])
def test_what_passes_by_a_limit_stands_with_it_where_there_is_room_and_else_in_a_second_table(make, width, line):
    held, slower = (
        result(make, seconds, benchmark=f"memcpy_{way}", known=False, limits=[Limit(make.published(), 1.2e-3)])
        for seconds, way in ((1e-3, "h2d"), (2e-3, "d2h"))
    )
    lines = [" ".join(row.split()) for row in results_table([held, slower], width, False).split("\n")]
    assert any(row.endswith(line) for row in lines)
    assert sum("3502 GB/s" in row for row in lines) == 2


@pytest.mark.parametrize("apart", [0.01, 0.1, 0.3, 0.7, 2.0])
@pytest.mark.parametrize("name", ["memcpy_h2d", "all_reduce[bfloat16-8ranks-in_place]"])
def test_an_interval_that_says_nothing_takes_no_room_from_the_name(make, apart, name):
    """Two sessions that contradict each other: without its name, nobody knows which test that is."""
    reference = make.reference(make.group(0.0, 0.001), make.group(apart, apart + 0.001))
    one = result(make, 1.25, benchmark=name, reference=reference)
    text = results_table([one], 80, False)
    assert one.verdict in text
    assert name == names(text)


REALISTIC = [
    ("memcpy_h2d", {"memory": "pageable", "size_bytes": 2**31}, (1.34e-3,) * 12, 0.01),
    ("memcpy_d2d", {"size_bytes": 64 * 2**20}, (1.2e-3, 1.3e-3), 0.03),
    ("stream_triad", {"dtype": "float32", "size_bytes": 65537}, (0.9e-3,), 0.06),
    ("attention_backward", {"heads": 32, "size_bytes": 4096}, (2.5e-3,), 0.15),
]


def test_rows_as_they_are_fit_80_columns_with_nothing_but_names_folded(make):
    results = [
        result(make, *seconds, benchmark=name, parameters=parameters, work=make.copy(parameters["size_bytes"]),
               ceiling=Ceiling("traffic_GBps", 4.8e12, "measured", "triad"),
               reference=make.reference(*make.groups(3, 5, process=spread, centre=math.log(1e-3))))
        for name, parameters, seconds, spread in REALISTIC
    ]  # fmt: skip
    text = results_table(results, 80, False)
    assert max(map(cell_len, text.split("\n"))) <= 80
    for one in results:
        low, high = (f"{math.expm1(bound) * 100:+.1f}" for bound in one.judgement.interval)
        (line,) = [line for line in text.split("\n") if f"{low}…{high}" in line]
        assert line.endswith(f"{one.processes}:15  {one.verdict}")


def test_a_share_of_a_measured_roofline_is_marked(make):
    ceiling = Ceiling("traffic_GBps", 8.4e12, "measured", "triad")
    assert "50%*" in results_table([result(make, ceiling=ceiling)], 80, False)


def test_results_stand_worst_first_when_one_failed(make):
    results = [
        result(make, 1e-3, benchmark="passed"),
        result(make, 1.2e-3, benchmark="slower"),
        result(make, 3e-3, benchmark="slowest"),
        result(make, 1e-3, benchmark="failed", verdict=False),
    ]
    text = results_table(results, 100, False)
    assert [line.split()[0] for line in text.split("\n")[2:]] == ["failed", "slowest", "slower", "passed"]


def test_results_stay_in_the_order_of_the_run_when_none_failed(make):
    text = results_table([result(make, benchmark=name) for name in ("c", "a", "b")], 80, False)
    assert [line.split()[0] for line in text.split("\n")[2:]] == ["c", "a", "b"]


def test_a_terminal_gets_colour(make):
    assert "\x1b[1;31mREGRESSED" in results_table([make.result(3e-3)], 80, True)


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


def test_a_comparison_shows_both_times_the_difference_its_interval_and_the_processes(make):
    steady = make.reference(*make.groups(3, process=0.001, centre=math.log(1e-3)))
    verdict = judge([make.group(*[math.log(2e-3)] * 3)], steady, Policy(looks=Looks(3)))
    text = comparison_table([compared(make, verdict, "memcpy", 2e-3)], 100, False)
    assert cells(text) == ["memcpy", "1.00 ms", "2.00 ms", "+100.0 %", "+96.6 … +103.5 %", "3:15", "REGRESSED"]


def test_a_breach_stands_in_a_comparison_with_its_interval_and_its_processes(make):
    verdict = judge([make.group(math.log(1.25e-3))], None, Policy(), limits=[Limit(make.published(), 1e-3)])
    *_, interval, counts, word = cells(comparison_table([compared(make, verdict)], 100, False))
    assert re.fullmatch(r"\+\d+\.\d … \+\d+\.\d %", interval)
    assert (counts[0], word) == ("1", "REGRESSED")


@pytest.mark.parametrize("apart", [0.01, 0.3, 0.7, 2.0])
def test_an_interval_that_says_nothing_takes_no_room_from_the_name_in_a_comparison(make, apart):
    reference = make.reference(make.group(0.0, 0.001), make.group(apart, apart + 0.001))
    verdict = judge([make.group(0.2)], reference, Policy())
    text = comparison_table([compared(make, verdict, "memcpy_h2d[pinned-64MiB]", 1.2)], 80, False)
    assert names(text) == "memcpy_h2d[pinned-64MiB]"


def test_a_comparison_without_a_baseline_leaves_its_cells_empty(make):
    one = compared(make, Verdict(Kind.NO_BASELINE, 0.05, "none"), "memcpy")
    last = comparison_table([one], 80, False).split("\n")[-1]
    assert re.sub(r" +", " ", last) == "memcpy 1.00 ms NO BASELINE"


def test_the_roofs_are_explained_once_each(make):
    ceiling = Ceiling("traffic_GBps", 4.8e12, "datasheet", "vendor\n")
    note = roofline_note([result(make, ceiling=ceiling), result(make, ceiling=ceiling)])
    assert note == "roof: traffic_GBps 4800 GB/s, datasheet: vendor\\n"


def test_a_roof_that_no_row_is_a_share_of_is_not_explained_but_why_there_is_none(make):
    ceiling = Ceiling("traffic_GBps", 3.1e9, "measured", "triad")
    cached = Samples((1e-3,), iterations=1, tick_s=1e-9, labels=("cache_resident",))
    four = [result(make, ceiling=ceiling, samples=cached) for _ in range(4)]
    label = four[0].measurement.label
    assert roofline_note(four) == (
        f"roof: cache: the buffers of {label}, {label}, {label} and 1 more stay in the last-level cache, which no "
        "roofline of memory bounds"
    )
    assert roofline_note([*four[:1], result(make, ceiling=ceiling)]) == (
        f"roof: * traffic_GBps 3.10 GB/s, measured: triad; cache: the buffers of {label} stay in the last-level "
        "cache, which no roofline of memory bounds"
    )


def test_a_roof_of_arithmetic_is_told_in_tflops(make):
    ceiling = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "vendor")
    assert roofline_note([result(make, ceiling=ceiling)]) == "roof: bf16_TFLOPS 989 TFLOP/s, datasheet: vendor"


@pytest.mark.parametrize(
    ("source", "tokens", "said"),
    [
        ("datasheet", 8, " (with tokens: MFU)"),
        ("measured", 8, " (with tokens: MFU, but of this product and no datasheet's peak)"),
        ("datasheet", 0, ""),
    ],
)
def test_a_share_that_is_model_flops_utilization_is_called_so(make, source, tokens, said):
    ceiling = Ceiling("bf16_TFLOPS", 989e12, source, "origin")
    one = result(make, ceiling=ceiling, work=Work(flops=10**12, tokens=tokens))
    assert roofline_note([one]).partition(": origin")[2] == said


def test_without_a_roof_there_is_nothing_to_explain(make):
    assert roofline_note([result(make)]) == ""


@pytest.mark.parametrize(
    ("metric", "work", "shown"),
    [
        ("traffic_GBps", Work(read_bytes=2**20, write_bytes=2**20), "cache"),
        # Arithmetic has the same peak wherever its operands lie.
        ("fp32_TFLOPS", Work(flops=2 * 10**9), "40%"),
    ],
)
def test_only_a_rate_of_bytes_has_no_roofline_in_a_cache(make, metric, work, shown):
    key = make.key("step", parameters={}, metric=metric)
    samples = Samples((1e-3,), iterations=1, tick_s=1e-9, labels=("cache_resident",))
    ceiling = Ceiling(metric, 5e12, "datasheet", "the datasheet")
    result = make.result(known=False, key=key, work=work, samples=samples, ceiling=ceiling)
    assert shown in results_table([result], 120, colour=False).splitlines()[-1].split()


STEP = "transformer[small-step-c128-fp32]"


@pytest.fixture
def step(make):
    """A measurement that fills every column, under a long name."""
    key = make.key("transformer", parameters={}, metric="fp32_TFLOPS")
    work = Work(flops=2 * 10**9, tokens=512)
    return make.result(known=False, key=key, label=STEP, work=work, peak_bytes=2**30, held_bytes=2**20, compile_s=41.0)


def test_where_names_have_no_room_tokens_and_memory_stand_in_a_second_table(step):
    first, second = re.split(r"\n(?=test )", results_table([step], 80, colour=False))
    assert second.splitlines()[0].split() == ["test", "tokens/s", "peak", "held", "compile"]
    assert "1.00 GiB" not in first
    assert second.splitlines()[-1].split()[:2] == [STEP, "512000"]
    assert max(map(len, first.splitlines())) <= 80


def test_where_names_are_short_all_columns_stand_in_one_table(make, step):
    short = make.result(known=False, key=make.key("step", parameters={}), peak_bytes=2**30)
    assert "1.00 GiB" in results_table([short], 70, colour=False).splitlines()[-1]


def test_where_there_is_room_all_columns_stand_in_one_table(step):
    (row,) = results_table([step], 200, colour=False).splitlines()[2:]
    assert row.split()[0] == STEP
    assert "1.00 GiB" in row


def test_a_second_table_has_only_tests_with_something_in_it(make, step):
    copy = make.result(key=make.key("copy", parameters={}))
    first, second = re.split(r"\n(?=test )", results_table([step, copy], 80, colour=False))
    assert ["copy" in table.split() for table in (first, second)] == [True, False]
