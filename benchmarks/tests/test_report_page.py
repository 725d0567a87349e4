"""The program that times how soon the report's page opens."""

import pytest

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.core.rows import worst_first


@pytest.fixture(scope="module")
def report_page(program):
    return program("report_page")


@pytest.fixture(scope="module")
def run(report_page):
    return report_page.a_run(400, seed=9)


def test_a_run_has_as_many_measurements_as_asked_for_and_two_are_red(run):
    rows = rows_of_run(run)
    assert (400, 2, 400) == (len(rows), sum(row.red for row in rows), len({row.label for row in rows}))


def test_the_peer_has_the_same_rows_and_figures_and_the_same_marks(report_page, run):
    text = report_page.peers_page(worst_first(rows_of_run(run)))
    assert 400 == text.count("<th>") - len(report_page.results_table([], several=False).columns) - 1
    assert len(report_page.plots_of(worst_first(rows_of_run(run)))) == text.count('class="plotly-graph-div"')
    marks = [report_page.MARK.format(name=name) for name in (report_page.TABLE, report_page.FIRST, report_page.DRAWN)]
    assert sorted(map(text.index, marks)) == list(map(text.index, marks))


def test_the_page_says_when_in_the_same_words(report_page, run):
    text = report_page.page([run])
    assert all(
        f'performance.mark("{name}")' in text for name in (report_page.TABLE, report_page.FIRST, report_page.DRAWN)
    )


@pytest.mark.parametrize(("worst", "told"), [(2.9, "is within 3 s"), (3.1, "is NOT within 3 s")])
def test_the_slowest_opening_is_held_against_the_goal(report_page, tmp_path, worst, told):
    path = tmp_path / "page.html"
    path.write_bytes(b"x" * 2_000_000)
    names = (report_page.TABLE, report_page.FIRST, report_page.DRAWN, report_page.SEEN, report_page.CPU)
    ours = report_page.Times("ours", path, 2.0, {name: [1.0, 1.5, worst] for name in names})
    peer = report_page.Times("peer", path, 1.0, {name: [6.0, 6.0, 6.0] for name in names})
    text = report_page.told([ours, peer], 10_000, 3)
    assert told in text
    assert f"| ours | 2.0 | 2.0 | 1.50 ({worst:.2f}) |" in text
    assert "4.0 times the CPU time to open, 4.0 times as long to its first plot, and 0.5 times as long to make" in text
