"""The differences of two runs: what can be switched, what changes together, and what one machine cannot switch."""

import importlib.metadata
from dataclasses import replace

import pytest

from pytest_roofline.bisect import differences
from pytest_roofline.bisect.differences import group_text, groups_between, settings_of
from pytest_roofline.core.errors import BadInput


@pytest.fixture
def environments(make):
    """Return a function that makes the environments of two runs from packages and variables of both."""

    def pair(packages, variables, **facts):
        good, bad = (
            replace(
                make.environment(),
                packages={name: values[side] for name, values in packages.items() if values[side]},
                variables={
                    name: values[side] for name, values in variables.items() if values[side]
                },
            )
            for side in (0, 1)
        )
        return good, replace(bad, device=replace(bad.device, **facts))

    return pair


def test_packages_and_variables_can_be_switched_and_a_driver_is_named(environments, monkeypatch):
    monkeypatch.setattr(differences, "_pinned_by", lambda _: ())
    good, bad = environments(
        {"triton": ("3.7.1", "3.7.2 #abc"), "same": ("1", "1"), "new": ("", "2")},
        {
            "NCCL_ALGO": ("Tree", "Ring"),
            "OMP_NUM_THREADS": ("", "4"),
            # Each side has caches of its own.
            "TRITON_CACHE_DIR": ("good/triton", "bad/triton"),
        },
        driver="570.1",
    )
    groups, fixed = groups_between(good, bad)
    assert [group_text(group) for group in groups] == [
        "$NCCL_ALGO Tree → Ring",
        "triton 3.7.1 → 3.7.2",
        "$OMP_NUM_THREADS unset → 4",
    ]
    assert [text.partition(" ")[0] for text in fixed] == ["driver", "package"]
    assert settings_of(groups, (0, 2)) == (
        ["triton==3.7.1"],
        {"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "4"},
    )


def test_packages_that_pin_each_other_are_one_group(environments, monkeypatch):
    pins = {"torch": ["triton==3.7.1", "numpy>=1.26"], "triton": ["T_lib==1"]}
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: pins.get(name, []))
    versions = ("1", "2")
    good, bad = environments(dict.fromkeys(("numpy", "t-lib", "torch", "triton"), versions), {})
    groups, _ = groups_between(good, bad)
    assert [{member.name for member in group} for group in groups] == [
        {"numpy"},
        {"t-lib", "torch", "triton"},
    ]


def test_runs_that_cannot_be_searched_are_refused(environments, make):
    good, bad = environments({}, {}, driver="570.1")
    with pytest.raises(
        BadInput, match=r"the runs differ in driver .* → 570\.1; expected a difference"
    ):
        groups_between(good, bad)
    other = replace(bad, device=replace(bad.device, product="NVIDIA A100-SXM4-80GB"))
    with pytest.raises(BadInput, match=r"the runs are of two kinds of hardware, .*; expected two"):
        groups_between(good, other)
