"""The page of the five documents: every row was tried, every figure has a row, and what no command makes is told."""

import json
from dataclasses import replace

import pytest


@pytest.fixture(scope="module")
def seed_page(program):
    """The program."""
    return program("seed_page")


@pytest.fixture(scope="module")
def every(seed_page):
    """Its rows."""
    return seed_page.rows()


@pytest.fixture(scope="module")
def tried(seed_page):
    """What each did."""
    return seed_page.tried_rows(json.loads(seed_page.TRIED.read_text(encoding="utf-8")))


def test_the_page_is_what_its_rows_say_and_every_row_was_tried(seed_page, every, tried):
    assert list(seed_page.untried(every, tried)) == []
    made = json.loads(seed_page.TRIED.read_text(encoding="utf-8"))
    assert seed_page.page(every, made) == seed_page.PAGE.read_text(encoding="utf-8")
    assert set(made["rows"]) == {row.name for row in every}


def test_every_table_stands_in_one_row_and_no_figure_is_lost(seed_page, every):
    seeds = seed_page.published("seeds")
    stand = [(row.document, title) for row in every for title in row.tables]
    assert sorted(stand) == sorted((table.document, table.title) for table in seeds.TABLES)
    assert (
        sum(seed_page.figures_of(every).values())
        == len(seed_page.published("figures").told())
        == 585
    )


def test_what_was_not_tried_failed_or_showed_nothing_is_missing(seed_page, every, tried):
    first, second, third, *_ = every
    without = replace(first, commands=())
    other = replace(second, tried="pytest perf_tests/test_memcpy.py -k other")
    failed = tried | {third.name: replace(tried[third.name], status=1)}
    told = list(seed_page.untried([without, other, third], failed))
    assert [
        text.partition(row.name)[2][:14]
        for text, row in zip(told, (first, second, third), strict=True)
    ] == [
        ": it has no co",
        ": `pytest perf",
        ": `roofline re",
    ]
    assert "was not tried; call this program with --try" in told[1]
    assert "ended with status 1" in told[2]


def test_a_command_that_selects_nothing_and_a_figure_that_no_test_of_its_row_shows_are_missing(
    seed_page, every
):
    some, none = (
        f"pytest perf_tests/test_precision.py -k {text}" for text in ("accumulation", "no_such")
    )
    found = seed_page.collected([(some, 0), (none, 0)])
    assert [found[one, 0].tests for one in (some, none)] == [4, 0]
    assert {test.benchmark for test in found[some, 0].planned} == {"accumulation"}
    (row,) = (row for row in every if "leaderboard" in row.tables)
    lost = list(seed_page.unmet([replace(row, commands=(some,))], found))
    assert (
        sum("in leaderboard of cs336-report-1: no test of its row shows it" in one for one in lost)
        == 4
    )
    assert sum("it stands in no row" in one for one in lost) == 585 - 5
    assert not any("stands in no row" in one for one in seed_page.unmet(every, found))


def test_peers_are_collected_as_on_a_machine_of_so_many_gpus(seed_page):
    command = "pytest perf_tests/test_peer_copy.py -k 'peer_copy_one_way and not triton' --roofline-tier=nightly"
    (found,) = seed_page.collected([(command, 2)]).values()
    assert {test.parameters["size_bytes"] for test in found.planned} > {4096, 8 * 2**20, 2**30}


def test_the_lines_of_an_output_that_a_row_tells_are_its_patterns_in_their_order(
    seed_page, every, tmp_path
):
    output = "t.py::test_a[1] PASSED 3 ms INVALID     [ 50%]\n  over time: 1 ▁█ 2\n"
    row = replace(every[0], show=(r"^ +(over time: .*)", seed_page.PASSED, "nothing"))
    assert seed_page.told(row, 0, output).shown == ("over time: 1 ▁█ 2", "a[1] 3 ms INVALID")
    status, printed = seed_page.run("roofline hardware mi300x-oam", tmp_path)
    assert seed_page.told(every[0], status, printed).shown[0] == "memory_GBps 5300"
    assert status == 0
