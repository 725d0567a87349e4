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


def test_the_peer_has_the_same_rows_and_figures_and_the_same_marks(report_page, run):
    rows = worst_first(rows_of_run(run))
    text = report_page.peers_page(rows)
    assert 400 == text.count("<th>") - len(report_page.results_table(rows, several=False).columns) - 1
    assert len(report_page.plots_of(rows)) == text.count('class="plotly-graph-div"')
    marks = [report_page.MARK.format(name=name) for name in (report_page.TABLE, report_page.FIRST, report_page.DRAWN)]
    assert sorted(map(text.index, marks)) == list(map(text.index, marks))


def test_the_page_says_when_in_the_same_words(report_page, run):
    text = report_page.page([run])
    assert all(
        f'performance.mark("{name}")' in text for name in (report_page.TABLE, report_page.FIRST, report_page.DRAWN)
    )
