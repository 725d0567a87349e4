"""What the fixture makes of a test's arguments and of its marker, before anything is measured."""

import pytest_roofline.plugin.over_ranks

JOB = """
import pytest
from pytest_roofline import Work

def program(rank): pass

@pytest.mark.roofline({marks})
def test_job(roofline, distributed):
    roofline.measure_job(distributed, program, work=Work(flops=1), world_size=1)
"""


def test_measure_job_heeds_the_cache_of_the_marker(desk, monkeypatch):
    asked = []
    monkeypatch.setattr(pytest_roofline.plugin.over_ranks, "measure_over", lambda *given: asked.append(given[-1].cache))
    for marks in ("", "cache='rotate'"):
        desk.suite(JOB.format(marks=marks))
        assert desk.run("--roofline-device=cpu").ret == 0
    assert asked == ["warm", "rotate"]
    # What ranks cannot do is refused by the argument's name.
    desk.suite(JOB.format(marks="cache='flush'"))
    result = desk.run("--roofline-device=cpu")
    result.stdout.fnmatch_lines(["*BadInput: cache is 'flush'; expected one of warm, rotate"])
    assert len(asked) == 2
