"""What a run does before a test measures, and what only afterwards."""

import pytest

from pytest_roofline.baselines.comparators import RunComparator
from pytest_roofline.core.records import Ceiling
from pytest_roofline.engine import ceiling
from pytest_roofline.plugin import in_process

from .conftest import ONE

TWO_COPIES = """
import pytest
import torch
from pytest_roofline import Work
from pytest_roofline.engine import ceiling

@pytest.mark.parametrize("index", [0, 1])
def test_copy(roofline, index):
    ceiling.events.append("test")
    source, target = torch.ones(2**16), torch.zeros(2**16)
    work = Work(read_bytes=2**18, write_bytes=2**18)
    roofline.measure(lambda: target.copy_(source), work=work, budget=0.02)
"""


@pytest.fixture
def events(monkeypatch):
    """What happens in order; tests of an inner run find it at `pytest_roofline.engine.ceiling`."""
    happened = []
    monkeypatch.setattr(ceiling, "events", happened, raising=False)
    return happened


def test_the_memory_of_a_cpu_is_measured_once_before_the_first_test(pytester, monkeypatch, events):
    def measure_triad(*_):
        events.append("triad")
        return Ceiling("traffic_GBps", 1e11, "measured", "a triad")

    monkeypatch.setattr(ceiling, "measure_triad", measure_triad)
    pytester.makepyfile(TWO_COPIES)
    options = ("-p", "no:hypothesispytest", "--roofline-device=cpu", "--roofline-rounds=1")
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=2)
    assert events == ["triad", "test", "test"]


def test_no_reference_is_looked_up_between_the_start_of_a_test_and_its_measurement(
    desk, monkeypatch, events
):
    options = desk.five_runs_of_one()
    desk.suite(
        ONE.format(marks="").replace(
            "    roofline.measure",
            "    from pytest_roofline.engine import ceiling\n"
            '    ceiling.events.append("test")\n'
            "    roofline.measure",
        )
    )
    look_up, measure = RunComparator.reference, in_process.measure_request

    def reference(self, key):
        events.append("reference")
        return look_up(self, key)

    def measure_request(*arguments):
        measured = measure(*arguments)
        events.append("measured")
        return measured

    monkeypatch.setattr(RunComparator, "reference", reference)
    monkeypatch.setattr(in_process, "measure_request", measure_request)
    desk.run(*options).assert_outcomes(passed=1)
    begun = events.index("test")
    assert events[begun : begun + 3] == ["test", "measured", "reference"]
