"""Tables at 80 columns: what stands in which column, what folds, and that nothing in them is taken for markup."""

import itertools
import math
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from pytest_roofline.baselines.checks import health_of
from pytest_roofline.baselines.renewal import Change
from pytest_roofline.baselines.rows import compared_row
from pytest_roofline.core.entries import Session
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.rows import COLUMNS
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.verdicts import Kind, Subject, TimeLimit, Verdict
from pytest_roofline.core.work import Work
from pytest_roofline.report.baseline_tables import (
    LEGEND,
    changes_table,
    health_table,
    provisional_lines,
    provisional_note,
)
from pytest_roofline.report.conditions import reason_lines
from pytest_roofline.report.published import published_lines
from pytest_roofline.report.tables import comparison_table, more_table, results_table, roofline_note
from pytest_roofline.report.verdicts import status_word
from pytest_roofline.report.words import figure, properties, rate_text
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import judge

MIB = 2**20
HOSTILE = ["[red]", "[/red]", "[bold]x[/]", "a[pinned]", "\x1b[31mx", "two\nlines", "\r", ":smile:", "x" * 300,
           "\u202e", "宽" * 60]  # fmt: skip
STEERS = set("\x1b\r\u202e\x07")
MILLISECOND = math.log(1e-3)


def result(make, *seconds, benchmark="memcpy_d2d", verdict=True, **changes):
    key = make.key(benchmark, parameters=changes.pop("parameters", {"size_bytes": 2_101_346_305}))
    changes = {"work": make.copy(2_101_346_305), "environment": {}} | changes
    reference = changes.pop("reference", make.reference(make.group(MILLISECOND)))
    found = make.result(*seconds, key=key, reference=reference, **changes)
    return found if verdict else make.row(found.measurement)


def compared(make, verdict, label="m", new_s=1e-3):
    return compared_row(
        make.key(), make.copy(), replace(verdict, subject=Subject(label=label)), new_s
    )


def cells(text):
    """The columns of the last line."""
    return re.split(r"  +", text.split("\n")[-1])


def names(text):
    """The first column below the rule, put together from what was folded."""
    return "".join(line.split(" ")[0] for line in text.partition("──\n")[2].split("\n"))


def steady(make, spread=0.001):
    return make.reference(*make.groups(3, process=spread, centre=MILLISECOND))


def test_the_number_of_a_measurement_is_its_rate_and_of_a_small_message_its_time(make):
    across = make.key(metric="payload_GBps")
    small, large = (Work(payload_bytes=size, wire_bytes=size) for size in (16 * MIB - 1, 16 * MIB))
    arithmetic = {"key": make.key(metric="TFLOPS"), "work": Work(flops=359 * 10**12)}
    texts = {
        "1.00 ms": make.measurement(1e-3, key=across, work=small),
        "16.8 GB/s": make.measurement(1e-3, key=across, work=large),
        "8.19 GB/s": make.measurement(1e-6, key=make.key(size_bytes=4096)),
        "359 TFLOP/s": make.measurement(1.0, **arithmetic),
        "2.00 ms": make.measurement(2e-3, key=make.key(metric="time_s")),
    }
    assert list(texts) == [figure(make.row(one)) for one in texts.values()]


def test_properties_are_named_as_the_columns_are_and_cannot_steer_a_report(make):
    found = dict(properties([make.result(1.24e-3, 1.25e-3, 1.26e-3)]))
    assert ("REGRESSED", "3") == (found["roofline.verdict"], found["roofline.processes"])
    assert [1.25e-3, 1e-3] == pytest.approx(
        [float(found[f"roofline.{name}"]) for name in ("time_s", "baseline_time_s")], rel=1e-3
    )
    low, high = (float(found[f"roofline.{name}"]) for name in ("change_low", "change_high"))
    assert 0.2 < low < float(found["roofline.change"]) < high < 0.3
    assert 0.05 < float(found["roofline.detectable"]) < 0.1
    assert {name.removeprefix("roofline.") for name in found} <= {*COLUMNS, "limit_time_s"}
    named = dict(properties([make.result(key=make.key(name="backward\x1b[31m\r\n\u202e"))]))
    assert all(name.startswith("roofline.backward\\x1b[31m\\r\\n") for name in named)


def test_the_centre_of_several_processes_is_what_is_shown(make):
    """Not the time of one of them, which the estimate would contradict."""
    row = make.result(1e-3, 1.1e-3, 1.21e-3, 1.331e-3)
    assert row.time_s == pytest.approx(1e-3 * 1.1**1.5)
    assert row.time_s / (1 + row.change) == pytest.approx(row.baseline_time_s)
    assert rate_text(row) == "116 GB/s"
    assert [make.result(1.001e-3).time_s, make.result(known=False).time_s] == [1.001e-3, 1e-3]


def shortest(make, labels, metric="traffic_GBps"):
    """A result of 20 ns on a clock of 10, which tells a time or, where it says so, does not."""
    samples = Samples((2e-8,), 1, 1e-8, labels=labels)
    facts = {
        "ceiling": Ceiling("traffic_GBps", 1e12, "datasheet", "vendor"),
        "invalid": samples.trouble,
    }
    work = Work(read_bytes=10**3, write_bytes=10**3, payload_bytes=10**3, flops=10**3)
    measurement = make.measurement(samples=samples, key=make.key(metric=metric), work=work, **facts)
    subject = make.subject(measurement, {}, published=(make.published("reference"),))
    invalid = text_reasons(measurement.invalid)
    verdict = judge([make.group(0.0)], None, Policy(), subject=subject, invalid=invalid)
    return make.judged(measurement, verdict)


def test_nothing_makes_a_rate_of_a_time_below_the_clocks_resolution(make):
    rates = ("rate", "traffic_GBps", "payload_GBps", "flops_per_s", "share_of_ceiling")
    for labels, known in ((("unresolved",), False), ((), True)):
        one = shortest(make, labels)
        assert dict.fromkeys(rates, known) == {
            name: getattr(one.measurement, name) is not None for name in rates
        }
        texts = {
            "rate": rate_text(one),
            "figure": figure(one),
            "status": status_word(one),
            # Without its heading, which has the signs of all columns.
            "table": results_table([one], 80, False).split("\n")[-1],
            "properties": str(properties([one])),
            "derived": str(one.measurement.derived()),
            "published": published_lines([one])[0],
        }
        shown = {
            place: bool(re.search("B/s|FLOP/s|GBps|_per_s|share|%", text))
            for place, text in texts.items()
        }
        assert dict.fromkeys(texts, known) == shown
    for metric in ("traffic_GBps", "payload_GBps", "TFLOPS"):
        assert rate_text(shortest(make, ("unresolved",), metric)) == "20.0 ns"
    (line,) = reason_lines([shortest(make, ("unresolved",))])
    assert line.startswith("INVALID memcpy_d2d[64MiB]: a sample spans 2 ticks of the clock")
    assert "time more work in a call" in line


def test_a_table_keeps_to_80_columns_and_shows_names_as_they_are_without_control_characters(make):
    for text, seconds in itertools.product(HOSTILE, (1e-12, 1e-3, 1e6)):
        ceiling = Ceiling("traffic_GBps", 1e9, "measured", text)
        verdict = judge(
            [make.group(math.log(seconds))], make.reference(make.group(MILLISECOND)), Policy()
        )
        for width in (80, 120):
            tables = (
                results_table(
                    [result(make, seconds, benchmark=text, ceiling=ceiling)], width, False
                ),
                results_table([result(make, seconds, parameters={"memory": text})], width, False),
                comparison_table([compared(make, verdict, text, seconds)], width, False),
            )
            for table in tables:
                assert max(map(cell_len, table.split("\n"))) <= width, (text, seconds)
                assert not set(table) & STEERS, (text, seconds)
                if width == 120 and text in ("[red]", "[/red]", "a[pinned]", ":smile:"):
                    assert text in table


def test_an_id_without_room_has_lines_of_its_own_and_the_numbers_stand_in_their_columns(make):
    for name in ("memcpy_h2d", "all_reduce[bfloat16-8ranks-in_place]", "x" * 200):
        rows = [
            result(make, 1.25e-3, parameters={}, benchmark=text, reference=steady(make))
            for text in ("a", name)
        ]
        lines = results_table(rows, 80, False).split("\n")
        assert {len(line) <= 80 for line in lines} == {True}
        assert "".join(line for line in lines[3:] if "REGRESSED" not in line) in ("", name)
        assert len({line.index("1.25 ms") for line in lines if "1.25 ms" in line}) == 1


def test_a_name_breaks_between_words_only_in_every_table_at_60_and_80_columns(make):
    name = "flash_attention.test_forward[batch4-heads16-context8192-headdim128-causal-bfloat16]"
    verdict = judge([make.group(MILLISECOND)], make.reference(make.group(MILLISECOND)), Policy())
    for width in (60, 80):
        tables = (
            results_table([result(make, 1e-3, benchmark=name, parameters={})], width, False),
            comparison_table([compared(make, verdict, name)], width, False),
            health_table(
                health_of([make.measured(1e-3, key=make.key(name, parameters={}))]), width, False
            ),
        )
        for table in tables:
            first, second = (
                line for line in table.split("\n") if "flash" in line or "bfloat16" in line
            )
            assert (first + second, first[-1]) == (name, "-")


def test_a_second_table_has_what_is_known_beside_times(make):
    key = make.key("transformer", parameters={}, metric="fp32_TFLOPS")
    facts = {
        "work": Work(flops=2 * 10**9, tokens=512),
        "peak_bytes": 2**30,
        "held_bytes": 2**20,
        "compile_s": 41.0,
    }
    step = make.result(known=False, key=key, label="transformer[c128]", **facts)
    table = more_table([step, make.result(key=make.key("copy", parameters={}))], 100).splitlines()
    assert re.split(r"  +", table[0]) == [
        "test",
        "size",
        "tokens/s",
        "baseline",
        "peak",
        "held",
        "compile",
        "n",
    ]
    assert re.split(r"  +", table[2]) == [
        "transformer[c128]",
        "512000",
        "1.00 GiB",
        "1.00 MiB",
        "41.0 s",
    ]
    assert more_table([], 100) == ""


def test_a_table_names_what_stands_in_it_and_a_comparison_both_times(make):
    ceiling = Ceiling("traffic_GBps", 8.4e12, "datasheet", "vendor")
    parameters = {"memory": "pinned", "size_bytes": 2_101_346_305}
    one = result(
        make, 2e-3, 2e-3, 2e-3, parameters=parameters, ceiling=ceiling, reference=steady(make)
    )
    text = results_table([one], 120, False)
    heading = ["test", "time", "GB/s", "of roof", "against baseline", "verdict"]
    row = [one.label, "2.00 ms", "2101", "25%", "+100.0 % (+96.7…+103.4)", "REGRESSED"]
    assert (heading, row) == (re.split(r"  +", text.split("\n")[0]), cells(text))
    held = result(
        make, known=False, limits=[Limit(TimeLimit(1.2e-3, make.published()))], reference=None
    )
    assert cells(results_table([held], 100, False))[-2:] == ["limit 3502 GB/s", "PASSED"]
    unlike = make.result(
        key=make.key("gemm", parameters={}, metric="TFLOPS"), work=Work(flops=10**12), known=False
    )
    text = results_table([one, unlike], 120, False)
    assert ("rate", "2101 GB/s") == (text.split()[2], re.split(r"  +", text.split("\n")[2])[2])
    assert "50%*" in results_table(
        [result(make, ceiling=replace(ceiling, source="measured"))], 80, False
    )
    verdict = judge([make.group(*[math.log(2e-3)] * 3)], steady(make), Policy(analyses=Analyses(3)))
    text = comparison_table([compared(make, verdict, "memcpy", 2e-3)], 100, False)
    assert cells(text) == [
        "memcpy",
        "1.00 ms",
        "2.00 ms",
        "+100.0 %",
        "+96.7 … +103.4 %",
        "3:15",
        "REGRESSED",
    ]
    assert text.split("\n") == [line.rstrip() for line in text.split("\n")]
    unknown = comparison_table(
        [compared(make, Verdict(Kind.NO_BASELINE, 0.05), "memcpy")], 80, False
    )
    assert re.sub(r" +", " ", unknown.split("\n")[-1]) == "memcpy 1.00 ms NO BASELINE"


def test_results_stand_worst_first_where_one_failed_and_else_as_they_ran(make):
    def order(*results):
        return [
            line.partition("[")[0] for line in results_table(results, 100, False).split("\n")[2:]
        ]

    passed, slower, slowest = (
        result(make, seconds, benchmark=name)
        for seconds, name in ((1e-3, "passed"), (1.2e-3, "slower"), (3e-3, "slowest"))
    )
    failed = result(make, 1e-3, benchmark="failed", verdict=False)
    assert ["failed", "slowest", "slower", "passed"] == order(passed, slower, slowest, failed)
    assert ["c", "a", "b"] == order(*(result(make, benchmark=name) for name in ("c", "a", "b")))


def test_colour_and_width_are_the_callers_whatever_the_surroundings_ask_for(make, monkeypatch):
    for variable in ("FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("COLUMNS", "20")
    plain = results_table([result(make, 3e-3)], 80, False)
    assert "\x1b" not in plain
    assert max(map(len, plain.split("\n"))) > 40
    assert "\x1b[1;31mREGRESSED" in results_table([make.result(3e-3)], 80, True)


def test_the_roofs_are_explained_once_each_and_what_is_a_share_of_none(make):
    def note(*ceilings, **facts):
        return roofline_note([result(make, ceiling=ceiling, **facts) for ceiling in ceilings])

    sheet = Ceiling("traffic_GBps", 4.8e12, "datasheet", "vendor\n")
    assert note(sheet, sheet) == "roof: traffic_GBps 4800 GB/s, datasheet: vendor\\n"
    bf16 = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "vendor")
    assert note(bf16) == "roof: bf16_TFLOPS 989 TFLOP/s, datasheet: vendor"
    assert note(None) == ""
    for source, tokens, said in (
        ("datasheet", 8, " (with tokens: MFU)"),
        ("measured", 8, " (with tokens: MFU, relative to this product, not to a datasheet's peak)"),
        ("datasheet", 0, ""),
    ):
        work = Work(flops=10**12, tokens=tokens)
        assert note(replace(bf16, source=source), work=work).partition(": vendor")[2] == said
    triad = Ceiling("traffic_GBps", 3.1e9, "measured", "triad")
    cached = Samples((1e-3,), iterations=1, tick_s=1e-9, labels=("cache_resident",))
    four = [result(make, ceiling=triad, samples=cached) for _ in range(4)]
    label = four[0].measurement.label
    stay = (
        "stay in the last-level cache, where the memory's roofline is no limit; use larger buffers, "
        "or make_args with "
    )
    stay += 'cache="rotate"'
    assert (
        roofline_note(four)
        == f"roof: cache: the buffers of {label}, {label}, {label} and 1 more {stay}"
    )
    assert roofline_note([*four[:1], result(make, ceiling=triad)]) == (
        f"roof: * traffic_GBps 3.10 GB/s, measured: triad; cache: the buffers of {label} {stay}"
    )


def test_only_a_rate_of_bytes_has_no_roofline_in_a_cache(make):
    """Arithmetic has the same peak wherever its operands lie."""
    samples = Samples((1e-3,), iterations=1, tick_s=1e-9, labels=("cache_resident",))
    for metric, work, shown in (
        ("traffic_GBps", Work(read_bytes=2**20, write_bytes=2**20), "cache"),
        ("fp32_TFLOPS", Work(flops=2 * 10**9), "40%"),
    ):
        key, ceiling = (
            make.key("step", parameters={}, metric=metric),
            Ceiling(metric, 5e12, "datasheet", "sheet"),
        )
        one = make.result(known=False, key=key, work=work, samples=samples, ceiling=ceiling)
        assert shown in results_table([one], 120, colour=False).splitlines()[-1].split()


def entry(make, *medians, benchmark="memcpy_d2d", driver="570.86", **changes):
    sessions = tuple(
        Session(
            f"r{number}", f"2026-01-{number + 1:02d}T03:00:00Z", values, "GPU-1", {"driver": driver}
        )
        for number, values in enumerate(medians)
    )
    return make.measured(key=make.key(benchmark), sessions=sessions, **changes)


def last(text):
    return re.sub(r" +", " ", text.split("\n")[-1]).strip()


def test_a_change_of_a_baseline_tells_what_happens_with_time_sessions_and_processes(make):
    cases = [
        (None, [(2.0,)], "new", "", "2.00 s 1 1 new"),
        ([(1.0, 1.0)] * 3, [(1.0, 1.0)] * 3 + [(1.21,)] * 2, "joined", "",
         "1.00 s 1.05 s 3 → 5 6 → 8 joined (+4.9 %)"),
        ([(1.0,)] * 5, [(0.9, 0.9)] * 2, "replaced", "IMPROVED -10.0 %",
         "1.00 s 900 ms 5 → 2 5 → 4 replaced (IMPROVED -10.0 %)"),
        ([(1.0,)], [(1.0,)], "unchanged", "", "1.00 s 1.00 s 1 1 unchanged"),
    ]  # fmt: skip
    for before, after, action, why, told in cases:
        one = Change(entry(make, *after), entry(make, *before) if before else None, action, why)
        assert last(changes_table([one], 100, False)) == f"memcpy_d2d[64MiB] {told}"
    limit = Change(
        make.published(value=120.0), make.published(value=100.0), "replaced", "published figure"
    )
    assert (
        last(changes_table([limit], 100, False))
        == "memcpy_d2d 100 GB/s 120 GB/s replaced (published figure)"
    )
    full = Change(
        entry(make, *[(0.9,) * 5] * 30),
        entry(make, *[(1.0,) * 5] * 20),
        "replaced",
        "IMPROVED -10.0 %",
    )
    name, row = changes_table([full], 80, False).split("\n")[2:]
    assert (name, row.strip()) == (
        "memcpy_d2d[64MiB]",
        "1.00 s  900 ms   20 → 30  100 → 150  replaced (IMPROVED -10.0 %)",
    )
    for text in HOSTILE:
        odd = entry(make, (1.0,), benchmark=text)
        tables = (
            changes_table([Change(odd, None, "new")], 80, False),
            health_table(health_of([odd]), 80, False),
        )
        for table in (*tables, LEGEND):
            assert max(map(cell_len, table.split("\n"))) <= 80
            assert not set(table) & STEERS


def test_the_health_of_a_baseline_is_what_stands_behind_it_and_what_it_finds(make):
    def row(*entries):
        return last(health_table(health_of(entries), 120, False))

    (health,) = health_of([entry(make, (1e-3,))])
    pattern = r"memcpy_d2d\[64MiB\] 1\.00 ms 134 1/1/1 1\.0\* 0\.[78]\* (\S+) 2026-01-01 prov\."
    found = re.fullmatch(pattern, row(entry(make, (1e-3,))))
    assert float(found[1]) == pytest.approx(health.mde * 100, abs=0.06)
    known = [(1.0, 1.04, 0.96), (1.09, 1.05, 1.13), (0.91, 0.95, 0.87), (1.0, 1.04, 0.96)]
    # An estimate has no mark, one joined with the prior its own, as that of sessions always is.
    assert re.search(
        r" 1/4/12 \d\.\d \d\.\d\+ \d+\.\d 2026-01-04$", row(entry(make, *known, tolerance=0.5))
    )
    assert re.search(r" \d\.\d\+ ", row(entry(make, (1.0, 1.02))))
    one, other = entry(make, (1.0,)), entry(make, (1.0,), benchmark="b", driver="550.54")
    table = health_table(health_of([one, other]), 120, False)
    assert ("570.86" in table, "550.54" in table) == (True, True)
    assert "driver" not in health_table(health_of([one]), 120, False)
    assert "rate" not in health_table(
        health_of([make.measured(key=make.key(metric="time_s"))]), 120, False
    )


def test_how_many_entries_are_provisional_is_told_with_the_reasons(make):
    full = entry(make, *[(1.0, 1.001, 0.999)] * 4, benchmark="full", tolerance=0.5)
    few = entry(make, (1.0,), benchmark="few", tolerance=0.5)
    blind = entry(make, *[(1.0,), (1.5,), (0.7,), (1.1,)], benchmark="blind")
    assert provisional_note(health_of([full])) == ""
    assert provisional_note(health_of([full, few, blind])) == (
        "provisional: 2 of 3 entries (1 with fewer than 3 sessions, 1 that may miss a slowdown as large as "
        "the tolerance)"
    )
    assert ["few[64MiB] is provisional", "blind[64MiB] is provisional"] == [
        line.split(":")[0] for line in provisional_lines(health_of([full, few, blind]))
    ]
