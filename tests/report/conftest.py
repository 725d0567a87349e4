"""Measurements as pages show them: copies that compute nothing."""

from dataclasses import replace

import pytest

from pytest_roofline.core.work import Work
from pytest_roofline.stats.analyses import FEWEST_RED, Analyses

from ..conftest import MIB, Make


class Copies(Make):
    """The same factories, of pure copies, judged as a run of three rounds for what looks slow judges."""

    def copy(self, size_bytes=64 * MIB):
        return Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)

    def result(self, *seconds, policy=None, **changes):
        """As elsewhere; what looks slow after one process is measured twice more."""
        from pytest_roofline.stats.outlook import Policy

        policy = policy or Policy()
        plan = (
            Analyses(FEWEST_RED, slow_only=True)
            if policy.analyses == Analyses()
            else policy.analyses
        )
        facts = {"policy": replace(policy, analyses=plan), **changes}
        one = super().result(*seconds, **facts)
        slow = one.time_verdict.limit_s is None and (one.change or 0) > policy.tolerance
        return (
            super().result(*seconds * FEWEST_RED, **facts)
            if len(seconds) == 1 and plan.slow_only and slow
            else one
        )


@pytest.fixture(scope="session")
def make():
    return Copies()
