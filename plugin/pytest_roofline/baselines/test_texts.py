"""One run among thousands: its rows, and the texts of tests and hosts in them.

Equal tests and hosts are the same text.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ..core.facts import Environment
from ..core.keys import Key
from ..core.work import Work

# `test` (JSON), `unfit`, `hosts` (JSON), `device` and seconds per call: the median of a process.
MeasuredRow = tuple[str, str, str, str, float]


@dataclass(frozen=True, slots=True)
class RunFile:
    """The contents of one run: a row for each measurement.

    Args:
        broken: why the file cannot be used; then the other fields are empty.
        environment: the JSON of its environment.
        cut: whether the file ends in the middle of a line.
        rows: a `MeasuredRow` for each measurement.
        unmeasured: why a test left no measurement, the first of them; empty where each has one.
    """

    path: str
    broken: str = ""
    run_id: str = ""
    started: str = ""
    tool: str = ""
    environment: str = ""
    cut: bool = False
    imported: bool = False
    rows: Sequence[MeasuredRow] = ()
    unmeasured: str = ""

    @property
    def node(self) -> str:
        """The node that it was measured on."""
        return environment_of(self.environment).host.name


@functools.lru_cache(maxsize=2**12)
def environment_of(text: str) -> Environment:
    """Return an environment from its JSON. Unknown facts are skipped."""
    return msgspec.json.decode(text, type=Environment)


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
