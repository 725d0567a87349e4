"""The texts of tests and hosts in tables of thousands of measurements.

Equal ones are the same text.
"""

import json
from collections.abc import Sequence

import msgspec

from ..core.keys import Key
from ..core.work import Work

# `test` (JSON), `unfit`, `hosts` (JSON), `device` and seconds per call: the median of a process.
MeasuredRow = tuple[str, str, str, str, float]


def text_of_test(key: Key, work: Work, achieved: tuple[str, ...], placed: bool) -> str:
    """Return a test as JSON. Equal tests have equal texts.

    Args:
        achieved: the mode in which it was timed.
        placed: whether its measurements name the device that they are of.
    """
    parts = {
        "key": key.identity,
        # The identity has its parameters sorted, but a label shows them in the order of the test's id.
        "label": json.dumps(key.label),
        "work": msgspec.json.encode(work).decode(),
        "achieved": json.dumps(achieved),
        "placed": json.dumps(placed),
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"


def hosts_text(hosts: Sequence[str]) -> str:
    """Return the hosts of ranks as JSON."""
    return json.dumps(sorted(set(hosts)))
