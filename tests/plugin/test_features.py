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
}


@pytest.mark.parametrize(("feature", "suite", "options", "status"), ASKED.values(), ids=ASKED)
def test_what_asks_for_a_missing_feature_is_refused_with_its_name(
    desk, monkeypatch, feature, suite, options, status
):
    monkeypatch.delitem(FEATURES, feature, raising=False)
    desk.suite(suite)
    result = desk.run(*options)
    assert status == result.ret
    assert f"the feature {feature} is not installed; expected the whole package" in texts(result)
