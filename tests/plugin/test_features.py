"""A feature that was taken out is named as not installed where a test or an option asks for it."""

import pytest

from pytest_roofline.core.features import FEATURES

from .conftest import texts

ASKED = {
    "observe: an option": (
        "observe",
        "def test_copy(roofline): roofline.measure(lambda: None)",
        ("--roofline-profile",),
        pytest.ExitCode.USAGE_ERROR,
    ),
    "observe: memory": (
        "observe",
        "def test_copy(roofline): roofline.memory(lambda: None)",
        (),
        pytest.ExitCode.TESTS_FAILED,
    ),
    "kernel_gate: resources": (
        "kernel_gate",
        "def test_copy(roofline): roofline.resources(None, target='sm_90')",
        (),
        pytest.ExitCode.TESTS_FAILED,
    ),
    "ranks: a call": (
        "ranks",
        "def test_copy(distributed): distributed.run(print, world_size=2)",
        (),
        pytest.ExitCode.TESTS_FAILED,
    ),
    "ranks: a measurement": (
        "ranks",
        "def test_copy(roofline, distributed): roofline.measure_ranks(distributed, print)",
        (),
        pytest.ExitCode.TESTS_FAILED,
    ),
}


@pytest.mark.parametrize(("feature", "suite", "options", "status"), ASKED.values(), ids=ASKED)
def test_what_asks_for_a_missing_feature_is_refused_with_its_name(
    desk, monkeypatch, feature, suite, options, status
):
    monkeypatch.delitem(FEATURES, feature, raising=False)
    desk.suite(suite)
    result = desk.run(*options)
    assert status == result.ret
    assert f"the feature {feature} is not installed; install the whole package again" in texts(
        result
    )


def test_a_launch_of_ranks_is_refused_without_their_feature_and_a_step_of_slurm_is_not(
    desk, monkeypatch
):
    monkeypatch.delitem(FEATURES, "ranks", raising=False)
    desk.suite("def test_plain(): pass")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert desk.run().ret == 0
    monkeypatch.setenv("RANK", "0")
    result = desk.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "the feature ranks is not installed" in texts(result)
    assert "To run separate tests on these ranks, give -p no:roofline" in texts(result)
