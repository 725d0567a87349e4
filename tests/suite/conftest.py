"""What tests of a short run share; each module has a fixture `sessions`: what the run printed, and the run."""

import pytest


@pytest.fixture(scope="module")
def printed(sessions):
    return sessions[0]


@pytest.fixture(scope="module")
def run(sessions):
    return sessions[1]
