import re

import pytest
from rich.cells import cell_len

from pytest_roofline.baselines.checks import health_of
from pytest_roofline.baselines.renewal import Change
from pytest_roofline.core.entries import Session
from pytest_roofline.report.baseline_tables import (
    LEGEND,
    changes_table,
    health_table,
    provisional_lines,
    provisional_note,
)

HOSTILE = ["[red]", "[/red]", "a[pinned]", "\x1b[31mx", "two\nlines", "\r", ":smile:", "x" * 300, "\u202e", "宽" * 60]


def sessions(*medians, driver="570.86"):
    return tuple(
        Session(f"r{number}", f"2026-01-{number + 1:02d}T03:00:00Z", values, "GPU-1", {"driver": driver})
        for number, values in enumerate(medians)
    )


def entry(make, *medians, benchmark="memcpy_d2d", driver="570.86", **changes):
    return make.measured(key=make.key(benchmark), sessions=sessions(*medians, driver=driver), **changes)


def words(text):
    return re.sub(r" +", " ", text.split("\n")[-1]).strip()


def change(make, before, after, action="joined", why=""):
    return Change(entry(make, *after), entry(make, *before) if before else None, action, why)


@pytest.mark.parametrize(
    ("before", "after", "action", "why", "expected"),
    [
        (None, [(2.0,)], "new", "", "memcpy_d2d[64MiB] 2.00 s 1 1 new"),
        (
            [(1.0, 1.0)] * 3,
            [(1.0, 1.0)] * 3 + [(1.21,)] * 2,
            "joined",
            "",
            "memcpy_d2d[64MiB] 1.00 s 1.05 s 3 → 5 6 → 8 joined (+4.9 %)",
        ),
        (
            [(1.0,)] * 5,
            [(0.9, 0.9)] * 2,
            "replaced",
            "IMPROVED -10.0 %",
            "memcpy_d2d[64MiB] 1.00 s 900 ms 5 → 2 5 → 4 replaced (IMPROVED -10.0 %)",
        ),
        ([(1.0,)], [(1.0,)], "unchanged", "", "memcpy_d2d[64MiB] 1.00 s 1.00 s 1 1 unchanged"),
    ],
)
def test_a_change_tells_what_happens_with_time_sessions_and_processes(make, before, after, action, why, expected):
    assert words(changes_table([change(make, before, after, action, why)], 100, False)) == expected


def test_a_published_figure_shows_its_value(make):
    one = Change(make.published(value=120.0), make.published(value=100.0), "replaced", "published figure")
    assert words(changes_table([one], 100, False)) == "memcpy_d2d 100 GB/s 120 GB/s replaced (published figure)"


@pytest.mark.parametrize("text", HOSTILE)
def test_no_line_is_wider_than_80_columns_or_steers_the_terminal(make, text):
    tables = [
        changes_table([Change(entry(make, (1.0,), benchmark=text), None, "new")], 80, False),
        health_table(health_of([entry(make, (1.0,), benchmark=text)]), 80, False),
        LEGEND,
    ]
    for table in tables:
        assert max(map(cell_len, table.split("\n"))) <= 80
        assert not set(table) & set("\x1b\r\u202e")


def test_a_full_renewal_folds_its_name_at_80_columns_and_loses_nothing(make):
    one = change(make, [(1.0,) * 5] * 20, [(0.9,) * 5] * 30, "replaced", "IMPROVED -10.0 %")
    first, *rest = changes_table([one], 80, False).split("\n")[2:]
    assert first.endswith("20 → 30  100 → 150  replaced (IMPROVED -10.0 %)")
    assert first.split(" ")[0] + "".join(rest) == "memcpy_d2d[64MiB]"


def test_health_shows_time_rate_what_stands_behind_it_and_what_it_finds(make):
    (health,) = health_of([entry(make, (1e-3,))])
    found = re.fullmatch(
        r"memcpy_d2d\[64MiB\] 1\.00 ms 134 1/1/1 1\.0\* 1\.0\* (\S+) 2026-01-01 prov\.",
        words(health_table([health], 120, False)),
    )
    assert found
    assert float(found[1]) == pytest.approx(health.mde * 100, abs=0.06)
    assert " GB/s " in health_table([health], 120, False)


def test_what_is_estimated_bears_no_mark_and_a_full_entry_no_label(make):
    steady = [(1.0, 1.04, 0.96), (1.09, 1.05, 1.13), (0.91, 0.95, 0.87), (1.0, 1.04, 0.96)]
    (health,) = health_of([entry(make, *steady, tolerance=0.5)])
    line = words(health_table([health], 120, False))
    assert re.search(r" 1/4/12 \d\.\d \d\.\d \d+\.\d ", line)
    assert line.endswith("2026-01-04")


def test_an_estimate_joined_with_the_prior_bears_its_own_mark(make):
    (health,) = health_of([entry(make, (1.0, 1.02))])
    assert re.search(r" \d\.\d\+ ", words(health_table([health], 120, False)))


def test_drivers_are_shown_where_they_differ(make):
    one, other = entry(make, (1.0,)), entry(make, (1.0,), benchmark="b", driver="550.54")
    assert "driver" not in health_table(health_of([one]), 120, False)
    table = health_table(health_of([one, other]), 120, False)
    assert ("570.86" in table, "550.54" in table) == (True, True)


def test_an_entry_without_a_rate_has_none_to_show(make):
    (health,) = health_of([make.measured(key=make.key(metric="time_s"))])
    assert health.rate is None
    assert "rate" in health_table([health], 120, False)


def test_how_many_entries_are_provisional_is_told_with_the_reasons(make):
    full = entry(make, *[(1.0, 1.001, 0.999)] * 4, benchmark="full", tolerance=0.5)
    few = entry(make, (1.0,), benchmark="few", tolerance=0.5)
    blind = entry(make, *[(1.0,), (1.5,), (0.7,), (1.1,)], benchmark="blind")
    assert provisional_note(health_of([full])) == ""
    assert provisional_note(health_of([full, few, blind])) == (
        "provisional: 2 of 3 entries (1 with fewer than 3 sessions, 1 that may miss a slowdown of their tolerance)"
    )
    assert [line.split(":")[0] for line in provisional_lines(health_of([full, few, blind]))] == [
        "few[64MiB] is provisional",
        "blind[64MiB] is provisional",
    ]
