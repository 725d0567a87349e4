"""The simulation of day one: what it publishes, and that it can fail."""

import importlib
import random

import pytest


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
