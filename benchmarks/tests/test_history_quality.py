"""The page on how soon `history` sees a step: nights are drawn as it says, and its rules report what they see."""

import math
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest


@pytest.fixture(scope="module")
def lab(program):
    return SimpleNamespace(
        page=program("history_quality"),
        nights=program("many.nights"),
        watching=program("many.watching"),
    )


@pytest.fixture
def otava(monkeypatch, lab):
    """Apache Otava as far as it is asked, with one point of change in the middle of every series."""
    seen = []

    def compute_change_points(seconds, **options):
        seen.append(options)
        point = SimpleNamespace(
            index=len(seconds) // 2, stats=SimpleNamespace(mean_1=1.0, mean_2=2.0)
        )
        return [point], []

    options = SimpleNamespace(window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    modules = {
        "otava": {},
        "otava.analysis": {"compute_change_points": compute_change_points},
        "otava.series": {"AnalysisOptions": lambda: options},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(lab.watching, "otava_version", lambda: "0.8.0")
    monkeypatch.setattr(lab.page, "otava_version", lambda: "0.8.0")
    return seen


def drawn_at(lab, number, *, old_steps=False):
    return lab.nights.draw(np.random.default_rng(3), lab.nights.WORLDS[number], old_steps=old_steps)


@pytest.mark.parametrize(
    ("number", "steps", "correlation"),
    [(0, (0.04, 0.06), (0.06, 0.15)), (1, (0.06, 0.08), (0.12, 0.19))],
)
def test_a_world_has_the_percentiles_that_it_names(lab, number, steps, correlation):
    measured = lab.nights.measure(drawn_at(lab, number))
    assert measured.spreads == pytest.approx(lab.nights.WORLDS[number].spreads, rel=0.3)
    assert steps[0] < measured.steps < steps[1]
    assert correlation[0] < measured.correlation < correlation[1]
    assert measured.shared == pytest.approx(0.003, abs=0.0007)


def test_old_steps_end_before_the_last_nights(lab):
    same, stepped = (drawn_at(lab, 0, old_steps=old_steps).logs for old_steps in (False, True))
    added = stepped - same
    assert np.abs(np.diff(added[:, -lab.nights.QUIET :], axis=1)).max() == pytest.approx(0)
    assert 40 < np.count_nonzero(np.abs(np.diff(added, axis=1)).max(axis=1) > 0.01) < 100


def test_slower_tests_are_slower_in_the_last_nights_only(lab):
    drawn = drawn_at(lab, 0)
    added = drawn.slower(np.array([4]), 0.10, 3).logs - drawn.logs
    assert np.argwhere(added > 0).tolist() == [[4, night] for night in (107, 108, 109)]
    assert added.max() == pytest.approx(math.log(1.10))


def test_the_second_pass_adds_to_the_first_and_the_medians_see_three_nights(lab, otava):
    drawn = drawn_at(lab, 1).slower(np.array([4, 9]), 0.20, 3)
    reports = lab.watching.watch(drawn, [4, 9])
    whole, both = (reports[rule] for rule in (lab.watching.WHOLE, lab.watching.BOTH))
    assert ([], {4, 9}) == (whole, {report.test for report in both})
    assert {107} == {report.night for report in both}
    assert [4, 9] == [report.test for report in reports[lab.watching.MEDIANS]]


def test_otava_is_asked_with_its_own_defaults(lab, otava):
    reports = lab.watching.otava(drawn_at(lab, 0), [7])
    assert [lab.watching.Report(7, 55, slower=True)] == reports
    assert [{"window_len": 50, "max_pvalue": 0.001, "min_magnitude": 0.0}] == otava


def test_a_report_counts_as_seen_in_the_right_direction_and_night_alone(lab):
    report = lab.watching.Report
    nights = {night: lab.page._fits(report(1, night, slower=True), 100) for night in (96, 97, 103)}
    assert {96: False, 97: True, 103: True} == nights
    assert not lab.page._fits(report(1, 100, slower=False), 100)


def test_without_otava_the_program_says_what_to_type(lab, monkeypatch, capsys):
    monkeypatch.setattr(lab.watching, "find_spec", lambda name: None)
    assert 2 == lab.page.main([])
    assert lab.watching.INSTALL in capsys.readouterr().err
    assert 2 == lab.page.main(["--sets", "0"])


def test_the_page_has_delays_goals_and_inventions_of_every_rule(lab, otava, capsys, monkeypatch):
    monkeypatch.setattr(lab.page, "NIGHTS", (3, 5))
    assert 0 == lab.page.main(["--sets", "1", "--unchanged", "1"])
    text = capsys.readouterr().out
    for rule in lab.watching.RULES:
        assert text.count(f"| {rule} | +10 % |") == 4
        assert text.count(f"| {rule} | GPU A |") == 1
    assert "| Apache Otava | GPU A | 100.0 % (2.5–100.0) of 1 | 160.00 |" in text
    assert "of 16 tests, in %." in text
