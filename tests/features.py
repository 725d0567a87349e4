"""Features that may be taken out of the package, and what of the tests needs them.

A test needs a feature if it lies in a folder of its name, if its file imports the feature, or if it is marked
`feature(NAME…)`. The mark without a name is of a test that tells of them all.
"""

import pytest

from pytest_roofline.core.features import FEATURES

# As they stand in the whole package.
ALL = {
    "ab": ("ab",),
    "bisect": ("bisect",),
    "many": ("fleet", "history", "rollout"),
    "exchange": ("export", "import_"),
    "observe": ("profiler",),
    "kernel_gate": (),
    "ranks": (),
}
# A feature that builds on others goes with them.
BUILT_ON = {"bisect": {"ab"}}
TAKEN_OUT = ALL.keys() - FEATURES.keys()
MISSING_COMMANDS = {name.removesuffix("_") for feature in TAKEN_OUT for name in ALL[feature]}


def with_installed(cases: dict[str, object]) -> dict[str, object]:
    """Return the cases of the commands that were not taken out, by the words of the command."""
    return {
        words: case for words, case in cases.items() if words.split()[0] not in MISSING_COMMANDS
    }


def needs_missing(item: pytest.Item) -> bool:
    """Return whether a test needs a feature that was taken out."""
    return any(not TAKEN_OUT.isdisjoint(mark.args or ALL) for mark in item.iter_markers("feature"))
