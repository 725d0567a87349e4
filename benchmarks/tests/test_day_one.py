"""The simulation of day one: what it publishes, and that it can fail."""

import importlib
import random
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/results/floors.md"


@pytest.fixture(scope="module")
def day_one(program):
    return program("day_one")


def test_healthy_cards_of_every_product_are_hardly_ever_red(day_one):
    found = {
        one.product: day_one.healthy_runs_red(one, 60, random.Random(3))
        for one in day_one.machines()
    }
    assert {"h100-sxm5-80gb", "a100-sxm4-80gb", "mi300x-192gb", "v100-sxm2-32gb"} <= found.keys()
    assert max(found.values()) <= 3


def test_cards_that_lie_as_far_apart_as_floors_are_low_would_be_red(day_one, monkeypatch):
    monkeypatch.setattr(day_one, "CARD", 0.15)
    machine = next(one for one in day_one.machines() if one.product == "h100-sxm5-80gb")
    assert day_one.healthy_runs_red(machine, 40, random.Random(3)) > 10


def test_what_the_page_of_floors_adds_is_what_is_found_here(day_one):
    added = importlib.import_module("floor_pages").STATISTICS
    assert day_one.excess(12, 200, day_one.SEED) == pytest.approx(added, abs=0.003)


def test_the_program_writes_what_stands_and_leaves_the_page_around_it(
    day_one, tmp_path, monkeypatch
):
    page = re.sub(r"\*\*Stale since (.+\n)+\n", "", PAGE.read_text(encoding="utf-8"))
    path = tmp_path / "page.md"
    monkeypatch.setattr(day_one, "healthy_runs_red", lambda *_: 0)
    shares = re.findall(
        r"(?:takes|must take) ([\d.]+)%\s+longer", day_one.part_of(page, day_one.PROGRAM)
    )
    excess = dict(zip((12, 1), (float(share) / 100 for share in shares), strict=True))
    monkeypatch.setattr(day_one, "excess", lambda rounds, *_: excess[rounds])
    path.write_text(
        re.sub(r"(?s)(day_one.py -->\n\n).*(\n\n<!-- end of b)", r"\1old\2", page), encoding="utf-8"
    )
    assert "Day one, simulated" not in path.read_text(encoding="utf-8")
    assert 0 == day_one.main(["-o", str(path)])
    assert page == path.read_text(encoding="utf-8")


def test_a_page_without_a_place_is_refused_before_anything_is_drawn(
    day_one, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(day_one, "machines", lambda: pytest.fail("something was drawn"))
    path = tmp_path / "page.md"
    assert 2 == day_one.main(["-o", str(path)])
    path.write_text("# A page\n", encoding="utf-8")
    assert 2 == day_one.main(["-o", str(path)])
    assert "expected both, in this order, once each" in capsys.readouterr().err
