"""The page on `roofline ab`: it draws what it says, counts what is said, and calls a missed goal missed."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_roofline.core.verdicts import Kind


@pytest.fixture(scope="module")
def lab(program):
    return SimpleNamespace(
        page=program("ab_quality"),
        in_turn=program("detectors.in_turn"),
        peers=program("detectors.peers"),
    )


def test_both_sides_are_drawn_alike_and_slower_is_side_b(lab):
    drawn = lab.in_turn.draw(np.random.default_rng(1), lab.in_turn.World(0.001, drift=0.0), 40, 8)
    before, after = drawn.slower([3], 0.05).sides()
    assert before.shape == after.shape == (40, 8)
    change = np.log(after).mean(axis=1) - np.log(before).mean(axis=1)
    assert change[3] == pytest.approx(math.log(1.05), abs=0.003)
    assert np.abs(np.delete(change, 3)).max() < 0.003
    assert drawn.arms.count("control") == 1


def test_modes_are_a_processs_own_or_that_of_all_its_tests(lab):
    for together, apart in ((True, 1), (False, 2)):
        world = lab.in_turn.World(1e-6, session=0.0, drift=0.0, modes=0.5, together=together)
        logs = lab.in_turn.draw(np.random.default_rng(2), world, 50, 8).logs
        assert np.unique(np.round(logs, 3)).tolist() == pytest.approx(
            [0.0, math.log(1.06)], abs=1e-3
        )
        assert len(np.unique(np.round(logs[:, 0], 3))) == apart


def test_a_run_stops_test_by_test_and_is_counted_by_the_blocks_it_took(lab):
    rng, tally = np.random.default_rng(3), lab.in_turn.Tally()
    for _ in range(3):
        course = lab.in_turn.run(
            lab.in_turn.draw(rng, lab.in_turn.World(0.01), 25, 8).slower([7], 0.06), 0.03, 8
        )
        assert course.kinds[7] is Kind.REGRESSED
        assert course.kinds.count(Kind.PASSED) == 24
        tally.count(course, [7])
    assert (tally.suites, tally.tests, tally.red, tally.slower) == (3, 72, 0, 3)
    assert tally.share_found(8) == 1.0
    assert 4 * 72 <= 2 * tally.blocks < 6 * 72


def test_asv_and_the_rccl_gate_call_what_their_sources_do(lab):
    rng = np.random.default_rng(4)
    before = np.exp(0.002 * rng.standard_normal((16, 8)))
    after = np.exp(0.002 * rng.standard_normal((16, 8)))
    after[2:4] *= 1.12
    after[5] *= 1.12
    # Neighbours in two sweeps are none.
    after[7:9] *= 1.12
    after[10:12] *= 1.02
    assert np.flatnonzero(lab.peers.asv(before, after)).tolist() == [2, 3, 5, 7, 8]
    assert np.flatnonzero(lab.peers.rccl_gate(before, after)).tolist() == [2, 3]
    assert np.flatnonzero(lab.peers.pytest_benchmark(before, after, "min:5%")).tolist() == [
        2,
        3,
        5,
        7,
        8,
    ]


def test_the_page_names_goals_that_are_missed(lab):
    row = lab.page.Row(
        "one",
        "σ_p 1 %",
        lab.in_turn.World(0.01),
        slower="one",
        slowdown=0.05,
        goals=((4, 0.9), (8, 0.9)),
    )
    tally = lab.in_turn.Tally(slower=100)
    tally.found.update({2: 80, 4: 15})
    assert [(seen, good) for _, seen, good in lab.page.findings([(row, tally)])] == [
        ("80.0 % (71–87)", False),
        ("95.0 % (89–98)", True),
    ]
    unchanged = lab.page.Row("spreads", "calm", lab.in_turn.World())
    for red, good in ((4, [True, True]), (20, [False, False])):
        said = lab.page.findings(
            [(unchanged, lab.in_turn.Tally(suites=100, tests=20000, red_suites=red))]
        )
        assert [reached for _, _, reached in said] == good
    found = {"this plugin": 60, "asv continuous": 40, "benchstat": 90, "RCCL perf gate": 70}
    peers = {
        (rule, "calm"): lab.page.Called(
            10, 5 * (rule == "benchstat"), 100, dict.fromkeys(lab.peers.SLOWDOWNS, count)
        )
        for rule, count in found.items()
    }
    text = lab.page.page([(row, tally)], peers, lab.page.Plan(100, 5))
    assert "**1 of 2 goals is missed**: " in text
    assert text.count("call no more unchanged suites slower: RCCL perf gate (calm: 70 %).") == 1


def test_a_small_run_writes_the_page_and_keeps_the_part_of_real_runs(lab, tmp_path, rows_of):
    page = (Path(__file__).parents[2] / "docs/results/ab-quality.md").read_text(encoding="utf-8")
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")
    assert lab.page.main(["--draws", "1", "--only", "small", "--jobs", "1", "-o", str(path)]) == 0
    written = path.read_text(encoding="utf-8")
    # The last sentence of the simulation, and all that stands behind it.
    end = "\n* Times are made up"
    assert page[page.index(end) :] == written[written.index(end) :]
    told = rows_of(written, "Suites of 25")
    assert [(row[0], row[-1]) for row in told] == [("σ_p 1 %", "4"), ("calm", "4"), ("mix", "4")]
    # PASSED, IMPROVED and open, and what is red.
    assert all(
        sum(float(row[at]) for at in (4, 5, 6, 7)) == pytest.approx(100, abs=0.2) for row in told
    )


def test_a_page_without_a_place_for_real_runs_is_refused_and_a_new_one_has_it(
    lab, tmp_path, capsys, monkeypatch
):
    path = tmp_path / "page.md"
    path.write_text("# A page\n", encoding="utf-8")
    assert 2 == lab.page.main(["-o", str(path)])
    assert "expected both, in this order, once each" in capsys.readouterr().err
    path.unlink()
    monkeypatch.setattr(lab.page, "count_all", lambda *_: [])
    assert 0 == lab.page.main(["--only", "no such row", "--jobs", "1", "-o", str(path)])
    assert "" == lab.page.measured_part(path)
